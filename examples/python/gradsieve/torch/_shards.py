"""Sharded models: FullyShardedDataParallel (FSDP), and what torch's fully_shard() has made (FSDP2).

Both hand over the gradient of a unit, of some parameters together, as one flat tensor, whose equal parts belong to the
ranks in turn. A piece is what one rank's part has of one parameter, with the zeros that fill it up; its name is the
parameter's and the rank: "0.weight[1]".
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Iterator, Mapping

import torch
import torch.distributed as dist

from . import _parameters


NO_PASS = -1  # as torch has it

ON_ONE_RANK = ("gradsieve: the model is sharded on one rank, where torch exchanges no gradients: take "
               "DistributedDataParallel, whose hook works on one rank too")

Exchange = Callable[..., None]  #: of a gradient and this rank's shard, which it fills


@dataclasses.dataclass
class Unit:
    name: str
    group: dist.ProcessGroup
    pieces: list[list[tuple[str, int]]]  #: of each rank: parameters' names and elements
    parameters: dict[str, int]  #: elements of the parameters, on all ranks together
    module: Any  #: whose gradients come together
    dtype: torch.dtype = torch.float32  #: of these
    device: torch.device = torch.device("cpu")  #: where they are computed

    @property
    def size(self) -> int:
        return sum(size for rank in self.pieces for _, size in rank)


def kind_of(model: Any) -> str | None:
    """"FSDP", "FSDP2", or None for a model that is not sharded."""
    names = {each.__name__ for each in type(model).__mro__}
    if "FullyShardedDataParallel" in names:
        return "FSDP"
    return "FSDP2" if "FSDPModule" in names else None


def units_of(model: Any) -> list[Unit]:
    """Those whose parameters have gradients, in the model's order. ValueError for what is not served."""
    units = list(_flat_units(model) if kind_of(model) == "FSDP" else _fully_sharded_units(model))
    if not units:
        raise ValueError("gradsieve: no parameter of the model has requires_grad: there is nothing to compress")
    if any(each.group != units[0].group for each in units):
        raise ValueError("gradsieve: the model's units are sharded among different ranks, where one group is expected")
    devices = {str(each.device) for each in units}
    if len(devices) > 1:
        raise ValueError(f"gradsieve: the model's units compute on {' and '.join(sorted(devices))}: put them on one device")
    if units[0].device.type not in ("cpu", "cuda"):
        raise ValueError("gradsieve: sharded models are served on the CPU and on GPUs of CUDA, this one computes on "
                         f"{units[0].device}")
    return units


