"""How much smaller the mean gradient is than a rank's own: for second moments, and for clipping."""

from __future__ import annotations

import functools
import inspect
import math
import re
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from . import _arguments, _parameters

SHARE = 1e-3  #: of a parameter's elements that are drawn for a measurement
LEAST = 16  #: but not fewer, where it has as many
WINDOW = 50  #: measurements that are averaged, the newest with the most weight
SIZE_WINDOW = 5  #: the same, of a rank's size among the ranks
MOST_SIZE = 100.0  #: so that a rank that had small gradients for long is not stopped by a large one

def _of_square_avg(group: Mapping[str, Any]) -> float | None:
    """RMSprop's. A centered one has the square of its own mean subtracted, which would be the larger. Adadelta divides by
    it and multiplies by its own steps' size: smaller moments make larger steps, which make larger ones."""
    return None if group.get("centered") or "alpha" not in group else float(group["alpha"])


#: A second moment's name in an optimizer's state, and how much of it a step keeps; None: not known.
KEPT: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "exp_avg_sq": lambda group: float(group["betas"][1]) if "betas" in group else None,
    "square_avg": _of_square_avg,
    "sum": lambda group: 1.0,
}

#: Whose steps keep so much of a second moment, and add the rest of g^2.
KNOWN: tuple[type, ...] = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.RMSprop,
                           torch.optim.Adagrad)


#: Whose second moment cannot be scaled, so that what a step has changed is enlarged instead: names of classes in torch,
#: Transformers, bitsandbytes and elsewhere, or parts of them.
ENLARGED = re.compile(r"^(Adamax|Adadelta|Rprop)$|Ada[Ff]actor|Lion|Muon")

#: Of those, whose weight decay is in the gradient that they normalise.
ADD_DECAY = (torch.optim.Adamax, torch.optim.Adadelta, torch.optim.RMSprop)


def is_known(optimizer: Any, further: Sequence[type] = ()) -> bool:
    """Whether an optimizer is one of KNOWN or of `further`, or of a subclass with KNOWN's own step(); or of ENLARGED."""
    if isinstance(optimizer, tuple(further)) or _is_named(optimizer):
        return True
    step = getattr(type(optimizer), "step", None)  # None: an object that passes calls on
    step = step and inspect.unwrap(step)  # torch wraps it at the first optimizer of a class
    return any(isinstance(optimizer, each) and step is inspect.unwrap(each.step) for each in KNOWN)


def may_enlarge(optimizer: Any, further: Sequence[type] = ()) -> bool:
    """Of one that is_known(): whether it may keep no second moment that can be scaled."""
    return (isinstance(optimizer, tuple(further)) or _is_named(optimizer) or
            any(group.get("centered") for group in optimizer.param_groups))


def _is_named(optimizer: Any) -> bool:
    return _is_enlarged(type(optimizer))


@functools.lru_cache(None)
def _is_enlarged(kind: type) -> bool:
    return any(ENLARGED.search(each.__name__) for each in kind.__mro__)


