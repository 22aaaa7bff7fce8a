"""Momentum after the exchange: one for all ranks, of the mean of what they have sent, in place of each optimizer's own."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from . import _arguments, _groups, _optimizers

AGREE_EVERY = 4  #: exchanges from one agreement about the momenta, which schedulers change, to the next

#: m = b m + (1 - b) d, and parameters move by m / (1 - b^t) in exchange t: that of Adam, of d that are normalised before.
AVERAGED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam, torch.optim.Adamax, torch.optim.NAdam)
#: m = b m + d, and parameters move by m, or with `nesterov` by d + b m.
SUMMED = (torch.optim.SGD,)


class CommonMomentum:
    """Of the parameters whose optimizer is one of AVERAGED or SUMMED, or of a subclass with their own step(): that optimizer
    steps without momentum, so that what ranks compress is linear in their gradients and of one scale, and the mean of what
    they sent moves the common parameters with the momentum that the optimizer was given, `betas[0]` or `momentum`; where it
    changes, as by a scheduler, with the mean over the ranks of what they have in every AGREE_EVERY-th exchange. Weight decay
    stays in the optimizers' steps. Memory: 4 bytes an element.
    Source: derivation; for one rank it is LaProp (Ziyin et al. 2020)."""

    def __init__(self, optimizers: Sequence[Any], own: Sequence[torch.Tensor], common: Sequence[torch.Tensor],
                 group: dist.ProcessGroup) -> None:
        """Collective: begins with the momentum that the first rank's optimizers have, as after training without gradsieve,
        if they have any."""
        self._group = group
        self._optimizers = [each for each in map(_optimizers.inner, optimizers) if takes(each)]
        self._place = {id(each): i for i, each in enumerate(own)}
        self._group_of = {self._place[id(each)]: number for number, (_, group) in enumerate(self._groups())
                          for each in group["params"] if id(each) in self._place}
        self._held = {i: torch.zeros_like(common[i]) for i in self._group_of}
        self._momenta = [momentum_of(group) for _, group in self._groups()]  # as agreed
        self._products = [1.0] * len(self._momenta)  # NAdam's mu_product
        self._exchanges = 0
        self._take_over()

    def _groups(self) -> list[tuple[Any, dict[str, Any]]]:
        """Anew in each call, as an optimizer's load_state_dict() replaces them."""
        return [(each, group) for each in self._optimizers for group in each.param_groups]

    @contextlib.contextmanager
    def taken_out(self) -> Iterator[None]:
        """The optimizers have no momentum inside."""
        before = [(group, key, group[key]) for _, group in self._groups() for key in ("betas", "momentum") if key in group]
        for group, key, value in before:
            if key == "momentum":
                group[key] = 0.0
            else:
                group[key] = (torch.zeros_like(value[0]) if isinstance(value[0], torch.Tensor) else 0.0, *value[1:])
        try:
            yield
        finally:
            for group, key, value in before:
                group[key] = value

    def agree(self, rounds: int) -> None:
        """`rounds`: exchanges before this one. Collective."""
        if rounds % AGREE_EVERY == 0:
            told = self._numbers([momentum_of(each) for _, each in self._groups()])
            dist.all_reduce(told, group=self._group)
            self._momenta = [value / dist.get_world_size(self._group) for value in told.tolist()]

    def _numbers(self, values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=next(iter(self._held.values())).device)

    def move(self, common: Sequence[torch.Tensor]) -> None:
        """Moves the common parameters, whose gradients are the means of this exchange."""
        self._exchanges += 1
        factors = [self._factors(number, optimizer, group) for number, (optimizer, group) in enumerate(self._groups())]
        for i, each in enumerate(common):
            if i not in self._held:
                each.sub_(each.grad)
                continue
            held, (keep, of_mean, of_held) = self._held[i], factors[self._group_of[i]]
            if keep is None:
                held.mul_(self._momenta[self._group_of[i]]).add_(each.grad)
            else:
                held.lerp_(each.grad, 1 - keep)
            if of_mean:
                each.sub_(each.grad, alpha=of_mean)
            each.sub_(held, alpha=of_held)

    def _factors(self, number: int, optimizer: Any, group: Mapping[str, Any]) -> tuple[float | None, float, float]:
        """How much of an averaged momentum stays, None if it is summed; what the mean and the momentum count in a move."""
        b, t = self._momenta[number], self._exchanges
        if isinstance(optimizer, SUMMED):
            return (None, 1.0, b) if group.get("nesterov") else (None, 0.0, 1.0)
        if isinstance(optimizer, torch.optim.NAdam):
            now, then = (b * (1 - 0.5 * 0.96 ** (at * group["momentum_decay"])) for at in (t, t + 1))
            self._products[number] *= now
            product = self._products[number]
            return b, (1 - now) / (1 - product), then / (1 - product * then)
        return b, 0.0, 1 / (1 - b ** t)

    # ---- in the optimizers' own form, and across restarts ------------------------------------------------------------

    def _take_over(self) -> None:
        steps = [0]
        with torch.no_grad():
            for i, name, state, size in self._kept():
                if isinstance(state.get(name), torch.Tensor):
                    self._held[i].copy_(state[name] / size)
                    steps.append(int(state.get("step", 1)))
                    self._products[self._group_of[i]] = float(state.get("mu_product", 1))
        told = self._numbers([max(steps), *self._products])
        for each in (told, *self._held.values()):
            dist.broadcast(each, _groups.ranks_of(self._group)[0], group=self._group)
        self._exchanges, self._products = int(told[0]), told[1:].tolist()

    @contextlib.contextmanager
    def in_optimizers(self) -> Iterator[None]:
        """The optimizers' states have the common momentum inside, in their own form, and may be saved for training without
        gradsieve."""
        before = []
        with torch.no_grad():
            for i, name, state, size in self._kept():
                written = {name: self._held[i] * size}
                if "mu_product" in state:
                    written["mu_product"] = torch.full_like(state["mu_product"], self._products[self._group_of[i]])
                before.append((state, {key: state[key] for key in written if key in state}, written))
                state.update(written)
        try:
            yield
        finally:
            for state, kept, written in before:
                for key in written:
                    del state[key]
                state.update(kept)

    def _kept(self) -> Iterator[tuple[int, str, dict[str, Any], Any]]:
        """Of each parameter with a step behind it: its number, the name of its momentum, its optimizer's state, and by what
        a change is multiplied to become a gradient."""
        for number, (optimizer, group) in enumerate(self._groups()):
            rate = float(group["lr"])
            name = "momentum_buffer" if isinstance(optimizer, SUMMED) else "exp_avg"
            for each in group["params"] if rate else ():
                if each in optimizer.state and id(each) in self._place:
                    state = optimizer.state[each]
                    yield self._place[id(each)], name, state, _size(group, state) / rate

    def state(self) -> dict[str, Any]:
        return {"exchanges": self._exchanges, "momenta": list(self._momenta), "products": list(self._products),
                "held": {i: each.detach().clone() for i, each in self._held.items()}}

    def is_state(self, value: Any) -> bool:
        return (isinstance(value, Mapping) and _arguments.is_count(value.get("exchanges")) and
                all(isinstance(value.get(name), list) and len(value[name]) == len(self._momenta) and
                    all(isinstance(each, float) for each in value[name]) for name in ("momenta", "products")) and
                isinstance(value.get("held"), Mapping) and value["held"].keys() == self._held.keys() and
                all(isinstance(each, torch.Tensor) and each.shape == self._held[i].shape
                    for i, each in value["held"].items()))

    def restore(self, state: Mapping[str, Any]) -> None:
        self._exchanges, self._momenta = state["exchanges"], list(state["momenta"])
        self._products = list(state["products"])
        for i, each in state["held"].items():
            self._held[i].copy_(each)


def takes(optimizer: Any) -> bool:
    """Whether the momentum of an optimizer can be that of all ranks."""
    step = getattr(type(optimizer), "step", None)
    step = step and inspect.unwrap(step)  # torch wraps it at the first optimizer of a class
    return (any(isinstance(optimizer, each) and step is inspect.unwrap(each.step) for each in AVERAGED + SUMMED) and
            all(group.get("dampening", 0) == 0 for group in optimizer.param_groups) and
            any(momentum_of(group) > 0 for group in optimizer.param_groups))


def momentum_of(group: Mapping[str, Any]) -> float:
    return float(group["betas"][0] if "betas" in group else group.get("momentum", 0.0))


def _size(group: Mapping[str, Any], state: Mapping[str, Any]) -> torch.Tensor | float:
    """What a step divides its gradient by."""
    if "exp_inf" in state:
        return state["exp_inf"]
    second = state.get("max_exp_avg_sq", state.get("exp_avg_sq"))
    if second is None:
        return 1.0
    return (second / (1 - float(group["betas"][1]) ** float(state["step"]))).sqrt_().add_(group["eps"])
