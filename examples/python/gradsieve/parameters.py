"""For Adam and other optimizers that normalise: ranks exchange changes of parameters, not gradients."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

from . import _library
from ._library import InvalidArgument, Layers, Owner, Report, whole
from ._memory import floats, view
from .collectives import Collectives


class ParameterExchange(Owner):
    """Each rank steps its own parameters with its own optimizer; the change is compressed and exchanged.

    own: a float32 array of the parameters, the same on all ranks; they become the common ones. weight, in [0, 1]: the
    factor of a rank's unsent changes in its own parameters; None: 0.5, with a momentum 0.25, or 0.125 on more than 4
    ranks or below a density of 2.5 %; 1 for a single rank. momentum, in [0, 1): of the common parameters, for an
    optimizer without one, as Adam with beta1 = 0; it loses less than one of each rank's own. That is Adam's beta1, but
    below a density of 6 %, as changes are late there, 1 - min(5, 0.06 / density) * (1 - beta1). At (final) densities
    below 1 own parameters are ahead by the momentum times the last move. All ranks give the same.
    """

    _destroy = "destroy_parameters"

    def __init__(self, recipe: str, layers: Sequence[tuple[str, Any]], own: Any, weight: float | None = None,
                 momentum: float = 0.0) -> None:
        super().__init__(Layers(layers))
        if weight is not None and not 0 <= weight <= 1:
            raise InvalidArgument(f"gradsieve: a weight of {weight} is not in [0, 1]")
        at = floats(own, "the parameters", writable=False)
        _library.call("create_parameters_with_momentum", _library.text(recipe, "the recipe"), *self.layers.arguments(),
                      at.address, at.count, -1.0 if weight is None else float(weight), float(momentum),
                      ctypes.byref(self._at))

    def exchange(self, ranks: Collectives, own: Any, skipped: Sequence[Any] | None = None,
                 factor: float = 1.0) -> Report:
        """After the optimizer's step: exchanges the changes of `own` and rewrites it. `factor`: of this rank's change,
        see mean_factor(). Collective. Nothing is lost if it raises: continue, or call it again."""
        at = floats(own, "the parameters")
        self._call("exchange_weighted_parameters", ctypes.byref(ranks.table), at.address, at.count,
             self.layers.skipped(skipped), float(factor), by=ranks)
        return self.report

    @property
    def common(self) -> memoryview:
        """The common parameters, the same bits on all ranks, as read-only floats: to evaluate and to save. Each
        exchange changes the values."""
        at = ctypes.c_void_p()
        self._call("common", ctypes.byref(at))
        return view(at.value, self.layers.elements, "f", readonly=True, owner=self)

    @property
    def report(self) -> Report:
        """Of the last exchange."""
        return self._report("get_parameters_report")

    def rescale(self, factor: float, own: Any) -> None:
        """When the number of ranks changes: multiplies what this rank has not sent by new size / old size."""
        at = floats(own, "the parameters")
        self._call("rescale_parameters", float(factor), at.address, at.count)

    def absorb(self, state: bytes, own: Any) -> None:
        """Adds what a rank that left had not sent, from its save()."""
        self._with_state("absorb_parameters", state, own)

    def join(self, state: bytes, own: Any) -> None:
        """Begins as a new rank, from another rank's save(); the others call rescale()."""
        self._with_state("join_parameters", state, own)

    def save(self) -> bytes:
        """The common parameters, and what this rank has not sent."""
        return self._saved("save_parameters")

    def load(self, state: bytes, own: Any) -> None:
        """Continues from save(), and writes `own`."""
        self._with_state("load_parameters", state, own)

    def _with_state(self, name: str, state: bytes, own: Any) -> None:
        at = floats(own, "the parameters")
        state = bytes(memoryview(state))
        self._call(name, state, len(state), at.address, at.count)


class SecondMoments(Owner):
    """Factors for the squares of gradients that each rank's optimizer keeps, and clipping by the mean gradient's norm.
    A rank's squares are those of a smaller batch, too large by up to the number of ranks."""

    _destroy = "destroy_moments"

    def __init__(self, layers: Sequence[tuple[str, Any]], density: float = 0.001, every: int = 1) -> None:
        super().__init__(Layers(layers))
        _library.call("create_moments", self.layers.table, self.layers.count, float(density),
                      whole(every, "every", 1, 2**32 - 1), ctypes.byref(self._at))

    def measure(self, ranks: Collectives, gradient: Any) -> None:
        """Measures this step's float32 gradient, before it is clipped. Call it in each step. Collective."""
        at = floats(gradient, "the gradient", writable=False)
        self._call("measure_moments", ctypes.byref(ranks.table), at.address, at.count, by=ranks)

    @property
    def factors(self) -> memoryview:
        """One per layer, the same on all ranks: v += (1 - b2) * (factor * g * g - v) with Adam."""
        at = ctypes.c_void_p()
        self._call("moment_factors", ctypes.byref(at))
        return view(at.value, self.layers.count, "f", readonly=True, owner=self)

    def clip(self, gradient: Any, most: float) -> float:
        """Clips the gradient so that the mean gradient's norm, as measured, is at most `most`; returns that norm."""
        at = floats(gradient, "the gradient")
        norm = ctypes.c_float()
        self._call("clip", at.address, at.count, float(most), ctypes.byref(norm))
        return norm.value

    def save(self) -> bytes:
        """The same on all ranks."""
        return self._saved("save_moments")

    def load(self, state: bytes) -> None:
        """Continues from save(), on all ranks."""
        state = bytes(memoryview(state))
        self._call("load_moments", state, len(state))
