r"""`fit_growth` finds by how much the spread of forecasts is wrong, where that is known at every lead.

The linear model is followed from one field $f$. Its particles are $(1+\sigma\epsilon)^k f_k$, and σ_pred is negligible.
The truth at lead k is one more particle, further from the particles' mean by a factor that is known.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import DataConfig
from crossreg.data.dataset import Data
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.forecasts import growth, windows
from crossreg.forecasts.forecast import components
from crossreg.forecasts.growth import fit_growth
from crossreg.forecasts.loop import Particles
from crossreg.forecasts.rollout import rollout
from crossreg.nn.growth import LeadGrowth
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.conformal import Conformal
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.predictors.grown import Grown
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.predictors.temperature import Tempered
from linear_fields import POINTS, flowed, identity_heads, linear_model

SIGMA, HORIZON, ROWS, CHANNELS = 0.02, 6, 40, 2
# σ_pred is a thousandth, so that the spread is all of the particles'.
MODEL = dataclasses.replace(linear_model(SIGMA, channels=CHANNELS), heads=identity_heads(CHANNELS, -7.0))


def late(leads):
    return 2 * (1 - np.asarray(leads, float) ** -0.5)


def true_fields(start: float, rise: float, units: Units | None = None) -> Data:
    """Fields whose truth strays from the model's mean c_k = exp(a' + b' ℓ(k)) times as far as its particles do."""
    rng = np.random.default_rng(0)
    x0 = rng.normal(size=(POOL_SIZE, CHANNELS, POINTS))
    epsilon = rng.normal(size=(POOL_SIZE, CHANNELS, 1))
    epsilon = epsilon / np.sqrt((epsilon**2).mean())
    rows = [x0]
    for lead in range(1, HORIZON + 1):
        factor = np.exp(start + rise * late(lead))
        rows.append(flowed(x0, lead) * (1 + factor * ((1 + SIGMA * epsilon) ** lead - 1)))
    fields = np.stack(rows, axis=1).astype(np.float32)
    if units is not None:
        fields = fields * np.asarray(units.scale)[:, None] + np.asarray(units.offset)[:, None]
    sizes: dict[str, Any] = {"train_size": 3, "reg_size": ROWS, "test_size": 2}
    made = Trajectories(fields.astype(np.float32), fields[: len(TEST_POOL)].astype(np.float32) + 1, {}, "")
    data = make_data(made, DataConfig(observed_fraction=1.0, **sizes), check=False)
    return dataclasses.replace(data, reg=dataclasses.replace(data.reg, units=units))


@pytest.mark.parametrize(("start", "rise"), [(0.7, 0.0), (-0.4, 0.6)])
def test_the_factor_by_which_the_spread_is_wrong_is_found(start, rise):
    grown = fit_growth(MODEL, true_fields(start, rise).reg, HORIZON, particles=30)
    assert isinstance(grown, Grown)
    found = np.asarray(grown.growth.factors(jnp.arange(1, HORIZON + 1))[1])
    # 80 values of ε, of two channels: their spread is known to 8%.
    np.testing.assert_allclose(found, np.exp(start + rise * late(range(1, HORIZON + 1))), rtol=0.12)
    np.testing.assert_array_equal(grown.growth.sigma_pred, [0, 0])


def test_a_forecast_that_is_right_is_left_as_it_is():
    data = true_fields(0.0, 0.0)
    found = fit_growth(MODEL, data.reg, HORIZON, particles=30).growth.factors(jnp.arange(1, HORIZON + 1))[1]
    np.testing.assert_allclose(found, 1, atol=0.12)


def test_three_particles_that_need_no_growth_are_left_as_they_are():
    """An ensemble of three without noise inside: the fair CRPS would stretch them by √6 about their own mean."""
    rng = np.random.default_rng(1)
    x0 = rng.normal(size=(POOL_SIZE, CHANNELS, POINTS))
    truth = x0 * (1 + 0.1 * rng.normal(size=x0.shape))
    fields = np.stack([x0, truth], axis=1).astype(np.float32)
    made = Trajectories(fields, fields[: len(TEST_POOL)] + 1, {}, "")
    data = make_data(made, DataConfig(observed_fraction=1.0, train_size=3, reg_size=ROWS, test_size=2), check=False)

    def three(batch, keys):
        draws = jax.random.normal(jax.random.key(5), (3, *batch.x.shape))
        means = batch.x * (1 + 0.1 * draws)
        return Mixture(means, jnp.full_like(means, 1e-8), jnp.zeros_like(means))

    found = fit_growth(three, data.reg, 1, particles=3).growth.factors(jnp.asarray([1]))[1]
    np.testing.assert_allclose(found, 1, atol=0.1)