class ShardExchange:
    """What the units call: a compressed exchange of all ranks' gradients; or with nodes, whose ranks share a model, the
    mean inside of the node as it is, and then this rank's shard compressed across."""

    def __init__(self, native: Any, units: list[Unit], inside: dist.ProcessGroup | None, undoes: bool = False) -> None:
        """`undoes`: whether a failure undoes the step, which the native part has copies for then."""
        self._native, self._inside, self._undoes = native, inside, undoes
        self._rank, self._world = dist.get_rank(units[0].group), dist.get_world_size(units[0].group)
        self._pass = NO_PASS  # the backward pass that is under way
        self._outer = False  # it is that of the whole model, and passes inside of it belong to it
        self._failure: Exception | None = None  # the first of this backward pass
        self._units = units
        self._goes_on = units[0].device.type != "cpu"  # after a failure, of which ranks hear in different units there

    def attach(self, model: Any) -> None:
        """From now on the model's backward passes call this."""
        exchanges = [(each.module, functools.partial(self._named_exchange, number))
                     for number, each in enumerate(self._units)]
        if kind_of(model) == "FSDP":
            _attach_flat(model, exchanges)
        else:
            for module, exchange in exchanges:
                module.set_custom_reduce_scatter(_ReduceScatter(exchange))
        model.register_forward_hook(_BackwardBegins(self))

    def _named_exchange(self, number: int, gradient: torch.Tensor, shard: torch.Tensor,
                        wrong: str | None = None) -> None:
        """As a range in torch's profiler."""
        with torch.autograd.profiler.record_function(f"gradsieve: unit {self._units[number].name or 'root'}"):
            self._exchange(number, gradient, shard, wrong)

    def _exchange(self, number: int, gradient: torch.Tensor, shard: torch.Tensor, wrong: str | None = None) -> None:
        """Fills the shard; `wrong` says why that cannot be. What fails in a backward pass is raised at its end: an
        exception in the middle of torch's own work would leave a model that never exchanges again. Units that follow are
        not exchanged, but on a GPU."""
        self._begin()
        if self._failure is None or self._goes_on:
            try:
                if wrong is not None:
                    raise RuntimeError(wrong)
                return self._exchange_now(number, gradient, shard)
            except Exception as error:
                if self._undoes and self._failure is None:
                    self._native.undo_step()
                if self._pass == NO_PASS:
                    raise
                self._failure = self._failure or error
        shard.zero_()

    def _exchange_now(self, number: int, gradient: torch.Tensor, shard: torch.Tensor) -> None:
        unit = self._units[number]
        if gradient.numel() != unit.size:
            raise RuntimeError(f"gradsieve: unit '{unit.name}' has gradients of {gradient.numel()} elements, "
                               f"{unit.size} when it was registered: a parameter had none in this step, or "
                               "requires_grad has changed. Let each unit's parameters have gradients together")
        if self._inside is None:
            self._native.exchange(number, gradient)
            shard.copy_(gradient.view(self._world, -1)[self._rank])
            return
        dist.reduce_scatter_tensor(shard, gradient.div_(self._world), group=self._inside)
        failure = None
        try:
            self._native.exchange(number, shard)
        except Exception as error:  # whatever it is, the others of this node wait to hear of it
            failure = error
        failures = torch.tensor([0 if failure is None else 1], device=gradient.device)
        dist.all_reduce(failures, group=self._inside)
        if failure is not None:
            raise failure
        if failures.item() > 0:
            raise RuntimeError("gradsieve: the exchange across of another rank of this node has failed")

    def begin_outer(self) -> None:
        """At the beginning of a backward pass of the whole model. Others may run inside of it, as activation checkpoints
        with use_reentrant=True make them, and end before it."""
        self._begin(True)

    def forward_begun(self) -> None:
        """A backward pass that was broken off has no end."""
        self._outer = False

    def _begin(self, outer: bool = False) -> None:
        """What a backward pass exchanges is one step. Passes have numbers: one that was broken off has no end."""
        now = torch._C._current_graph_task_id() if hasattr(torch._C, "_current_graph_task_id") else NO_PASS
        if now != NO_PASS and (now == self._pass or (self._outer and not outer)):
            self._outer = self._outer or outer
            return
        self._native.end_step()
        self._pass, self._failure, self._outer = now, None, outer and now != NO_PASS
        if now != NO_PASS:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: engine.queue_callback(self._end))  # behind torch's own

    def _end(self) -> None:
        self._pass, self._outer = NO_PASS, False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


