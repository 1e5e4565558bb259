"""What holds for every mixture, in float64: each property against its definition, not against another code.

Shapes are fixed and values vary, so that one program serves all examples.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crossreg.predictive.mixture import Mixture
from crossreg.predictive.recalibrated import Recalibrated

SAMPLES, POINTS, INSTANCES, KNOTS = 4, 3, 5, 6
REACH = 12  # standard deviations that hold all but 1e-32
LEVELS = np.array([0.001, 0.05, 0.3, 0.5, 0.8, 0.999])


@pytest.fixture(scope="module", autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def numbers(shape, low: float, high: float):
    return arrays(np.float64, shape, elements=st.floats(low, high, allow_subnormal=False))


def positive(shape, low: float = -3.0, high: float = 2.0):
    """From 10^low to 10^high, evenly over the powers."""
    return numbers(shape, low, high).map(lambda power: 10.0**power)


@st.composite
def mixtures(draw) -> Mixture:
    """Means up to 30, so that components may lie far apart, or be one; σ from 0.03 to 10; either part may be 0."""
    parts = [draw(positive((SAMPLES, POINTS))) for _ in range(2)]
    only = draw(st.sampled_from([(1, 1), (1, 0), (0, 1)]))
    means = draw(numbers((SAMPLES, POINTS), -30, 30))
    instances = draw(numbers((INSTANCES, POINTS), -30, 30))
    predictive, generalization = (jnp.asarray(use * part) for use, part in zip(only, parts, strict=True))
    kept = jnp.asarray(instances) if draw(st.booleans()) else None
    return Mixture(jnp.asarray(means), predictive, generalization, kept)


@st.composite
def recalibrated(draw) -> Recalibrated:
    """B of any rising shape: slopes from 1/3 to 3."""
    steps, slopes = draw(numbers(KNOTS - 1, 0.2, 2.0)), draw(numbers(KNOTS, -0.5, 0.5)).copy()
    knots = np.cumsum([0, *steps])
    targets = np.cumsum([0, *(steps * 10 ** slopes[:-1])])
    return Recalibrated(draw(mixtures()), *map(jnp.asarray, (knots, targets, 10 ** slopes[-1])))


def ends(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    sigma = np.sqrt(np.asarray(mixture.variances))
    means = np.asarray(mixture.means)
    return (means - REACH * sigma).min(0), (means + REACH * sigma).max(0)


@jax.jit
def at_many(predictive, x):
    return jax.vmap(predictive.cdf)(x), jax.vmap(predictive.log_prob)(x)


@jax.jit
def at_levels(predictive, levels):
    quantiles = jax.vmap(predictive.quantile)(levels)
    return quantiles, jax.vmap(predictive.cdf)(quantiles)


@jax.jit
def moments(mixture, temperature):
    wide = mixture.tempered(temperature)
    return wide.mean, wide.variance, wide.var_predictive, wide.var_generalization, wide.var_of_means


@jax.jit
def distances(mixture, y):
    larger = Mixture(7 * mixture.means, 49 * mixture.vars_predictive, 49 * mixture.vars_generalization)
    return mixture.crps(y), mixture.distance_to(y), larger.crps(7 * y)


@given(st.one_of(mixtures(), recalibrated()))
def test_the_distribution_function_rises_from_0_to_1(predictive):
    low, high = ends(predictive.mixture if isinstance(predictive, Recalibrated) else predictive)
    x = np.linspace(2 * low - high, 2 * high - low, 201)
    cdf = np.asarray(at_many(predictive, x)[0])
    assert ((cdf >= 0) & (cdf <= 1)).all()
    assert (np.diff(cdf, axis=0) >= -1e-12).all()
    np.testing.assert_allclose(cdf[0], 0, atol=1e-6)
    np.testing.assert_allclose(cdf[-1], 1, atol=1e-6)


@given(st.one_of(mixtures(), recalibrated()))
def test_a_quantile_is_where_the_distribution_function_reaches_its_level(predictive):
    quantiles, reached = (np.asarray(values) for values in at_levels(predictive, LEVELS))
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles, axis=0) >= 0).all()
    # Between components that lie far apart the distribution function is flat, and jumps where it is steep: a level is
    # met within what one float64 of x is worth there.
    mixture = predictive.mixture if isinstance(predictive, Recalibrated) else predictive
    steepest = 3 / np.sqrt(np.asarray(mixture.variances).min(0))
    tolerance = 1e-9 + 1e-13 * steepest * np.abs(quantiles)
    assert (np.abs(reached - LEVELS[:, None]) <= tolerance).all()


def integrated(predictive, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass, mean and variance between neighbouring edges: Gauss–Legendre of the density on each panel."""
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half, middle = np.diff(edges, axis=0) / 2, (edges[1:] + edges[:-1]) / 2
    x = middle[:, None] + half[:, None] * nodes[:, None]
    density = np.exp(np.asarray(at_many(predictive, x.reshape(-1, POINTS))[1])).reshape(x.shape)
    weighted = density * weights[:, None] * half[:, None]
    mean = (weighted * x).sum((0, 1))
    return weighted.sum(1), mean, (weighted * (x - mean) ** 2).sum((0, 1))


