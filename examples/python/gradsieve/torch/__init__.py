"""gradsieve as a communication hook of torch's DistributedDataParallel and FSDP.

    model = DistributedDataParallel(module)
    hook = gradsieve.torch.register(model, recipe="laplacian+deft", density=0.01,
                                    passthrough=[gradsieve.torch.BIASES_AND_NORMS, "head.*"])
    ...                          # train as ever: gradients come out as the mean over all ranks of what they sent
    print(hook.report().summary())
    hook.state_dict()            # what has not been sent yet; belongs into a checkpoint, of every rank

The same with FullyShardedDataParallel(module), and with a module after torch's fully_shard().
"""

from __future__ import annotations

import contextlib
import itertools
import os
import weakref
from typing import Any, Callable, Mapping, Sequence

import torch
import torch.distributed as dist

from . import _arguments, _groups, _hook, _native, _optimizers, _parameters, _passthrough, _shards
from ._buckets import device_hook, host_hook
from ._groups import nodes
from ._passthrough import BIASES_AND_NORMS
from ._plan import Bucket, Layer, Plan, Recorder, Trace, plan
from ._report import REMEMBERED, Report, set_ratios
from ._weights import mean_factor

__version__ = _native.version
__all__ = ["BIASES_AND_NORMS", "Bucket", "CompressedStep", "Hook", "Layer", "OuterStep", "Plan", "Recorder", "Report", "Trace",
           "index_codecs", "mean_factor", "nodes", "options", "partitioners", "plan", "planners", "recipes",
           "register", "residuals", "selectors", "value_codecs"]

STATE_VERSION = 3
READ_VERSIONS = (2, 3)  #: in 2 what groups keep is bytes, in 3 a tensor of them
STATE_PARTS = {"rank": _arguments.is_count, "world": _arguments.is_count, "groups": _arguments.is_groups,
               "totals": _arguments.is_totals}
NODES_ARE_FIXED = "with nodes each rank keeps parts of the gradient that depend on their size"
SHARDS_ARE_FIXED = "with a sharded model each rank keeps the gradient by shards that depend on their number"

selectors: list[str] = _native.selectors
partitioners: list[str] = _native.partitioners
residuals: list[str] = _native.residuals
index_codecs: list[str] = _native.index_codecs
value_codecs: list[str] = _native.value_codecs
planners: list[str] = _native.planners

#: A bool, a number, a name, or for adacomp's bins {pattern of layers' names: length, "": that of the others}.
Option = "bool | int | float | str | Mapping[str, int]"

LAST_HOOK = "_gradsieve_hook"  #: of a GradScaler: the number of the hook that has used it last
_numbers = itertools.count()


