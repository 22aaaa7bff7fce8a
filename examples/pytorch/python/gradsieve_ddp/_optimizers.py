"""What an optimizer does with what it is given."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch

from . import _arguments

#: Those that divide by a gradient's size and have no `betas`: of torch.optim, and the last two of timm.
NORMALISE = ("RMSprop", "Adagrad", "Adadelta", "Adafactor", "Rprop", "Muon", "RMSpropTF", "AdafactorBigVision")

LOSES = ("gradsieve: {name} divides gradients by their size, so that an element that has waited for many steps counts as "
         "one step; a small GPT has lost 0.28 in loss with 6 % of the elements. Compress what the optimizer does instead: "
         "gradsieve_ddp.CompressedStep(model, optimizer), without DDP")


def inner(optimizer: Any) -> Any:
    """Of one that Accelerate, Lightning or another has wrapped: what it wraps."""
    found = (getattr(optimizer, name, None) for name in ("optimizer", "_optimizer"))
    return next((each for each in found if isinstance(each, torch.optim.Optimizer)), optimizer)


def needs_closure(optimizer: Any) -> bool:
    """Whether its step() calls the loss itself, as LBFGS does."""
    try:
        closure = inspect.signature(type(inner(optimizer)).step).parameters.get("closure")
    except (AttributeError, TypeError, ValueError):  # of an object that passes calls on, or without a signature
        return False
    return closure is not None and closure.default is closure.empty


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
