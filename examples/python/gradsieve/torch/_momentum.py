"""Momentum after the exchange: one for all ranks, of the mean of what they have sent, in place of each optimizer's own."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import weakref
from typing import Any, Callable, Collection, Iterator, KeysView, Mapping, Sequence

import torch
import torch.distributed as dist

from . import _arguments, _groups, _optimizers, _parameters

#: m = b m + (1 - b) d, and parameters move by m / (1 - b^t) in exchange t: that of Adam, of d that are normalised before.
AVERAGED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam, torch.optim.Adamax, torch.optim.NAdam)
#: m = b m + d, and parameters move by m, or with `nesterov` by d + b m.
SUMMED = (torch.optim.SGD,)
PASS_ON = ("accelerate", "lightning", "pytorch_lightning", "lightning_fabric")  #: packages of wrappers


LAST: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  #: the last CommonMomentum of an optimizer
OF_GROUPS = ("momenta", "nesterov", "decays", "rates")  #: of a state, a number for each group
OF_PARAMETERS = ("steps", "product", "rate", "size")  #: and for each parameter, as _Held has it


@dataclasses.dataclass
class _Held:
    """The momentum of a parameter, and of what it was made."""
    values: torch.Tensor
    group: int
    rate: float  #: the mean one of what is held, of this rank
    steps: float = 0  #: in which any rank had a gradient
    product: float = 1.0  #: NAdam's mu_product
    size: float = 0.0  #: of what is held, after as many changes of 1


@dataclasses.dataclass
class Asked:
    """An agreement that has begun."""
    told: torch.Tensor  #: the sum over the ranks, once it has ended
    work: Any  #: of torch; None: it has ended
    rates: list[float]  #: of this rank's groups

    def wait(self) -> None:
        work, self.work = self.work, None
        if work is not None:
            work.wait()

    def state(self) -> list[float]:
        self.wait()
        return [*self.told.tolist(), *self.rates]


class CommonMomentum:
    """Of the parameters whose optimizer is one of AVERAGED or SUMMED, or of a subclass with their own step(): that optimizer
    steps without momentum, so that what ranks compress is linear in their gradients and of one scale, and the mean of what
    they sent moves the common parameters with the momentum that the optimizer was given, `betas[0]` or `momentum`; where it
    changes, as by a scheduler, with the mean over the ranks. `faster`: 1 - betas[0] is multiplied by it; `fixed`: the
    momentum of all. A parameter for which no rank had a gradient in its step stays as it is, and so does its momentum. Weight decay
    stays in the optimizers' steps. Memory: 4 bytes an element.
    Source: derivation; for one rank it is LaProp (Ziyin et al. 2020)."""

    def __init__(self, optimizers: Sequence[Any], own: Sequence[torch.Tensor], common: Sequence[torch.Tensor],
                 group: dist.ProcessGroup, faster: float = 1.0, fixed: float | None = None) -> None:
        """Collective: begins with the momentum that the first rank's optimizers have, as after training without gradsieve,
        if they have any."""
        self._group, self._faster, self._fixed = group, faster, fixed
        self._optimizers = [each for each in map(taken_of, optimizers) if each is not None]
        self._counts = [len(each.param_groups) for each in self._optimizers]
        self._device = common[0].device
        self._place = {id(each): i for i, each in enumerate(own)}
        self._states = [each.state for each in self._optimizers]
        groups = [group for _, group in self._groups()]
        found = {self._place[id(each)]: number for number, group in enumerate(groups) for each in group["params"]
                 if id(each) in self._place}
        self._held = {i: _Held(torch.zeros_like(common[i]), found[i], float(groups[found[i]]["lr"])) for i in sorted(found)}
        self._momenta, self._nesterov, self._decays = self._told()  # as agreed, as what follows
        self._rates = _rates(groups)  # of this rank, when it agreed
        self._times, self.has_steps = 1, True  #: of the last exchange, on any rank
        self.bytes = 0  #: of the last agreement, before the all-reduce shares them out
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
    def parameters(self) -> KeysView[int]:
        """Their numbers among all."""
        return self._held.keys()

    def described(self) -> str:
        return " and ".join(f"{b:g}" for b in sorted({round(b, 4) for b in self._momenta}))

    @contextlib.contextmanager
    def taken_out(self) -> Iterator[None]:
        """The optimizers have no momentum inside."""
        put = []
        for _, group in self._groups():
            for key in (key for key in ("betas", "momentum") if key in group):
                value, ours = group[key], 0.0
                if key == "betas":
                    ours = (torch.zeros_like(value[0]) if isinstance(value[0], torch.Tensor) else 0.0, *value[1:])
                group[key] = ours
                put.append((group, key, value, ours))
        try:
            yield
        finally:
            for group, key, value, ours in put:
                if group[key] is ours:  # otherwise a scheduler has stepped in a hook of the optimizer's step
                    group[key] = value

    def _told(self) -> list[list[float]]:
        """What is agreed upon."""
        pairs = self._groups()
        return [[self._momentum_of(*pair) for pair in pairs], [float(bool(group.get("nesterov"))) for _, group in pairs],
                [float(group.get("momentum_decay", 0.0)) for _, group in pairs]]

    def _momentum_of(self, optimizer: Any, group: Mapping[str, Any]) -> float:
        if self._fixed is not None:
            return self._fixed
        b = momentum_of(group)
        return b if isinstance(optimizer, SUMMED) else max(0.0, b - (self._faster - 1) * (1 - b))

    def ask(self, used: Collection[int], changed: Collection[int], steps: int) -> Asked:
        """Begins an agreement, which hear() ends. `used`: parameters for which this rank had a gradient, `changed`: those that
        something else than an optimizer has changed, `steps`: of its changes. Collective: an all-reduce of about a byte a
        parameter and 24 a group of parameters."""
        self._states = [each.state for each in self._optimizers]  # what they have loaded since has the last gradient by now
        flags = [i in found for found in (used, changed) for i in self._held]
        groups = [group for _, group in self._groups()]
        places = self._places()
        told = self._numbers([each for of in self._told() for each in of] + [float(steps), float(steps > 0)] +
                             [float(sum(place for place, flag in zip(places, flags[at:]) if flag))
                              for at in range(0, len(flags), len(places))])
        self.bytes = told.numel() * told.element_size()
        return Asked(told, dist.all_reduce(told, group=self._group, async_op=True), _rates(groups))

    def size_of_asked(self) -> int:
        """Numbers of Asked.state()."""
        return 4 * len(self._momenta) + 2 + -(-2 * len(self._held) // len(self._places()))

    def asked_of(self, state: Sequence[float]) -> Asked:
        groups = len(self._momenta)
        return Asked(self._numbers(state[:-groups]), None, list(state[-groups:]))

    def hear(self, asked: Asked) -> tuple[set[int], set[int]]:
        """The momenta become the mean of those that the ranks' optimizers had when they asked, and a move's times that of their
        steps. Returns the `used` and the `changed` of all ranks."""
        asked.wait()
        world, places, groups = dist.get_world_size(self._group), self._places(), len(asked.rates)
        *means, (steps, ranks), sums = (part.tolist() for part in asked.told.cpu().split(
            [groups] * 3 + [2, asked.told.numel() - 3 * groups - 2]))
        self.has_steps = ranks > 0
        self._times = round(steps / ranks) if ranks else 1  # those that are through in join() have taken less
        self._momenta, self._nesterov, self._decays = ([each / world for each in of] for of in means)
        self._rates = asked.rates
        counts = [int(each) // place % (world + 1) for each in sums for place in places]  # of ranks, in the flags' order
        return ({i for i, count in zip(self._held, counts) if count},
                {i for i, count in zip(self._held, counts[len(self._held):]) if count})

    def _places(self) -> list[int]:
        """Of digits, each a number of ranks, that a number holds exactly."""
        base = dist.get_world_size(self._group) + 1
        return [base ** i for i in range(int(52 / math.log2(base)))]

    def _numbers(self, values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self._device)

    def move(self, common: Sequence[torch.Tensor], unused: Collection[int]) -> None:
        """Moves the common parameters, whose gradients are the means of this exchange, but for those that are unused. What is
        the sum of several steps' changes counts in as many equal moves."""
        groups, times = self._groups(), self._times
        for i, each in enumerate(common):
            held = self._held.get(i)
            if held is None:
                each.sub_(each.grad)
            if held is None or i in unused:
                continue
            before, mean, by_before, by_mean = 1.0, 0.0, 0.0, 0.0  # what is held, and all moves, of what was and of the mean
            for _ in range(times):
                held.steps += 1
                b, (keep, of_mean, of_held) = self._momenta[held.group], self._factors(held, groups[held.group][0])
                take = 1.0 if keep is None else 1 - keep
                held.size = b * held.size + take
                if held.size:
                    held.rate += take / held.size * (self._rates[held.group] - held.rate)
                before, mean = b * before, b * mean + take / times
                by_before, by_mean = by_before + of_held * before, by_mean + of_held * mean + of_mean / times
            if times > 1:
                each.sub_(held.values, alpha=by_before).sub_(each.grad, alpha=by_mean)
                held.values.mul_(before).add_(each.grad, alpha=mean)
                continue
            if keep is None:
                held.values.mul_(b).add_(each.grad)
            else:
                held.values.lerp_(each.grad, take)
            if of_mean:
                each.sub_(each.grad, alpha=of_mean)
            each.sub_(held.values, alpha=of_held)

    def speeds(self) -> dict[int, tuple[float, float]]:
        """By number, how often what is held is to be subtracted where the common parameters move as before for a step; and what
        ahead(0) has."""
        groups, ahead = self._groups(), self.ahead(0)
        return {i: (1.0 if isinstance(groups[held.group][0], SUMMED) else
                    1 / (1 - b ** held.steps) if held.steps and b < 1 else 0.0, ahead[i][1])
                for i, held in self._held.items() for b in [self._momenta[held.group]]}

    def values(self, i: int) -> torch.Tensor:
        """That are held of a parameter."""
        return self._held[i].values

    def ahead(self, late: int) -> dict[int, tuple[torch.Tensor, float]]:
        """By number, what is to be subtracted, and how often, where the momentum alone will have taken the common parameters
        before a gradient of now counts. `late`: exchanges that have begun; each is a move, and one more is Nesterov's,
        which some optimizers have already. Source: derivation."""
        groups, found = self._groups(), {}
        for i, held in self._held.items():
            optimizer, b = groups[held.group][0], self._momenta[held.group]
            has_one = self._nesterov[held.group] > 0.5 or isinstance(optimizer, torch.optim.NAdam)
            moves = sum(b ** move for move in range(1 + has_one, late + 2))
            if not isinstance(optimizer, SUMMED):
                moves = moves / (1 - b ** held.steps) if held.steps and b < 1 else 0.0
            found[i] = held.values, moves
        return found

    def _factors(self, held: _Held, optimizer: Any) -> tuple[float | None, float, float]:
        """How much of an averaged momentum stays, None if it is summed; what the mean and the momentum count in a move."""
        b, t = self._momenta[held.group], held.steps
        if isinstance(optimizer, SUMMED):
            return (None, 1.0, b) if self._nesterov[held.group] > 0.5 else (None, 0.0, 1.0)
        if isinstance(optimizer, torch.optim.NAdam):
            now, then = (b * (1 - 0.5 * 0.96 ** (at * self._decays[held.group])) for at in (t, t + 1))
            held.product *= now
            return b, (1 - now) / (1 - held.product), then / (1 - held.product * then)
        return b, 0.0, 1 / ((1 - b ** t) or 1.0)  # with betas[0] = 1 nothing is held

    # ---- in the optimizers' own form, and across restarts ------------------------------------------------------------

    @torch.no_grad()
    def _take_over(self) -> None:
        for held, _, name, state, size in self._kept():
            if isinstance(state.get(name), torch.Tensor):
                momentum = _parameters.local(state[name])
                momentum = momentum.to_dense() if momentum.layout != torch.strided else momentum
                held.values.copy_(momentum / size())
                held.steps, held.product = int(state.get("step", 1)), float(state.get("mu_product", 1))
        every = list(self._held.values())
        told = self._numbers([number for held in every for number in (held.steps, held.product)])
        for each in (told, *(held.values for held in every)):
            dist.broadcast(each, _groups.ranks_of(self._group)[0], group=self._group)
        groups = self._groups()
        for held, (steps, product) in zip(every, told.view(-1, 2).tolist()):
            b = self._momenta[held.group]
            held.steps, held.product = steps, product
            if held.steps:
                held.size = 1 / (1 - b) if isinstance(groups[held.group][0], SUMMED) and b < 1 else 1 - b ** held.steps

    @torch.no_grad()
    def misses(self) -> bool:
        """Whether the optimizers have a momentum, as from a state that was loaded late, and this has none."""
        return not any(held.steps for held in self._held.values()) and any(
            isinstance(state.get(name), torch.Tensor) and state[name].layout == torch.strided and
            bool(_parameters.local(state[name]).any()) for _, _, name, state, _ in self._kept())

    def begin(self) -> None:
        """As if nothing had been exchanged."""
        for each in self._held.values():
            each.values.zero_()
            each.steps, each.product, each.size = 0, 1.0, 0.0

    @contextlib.contextmanager
    def in_optimizers(self) -> Iterator[None]:
        """The optimizers' states have the common momentum inside, in their own form, and may be saved for training without
        gradsieve. What it takes the place of is a gradient, of which the next step keeps nothing and which is not put back,
        unless a state was loaded."""
        before, has_states = [], self._has_states()
        with torch.no_grad():
            for held, parameter, name, state, size in self._kept():
                before.append((state, {key: state.get(key) for key in (name, "mu_product") if key == name or key in state}))
                if has_states and isinstance(state.get(name), torch.Tensor) and state[name].layout == torch.strided:
                    there = _parameters.local(state[name])
                    torch.mul(held.values, size(there), out=there)
                else:
                    state[name] = _parameters.as_part_of(held.values * size(), parameter)
                if "mu_product" in state:
                    state["mu_product"] = torch.full_like(state["mu_product"], held.product)
        try:
            yield
        finally:
            for state, kept in before:
                state.update(kept)

    def _kept(self) -> Iterator[tuple[_Held, torch.Tensor, str, dict[str, Any], Callable[..., Any]]]:
        """Of each parameter with a step behind it: what is held, itself, the name of its momentum, its optimizer's state, and
        a call for what a change is multiplied by to become a gradient."""
        for optimizer, group in self._groups():
            sums = isinstance(optimizer, SUMMED)
            name = "momentum_buffer" if sums else "exp_avg"
            for each in group["params"]:
                held = self._held.get(self._place.get(id(each), -1))
                if held is not None and held.rate and (each in optimizer.state or sums and held.steps):
                    state = optimizer.state[each]  # torch's SGD has none without a momentum: an empty one
                    yield held, each, name, state, functools.partial(_size, optimizer, group, state, held.rate)

    def state(self) -> dict[str, Any]:
        return {**{name: list(getattr(self, "_" + name)) for name in OF_GROUPS},
                **{name: [float(getattr(each, name)) for each in self._held.values()] for name in OF_PARAMETERS},
                "held": {i: each.values.detach().clone() for i, each in self._held.items()}}

    def is_state(self, value: Any) -> bool:
        return (isinstance(value, Mapping) and
                all(_arguments.are_numbers(value.get(name), len(self._momenta)) for name in OF_GROUPS) and
                all(_arguments.are_numbers(value.get(name), len(self._held)) for name in OF_PARAMETERS) and
                isinstance(value.get("held"), Mapping) and value["held"].keys() == self._held.keys() and
                all(isinstance(each, torch.Tensor) and each.shape == self._held[i].values.shape and
                    each.is_floating_point() and bool(torch.isfinite(each).all()) for i, each in value["held"].items()))

    def restore(self, state: Mapping[str, Any]) -> None:
        for name in OF_GROUPS:
            setattr(self, "_" + name, list(state[name]))
        for number, (i, each) in enumerate(self._held.items()):
            each.values.copy_(state["held"][i])
            each.steps, each.product, each.rate, each.size = (state[name][number] for name in OF_PARAMETERS)


