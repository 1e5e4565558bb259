r"""Growth by lead: its formulas by hand, what it does to a mixture's variance, and where a model applies it."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.data.units import Units
from crossreg.forecasts.forecast import components
from crossreg.forecasts.rollout import rollout
from crossreg.nn.growth import LeadGrowth
from crossreg.nn.surrogate import predict
from crossreg.predictive.mixture import Mixture
from linear_fields import POINTS, fields, linear_model

KEY = jax.random.key(7)
CLIMATE = np.asarray([0.5, 20.0], np.float32)
LEADS = [1, 4, 9, 100, 10**6]
# ℓ(k) = 2 (1 − 1/√k) by hand.
LATE = [0.0, 1.0, 4 / 3, 1.8, 1.998]


def growth_of(sigma_pred, spread, climate: Any = CLIMATE) -> LeadGrowth:
    return LeadGrowth(*(jnp.asarray(part, jnp.float32) for part in (sigma_pred, spread, climate)))


def made_mixture(samples=5, batch=3, instances=False) -> Mixture:
    """A mixture of two channels, whose variances go from far below the climate to far above."""
    rng = np.random.default_rng(1)
    shape = (samples, batch, 2, POINTS)
    size = np.geomspace(0.01, 30, POINTS)
    parts = [
        size * rng.normal(size=shape) + 3,
        size**2 * rng.uniform(0.2, 2, shape),
        size**2 * rng.uniform(0, 1, shape),
    ]
    own = jnp.asarray(0.5 * parts[0] + 1, jnp.float32) if instances else None
    means, pred, gen = (jnp.asarray(part, jnp.float32) for part in parts)
    return Mixture(means, pred, gen, own)


def by_hand(v, q, climate):
    """g(v, q), in float64, written by cases."""
    v, climate = np.asarray(v, np.float64), np.asarray(climate, np.float64)
    if q <= 1:
        return q * v
    return np.where(v < climate, q * v / (1 + (q - 1) * v / climate), v)


# --- formulas ---------------------------------------------------------------------------------------------------------


def test_the_factors_are_their_formulas():
    growth = growth_of([0.3, -0.7], [-0.2, 1.1])
    s, c = growth.factors(jnp.asarray(LEADS))
    np.testing.assert_allclose(s, np.exp(0.3 - 0.7 * np.asarray(LATE)), rtol=1e-5)
    np.testing.assert_allclose(c, np.exp(-0.2 + 1.1 * np.asarray(LATE)), rtol=1e-5)
    one = growth.factors(9)
    np.testing.assert_allclose(one, [s[2], c[2]], rtol=1e-6)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("q", [0.3, 1.0, 1.7, 40.0])
def test_widening_ends_at_the_climate_and_narrowing_does_not(q, which):
    climate = 4.0
    v = np.asarray([1e-7, 0.1, 1.0, 3.9, 4.0, 4.1, 100.0], np.float32)
    one = Mixture(jnp.zeros((1, 1, 1, v.size)), jnp.asarray(v).reshape(1, 1, 1, -1), jnp.zeros((1, 1, 1, v.size)))
    found = np.asarray(
        growth_of([which * np.log(q) / 2, 0.0], [(1 - which) * np.log(q) / 2, 0.0], [climate])(one, 1).variance
    ).ravel()
    np.testing.assert_allclose(found, by_hand(v, q, climate), rtol=1e-5)
    assert found[0] == pytest.approx(q * v[0], rel=1e-4)  # a small variance is multiplied
    if q > 1:
        np.testing.assert_allclose(found[4:], v[4:], rtol=1e-5)  # the climate, and what is beyond, stays
        assert (np.diff(found) > 0).all()
        assert (found[:4] > v[:4]).all()
        assert (found[:4] < climate).all()
    else:
        np.testing.assert_allclose(found, q * v, rtol=1e-5)


# --- what it does to a mixture ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("instances", [False, True])
def test_zero_parameters_change_nothing(instances):
    mixture = made_mixture(instances=instances)
    growth = LeadGrowth.start(jnp.asarray(CLIMATE))
    for lead in (1, 7, 300):
        for one, other in zip(jax.tree.leaves(growth(mixture, lead)), jax.tree.leaves(mixture), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_total_variance_grows_as_said_in_each_channel_and_the_mean_stays():
    """First σ_pred by s_k, then everything about the mean by c_k; each channel towards its own climate."""
    mixture, lead, sigma_pred, spread = made_mixture(), 4, (0.1, 0.4), (-0.2, 0.9)
    found = growth_of(sigma_pred, spread)(mixture, lead)
    s, c = np.exp(0.1 + 0.4), np.exp(-0.2 + 0.9)
    climate = CLIMATE.astype(np.float64)[:, None]
    means, pred, gen = (
        np.asarray(a, np.float64) for a in (mixture.means, mixture.vars_predictive, mixture.vars_generalization)
    )
    pred = by_hand(pred, s**2, climate)
    before = (pred + gen).mean(0) + means.var(0)
    after = by_hand(before, c**2, climate)
    np.testing.assert_allclose(found.variance, after, rtol=2e-4)
    np.testing.assert_allclose(found.mean, means.mean(0), rtol=1e-4, atol=1e-4)
    # All parts of the spread by the same factor.
    share = after / before
    np.testing.assert_allclose(found.vars_predictive, share * pred, rtol=2e-4)
    np.testing.assert_allclose(found.vars_generalization, share * gen, rtol=2e-4)
    np.testing.assert_allclose(found.means - found.mean, np.sqrt(share) * (means - means.mean(0)), rtol=1e-3, atol=2e-4)
    # The two climates matter: between them, one channel has stopped growing and the other not.
    between = (before > 0.5) & (before < 5)
    assert between[:, 0].any()
    assert between[:, 1].any()
    np.testing.assert_allclose(share[:, 0][between[:, 0]], 1, rtol=1e-9)
    assert (share[:, 1][between[:, 1]] > 1.2).all()


def test_instances_spread_as_particles_do():
    mixture = made_mixture(instances=True)
    found = growth_of([0.0, 0.0], [np.log(1.5), 0.0], [1e9, 1e9])(mixture, 1)
    np.testing.assert_allclose(found.std_of_means, 1.5 * mixture.std_of_means, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found.std_predictive, 1.5 * mixture.std_predictive, rtol=1e-3)


def test_fields_of_two_dimensions_have_the_climate_of_their_channel():
    mixture = jax.tree.map(lambda a: a.reshape(*a.shape[:3], 3, 4), made_mixture())
    growth = growth_of([0.2, 0.3], [0.4, 0.5])
    flat = growth(made_mixture(), 6)
    np.testing.assert_allclose(growth(mixture, 6).variance.reshape(3, 2, POINTS), flat.variance, rtol=1e-5)


def test_no_gradient_reaches_the_climate_and_some_reaches_the_rest():
    def width(growth):
        return jnp.sum(growth(made_mixture(), 3).std)

    gradient = jax.grad(width)(growth_of([0.2, 0.1], [0.3, 0.4]))
    np.testing.assert_array_equal(gradient.climate, [0.0, 0.0])
    assert (np.asarray(gradient.sigma_pred) > 0).all()
    assert (np.asarray(gradient.spread) > 0).all()


# --- where a model applies it -----------------------------------------------------------------------------------------

GROWTH = growth_of([0.3, 0.2], [-0.4, 0.6])
PLAIN = linear_model(channels=2)
UNITS = Units((50.0, -3.0), (4.0, 0.5))


def in_units(model, units):
    return dataclasses.replace(model, units=units)


@pytest.mark.parametrize("units", [None, UNITS])
def test_a_prediction_of_a_model_with_growth_is_that_of_lead_1(units):
    x = jnp.asarray(fields(3, channels=2) if units is None else 50 + 4 * fields(3, channels=2))
    plain, grown = (in_units(dataclasses.replace(PLAIN, growth=growth), units) for growth in (None, GROWTH))
    expected, found = (predict(model, x, key=KEY, num_samples=6) for model in (plain, grown))
    standard = GROWTH(components(expected), 1)
    for one, other in zip(jax.tree.leaves(components(found)), jax.tree.leaves(standard), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    scale = np.ones((2, 1)) if units is None else np.asarray(units.scale)[:, None]
    np.testing.assert_allclose(found.std, scale * np.asarray(standard.std), rtol=1e-5)
    # exp(0.3) is s_1.
    np.testing.assert_allclose(expected.mean, found.mean, rtol=1e-5)
    assert (np.abs(np.asarray(found.std / expected.std) - 1) > 0.05).any()
    one = rollout(grown, x, 1, 6, key=KEY).at(1)
    for name in ("mean", "std", "std_predictive", "std_generalization"):
        np.testing.assert_allclose(getattr(one, name), getattr(found, name), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("units", [None, UNITS])
def test_a_lead_of_a_rollout_is_the_growth_of_the_rollout_without(units):
    """Growth acts on the distributions alone: what a particle reads in its next step has not grown."""
    x = jnp.asarray(fields(3, channels=2) if units is None else 50 + 4 * fields(3, channels=2))
    plain, grown = (in_units(dataclasses.replace(PLAIN, growth=growth), units) for growth in (None, GROWTH))
    leads = [1, 2, 5]
    expected = rollout(plain, x, 5, 6, key=KEY, leads=leads)
    found = rollout(grown, x, 5, 6, key=KEY, leads=leads)
    for row, lead in enumerate(leads):
        standard = GROWTH(components(expected.at(lead)), lead)
        for one, other in zip(jax.tree.leaves(components(found.at(lead))), jax.tree.leaves(standard), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)
        np.testing.assert_allclose(found.mean[row], expected.mean[row], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found.lost_at, expected.lost_at)
    fixed = eqx.tree_at(lambda m: m.growth, grown, LeadGrowth.start(jnp.asarray(CLIMATE)))
    same = rollout(fixed, x, 5, 6, key=KEY, leads=leads)
    np.testing.assert_allclose(same.std, expected.std, rtol=1e-5)


def test_a_distribution_without_variance_or_climate_stays_a_number():
    zeros = jnp.zeros((2, 1, 1, 4))
    growth = LeadGrowth(jnp.asarray([0.3, 0.1]), jnp.asarray([0.7, 0.2]), jnp.zeros(1))
    found = growth(Mixture(jnp.ones((2, 1, 1, 4)), zeros, zeros), 3)
    np.testing.assert_array_equal(found.mean, 1)
    np.testing.assert_array_equal(found.variance, 0)
