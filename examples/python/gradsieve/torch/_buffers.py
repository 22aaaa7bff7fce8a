"""What a model holds beside its trained parameters and changes in training: statistics of norms, codebooks that follow
their codes, queues, a teacher's frozen parameters, counters."""

from __future__ import annotations

from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch import nn

from . import _groups, _parameters

WAYS = ("mean", "broadcast", "own")
SAMPLE = 2**14  #: elements of a tensor that are compared with what they were
FROZEN = 16  #: frozen parameters that change are exchanged up to the trained ones' elements over this
OFTEN, THEN = 4, 16  #: rounds that look for what has begun to change: the first of them, and each so many-th

Slot = "tuple[str, dict[str, torch.Tensor | None], str]"


class Buffers:
    """Buffers and frozen parameters of a model. Those that any rank has been found to have changed since the beginning
    become, in each exchange, the same on all ranks; what changes is looked for in the first OFTEN exchanges and in each
    THEN-th. Constants are not sent, nor the largest frozen parameters where those that change are
    many, as of a teacher that follows the trained ones. With "mean" floating ones become the mean, weighted as the changes
    are, of the ranks where all of their elements are finite; others become the first rank's, as all do with "broadcast".
    With "own" nothing is sent. Memory: of each that has not changed SAMPLE elements."""

    def __init__(self, model: nn.Module, how: str, group: dist.ProcessGroup, device: torch.device) -> None:
        self._how, self._group, self._device = how, group, device
        every = list(_slots(model))
        self._served = [each for each in every if _is_served(each[1][each[2]])]
        self._left_out = [name for name, holder, key in every if not _is_served(holder[key])]
        self._kinds = [_kind(holder[key]) for _, holder, key in self._served]
        frozen = {id(each) for each in model.parameters()}
        self._frozen = {i for i, (_, holder, key) in enumerate(self._served) if id(holder[key]) in frozen}
        self._most_frozen = sum(each.numel() for each in model.parameters() if each.requires_grad) // FROZEN
        self._moving: list[int] = []
        self._followers: list[int] = []  # frozen ones that change, the largest of too many
        self._seen = {i: _sample(holder[key]) for i, (_, holder, key) in enumerate(self._served)} if how != "own" else {}
        self.bytes = 0  #: that the last exchange has sent, before an all-reduce or a broadcast shares them out

    def exchange(self, factor: float, rounds: int) -> None:
        """`factor`: of this rank in the mean. `rounds`: exchanges before this one, the same on all ranks. Collective: an
        all-reduce of the floating ones that change, a broadcast of the others; where it looks for more, an all-reduce of 4
        bytes for each that has not changed yet."""
        self.bytes = 0
        if self._seen and (rounds < OFTEN or rounds % THEN == 0):
            self._find_moving()
        average = [i for i in self._moving if self._how == "mean" and self._kinds[i][1].is_floating_point]
        self._average(average, factor)
        self._broadcast([i for i in self._moving if i not in average])

    def describe(self) -> str:
        """What is exchanged and what is not, by name."""
        names = [name for name, _, _ in self._served]
        if self._how == "own":
            return _listed("not exchanged: buffers and frozen parameters", names + self._left_out)
        become = ("the mean, where they are whole numbers the first rank's" if self._how == "mean" else "the first rank's")
        return (_listed(f"buffers and frozen parameters that become {become}", [names[i] for i in self._moving]) +
                _listed("not exchanged: frozen parameters that change and are many", [names[i] for i in self._followers]) +
                _listed("not exchanged: unchanged so far", [names[i] for i in self._seen]) +
                _listed("not exchanged: sharded, sparse, expanded or without values", self._left_out))

    def _find_moving(self) -> None:
        looked = list(self._seen)
        changed = torch.stack([_differs(self._tensor(i), *self._seen[i]).to(self._device) for i in looked]).float()
        dist.all_reduce(changed, dist.ReduceOp.MAX, group=self._group)
        self.bytes += 4 * len(looked)
        for i, has in zip(looked, changed.tolist()):
            if has:
                del self._seen[i]
        self._sort()

    def state(self) -> list[str]:
        """Names of those that have been found to change, the same on all ranks."""
        return [name for i, (name, _, _) in enumerate(self._served) if self._how != "own" and i not in self._seen]

    def restore(self, names: Any) -> None:
        """What is exchanged from the next exchange on. Names that there are not count for nothing."""
        self._seen = {i: each for i, each in self._seen.items() if self._served[i][0] not in names}
        self._sort()

    def _sort(self) -> None:
        """Into those that are exchanged and those that are too many."""
        if self._how == "own":
            return
        self._moving = [i for i in range(len(self._served)) if i not in self._seen]
        sizes = sorted((self._kinds[i][0].numel(), i) for i in self._moving if i in self._frozen)
        self._followers = sorted(i for each, (_, i) in enumerate(sizes)
                                 if sum(size for size, _ in sizes[:each + 1]) > self._most_frozen)
        self._moving = [i for i in self._moving if i not in self._followers]

    def _average(self, which: list[int], factor: float) -> None:
        if not which:
            return
        wide = any(self._kinds[i][1] == torch.float64 for i in which)
        how: dict[str, Any] = {"dtype": torch.float64 if wide else torch.float32, "device": self._device}
        parts, shares, tensors = [], [], []
        for i in which:
            tensor = self._tensor(i)
            size = self._kinds[i][0].numel()
            tensors.append(tensor)
            if tensor is None:
                parts.append(torch.zeros(size, **how))
                shares.append(torch.zeros((), **how))
                continue
            values = tensor.reshape(-1).to(**how)
            counts = torch.isfinite(values).all()
            parts.append(torch.where(counts, values * factor, torch.zeros_like(values)))
            shares.append(torch.where(counts, torch.full((), factor, **how), torch.zeros((), **how)))
        message = torch.cat([*parts, torch.stack(shares)])
        dist.all_reduce(message, group=self._group)
        self.bytes += message.numel() * message.element_size()
        counts = message[-len(which):]
        for tensor, sums, count in zip(tensors, message.split([len(each) for each in parts] + [len(which)]), counts):
            if tensor is not None:
                values = tensor.reshape(-1).to(**how)
                tensor.copy_(torch.where(count > 0, sums / count, values).view(tensor.shape))

    def _broadcast(self, which: list[int]) -> None:
        if not which:
            return
        tensors = [self._tensor(i) for i in which]
        there = torch.tensor([tensor is not None for tensor in tensors], dtype=torch.uint8, device=self._device)
        sent = torch.cat([*(_bytes_of(torch.zeros(kind[0], dtype=kind[1]) if tensor is None else tensor).to(self._device)
                            for tensor, kind in zip(tensors, (self._kinds[i] for i in which))), there])
        dist.broadcast(sent, _groups.ranks_of(self._group)[0], group=self._group)
        self.bytes += len(sent)
        begin = 0
        for i, tensor, has in zip(which, tensors, sent[-len(which):].tolist()):  # has: the first rank has one
            shape, dtype = self._kinds[i]
            size = shape.numel() * torch.empty((), dtype=dtype).element_size()
            if tensor is not None and has:
                tensor.copy_(sent[begin:begin + size].clone().view(dtype).view(shape))
            begin += size

    def _tensor(self, i: int) -> torch.Tensor | None:
        """None where it has another shape or type than at the beginning, and takes no part."""
        _, holder, key = self._served[i]
        tensor = holder.get(key)
        return tensor.detach() if _is_served(tensor) and _kind(tensor) == self._kinds[i] else None


