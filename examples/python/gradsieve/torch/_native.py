"""What the library does for a model's buckets, by ctypes: gradsieve_buckets_* and gradsieve_plan_* of native/buckets.cpp,
of which the C library alone has nothing."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import threading
import warnings
import weakref
from typing import Any, Callable, ContextManager, Iterator, Sequence

import torch
import torch.distributed as dist

from .. import _library
from .._library import ANSWER, Table, array, asked, told
from .._process_group import DeviceProcessGroup, ProcessGroup

library = _library.loaded
if not hasattr(library, "gradsieve_buckets_create"):
    raise ImportError(_library.C_ALONE)

_address, _size, _text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
_texts, _sizes, _place = ctypes.POINTER(_text), ctypes.POINTER(_size), ctypes.POINTER(_address)
_double = ctypes.POINTER(ctypes.c_double)
_layers, _ranks = (ctypes.POINTER(_library.Layer), _size), ctypes.POINTER(Table)
_Warn = ctypes.CFUNCTYPE(None, _text)
_library.declare({
    "buckets_names": (_text, *ANSWER), "buckets_options": (_texts, _size, ctypes.c_int, *ANSWER),
    "buckets_treats": (_texts, _size, ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)),
    "buckets_create": (_texts, _size, *_layers, _ranks, _ranks, ctypes.c_int, _Warn, _place),
    "buckets_create_on_device": (_texts, _size, *_layers, _ranks, _ranks, ctypes.POINTER(_library.Device), _Warn,
                                 _place),
    "buckets_exchange": (_address, ctypes.c_int, ctypes.c_int, _address, _size, _sizes, _size,
                         ctypes.POINTER(ctypes.c_uint32), ctypes.c_int, ctypes.c_int, ctypes.c_int),
    "buckets_text": (_address, _text, *ANSWER),
    "buckets_restore_totals": (_address, ctypes.POINTER(ctypes.c_uint64), ctypes.c_double),
    "buckets_state": (_address, _sizes),
    "buckets_group": (_address, _size, ctypes.POINTER(_sizes), _sizes, _place, _sizes),
    "buckets_take_state": (_address, ctypes.c_int, _size, ctypes.POINTER(_sizes), _sizes, _place, _sizes),
    "buckets_discard_step": (_address,), "buckets_undo_step": (_address,),
    "buckets_rescale": (_address, ctypes.c_float, _sizes, _size), "buckets_residual_norm": (_address, _double),
    "buckets_residuals": (_address, _place, _sizes, _size),
    "plan_make": (_texts, _size, ctypes.c_double, ctypes.c_double, _text, ctypes.c_uint64, ctypes.c_uint64, *ANSWER),
    "plan_link_cost": (_text, _text, ctypes.c_int, ctypes.c_double, ctypes.c_double, _double, _double),
    "plan_fit_cost": (ctypes.POINTER(ctypes.c_uint64), _double, _size, _double, _double),
    "plan_write": (_texts, _size, *ANSWER), "plan_read": (_text, *ANSWER),
})
library.gradsieve_buckets_destroy.argtypes, library.gradsieve_buckets_destroy.restype = (_address,), None

FORMATS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}
USED, UPDATED = 1, 1 << 16  #: marks of a parameter: this rank used it; its gradient holds an earlier update

FORKED = ("gradsieve: this process was forked from the one that registered the hook: the thread that exchanges buckets "
          "is in that one")


def call(name: str, *arguments: Any, by: Sequence[ProcessGroup] = ()) -> None:
    """What failed in a process group is said in its own words."""
    try:
        _library.call(name, *arguments, by=by)
    except _library.CommunicationError as error:
        if isinstance(error.__cause__, RuntimeError):
            raise RuntimeError(str(error.__cause__)) from error.__cause__
        raise


def _pairs(flat: list[str]) -> list[tuple[str, str]]:
    return list(zip(flat[::2], flat[1::2]))


def _names(kind: str) -> list[str]:
    return asked("buckets_names", kind.encode())


selectors, partitioners, residuals = _names("selectors"), _names("partitioners"), _names("residuals")
serves_devices = bool(library.gradsieve_has_devices())
index_codecs, value_codecs, planners = _names("index_codecs"), _names("value_codecs"), _names("planners")
(biases_and_norms,), (version,) = _names("biases_and_norms"), _names("version")


def recipes() -> list[str]:
    return _names("recipes")


@dataclasses.dataclass
class Wishes:
    """What register() was told. model: name, elements, dimensions and other names of all parameters; see _passthrough."""
    recipe: str = ""
    options: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    density: float | None = None
    initial_density: float = 0.01
    warmup: int = 0
    warmup_stages: int = 0
    passthrough: list[str] = dataclasses.field(default_factory=list)
    passthrough_up_to: int = 0
    model: list[tuple[str, int, int, list[str]]] = dataclasses.field(default_factory=list)
    on_non_finite: str = "skip"
    undo: bool = False
    shards: bool = False

    def texts(self) -> Iterator[str]:
        for name in ("recipe", "initial_density", "warmup", "warmup_stages", "passthrough_up_to", "on_non_finite"):
            yield from (name, str(getattr(self, name)))
        yield from ("undo", str(int(self.undo)), "shards", str(int(self.shards)))
        if self.density is not None:
            yield from ("density", repr(float(self.density)))
        for name, value in self.options:
            yield from ("option", f"{name}={value}")
        for each in self.passthrough:
            yield from ("passthrough", each)
        for name, size, dimensions, others in self.model:
            yield from ("layer", name, "size", str(size), "dimensions", str(dimensions))
            for each in others:
                yield from ("other", each)


def options(recipe: str, wanted: list[tuple[str, str]], on_device: bool) -> list[tuple[str, str]]:
    return _pairs(asked("buckets_options", *told(Wishes(recipe, wanted).texts()), int(on_device)))


def _treats(wishes: Wishes, on_device: bool) -> tuple[bool, bool]:
    doubles, again = ctypes.c_int(), ctypes.c_int()
    call("buckets_treats", *told(wishes.texts()), int(on_device), ctypes.byref(doubles), ctypes.byref(again))
    return bool(doubles.value), bool(again.value)


def passes_float64(wishes: Wishes) -> bool:
    return _treats(wishes, False)[0]


def takes_updates_again(wishes: Wishes, on_device: bool) -> bool:
    """Whether an update that is still in the gradient when the next one is exchanged counts right."""
    return _treats(wishes, on_device)[1]


# ---- planners --------------------------------------------------------------------------------------------------------

Row = "tuple[str, int, float, float, int, int]"  #: name, bytes, backward, forward, dtype, element_bytes


def _of_rows(rows: Sequence[Any]) -> tuple[Any, int]:
    return told(repr(float(each)) if isinstance(each, float) else str(each) for row in rows for each in row)


def make_plan(rows: Sequence[Any], a: float, b: float, planner: str, first: int,
              cap: int) -> tuple[list[tuple[int, int, float, float]], float | None]:
    """Where each group ends, its bytes, start and finish; and the certificate."""
    said = asked("plan_make", *_of_rows(rows), a, b, planner.encode(), first, cap)
    groups = [(int(end), int(size), float(start), float(finish))
              for end, size, start, finish in zip(*(said[i:len(said) - len(said) % 4:4] for i in range(4)))]
    return groups, float(said[-1]) if len(said) % 4 else None


def link_cost(link: str, exchange: str, workers: int, density: float, entry_bytes: float) -> tuple[float, float]:
    a, b = ctypes.c_double(), ctypes.c_double()
    call("plan_link_cost", _library.text(link, "link"), exchange.encode(), workers, density, entry_bytes, ctypes.byref(a),
         ctypes.byref(b))
    return a.value, b.value


def fit_cost(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    a, b = ctypes.c_double(), ctypes.c_double()
    call("plan_fit_cost", array(ctypes.c_uint64, (size for size, _ in points)),
         array(ctypes.c_double, (seconds for _, seconds in points)), len(points), ctypes.byref(a), ctypes.byref(b))
    return a.value, b.value


def trace_text(rows: Sequence[Any]) -> str:
    (text,) = asked("plan_write", *_of_rows(rows))
    return text


def read_trace(text: str) -> list[Any]:
    said = asked("plan_read", _library.text(text, "the trace"))
    return [(said[i], int(said[i + 1]), float(said[i + 2]), float(said[i + 3]), int(said[i + 4]), int(said[i + 5]))
            for i in range(0, len(said), 6)]


# ---- buckets ---------------------------------------------------------------------------------------------------------


@_Warn
def _warn(text: bytes) -> None:
    warnings.warn(text.decode(), UserWarning)


def memory_of(gradient: torch.Tensor, device: torch.device = torch.device("cpu")) -> tuple[int, int, int]:
    """Format, address and elements. ValueError for what is not contiguous on this device, and for other types."""
    if gradient.device != device or not gradient.is_contiguous():
        raise ValueError(f"gradsieve: a gradient lies on device {gradient.device}, where a contiguous one on {device} is "
                         "expected")
    if gradient.dtype not in FORMATS:
        raise ValueError(f"gradsieve: a gradient holds {gradient.dtype}, expected float, half, bfloat16 or double")
    return FORMATS[gradient.dtype], gradient.data_ptr(), gradient.numel()


_of_parent: list[Any] = []


class Buckets:
    """Compressors of a model's buckets, see native/bucket_exchange.hpp. A subclass says when none is under way."""

    def __init__(self, wishes: Wishes, group: dist.ProcessGroup, inside: dist.ProcessGroup | None,
                 layers: Sequence[tuple[str, int]], threads: int = 1, stream: Any = None) -> None:
        """`stream`: of CUDA; None: on the host."""
        make: Callable[[Any], Any] = ProcessGroup
        if stream is not None:
            make = lambda group: DeviceProcessGroup(group, stream.device)  # noqa: E731
        self.ranks = [make(group)] + ([] if inside is None else [make(inside)])
        named = array(_library.Layer, (_library.Layer(_library.text(name, "a name"), size) for name, size in layers))
        tables = [ctypes.byref(each.table) for each in self.ranks] + [None]
        self.at = _address()
        if stream is None:
            call("buckets_create", *told(wishes.texts()), named, len(named), *tables[:2], threads, _warn,
                 ctypes.byref(self.at))
        else:
            self._device = _library.Device(stream.cuda_stream, *self._pool(stream))  # its functions are called later, too
            call("buckets_create_on_device", *told(wishes.texts()), named, len(named), *tables[:2],
                 ctypes.byref(self._device), _warn, ctypes.byref(self.at))
        self.process = os.getpid()

    def _pool(self, stream: Any) -> tuple[Any, Any]:
        """torch's own of device memory."""
        def allocate(_: int | None, size: int) -> int | None:
            try:
                return torch.cuda.caching_allocator_alloc(size, stream.device, stream)
            except RuntimeError:
                return None

        def release(_: int | None, memory: int) -> None:
            torch.cuda.caching_allocator_delete(memory)
        kinds = dict(_library.Device._fields_)
        return kinds["allocate"](allocate), kinds["release"](release)

    def end(self) -> None:
        """Frees it. A child of fork() keeps it: the threads of its process groups are in the parent."""
        if self.process == os.getpid():
            library.gradsieve_buckets_destroy(self.at)
            for each in self.ranks:
                each.release()
        else:
            _of_parent.append(self)

    def check_process(self) -> None:
        """RuntimeError in a child of fork()."""
        if self.process != os.getpid():
            raise RuntimeError("gradsieve: this process was forked from the one that registered the hook, whose process "
                               "group is in that one")

    def exchange(self, memory: tuple[int, int, int], begins: bool, members: Sequence[int],
                 marks: Sequence[int] | None = None, unused_is_left: bool = False, fixed: bool = False,
                 agreed: bool = False) -> None:
        """See bucket_exchange::exchange()."""
        call("buckets_exchange", self.at, begins, *memory, array(_size, members), len(members),
             None if marks is None else array(ctypes.c_uint32, marks), unused_is_left, fixed, agreed, by=self.ranks)

    def call(self, name: str, *arguments: Any) -> None:
        call("buckets_" + name, self.at, *arguments, by=self.ranks)


