r"""A surrogate in units is the same one in standardised fields: $u = s z + o$ in, $s\mu + o$ and $s\sigma$ out."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import DataConfig
from crossreg.data.load import make_data
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.fitting import fit
from crossreg.metrics.evaluation import evaluate
from crossreg.nn.build import build_model, check_reads
from crossreg.nn.fourier import fno
from crossreg.nn.heads import Moments
from crossreg.nn.noise import gaussian_noise
from crossreg.nn.surrogate import predict
from crossreg.predictive.in_units import InUnits, error_of, standardized, with_standard
from crossreg.predictive.mixture import Mixture
from crossreg.predictive.recalibrated import Recalibrated
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.predictors.persistence import fit_persistence

UNITS = Units((30.0, -2.0), (5.0, 0.25))
KEY = jax.random.key(4)


def _in(units, field):
    """A batch of standardised fields, or of means, in units."""
    return field * units.scales(field.ndim - 2) + units.offsets(field.ndim - 2)


_in_units = functools.partial(_in, UNITS)


@pytest.mark.parametrize("increment", [False, True])
@pytest.mark.parametrize("mask_channel", [False, True])
def test_predictions_are_those_of_the_standardised_fields(increment, mask_channel):
    plain = fno(
        1,
        2 + mask_channel,
        2,
        width=4,
        num_blocks=1,
        num_modes=3,
        feature_noise=lambda name, shape: gaussian_noise(name, shape, owner="generalization", start=-1.0),
        generalization_head=True,
        predict_increment=increment,
        key=KEY,
    )
    model = dataclasses.replace(plain, units=UNITS)
    z = jax.random.normal(KEY, (3, 2, 12))
    seen = [jnp.ones((3, 1, 12)).at[:, :, 4].set(0)] * mask_channel
    wanted = predict(plain, jnp.concatenate([z, *seen], axis=1), key=KEY, num_samples=3)
    found = predict(model, jnp.concatenate([_in_units(z), *seen], axis=1), key=KEY, num_samples=3)
    scale = UNITS.scales(1)
    np.testing.assert_allclose(found.mean, _in_units(wanted.mean), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.quantile(0.9), _in_units(wanted.quantile(0.9)), rtol=1e-4, atol=1e-4)
    for name in ("std", "std_predictive", "std_generalization"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name) * scale, rtol=1e-4, atol=1e-4)


def _model(units, *, key=KEY):
    model = fno(
        1,
        2,
        2,
        width=4,
        num_blocks=1,
        num_modes=3,
        feature_noise=lambda name, shape: gaussian_noise(name, shape, owner="generalization", start=-3.0),
        generalization_head=True,
        key=key,
    )
    return dataclasses.replace(model, units=units)


# Pressures in Pa and a concentration of parts per million: no power of two, and offsets far from the spread.
PRESSURE = Units((101325.0, 3.1e-6), (12.0, 2.7e-8))


@pytest.mark.parametrize("wrap", ["plain", "tempered", "sigmas", "recalibrated"])
def test_what_is_said_at_a_large_offset_is_exact(wrap):
    """101325 ± 12: float32 has steps of 0.008 there, and the spread of the means is of that size."""
    z = jax.random.normal(KEY, (3, 2, 12))
    x = _in(PRESSURE, z)
    z = (x - PRESSURE.offsets(1)) / PRESSURE.scales(1)  # as the network reads what is left of it
    found = predict(_model(PRESSURE), x, key=KEY, num_samples=5)
    wanted = predict(_model(None), z, key=KEY, num_samples=5)
    y = _in(PRESSURE, jax.random.normal(jax.random.key(1), (3, 2, 12)))
    truth = (y - PRESSURE.offsets(1)) / PRESSURE.scales(1)
    if wrap == "tempered":
        found, wanted = (m.tempered(1.3) for m in (found, wanted))
    elif wrap == "sigmas":
        found, wanted = (m.scale_sigmas(1.3) for m in (found, wanted))
    elif wrap == "recalibrated":
        knots = jnp.asarray([0.0, 0.5, 1.5])
        found, wanted = (
            with_standard(m, Recalibrated(standardized(m, y)[0], knots, 0.8 * knots, jnp.asarray(0.9)))
            for m in (found, wanted)
        )
    scale = np.asarray(PRESSURE.scales(1), np.float64)
    for name in ("std", "std_predictive", "std_generalization", "std_of_means"):
        np.testing.assert_allclose(getattr(found, name) / scale, getattr(wanted, name), rtol=1e-6)
    np.testing.assert_allclose(found.var_of_means, np.asarray(found.std_of_means) ** 2, rtol=1e-6)
    np.testing.assert_allclose(found.crps(y) / scale, wanted.crps(truth), rtol=1e-5)
    np.testing.assert_allclose(found.cdf(y), wanted.cdf(truth), rtol=1e-6)
    np.testing.assert_allclose(found.log_prob(y) + np.log(scale), wanted.log_prob(truth), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(error_of(found, y) / scale, wanted.mean - truth, rtol=1e-6)
    offset = np.asarray(PRESSURE.offset, np.float64)[:, None]
    for got, want in ((found.mean, wanted.mean), (found.quantile(0.9), wanted.quantile(0.9))):
        np.testing.assert_allclose(got, offset + scale * np.asarray(want, np.float64), rtol=1.2e-7)


def test_sums_of_channels_in_units_are_those_of_their_components():
    """Weights that cancel the offset, and weights that cancel nothing; R as given."""
    mixture = predict(_model(UNITS), _in_units(jax.random.normal(KEY, (3, 2, 12))), key=KEY, num_samples=5)
    assert isinstance(mixture, InUnits)
    assert isinstance(mixture.standard, Mixture)
    weights, correlation = np.array([[1.0, 15.0], [0.5, -2.0], [0.0, 0.0]]), np.array([[1.0, 0.4], [0.4, 1.0]])
    combined = mixture.combined(weights, correlation=correlation)
    scale = np.asarray(UNITS.scale)[:, None]
    means = np.einsum("oc,sbcx->sbox", weights, np.asarray(mixture.means, np.float64))
    np.testing.assert_allclose(combined.means, means, rtol=1e-5, atol=1e-4)
    variances = 0.0
    for part in (mixture.standard.vars_predictive, mixture.standard.vars_generalization):
        sigma = scale * np.sqrt(np.asarray(part, np.float64))
        each = np.einsum("oc,od,cd,sbcx,sbdx->sbox", weights, weights, correlation, sigma, sigma)
        variances = variances + each
    np.testing.assert_allclose(combined.variance, variances.mean(0) + means.var(0), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("size", [1e-30, 1e10, 1e30])
def test_scores_do_not_depend_on_the_size_of_the_fields(size, trajectories, tiny):
    """The same fields in other units: the same loss and ECE, errors in proportion, NLL by the logarithm."""
    made = {}
    for factor in (1.0, size):
        made[factor] = _own(trajectories, factor)
    scores, losses = {}, {}
    for factor, data in made.items():
        model = build_model(tiny.model, data.train, key=KEY)
        result = fit(data, model, dataclasses.replace(tiny.train, steps=6), progress=False)
        scores[factor] = evaluate(result.model, data.test, num_samples=5)
        # Both are drawn on one axis, and so are in the same units.
        losses[factor] = [(line["train_loss"], line["reg_nll"]) for line in result.history]
    one, other = scores[1.0], scores[size]
    np.testing.assert_allclose(np.asarray(losses[size]) - np.log(size), losses[1.0], atol=3e-4)
    assert other["ece_mix"] == pytest.approx(one["ece_mix"], abs=1e-4)
    for name in ("rmse", "crps", "std", "std_mu", "rms_predictive", "rms_generalization"):
        assert other[name] / size == pytest.approx(one[name], rel=1e-3), name
    assert other["nll"] - np.log(size) == pytest.approx(one["nll"], abs=1e-3)
    np.testing.assert_allclose(np.asarray(other["channel_rmse"]) / size, one["channel_rmse"], rtol=1e-3)
    persistence = {f: evaluate(fit_persistence(data.train), data.test) for f, data in made.items()}
    assert persistence[size]["ece_mix"] == pytest.approx(persistence[1.0]["ece_mix"], abs=1e-3)
    assert persistence[size]["rmse"] / size == pytest.approx(persistence[1.0]["rmse"], rel=1e-4)


def test_the_crps_on_train_is_recorded_in_the_networks_units(trajectories, tiny):
    """It is no likelihood, whose logarithm of the scale stands beside the NLL on reg."""
    train = dataclasses.replace(tiny.train, steps=3, train_objective="crps", evaluate_every=1)
    losses = []
    for factor in (1.0, 100.0):
        data = _own(trajectories, factor)
        result = fit(data, build_model(tiny.model, data.train, key=KEY), train, progress=False)
        losses.append([line["train_loss"] for line in result.history])
    assert min(losses[0]) > 0
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)


def _own(trajectories, factor):
    """Both sets of trajectories in units of their own, as a user's files have them."""
    data = make_data(trajectories, DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.7))
    fields = np.asarray(data.train.trajectories, np.float64)[:7]
    own = Units(
        tuple(map(float, (factor * fields.mean((0, 1, 3))).astype(np.float32))),
        tuple(map(float, (factor * fields.std((0, 1, 3))).astype(np.float32))),
    )

    def scaled(pairs):
        larger = (np.asarray(pairs.trajectories, np.float64) * factor).astype(np.float32)
        return dataclasses.replace(pairs, trajectories=jnp.asarray(larger), units=own)

    return dataclasses.replace(data, train=scaled(data.train), reg=scaled(data.reg), test=scaled(data.test))


