"""How far gradients are from the laws that estimates of thresholds assume. Needs numpy only."""

from __future__ import annotations

import functools
import statistics
from typing import Iterator

import numpy as np

#: Of a gradient or an accumulator (the gradient and what a rank had not sent): distances in mean magnitudes.
COLUMNS = ["step", "values", "layer", "elements", "emd_laplace", "emd_gauss", "kurtosis"]
PLACES = 2048  # quantiles that a distance is a mean over


@functools.cache
def laws() -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of the Laplace law of mean deviation 1 and of the Gauss law of standard deviation 1, mean 0."""
    places = (np.arange(PLACES) + 0.5) / PLACES
    tail = np.log(2 * np.minimum(places, 1 - places))
    gauss = statistics.NormalDist()
    return np.where(places < 0.5, tail, -tail), np.array([gauss.inv_cdf(place) for place in places])


def shape(values: np.ndarray) -> tuple[float, float, float]:
    """Earth mover's distance of `values` to the Laplace law of the same mean and mean deviation, and to the Gauss law of
    the same mean and standard deviation, both over the mean magnitude; and the kurtosis. Zeros, of zeros."""
    values = values.astype(np.float64)
    magnitude = np.abs(values).mean()
    if magnitude == 0:
        return 0.0, 0.0, 0.0
    centered = np.sort(values - values.mean())
    found = centered[((np.arange(PLACES) + 0.5) / PLACES * len(centered)).astype(int)]
    laplace, gauss = laws()
    deviation = centered.std()
    to_laplace = np.abs(found - np.abs(centered).mean() * laplace).mean() / magnitude
    to_gauss = np.abs(found - deviation * gauss).mean() / magnitude
    return float(to_laplace), float(to_gauss), float((centered**4).mean() / deviation**4) if deviation > 0 else 0.0


def rows(step: int, layers: dict[str, tuple[np.ndarray, np.ndarray]]) -> Iterator[list[object]]:
    """COLUMNS of one step: of all layers together and of each. `layers`: gradient and pending values, by name."""
    for values in ("gradient", "accumulator") if layers else ():
        found = {name: gradient + pending if values == "accumulator" else gradient
                 for name, (gradient, pending) in layers.items()}
        for name, each in [("all", np.concatenate(list(found.values()))), *found.items()]:
            yield [step, values, name, len(each), *(f"{number:.6g}" for number in shape(each))]
