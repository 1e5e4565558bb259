"""What `crossreg predict` writes, against moments and the distribution function of the mixture, computed by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from crossreg.config import Config
from crossreg.data.dataset import Data
from crossreg.data.keys import evaluation_key
from crossreg.data.units import Units
from crossreg.nn.build import build_model
from crossreg.nn.surrogate import predict
from crossreg.predictive.mixture import Mixture
from crossreg.runs import prediction
from crossreg.runs.prediction import observe, predict_fields
from crossreg.runs.run_folder import Run

LEVELS, SEED, SAMPLES, FIELDS = (0.9, 0.02, 0.6), 6, 7, 5


@pytest.fixture(scope="module")
def run(tiny: Config, data: Data) -> Run:
    """A run whose model has noise inside and a σ_gen head, and none of whose arrays is at its start."""
    rng = np.random.default_rng(2)
    config = tiny.replace(evaluation_samples=SAMPLES, log_sigma_gen_start=-1.5)
    model = build_model(config.model, data.train, key=jax.random.key(1))
    moved = jax.tree.map(
        lambda leaf: leaf + 0.1 * rng.normal(size=leaf.shape).astype(np.float32) if hasattr(leaf, "shape") else leaf,
        model,
    )
    channels, *space = data.train.field_shape
    return Run(config, moved, channels, tuple(space), rng.random(space) < 0.7, digest="")


@pytest.fixture(scope="module")
def fields(run: Run) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(FIELDS, run.channels, *run.space)).astype(np.float32)


def test_every_output_is_what_its_name_says(run, fields):
    """The parts of the spread and the levels of the quantiles, from the components of each field's own mixture."""
    found = predict_fields(run, fields, run.mask, levels=LEVELS, seed=SEED)
    keys = jnp.stack([jax.random.fold_in(evaluation_key(SEED), place) for place in range(FIELDS)])
    mixture = predict(run.model, jnp.asarray(np.where(run.mask, fields, 0.0)), key=keys, num_samples=SAMPLES)
    assert isinstance(mixture, Mixture)
    means, predictive, generalization = (
        np.asarray(part, np.float64) for part in (mixture.means, mixture.vars_predictive, mixture.vars_generalization)
    )
    assert means.shape == (SAMPLES, *fields.shape)
    spread = means.var(axis=0)
    parts = {"std_predictive": predictive.mean(axis=0), "std_generalization": spread + generalization.mean(axis=0)}
    wanted = {name: np.sqrt(variance) for name, variance in parts.items()}
    wanted |= {"mean": means.mean(axis=0), "std": np.sqrt(sum(parts.values()))}
    # None stands for another: neither part is small, and they differ.
    assert min(np.median(wanted[name]) for name in parts) > 0.05
    assert np.median(np.abs(wanted["std_predictive"] / wanted["std_generalization"] - 1)) > 0.1
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(found["levels"], LEVELS)
    assert found["quantiles"].shape == (len(LEVELS), *fields.shape)
    for level, quantile in zip(LEVELS, found["quantiles"], strict=True):
        below = norm.cdf((quantile - means) / np.sqrt(predictive + generalization)).mean(axis=0)
        np.testing.assert_allclose(below, level, atol=2e-5)


def test_how_many_fields_a_call_takes_changes_no_number(run, fields, monkeypatch):
    whole = predict_fields(run, fields, run.mask, levels=LEVELS)
    # Of five fields two at a time: the last call is filled up.
    monkeypatch.setattr(prediction, "_POINTS_PER_CALL", 2 * fields[0].size)
    apart = predict_fields(run, fields, run.mask, levels=LEVELS)
    for name, values in whole.items():
        np.testing.assert_allclose(apart[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("mask_channel", [False, True])
def test_a_model_is_shown_what_it_was_trained_on(run, fields, mask_channel):
    """A value that is hidden or not there stands at its channel's offset; the mask channel says where all are seen."""
    units = Units((30.0, -2.0), (5.0, 0.25))
    shown = run._replace(
        config=run.config.replace(mask_channel=mask_channel), model=dataclasses.replace(run.model, units=units)
    )
    x = fields.copy()
    x[1, 0, 4], x[3, :, 9], x[2, 1, 0] = np.nan, np.nan, np.inf
    seen = np.asarray(run.mask) & np.isfinite(x)
    wanted = np.where(seen, x, np.asarray(units.offset, np.float32)[:, None])
    found = observe(shown, x, run.mask)
    np.testing.assert_array_equal(found[:, :2], wanted)
    assert found.shape[1] == 2 + mask_channel
    if mask_channel:
        np.testing.assert_array_equal(found[:, 2], seen[:, 0] & seen[:, 1])