def _slots(model: nn.Module) -> Iterator[Slot]:
    """Each buffer and each frozen parameter once: its name, and where the module has it."""
    found: set[int] = set()
    for prefix, module in model.named_modules():
        for holder in (module._buffers, module._parameters):
            for key, each in holder.items():
                if each is not None and not (holder is module._parameters and each.requires_grad) and id(each) not in found:
                    found.add(id(each))
                    yield f"{prefix}.{key}" if prefix else key, holder, key  # type: ignore[misc]


def _is_served(tensor: torch.Tensor | None) -> bool:
    """Dense elements, each at a place of its own."""
    return (isinstance(tensor, torch.Tensor) and not torch.nn.parameter.is_lazy(tensor) and not tensor.is_meta and
            tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_inference() and
            not hasattr(tensor, "device_mesh") and tensor.numel() > 0 and 0 not in tensor.stride())


def _kind(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _sample(tensor: torch.Tensor) -> tuple[int, torch.Tensor]:
    """What shows a change: how often torch has seen one, and some values, which show those through .data."""
    values = tensor.detach().reshape(-1)
    return tensor._version, values[::-(-len(values) // SAMPLE)].clone()


def _differs(tensor: torch.Tensor | None, version: int, sample: torch.Tensor) -> torch.Tensor:
    if tensor is None:
        return torch.tensor(True)
    now = _sample(tensor)
    if len(sample) < tensor.numel() and now[0] != version:
        return torch.tensor(True)
    return (_bytes_of(now[1]) != _bytes_of(sample)).any()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return _parameters.bytes_of(tensor.detach().contiguous())


def _listed(what: str, names: list[str]) -> str:
    return f"; {what}: {', '.join(names)}" if names else ""
