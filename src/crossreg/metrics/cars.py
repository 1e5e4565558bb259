r"""Scores on cars, in the data's own units.

The relative L2 error of a car is $\|\hat p - p\|_2 / \|p\|_2$ over its vertices, and the mean of that over cars is what
the literature reports. All other scores are over all vertices of all cars. A network sees normalised pressure
$(p - \bar p)/s$: its NLL per vertex is that of p less log s.
"""

import math

import numpy as np

from crossreg.data.cars.pairs import CarScale
from crossreg.metrics.calibration import coverage, ece_from_coverage
from crossreg.metrics.evaluation import Points
from crossreg.metrics.localization import on_host


def car_scores(points: Points, scale: CarScale) -> dict[str, object]:
    """The scores of a split, from what was predicted at every vertex of its cars; padding has weight 0."""
    weight = np.asarray(points.weight, np.float64)
    total = weight.sum()
    # Means of sums in double precision: a split has 10⁵ points.
    fields = {name: np.asarray(getattr(points, name), np.float64) for name in points._fields}
    error = fields["mean"] - fields["truth"]

    def mean(values) -> float:
        return float(np.sum(weight * values) / total)

    def norms(values):
        return np.sqrt(np.sum(weight * values**2, axis=(1, 2)))

    covered = coverage(fields["pit"], weight)
    rank_correlation, sparsification = on_host(*map(np.ravel, (error, fields["std_total"], weight)))
    unit = scale.pressure_std
    return {
        "nll": mean(fields["nll"]) + math.log(unit),
        "ece_mix": float(ece_from_coverage(covered)),
        "relative_l2": float(np.mean(unit * norms(error) / norms(scale.pressure(fields["truth"])))),
        "spearman": rank_correlation,
        "ause": sparsification,
        "crps": unit * mean(fields["crps"]),
        "rmse": unit * math.sqrt(mean(error**2)),
        "std_mu": unit * mean(fields["std_mu"]),
        "std_predictive": unit * mean(fields["std_predictive"]),
        "std_generalization": unit * mean(fields["std_generalization"]),
        "rms_predictive": unit * math.sqrt(mean(fields["std_predictive"] ** 2)),
        "rms_generalization": unit * math.sqrt(mean(fields["std_generalization"] ** 2)),
        "sharpness": unit * mean(fields["std_total"]),
        "coverage": covered.tolist(),
    }
