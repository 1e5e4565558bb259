"""Hidden points of forecasts: what a predictor reads there does not depend on its kind, its units or its place."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg import fitting
from crossreg.config import TrainConfig
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.fitting import Fit
from crossreg.forecasts.forecast import Limits, components
from crossreg.forecasts.particles import hidden_value_in
from crossreg.forecasts.rollout import rollout
from crossreg.forecasts.scores import climatology_of, score_by_lead
from crossreg.forecasts.windows import forecasts_of
from crossreg.nn.surrogate import predict
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.ensemble import EnsemblePredictor
from forecasts.test_scores import SPACE, UNITS, data_of, model_of, with_gaps
from linear_fields import linear_model

PARTICLES, KEY = 5, jax.random.key(5)
MODEL = model_of(SPACE, UNITS)
OTHER = dataclasses.replace(MODEL, units=Units((290.0, -4.2), (20.0, 0.6)))
LIMITS = Limits(np.asarray([100.0, -9.0]), np.asarray([500.0, 1.0]))


def in_units(batch, keys):
    return predict(MODEL, batch.x, key=keys, num_samples=PARTICLES)


def in_other_units(batch, keys):
    """The same distribution, standardised by another offset."""
    mixture = in_units(batch, keys)
    assert isinstance(mixture, InUnits)
    own, shift = components(mixture), jnp.asarray([[10.0], [0.3]])
    standard = dataclasses.replace(own, means=own.means - shift / mixture.scale)
    return InUnits(standard, mixture.offset + shift, mixture.scale)


def in_field_units(batch, keys):
    mixture = in_units(batch, keys)
    return Mixture(mixture.means, mixture.vars_predictive, mixture.vars_generalization)


KINDS = {"InUnits": in_units, "other units": in_other_units, "Mixture": in_field_units}


@pytest.fixture(scope="module", params=["run", "pair", "gaps"])
def data(request):
    if request.param == "gaps":
        whole = data_of(SPACE, UNITS, observed_fraction=0.8)
        return with_gaps(whole, (1, 0, 0, slice(2, 7)), (4, 0, 1, 5), (3, slice(1, 3), 0, slice(4, 8)))
    return data_of(SPACE, UNITS, observed_fraction=0.7, mask_per=request.param)


def of_windows(predictor, pairs, particles=PARTICLES):
    first = np.arange(int(pairs.num_rows)) * pairs.pairs_per_row
    how = {"first": first, "particles": particles, "key": KEY, "limits": LIMITS}
    [window] = forecasts_of(predictor, pairs, [1, 2, 4], 4, **how)
    return window.forecast


def the_same(found, expected, tolerance=2e-4):
    scale = np.reshape(UNITS.scale, (-1, 1))
    np.testing.assert_allclose(found.mean / scale, expected.mean / scale, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.std / scale, expected.std / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_a_forecast_of_windows_does_not_depend_on_how_the_distribution_is_returned(data, kind):
    the_same(of_windows(KINDS[kind], data.test), of_windows(MODEL, data.test))


def test_a_forecast_of_windows_is_the_rollout_of_their_first_fields(data):
    """With the run's mask at every step; masks that vary have their own in a window, at the first step the same."""
    first = np.arange(int(data.test.num_rows)) * data.test.pairs_per_row
    keys = jax.vmap(lambda number: jax.random.fold_in(KEY, number))(jnp.asarray(first))
    found = of_windows(MODEL, data.test)
    expected = rollout(MODEL, data.test[first], 4, PARTICLES, leads=[1, 2, 4], key=keys, limits=LIMITS)
    the_same(found.at(1), expected.at(1))
    if data.test.run_mask is not None and not data.test.has_gaps:
        the_same(found, expected)


def test_one_gap_hides_one_value_of_a_window():
    """The value beside it is no sign of what stands where that channel itself is hidden, two steps later."""
    data = with_gaps(data_of(SPACE, UNITS, observed_fraction=1.0), (2, 0, 1, 5), (2, 2, 0, 7))
    the_same(of_windows(in_field_units, data.test), of_windows(MODEL, data.test))


@pytest.mark.parametrize("kind", KINDS)
def test_a_forecast_of_a_batch_does_not_depend_on_how_the_distribution_is_returned(data, kind):
    batch, keys = data.test[:: data.test.horizon], jax.random.split(KEY, 6)
    expected = rollout(MODEL, batch, 4, PARTICLES, key=keys, limits=LIMITS)
    the_same(rollout(KINDS[kind], batch, 4, PARTICLES, key=keys, limits=LIMITS), expected)
    np.testing.assert_allclose(expected.mean[0], in_units(batch, keys).mean, rtol=1e-6)
    mask = np.asarray(batch.mask)
    expected = rollout(MODEL, batch.x, 4, PARTICLES, key=keys, mask=mask, limits=LIMITS)
    found = rollout(KINDS[kind], batch.x, 4, PARTICLES, key=keys, mask=mask, limits=LIMITS)
    if not data.test.has_gaps and kind != "other units":  # such a mask hides the measured channel of a point too
        the_same(found, expected)


def test_an_ensemble_does_not_depend_on_the_order_of_its_members(data):
    """Members without noise inside, one of which has other units than the data."""
    members = [dataclasses.replace(model, stages=model.stages[:1]) for model in (MODEL, OTHER)]
    first, last = (EnsemblePredictor(order, 2) for order in (members, members[::-1]))
    the_same(of_windows(last, data.test, 2), of_windows(first, data.test, 2))
    batch = data.test[:: data.test.horizon]
    found, expected = (rollout(ensemble, batch, 4, 2, limits=LIMITS) for ensemble in (last, first))
    the_same(found, expected)
    keys = jax.random.split(KEY, 6)
    for ensemble, forecast in ((first, expected), (last, found)):
        np.testing.assert_allclose(forecast.mean[0], ensemble(batch, keys).mean, rtol=1e-5)


