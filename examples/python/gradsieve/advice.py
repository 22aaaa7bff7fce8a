"""Is compression worth its while here?"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Sequence

from . import _library
from ._library import ANSWER, InvalidArgument, Layers, asked, whole

if hasattr(_library.loaded, "gradsieve_plan_advise"):
    _library.declare({"plan_advise": (ctypes.POINTER(_library.Layer), ctypes.POINTER(ctypes.c_uint32), ctypes.c_size_t,
                                      ctypes.c_int, ctypes.c_char_p, ctypes.c_double, ctypes.c_double, *ANSWER)})


class Choice(NamedTuple):
    """One exchange, after the backward pass and without overlap."""
    name: str
    exchange: float  # seconds on the link
    local: float     # seconds of computing
    speedup: float   # over dense in 32 bits


class Advice(NamedTuple):
    sentence: str                # the result in words
    compress: bool               # whether the fastest choice is not dense
    best: str                    # the fastest
    break_even_density: float    # below it the fastest sparse choice is faster than the fastest dense one; 0: never
    least_bandwidth: float       # bytes a second; above it likewise; 0: no lower limit; inf: never
    break_even_bandwidth: float  # bytes a second; below it likewise; inf: no upper limit; 0: never
    choices: list[Choice]


def advise(layers: Sequence[tuple[str, Any]], workers: int, link: str | tuple[float, float], density: float = 0.01,
           cores: float | None = None) -> Advice:
    """Predicts how long the exchanges of a gradient take: dense in 32 and 16 bits, and the library's at this density.

    layers: as of a Compressor. link: a name such as "v100-10gbe", or seconds of a message and of a byte, as "ALPHA,BETA" or
    a pair. cores: of a rank which runs TCP over a link of a nominal rate; None: the link's seconds were measured.
    @raise InvalidArgument, TypeError
    """
    if not hasattr(_library.loaded, "gradsieve_plan_advise"):
        raise _library.Error(_library.C_ALONE)
    if not isinstance(link, str):
        try:
            alpha, beta = (float(each) for each in link)
        except (TypeError, ValueError):
            raise TypeError(f"gradsieve: link is a name, or seconds of a message and of a byte, not {link!r}") from None
        link = f"{alpha!r},{beta!r}"
    if cores is not None and not cores > 0:
        raise InvalidArgument(f"gradsieve: cores is {cores!r}, expected a number above 0")
    said = asked("plan_advise", *Layers(layers).arguments(), whole(workers, "workers", 1, 2**24),
                 _library.text(link, "link"), float(density), 0.0 if cores is None else float(cores))
    numbers = [float(each) for each in said[1:5]]
    choices = [Choice(name, *map(float, seconds)) for name, *seconds in zip(*(said[6 + i::4] for i in range(4)))]
    return Advice(said[0], bool(numbers[0]), said[5], *numbers[1:], choices)
