"""When a model's gradients are ready, and the buckets that follow from it."""

from __future__ import annotations

import dataclasses
import inspect
import os
import statistics
import time
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import _arguments, _native

MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Layer:
    """A parameter. `bytes` of its gradient without compression; seconds of its backward pass since the gradient before
    it was ready, and of its forward pass; parameters with different `dtype` numbers share no bucket; `element_bytes` of
    each element."""

    name: str
    bytes: int
    backward: float
    forward: float
    dtype: int = 0
    element_bytes: int = 4

    def __post_init__(self) -> None:
        _arguments.text("the name of a layer", self.name, "a string")
        of = f"of layer '{self.name}'"
        _arguments.whole(f"bytes {of}", self.bytes, 0)
        _arguments.number(f"backward {of}", self.backward, 0)
        _arguments.number(f"forward {of}", self.forward, 0)
        _arguments.whole(f"dtype {of}", self.dtype, 0, 2**32 - 1)
        _arguments.whole(f"element_bytes {of}", self.element_bytes, 1, 16)


@dataclasses.dataclass(frozen=True)
class Trace:
    """Parameters in the order in which their gradients are ready, with medians over steps, equal on all ranks.

    exchanges: bytes and seconds of the buckets that rank 0 exchanged meanwhile, on the host; of a GPU there are none.
    iteration: seconds from one step to the next; 0 if fewer than two steps were seen.
    steps: that were seen.
    """

    layers: tuple[Layer, ...]
    exchanges: tuple[tuple[int, float], ...] = ()
    iteration: float = 0.0
    steps: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.layers, (tuple, list)):
            raise _arguments.refused("layers", self.layers, "a tuple of Layer")
        for each in self.layers:
            if not isinstance(each, Layer):
                raise _arguments.refused("a layer of the trace", each, "a Layer")
        if not isinstance(self.exchanges, (tuple, list)):
            raise _arguments.refused("exchanges", self.exchanges, "a tuple of (bytes, seconds)")
        for each in self.exchanges:
            if not isinstance(each, (tuple, list)) or len(each) != 2:
                raise _arguments.refused("an exchange of the trace", each, "(bytes, seconds)")
            _arguments.whole("bytes of an exchange", each[0], 0)
            _arguments.number("seconds of an exchange", each[1], 0)
        _arguments.number("iteration", self.iteration, 0)
        _arguments.whole("steps", self.steps, 0)

    @property
    def compute(self) -> float:
        """Seconds of the forward and the backward pass."""
        return sum(each.backward + each.forward for each in self.layers)

    def text(self) -> str:
        """The scheduler's CSV: name,bytes,backward,forward,dtype,element_bytes."""
        return _native.trace_text(_rows(self.layers))

    def write(self, path: str | os.PathLike[str]) -> None:
        with open(_arguments.writable("path", path), "w", encoding="utf-8") as file:
            file.write(self.text())

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Trace:
        """Of the scheduler's CSV, which has layers only. ValueError or RuntimeError if it is none."""
        with open(_arguments.path("path", path), encoding="utf-8") as file:
            return Trace(tuple(Layer(*row) for row in _native.read_trace(file.read())))