class Native:
    """What all kinds of hooks can do between steps."""

    def __init__(self, buckets: Buckets, end: Callable[[], None] | None = None) -> None:
        """`end`: what is to be done when this is gone; None: buckets.end()."""
        self._buckets = buckets
        self._residuals_at: list[int | None] = []
        self._residuals: list[torch.Tensor | None] = []
        finalizer = weakref.finalize(self, end or buckets.end)
        finalizer.atexit = False

    def _between_steps(self) -> ContextManager[None]:
        """Until no bucket is under way. RuntimeError in a child that was forked while one was."""
        raise NotImplementedError

    def _call(self, name: str, *arguments: Any) -> None:
        with self._between_steps():
            self._buckets.call(name, *arguments)

    def _text(self, kind: str) -> list[tuple[str, str]]:
        with self._between_steps():
            return _pairs(asked("buckets_text", self._buckets.at, kind.encode()))

    def report(self) -> dict[str, Any]:
        return {name: float(value) if "seconds" in name else int(value) for name, value in self._text("report")}

    def codecs(self) -> dict[str, str]:
        return dict(self._text("codecs"))

    def passing(self) -> list[tuple[str, int]]:
        return [(name, int(size)) for name, size in self._text("passing")]

    def layers(self) -> list[tuple[str, int]]:
        return [(name, int(size)) for name, size in self._text("layers")]

    def totals(self) -> tuple[int, int, int, int, int, int, float]:
        found = self.report()
        return tuple(found["total_" + name] for name in (  # type: ignore[return-value]
            "steps", "bytes_sent", "bytes_received", "baseline_bytes", "non_finite", "saturated", "seconds"))

    def restore_totals(self, totals: Sequence[Any]) -> None:
        self._call("restore_totals", array(ctypes.c_uint64, totals[:6]), float(totals[6]))

    def state(self) -> list[tuple[list[int], torch.Tensor]]:
        """Of each group its parameters, and a tensor of bytes."""
        groups, count, size = [], _size(), _size()
        members, at = _sizes(), _address()
        with self._between_steps():
            self._buckets.call("state", ctypes.byref(count))
            for i in range(count.value):
                found = _size()
                self._buckets.call("group", i, ctypes.byref(members), ctypes.byref(found), ctypes.byref(at),
                                   ctypes.byref(size))
                saved = torch.empty(size.value, dtype=torch.uint8, device="cpu")
                ctypes.memmove(saved.data_ptr(), at, size.value)
                groups.append((members[:found.value], saved))
            self._buckets.call("state", None)
        return groups

    def restore(self, groups: Sequence[tuple[Sequence[int], Any]]) -> None:
        self._take_state(groups, absorbs=False)

    def absorb(self, groups: Sequence[tuple[Sequence[int], Any]]) -> None:
        self._take_state(groups, absorbs=True)

    def _take_state(self, groups: Sequence[tuple[Sequence[int], Any]], absorbs: bool) -> None:
        members = [array(_size, each) for each, _ in groups]
        saved = [_bytes_of(each) for _, each in groups]
        self._call("take_state", absorbs, len(groups), array(_sizes, (ctypes.cast(each, _sizes) for each in members)),
                   array(_size, map(len, members)), array(_address, (each.data_ptr() for each in saved)),
                   array(_size, (each.numel() for each in saved)))

    def discard_step(self) -> None:
        self._call("discard_step")

    def undo_step(self) -> None:
        self._call("undo_step")

    def rescale(self, factor: float, members: Sequence[int] = ()) -> None:
        """members: parameters that are exchanged together; none: all."""
        self._call("rescale", factor, array(_size, members), len(members))

    def residual_norm(self) -> float:
        norm = ctypes.c_double()
        self._call("residual_norm", ctypes.byref(norm))
        return norm.value

    def residuals(self, sizes: Sequence[int]) -> list[torch.Tensor | None]:
        """What has not been sent of each parameter, of these sizes, in the model's order: memory of the library, to be read
        before the next call. None: nothing, before its first exchange."""
        at = (_address * len(sizes))()
        self._call("residuals", at, array(_size, sizes), len(sizes))
        if list(at) != self._residuals_at:
            self._residuals_at = list(at)
            self._residuals = [self._buckets.ranks[0]._around(each, size, torch.float32) if each else None
                               for each, size in zip(at, sizes)]
        return self._residuals


