"""Process groups of an exchange: those that are handed over, and those that are made for it and end with it."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
import warnings
import weakref
from typing import Any, Sequence

import torch
import torch.distributed as dist

from . import _arguments

ATTRIBUTE = "_gradsieve_ddp"  #: of a model that has a hook: its Attached


@dataclasses.dataclass
class Peers:
    """Whom an exchange is with: all ranks of `group`, or with `inside` those of this rank's place in other nodes.
    `made`: groups that nobody else has."""

    group: dist.ProcessGroup
    inside: dist.ProcessGroup | None
    made: list[dist.ProcessGroup]


def peers_of(model_group: dist.ProcessGroup, process_group: Any, inside: Any, across: Any, device: torch.device, *,
             sharded: bool = False) -> Peers:
    """Collective over the model's ranks. ValueError or TypeError for groups that do not fit the model's."""
    if inside is not None:
        _check_nodes(model_group, inside, across, device, sharded)
        return Peers(across, inside, [])
    if process_group is not None:
        check_same_ranks("process_group", process_group, model_group)
        return Peers(process_group, None, [])
    made = like(model_group, device)
    # No rank leaves before all are connected: one that ends its group at once would break into the others' new_group().
    dist.all_reduce(torch.zeros(1, dtype=torch.float32, device=device), group=made)
    return Peers(made, None, [made])


def like(group: dist.ProcessGroup, device: torch.device) -> dist.ProcessGroup:
    """A group of the same ranks, backend and timeout, for an exchange alone, which must not meet other collectives.
    Collective."""
    _destroy([], os.getpid())
    how = {"backend": backend_of(group), **timeout_of(group, device)}
    if dist.get_world_size(group) == dist.get_world_size():
        return dist.new_group(**how)
    if "use_local_synchronization" not in inspect.signature(dist.new_group).parameters:
        raise ValueError(
            "gradsieve: the model lives on some of the ranks, and this torch makes new groups with all ranks only: "
            "hand over process_group=torch.distributed.new_group(the model's ranks), made by all of them"
        )
    return dist.new_group(ranks_of(group), use_local_synchronization=True, **how)


def nodes(ranks_per_node: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """(inside, across) for register(): the ranks of this rank's node, where consecutive ranks share one, and the ranks
    that have its place in the other nodes. Their timeout is that of the default group. They are the caller's, to be
    destroyed after the hook by torch.distributed.destroy_process_group(). Collective over all ranks. ValueError unless
    nodes are of one size."""
    world, rank = dist.get_world_size(), dist.get_rank()
    if world % _arguments.whole("ranks_per_node", ranks_per_node, 1) != 0:
        raise ValueError(f"gradsieve: {world} ranks are not nodes of {ranks_per_node}: choose a divisor of {world}")
    how = timeout_of(dist.group.WORLD)
    inside = [dist.new_group(range(first, first + ranks_per_node), **how) for first in range(0, world, ranks_per_node)]
    across = [dist.new_group(range(place, world, ranks_per_node), **how) for place in range(ranks_per_node)]
    return inside[rank // ranks_per_node], across[rank % ranks_per_node]


def ranks_of(group: dist.ProcessGroup) -> list[int]:
    """Numbers in the default group, in the group's order."""
    return list(dist.get_process_group_ranks(group))


def backend_of(group: dist.ProcessGroup) -> str:
    """As new_group() takes it: "gloo", or "cpu:gloo,cuda:nccl" of a group that has one for each kind of device."""
    if hasattr(dist, "get_backend_config"):
        config = str(dist.get_backend_config(group))
        backends = {part.split(":")[-1] for part in config.split(",")}
        return config if len(backends) > 1 else backends.pop()
    return dist.get_backend(group)


def timeout_of(group: dist.ProcessGroup, device: torch.device | None = None) -> dict[str, Any]:
    """As new_group() takes it, by keyword; empty for a backend that does not say, such as MPI's, which has none."""
    for each in [device] if device is not None else [torch.device("cpu"), torch.device("cuda")]:
        backend = group
        if hasattr(group, "_get_backend"):
            try:
                backend = group._get_backend(each)
            except RuntimeError:  # none for this kind of device
                continue
        backend = getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
        options = getattr(backend, "options", None)
        if hasattr(options, "_timeout"):
            return {"timeout": options._timeout}
    return {}


def check_same_ranks(name: str, group: Any, model_group: dist.ProcessGroup) -> None:
    """ValueError or TypeError unless `group`, the argument of this name, has the model's ranks and is not its own."""
    _check_member(name, group)
    if group is model_group:
        raise ValueError(f"gradsieve: {name} is the model's own group, whose collectives would meet the hook's: leave "
                         "it out, or hand over a torch.distributed.new_group() that nothing else uses")
    if ranks_of(group) != ranks_of(model_group):
        raise ValueError(f"gradsieve: {name} has the ranks {_listed(group)}, the model's group {_listed(model_group)}: "
                         "leave it out, or hand over a new group of the model's ranks")


