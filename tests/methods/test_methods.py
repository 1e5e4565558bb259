"""One contract for all methods, and persistence in closed form."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import DataConfig
from crossreg.data.load import make_data
from crossreg.errors import InputError
from crossreg.methods.early import Trained
from crossreg.methods.names import config_of, parse_method
from crossreg.methods.readout import read_out
from crossreg.metrics.evaluation import evaluate
from crossreg.nn.build import build_model
from crossreg.nn.groups import groups
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.predictors.persistence import fit_persistence

# Every base, and every word that a name may have: which draw noise, and which learn on reg.
CONTRACT = {
    "xreg": (True, True),
    "xreg-internal-channel-fair": (True, True),
    "xreg-heads": (False, True),
    "xreg-both-crps": (True, True),
    "xreg-heads-fair": (False, True),
    "xreg-internal-scaled": (True, True),
    "xreg-modes": (True, True),
    "xreg-layer": (True, True),
    "xreg-element": (True, True),
    "xreg-layer-element-mm": (True, True),
    "xreg-mixture-ensemble": (True, True),
    "unregularized": (False, False),
    "ensemble": (False, False),
    "ensemble-2": (False, False),
    "dropout": (True, False),
    "dropout-0.3": (True, False),
    "dropout-reg": (True, False),
    "fixed-noise": (True, False),
    "fixed-noise-0.5": (True, False),
    "persistence": (False, False),
    "persistence-masked": (False, False),
}


@pytest.mark.parametrize("wrappers", ["", "+early+temperature+conformal"])
@pytest.mark.parametrize("name", CONTRACT)
def test_every_method_keeps_one_contract(name, wrappers, data, tiny):
    """Named, built, routed, read out, and ending in one distribution whose variance has two parts."""
    draws, learns = CONTRACT[name]
    wrappers = wrappers.replace("+early", "") if name.startswith("persistence") else wrappers
    method = parse_method(name + wrappers)
    candidates = []
    for config in method.configs(tiny):
        assert config.model.learns_on_reg == learns
        models = [build_model(config.model, data.train, key=jax.random.key(i)) for i in range(method.members)]
        assert models[0].is_stochastic == draws
        assert ("rho" in jax.tree.leaves(groups(models[0]))) == learns
        candidates.append([Trained(model, model, 0.0, -1) for model in models])
    read = read_out(method, candidates, data, 4)
    batch = data.test.gather(jnp.arange(5))
    predicted = read.predictor(batch, jax.random.split(jax.random.key(1), 5))
    parts = predicted.std_predictive**2 + predicted.std_generalization**2
    np.testing.assert_allclose(predicted.std**2, parts, rtol=1e-4)
    for values in (predicted.mean, predicted.log_prob(batch.y), predicted.crps(batch.y), predicted.quantile(0.9)):
        assert values.shape == batch.y.shape
        assert np.isfinite(values).all()
    spread = draws or method.members > 1 or name.startswith("xreg-heads")
    assert (float(predicted.std_generalization.max()) > 0) == spread


def test_a_method_overrides_what_another_set(tiny):
    for first, second in itertools.product(("xreg", "dropout", "unregularized"), repeat=2):
        assert config_of(second, config_of(first, tiny)).model == config_of(second, tiny).model


def test_dropout_trains_on_one_sample(tiny):
    assert config_of("dropout", tiny).train.train_samples == 1
    assert config_of("xreg", config_of("dropout", tiny)).train.train_samples == 2
    assert config_of("xreg", tiny.replace(antithetic=False)).train.train_samples is None


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
    single, double = (evaluate(p, data.test) for p in (one, two))
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
    data = make_data(still, DataConfig(train_size=7, observed_fraction=1.0), check=False)
    scores = evaluate(fit_persistence(data.train), data.test)
    assert np.isfinite([scores["nll"], scores["crps"]]).all()  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_an_ensemble_of_nothing_is_refused():
    with pytest.raises(InputError, match="ensemble: has no model"):
        EnsemblePredictor([])