def _bytes_of(saved: Any) -> torch.Tensor:
    if isinstance(saved, (bytes, bytearray)):  # as older versions saved them
        return torch.frombuffer(bytearray(saved), dtype=torch.uint8) if saved else torch.empty(0, dtype=torch.uint8, device="cpu")
    if not isinstance(saved, torch.Tensor):
        raise ValueError("gradsieve: a saved group is neither a tensor nor bytes")
    if saved.dtype != torch.uint8:
        raise ValueError(f"gradsieve: a saved group is a tensor of {str(saved.dtype).replace('torch.', '')}, expected uint8")
    return saved.cpu().contiguous()


def stream_on(device: torch.device) -> Any:
    """For exchanges, ahead of other work of the GPU."""
    with torch.cuda.device(device):
        return torch.cuda.Stream(device, priority=-1)


@contextlib.contextmanager
def in_order(stream: Any) -> Iterator[None]:
    """Work of `stream`, behind and before that of the current one of CUDA: what is read, it is waited for."""
    current = torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        current.wait_stream(stream)


class ShardHook(Native):
    """The exchange of sharded models: units, parameters whose gradients come as one flat tensor, in an order that is the
    same on all ranks. A unit is cut into pieces, each the part of a parameter that belongs to one rank's shard. On a GPU
    it only enqueues, in a stream of its own, behind and before the work of torch's current one."""

    def __init__(self, *, wishes: Wishes, group: dist.ProcessGroup, shards: bool, sizes: Sequence[int],
                 names: Sequence[str], counts: Sequence[int], threads: int, stream: Any = None) -> None:
        """sizes, names: of the pieces of all units, one after the other. counts: how many each unit has. shards: a rank
        wants the mean of its own shard alone. stream: of CUDA; None: on the host."""
        wishes = dataclasses.replace(wishes, shards=shards)
        self._stream, self._device = stream, torch.device("cpu") if stream is None else stream.device
        super().__init__(Buckets(wishes, group, None, list(zip(names, sizes)), threads, stream))
        ends = [sum(counts[:i + 1]) for i in range(len(counts))]
        if ends[-1:] != [len(names)]:
            raise ValueError(f"gradsieve: the units have {sum(counts)} pieces, the layout {len(names)}")
        self._units = [range(end - count, end) for end, count in zip(ends, counts)]
        self._seen: set[int] = set()  # in this step
        self._begun = False
        self._lock = threading.Lock()

    def exchange(self, unit: int, gradient: torch.Tensor) -> None:
        """Replaces a unit's gradient by what all ranks' exchange leaves here: with shards the mean in this rank's own, and
        nothing of use elsewhere. The first unit after end_step(), and one that comes again, begin a step."""
        self._buckets.check_process()
        with self._lock, self._in_order():
            begins = unit in self._seen or not self._begun
            if begins:
                self._seen.clear()
            self._seen.add(unit)
            self._begun = True
            self._buckets.exchange(memory_of(gradient, self._device), begins, self._units[unit])

    def end_step(self) -> None:
        """What comes next belongs to another step."""
        self._begun = False

    @contextlib.contextmanager
    def _between_steps(self) -> Iterator[None]:
        if not self._lock.acquire(self._buckets.process == os.getpid()):
            raise RuntimeError("gradsieve: this process was forked while a unit was exchanged")
        try:
            with self._in_order():
                yield
        finally:
            self._lock.release()

    def _in_order(self) -> ContextManager[None]:
        return contextlib.nullcontext() if self._stream is None else in_order(self._stream)
