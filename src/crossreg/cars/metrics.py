r"""Scores on cars, in the data's units.

The relative L2 error of a car is $\|\hat p - p\|_2 / \|p\|_2$ over its vertices; the literature reports its mean over
cars. All other scores are over all vertices of all cars. A network sees normalised pressure
$(p - \bar p)/s$: its NLL per vertex is that of p less log s.

A bootstrap estimates how much a score depends on the test cars: as many cars are drawn with replacement, and the
interval holds 95% of the scores of such draws. The draws are seeded, and the same for all methods. The ECE is a mean of
absolute gaps, which chance enlarges, so near 0 its interval lies a little high.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from crossreg.cars.pairs import CarScale
from crossreg.metrics.calibration import LEVELS
from crossreg.metrics.evaluation import PointScores
from crossreg.metrics.localization import on_host

# The names of scores in tables.
SCORE_NAMES = {
    "nll": "NLL",
    "ece_mix": "ECE",
    "relative_l2": "relative L2",
    "spearman": "Spearman",
    "rmse": "RMSE",
    "crps": "CRPS",
    "std": "mean σ",
    "std_predictive": "mean σ_pred",
    "std_generalization": "mean σ_gen",
    "std_mu": "Std_ω[μ]",
}
_DRAWS = 2000
_TAILS = (0.025, 0.975)


class CarMeans(NamedTuple):
    """Means over the vertices of each car."""

    num_vertices: Float[np.ndarray, " car"]
    nll: Float[np.ndarray, " car"]
    crps: Float[np.ndarray, " car"]
    squared_error: Float[np.ndarray, " car"]
    relative_l2: Float[np.ndarray, " car"]
    coverage: Float[np.ndarray, "car level"]


def car_means(points: PointScores, scale: CarScale) -> CarMeans:
    """Return the means of every car of a split from the scores at its vertices; padding has weight 0."""
    # In double precision, since a split has 10⁵ points.
    weight, nll, crps, mean, truth, pit = (
        np.asarray(getattr(points, name), np.float64) for name in ("weight", "nll", "crps", "mean", "truth", "pit")
    )
    counts = weight.sum(axis=(1, 2))
    unit = scale.pressure_std

    def means(values) -> Float[np.ndarray, " car"]:
        return np.sum(weight * values, axis=(1, 2)) / counts

    squared_error = unit**2 * means((mean - truth) ** 2)
    distance = np.abs(2 * pit - 1)
    return CarMeans(
        counts,
        means(nll) + math.log(unit),
        unit * means(crps),
        squared_error,
        np.sqrt(squared_error / means(scale.pressure(truth) ** 2)),
        np.stack([means(distance <= level) for level in LEVELS], axis=-1),
    )


def scores_of(cars: CarMeans, chosen: Int[np.ndarray, "draw car"]) -> dict[str, Float[np.ndarray, " draw"]]:
    """Return the scores of every draw of cars."""
    weight = cars.num_vertices[chosen]
    weight = weight / weight.sum(axis=-1, keepdims=True)

    def mean(values) -> Float[np.ndarray, " draw"]:
        return np.sum(weight * values[chosen], axis=-1)

    gaps = [np.abs(mean(covered) - level) for covered, level in zip(cars.coverage.T, LEVELS, strict=True)]
    return {
        "nll": mean(cars.nll),
        "ece_mix": np.mean(gaps, axis=0),
        "relative_l2": cars.relative_l2[chosen].mean(axis=-1),
        "crps": mean(cars.crps),
        "rmse": np.sqrt(mean(cars.squared_error)),
    }


def bootstrap(runs: Sequence[CarMeans]) -> dict[str, tuple[float, float]]:
    """Return 95% bootstrap intervals over test cars of scores averaged over runs.

    Args:
        runs: the means of each seed.

    Returns:
        The lower and upper end for each score; empty for a single car.
    """
    num_cars = len(runs[0].nll) if runs else 0
    if num_cars < 2:
        return {}
    chosen = np.random.default_rng(0).integers(num_cars, size=(_DRAWS, num_cars))
    drawn = [scores_of(run, chosen) for run in runs]
    ends = {name: np.quantile(np.mean([scores[name] for scores in drawn], axis=0), _TAILS) for name in drawn[0]}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def car_scores(points: PointScores, scale: CarScale) -> dict[str, object]:
    """Return the scores of a split from those at every vertex of its cars; padding has weight 0."""
    cars = car_means(points, scale)
    weight = np.asarray(points.weight, np.float64)
    stds = {
        name: scale.pressure_std * np.asarray(getattr(points, name), np.float64)
        for name in ("std_mu", "std_predictive", "std_generalization", "std")
    }

    def mean(values) -> float:
        return float(np.sum(weight * values) / weight.sum())

    error = np.asarray(points.mean, np.float64) - np.asarray(points.truth, np.float64)
    rank_correlation, sparsification = on_host(*map(np.ravel, (error, stds["std"], weight)))
    share = cars.num_vertices / cars.num_vertices.sum()
    return {
        **{name: float(value) for name, [value] in scores_of(cars, np.arange(len(share))[None]).items()},
        "spearman": rank_correlation,
        "ause": sparsification,
        "std_mu": mean(stds["std_mu"]),
        "std_predictive": mean(stds["std_predictive"]),
        "std_generalization": mean(stds["std_generalization"]),
        "rms_predictive": math.sqrt(mean(stds["std_predictive"] ** 2)),
        "rms_generalization": math.sqrt(mean(stds["std_generalization"] ** 2)),
        "std": mean(stds["std"]),
        "coverage": (share @ cars.coverage).tolist(),
    }
