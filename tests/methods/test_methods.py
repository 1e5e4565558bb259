"""One contract for all methods, and persistence in closed form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import DataConfig
from crossreg.data.pairs import make_data
from crossreg.methods import TRAINED
from crossreg.methods.persistence import fit_persistence
from crossreg.metrics.evaluation import score_points, summarize
from crossreg.nn.build import build_model
from crossreg.nn.groups import groups
from crossreg.nn.surrogate import predict


@pytest.mark.parametrize("method", TRAINED)
def test_every_method_ends_in_a_mixture_with_a_decomposition(method, data, tiny):
    config = TRAINED[method](tiny)
    model = build_model(config.model, data.train, key=jax.random.key(0))
    batch = data.test.gather(jnp.arange(5))
    mixture = predict(model, batch.x, key=jax.random.key(1), num_samples=4)
    assert mixture.num_samples == (1 if method == "unregularized" else 4)
    assert mixture.mean.shape == batch.y.shape
    np.testing.assert_allclose(mixture.variance, mixture.var_predictive + mixture.var_generalization)
    assert (mixture.var_generalization.max() > 0) == (method != "unregularized")
    assert ("rho" in jax.tree.leaves(groups(model))) == (method == "xreg")


def test_a_method_overrides_what_another_set(tiny):
    for first in TRAINED.values():
        for second in TRAINED.values():
            assert second(first(tiny)).model == second(tiny).model


def test_dropout_trains_on_one_sample(tiny):
    assert TRAINED["dropout"](tiny).train.train_samples == 1
    assert TRAINED["xreg"](TRAINED["dropout"](tiny)).train.train_samples is None


@pytest.mark.parametrize("mask_channel", [False, True])
def test_persistence_has_the_residuals_of_train(trajectories, mask_channel):
    config = DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.6, mask_channel=mask_channel)
    data = make_data(trajectories, config)
    mask = np.asarray(data.run_mask)
    x, y = (np.asarray(trajectories.train[:7, s]) for s in (slice(0, -1), slice(1, None)))
    residual = y - x * mask
    one = fit_persistence(data.train)
    np.testing.assert_allclose(one.var_seen, (residual**2).mean((0, 1, 3)), rtol=1e-4)
    np.testing.assert_array_equal(one.var_seen, one.var_hidden)
    two = fit_persistence(data.train, knows_mask=True)
    np.testing.assert_allclose(two.var_seen, (residual[..., mask] ** 2).mean((0, 1, 3)), rtol=1e-3)
    np.testing.assert_allclose(two.var_hidden, (y[..., ~mask] ** 2).mean((0, 1, 3)), rtol=1e-3)
    single, double = (summarize(score_points(p, data.test, key=jax.random.key(0))) for p in (one, two))
    assert double["nll"] < single["nll"]  # pyright: ignore[reportOperatorIssue]
    assert double["rmse"] == single["rmse"]


def test_persistence_at_full_observation_has_one_sigma(trajectories):
    data = make_data(trajectories, dataclasses.replace(DataConfig(train_size=7), observed_fraction=1.0))
    one, two = (fit_persistence(data.train, knows_mask=k) for k in (False, True))
    np.testing.assert_allclose(one.var_seen, two.var_seen, rtol=1e-5)


def test_an_exact_zero_that_is_seen_is_not_taken_for_hidden(trajectories):
    zeros = trajectories._replace(train=trajectories.train * (np.arange(20) % 2))
    data = make_data(zeros, DataConfig(train_size=7, observed_fraction=1.0))
    one, two = (fit_persistence(data.train, knows_mask=k) for k in (False, True))
    np.testing.assert_allclose(one.var_seen, two.var_seen, rtol=1e-5)


def test_a_field_that_never_changes_has_finite_scores(trajectories):
    still = trajectories._replace(train=np.ones_like(trajectories.train), test=np.ones_like(trajectories.test))
    data = make_data(still, DataConfig(train_size=7, observed_fraction=1.0))
    scores = summarize(score_points(fit_persistence(data.train), data.test, key=jax.random.key(0)))
    assert np.isfinite([scores["nll"], scores["crps"]]).all()  # pyright: ignore[reportArgumentType, reportCallIssue]