class _BackwardBegins:
    """After a model's forward pass: the gradient of what it has put out comes first in the backward pass."""

    def __init__(self, exchange: ShardExchange) -> None:
        self._exchange = exchange

    def __call__(self, module: Any, arguments: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._exchange.forward_begun()
        for each in _tensors_in(output):
            if each.requires_grad and not each.is_leaf:
                each.register_hook(self._note)

    def _note(self, gradient: torch.Tensor) -> None:
        self._exchange.begin_outer()

    def __deepcopy__(self, memo: Any) -> Any:
        return _no_hook

    def __reduce__(self) -> Any:  # a copy of the model has no exchange
        return _stand_in, ()


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Of lists, mappings and dataclasses too, as FSDP looks into them."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    parts: Any = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, each.name) for each in dataclasses.fields(value)]
    for each in parts:
        yield from _tensors_in(each)


def _no_hook(module: Any, arguments: Any, output: Any) -> None:
    pass


def _stand_in() -> Any:
    return _no_hook


@torch.no_grad()
def take_weights_of_first_node(model: Any, across: dist.ProcessGroup, device: torch.device) -> None:
    """Parameters, in shards, and buffers, as DistributedDataParallel begins with the first rank's; over `device`, where
    those may not be that torch offloads. Collective."""
    root = dist.get_global_rank(across, 0)
    for each in [*model.parameters(), *model.buffers()]:
        local = each.to_local() if hasattr(each, "to_local") else each.detach()
        if local.numel() > 0:
            sent = local.to(device)
            dist.broadcast(sent, root, group=across)
            if sent is not local:
                local.copy_(sent)


def _without_wrappers(name: str) -> str:
    return name.replace("_fsdp_wrapped_module.", "").replace("_checkpoint_wrapped_module.", "")


# ---- FullyShardedDataParallel ----------------------------------------------------------------------------------------


def _flat_units(model: Any) -> Iterator[Unit]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    modules = {id(module): name for name, module in model.named_modules()}
    for state in FullyShardedDataParallel.fsdp_modules(model):
        _check_flat(state)
        if not hasattr(state, "_handle"):
            raise ValueError(f"gradsieve: FSDP of torch {torch.__version__} is too old for the hook")
        if state._handle is None or not state._handle.flat_param.requires_grad:
            continue
        flat = state._handle.flat_param
        prefix = _without_wrappers(modules[id(state)] + "._fsdp_wrapped_module.").lstrip(".")
        ends: list[tuple[str, int]] = []  # of each parameter with what fills it up
        names, at = iter(flat._fqns), 0
        for numel, fills in zip(flat._numels_with_padding, flat._is_padding_mask):
            at += numel
            if fills and ends:
                ends[-1] = (ends[-1][0], at)
            elif not fills:
                ends.append((prefix + _without_wrappers(next(names)), at))
        world = dist.get_world_size(state.process_group)
        each = -(-at // world)
        ends[-1] = (ends[-1][0], each * world)
        sizes = [numel for numel, fills in zip(flat._numels_with_padding, flat._is_padding_mask) if not fills]
        yield Unit(prefix.rstrip("."), state.process_group, _cut(ends, each, world),
                   {name: size for (name, _), size in zip(ends, sizes)}, state,
                   getattr(state._handle, "_reduce_dtype", None) or flat.dtype, state.compute_device)


def _attach_flat(model: Any, exchanges: list[tuple[Any, Exchange]]) -> None:
    """torch hands all units' gradients to one hook, which is told by its state whose they are."""
    model.register_comm_hook(None, lambda exchange, gradient, shard: exchange(gradient, shard))
    for state, exchange in exchanges:
        state._comm_hook_state = exchange


def _cut(ends: list[tuple[str, int]], each: int, world: int) -> list[list[tuple[str, int]]]:
    """The parameters, which end there, in parts of `each` elements."""
    pieces: list[list[tuple[str, int]]] = [[] for _ in range(world)]
    begin = 0
    for name, end in ends:
        for rank in range(begin // each, -(-end // each)):
            size = min(end, (rank + 1) * each) - max(begin, rank * each)
            pieces[rank].append((name, size))
        begin = end
    return pieces


def _check_flat(state: Any) -> None:
    strategy = state.sharding_strategy.name
    if dist.get_world_size(state.process_group) == 1:
        raise ValueError(ON_ONE_RANK)
    if strategy == "NO_SHARD":
        raise ValueError("gradsieve: NO_SHARD keeps whole gradients on all ranks: take DistributedDataParallel")
    if strategy not in ("FULL_SHARD", "SHARD_GRAD_OP"):
        raise ValueError(f"gradsieve: FSDP has no hook for {strategy}: shard among the ranks of a node with "
                         "FULL_SHARD and process_group=inside, and register(..., inside=inside, across=across)")
    if state.cpu_offload.offload_params:
        raise ValueError("gradsieve: FSDP with CPUOffload is not served")


# ---- fully_shard() ---------------------------------------------------------------------------------------------------


def _fully_sharded_units(model: Any) -> Iterator[Unit]:
    names = {id(each): name for name, each in model.named_parameters()}
    found = []
    for module_name, module in model.named_modules():
        if kind_of(module) != "FSDP2":
            continue
        if not hasattr(module, "set_custom_reduce_scatter"):
            raise ValueError(f"gradsieve: torch {torch.__version__} has no custom reduce-scatter for FSDP2, "
                             "which came with 2.8")
        groups = param_groups_of(module)
        if len(groups) > 1:
            raise ValueError(f"gradsieve: '{module_name}' has parameters on different meshes, which torch gives no "
                             "custom reduce-scatter")
        found += [(module_name, module, group) for group in groups]
    seen = set()
    for module_name, module, group in found:
        trained = [each for each in group.fsdp_params if each.sharded_param.requires_grad]
        if id(group) in seen or not trained:
            continue
        seen.add(id(group))
        if isinstance(group._reduce_scatter_comm, _ReduceScatter):
            raise ValueError("gradsieve: this model has a hook already")
        for each in trained:
            if getattr(each, "is_dtensor", False):
                raise ValueError(f"gradsieve: parameter '{names.get(id(each.sharded_param))}' was a distributed tensor "
                                 "before fully_shard(), as tensor parallelism makes it, which is not served: call "
                                 "fully_shard() on whole parameters, on a mesh of one dimension")
        mesh = trained[0].sharded_param.device_mesh
        _check_mesh(mesh)
        for each in trained:
            _check_parameter(names.get(id(each.sharded_param)), each)
        if len({(each.sharded_param.dtype, getattr(each.sharded_param, "grad_dtype", None)) for each in trained}) > 1:
            raise ValueError(f"gradsieve: unit '{module_name}' has parameters of different types: give each type "
                             "a unit of its own")
        group_of_ranks = group.mesh_info.shard_process_group  # equal meshes share tensors' meshes, not groups
        one = [(names[id(each.sharded_param)], each.padded_sharded_param_size.numel()) for each in trained]
        yield Unit(module_name, group_of_ranks, [list(one) for _ in range(dist.get_world_size(group_of_ranks))],
                   {names[id(each.sharded_param)]: each.sharded_param.numel() for each in trained}, module,
                   _reduced_as(group, trained[0]), torch.device(group.device))


def _reduced_as(group: Any, parameter: Any) -> torch.dtype:
    policy = getattr(parameter, "mp_policy", None) or getattr(group, "mp_policy", None)
    return (getattr(policy, "reduce_dtype", None) or getattr(policy, "param_dtype", None) or
            parameter.sharded_param.dtype)


def param_groups_of(module: Any) -> list[Any]:
    """torch's, of one module after fully_shard()."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # older torch has one
        groups = [] if state._fsdp_param_group is None else [state._fsdp_param_group]
    return list(groups)


def _check_mesh(mesh: Any) -> None:
    if mesh.ndim != 1:
        raise ValueError(f"gradsieve: the model is on a mesh of {mesh.ndim} dimensions: shard among the ranks of a "
                         f"node, fully_shard(model, mesh=DeviceMesh.from_group(inside, '{mesh.device_type}')), and "
                         "register(..., inside=inside, across=across)")


def _check_parameter(name: str | None, parameter: Any) -> None:
    if name is None:
        raise ValueError("gradsieve: register() comes before the first forward pass of a sharded model")
    _parameters.check_type(name, parameter.sharded_param.dtype, passes_float64=True)
    if parameter.fsdp_placement.dim != 0:
        raise ValueError(f"gradsieve: parameter '{name}' is sharded along dimension {parameter.fsdp_placement.dim}, "
                         "only 0 is served")


class _ReduceScatter:
    """torch's protocol: the mean, or with SUM the sum, of all ranks' inputs, of which a rank gets its part."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup,
                 op: Any, async_op: bool = False) -> None:
        wrong = None
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM) or async_op:
            wrong = (f"gradsieve: FSDP2 asks for {'an asynchronous ' if async_op else ''}{op}, which is not served: "
                     "leave set_gradient_divide_factor() out")
        self._exchange(input_tensor, output_tensor, wrong)
        if op == dist.ReduceOp.SUM:
            output_tensor.mul_(dist.get_world_size(group))