def test_a_pool_of_members_in_units_is_the_pool_of_their_components(trajectories):
    data = _own(trajectories, 100.0)
    batch = data.test.gather(jnp.arange(3))
    units = data.train.units
    assert units is not None
    models = [_model(units, key=jax.random.key(n)) for n in range(2)]
    keys = jax.random.split(KEY, 3)
    pool = EnsemblePredictor(models, 6)(batch, keys)
    assert isinstance(pool, InUnits)
    assert pool.num_samples == 6
    own = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
    parts = [predict(m, batch.x, key=k, num_samples=3) for m, k in zip(models, (keys, own), strict=True)]
    np.testing.assert_array_equal(pool.means, np.concatenate([part.means for part in parts]))
    np.testing.assert_array_equal(np.ravel(pool.scale), np.asarray(units.scale, np.float32))


@pytest.mark.parametrize("others", [None, Units((45.0, 7.0), (15.0, 0.125))], ids=["none", "other"])
@pytest.mark.parametrize("first", [0, 1])
def test_members_may_have_units_of_their_own(trajectories, others, first):
    """As members that were trained on other data have: a pool is of their distributions in the fields' units."""
    batch = _own(trajectories, 1.0).test.gather(jnp.arange(3))
    models = [_model(UNITS), _model(others, key=jax.random.key(8))]
    models = [models[first], models[1 - first]]
    keys = jax.random.split(KEY, 3)
    pool = EnsemblePredictor(models, 10)(batch, keys)
    own = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
    parts = [predict(m, batch.x, key=k, num_samples=5) for m, k in zip(models, (keys, own), strict=True)]
    for name in ("means", "vars_predictive", "vars_generalization"):
        expected = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(getattr(pool, name), expected, rtol=1e-5, atol=2e-5)
    expected = np.mean([part.cdf(batch.y) for part in parts], axis=0)
    np.testing.assert_allclose(pool.cdf(batch.y), expected, atol=1e-5)


