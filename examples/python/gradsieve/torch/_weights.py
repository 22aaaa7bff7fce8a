"""Weights of ranks, such as the tokens of their batches: the factors that make a mean over ranks the weighted one."""

from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.distributed as dist

from . import _arguments, _groups

MOST = 1e300  #: of a weight, so that sums stay finite

NO_SAMPLES = ("gradsieve: the weights of all ranks are 0, there is no mean: leave this step out on all ranks")
OTHERS = "gradsieve: the weight of another rank is refused; its own error says why"
SOME = ("gradsieve: some steps have a weight and others, on this rank or on another, have none: give each step() on all "
        "ranks one, 1 where they count alike, or none at all")
LATE = ("gradsieve: this step() has a weight, and the exchanges so far had none: give each step() one from the first, 1 "
        "where ranks count alike")


def mean_factor(weight: float, process_group: dist.ProcessGroup | None = None) -> float:
    """weight * ranks / (sum of the ranks' weights): a loss that is a mean over this rank's samples and is multiplied by it
    makes the mean of all ranks' gradients the weighted one, as with DDP or register(). 1 where weights are equal; with 0
    a rank has no part in the mean. CompressedStep.step() has a weight of its own. Collective: an all-reduce of 16 bytes.
    ValueError on every rank if a weight is below 0 or not finite, or all are 0."""
    _arguments.group("process_group", process_group)
    group = process_group if process_group is not None else dist.group.WORLD
    on_host = "gloo" in _groups.backend_of(group) or not torch.cuda.is_available()
    wrong, weight = _checked(weight)
    total, refused = _sums([weight, wrong is not None], group, torch.device("cpu" if on_host else "cuda"))
    return _share(weight, total, wrong, refused, group)


class Weights:
    """What this rank's steps since the last exchange weigh, together. Used from the first exchange on, or not at all."""

    def __init__(self, replica: Any, device: torch.device) -> None:
        """Of a sharded model a replica weighs what its ranks weigh together."""
        self._replica, self._group, self._device = replica, replica.across, device
        self._used: bool | None = None  # not known before the first exchange
        self.clear()

    def clear(self) -> None:
        """After an exchange."""
        self._sum, self._given, self._missing = 0.0, False, False
        self._wrong: Exception | None = None

    def check(self, weight: Any) -> None:
        """Before a step."""
        if weight is not None and self._used is False:
            raise ValueError(LATE)

    def add(self, weight: Any) -> None:
        """After a step. What is wrong is raised in the exchange, on all ranks."""
        if weight is None:
            self._missing = True
            return
        self._given = True
        wrong, weight = _checked(weight)
        self._wrong = self._wrong or wrong
        self._sum += weight

    def factor(self) -> float:
        """Of this rank's changes. Collective in the first exchange, and in each one where weights are used: an all-reduce of
        32 bytes. ValueError on every rank, and then all have forgotten their weights since the last exchange."""
        if self._used is False:
            return 1.0
        sums = self._replica.add(torch.tensor([self._sum, self._wrong is not None, self._given, self._missing],
                                              dtype=torch.float64, device=self._device))
        weight = float(sums[0])
        dist.all_reduce(sums, group=self._group)
        total, refused, given, missing = sums.tolist()
        weighs = bool(self._used or given)
        try:
            if weighs and missing and not refused:
                raise ValueError(SOME)
            factor = _share(weight, total, self._wrong, refused, self._group) if given else 1.0
        except Exception:
            self.clear()
            raise
        if given or missing:
            self._used = weighs
        return factor

    def add_state(self, state: Sequence[float]) -> None:
        """Of a round that goes on after all."""
        self._sum += state[0]
        self._given, self._missing = self._given or bool(state[1]), self._missing or bool(state[2])

    def state(self) -> list[float]:
        """In the middle of a round."""
        return [self._sum, float(self._given), float(self._missing)]

    def restore(self, state: Sequence[float]) -> None:
        self._sum, self._given, self._missing = state[0], bool(state[1]), bool(state[2])


def _checked(weight: Any) -> tuple[Exception | None, float]:
    try:
        return None, _arguments.number("weight", weight, 0, MOST)
    except (TypeError, ValueError) as wrong:
        return wrong, 0.0


def _sums(values: Sequence[float], group: dist.ProcessGroup, device: torch.device) -> list[float]:
    sums = torch.tensor([float(each) for each in values], dtype=torch.float64, device=device)
    dist.all_reduce(sums, group=group)
    return sums.tolist()


def _share(weight: float, total: float, wrong: Exception | None, refused: float, group: dist.ProcessGroup) -> float:
    if wrong is not None:
        raise wrong
    if refused:
        raise ValueError(OTHERS)
    if total == 0:
        raise ValueError(NO_SAMPLES)
    return weight / total * dist.get_world_size(group)