def panels(mixture: Mixture) -> np.ndarray:
    """Edges as near to each other as the narrowest component asks for, where there is any."""
    means, sigma = np.asarray(mixture.means), np.sqrt(np.asarray(mixture.variances))
    steps = np.linspace(-REACH, REACH, 49)
    return np.sort((means[:, None] + sigma[:, None] * steps[:, None]).reshape(-1, POINTS), axis=0)


@given(mixtures())
def test_the_density_is_the_slope_of_the_distribution_function_and_holds_1(mixture):
    edges = panels(mixture)
    mass, mean, variance = integrated(mixture, edges)
    cdf = np.asarray(at_many(mixture, edges)[0])
    np.testing.assert_allclose(mass.sum(0), 1, rtol=1e-9)
    np.testing.assert_allclose(np.cumsum(mass, axis=0), cdf[1:] - cdf[:1], atol=1e-9)
    # The first two moments of that density are the mixture's own.
    np.testing.assert_allclose(mean, mixture.mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(variance, mixture.variance, rtol=1e-8)


@given(recalibrated())
def test_a_recalibrated_density_holds_1(predictive):
    """It jumps at the knots and bends at the median: these are edges too."""
    tails = 0.5 * np.exp(-np.asarray(predictive.knots))
    bends = np.asarray(at_levels(predictive.mixture, np.concatenate([tails, 1 - tails]))[0])
    edges = np.sort(np.concatenate([panels(predictive.mixture), bends]), axis=0)
    mass, _, _ = integrated(predictive, edges)
    cdf = np.asarray(at_many(predictive, edges)[0])
    np.testing.assert_allclose(mass.sum(0), 1, rtol=1e-6)
    np.testing.assert_allclose(np.cumsum(mass, axis=0), cdf[1:] - cdf[:1], atol=1e-6)


@given(mixtures(), st.floats(0.1, 10))
def test_the_two_parts_of_the_variance_add_up(mixture, temperature):
    means = np.asarray(mixture.means)
    total = (np.asarray(mixture.vars_predictive) + np.asarray(mixture.vars_generalization)).mean(0) + means.var(0)
    mean, variance, predictive, generalization, of_means = (np.asarray(part) for part in moments(mixture, 1.0))
    np.testing.assert_allclose(mean, means.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(variance, total, rtol=1e-12)
    np.testing.assert_allclose(predictive + generalization, total, rtol=1e-10)
    assert (predictive >= -1e-10 * total).all()
    assert (generalization >= 0).all()
    assert (of_means <= means.var(0) * (1 + 1e-12)).all()
    widened = [np.asarray(part) for part in moments(mixture, temperature)]
    np.testing.assert_allclose(widened[0], mean, rtol=1e-9, atol=1e-9)
    for wide, narrow in zip(widened[1:], (variance, predictive, generalization, of_means), strict=True):
        np.testing.assert_allclose(
            wide, temperature**2 * narrow, rtol=1e-9, atol=1e-10 * (temperature**2 * total.max())
        )


@given(mixtures(), numbers(POINTS, -40, 40))
def test_the_crps_is_a_distance(mixture, y):
    """Not negative, at most E|X − y|, and in units of x."""
    crps, to_truth, seven_times = (np.asarray(values) for values in distances(mixture, y))
    assert (crps >= -1e-12 * to_truth).all()
    assert (crps <= to_truth * (1 + 1e-12)).all()
    np.testing.assert_allclose(seven_times, 7 * crps, rtol=1e-9, atol=1e-9)