class Hook:
    """The compressors of one model. Made by register(); calls are not for use inside a backward pass.

    options: of every policy of the recipe, with their values as text.
    """

    def __init__(self, model: torch.nn.Module, native: Any, names: Sequence[str], place: tuple[int, int],
                 options: dict[str, str], fixed_world: str | None, on_non_finite: str,
                 attached: _groups.Attached) -> None:
        """`place`: this rank, and how many there are. `fixed_world`: why a state fits as many ranks only, if so.
        `attached`: to the model, which holds it too."""
        self.options = options
        self._on_non_finite = on_non_finite
        self._model = model
        self._native = native
        self._names = list(names)
        self._rank, self._world = place
        self._fixed_world = fixed_world
        self._attached = attached
        self._number = next(_numbers)
        self._scaler: Callable[[], Any] = lambda: None  # that of the last scaler_step()
        self._history: list[tuple[int, int, int, float]] = []

    def report(self) -> Report:
        """A dict of numbers, for TensorBoard as they are: of the last step of this rank, all buckets together, and of
        all steps (total_...). `ratio`: bytes without compression over bytes sent; `ring_ratio`: bytes that a rank receives
        in a ring all-reduce without compression, over those that it has received, which are more the more ranks there are
        where all gather all messages; `seconds_...` by stage.
        report().summary() is a table of it, report().plot(path) a picture. On a GPU this waits for the step, and the
        totals are of the steps whose report was asked for."""
        values = self._native.report()
        passing = self.passthrough
        values["passthrough_layers"] = len(passing)
        set_ratios(values)
        if values["total_steps"] > 0 and (not self._history or self._history[-1][0] != values["step"]):
            self._history.append((values["step"], values["bytes_sent"], values["baseline_bytes"], values["seconds"]))
            del self._history[:-REMEMBERED]
        return Report(values, self._history, passing)

    @property
    def passthrough(self) -> dict[str, int]:
        """The parameters that pass through uncompressed, and their elements; frozen ones too."""
        return dict(self._native.passing())

    def describe(self) -> str:
        """The recipe's options, and which parameters pass through: how many, their elements and their names."""
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return (options and options + "; ") + _passthrough.describe(self.passthrough, self._native.layers())

    def codecs(self) -> dict[str, str]:
        """index_codec of the last message, where the recipe leaves a choice; else empty."""
        return self._native.codecs()

    def trace(self, path: str | os.PathLike[str] | None = None) -> Recorder:
        """`with hook.trace("layers.csv") as recorder:` around some steps: when each gradient is ready, its bytes, and
        the seconds of each exchange, in recorder.trace and, in the scheduler's CSV, in the file, which rank 0 writes.
        plan() makes buckets of it. The end is collective. ValueError for a sharded model, which has no buckets."""
        if _shards.kind_of(self._model) or isinstance(self._model, _hook.Changes):
            raise ValueError("gradsieve: trace() is for the buckets of DistributedDataParallel; a sharded model "
                             "exchanges by units, which are what it was wrapped in, and CompressedStep all at once")
        if path is not None:
            (_arguments.writable if self._rank == 0 else _arguments.path)("path", path)
        return Recorder(self._model, self._native, self._names, path)

    def discard_step(self) -> None:
        """The last step's update was not used: what this rank gave up for it goes out later, with the step's gradient.
        Call it on every rank. After a step that raised with on_non_finite="fail" there is nothing to discard."""
        self._native.discard_step()

    def undo_step(self) -> None:
        """Forgets the last step: neither its update nor its gradient counts, and what is pending is what it was before.
        For a backward pass whose gradient is not one of the training, such as the first of the two that SAM makes. Call
        it on every rank, before the next backward pass. ValueError unless registered with undo=True."""
        self._native.undo_step()

    def rescale(self, factor: float) -> None:
        """Multiplies what has not been sent, after a change of loss scale by new / old. ValueError for what is not
        finite or below 0."""
        self._native.rescale(_arguments.number("factor", factor, 0))

    def residual_norm(self) -> float:
        """L2 norm of what this rank has not sent."""
        return self._native.residual_norm()

    def scaler_step(self, scaler: Any, optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer]) -> None:
        """scaler.step(optimizer), of each where it is a list, and scaler.update(), of a torch GradScaler: a step that it
        skips is discarded, and the residual follows the new scale. Once a step, with a scaler that is this hook's alone.
        Register with on_non_finite="propagate", so that the scaler sees what any rank's gradient held. ValueError for a
        hook that hides it, as the scale would grow without end, and for a scaler that another hook has used since."""
        looks = _arguments.scaler(scaler, optimizer, self._on_non_finite)
        last = getattr(scaler, LAST_HOOK, self._number)
        if looks and self._scaler() is scaler and last != self._number:
            raise ValueError("gradsieve: another hook's scaler_step() has updated this scaler, and this hook's residual "
                             "and gradients have the scale before that: give each hook a GradScaler of its own")
        with contextlib.suppress(AttributeError, TypeError):  # of a scaler with __slots__
            setattr(scaler, LAST_HOOK, self._number)
            self._scaler = weakref.ref(scaler)
        before = scaler.get_scale()
        for each in _arguments.optimizers(optimizer):
            scaler.step(each)
        scaler.update()
        after = scaler.get_scale()
        if after < before:
            self.discard_step()
        if after != before and before > 0:
            self.rescale(after / before)

    def state_dict(self) -> dict[str, Any]:
        """What this rank has not sent, by parameter, the step and the totals; differs from rank to rank. Of tensors of
        bytes, numbers and strings: for torch.save(), and torch.load(weights_only=True)."""
        groups = [([self._names[m] for m in members], state) for members, state in self._native.state()]
        return {
            "version": STATE_VERSION,
            "rank": self._rank,
            "world": self._world,
            "groups": groups,
            "totals": self._native.totals(),
        }

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Goes on where state_dict() was taken; the next step is bit for bit the one that it would have been. On every
        rank, before the first step.

        `state`: this rank's; or a list of all ranks', for a world of another size: what leaving ranks had not sent is
        shared out among those that stay, and what all hold is scaled by new / old size, so that the pending update
        stays what it was. New ranks begin with nothing pending. A hook of nodes or of a sharded model takes states of
        as many ranks only.
        What was not sent lies in the state in the parameters' order in memory: load it into a model of the same memory
        format, as nothing tells a channels_last one from another.
        ValueError or RuntimeError if it is of other parameters, of a recipe with another residual, or damaged; a recipe
        that differs in selector, partitioner or codecs goes on from it.
        """
        rank, world = self._rank, self._world
        alone = isinstance(state, Mapping)
        states = _arguments.states(state, READ_VERSIONS, STATE_PARTS, "hook.state_dict()")
        states.sort(key=lambda each: each["rank"])
        old = states[0]["world"]
        if any(each["world"] != old for each in states):
            raise ValueError("gradsieve: the states are of worlds of different sizes")
        if alone and old != world:
            raise ValueError(f"gradsieve: the state is of {old} ranks, here are {world}: load the list of all of them")
        if alone and states[0]["rank"] != rank:
            raise ValueError(f"gradsieve: the state is of rank {states[0]['rank']}, this is rank {rank}: "
                             f"{_arguments.ONE_KEY_EACH}")
        if not alone and [each["rank"] for each in states] != list(range(old)):
            raise ValueError(f"gradsieve: expected the states of all {old} ranks, once each, and these are of ranks "
                             f"{_arguments.shown([each['rank'] for each in states])}: {_arguments.ONE_KEY_EACH}")
        if old != world and self._fixed_world:
            raise ValueError(f"gradsieve: {self._fixed_world}: the states of {old} ranks do not fit {world}")
        own = states[0] if alone else states[rank % old]
        self._native.restore(self._members(own))
        if rank < old:
            self._native.restore_totals(tuple(own["totals"]))
        if alone:
            return
        if rank >= old:
            self._native.rescale(0.0)
        for leaver in range(rank + world, old, world):
            self._native.absorb(self._members(states[leaver]))
        if old != world:
            self._native.rescale(world / old)

    def __reduce__(self) -> Any:
        raise TypeError("gradsieve: a hook belongs to one model in one process and is neither copied nor pickled: save "
                        "its state_dict(), and keep it outside of the module that you copy")

    def _members(self, state: dict[str, Any]) -> list[tuple[list[int], torch.Tensor | bytes]]:
        place = {name: i for i, name in enumerate(self._names)}
        missing = [name for names, _ in state["groups"] for name in names if name not in place]
        if missing:
            raise ValueError(f"gradsieve: the state has a parameter '{missing[0]}', this model has not: load it into a "
                             "model whose parameters have the same names, wrapped as it was, as by torch.compile()")
        return [([place[name] for name in names], saved if isinstance(saved, torch.Tensor) else bytes(saved))
                for names, saved in state["groups"]]


def recipes() -> list[str]:
    """Selectors, partitioners and residuals that go together, "radix+whole+error_feedback" and so on. To each may come
    coo, or one of index_codecs, one of value_codecs, or both; register() says which do not fit."""
    return _native.recipes()


def options(recipe: str) -> dict[str, str]:
    """What register() takes for this recipe as further keywords, with the values that they have else.
    ValueError for a recipe that there is not."""
    return dict(_native.options(_arguments.recipe(recipe), [], False))


def register(
    model: torch.nn.Module,
    recipe: str = "radix",
    density: float | None = None,
    passthrough: Sequence[str] = (BIASES_AND_NORMS,),
    warmup: int = 0,
    *,
    optimizer: Any = None,
    initial_density: float | None = None,
    warmup_stages: int | None = None,
    passthrough_up_to: int = 0,
    on_non_finite: str = "skip",
    undo: bool = False,
    threads: int = 1,
    route: str = "python",
    process_group: dist.ProcessGroup | None = None,
    inside: dist.ProcessGroup | None = None,
    across: dist.ProcessGroup | None = None,
    **policy_options: Option,
) -> Hook:
    """Compresses the gradients of a DistributedDataParallel model, of FullyShardedDataParallel, or of a module after
    fully_shard(). Collective. For SGD; with Adam and others that divide gradients by their size take CompressedStep.

    A sharded model is registered before its first forward pass. Each rank keeps what it has not sent of the whole
    gradient, and receives the mean of its shard. Its units exchange one by one; whole and layerwise are the
    partitioners. FSDP2 needs torch 2.8.

    A model on a GPU needs NCCL and a codec whose messages have a fixed size: coo, or elias_fano, fixed_width or
    raw32 with any values; with deft and cyclic coo, or raw32 with fp32, fp16 or bf16. Where no indices are named they
    are elias_fano, or with deft and cyclic the codec is coo.
    float64 gradients pass at density 1 only, and then uncompressed; sparse and complex ones are refused. Copies of the
    model have no hook, and a warning says so.

    recipe: names joined by '+', in any order: a selector, a partitioner, a residual, an index codec and a value codec,
        or coo or binned; gradsieve.torch.selectors and so on list them, recipes() what goes together. What is left
        open: radix, whole, error_feedback, automatic, fp32 (with adacomp layerwise and binned). Capitals, and spaces
        around names, do not matter.
    density: fraction of the elements to send, above 0 up to 1 [0.01]; adacomp decides for itself and takes none. With 1 a
        recipe may name values, and nothing else of a codec, such as "int4": everything is then sent in them,
        both ways, by all-to-all and all-gather; without values, and in fp32, it is all-reduced as it is. Sharded models
        have the latter only.
    passthrough: patterns of names of parameters that are averaged in full ('*' any characters, '?' one), of their
        names without what wrappers add, or of any name of a tied weight. BIASES_AND_NORMS stands for the parameters of
        one dimension, (C, 1, 1) and (1, 1, C) included, and those of modules that are norms. A pattern that fits no
        parameter is refused.
    passthrough_up_to: parameters of at most so many elements are too.
    optimizer: that of the training, or a list of them: register() warns where it normalises gradients, and refuses its
        momentum beside a recipe with momentum. None: nothing is checked.
    warmup: steps over which the density falls from initial_density [0.25], in warmup_stages stairs [0: smoothly].
        initial_density is not below density.
    on_non_finite: "skip" counts NaN and infinity as zero; "fail" makes backward() raise at its end, on every rank,
        with what is pending as it was before the step: call zero_grad() and go on, or do not use the step otherwise;
        "propagate" makes the bucket's gradient NaN on every rank, and keeps the bucket's residual: what a GradScaler
        waits for. The last two cost a reading pass and a message, "fail" also what undo costs. A warning
        says so once if a tenth of the gradient or more is not finite in each of 20 steps; on a GPU only steps count
        whose report was asked for.
    undo: True keeps a copy of what is pending before each step, so that undo_step() can forget the step. Costs a copy
        of the residual in memory, and its time in each step.
    threads: that one exchange works with, on the host, at least 1. route: "python", the only one; "cpp", its old
        name's other, is the same, and goes with the next version.
    process_group: of exactly the model's ranks, and used by nothing else; None: a new one with the backend and timeout
        of the model's, which is destroyed when model and hook are gone. For a model of some of the ranks these alone
        make it, and torch counts the groups that a rank has made: if all ranks make another group later, they wait for
        each other until the timeout. Make all groups before, or hand one over that all ranks have made.
    inside, across: instead of process_group, for nodes of several ranks: the ranks of a node add up their gradients in
        full, each a part of it, and exchange compressed parts with those of their place in other nodes. Used by nothing
        else; nodes() makes both. A sharded model is sharded among the ranks of a node then (hybrid sharding), with all
        partitioners, and begins with the first node's weights.
    policy_options: options of the recipe's policies, as options(recipe) lists them: momentum=0.9 for "momentum" (the
        optimiser must not apply its own then), levels=16 for "qsgd", bins={"*conv*": 50, "": 500} for "adacomp".
    ValueError or TypeError for what cannot be obeyed. Memory: the recipe's residual, 4 to 8 bytes an element.
    """
    changes = model if isinstance(model, _hook.Changes) else None
    sharded = False
    if changes is None:
        _arguments.model(model)
        model = model._modules.get("_orig_mod", model)  # what torch.compile() was given
        sharded = _shards.kind_of(model) is not None
        if not sharded:
            _check_model(model)
    recipe = _arguments.recipe(recipe)
    _arguments.no_argument_is_meant(register, recipe, policy_options, options(recipe))
    if optimizer is not None:
        _optimizers.check(optimizer, recipe, density)
    density = _arguments.density(density)
    steps, first_density, stairs = _arguments.warm_up(warmup, initial_density, warmup_stages, density, (0.25, 0.01))
    _arguments.choice("on_non_finite", on_non_finite, ("skip", "fail", "propagate"))
    _arguments.choice("route", route, ("python", "cpp"))
    threads = _arguments.whole("threads", threads, 1, _arguments.MOST_THREADS)
    for name, group in (("process_group", process_group), ("inside", inside), ("across", across)):
        _arguments.group(name, group)
    if (inside is None) != (across is None):
        raise ValueError("gradsieve: nodes need both groups, inside and across: nodes(ranks_per_node) makes them")
    if inside is not None and process_group is not None:
        raise ValueError("gradsieve: process_group is of ranks that are alike; with nodes it is inside and across")

    wishes = _native.Wishes()
    wishes.recipe = recipe
    wishes.options = [(name, _arguments.policy_option(name, value)) for name, value in policy_options.items()]
    wishes.density = density
    wishes.initial_density = first_density
    wishes.warmup = steps
    wishes.warmup_stages = stairs
    wishes.passthrough = _arguments.patterns(passthrough)
    wishes.passthrough_up_to = _arguments.whole("passthrough_up_to", passthrough_up_to, 0)
    wishes.on_non_finite = on_non_finite
    wishes.undo = _arguments.flag("undo", undo)
    if changes and wishes.passthrough_up_to and any(each.numel() != whole for each, whole in
                                                    zip(changes.parts, changes.whole.values())):
        wishes.passthrough += [name for name, size in changes.whole.items() if size <= wishes.passthrough_up_to]
        wishes.passthrough_up_to = 0
    if not sharded:
        wishes.model = _passthrough.layers_of(model.module)
    if sharded:
        return _register_sharded(model, wishes, threads, route, process_group, inside, across)

    named, frozen = (list(zip(changes.names, changes.parts)), []) if changes else _parameters.of_buckets(model)
    if not named:
        raise ValueError("gradsieve: no parameter of the model has requires_grad: there is nothing to compress")
    on_device = _is_on_gpu(named[0][1].device, threads)
    known = dict(_native.options(recipe, wishes.options, on_device))
    _parameters.check(model, named, not on_device and _native.passes_float64(wishes))
    group = changes.group if changes else model.process_group
    place = dist.get_rank(group), dist.get_world_size(group)
    fixed_world = NODES_ARE_FIXED if inside is not None else None
    if changes:
        peers = _groups.peers_of(group, process_group, inside, across, named[0][1].device)
        return Hook(changes, _hook.StepHook(changes=changes, wishes=wishes, group=peers.group, inside=peers.inside,
                                            threads=threads),
                    changes.names, place, known, fixed_world, on_non_finite, _groups.Attached(peers))
    _groups.check_has_no_hook(model)
    peers = _groups.peers_of(group, process_group, inside, across, named[0][1].device)
    attached = _groups.Attached(peers)
    names = [name for name, _ in named + frozen]
    native = (_hook.DeviceHook if on_device else _hook.Hook)(
        model=model,
        wishes=wishes,
        group=peers.group,
        inside=peers.inside,
        parameters=[each for _, each in named + frozen],
        names=names,
        threads=threads,
    )
    try:
        model.register_comm_hook(native, device_hook if on_device else host_hook)
    except RuntimeError as error:
        if "only be called once" not in str(error):
            raise
        raise ValueError("gradsieve: this model has a communication hook already, and DistributedDataParallel takes "
                         "one: register on a new one") from error
    attached.attach_to(model)
    return Hook(model, native, names, place, known, fixed_world, on_non_finite, attached)


def _is_on_gpu(device: torch.device, threads: int) -> bool:
    if device.type != "cuda":
        return False
    if not _native.serves_devices:
        raise ValueError("gradsieve: the model is on a GPU, and this library was built without CUDA: install the package "
                         "with GRADSIEVE_CUDA=1 where nvcc is")
    if threads != 1:
        raise ValueError(f"gradsieve: threads is {threads}; the exchange of a model on a GPU has none")
    return True


def _register_sharded(model: torch.nn.Module, wishes: Any, threads: int, route: str,
                      process_group: dist.ProcessGroup | None, inside: dist.ProcessGroup | None,
                      across: dist.ProcessGroup | None) -> Hook:
    if route != "python":
        raise ValueError(f"gradsieve: route is '{route}'; sharded models have python only")
    units = _shards.units_of(model)
    device = units[0].device
    on_device = _is_on_gpu(device, threads)
    known = dict(_native.options(wishes.recipe, wishes.options, on_device))
    group = units[0].group
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    if world == 1:
        raise ValueError(_shards.ON_ONE_RANK)
    _groups.check_has_no_hook(model)
    peers = _groups.peers_of(group, process_group, inside, across, device, sharded=True)
    attached = _groups.Attached(peers)
    if inside is not None:
        place = (dist.get_rank(across) * world + rank, world * dist.get_world_size(across))
    else:
        place = (rank, world)
    small = [name for unit in units for name, size in unit.parameters.items() if size <= wishes.passthrough_up_to]
    wishes.passthrough = [*wishes.passthrough, *small]
    wishes.passthrough_up_to = 0
    wishes.model = (_passthrough.layers_of_flat_units(units) if _shards.kind_of(model) == "FSDP" else
                    _passthrough.layers_of(model))
    pieces, counts = [], []
    passes_float64 = not on_device and _native.passes_float64(wishes)
    for unit in units:
        _parameters.check_type(next(iter(unit.parameters)), unit.dtype, passes_float64)
        own = [(f"{name}[{r}]", size) for r, part in enumerate(unit.pieces) for name, size in part
               if inside is None or r == rank]
        pieces += own
        counts.append(len(own))
    with torch.cuda.device(device) if on_device else contextlib.nullcontext():
        native = _native.ShardHook(
            wishes=wishes,
            group=peers.group,
            shards=inside is None,
            sizes=[size for _, size in pieces],
            names=[name for name, _ in pieces],
            counts=counts,
            threads=threads,
            stream=_native.stream_on(device) if on_device else None,
        )
    if across is not None:
        _shards.take_weights_of_first_node(model, across, device)
    _shards.ShardExchange(native, units, inside, undoes=wishes.on_non_finite == "fail").attach(model)
    attached.attach_to(model)
    return Hook(model, native, [name for name, _ in pieces], place, known, SHARDS_ARE_FIXED,
                wishes.on_non_finite, attached)


def _check_model(model: Any) -> None:
    if getattr(model, "_use_python_reducer", False):
        raise ValueError("gradsieve: torch._dynamo.config.optimize_ddp is 'python_reducer', with which a "
                         "DistributedDataParallel has no buckets: leave it out before the model is wrapped")
    if not all(hasattr(model, name) for name in ("module", "process_group", "register_comm_hook")):
        for name, each in model.named_modules():
            if _shards.kind_of(each):
                raise ValueError(f"gradsieve: module '{name}' is sharded, the model around it is not: shard the whole "
                                 "model too, then call register() with it")
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise ValueError(f"gradsieve: expected a DistributedDataParallel, got {kind}: wrap the module first, "
                         "torch.nn.parallel.DistributedDataParallel(module)")


from .compressed_step import CompressedStep, OuterStep  # noqa: E402  (uses register)