def test_what_no_prediction_can_be_made_of_is_refused():
    model, plain = _model(UNITS), _model(None)
    z = jax.random.normal(KEY, (3, 2, 12))
    refused = functools.partial(pytest.raises, InputError)
    for one in (model, plain):
        with refused(match="x is not finite"):
            predict(one, z.at[1, 0, 3].set(jnp.nan), key=KEY)
        with refused(match="num_samples is 0"):
            predict(one, z, key=KEY, num_samples=0)
        with refused(match="x has shape"):
            predict(one, z[0], key=KEY)
        with refused(match="x is empty"):
            predict(one, z[:0], key=KEY)
    with refused(match="x has 1 channels; the model reads 2"):
        predict(model, z[:, :1], key=KEY)
    with refused(match="the input has 4 channels; the network reads 2"):
        predict(plain, jnp.concatenate([z, z], axis=1), key=KEY)
    mixture = predict(plain, z, key=KEY, num_samples=2)
    assert isinstance(mixture, Mixture)
    recalibrated = Recalibrated(mixture, jnp.asarray([0.0, 1.0]), jnp.asarray([0.0, 1.0]), jnp.asarray(1.0))
    for level in (1.5, 0.0, 1.0, -0.1, float("nan")):
        for one in (mixture, recalibrated, predict(model, z, key=KEY, num_samples=2)):
            with refused(match="level"):
                one.quantile(level)