class Recorder:
    """`with hook.trace() as recorder:` around some training steps; afterwards `recorder.trace`. Its end is collective.

    Gradient accumulation: only passes whose gradients are exchanged count.
    """

    def __init__(self, model: DistributedDataParallel, native: Any, names: Sequence[str],
                 path: str | os.PathLike[str] | None) -> None:
        self._model, self._native, self._path = model, native, path
        self._parameters = dict(model.module.named_parameters())
        self._names = [name for name in names if self._parameters[name].requires_grad]
        self._on_device = self._parameters[self._names[0]].is_cuda
        self._steps: list[dict[str, Any]] = []
        self._handles: list[Any] = []
        self._active = False
        self._trace: Trace | None = None

    @property
    def trace(self) -> Trace:
        """RuntimeError before the end of the with block."""
        if self._trace is None:
            raise RuntimeError("gradsieve: a trace is there after the end of its with block")
        return self._trace

    def __enter__(self) -> Recorder:
        if self._handles or self._trace is not None:
            raise RuntimeError("gradsieve: a recorder is used once; call hook.trace() again")
        place = {id(self._parameters[name]): name for name in self._names}
        for name in self._names:
            self._handles.append(self._parameters[name].register_hook(lambda _, name=name: self._ready(name)))
        root = self._model.module
        for module in root.modules():
            own = [place[id(each)] for each in module.parameters(recurse=False) if id(each) in place]
            if own:
                first = own[0]
                self._handles.append(module.register_forward_pre_hook(lambda *_, name=first: self._enter_layer(name)))
                self._handles.append(module.register_forward_hook(lambda *_, name=first: self._leave_layer(name)))
        # Whoever is the root and has parameters: the step begins before its layer does.
        self._handles.append(self._model.register_forward_pre_hook(lambda *_: self._begin()))
        self._handles.append(self._model.register_forward_hook(lambda _, __, output: self._end_forward(output)))
        if hasattr(self._native, "keep_times"):
            self._native.keep_times(True)
        return self

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._active = False
        exchanges = self._native.keep_times(False) if hasattr(self._native, "keep_times") else []
        if kind is not None:
            return
        if self._on_device:
            torch.cuda.synchronize(self._parameters[self._names[0]].device)
        found = _summed_up(self._steps, self._names, self._parameters, exchanges)
        everyone: list[Any] = [None] * dist.get_world_size(self._model.process_group)
        dist.all_gather_object(everyone, found, group=self._model.process_group)
        if any(each is None for each in everyone):
            raise RuntimeError("gradsieve: no step with a backward pass ran within hook.trace() on some rank")
        self._trace = everyone[0]
        if self._path is not None and dist.get_rank(self._model.process_group) == 0:
            self._trace.write(self._path)

    def _now(self) -> Any:
        if not self._on_device:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _begin(self) -> None:
        self._active = torch.is_grad_enabled() and self._model.require_backward_grad_sync
        if self._active:
            self._steps.append({"begin": self._now(), "ready": {}, "enter": {}, "forward": {}})

    def _enter_layer(self, name: str) -> None:
        if self._active and name not in self._steps[-1]["enter"]:
            self._steps[-1]["enter"][name] = self._now()

    def _leave_layer(self, name: str) -> None:
        step = self._steps[-1] if self._active else None
        if step is not None and name in step["enter"] and name not in step["forward"]:
            step["forward"][name] = (step["enter"][name], self._now())

    def _end_forward(self, output: Any) -> None:
        if not self._active:
            return
        step = self._steps[-1]
        step["end"] = self._now()
        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(lambda _, step=step: self._begin_backward(step))

    def _begin_backward(self, step: dict[str, Any]) -> None:
        if "backward" not in step:
            step["backward"] = self._now()

    def _ready(self, name: str) -> None:
        if self._active:
            self._steps[-1]["ready"].setdefault(name, self._now())


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        for each in output.values():
            yield from _tensors(each)
    elif isinstance(output, (list, tuple)):
        for each in output:
            yield from _tensors(each)


def _seconds(begin: Any, end: Any) -> float:
    return max(0.0, end - begin if isinstance(begin, float) else 1e-3 * begin.elapsed_time(end))


def _rows(layers: Sequence[Layer]) -> list[tuple[str, int, float, float, int, int]]:
    return [dataclasses.astuple(each) for each in layers]  # type: ignore[misc]


