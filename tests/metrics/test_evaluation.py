"""Scores of a split: chunks leave no trace, weights count, numbers are those of the mixture."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scoringrules
from scipy.stats import norm, spearmanr

from crossreg.config import DataConfig, TrainConfig
from crossreg.data.files.load import load_file
from crossreg.data.keys import calibration_key, evaluation_key
from crossreg.data.load import make_data
from crossreg.metrics.calibration import ece
from crossreg.metrics.evaluation import evaluate, mean_nll, point_scores, sigma_per_site
from crossreg.nn.build import build_model
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture
from crossreg.predictors import batches


def offset(batch, keys):
    """A predictor whose errors depend on the point, not on how pairs are chunked."""
    mean = batch.y + 0.3 * jnp.sin(7 * batch.y)
    return Mixture(mean[None], jnp.full_like(mean, 0.04)[None], jnp.zeros_like(mean)[None])


def test_scores_are_those_of_the_mixture_over_all_pairs(data):
    scores = evaluate(offset, data.test)
    batch = data.test.gather(jnp.arange(int(data.test.num_pairs)))
    mixture = offset(batch, None)
    assert scores["nll"] == pytest.approx(float(-mixture.log_prob(batch.y).mean()), rel=1e-5)
    assert scores["crps"] == pytest.approx(float(mixture.crps(batch.y).mean()), rel=1e-5)
    assert scores["ece_mix"] == pytest.approx(float(ece(mixture.cdf(batch.y))), abs=1e-6)
    assert scores["rmse"] == pytest.approx(float(jnp.sqrt(jnp.mean((mixture.mean - batch.y) ** 2))), rel=1e-5)
    assert scores["std"] == pytest.approx(0.2, rel=1e-5)
    assert scores["std_mu"] == 0
    assert len(scores["coverage"]) == 9  # pyright: ignore[reportArgumentType]


def varied(batch, keys):
    """Three components whose means and two kinds of σ differ from point to point, each in its own way."""
    waves = jnp.stack([jnp.sin(k * batch.y + k) for k in (3, 5, 8)])
    return Mixture(batch.y + 0.4 * waves + 0.2, 0.02 + 0.3 * waves**2, 0.01 + 0.1 * jnp.roll(waves, 1, axis=0) ** 4)


def sparsification_error(error, std):
    """By its definition: of each hundredth, the RMSE of what is left without the most uncertain points."""
    by_std, by_error = (np.asarray(error)[np.argsort(order)] for order in (std, np.abs(error)))
    counts = [round(error.size * (100 - percent) / 100) for percent in range(100)]
    gaps = [np.sqrt(np.mean(by_std[:n] ** 2)) - np.sqrt(np.mean(by_error[:n] ** 2)) for n in counts]
    return np.mean(gaps) / np.sqrt(np.mean(error**2))


def varied_in_units(batch, keys):
    """The same distribution, as a network that sees standardised fields gives it."""
    offset, scale = jnp.asarray([0.5, -2.0])[:, None], jnp.asarray([0.25, 3.0])[:, None]
    raw = varied(batch, keys)
    parts = (raw.vars_predictive / scale**2, raw.vars_generalization / scale**2)
    return InUnits(Mixture((raw.means - offset) / scale, *parts), offset, scale)


@pytest.mark.parametrize("predictor", [varied, varied_in_units])
def test_every_score_is_its_definition_over_the_points_that_count(trajectories, predictor):
    """In float64 by SciPy and scoringrules; 20 pairs are scored in one batch that is filled up to 32."""
    settings = DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.6, score_on="observed")
    data = make_data(trajectories, settings)
    batch = data.test.gather(jnp.arange(20))
    mixture = varied(batch, None)
    seen = np.asarray(data.run_mask)
    assert seen.sum() == 12

    def counted(field):  # (…, channel, point)
        return np.moveaxis(np.asarray(field, np.float64)[..., seen], -2, 0).reshape(2, *field.shape[:-3], -1)

    truth = counted(batch.y)
    means, predictive, generalization = (
        np.moveaxis(counted(part), 1, -1)
        for part in (mixture.means, mixture.vars_predictive, mixture.vars_generalization)
    )
    sigma = np.sqrt(predictive + generalization)
    error = means.mean(-1) - truth
    nll = -np.log(norm.pdf(truth[..., None], means, sigma).mean(-1))
    crps = np.asarray(scoringrules.crps_mixnorm(truth, means, sigma, m_axis=-1))
    distance = np.abs(2 * norm.cdf(truth[..., None], means, sigma).mean(-1) - 1)
    u_pred, u_gen = predictive.mean(-1), generalization.mean(-1) + means.var(-1)
    std = np.sqrt(u_pred + u_gen)
    covered = [(distance <= tenths / 10).mean() for tenths in range(1, 10)]
    expected = {
        "nll": nll.mean(),
        "ece_mix": np.mean([abs(share - tenths / 10) for tenths, share in enumerate(covered, 1)]),
        "crps": crps.mean(),
        "rmse": np.sqrt((error**2).mean()),
        "std_mu": means.std(-1).mean(),
        "std_predictive": np.sqrt(u_pred).mean(),
        "std_generalization": np.sqrt(u_gen).mean(),
        "rms_predictive": np.sqrt(u_pred.mean()),
        "rms_generalization": np.sqrt(u_gen.mean()),
        "std": std.mean(),
        "spearman": spearmanr(np.abs(error).ravel(), std.ravel()).statistic,  # pyright: ignore[reportAttributeAccessIssue]
        "ause": sparsification_error(error.ravel(), std.ravel()),
        "coverage": covered,
        "channel_nll": nll.mean(1),
        "channel_crps": crps.mean(1),
        "channel_rmse": np.sqrt((error**2).mean(1)),
        "channel_std": std.mean(1),
    }
    scores = evaluate(predictor, data.test)
    assert scores.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(scores[name]), value, rtol=2e-5, atol=1e-6, err_msg=name)
    # No two of them are the same by chance.
    single = sorted(value for value in expected.values() if np.ndim(value) == 0)
    assert np.diff(single).min() > 1e-3


def test_a_channel_that_is_often_missing_counts_by_its_points(tmp_path):
    fields = np.random.default_rng(0).normal(size=(10, 4, 2, 9)).astype(np.float32)
    fields[:, :, 0, 2:] = np.nan
    np.save(tmp_path / "gaps.npy", fields)
    pairs = load_file(tmp_path / "gaps.npy").test
    points = point_scores(varied, pairs, key=evaluation_key(0))
    seen = points.weight > 0
    assert seen.mean((0, 2)).tolist() == [np.float32(2 / 9), 1.0]
    scores = evaluate(varied, pairs)
    assert scores["nll"] == pytest.approx(points.nll[seen].mean(), rel=1e-5)
    assert scores["std"] == pytest.approx(points.std[seen].mean(), rel=1e-5)
    assert mean_nll(varied, pairs, key=evaluation_key(0)) == scores["nll"]


def test_chunks_leave_no_trace(data, tiny, monkeypatch):
    """Each pair has noise of its own, large enough to see, whichever chunk it is in."""
    model = build_model(tiny.replace(log_sigma_gen_start=-1.0).model, data.train, key=jax.random.key(0))
    whole = evaluate(model, data.test, num_samples=3)
    monkeypatch.setattr(
        batches, "_POINTS_PER_CALL", dict.fromkeys(("cpu", "accelerator"), 7 * 40)
    )  # 7 pairs, which do not divide the 20
    parts = evaluate(model, data.test, num_samples=3)
    one_point = 1 / (20 * 40)  # may lie on the edge of an interval, or change places with another
    for name, value in whole.items():
        loose = name in ("coverage", "ece_mix", "spearman", "ause")
        np.testing.assert_allclose(
            np.asarray(parts[name]), np.asarray(value), rtol=1e-5, atol=2 * one_point if loose else 1e-7, err_msg=name
        )


def test_candidates_are_compared_by_the_nll_that_is_reported(data, monkeypatch):
    """Also where the last of several batches has fewer pairs, and its points no more weight than others."""
    monkeypatch.setitem(batches._POINTS_PER_CALL, "cpu", 7 * 40)
    expected = evaluate(varied, data.test)["nll"]
    assert mean_nll(varied, data.test, key=evaluation_key(0)) == pytest.approx(expected, rel=1e-6)


def test_scores_are_of_as_many_samples_as_a_run_has_by_default():
    assert inspect.signature(evaluate).parameters["num_samples"].default == TrainConfig().evaluation_samples == 30


def test_only_observed_points_count_where_asked(trajectories):
    config = DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.5, score_on="observed")
    data = make_data(trajectories, config)
    seen = np.asarray(data.test.masks[0])
    points = point_scores(offset, data.test, key=jax.random.key(0))
    expected = points.nll[..., seen].mean()
    assert evaluate(offset, data.test)["nll"] == pytest.approx(expected, rel=1e-5)


def test_a_model_is_scored_the_same_twice(data, tiny):
    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    assert evaluate(model, data.test, num_samples=3) == evaluate(model, data.test, num_samples=3)
    assert evaluate(model, data.test, num_samples=3) != evaluate(model, data.test, num_samples=3, seed=1)
    keys = [jax.random.key(0), evaluation_key(0), evaluation_key(1), calibration_key()]
    assert len({jax.random.key_data(key).tobytes() for key in keys}) == 4


def test_sigma_per_site_has_a_number_per_channel(data, tiny):
    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    sigma = sigma_per_site(model)
    assert list(sigma) == ["block1", "block2", "block3_pre", "pre_head"]
    np.testing.assert_allclose(list(sigma.values()), np.full((4, 4), np.exp(-5)), rtol=1e-4)


def test_what_is_not_a_split_is_named(data, tiny):
    for pairs in (data, np.zeros((2, 1, 8))):
        with pytest.raises(TypeError, match=f"a split, such as data.test, not a {type(pairs).__name__}"):
            inspect.unwrap(evaluate)(tiny, pairs)