def test_the_pairs_say_to_which_range_particles_are_held(monkeypatch):
    """That of the targets that were measured, and a tenth of its width on either side."""
    data, found = true_fields(0.0, 0.0), []
    fields = (data.reg.trajectories + 50).at[:, 1:, :, 3].set(jnp.nan)  # 0 stands in a gap, far below all values
    data = dataclasses.replace(data, reg=dataclasses.replace(data.reg, trajectories=fields, has_gaps=True))
    y = np.asarray(fields)[np.asarray(data.reg.rows)][:, 1:]
    real = growth.forecasts_of
    monkeypatch.setattr(growth, "forecasts_of", lambda *args, **how: found.append(how["limits"]) or real(*args, **how))
    grown = fit_growth(MODEL, data.reg, HORIZON, particles=3)
    low, high = np.nanmin(y, axis=(0, 1, 3)), np.nanmax(y, axis=(0, 1, 3))
    np.testing.assert_allclose(found[0].low, low - 0.1 * (high - low), rtol=1e-6)
    np.testing.assert_allclose(found[0].high, high + 0.1 * (high - low), rtol=1e-6)
    assert grown.limits is found[0]
    assert rollout(grown, np.asarray(data.reg[:1].x), 2, 3).limits is found[0]


UNITS = Units((300.0, -4.0), (25.0, 0.5))


def test_the_growth_does_not_depend_on_the_units_of_the_fields():
    plain = fit_growth(MODEL, true_fields(0.5, 0.2).reg, HORIZON, particles=8)
    model = dataclasses.replace(MODEL, units=UNITS)
    moved = fit_growth(model, true_fields(0.5, 0.2, UNITS).reg, HORIZON, particles=8)
    np.testing.assert_allclose(moved.growth.spread, plain.growth.spread, atol=0.02)
    np.testing.assert_allclose(moved.growth.climate, plain.growth.climate, rtol=1e-3)


def test_the_climate_is_that_of_all_windows_however_they_are_divided(monkeypatch):
    """The means of windows differ, and so does what a window has of the variance."""
    reg = true_fields(0.5, 0.2).reg
    truth = np.asarray(reg.trajectories, np.float64)[np.asarray(reg.rows)][:, 1:]
    wanted = truth.var(axis=(0, 1, 3))
    np.testing.assert_allclose(fit_growth(MODEL, reg, HORIZON, particles=3).growth.climate, wanted, rtol=1e-5)
    monkeypatch.setattr(windows, "_MOST_VALUES", 7 * CHANNELS * POINTS * HORIZON * 3)  # 40 are 5 times 7, and 5
    np.testing.assert_allclose(fit_growth(MODEL, reg, HORIZON, particles=3).growth.climate, wanted, rtol=1e-5)


def test_the_growth_of_large_fields_is_fitted_to_some_leads_at_a_time(monkeypatch):
    reg = true_fields(0.5, 0.2).reg.of(range(3))
    taken, real = [], Particles.to
    monkeypatch.setattr(Particles, "to", lambda self, leads: taken.append(leads) or real(self, leads))
    found = []
    for at_once in (4, HORIZON):
        monkeypatch.setattr(windows, "_MOST_VALUES", at_once * CHANNELS * POINTS * 3)
        found.append(fit_growth(MODEL, reg, HORIZON, particles=3).growth)
    assert taken == [(1, 2, 3, 4), (5, 6)] * 3 + [tuple(range(1, HORIZON + 1))] * 3
    for name in ("spread", "climate"):
        np.testing.assert_allclose(*(getattr(growth, name) for growth in found), rtol=1e-4)


def test_every_lead_counts_alike():
    """However large one lead's fields are; two numbers cannot give all three leads the factor that they need."""
    rng = np.random.default_rng(2)
    means = 0.5 * rng.normal(size=(8, 3, 4, 1, 300))
    truth = np.asarray([2.0, 0.7, 1.5])[:, None, None, None] * rng.normal(size=means.shape[1:])
    found = {}
    for size in (1.0, 50.0):
        by_lead = np.asarray([1.0, size, 1.0])[:, None, None, None]
        made = jnp.asarray(by_lead * means, jnp.float32)
        mixture = Mixture(made, jnp.broadcast_to(jnp.asarray(0.3 * by_lead**2, jnp.float32), made.shape), 0 * made)
        start = LeadGrowth.start(jnp.asarray([1e12]))
        found[size] = growth._fitted(start, mixture, jnp.asarray(by_lead * truth, jnp.float32), jnp.ones(truth.shape))
    np.testing.assert_allclose(found[50.0].spread, found[1.0].spread, atol=0.02)
    assert np.ptp(np.asarray(found[1.0].factors(jnp.arange(1, 4))[1])) > 0.05