def _summed_up(steps: list[dict[str, Any]], names: list[str], parameters: dict[str, torch.Tensor],
               exchanges: list[tuple[int, float, float]]) -> Trace | None:
    """None if there is no whole step. The first of several is left out: DDP forms its buckets in it."""
    whole = [step for step in steps if "end" in step and step["ready"]]
    if not whole:
        return None
    iterations = [_seconds(a["begin"], b["begin"]) for a, b in zip(whole[1:], whole[2:])]
    iterations = iterations or [_seconds(a["begin"], b["begin"]) for a, b in zip(whole, whole[1:])]
    used = whole[1:] or whole
    ready, forward = {}, {}
    for name in names:
        times = [_seconds(step.get("backward", step["end"]), step["ready"][name]) for step in used
                 if name in step["ready"]]
        if times:  # else it was never used
            ready[name] = statistics.median(times)
        spans = [_seconds(*step["forward"][name]) for step in used if name in step["forward"]]
        forward[name] = statistics.median(spans) if spans else 0.0
    total = statistics.median(_seconds(step["begin"], step["end"]) for step in used)
    timed = sum(forward[name] for name in ready)
    layers, before = [], 0.0
    dtypes = list(dict.fromkeys(parameters[name].dtype for name in names))
    for name in sorted(ready, key=lambda each: ready[each]):
        parameter = parameters[name]
        share = forward[name] * total / timed if timed > 0 else total / len(ready)
        layers.append(Layer(name, parameter.numel() * parameter.element_size(), ready[name] - before, share,
                            dtypes.index(parameter.dtype), parameter.element_size()))
        before = ready[name]
    per_step = len(exchanges) // len(steps)
    kept = exchanges[per_step:] or exchanges
    return Trace(tuple(layers), tuple((size, end - begin) for size, begin, end in kept),
                 statistics.median(iterations) if iterations else 0.0, len(whole))


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Parameters that are exchanged together, their bytes, and seconds since the backward pass began at which their
    exchange starts and ends, as predicted."""

    names: tuple[str, ...]
    bytes: int
    start: float
    finish: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """Buckets for DistributedDataParallel. Made by plan(); seconds and bytes.

    buckets: those of the planner, in the order of their exchange.
    bucket_cap_mb: where torch takes one number only, the cap whose buckets come nearest, in time and in number.
    predicted: an iteration with `buckets`; predicted_with_cap: with bucket_cap_mb; predicted_by_default: with the
        buckets that DDP forms when it is told nothing.
    excess: by which the buckets' end may exceed the least possible at most, for this trace; None: not known.
    """

    buckets: tuple[Bucket, ...]
    bucket_cap_mb: float
    predicted: float
    predicted_with_cap: float
    predicted_by_default: float
    excess: float | None
    cost: tuple[float, float]

    @property
    def bucket_cap_mb_list(self) -> list[float]:
        """A limit for each bucket, for a torch whose DDP has an argument of this name."""
        return [each.bytes / MIB for each in self.buckets]

    def ddp_options(self) -> dict[str, Any]:
        """For `DistributedDataParallel(module, **plan.ddp_options())`: the list where this torch takes one."""
        if "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel.__init__).parameters:
            return {"bucket_cap_mb_list": self.bucket_cap_mb_list}
        return {"bucket_cap_mb": self.bucket_cap_mb}

    @property
    def predicted_here(self) -> float:
        """Of an iteration with ddp_options() in this torch."""
        return self.predicted if "bucket_cap_mb_list" in self.ddp_options() else self.predicted_with_cap

    def compared(self, measured: Trace) -> str:
        """One line: the predicted and the measured iteration, of a trace of a run with ddp_options()."""
        if not isinstance(measured, Trace):
            raise _arguments.refused("measured", measured, "a Trace, such as recorder.trace")
        if measured.iteration <= 0:
            raise ValueError("gradsieve: the trace has no iteration: record two steps or more")
        error = 100 * (self.predicted_here / measured.iteration - 1)
        return (f"iteration: predicted {1e3 * self.predicted_here:.3f} ms, measured {1e3 * measured.iteration:.3f} ms "
                f"({error:+.1f} %)")

    def __str__(self) -> str:
        lines = [f"{'bucket':>6}  {'params':>6}  {'bytes':>12}  {'start ms':>9}  {'end ms':>9}"]
        lines += [f"{i:6}  {len(each.names):6}  {each.bytes:12}  {1e3 * each.start:9.3f}  {1e3 * each.finish:9.3f}"
                  for i, each in enumerate(self.buckets)]
        lines.append(f"iteration: {1e3 * self.predicted:.3f} ms; with bucket_cap_mb={self.bucket_cap_mb:.6g} "
                     f"{1e3 * self.predicted_with_cap:.3f} ms; with DDP's own buckets "
                     f"{1e3 * self.predicted_by_default:.3f} ms")
        return "\n".join(lines)


def plan(trace: Trace | str | os.PathLike[str], link: str | tuple[float, float] | None = None, *,
         workers: int | None = None, exchange: str = "dense", density: float | None = None,
         entry_bytes: float | None = None, planner: str = "optimal") -> Plan:
    """Proposes buckets for a trace over a link.

    trace: of hook.trace(), or a file in the scheduler's CSV.
    link: a name of the library's networks, or "ALPHA,BETA" or (alpha, beta), seconds a message and a byte of a link;
        None: what the trace's own exchanges took, a straight line through the median of each size, which needs
        buckets of different sizes.
    workers: ranks; None: those of the default group. exchange: "dense", an all-reduce; "gather", "index_union",
        "leader" or "coded_all_reduce", of `density` of the elements; entry_bytes of "gather" and "coded_all_reduce", of
        an element that is sent [8].
        They describe the exchange over a link, and are refused without one.
    planner: optimal, mgwfbp, free_merge, wfbp or single.
    ValueError for what cannot be obeyed. Cost: the planner's for each of at most 65 caps.
    """
    if not isinstance(trace, Trace):
        if not isinstance(trace, (str, os.PathLike)):
            raise _arguments.refused("trace", trace, "a Trace, such as recorder.trace, or the path of its file")
        trace = Trace.read(trace)
    _arguments.choice("planner", planner, _native.planners)
    _arguments.choice("exchange", exchange, ("dense", "gather", "index_union", "leader", "coded_all_reduce"))
    density = _arguments.density(density)
    if workers is not None:
        workers = _arguments.whole("workers", workers, 1, 2**24)
    if entry_bytes is not None:
        entry_bytes = _arguments.number("entry_bytes", entry_bytes, 0, 64, above=True)
    if not trace.layers:
        raise ValueError("gradsieve: the trace has no layers")
    if link is None:
        if workers is not None or exchange != "dense" or density is not None or entry_bytes is not None:
            raise ValueError("gradsieve: workers, exchange, density and entry_bytes describe a link, and there is none: "
                             "name one, such as link=(1e-4, 8e-9)")
        times: dict[int, list[float]] = {}
        for size, seconds in trace.exchanges:
            times.setdefault(size, []).append(seconds)
        if len(times) < 2:
            raise ValueError("gradsieve: the trace has no exchanges of different sizes: name a link, or record steps "
                             "with several buckets")
        a, b = _native.fit_cost([(size, statistics.median(times[size])) for size in sorted(times)])
    else:
        if exchange == "dense" and density is not None:
            raise ValueError("gradsieve: a dense exchange has no density: choose gather, index_union, leader or "
                             "coded_all_reduce")
        if exchange != "dense" and density is None:
            raise ValueError(f"gradsieve: exchange {exchange} needs a density: name the share of elements that is sent")
        if exchange not in ("gather", "coded_all_reduce") and entry_bytes is not None:
            raise ValueError("gradsieve: entry_bytes are those of the exchanges gather and coded_all_reduce")
        if workers is None:
            workers = dist.get_world_size()
        a, b = _native.link_cost(_arguments.link(link), exchange, workers, 1.0 if density is None else density,
                                 8.0 if entry_bytes is None else entry_bytes)
    rows = _rows(trace.layers)

    def made(planner: str, first: int = 0, cap: int = 0) -> tuple[list[Any], float | None]:
        return _native.make_plan(rows, a, b, planner, first, cap)

    def iteration(groups: list[Any]) -> float:
        backward = sum(each.backward for each in trace.layers)
        forward = sum(each.forward for each in trace.layers)
        return forward + max(backward, groups[-1][3])

    # torch's rule: a bucket is full once it has its cap; older ones take 1 MiB for the first, whatever they are told.
    takes_first = inspect.signature(DistributedDataParallel.__init__).parameters["bucket_cap_mb"].default is None
    small = int(getattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", MIB))

    def with_cap(cap: int) -> list[Any]:
        return made(planner, cap if takes_first else small, cap)[0]

    groups, excess = made(planner)
    planned = iteration(groups)

    def distance(cap: int) -> tuple[float, int, int]:
        """From the planner's buckets: in time, to a millionth; then in their number; of equal caps the largest."""
        capped = with_cap(cap)
        return round(abs(iteration(capped) - planned) / (planned or 1), 6), abs(len(capped) - len(groups)), -cap

    total = sum(each.bytes for each in trace.layers)
    caps = {max(1, total >> shift) for shift in range(24)} | {each[1] for each in groups[:40]} | {total}
    cap = min(caps, key=distance)
    begin, buckets = 0, []
    for end, size, start, finish in groups:
        buckets.append(Bucket(tuple(each.name for each in trace.layers[begin:end]), size, start, finish))
        begin = end
    return Plan(tuple(buckets), cap / MIB, planned, iteration(with_cap(cap)),
                iteration(made(planner, small, 25 * MIB)[0]), excess, (a, b))
