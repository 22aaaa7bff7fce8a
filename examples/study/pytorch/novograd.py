"""An optimizer that torch has not."""

from __future__ import annotations

import math
from typing import Callable, Iterable

import torch


class NovoGrad(torch.optim.Optimizer):
    """Normalises the gradient of each parameter by a second moment of its own, one number, before the first moment.

    Memory: one number an element, and one a parameter. Source: Ginsburg et al. 2019, without weight decay.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.9,
                 decay: float = 0.98) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> None:
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is None:
                    continue
                state, square = self.state[each], each.grad.double().square().sum().item()
                if not state:  # the square is a float of Python's: load_state_dict() would round a tensor to each's type
                    state["square"], state["first"] = square, torch.zeros_like(each)
                else:
                    state["square"] = group["decay"] * state["square"] + (1 - group["decay"]) * square
                scale = 1 / (math.sqrt(state["square"]) + 1e-8)
                state["first"].mul_(group["momentum"]).add_(each.grad, alpha=scale)
                each.add_(state["first"], alpha=-group["lr"])
