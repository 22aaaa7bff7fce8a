"""The ranks that hold one replica of a model together: shards of fully_shard() (FSDP2), of tensor parallelism, or both."""

from __future__ import annotations

import copy
import weakref
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn

from . import _arguments, _groups, _shards

HELD = "_gradsieve_mesh"  #: of torch's groups of parameters: their mesh, and how many hold back its all-reduce

Trained = "Sequence[tuple[str, nn.Parameter]]"

FLAT = ("gradsieve: CompressedStep takes models of fully_shard(); FullyShardedDataParallel flattens parameters, of which an "
        "optimizer such as Muon knows no shapes: shard with fully_shard(), or register() the model")

ALONE = ("gradsieve: the model is sharded, and CompressedStep does not know which ranks have the same shards of other "
         "replicas, to exchange with: give it process_group=mesh['across'].get_group() of a mesh of two dimensions, on which "
         "fully_shard(layer, mesh=mesh['inside']) shards among the ranks of a node. Where all ranks share one replica there "
         "is nothing to exchange but gradients: register() compresses them")

OLD = ("gradsieve: this torch does not let go of the all-reduce that fully_shard() makes on a mesh of two dimensions: call "
       "fully_shard(layer, mesh=mesh['inside']), and give CompressedStep process_group=mesh['across'].get_group()")


class Replica:
    """Of a model that is whole on each rank, that rank alone, and all methods do nothing. Of a sharded one the ranks inside
    of it: each steps and exchanges its shards. Parameters that several of these ranks have, as tensor parallelism leaves
    norms, belong to the first of them, which the others follow. `alike`: of the ranks whose buffers are of one kind: all,
    but with tensor parallelism those of this rank's place."""

    def __init__(self, across: dist.ProcessGroup, everyone: dist.ProcessGroup | None = None, *,
                 groups: Sequence[dist.ProcessGroup] = (), copied: Sequence[Sequence[int]] = (),
                 modules: Sequence[Any] = (), parameters: int = 0, device: Any = None) -> None:
        """groups: inside, one of each dimension that it is spread over; copied: numbers of the parameters that are whole
        along it. modules: of fully_shard()."""
        self.across, self.everyone = across, everyone if everyone is not None else across
        self._groups, self._copied, self._modules, self._device = groups, copied, modules, device
        self.place = [dist.get_rank(each) for each in groups]  #: of this rank inside
        by_data = {tuple(_groups.ranks_of(each.mesh_info.shard_process_group)) for each in _param_groups(modules)}
        self.alike = self.everyone if all(tuple(_groups.ranks_of(each)) in by_data for each in groups) else across
        follows = {i for group, numbers in zip(groups, copied) if dist.get_rank(group) > 0 for i in numbers}
        self.follows = follows  #: numbers of the parameters that another rank inside exchanges
        self.owns = [i not in follows for i in range(parameters)]

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, values: torch.Tensor) -> torch.Tensor:
        """In place: the sum over the ranks inside."""
        for group in self._groups:
            dist.all_reduce(values, group=group)
        return values

    def all(self, flag: bool) -> bool:
        """Whether it holds on each rank inside."""
        if not self:
            return flag
        return not self.add(torch.tensor([float(not flag)], dtype=torch.float32, device=self._device)).item()

    def complete(self, parameters: Sequence[torch.Tensor]) -> None:
        """Gradients that are sums still to be made over the ranks inside, as those of sequence parallelism, become as their
        parameters are."""
        for each in parameters if self else ():
            if each.grad is not None and getattr(each.grad, "placements", ()) != getattr(each, "placements", ()):
                each.grad = each.grad.redistribute(placements=each.placements)

    @torch.no_grad()
    def follow(self, values: Sequence[torch.Tensor]) -> None:
        """Of each parameter: where several ranks inside have it, the first one's values."""
        for group, numbers in zip(self._groups, self._copied):
            if numbers:
                flat = torch.cat([values[i].reshape(-1) for i in numbers])
                dist.broadcast(flat, _groups.ranks_of(group)[0], group=group)
                for i, part in zip(numbers, flat.split([values[i].numel() for i in numbers])):
                    values[i].copy_(part.view_as(values[i]))

    def reshard(self) -> None:
        """What a forward pass has gathered is of the weights before."""
        for each in self._modules:
            each.reshard()

    def reduce_inside_only(self, owner: Any) -> None:
        """As long as `owner` lives. On a mesh of two dimensions torch reduces gradients over all replicas, and has no switch
        for that which leaves a gradient: its groups take their mesh for one of shards alone."""
        for group in _param_groups(self._modules):
            if hasattr(group, HELD):
                getattr(group, HELD)[1] += 1
            elif hasattr(group.mesh_info, "replicate_process_group"):
                whole = group.mesh_info
                setattr(group, HELD, [whole, 1])
                _take_mesh(group, whole, copy.copy(whole))
                group.mesh_info.__class__ = _mesh_of_shards()
            else:
                continue
            weakref.finalize(owner, _let_go, group).atexit = False


