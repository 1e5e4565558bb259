"""Calibration and localization on cases whose answer is known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import uncertainty_toolbox as uct
from scipy.stats import norm, spearmanr

from crossreg.metrics.calibration import LEVELS, coverage, ece
from crossreg.metrics.localization import localization, on_device
from crossreg.predictive.mixture import Mixture


def sampled_mixture(num_points: int, scale: float = 1.0):
    """A two-component mixture and truths drawn from it, its σ then multiplied by `scale`."""
    keys = jax.random.split(jax.random.key(0), 5)
    means = jax.random.normal(keys[0], (2, num_points))
    sigma = jnp.exp(0.5 * jax.random.normal(keys[1], (2, num_points)))
    which = jax.random.bernoulli(keys[2], 0.5, (num_points,)).astype(int)
    picked = jnp.arange(num_points)
    y = means[which, picked] + sigma[which, picked] * jax.random.normal(keys[3], (num_points,))
    return Mixture(means, (scale * sigma) ** 2, jnp.zeros_like(means)), y


def test_a_perfect_mixture_has_no_calibration_error():
    mixture, y = sampled_mixture(1_000_000)
    assert ece(mixture.cdf(y)) < 0.003


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.5])
def test_a_wrong_sigma_has_the_analytic_error(factor):
    y = jax.random.normal(jax.random.key(1), (1_000_000,))
    mixture = Mixture(jnp.zeros((1, y.size)), jnp.full((1, y.size), factor**2), jnp.zeros((1, y.size)))
    z = norm.ppf((1 + np.asarray(LEVELS)) / 2)
    expected = 2 * norm.cdf(factor * z) - 1
    covered = coverage(mixture.cdf(y))
    np.testing.assert_allclose(covered, expected, atol=0.002)
    np.testing.assert_allclose(ece(mixture.cdf(y)), np.abs(expected - LEVELS).mean(), atol=0.002)


def test_coverage_equals_uncertainty_toolbox_for_gaussians():
    rng = np.random.default_rng(0)
    mean, sigma = rng.normal(size=4001), np.exp(rng.normal(size=4001) * 0.3)
    y = mean + 1.3 * sigma * rng.normal(size=4001)
    mixture = Mixture(jnp.asarray(mean)[None], jnp.asarray(sigma**2)[None], jnp.zeros((1, 4001)))
    theirs = [uct.get_proportion_in_interval(mean, sigma, y, level) for level in LEVELS]
    np.testing.assert_allclose(coverage(mixture.cdf(jnp.asarray(y))), theirs, atol=1e-3)


def test_levels_and_error_of_a_few_points():
    """|2u − 1| is 0, 0.25, 0.5, 0.96 and 1; an interval that ends at the truth covers it."""
    assert LEVELS == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    pit = np.array([0.5, 0.375, 0.75, 0.98, 0.0])
    covered = np.array([1, 1, 2, 2, 3, 3, 3, 3, 3]) / 5
    np.testing.assert_allclose(coverage(pit), covered, rtol=1e-12)
    np.testing.assert_allclose(ece(pit), np.mean([0.1, 0, 0.1, 0, 0.1, 0, 0.1, 0.2, 0.3]), rtol=1e-12)
    some = np.array([0.0, 1, 1, 0, 1])
    np.testing.assert_allclose(coverage(pit, some), np.array([0, 0, 1, 1, 2, 2, 2, 2, 2]) / 3, rtol=1e-12)
    np.testing.assert_allclose(ece(pit, some), ece(pit[some > 0]), rtol=1e-12)


def test_far_truths_are_simply_not_covered():
    mixture = Mixture(jnp.zeros((3, 2)), jnp.ones((3, 2)), jnp.zeros((3, 2)))
    pit = mixture.cdf(jnp.asarray([-40.0, 40.0]))
    assert np.isfinite(pit).all()
    np.testing.assert_allclose(coverage(pit), 0)


def test_coverage_counts_points_of_weight_one():
    pit = jnp.asarray([0.5, 0.5, 0.999, 0.001])
    np.testing.assert_allclose(coverage(pit, jnp.asarray([1.0, 0, 1, 0])), 0.5)


def on_host(error, std):
    return localization(*([jnp.asarray(v[:100]), jnp.asarray(v[100:])] for v in (error, std, np.ones(error.size))))


def on_an_accelerator(error, std):
    """With points among them that do not count."""
    junk = np.full(37, 9.0)
    filled = ((error, junk), (std, -junk), (np.ones(error.size), 0 * junk))
    mixed = [jnp.asarray(np.insert(values, 50, fill)) for values, fill in filled]
    return tuple(map(float, on_device(*mixed)))


@pytest.mark.parametrize("localize", [on_host, on_an_accelerator])
def test_localization_of_known_rankings(localize):
    rng = np.random.default_rng(0)
    error, ties = rng.normal(size=500), rng.integers(0, 9, 500) / 3
    theirs: Any = spearmanr(np.abs(error), ties)
    assert localize(error, ties)[0] == pytest.approx(theirs.statistic, abs=1e-5)
    assert localize(error, np.ones(500))[0] == 0
    assert localize(np.zeros(500), ties)[1] == 0
    error = np.linspace(-1, 2, 1000)
    assert localize(error, np.abs(error) ** 3)[1] == pytest.approx(0, abs=1e-6)
    # Two kinds of points, errors 0 and 1, ranked backwards: the curve rises as 1/√(2(1−f)) to 1 at f = 1/2,
    # where the best one has fallen to 0 (both over the RMSE √½ of all points).
    two = np.repeat([0.0, 1.0], 500)
    f = np.arange(100) / 100
    backwards = np.where(f < 0.5, np.sqrt(0.5 / (1 - f)), 1)
    best = np.sqrt(np.clip((0.5 - f) / (1 - f), 0, None))
    assert localize(two, 2 - two)[1] == pytest.approx(np.mean(backwards - best) / np.sqrt(0.5), rel=1e-5)
    # Where all are equally uncertain, any points may be dropped: the curve is flat, in whatever order they are stored.
    for stored in (two, two[::-1]):
        assert localize(stored, np.ones(1000))[1] == pytest.approx(np.mean(1 - best / np.sqrt(0.5)), rel=1e-5)
    assert 0 < localize(error, rng.normal(size=1000))[1] < localize(error, -np.abs(error))[1]