class Factors:
    """A number for each parameter: |mean over ranks of g|^2 / mean over ranks of |g|^2, of the gradients g, or of what steps
    have changed, where those are enlarged.

    1 where all ranks have the same gradient, 1 / P where they have independent noise. Both norms are those of random
    places, the same on all ranks and new in each measurement: SHARE of the elements, at least LEAST. Averaged over about
    WINDOW measurements, and kept within [1 / P, 1]. Ranks without a gradient, or with one that is not finite in its places,
    do not count: of k others |mean over P|^2 is estimated as |mean|^2 - (mean of |g|^2 - |mean|^2) (P - k) / (P (k - 1)).
    `size`: mean over ranks of |g|^2 / this rank's |g|^2, of all parameters together; with `sized` another factor of this
    rank's second moments. Ranks then divide by numbers of one size, so that the weighted mean of their steps is a step by
    the weighted mean of their gradients, and not one by each rank's direction alone.
    Of a sharded model a rank's gradient is that of its replica: places are drawn in each shard, and norms are summed inside.
    Source: derivation; the two norms are those of the gradient noise scale (McCandlish et al. 2018).
    """

    def __init__(self, parameters: Sequence[torch.Tensor], replica: Any, optimizers: Sequence[Any] | None = None) -> None:
        """optimizers: of the parameters that are measured; None: all are."""
        of = {id(each) for optimizer in optimizers or () for group in optimizer.param_groups for each in group["params"]}
        self._parameters = list(parameters)
        self._replica, self._group = replica, replica.across
        self._world = dist.get_world_size(self._group)
        self._device = _parameters.local(self._parameters[0]).device
        sizes = [_parameters.local(each).numel() * owned * (optimizers is None or id(each) in of)
                 for each, owned in zip(self._parameters, replica.owns)]
        counts = [min(size, max(LEAST, math.ceil(SHARE * size))) for size in sizes]
        self._counts = counts
        on_host: dict[str, Any] = {"dtype": torch.int64, "device": "cpu"}  # whatever torch.set_default_device() says
        self._parameter_of = torch.repeat_interleave(torch.arange(len(counts), **on_host), torch.tensor(counts, **on_host))
        self._sizes = torch.tensor(sizes, **on_host).double()[self._parameter_of]
        self._of_mean = torch.zeros(len(counts), dtype=torch.float64, device="cpu")
        self._mean_of = torch.zeros(len(counts), dtype=torch.float64, device="cpu")
        self._measured = 0
        self._own, self._all, self._sized = 0.0, 0.0, 0  # |g|^2 of this rank, and of the mean rank
        self.size, self.sized = 1.0, False
        self.alike = 0  #: measurements in a row in which this rank had the mean gradient, to rounding
        self.short = False  #: the last measurement had less than two ranks
        self.values = [1.0] * len(counts)

    @property
    def bytes(self) -> int:
        """That a measurement sends, before the all-reduce shares them out."""
        return 4 * (len(self._parameter_of) + len(self._counts) + 1)

    @torch.no_grad()
    def measure(self, number: int, values: Iterable[torch.Tensor | None]) -> None:
        """Of these values of the parameters, one after the other; None: this rank has none. `number`: of the measurement, the
        same on all ranks and new each time. Collective: one all-reduce, and two small ones inside of a sharded replica."""
        chance = torch.Generator().manual_seed(number)
        places = (torch.rand(len(self._sizes), generator=chance, dtype=torch.float64, device="cpu") * self._sizes).long()
        parts, has_values = [], False
        for each, of in zip(values, places.to(self._device).split(self._counts)):
            parts.append(self._drawn(each, of))
            has_values |= each is not None
        drawn = torch.cat(parts)
        counts = torch.isfinite(drawn.square().sum()) & has_values
        if self._replica:
            counts = self._replica.add((~counts).float().view(1)).view(()) == 0
        drawn = torch.where(counts, drawn, torch.zeros_like(drawn))
        message = torch.cat([drawn, self._sums(drawn.square()), counts.to(drawn).view(1)])
        dist.all_reduce(message, group=self._group)
        ranks = int(message[-1])
        self.short = ranks < 2  # what is noise cannot be seen
        if self.short:
            return
        message = message / ranks
        mean, squares = message[:len(drawn)], message[len(drawn):-1]
        sums = [self._sums(mean.square()).double(), squares.double(), drawn.double().square().sum().view(1),
                (mean - drawn).double().square().sum().view(1)]
        count = len(self._counts)
        of_mean, mean_of, (own, apart) = self._replica.add(torch.cat(sums)).cpu().split([count, count, 2])
        own, apart = float(own), float(apart)
        self.alike = self.alike + 1 if apart <= 1e-12 * own and own > 0 else 0
        weight = max(1 / (self._measured + 1), 1 / WINDOW)
        of_mean = of_mean - (mean_of - of_mean) * ((self._world - ranks) / (self._world * (ranks - 1)))
        self._of_mean.lerp_(of_mean, weight)
        self._mean_of.lerp_(mean_of, weight)
        self._measured += 1
        if own > 0:
            weight = max(1 / (self._sized + 1), 1 / SIZE_WINDOW)
            self._own += weight * (own - self._own)
            self._all += weight * (float(mean_of.sum()) - self._all)
            self._sized += 1
        self._find_values()

    @torch.no_grad()
    def scale_second_moments(self, optimizers: Sequence[torch.optim.Optimizer], undo: bool = False) -> None:
        """Before a step of optimizers that is_known() knows: lets factor * g^2 enter their second moments in place of
        g^2, with `sized` times the size. `undo`: that step did not happen, and none of them may stay below zero."""
        size = self.size if self.sized else 1.0
        for i, optimizer, group, each in self._steps_of(optimizers):
            found, gradient = _second_moment(optimizer, group, each), _parameters.gradient_of(each)
            if found is not None and gradient is not None and not gradient.is_sparse:
                moment, kept, enters = found
                scale = enters * (self.values[i] * size - 1) / kept if kept else 0.0
                keep_positive = undo or _adds_decay_to_gradient(optimizer, group)
                _add_square(moment, gradient, -scale if undo else scale, keep_positive)

    def without_second_moment(self, optimizers: Sequence[Any]) -> dict[int, tuple[float, float]]:
        """Numbers of the parameters that have none which could be scaled; the learning rate, 1 where the optimizer finds its
        own; and which share of its values a step takes off as weight decay, beside what it makes of the gradient: lr *
        weight_decay, of Transformers' Adafactor nothing."""
        rates: dict[int, tuple[float, float]] = {}  # of groups
        found = {}
        for i, optimizer, group, each in self._steps_of(optimizers):
            if id(group) not in rates:
                rate, decay = float(group.get("lr") or 0.0), float(group.get("weight_decay") or group.get("wd") or 0.0)
                is_beside = "scale_parameter" not in group and not isinstance(optimizer, ADD_DECAY)
                rates[id(group)] = rate or 1.0, decay * rate * is_beside
            if _second_moment(optimizer, group, each) is None:
                found[i] = rates[id(group)]
        return found

    @torch.no_grad()
    def clip(self, max_norm: float, together: bool) -> float:
        """Scales this rank's gradients so that the mean gradient has at most this norm: the square root of the mean over
        ranks of sum of factor * |g|^2. Returns that norm before it was limited. `together`: collective, one all-reduce of
        three numbers, and all ranks scale alike; else of this rank's gradients alone, inside of a sharded replica of its. A
        rank without a gradient, or whose norm is not finite, does not count."""
        gradients = [(factor * owned, _parameters.gradient_of(each)) for factor, owned, each in
                     zip(self.values, self._replica.owns, self._parameters) if each.grad is not None]
        device = self._device
        square = torch.zeros((), dtype=torch.float64, device=device)
        if gradients:
            norms = _norms([each for _, each in gradients])
            square = norms.square() @ torch.tensor([factor for factor, _ in gradients], dtype=torch.float64, device=device)
        self._replica.add(square.view(1))
        finite = torch.isfinite(square)
        sums = torch.stack([torch.where(finite, square, 0.0), (finite & bool(gradients)).double(), (~finite).double()])
        if together:
            dist.all_reduce(sums, group=self._group)
        total, ranks, not_finite = sums.tolist()
        norm = math.sqrt(total / ranks) if ranks else math.inf if not_finite else 0.0
        if norm > max_norm:
            _scale([each for _, each in gradients], max_norm / norm)
        return norm

    def state(self) -> dict[str, Any]:
        return {"measured": self._measured, "of_mean": self._of_mean.clone(), "mean_of": self._mean_of.clone(),
                "size": [self._own, self._all, float(self._sized)], "short": self.short}

    def restore(self, state: Mapping[str, Any], alone: bool = True) -> None:
        """`alone`: of this rank; another's size is not its."""
        self._measured = state["measured"]
        self._of_mean.copy_(state["of_mean"])
        self._mean_of.copy_(state["mean_of"])
        self._own, self._all, sized = state.get("size", (0.0, 0.0, 0.0)) if alone else (0.0, 0.0, 0.0)
        self._sized = int(sized)
        self.short = state.get("short") is True
        self._find_values()

    def is_state(self, state: Any) -> bool:
        def fits(tensor: Any) -> bool:
            return isinstance(tensor, torch.Tensor) and tensor.shape == self._of_mean.shape
        return (isinstance(state, Mapping) and type(state.get("measured")) is int and state["measured"] >= 0 and
                fits(state.get("of_mean")) and fits(state.get("mean_of")) and
                _arguments.are_numbers(state.get("size", [0.0] * 3), 3))

    def _find_values(self) -> None:
        ratio = torch.where(self._mean_of > 0, self._of_mean / self._mean_of, 1.0)
        self.values = ratio.clamp(1 / self._world, 1.0).tolist() if self._measured else [1.0] * len(ratio)
        self.size = min(self._all / self._own, MOST_SIZE) if self._own > 0 else 1.0

    def _steps_of(self, optimizers: Sequence[Any]) -> Iterator[tuple[int, Any, Mapping[str, Any], torch.Tensor]]:
        """Number, optimizer, group and parameter."""
        number = {id(each): i for i, each in enumerate(self._parameters)}
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for each in group["params"]:
                    if id(each) in number:
                        yield number[id(each)], optimizer, group, each

    def _drawn(self, values: torch.Tensor | None, places: torch.Tensor) -> torch.Tensor:
        if values is None or values.is_sparse or not len(places):
            return torch.zeros(len(places), dtype=torch.float32, device=self._device)
        return torch.take(values, places.to(values.device)).float().to(self._device)

    def _sums(self, of_places: torch.Tensor) -> torch.Tensor:
        """Of each parameter's."""
        sums = of_places.new_zeros(len(self._counts))
        return sums.index_add_(0, self._parameter_of.to(of_places.device), of_places)


