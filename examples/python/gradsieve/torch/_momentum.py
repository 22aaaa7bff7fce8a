"""Momentum after the exchange: one for all ranks, of the mean of what they have sent, in place of each optimizer's own."""

from __future__ import annotations

import contextlib
import inspect
import math
import weakref
from typing import Any, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from . import _arguments, _groups, _optimizers, _parameters

AGREE_EVERY = 4  #: exchanges from one agreement about the momenta, which schedulers change, to the next

#: m = b m + (1 - b) d, and parameters move by m / (1 - b^t) in exchange t: that of Adam, of d that are normalised before.
AVERAGED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam, torch.optim.Adamax, torch.optim.NAdam)
#: m = b m + d, and parameters move by m, or with `nesterov` by d + b m.
SUMMED = (torch.optim.SGD,)
PASS_ON = ("accelerate", "lightning", "pytorch_lightning", "lightning_fabric")  #: packages of wrappers


LAST: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  #: the last CommonMomentum of an optimizer
LISTS = ("momenta", "nesterov", "decays", "products", "rates", "sizes")  #: of a state, a number for each group


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
        self._optimizers = [each for each in map(taken_of, optimizers) if each is not None]
        self._counts = [len(each.param_groups) for each in self._optimizers]
        self._device = common[0].device
        self._place = {id(each): i for i, each in enumerate(own)}
        self._group_of = {self._place[id(each)]: number for number, (_, group) in enumerate(self._groups())
                          for each in group["params"] if id(each) in self._place}
        self._states = [each.state for each in self._optimizers]
        self._held = {i: torch.zeros_like(common[i]) for i in sorted(self._group_of)}
        groups = [group for _, group in self._groups()]
        self._momenta = [momentum_of(group) for group in groups]  # as agreed, as what follows
        self._nesterov = [float(bool(group.get("nesterov"))) for group in groups]
        self._decays = [float(group.get("momentum_decay", 0.0)) for group in groups]
        self._rates = [float(group["lr"]) for group in groups]  # the mean one of what is held, of this rank
        self._sizes = [0.0] * len(groups)  # of what is held, after as many changes of 1
        self._products = [1.0] * len(self._momenta)  # NAdam's mu_product
        self._exchanges = 0
        with self._handed_over():
            self._take_over()

    @contextlib.contextmanager
    def _handed_over(self) -> Iterator[None]:
        """Optimizers that have been another CommonMomentum's have its momentum inside, and not the last gradient, which is in
        its place; until they load a state."""
        found = {id(last): last for last in (LAST[each]() for each in self._optimizers if each in LAST)
                 if last is not None and last._has_states()}
        with contextlib.ExitStack() as inside:
            for last in found.values():
                inside.enter_context(last.in_optimizers())
            yield
        for each in self._optimizers:
            LAST[each] = weakref.ref(self)

    def _has_states(self) -> bool:
        """Whether the optimizers have loaded no other state since this object was made, or has restored its own."""
        return all(each.state is state for each, state in zip(self._optimizers, self._states))

    def _groups(self) -> list[tuple[Any, dict[str, Any]]]:
        """Anew in each call, as an optimizer's load_state_dict() replaces them. Those that add_param_group() has added are
        frozen."""
        return [(each, group) for each, count in zip(self._optimizers, self._counts) for group in each.param_groups[:count]]

    @property
    def parameters(self) -> int:
        return len(self._held)

    @contextlib.contextmanager
    def taken_out(self) -> Iterator[None]:
        """The optimizers have no momentum inside."""
        before = [(group, key, group[key]) for _, group in self._groups() for key in ("betas", "momentum") if key in group]
        put = []
        for group, key, value in before:
            if key == "momentum":
                group[key] = 0.0
            else:
                group[key] = (torch.zeros_like(value[0]) if isinstance(value[0], torch.Tensor) else 0.0, *value[1:])
            put.append(group[key])
        try:
            yield
        finally:
            for (group, key, value), ours in zip(before, put):
                if group[key] is ours:  # otherwise a scheduler has stepped in a hook of the optimizer's step
                    group[key] = value

    def agree(self, rounds: int) -> None:
        """`rounds`: exchanges before this one. Collective."""
        self._states = [each.state for each in self._optimizers]  # what they have loaded since has the last gradient by now
        if rounds % AGREE_EVERY == 0:
            groups = [each for _, each in self._groups()]
            told = self._numbers([*map(momentum_of, groups), *(float(bool(each.get("nesterov"))) for each in groups),
                                  *(float(each.get("momentum_decay", 0.0)) for each in groups)])
            dist.all_reduce(told, group=self._group)
            means = [value / dist.get_world_size(self._group) for value in told.tolist()]
            count = len(groups)
            self._momenta, self._nesterov, self._decays = means[:count], means[count:2 * count], means[2 * count:]

    def _numbers(self, values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self._device)

    def move(self, common: Sequence[torch.Tensor]) -> None:
        """Moves the common parameters, whose gradients are the means of this exchange."""
        self._exchanges += 1
        factors = [self._factors(number, optimizer) for number, (optimizer, _) in enumerate(self._groups())]
        for number, ((keep, _, _), (_, group)) in enumerate(zip(factors, self._groups())):
            take = 1.0 if keep is None else 1 - keep
            self._sizes[number] = self._momenta[number] * self._sizes[number] + take
            if self._sizes[number]:
                self._rates[number] += take / self._sizes[number] * (float(group["lr"]) - self._rates[number])
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

    def _factors(self, number: int, optimizer: Any) -> tuple[float | None, float, float]:
        """How much of an averaged momentum stays, None if it is summed; what the mean and the momentum count in a move."""
        b, t = self._momenta[number], self._exchanges
        if isinstance(optimizer, SUMMED):
            return (None, 1.0, b) if self._nesterov[number] > 0.5 else (None, 0.0, 1.0)
        if isinstance(optimizer, torch.optim.NAdam):
            now, then = (b * (1 - 0.5 * 0.96 ** (at * self._decays[number])) for at in (t, t + 1))
            self._products[number] *= now
            product = self._products[number]
            return b, (1 - now) / (1 - product), then / (1 - product * then)
        return b, 0.0, 1 / ((1 - b ** t) or 1.0)  # with betas[0] = 1 nothing is held

    # ---- in the optimizers' own form, and across restarts ------------------------------------------------------------

    def _take_over(self) -> None:
        steps = [0]
        with torch.no_grad():
            for i, _, name, state, size in self._kept():
                if isinstance(state.get(name), torch.Tensor):
                    momentum = _parameters.local(state[name])
                    momentum = momentum.to_dense() if momentum.layout != torch.strided else momentum
                    self._held[i].copy_(momentum / size)
                    steps.append(int(state.get("step", 1)))
                    self._products[self._group_of[i]] = float(state.get("mu_product", 1))
        told = self._numbers([max(steps), *self._products])
        for each in (told, *self._held.values()):
            dist.broadcast(each, _groups.ranks_of(self._group)[0], group=self._group)
        self._exchanges, self._products = int(told[0]), told[1:].tolist()
        if self._exchanges:
            self._sizes = [1 / (1 - b) if isinstance(each, SUMMED) and b < 1 else 1 - b ** self._exchanges
                           for b, (each, _) in zip(self._momenta, self._groups())]

    @torch.no_grad()
    def misses(self) -> bool:
        """Whether the optimizers have a momentum, as from a state that was loaded late, and this has none."""
        return self._exchanges == 0 and any(
            isinstance(state.get(name), torch.Tensor) and state[name].layout == torch.strided and
            bool(_parameters.local(state[name]).any()) for _, _, name, state, _ in self._kept())

    def begin(self) -> None:
        """As if nothing had been exchanged."""
        for each in self._held.values():
            each.zero_()
        self._exchanges, self._products = 0, [1.0] * len(self._products)
        self._sizes = [0.0] * len(self._sizes)

    @contextlib.contextmanager
    def in_optimizers(self) -> Iterator[None]:
        """The optimizers' states have the common momentum inside, in their own form, and may be saved for training without
        gradsieve."""
        before = []
        made = [(optimizer, each) for optimizer, group in self._groups() if isinstance(optimizer, SUMMED) and self._exchanges
                for each in group["params"] if id(each) in self._place and each not in optimizer.state]
        for optimizer, each in made:  # torch's SGD has no state without a momentum
            optimizer.state[each] = {}
        with torch.no_grad():
            for i, parameter, name, state, size in self._kept(mean=True):
                written = {name: _parameters.as_part_of(self._held[i] * size, parameter)}
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
            for optimizer, each in made:
                optimizer.state.pop(each, None)

    def _kept(self, mean: bool = False) -> Iterator[tuple[int, torch.Tensor, str, dict[str, Any], Any]]:
        """Of each parameter with a step behind it: its number, itself, the name of its momentum, its optimizer's state, and
        by what a change is multiplied to become a gradient: of the rate now, or of the `mean` one of the changes held."""
        for number, (optimizer, group) in enumerate(self._groups()):
            rate = self._rates[number] if mean else float(group["lr"])
            name = "momentum_buffer" if isinstance(optimizer, SUMMED) else "exp_avg"
            for each in group["params"] if rate else ():
                if each in optimizer.state and id(each) in self._place:
                    state = optimizer.state[each]
                    yield self._place[id(each)], each, name, state, _size(optimizer, group, state) / rate

    def state(self) -> dict[str, Any]:
        return {"exchanges": self._exchanges, **{name: list(getattr(self, "_" + name)) for name in LISTS},
                "held": {i: each.detach().clone() for i, each in self._held.items()}}

    def is_state(self, value: Any) -> bool:
        return (isinstance(value, Mapping) and _arguments.is_count(value.get("exchanges")) and
                all(isinstance(value.get(name), list) and len(value[name]) == len(self._momenta) and
                    all(isinstance(each, float) and math.isfinite(each) for each in value[name]) for name in LISTS) and
                isinstance(value.get("held"), Mapping) and value["held"].keys() == self._held.keys() and
                all(isinstance(each, torch.Tensor) and each.shape == self._held[i].shape and each.is_floating_point() and
                    bool(torch.isfinite(each).all()) for i, each in value["held"].items()))

    def restore(self, state: Mapping[str, Any]) -> None:
        self._exchanges = state["exchanges"]
        for name in LISTS:
            setattr(self, "_" + name, list(state[name]))
        for i, each in state["held"].items():
            self._held[i].copy_(each)


