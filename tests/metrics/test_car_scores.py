"""Scores on cars against their definitions, in the data's own units."""

from typing import Any

import numpy as np
from scipy import stats

from crossreg.data.cars.pairs import CarScale
from crossreg.metrics.cars import car_scores
from crossreg.metrics.evaluation import Points


def test_scores_are_those_of_the_pressure_in_its_own_units():
    rng = np.random.default_rng(0)
    scale = CarScale(np.zeros(3), np.ones(3), -30.0, 50.0)
    counts = (40, 25, 33)
    cars, most = len(counts), max(counts)
    weight = (np.arange(most) < np.array(counts)[:, None])[:, None].astype(np.float32)
    mean, truth = rng.normal(size=(2, cars, 1, most))
    std = rng.uniform(0.3, 2, (cars, 1, most))
    poison = np.where(weight > 0, 1, 1e6)  # what stands in the padding must not count
    z = (truth - mean) / std
    points = Points(
        truth=truth * poison,
        mean=mean * poison**2,
        nll=(-stats.norm.logpdf(z) + np.log(std)) * poison,
        pit=stats.norm.cdf(z) / poison,
        crps=std * poison,
        std_mu=0.1 * std * poison,
        std_predictive=0.8 * std * poison,
        std_generalization=0.6 * std * poison,
        std_total=std * poison,
        weight=weight,
    )
    scores: dict[str, Any] = {**car_scores(points, scale)}
    raw_mean, raw_truth, raw_std = -30 + 50 * mean, -30 + 50 * truth, 50 * std
    inside = weight > 0
    np.testing.assert_allclose(scores["nll"], -stats.norm.logpdf(raw_truth, raw_mean, raw_std)[inside].mean())
    errors = [
        np.linalg.norm((raw_mean - raw_truth)[i, 0, :n]) / np.linalg.norm(raw_truth[i, 0, :n])
        for i, n in enumerate(counts)
    ]
    np.testing.assert_allclose(scores["relative_l2"], np.mean(errors))
    expected = np.asarray(stats.spearmanr(np.abs(raw_mean - raw_truth)[inside], raw_std[inside]))[0]
    np.testing.assert_allclose(scores["spearman"], expected)
    np.testing.assert_allclose(scores["rmse"], np.sqrt(((raw_mean - raw_truth)[inside] ** 2).mean()))
    np.testing.assert_allclose(scores["std_generalization"], 0.6 * raw_std[inside].mean())
    np.testing.assert_allclose(scores["crps"], raw_std[inside].mean())
    np.testing.assert_allclose(scores["std_mu"], 0.1 * raw_std[inside].mean())
    np.testing.assert_allclose(scores["rms_predictive"], 0.8 * np.sqrt((raw_std[inside] ** 2).mean()))
    depth = np.abs(2 * stats.norm.cdf(z)[inside] - 1)
    np.testing.assert_allclose(scores["coverage"], [np.mean(depth <= level / 10) for level in range(1, 10)])
    np.testing.assert_allclose(scores["ece_mix"], np.abs(scores["coverage"] - np.arange(1, 10) / 10).mean())
