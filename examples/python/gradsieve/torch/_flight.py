"""What a CompressedStep remembers of an exchange that has begun."""

from __future__ import annotations

import dataclasses
from typing import Any, Collection, Mapping, Sequence

import torch

from . import _arguments


def are_changes(value: Any, shapes: Sequence[Any]) -> bool:
    """By number of a parameter, of its shape."""
    return isinstance(value, Mapping) and all(
        _arguments.is_count(i) and i < len(shapes) and getattr(each, "shape", None) == shapes[i] for i, each in value.items())


@dataclasses.dataclass
class Flight:
    """An exchange from its begin to its end."""
    fragment: int | None  # None: all
    which: Sequence[int]  # numbers of its parameters
    left: list[torch.Tensor]  # with a delay: this rank's parameters, with which steps go on
    steps: int                # until it ends
    factor: float             # of this rank in the mean
    before: Any               # the hook's state before, where it may be needed
    unused: Collection[int]
    what: str                 # is not finite, if something is
    in_full: int = 0          # bytes sent beside it
    weights: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])  # of its steps
    beyond: Mapping[int, torch.Tensor] = dataclasses.field(default_factory=dict)  # what 16 bits would round of its changes
    undone: list[torch.Tensor] = dataclasses.field(default_factory=list)  # what its steps have changed, if it fails
    asked: Any = None         # with a common momentum: the agreement that goes with it
    outside: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)  # and what else has changed weights, by number

    def flies_on(self) -> bool:
        """For a step more; whether it ends with that."""
        self.steps -= 1
        return self.steps == 0

    def state(self, start: Sequence[torch.Tensor]) -> dict[str, Any]:
        return {"fragment": self.fragment, "left": [each.clone() for each in self.left], "steps": self.steps,
                "mean": [start[i].clone() for i in self.which], "factor": self.factor, "unused": sorted(self.unused),
                "asked": self.asked.state() if self.asked is not None else [],
                "outside": {i: each.clone() for i, each in self.outside.items()}}

    @staticmethod
    def is_state(state: Any, shapes: Sequence[Any], fragments: Sequence[Sequence[int]], delay: int,
                 asked: int) -> bool:
        """asked: numbers of an agreement."""
        if not (isinstance(state, Mapping) and _arguments.is_count(state.get("fragment")) and
                state["fragment"] < len(fragments) and _arguments.is_count(state.get("steps")) and
                0 < state["steps"] <= delay and _arguments.are_numbers([state.get("factor")], 1)):
            return False
        unused, outside, told = (state.get(name) for name in ("unused", "outside", "asked"))
        if not (isinstance(unused, list) and all(_arguments.is_count(each) and each < len(shapes) for each in unused) and
                are_changes(outside, shapes) and (told == [] or _arguments.are_numbers(told, asked))):
            return False
        of = [shapes[i] for i in fragments[state["fragment"]]]
        return all(isinstance(state.get(name), list) and [getattr(each, "shape", None) for each in state[name]] == of
                   for name in ("left", "mean"))

    @staticmethod
    def of(state: Mapping[str, Any], fragments: Sequence[Sequence[int]], momentum: Any) -> "Flight":
        """One that has arrived, and is still to be applied."""
        return Flight(state["fragment"], fragments[state["fragment"]], [each.clone() for each in state["left"]],
                      state["steps"], state["factor"], None, state["unused"], "",
                      asked=momentum.asked_of(state["asked"]) if state["asked"] else None,
                      outside={i: each.clone() for i, each in state["outside"].items()})