def test_a_fit_of_several_channels_knows_what_stands_at_hidden_points(data):
    fit = Fit(MODEL, [], data, TrainConfig())
    batch = data.test[:: data.test.horizon]
    the_same(rollout(fit, batch, 4, PARTICLES, limits=LIMITS), rollout(MODEL, batch, 4, PARTICLES, limits=LIMITS))


@pytest.mark.parametrize("kind", ["other units", "Mixture"])
def test_scores_of_a_function_are_those_of_the_surrogate(kind):
    """Also those that compare with the climate, which is standardised as its split is."""
    data = data_of(SPACE, UNITS, observed_fraction=0.9)
    how = {"climate": climatology_of(data.train), "particles": PARTICLES, "limits": LIMITS}
    found, expected = (score_by_lead(of, data.test, [1, 4], **how) for of in (KINDS[kind], MODEL))
    assert 0 < expected["valid_share"][0] < 1
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-3, err_msg=name)


def test_a_function_reads_whole_fields_under_a_mask_as_zero_there():
    """Nothing stands at the hidden points of such fields, and nothing is known of its units."""
    x0 = np.random.default_rng(0).normal(size=(2, 1, 12)).astype(np.float32)
    mask = np.arange(12) % 3 > 0

    def same(batch, keys):
        return Mixture(batch.x[None], jnp.ones_like(batch.x)[None], jnp.zeros_like(batch.x)[None])

    found = rollout(same, x0, 2, mask=mask)
    np.testing.assert_array_equal(found.mean, np.broadcast_to(np.where(mask, x0, 0), (2, 2, 1, 12)))


X = np.asarray([[[300, 300, 7, 8], [-4, -4, 5, -4]]], np.float32)
MASK = np.asarray([[[0, 0, 1, 0]]], bool)
OFFSETS = [jnp.asarray(np.reshape(values, (2, 1)), jnp.float32) for values in ((0, -4), (300, -4), (1, 2))]


@pytest.mark.parametrize(
    ("x", "mask", "known", "expected"),
    [
        (X, MASK, OFFSETS, (300, -4)),  # stands at most places
        (X, MASK, OFFSETS[::-1], (300, -4)),
        (X, MASK, OFFSETS[2:], (300, -4)),  # the most frequent one of each channel
        (X[:, :, ::2], MASK[:, :, ::2], OFFSETS[:1], (0, -4)),
        (X + np.arange(4), MASK, [], None),  # these fields are not hidden there
        (X, np.broadcast_to(MASK, X.shape), OFFSETS, None),  # one of the channels is not hidden at the last point
        (X, MASK | True, OFFSETS, None),
    ],
)
def test_what_stands_at_hidden_points_is_found_in_the_fields(x, mask, known, expected):
    found = hidden_value_in(jnp.asarray(x), jnp.asarray(mask), known)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        np.testing.assert_array_equal(np.ravel(found), expected)


def test_the_mask_of_one_channel_is_taken_as_it_is():
    """Also where no value is that of the units of the predictor."""
    rng = np.random.default_rng(0)
    model = dataclasses.replace(linear_model(0.0), stages=(lambda h: 0.9 * jnp.roll(h, 1, axis=-1),))
    batch = data_of(SPACE, None, observed_fraction=0.6).test[:3]
    x = jnp.where(batch.mask, batch.x[:, :1], jnp.asarray(rng.normal(size=(3, 1, 12)), jnp.float32))
    one = batch._replace(x=x, y=batch.y[:, :1])
    found = components(rollout(model, one, 3).predictive).means
    expected = components(rollout(model, x, 3, mask=np.asarray(batch.mask)).predictive).means
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask_per", ["pair", "trajectory", "step"])
def test_fields_without_a_mask_are_refused_where_none_serves_all(mask_per):
    """By a `Fit` here, and by a `Run` in the tests of its commands; a batch brings its masks along."""
    data = data_of(SPACE, None, observed_fraction=0.5, mask_per=mask_per)
    fit = Fit(model_of(SPACE), [], data, TrainConfig())
    batch = data.test[:2]
    for refuse in (fit.rollout, lambda *args: rollout(fit, *args)):
        with pytest.raises(InputError, match=r"^mask: none serves all fields \(50% .*\); give a `mask`, or a batch"):
            refuse(np.asarray(batch.y), 2, 3)
    assert rollout(fit, batch, 2, 3).particles.shape[0] == 3
    assert fit.rollout(np.asarray(batch.y), 2, 3, mask=np.asarray(batch.mask)).particles.shape[0] == 3


def test_the_range_of_a_fit_is_computed_once(monkeypatch):
    calls, real = [], fitting.input_range
    monkeypatch.setattr(fitting, "input_range", lambda pairs: calls.append(1) or real(pairs))
    fit = Fit(model_of(SPACE), [], data_of(SPACE, None, observed_fraction=0.5), TrainConfig())
    assert fit.limits.low.shape == (2,)
    rollout(fit, fit.data.test[:1], 2, 3)
    fit.rollout(fit.data.test[:1], 2, 3)
    assert len(calls) == 1
    other = fit._replace(data=data_of(SPACE, UNITS, observed_fraction=0.5))
    assert isinstance(other, Fit)
    assert other.limits.low[0] > 100  # a copy with other data has limits of its own
