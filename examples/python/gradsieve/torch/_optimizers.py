"""What an optimizer does with what it is given, and what it keeps."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Iterator, Mapping, Sequence

import torch

from . import _arguments, _parameters

#: Those that divide by a gradient's size and have no `betas`: of torch.optim, and the last two of timm.
NORMALISE = ("RMSprop", "Adagrad", "Adadelta", "Adafactor", "Rprop", "Muon", "RMSpropTF", "AdafactorBigVision")

LOSES = ("gradsieve: {name} divides gradients by their size, so that an element that has waited for many steps counts as "
         "one step; a small GPT has lost 0.28 in loss with 6 % of the elements. Compress what the optimizer does instead: "
         "gradsieve.torch.CompressedStep(model, optimizer), without DDP")


def inner(optimizer: Any) -> Any:
    """Of one that Accelerate, Lightning or another has wrapped: what it wraps."""
    found = (getattr(optimizer, name, None) for name in ("optimizer", "_optimizer"))
    return next((each for each in found if isinstance(each, torch.optim.Optimizer)), optimizer)


def parts(optimizers: Sequence[Any]) -> list[Any]:
    """The optimizers, and those in their attributes, as SAM, Lookahead and wrappers have them."""
    found: list[Any] = []
    waiting = list(optimizers)
    while waiting:
        each = waiting.pop(0)
        if not any(each is known for known in found):
            found.append(each)
            waiting += [value for value in getattr(each, "__dict__", {}).values()
                        if isinstance(value, torch.optim.Optimizer)]
    return found


def needs_closure(optimizer: Any) -> bool:
    """Whether its step() calls the loss itself, as LBFGS does."""
    try:
        closure = inspect.signature(type(inner(optimizer)).step).parameters.get("closure")
    except (AttributeError, TypeError, ValueError):  # of an object that passes calls on, or without a signature
        return False
    return closure is not None and closure.default is closure.empty


def takes_closure(optimizer: Any) -> bool:
    try:
        return "closure" in inspect.signature(optimizer.step).parameters
    except (TypeError, ValueError):  # without a signature
        return True


def has_two_passes(optimizer: Any) -> bool:
    """As SAM: step(closure) moves the parameters, takes the gradient there and steps from where they were."""
    return any(callable(getattr(each, "first_step", None)) and callable(getattr(each, "second_step", None))
               for each in parts([optimizer]))


def switches_weights(optimizer: Any) -> bool:
    """As ScheduleFree: train() and eval() put one of two sets of weights into the parameters."""
    return any(callable(getattr(type(each), "train", None)) and callable(getattr(type(each), "eval", None))
               for each in parts([inner(optimizer)]))


def normalises(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a gradient of twice the size makes the same step; also of one of a class that is derived from such."""
    return (any(each.__name__ in NORMALISE for each in type(optimizer).__mro__) or
            any("betas" in group for group in optimizer.param_groups))


def check(value: Any, recipe: str, density: float | None) -> None:
    """Warns where compressed gradients do not suit the optimizer. ValueError where momentum would count twice."""
    for each in map(inner, _arguments.optimizers(value)):
        name = type(each).__name__
        momentum = any(group.get("momentum", 0) for group in each.param_groups)
        if "momentum" in recipe.split("+") and (momentum or normalises(each)):
            raise ValueError(f"gradsieve: recipe '{recipe}' carries the momentum, and so does {name}: leave one of them "
                             "out")
        if density != 1 and normalises(each):
            warnings.warn(LOSES.format(name=name), UserWarning, stacklevel=3)


# ---- what it keeps ---------------------------------------------------------------------------------------------------


def kept(optimizer: Any) -> Iterator[tuple[torch.Tensor, str, torch.Tensor]]:
    """Parameter, name and tensor, of a distributed one this rank's part, of all floating-point tensors in an optimizer's
    state."""
    state = getattr(optimizer, "state", None)
    for parameter, values in list(state.items()) if isinstance(state, Mapping) else []:
        if isinstance(parameter, torch.Tensor) and isinstance(values, Mapping):
            for name, value in values.items():
                if isinstance(value, torch.Tensor) and _is_plain(_parameters.local(value)):
                    yield parameter, name, _parameters.local(value)


def not_finite(found: Sequence[Any]) -> tuple[torch.Tensor, str] | None:
    """A parameter and the name of what is kept of it that is NaN, or infinite and of the parameter's shape."""
    for optimizer in found:
        for parameter, name, value in kept(optimizer):
            is_like = value.shape == _parameters.local(parameter).shape
            bad = torch.isfinite(value).logical_not() if is_like else torch.isnan(value)
            if bool(bad.any()):
                return parameter, name
    return None


def equals(value: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether it has the parameter's values, as rounded to its format, in other memory."""
    value, parameter = _parameters.local(value).detach(), _parameters.local(parameter).detach()
    if value.shape != parameter.shape or value.numel() == 0 or value.data_ptr() == parameter.data_ptr():
        return False
    return bool(value.reshape(-1)[0].to(parameter) == parameter.reshape(-1)[0]) and torch.equal(value.to(parameter), parameter)


def copies(found: Sequence[Any], parameters: Sequence[torch.Tensor]) -> dict[tuple[int, str], bool]:
    """Numbers of optimizers and names in their states under which some of the parameters have a tensor of their shape, and
    whether all of these tensors are copies of their parameters."""
    of = {id(each) for each in parameters}
    seen: dict[tuple[int, str], bool] = {}
    for number, optimizer in enumerate(found):
        for parameter, name, value in kept(optimizer):
            if id(parameter) in of and value.shape == _parameters.local(parameter).shape and value.numel():
                seen[number, name] = seen.get((number, name), True) and equals(value, parameter)
    return seen


def copies_elsewhere(found: Sequence[Any], changed: Sequence[torch.Tensor]) -> set[str]:
    """Names of the optimizers' attributes that hold copies of `changed` parameters where copies() does not look: in
    lists, dicts and objects, in a state under other keys, or in a row that begins with one."""
    changed = [_parameters.local(each) for each in changed]
    of_shape: dict[torch.Size, list[torch.Tensor]] = {}
    for each in changed:
        of_shape.setdefault(each.shape, []).append(each)
    own = {each.data_ptr() for each in changed}

    def holds(value: Any, depth: int = 0) -> bool:
        if isinstance(value, torch.Tensor):
            value = _parameters.local(value)
            return (_is_plain(value) and value.numel() > 1 and value.data_ptr() not in own and
                    (any(equals(value, each) for each in of_shape.get(value.shape, ())) or
                     value.dim() == 1 and any(equals(value[:each.numel()].view(each.shape), each) for each in changed
                                              if 1 < each.numel() < value.numel())))
        if isinstance(value, Mapping):
            value = [of_parameter(key, each) for key, each in value.items()]
        elif not isinstance(value, (list, tuple, torch.optim.Optimizer, torch.nn.Module, type)):
            value = list(getattr(value, "__dict__", {}).values())
        return depth < 4 and isinstance(value, (list, tuple)) and any(holds(each, depth + 1) for each in value)

    def of_parameter(key: Any, value: Any) -> Any:
        """What copies() does not see of an optimizer's state."""
        if not (isinstance(key, torch.Tensor) and isinstance(value, Mapping)):
            return value
        return [each for each in value.values() if not (isinstance(each, torch.Tensor) and each.shape == key.shape)]

    return {name for optimizer in found for name, value in getattr(optimizer, "__dict__", {}).items() if holds(value)}


def _is_plain(value: Any) -> bool:
    return (type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_meta and
            value.is_floating_point())
