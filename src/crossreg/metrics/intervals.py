"""Means over seeds with their 95% intervals, and the number of decimals that tables show."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean over seeds, or over masks, with its 95% interval.

    Attributes:
        mean: The mean.
        half: Half the width of the interval; NaN for a single value.

    Example:
        >>> found = xr.metrics.Interval(mean=2.0, half=0.5)
        >>> found.low, found.high
        (1.5, 2.5)
    """

    mean: float
    half: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.half


def decimals_of(value: float, name: str) -> int:
    """Return the number of decimals that a table shows: three for an NLL, otherwise as many as give three digits."""
    size = abs(value)
    return 3 if name == "nll" or not size or not math.isfinite(size) else max(0, 2 - math.floor(math.log10(size)))


def interval(values: Sequence[float]) -> Interval | None:
    """Return the mean and the 95% interval (Student's t) of independent values.

    Args:
        values: The values, for example a score of each seed.

    Returns:
        The interval, or None where there are no values.

    Example:
        >>> found = xr.metrics.interval([1.0, 2.0, 3.0])
        >>> round(found.mean, 2), round(found.half, 2)
        (2.0, 2.48)
    """
    if not values:
        return None
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1) * stats.sem(values) if len(values) > 1 else math.nan
    return Interval(float(np.mean(values)), float(half))