def test_data_that_a_model_was_not_built_for_are_refused(trajectories, tiny):
    """In other units, of other channels, or on a grid of another dimension: by `evaluate` and by `fit`."""
    data = {factor: _own(trajectories, factor) for factor in (1.0, 1e3)}
    model = build_model(tiny.model, data[1.0].train, key=KEY)
    said = "in channel 0, and the model was built for fields that vary by"
    for refuses in (
        lambda: evaluate(model, data[1e3].test, num_samples=2),
        lambda: fit(data[1e3], model, dataclasses.replace(tiny.train, steps=2), progress=False),
    ):
        with pytest.raises(InputError, match=said):
            refuses()
    assert "nll" in evaluate(model, _own(trajectories, 2.0).test, num_samples=2)  # other data in the same units
    units = data[1.0].test.units
    assert units is not None
    moved = dataclasses.replace(data[1.0].test, units=Units((1e4, 0.0), units.scale))
    with pytest.raises(InputError, match=r"vary by .* around 10000 in channel 0"):
        evaluate(model, moved, num_samples=2)
    wide = Units(tuple(o + 1000 * s for o, s in zip(*units, strict=True)), tuple(50 * s for s in units.scale))
    for one, other in ((units, wide), (wide, units)):  # of one scale the offset is far, of the other it is not
        check_reads(dataclasses.replace(model, units=one), dataclasses.replace(data[1.0].test, units=other))
    flat = fno(2, 2, 2, width=4, num_blocks=1, num_modes=3, key=KEY)
    with pytest.raises(InputError, match="the model does not read fields of shape"):
        evaluate(flat, data[1.0].test, num_samples=2)


def test_there_and_back_is_the_identity():
    x = jax.random.normal(KEY, (3, 7)) * 4
    back = Moments(UNITS.to_network(x)[:2], jnp.zeros((2, 7)), None).in_units(UNITS)
    np.testing.assert_allclose(back.mean, x[:2], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(UNITS.to_network(x)[2:], x[2:])  # a mask stays as it is
    np.testing.assert_allclose(jnp.exp(back.log_sigma_pred), np.broadcast_to(UNITS.scales(1), (2, 7)), rtol=1e-6)
    assert back.log_sigma_gen is None


def test_every_channel_has_its_own_offset_and_scale():
    """By numbers: 40 is two scales of 5 above 30, and −1.5 two of 0.25 above −2."""
    x = jnp.asarray([[40.0, 30.0, 25.0], [-1.5, -2.25, -2.0], [1.0, 0.0, 1.0]])
    z = UNITS.to_network(x)
    np.testing.assert_allclose(z, [[2.0, 0.0, -1.0], [2.0, -1.0, 0.0], [1.0, 0.0, 1.0]], atol=1e-6)
    log_sigma = jnp.log(jnp.asarray([[0.5, 1.0, 2.0], [4.0, 0.25, 1.0]]))
    found = Moments(z[:2], log_sigma, log_sigma[:, ::-1]).in_units(UNITS)
    np.testing.assert_allclose(found.mean, x[:2], atol=1e-5)
    np.testing.assert_allclose(jnp.exp(found.log_sigma_pred), [[2.5, 5.0, 10.0], [1.0, 0.0625, 0.25]], rtol=1e-5)
    assert found.log_sigma_gen is not None
    np.testing.assert_allclose(jnp.exp(found.log_sigma_gen), [[10.0, 5.0, 2.5], [0.25, 0.0625, 1.0]], rtol=1e-5)