@torch.no_grad()
def finite(gradients: Sequence[torch.Tensor]) -> bool:
    """Whether all are, and their squares' sums too, which second moments are made of."""
    return not gradients or bool(torch.isfinite(_norms(gradients)).all())


def _norms(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    if _parameters.alike(gradients) and gradients[0].dtype in (torch.float32, torch.float64):
        return torch.stack(list(torch._foreach_norm(gradients))).double()
    return torch.stack([torch.linalg.vector_norm(_parameters.values_of(each),
                                                 dtype=torch.promote_types(each.dtype, torch.float32)).double()
                        for each in gradients])


def _scale(gradients: Sequence[torch.Tensor], factor: float) -> None:
    if _parameters.alike(gradients):
        torch._foreach_mul_(gradients, factor)
    else:
        for each in gradients:
            each.mul_(factor)


def _second_moment(optimizer: Any, group: Mapping[str, Any],
                   parameter: torch.Tensor) -> tuple[torch.Tensor, float, float] | None:
    """A parameter's, how much of it a step keeps, and how much of g^2 enters; None where it cannot be scaled, or need not
    be a mean of g^2."""
    if _is_named(optimizer):
        return None
    state = getattr(optimizer, "state", {}).get(parameter, {})  # what passes calls on may have none
    name = next((name for name in KEPT if isinstance(state.get(name), torch.Tensor)), None)
    kept = None if name is None else KEPT[name](group)
    if kept is None:
        return None
    moment = _parameters.local(state[name])
    fits = moment.numel() == 1 or moment.shape == _parameters.local(parameter).shape
    return (moment, kept, 1.0 if name == "sum" else 1.0 - kept) if fits else None


def _adds_decay_to_gradient(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> bool:
    decoupled = isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay", False)
    return bool(group.get("weight_decay", 0)) and not decoupled


def _add_square(moment: torch.Tensor, grad: torch.Tensor, scale: float, keep_positive: bool) -> None:
    """What the optimizer's own `kept * moment + (1 - kept) * grad^2` needs beforehand to come out right: it may be below
    zero until then. `keep_positive`: what enters is not this gradient's square alone, and may be smaller."""
    if scale == 0:
        return
    if moment.shape == grad.shape:
        moment.addcmul_(grad.to(moment.dtype), grad.to(moment.dtype), value=scale)
    else:  # one number a layer, as NovoGrad has it
        moment.add_(scale * grad.square().sum().to(moment.dtype))
    if keep_positive:
        moment.clamp_(min=0)
