"""Means over seeds with their 95% intervals, and the number of decimals that tables show."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean over seeds, or over masks, and half the width of its 95% interval (NaN for a single one)."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def decimals_of(value: float, name: str) -> int:
    """Return the number of decimals that a table shows: three for an NLL, otherwise as many as give three digits."""
    size = abs(value)
    return 3 if name == "nll" or not size or not math.isfinite(size) else max(0, 2 - math.floor(math.log10(size)))


def interval(values: Sequence[float]) -> Interval | None:
    """Return the mean and the 95% interval (Student's t) of independent values, or None where there are none."""
    if not values:
        return None
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1) * stats.sem(values) if len(values) > 1 else math.nan
    return Interval(float(np.mean(values)), float(half))
