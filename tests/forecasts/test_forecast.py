"""The forecast object: what it computes at every lead, and what it costs."""

import dataclasses
import logging

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.data.units import Units
from crossreg.forecasts.forecast import Limits, evenly
from crossreg.forecasts.rollout import rollout, start
from crossreg.nn.growth import LeadGrowth
from crossreg.predictors.conformal import Conformal
from crossreg.predictors.predictor import SurrogatePredictor
from linear_fields import fields, linear_model

MODEL = linear_model()
LEVELS = (jnp.asarray([0.0, 0.7, 1.9]), jnp.asarray([0.0, 0.4, 1.5]), jnp.asarray(0.8))
PREDICTORS = {
    "surrogate": MODEL,
    "units": dataclasses.replace(MODEL, units=Units((1000.0,), (16.0,))),
    "conformal": Conformal(SurrogatePredictor(MODEL, 6), *LEVELS),
}


@pytest.fixture
def compiled(monkeypatch):
    """The number of programs that were compiled since the last call."""
    found = []

    class Handler(logging.Handler):
        def emit(self, record):
            if "Finished XLA compilation" in record.getMessage():
                found.append(record.getMessage())

    logger, handler = logging.getLogger("jax"), Handler()
    monkeypatch.setattr(logger, "propagate", False)
    logger.addHandler(handler)

    def count():
        found[:], number = [], len(found)
        return number

    with jax.log_compiles():
        yield count
    logger.removeHandler(handler)


def test_what_a_forecast_computes_is_compiled_once(compiled):
    """Also of another level, another truth and another forecast of the same shape."""

    def everything(seed, level):
        forecast = rollout(MODEL, fields(2, seed=seed), 3, 6)
        y = jnp.asarray(fields(6, seed=seed)).reshape(3, 2, 1, -1)
        parts = [forecast.mean, forecast.std, forecast.std_predictive, forecast.std_generalization]
        scores = [forecast.cdf(y), forecast.log_prob(y), forecast.crps(y)]
        return jax.block_until_ready([*parts, *scores, forecast.quantile(level), forecast.quantile(1 - level)])

    everything(3, 0.3)
    assert compiled() > 8
    everything(4, 0.2)
    assert compiled() == 0


@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.parametrize("level", [0.3, 0.5, 0.999999, 1 - 1e-9])
def test_a_quantile_is_that_of_the_lead_however_far_out(name, level):
    x0 = 1000 + 16 * fields(2) if name == "units" else fields(2)
    forecast = rollout(PREDICTORS[name], x0, 3, 6)
    found = np.asarray(forecast.quantile(level))[2]
    assert np.isfinite(found).all()
    if name != "conformal" or level < 0.9:  # that of one lead rounds the level
        np.testing.assert_allclose(found, forecast.at(3).quantile(level), rtol=1e-5, atol=1e-5)
    above = np.asarray(forecast.quantile(1 - level))[2]
    assert (found >= above).all() == (level >= 0.5)


def test_the_range_of_fields_leaves_them_as_they_are():
    values = np.stack([np.linspace(-1, 3, 8), np.full(8, np.nan)])[None]
    kept = values.copy()
    values.setflags(write=False)
    assert Limits.around(values, 0.5).low[0] == -3
    np.testing.assert_array_equal(values, kept)


def test_particles_are_spread_by_the_growth_and_the_next_step_reads_what_they_were():
    grown = dataclasses.replace(MODEL, growth=LeadGrowth(jnp.zeros(2), jnp.asarray([0.5, 0.5]), jnp.asarray([9.0])))
    plain, wide = (rollout(model, fields(2), 4, 5) for model in (MODEL, grown))
    np.testing.assert_allclose(wide.mean, plain.mean, rtol=1e-5, atol=1e-5)
    assert (np.asarray(wide.particles.std(0)) > 1.2 * np.asarray(plain.particles.std(0)))[:, 0].all()
    np.testing.assert_array_equal(wide.lost_at, plain.lost_at)


def test_samples_have_one_particle_and_sigma_of_their_own_at_each_lead():
    forecast = rollout(linear_model(0.0), fields(2), 3)
    rest = np.asarray(forecast.samples(2000)) - np.asarray(forecast.particles)
    between = np.corrcoef(rest[:, 0].ravel(), rest[:, 1].ravel())[0, 1]
    assert abs(between) < 0.03


@pytest.mark.parametrize(("number", "size", "expected"), [(3, 6, [0, 2, 4]), (6, 6, range(6)), (5, 2, [0, 1, 0, 1, 0])])
def test_places_are_evenly_spaced(number, size, expected):
    np.testing.assert_array_equal(evenly(number, size), expected)


def test_a_forecast_in_parts_is_that_of_all_leads():
    growth = LeadGrowth(jnp.zeros(2), jnp.asarray([0.5, 0.5]), jnp.asarray([9.0]))
    for model in (dataclasses.replace(MODEL, growth=growth), linear_model(0.3, owner="predictive")):
        how = {"key": jax.random.key(2), "limits": Limits(np.full(1, -1.0), np.full(1, 1.0)), "redraw": True}
        whole = rollout(model, fields(2), 7, 5, leads=[1, 3, 4, 7], **how)
        followed = start(model, fields(2), 7, 5, **how)
        parts = [followed.to(leads) for leads in ((1, 3), (4,), (7,))]
        for name in ("mean", "std", "std_generalization"):
            joined = np.concatenate([np.asarray(getattr(part, name)) for part in parts])
            np.testing.assert_allclose(joined, getattr(whole, name), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(parts[-1].lost_at, whole.lost_at)
        np.testing.assert_array_equal(np.concatenate([part.lost for part in parts]), whole.lost)
        assert eqx.tree_equal(parts[0].beyond, whole.beyond[:, :2])
