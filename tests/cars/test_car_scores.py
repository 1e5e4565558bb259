"""Scores on cars against their definitions, in the data's own units."""

from typing import Any

import numpy as np
from scipy import stats

from crossreg.cars.metrics import CarMeans, bootstrap, car_means, car_scores, scores_of
from crossreg.cars.pairs import CarScale
from crossreg.metrics.evaluation import PointScores


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
    points = PointScores(
        truth=truth * poison,
        mean=mean * poison**2,
        nll=(-stats.norm.logpdf(z) + np.log(std)) * poison,
        pit=stats.norm.cdf(z) / poison,
        crps=std * poison,
        std_mu=0.1 * std * poison,
        std_predictive=0.8 * std * poison,
        std_generalization=0.6 * std * poison,
        std=std * poison,
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
    np.testing.assert_allclose(scores["rms_generalization"], 0.6 * np.sqrt((raw_std[inside] ** 2).mean()))
    np.testing.assert_allclose(scores["std_predictive"], 0.8 * raw_std[inside].mean())
    np.testing.assert_allclose(scores["std"], raw_std[inside].mean())
    means = car_means(points, scale)
    np.testing.assert_array_equal(means.num_vertices, counts)
    np.testing.assert_allclose(means.relative_l2, errors)
    own = [-stats.norm.logpdf(raw_truth, raw_mean, raw_std)[i, 0, :n].mean() for i, n in enumerate(counts)]
    np.testing.assert_allclose(means.nll, own)
    depth = np.abs(2 * stats.norm.cdf(z)[inside] - 1)
    np.testing.assert_allclose(scores["coverage"], [np.mean(depth <= level / 10) for level in range(1, 10)])
    np.testing.assert_allclose(scores["ece_mix"], np.abs(scores["coverage"] - np.arange(1, 10) / 10).mean())


def some_means(num_cars: int, seed: int) -> CarMeans:
    rng = np.random.default_rng(seed)
    vertices = rng.integers(20, 90, num_cars).astype(float)
    nll, crps, error, relative = rng.gamma(3.0, size=(4, num_cars))
    return CarMeans(vertices, nll, crps, error, relative, np.sort(rng.uniform(size=(num_cars, 9)), axis=1))


def test_drawn_cars_are_scored_as_if_they_were_the_test_set():
    cars = some_means(5, seed=1)
    chosen = np.array([[0, 1, 2, 3, 4], [3, 3, 0, 3, 1]])
    scores = scores_of(cars, chosen)
    for row, numbers in enumerate(chosen):
        weight = cars.num_vertices[numbers]
        np.testing.assert_allclose(scores["nll"][row], np.average(cars.nll[numbers], weights=weight))
        np.testing.assert_allclose(scores["rmse"][row] ** 2, np.average(cars.squared_error[numbers], weights=weight))
        np.testing.assert_allclose(scores["relative_l2"][row], cars.relative_l2[numbers].mean())
        covered = np.average(cars.coverage[numbers], axis=0, weights=weight)
        np.testing.assert_allclose(scores["ece_mix"][row], np.abs(covered - np.arange(1, 10) / 10).mean())


def test_intervals_over_cars_are_those_of_a_mean():
    """For many cars a bootstrap of a mean is normal, with the standard error of the mean."""
    seeds = [some_means(400, seed) for seed in (2, 3, 4)]
    found = bootstrap(seeds)
    each = np.mean([cars.relative_l2 for cars in seeds], axis=0)
    expected = each.mean() + np.array([-1, 1]) * stats.norm.ppf(0.975) * stats.sem(each)
    np.testing.assert_allclose(found["relative_l2"], expected, rtol=0.01)
    np.testing.assert_allclose(np.ptp(found["relative_l2"]), np.ptp(expected), rtol=0.05)
    assert found == bootstrap(seeds)
    assert set(found) == {"nll", "ece_mix", "relative_l2", "crps", "rmse"}
    # Equal cars leave nothing to chance, and one car nothing to draw.
    same = CarMeans(*(np.repeat(values[:1], 6, axis=0) for values in seeds[0]))
    for low, high in bootstrap([same]).values():
        np.testing.assert_allclose(low, high)
    assert bootstrap([CarMeans(*(values[:1] for values in same))]) == bootstrap([]) == {}