def kind_of(optimizers: Sequence[Any], own: Sequence[torch.Tensor]) -> str:
    """What must be the same on all ranks."""
    place = {id(each): i for i, each in enumerate(own)}
    return repr([(next(each.__name__ for each in AVERAGED + SUMMED if isinstance(taken, each)),
                  [sorted(place[id(each)] for each in group["params"] if id(each) in place) for group in taken.param_groups])
                 for taken in map(taken_of, optimizers) if taken is not None])


def taken_of(optimizer: Any) -> Any:
    """The optimizer whose momentum becomes that of all ranks, or None. A wrapper of Accelerate or Lightning only passes
    step() on; another one, such as Lookahead, changes weights itself, which would go through the momentum."""
    inner = _optimizers.inner(optimizer)
    if inner is not optimizer and type(optimizer).__module__.split(".")[0] not in PASS_ON:
        return None
    return inner if takes(inner) else None


def takes(optimizer: Any) -> bool:
    """Whether the momentum of an optimizer can be that of all ranks."""
    step = getattr(type(optimizer), "step", None)
    step = step and inspect.unwrap(step)  # torch wraps it at the first optimizer of a class
    return (any(isinstance(optimizer, each) and step is inspect.unwrap(each.step) for each in AVERAGED + SUMMED) and
            all(group.get("dampening", 0) == 0 for group in optimizer.param_groups) and
            any(momentum_of(group) > 0 for group in optimizer.param_groups))


def momentum_of(group: Mapping[str, Any]) -> float:
    return float(group["betas"][0] if "betas" in group else group.get("momentum", 0.0))


def _size(optimizer: Any, group: Mapping[str, Any], state: Mapping[str, Any]) -> torch.Tensor | float:
    """What a step divides its gradient by."""
    if "exp_inf" in state:
        return _parameters.local(state["exp_inf"])
    second = state.get("max_exp_avg_sq", state.get("exp_avg_sq"))
    if second is None:
        return 1.0
    second = _parameters.local(second)
    b, t = float(group["betas"][1]), float(state["step"])
    rectified = 1.0
    if isinstance(optimizer, torch.optim.RAdam):
        most = 2 / (1 - b) - 1
        length = most - 2 * t * b ** t / (1 - b ** t)
        if length <= 5:
            return 1.0
        rectified = math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
    return (second / (1 - b ** t)).sqrt_().add_(group["eps"]).div_(rectified)