def replica_of(model: nn.Module, trained: Trained, process_group: Any, inside: Any,
               across: Any) -> tuple[Replica, list[dist.ProcessGroup]]:
    """With the groups that were made for it. Collective. ValueError for what is not served."""
    modules = [each for each in model.modules() if _shards.kind_of(each) == "FSDP2"]
    whole = [name for name, each in trained if not hasattr(each, "device_mesh")]
    if len(whole) == len(trained):
        return Replica(process_group if process_group is not None else dist.group.WORLD, parameters=len(trained)), []
    if modules and whole:
        raise ValueError(f"gradsieve: parameter '{whole[0]}' is not sharded and the model around it is, so that nobody "
                         "averages its gradient inside: shard the whole model")
    replicating = [group.mesh_info for group in _param_groups(modules)
                   if hasattr(group.mesh_info, "replicate_process_group")]
    if replicating and not (isinstance(replicating[0], _mesh_of_shards()) and
                            all(hasattr(each, "post_forward_mesh_info") for each in _param_groups(modules))):
        raise ValueError(OLD)
    group = replicating[0].replicate_process_group if replicating else across if across is not None else process_group
    if group is None:
        raise ValueError(ALONE)
    if any(_groups.ranks_of(each.replicate_process_group) != _groups.ranks_of(group) for each in replicating):
        raise ValueError("gradsieve: the model's units are replicated on different ranks, where one group is expected")
    for name, given in (("process_group", process_group), ("inside", inside), ("across", across)):
        _arguments.group(name, given)
        if name != "inside" and given is not None and _groups.ranks_of(given) != _groups.ranks_of(group):
            raise ValueError(f"gradsieve: {name} has the ranks {_groups.ranks_of(given)}, the model is replicated on "
                             f"{_groups.ranks_of(group)}: leave it out")
    groups, copied = _spread(trained, set(_groups.ranks_of(group)))
    device = trained[0][1].to_local().device if hasattr(trained[0][1], "device_mesh") else trained[0][1].device
    ranks = [dist.get_rank()]
    for each in groups:
        ranks = _gathered(ranks, each, device)
    if inside is not None and sorted(_groups.ranks_of(inside)) != sorted(ranks):
        raise ValueError(f"gradsieve: inside has the ranks {_groups.ranks_of(inside)}, the model is sharded among "
                         f"{sorted(ranks)}")
    if len(set(ranks)) < len(ranks):
        raise ValueError("gradsieve: the model's parameters are sharded among different ranks, as on different meshes, "
                         "where one mesh is expected")
    if {*ranks} & {*_groups.ranks_of(group)} != {dist.get_rank()}:
        raise ValueError(f"gradsieve: the model is sharded among the ranks {sorted(ranks)}, and the ones to exchange with are "
                         f"{_groups.ranks_of(group)}, where this rank, {dist.get_rank()}, should be the only one in both")
    everyone, made = _group_of(_gathered(ranks, group, device), group, device)
    return Replica(group, everyone, groups=groups, copied=copied, modules=modules, parameters=len(trained),
                   device=device), made


def _spread(trained: Trained, across: set[int]) -> tuple[list[dist.ProcessGroup], list[list[int]]]:
    """The groups along which any parameter is sharded or copied, and which ones are copied along each."""
    groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
    sharded: dict[tuple[int, ...], set[int]] = {}
    for i, (name, each) in enumerate(trained):
        for dim, placement in enumerate(each.placements if hasattr(each, "device_mesh") else ()):
            ranks = tuple(_groups.ranks_of(each.device_mesh.get_group(dim)))
            if {*ranks} == across and len(ranks) > 1 and not placement.is_replicate():
                raise ValueError(f"gradsieve: the model is sharded among the ranks {list(ranks)}, which are the ones to "
                                 "exchange with: process_group is of ranks that have the same shard")
            if len(ranks) == 1 or {*ranks} == across:
                continue
            groups.setdefault(ranks, each.device_mesh.get_group(dim))
            if placement.is_partial():
                raise ValueError(f"gradsieve: parameter '{name}' is a sum that is still to be made ({placement})")
            if not placement.is_replicate():
                sharded.setdefault(ranks, set()).add(i)
    copied = [[i for i in range(len(trained)) if i not in sharded.get(ranks, ())] for ranks in groups]
    return list(groups.values()), copied


def _param_groups(modules: Sequence[Any]) -> Iterator[Any]:
    """torch's own, each once."""
    seen: set[int] = set()
    for module in modules:
        for group in _shards.param_groups_of(module):
            if id(group) not in seen:
                seen.add(id(group))
                yield group


def _mesh_of_shards() -> type:
    try:
        from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo
    except ImportError:
        raise ValueError(OLD) from None
    return FSDPMeshInfo


def _take_mesh(group: Any, before: Any, now: Any) -> None:
    if group.post_forward_mesh_info is before:
        group.post_forward_mesh_info = now
    group.mesh_info = now


def _let_go(group: Any) -> None:
    held = getattr(group, HELD)
    held[1] -= 1
    if held[1] == 0:
        _take_mesh(group, group.mesh_info, held[0])
        delattr(group, HELD)


def _gathered(ranks: Sequence[int], group: dist.ProcessGroup, device: torch.device) -> list[int]:
    mine = torch.tensor(ranks, device=device)
    found = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(found, mine, group=group)
    return torch.cat(found).tolist()


def _group_of(ranks: Sequence[int], like: dist.ProcessGroup,
              device: torch.device) -> tuple[dist.ProcessGroup, list[dist.ProcessGroup]]:
    if len(ranks) == dist.get_world_size():
        return dist.group.WORLD, []
    made = dist.new_group(sorted(ranks), use_local_synchronization=True, backend=_groups.backend_of(like),
                          **_groups.timeout_of(like, device))
    return made, [made]