class Attached:
    """What a model has of its hook beside the exchange itself. While this lives, so do the groups that were made for
    it. A copy of the model, or what pickle makes of it, has None in its place and exchanges nothing by gradsieve."""

    def __init__(self, peers: Peers) -> None:
        self._end = weakref.finalize(self, _destroy, peers.made, os.getpid())
        self._end.atexit = False

    def attach_to(self, model: Any) -> None:
        setattr(model, ATTRIBUTE, self)
        if getattr(model, "_comm_hooks", None):  # of DistributedDataParallel in torch 2
            model._comm_hooks = _CommHooks(model._comm_hooks)

    def __reduce__(self) -> Any:
        warnings.warn("gradsieve: the copy of a model with a hook has none: its gradients are averaged as without "
                      "gradsieve. Call register() with the copy if it is trained too", stacklevel=2)
        return type(None), ()


class _CommHooks(list):
    """A model's hooks; its copies have those that are not gradsieve's."""

    def __reduce__(self) -> Any:
        return list, ([each for each in self if not each[0].__module__.startswith(__package__)],)


def raise_together(why: str | None, group: dist.ProcessGroup, device: torch.device) -> None:
    """ValueError on all ranks if one has a reason, with its own or a sentence that another has one. Collective."""
    ranks = torch.tensor([float(why is not None)], dtype=torch.float32, device=device)
    dist.all_reduce(ranks, group=group)
    if why is not None or ranks.item():
        raise ValueError(why or "gradsieve: another rank has been refused what it has handed over; its own error says why")


def check_has_no_hook(model: Any) -> None:
    if getattr(model, ATTRIBUTE, None) is not None:
        raise ValueError("gradsieve: this model has a communication hook already: register on a new one")


_left: list[tuple[dist.ProcessGroup, int]] = []  # by models that are gone, and whose process


def _destroy(groups: Sequence[dist.ProcessGroup], process: int) -> None:
    """Where that ends a loop of torch's own over its groups, in which garbage is collected, the next call does it."""
    _left.extend((each, process) for each in groups)
    if any(_is_in_torchs_groups(frame) for frame in sys._current_frames().values()):
        return
    while _left:
        try:
            group, owner = _left.pop()
            if owner == os.getpid():  # a child of fork() has none of their threads
                dist.destroy_process_group(group)
        except Exception:  # all groups have been destroyed already, which torch versions say in different ways
            pass


def _is_in_torchs_groups(frame: Any) -> bool:
    while frame is not None and frame.f_globals.get("__name__") != dist.distributed_c10d.__name__:
        frame = frame.f_back
    return frame is not None


def _check_nodes(model_group: dist.ProcessGroup, inside: Any, across: Any, device: torch.device, sharded: bool) -> None:
    _check_member("inside", inside)
    _check_member("across", across)
    of_model, of_node, of_place = ranks_of(model_group), ranks_of(inside), ranks_of(across)
    if sharded:
        if len(of_node) != len(of_model):
            raise ValueError(f"gradsieve: the model is sharded among {len(of_model)} ranks, inside has {len(of_node)}")
        if of_node != of_model:
            raise ValueError(f"gradsieve: inside has the ranks {_listed(inside)}, the model is sharded among "
                             f"{_listed(model_group)}")
    else:
        if len(of_node) * len(of_place) != len(of_model):
            raise ValueError(f"gradsieve: {len(of_node)} ranks inside and {len(of_place)} across make "
                             f"{len(of_node) * len(of_place)}; the model has {len(of_model)}")
        if not {*of_node, *of_place} <= {*of_model}:
            raise ValueError(f"gradsieve: inside has the ranks {_listed(inside)} and across {_listed(across)}, the "
                             f"model's group {_listed(model_group)}")
        for name, group in (("inside", inside), ("across", across)):
            if group is model_group:
                raise ValueError(f"gradsieve: {name} is the model's own group, whose collectives would meet the "
                                 "hook's: take nodes(), or new groups that nothing else uses")
    if {*of_node} & {*of_place} != {dist.get_rank()}:
        raise ValueError(f"gradsieve: inside has the ranks {_listed(inside)}, across {_listed(across)}, where this "
                         f"rank, {dist.get_rank()}, should be the only one in both")
    mine = torch.tensor([dist.get_rank(inside), len(of_node)], device=device)
    every = [torch.empty_like(mine) for _ in of_place]
    dist.all_gather(every, mine, group=across)
    if any(each.tolist() != mine.tolist() for each in every):
        raise ValueError(f"gradsieve: the ranks {_listed(across)} of across have different places in their nodes, or "
                         "nodes of different sizes")


def _check_member(name: str, group: Any) -> None:
    _arguments.group(name, group)
    try:
        ranks_of(group)
    except (KeyError, RuntimeError, ValueError):
        raise ValueError(f"gradsieve: {name} is a group that was destroyed") from None


def _listed(group: dist.ProcessGroup) -> str:
    ranks = ranks_of(group)
    return str(ranks) if len(ranks) <= 16 else f"[{', '.join(map(str, ranks[:16]))}, ... {len(ranks)} in all]"
