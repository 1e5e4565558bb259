"""A distribution in units is that of o + s z: all that it says, against a mixture whose own numbers are in units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.in_units import InUnits, error_of, standardized
from crossreg.predictive import Mixture

BATCH, CHANNELS, POINTS, SAMPLES = 2, 3, 4, 5
OFFSET, SCALE = np.array([40.0, -7.0, 0.5]).reshape(-1, 1), np.array([6.0, 0.2, 30.0]).reshape(-1, 1)


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def pair() -> tuple[InUnits, Mixture]:
    """The same distribution twice: of z, and written out in the units of u."""
    shape = (SAMPLES, BATCH, CHANNELS, POINTS)
    draw = np.random.default_rng(0)
    means, instances = draw.normal(size=shape), draw.normal(size=shape) / 2
    pred, gen = np.exp(draw.normal(size=shape)), np.exp(draw.normal(size=shape) - 1)
    standard = Mixture(*map(jnp.asarray, (means, pred, gen, instances)))
    written_out = (OFFSET + SCALE * means, SCALE**2 * pred, SCALE**2 * gen, OFFSET + SCALE * instances)
    return InUnits(standard, jnp.asarray(OFFSET), jnp.asarray(SCALE)), Mixture(*map(jnp.asarray, written_out))


@pytest.fixture
def truth() -> jax.Array:
    return jnp.asarray(OFFSET + 1.5 * SCALE * np.random.default_rng(1).normal(size=(BATCH, CHANNELS, POINTS)))


NAMES = ["means", "mean", "std", "std_predictive", "std_generalization", "std_of_means"]
NAMES += ["variance", "var_predictive", "var_generalization", "var_of_means", "num_samples"]


@pytest.mark.parametrize("name", NAMES)
def test_moments_are_those_of_the_mixture_in_units(name, pair):
    found, expected = (getattr(predictive, name) for predictive in pair)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["log_prob", "cdf", "log_tail", "crps"])
def test_scores_are_those_of_the_mixture_in_units(name, pair, truth):
    found, expected = (getattr(predictive, name)(truth) for predictive in pair)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("level", [0.02, 0.5, 0.9])
def test_quantiles_are_those_of_the_mixture_in_units(level, pair):
    np.testing.assert_allclose(pair[0].quantile(level), pair[1].quantile(level), rtol=1e-9)


@pytest.mark.parametrize("how", ["tempered", "with_sigmas_times"])
def test_widened_it_is_the_widened_mixture(how, pair, truth):
    wide, expected = (getattr(predictive, how)(1.7) for predictive in pair)
    for name in NAMES:
        np.testing.assert_allclose(getattr(wide, name), getattr(expected, name), rtol=1e-9)
    np.testing.assert_allclose(wide.crps(truth), expected.crps(truth), rtol=1e-9)


def test_sums_of_channels_are_those_of_the_mixture_in_units(pair):
    """Channels of different units, that go together: a pressure that is made of three fields, and their difference."""
    weights = np.array([[1.0, 2.0, -0.5], [0.0, 3.0, 0.0]])
    correlation = np.array([[1.0, 0.4, 0.1], [0.4, 1.0, -0.3], [0.1, -0.3, 1.0]])
    for shared in (None, correlation):
        found, expected = (predictive.combined(weights, correlation=shared) for predictive in pair)
        for name in NAMES:
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8, err_msg=name)


def test_losses_are_taken_in_the_networks_units(pair, truth):
    """And errors in the fields'; a mixture without units is its own."""
    in_units, mixture = pair
    standard, z = standardized(in_units, truth)
    assert standard is in_units.standard
    np.testing.assert_allclose(z, (truth - OFFSET) / SCALE, rtol=1e-12)
    assert standardized(mixture, truth) == (mixture, truth)
    np.testing.assert_allclose(error_of(in_units, truth), mixture.mean - truth, rtol=1e-9)
    np.testing.assert_allclose(error_of(mixture, truth), mixture.mean - truth, rtol=1e-12)


def test_a_spread_far_below_the_offset_is_not_lost():
    """In float32 numbers near 101325 are 0.008 apart; the spread of the means is 0.001."""
    with jax.enable_x64(False):
        means = jnp.asarray([[[[1.0]]], [[[3.0]]]], jnp.float32)
        units = jnp.asarray([[101325.0]], jnp.float32), jnp.asarray([[0.001]], jnp.float32)
        predictive = InUnits(Mixture(means, jnp.ones_like(means), jnp.zeros_like(means)), *units)
        np.testing.assert_allclose(predictive.std_generalization, 0.001, rtol=1e-6)
        np.testing.assert_allclose(predictive.std, 0.001 * np.sqrt(2), rtol=1e-6)