def test_what_was_not_measured_has_no_say_in_the_growth():
    """One channel is twenty times further from the mean, at points that were not measured."""
    reg = true_fields(0.5, 0.2).reg
    far = reg.trajectories.at[:, 1:, 1, ::2].multiply(20)
    found = {}
    for name, values in (("gaps", jnp.nan), ("far", 1.0)):
        fields = far.at[:, 1:, 1, ::2].multiply(values)
        of = dataclasses.replace(reg, trajectories=fields, has_gaps=name == "gaps")
        found[name] = np.asarray(fit_growth(MODEL, of, HORIZON, particles=8).growth.spread)
    whole = np.asarray(fit_growth(MODEL, reg, HORIZON, particles=8).growth.spread)
    np.testing.assert_allclose(found["gaps"], whole, atol=0.1)
    assert np.abs(found["far"] - whole).max() > 0.5


def test_a_channel_that_was_never_measured_is_named():
    reg = true_fields(0.0, 0.0).reg
    gaps = dataclasses.replace(reg, trajectories=reg.trajectories.at[:, 1:, 1].set(jnp.nan), has_gaps=True)
    with pytest.raises(InputError, match="no value of channel 1 was measured in the held-out windows"):
        fit_growth(MODEL, gaps, 2, particles=3)


# --- where it acts ----------------------------------------------------------------------------------------------------

GROWTH = LeadGrowth(jnp.zeros(2), jnp.asarray([0.3, 0.4]), jnp.asarray([0.5, 9.0]))
INSIDE = {
    "surrogate": SurrogatePredictor(MODEL, 6),
    "ensemble": EnsemblePredictor([MODEL, linear_model(0.3, channels=2)], 6),
    "tempered": Tempered(EnsemblePredictor([MODEL, linear_model(0.3, channels=2)], 6), jnp.asarray(1.7)),
    "units": SurrogatePredictor(dataclasses.replace(MODEL, units=UNITS), 6),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_forecast_grows_by_lead_and_a_prediction_as_lead_1(name):
    """The growth of what the predictor inside forecasts, its own temperature included."""
    x = np.random.default_rng(2).normal(size=(3, CHANNELS, POINTS)).astype(np.float32)
    if name == "units":
        x = x * 25 + 300
    leads, keys = [1, 3, 4], jax.random.split(jax.random.key(2), 3)
    plain = rollout(INSIDE[name], x, 4, 6, key=keys, leads=leads)
    grown = rollout(Grown(INSIDE[name], GROWTH), x, 4, 6, key=keys, leads=leads)
    for lead in leads:
        expected = GROWTH(components(plain.at(lead)), lead)
        found = components(grown.at(lead))
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-4)
        np.testing.assert_allclose(found.means, expected.means, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(grown.mean, plain.mean, rtol=1e-4, atol=1e-4)
    batch = true_fields(0.0, 0.0).reg[[0, 7, 9]]._replace(x=jnp.asarray(x))
    one = Grown(INSIDE[name], GROWTH)(batch, keys)
    np.testing.assert_allclose(one.std, grown.std[0], rtol=1e-4)


# --- what it is fitted to ---------------------------------------------------------------------------------------------


def test_growth_needs_trajectories_as_long_as_its_horizon():
    with pytest.raises(InputError, match="rollouts of 7 steps need trajectories of at least as many; these have 6"):
        fit_growth(MODEL, true_fields(0.0, 0.0).reg, HORIZON + 1)


def test_intervals_that_were_recalibrated_are_refused():
    levels = (jnp.asarray([0.0, 0.7, 1.9]), jnp.asarray([0.0, 0.4, 1.5]), jnp.asarray(0.8))
    with pytest.raises(InputError, match="fit its growth first"):
        fit_growth(Conformal(SurrogatePredictor(MODEL, 5), *levels), true_fields(0.0, 0.0).reg, 2, particles=5)


def test_forecasts_that_are_not_finite_are_refused():
    bad = eqx.tree_at(lambda m: m.heads.mean.weight, MODEL, jnp.full((CHANNELS, CHANNELS), 1e30))
    with pytest.raises(InputError, match="not finite"):
        fit_growth(bad, true_fields(0.0, 0.0).reg, 3, particles=5)
