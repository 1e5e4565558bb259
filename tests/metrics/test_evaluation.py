"""Scores of a split: chunks leave no trace, weights count, numbers are those of the mixture."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import DataConfig
from crossreg.data.pairs import make_data
from crossreg.metrics import evaluation
from crossreg.metrics.calibration import ece
from crossreg.metrics.evaluation import evaluate, evaluate_predictor, evaluation_key, score_points, sigma_per_site
from crossreg.nn.build import build_model
from crossreg.predictive import Mixture


def offset(batch, keys):
    """A predictor whose errors depend on the point, not on how pairs are chunked."""
    mean = batch.y + 0.3 * jnp.sin(7 * batch.y)
    return Mixture(mean[None], jnp.full_like(mean, 0.04)[None], jnp.zeros_like(mean)[None])


def test_scores_are_those_of_the_mixture_over_all_pairs(data):
    scores = evaluate_predictor(offset, data.test)
    batch = data.test.gather(jnp.arange(int(data.test.num_pairs)))
    mixture = offset(batch, None)
    assert scores["nll"] == pytest.approx(float(-mixture.log_prob(batch.y).mean()), rel=1e-5)
    assert scores["crps"] == pytest.approx(float(mixture.crps(batch.y).mean()), rel=1e-5)
    assert scores["ece_mix"] == pytest.approx(float(ece(mixture.cdf(batch.y))), abs=1e-6)
    assert scores["rmse"] == pytest.approx(float(jnp.sqrt(jnp.mean((mixture.mean - batch.y) ** 2))), rel=1e-5)
    assert scores["sharpness"] == pytest.approx(0.2, rel=1e-5)
    assert scores["std_mu"] == 0
    assert len(scores["coverage"]) == 9  # pyright: ignore[reportArgumentType]


def test_chunks_leave_no_trace(data, tiny, monkeypatch):
    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    whole = evaluate(model, data.test, num_samples=3)
    monkeypatch.setattr(
        evaluation, "_POINTS_PER_CALL", dict.fromkeys(("cpu", "accelerator"), 7 * 40)
    )  # 7 pairs, which do not divide the 20
    parts = evaluate(model, data.test, num_samples=3)
    for name, value in whole.items():
        np.testing.assert_allclose(np.asarray(parts[name]), np.asarray(value), rtol=1e-4, atol=2e-3)


def test_only_observed_points_count_where_asked(trajectories):
    config = DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.5, score_on="observed")
    data = make_data(trajectories, config)
    seen = np.asarray(data.test.masks[0])
    points = score_points(offset, data.test, key=jax.random.key(0))
    expected = points.nll[..., seen].mean()
    assert evaluate_predictor(offset, data.test)["nll"] == pytest.approx(expected, rel=1e-5)


def test_a_model_is_scored_the_same_twice(data, tiny):
    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    assert evaluate(model, data.test, num_samples=3) == evaluate(model, data.test, num_samples=3)
    assert evaluate(model, data.test, num_samples=3) != evaluate(model, data.test, num_samples=3, seed=1)
    assert (jax.random.key_data(evaluation_key(0)) != jax.random.key_data(jax.random.key(0))).any()


def test_sigma_per_site_has_a_number_per_channel(data, tiny):
    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    sigma = sigma_per_site(model)
    assert list(sigma) == ["block1", "block2", "block3_pre", "pre_head"]
    np.testing.assert_allclose(list(sigma.values()), np.full((4, 4), np.exp(-5)), rtol=1e-4)