def _rates(groups: Sequence[Mapping[str, Any]]) -> list[float]:
    return [float(each["lr"]) for each in groups]


def kind_of(optimizers: Sequence[Any], own: Sequence[torch.Tensor], fixed: float | None) -> str:
    """What must be the same on all ranks."""
    place = {id(each): i for i, each in enumerate(own)}
    return repr((fixed, [(next(each.__name__ for each in AVERAGED + SUMMED if isinstance(taken, each)),
                          [sorted(place[id(each)] for each in group["params"] if id(each) in place)
                           for group in taken.param_groups])
                         for taken in map(taken_of, optimizers) if taken is not None]))


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


def _size(optimizer: Any, group: Mapping[str, Any], state: Mapping[str, Any], rate: float,
          out: torch.Tensor | None = None) -> torch.Tensor | float:
    """What a step divides its gradient by, over the rate; it may be written into `out`."""
    if "exp_inf" in state:
        return _parameters.local(state["exp_inf"]) / rate
    second, t = state.get("max_exp_avg_sq", state.get("exp_avg_sq")), float(state.get("step", 0))
    if second is None or not t:
        return 1.0 / rate
    b = float(group["betas"][1])
    if isinstance(optimizer, torch.optim.RAdam):
        most = 2 / (1 - b) - 1
        length = most - 2 * t * b ** t / (1 - b ** t)
        if length <= 5:
            return 1.0 / rate
        rate *= math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
    return torch.sqrt(_parameters.local(second), out=out).div_(math.sqrt(1 - b ** t) * rate).add_(group["eps"] / rate)
