"""Combinations of channels, and how their errors go together: closed forms, draws, and an R that is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import crossreg as xr
from crossreg.metrics.calibration import LEVELS
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.correlation import _correlation

R = np.asarray([[1.0, 0.8, -0.3], [0.8, 1.0, 0.1], [-0.3, 0.1, 1.0]])
WEIGHTS = np.asarray([[1.0, 1.0, 0.0], [2.0, -1.0, 0.5]])


def mixture(*shape: int, instances: int | None = None) -> Mixture:
    draw = np.random.default_rng(0)
    means, predictive, generalization = (jnp.asarray(draw.uniform(0.1, 2, (5, *shape))) for _ in range(3))
    some = None if instances is None else jnp.asarray(draw.normal(size=(instances, *shape)))
    return Mixture(means, predictive, generalization, some)


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 4), 1), ((3, 4), 0), ((2, 3, 4, 6), 1)])
def test_a_channel_alone_is_what_it_was(shape, axis):
    one = mixture(*shape, instances=7)
    same = one.combined(np.eye(3)[[2, 0]], correlation=R, axis=axis)
    for found, wanted in zip(jax.tree.leaves(same), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(found, np.take(wanted, [2, 0], axis=axis + 1), rtol=1e-6)


def test_the_variance_is_that_of_the_law_of_total_covariance():
    one = mixture(2, 3, 4)
    combined = one.combined(WEIGHTS, correlation=R)
    assert combined.mean.shape == (2, 2, 4)
    np.testing.assert_allclose(combined.mean, jnp.einsum("oc,bcx->box", WEIGHTS, one.mean), rtol=1e-5)
    centred = one.means - one.mean
    total = jnp.einsum("sbcx,sbdx->bxcd", centred, centred) / 5
    for part in (one.vars_predictive, one.vars_generalization):
        total += R * jnp.einsum("sbcx,sbdx->bxcd", jnp.sqrt(part), jnp.sqrt(part)) / 5
    np.testing.assert_allclose(combined.variance, jnp.einsum("oc,bxcd,od->box", WEIGHTS, total, WEIGHTS), rtol=1e-5)
    np.testing.assert_allclose(combined.variance, combined.var_predictive + combined.var_generalization, rtol=1e-5)


def test_of_equal_channels_the_sum_is_twice_as_wide_and_the_difference_is_known():
    one = mixture(2, 1, 4)
    twins = jax.tree.map(lambda x: jnp.concatenate([x, x], axis=2), one)
    both = twins.combined(np.asarray([[1.0, 1.0], [1.0, -1.0]]), correlation=np.ones((2, 2)))
    np.testing.assert_allclose(both.std[:, 0], 2 * one.std[:, 0], rtol=1e-5)
    np.testing.assert_allclose(both.std[:, 1], 0.0, atol=1e-3)


def waves(count: int, seed: int) -> np.ndarray:
    """Three channels after one step: the field before, a wave that all channels share, and errors of correlation R.

    Errors are small in one half of space and large in the other, in other units in each channel.
    """
    draw = np.random.default_rng(seed)
    before = draw.normal(size=(count, 1, 3, 40))
    errors = np.einsum("cd,btdx->btcx", np.linalg.cholesky(R), draw.normal(size=before.shape)) * sigma()
    shared = draw.normal(size=(count, 1, 1, 40)) * SHARED
    return np.concatenate([before, before + shared + errors], axis=1).astype(np.float32)


SHARED = np.asarray([0.2, -0.5, 2.0])[:, None]


def sigma() -> np.ndarray:
    return np.asarray([0.3, 1.0, 5.0])[:, None] * np.where(np.arange(40) < 15, 0.2, 1.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> xr.Data:
    fields = waves(640, 0)
    fields[:, 1, 1, :6] = np.nan  # a channel that is not known somewhere
    path = tmp_path_factory.mktemp("own") / "waves.npy"
    np.save(path, fields)
    return xr.load(path, train_size=10, reg_size=600, test_size=30)


def predictor(batch: xr.data.Batch, keys) -> Mixture:
    """The truth: components that share a wave, as instances of a model do, and the σ of the errors in two parts."""
    shared = jax.vmap(lambda k: jax.random.normal(k, (100, 1, batch.y.shape[-1])), out_axes=1)(keys)
    shared = (shared - shared.mean(0)) / shared.std(0) * SHARED
    variance = jnp.broadcast_to(sigma() ** 2, shared.shape)
    return Mixture(batch.x + shared, 0.75 * variance, 0.25 * variance)


def test_the_correlation_of_errors_is_found_and_makes_combinations_right(data):
    found = xr.fit_correlation(predictor, data.reg)
    np.testing.assert_allclose(found, R, atol=0.03)
    batch = data.test.gather(jnp.arange(30))
    truth = jnp.einsum("oc,bcx->box", WEIGHTS, batch.y)[..., 6:]
    predicted = predictor(batch, jax.random.split(jax.random.key(3), 30))

    def error_of_coverage(correlation) -> np.ndarray:
        pit = predicted.combined(WEIGHTS, correlation=correlation)
        pit = jax.tree.map(lambda field: field[..., 6:], pit).cdf(truth)
        covered = np.asarray([(np.abs(2 * pit - 1) < level).mean((0, 2)) for level in LEVELS])
        return np.abs(covered - np.asarray(LEVELS)[:, None]).mean(0)

    assert (error_of_coverage(found) < 0.02).all()
    assert (error_of_coverage(None) > 0.03).all()


def test_the_covariance_of_the_means_is_that_of_the_components_there_are(data):
    """Two of them, a channel's distance δ_c to either side: Cov(μ_c, μ_d) = δ_c δ_d, and R from sums in NumPy."""
    delta = np.asarray([0.2, -0.5, 2.0])[:, None]

    def two(batch: xr.data.Batch, keys) -> Mixture:
        means = batch.x + jnp.asarray([-1.0, 1.0])[:, None, None, None] * delta
        return Mixture(means, jnp.full_like(means, 0.3), jnp.full_like(means, 0.1))

    reg = data.reg[np.arange(50)]
    error = np.where(reg.weight > 0, reg.y - reg.x, 0.0)
    both = np.where(reg.weight > 0, 1.0, 0.0)
    counts = np.einsum("bcx,bdx->cd", both, both)
    left = np.einsum("bcx,bdx->cd", error, error) - counts * (delta @ delta.T)
    wanted = _correlation(left, 0.4 * counts)
    assert np.abs(wanted - np.eye(3)).max() > 0.1
    pairs = data.reg.of(range(50))
    np.testing.assert_allclose(xr.methods.fit_correlation(two, pairs), wanted, atol=1e-4)


def test_a_ratio_beyond_1_counts_as_1():
    errors, off = np.eye(3) + 0.2 * (1 - np.eye(3)), np.zeros((3, 3))
    off[0, 1] = off[1, 0] = 1.0
    one, more = (_correlation(errors * (1 - off) + ratio * off, np.ones((3, 3))) for ratio in (1.0, 1.7))
    np.testing.assert_allclose(more, one, atol=1e-12)


def test_what_is_no_correlation_becomes_the_nearest_that_is_one():
    draw = np.random.default_rng(1)
    for _ in range(20):
        sums = draw.normal(size=(4, 4))
        found = _correlation(sums + sums.T + 2 * np.eye(4), draw.uniform(0.5, 1, (4, 4)) + np.eye(4))
        np.testing.assert_allclose(np.diag(found), 1)
        np.testing.assert_allclose(found, found.T)
        assert np.linalg.eigvalsh(found).min() > -1e-9
        assert np.abs(found).max() <= 1 + 1e-9


def test_a_channel_whose_error_is_all_spread_goes_with_no_other():
    errors = np.asarray([[-0.1, 0.4], [0.4, 1.0]])
    np.testing.assert_array_equal(_correlation(errors, np.ones((2, 2))), np.eye(2))
