"""What each part of a read-out is fitted on, and which points count there."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import crossreg as xr
from crossreg.config import DataConfig
from crossreg.data.keys import calibration_key, evaluation_key
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories
from crossreg.designs.grids import plan
from crossreg.forecasts.growth import fit_growth
from crossreg.methods import readout, unregularized
from crossreg.methods.early import Trained
from crossreg.methods.names import parse_method
from crossreg.methods.readout import read_out
from crossreg.metrics.evaluation import evaluate, point_scores, sigma_per_site
from crossreg.nn.build import build_model
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.conformal import Conformal, conformal_levels, fit_conformal
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.predictors.persistence import Persistence, fit_persistence
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.predictors.temperature import Tempered, fit_temperature
from crossreg.runs.sweep_folder import trial_key
from crossreg.studies.sweep import scoring
from crossreg.studies.sweep.run import run_sweep
from crossreg.training.cohort import start_cohort
from crossreg.training.replicas import unstack


@pytest.fixture(scope="module")
def model(data, tiny):
    return build_model(unregularized.configure(tiny).model, data.train, key=jax.random.key(0))


@pytest.mark.parametrize(("wrapper", "form"), [("temperature", "stretch"), ("sigma-temperature", "sigma")])
def test_a_temperature_is_fitted_on_what_nothing_learned_from(wrapper, form, model, data):
    split = data.split_off_calibration(1)
    trained = [[Trained(model, model, 0.0, -1)] * 2]
    plain = EnsemblePredictor([model, model], 4)
    read = read_out(parse_method(f"xreg+{wrapper}"), trained, split, 4)
    assert isinstance(read.predictor, Tempered)
    assert read.predictor.form == form
    expected, *others = (
        float(fit_temperature(plain, pairs, form=form).temperature)
        for pairs in (split.calibration, split.reg, split.train)
    )
    assert read.notes == {"temperature": expected}
    assert expected not in others


def test_conformal_is_fitted_on_what_nothing_learned_from(model, data):
    split = data.split_off_calibration(1)
    trained = [[Trained(model, model, 0.0, -1)]]
    plain = EnsemblePredictor([model], 4)
    read = read_out(parse_method("xreg+conformal"), trained, split, 4)
    assert isinstance(read.predictor, Conformal)
    expected, *others = (fit_conformal(plain, pairs) for pairs in (split.calibration, split.reg, split.train))
    np.testing.assert_array_equal(read.predictor.knots, expected.knots)
    for other in others:
        assert (np.asarray(other.knots[1:]) != np.asarray(expected.knots[1:])).all()
    # After a temperature, it is the widened mixture whose intervals are relabelled.
    both = read_out(parse_method("xreg+temperature+conformal"), trained, split, 4).predictor
    widened = fit_temperature(plain, split.calibration)
    np.testing.assert_array_equal(both.knots, fit_conformal(widened, split.calibration).knots)  # pyright: ignore[reportFunctionMemberAccess]


def test_candidates_are_compared_on_what_is_left_of_reg(model, data, monkeypatch):
    split = data.split_off_calibration(1)
    compared = []
    nll = {0.01: 3.0, 0.02: float("nan"), 0.05: 2.0, 0.1: -1.0, 0.2: 0.0}

    def of_each(predictor, pairs, *, key):
        compared.append(pairs)
        return list(nll.values())[len(compared) - 1]

    monkeypatch.setattr(readout, "mean_nll", of_each)
    read = read_out(parse_method("dropout-reg"), [[Trained(model, model, 0.0, -1)]] * 5, split, 4)
    assert all(pairs is split.reg for pairs in compared)
    assert (read.chosen, read.notes) == (3, {"dropout_rate": 0.1})


def test_persistence_has_the_errors_of_train_under_its_wrappers_too(data):
    for name, knows_mask in (("persistence", False), ("persistence-masked", True)):
        expected = fit_persistence(data.train, knows_mask=knows_mask)
        for wrappers in ("", "+temperature"):
            predictor = read_out(parse_method(name + wrappers), [], data, 4).predictor
            inner = predictor.predictor if wrappers else predictor  # pyright: ignore[reportFunctionMemberAccess]
            assert isinstance(inner, Persistence)
            assert eqx.tree_equal(inner, expected)
    assert not eqx.tree_equal(*(fit_persistence(pairs) for pairs in (data.train, data.reg)))


def test_persistence_sizes_its_errors_on_the_points_that_count(trajectories):
    config = DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.6, score_on="observed")
    data = make_data(trajectories, config)
    seen = np.asarray(data.run_mask)
    before, after = (trajectories.train[:7, steps][..., seen] for steps in (slice(0, -1), slice(1, None)))
    fitted = fit_persistence(data.train)
    np.testing.assert_allclose(fitted.var_seen, ((after - before) ** 2).mean((0, 1, 3)), rtol=1e-5)


def test_errors_of_points_that_train_never_hides_are_those_of_the_others(trajectories):
    """Nothing is hidden in train: a hidden point elsewhere is not one whose error is known to be 0."""
    data = make_data(trajectories, DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=1.0))
    fitted = fit_persistence(data.train, knows_mask=True)
    np.testing.assert_array_equal(fitted.var_hidden, fitted.var_seen)
    unknown = eqx.tree_at(lambda p: p.trajectories, data.train, data.train.trajectories.at[:, 1:, 1].set(jnp.nan))
    without = fit_persistence(dataclasses.replace(unknown, has_gaps=True))
    np.testing.assert_array_equal(without.var_seen, [fitted.var_seen[0], 1.0])


def test_persistence_is_fitted_to_pairs_that_stay_in_their_files(tmp_path):
    fields = np.random.default_rng(0).normal(size=(10, 4, 1, 8)).astype(np.float32)
    np.save(tmp_path / "own.npy", fields)
    here, there = (xr.load(tmp_path / "own.npy", axes="btcx", in_memory_gib=size) for size in (1.0, 0.0))
    assert there.train.in_files
    np.testing.assert_allclose(fit_persistence(there.train).var_seen, fit_persistence(here.train).var_seen, rtol=1e-5)


class Off(eqx.Module):
    """One Gaussian whose error depends on the point, and on whether it is seen."""

    def __call__(self, batch, keys):
        noise = jax.vmap(lambda key, y: jax.random.normal(key, y.shape))(keys, batch.y)
        mean = batch.y + jnp.where(batch.mask, 0.3, 2.0) * (noise + 0.2)
        return Mixture(mean[None], jnp.full_like(mean, 0.25)[None], jnp.zeros_like(mean)[None])


@pytest.fixture(scope="module")
def scores_of_seen(trajectories):
    """Pairs that are scored on observed points, 21 of them, which batches fill up to 32; and what `Off` says there."""
    config = DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.6, score_on="observed")
    pairs = make_data(trajectories, config).train
    points = point_scores(Off(), pairs, key=calibration_key())
    counts = np.broadcast_to(np.asarray(pairs.masks[0]), points.pit.shape)
    assert counts.sum() == 21 * 2 * 12
    return pairs, points, counts


@pytest.mark.parametrize("form", ["stretch", "sigma"])
def test_a_temperature_counts_each_scored_point_once(form, scores_of_seen):
    pairs, points, counts = scores_of_seen
    z = ((points.truth - points.mean) / 0.5)[counts]
    assert float(fit_temperature(Off(), pairs, form=form).temperature) == pytest.approx(
        np.sqrt((z**2).mean()), rel=1e-3
    )


def test_conformal_counts_each_scored_point_once(scores_of_seen):
    pairs, points, counts = scores_of_seen
    pit = points.pit.astype(np.float64)[counts]
    expected = conformal_levels(-np.log(2 * np.minimum(pit, 1 - pit)))
    fitted = fit_conformal(Off(), pairs)
    np.testing.assert_allclose(fitted.knots, expected.knots, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fitted.tail, expected.tail, rtol=1e-3)


def test_members_are_pooled_as_they_are(data, tiny):
    """The samples of each member, under keys of its own, one after another."""
    noisy = tiny.replace(log_sigma_gen_start=-1.0).model
    models = [build_model(noisy, data.train, key=jax.random.key(i)) for i in range(3)]
    batch, keys = data.test.gather(jnp.arange(5)), jax.random.split(jax.random.key(1), 5)
    pooled = EnsemblePredictor(models, 7)(batch, keys)
    for number, one in enumerate(models):
        own = keys if number == 0 else jax.vmap(lambda key, n=number: jax.random.fold_in(key, n))(keys)
        alone = SurrogatePredictor(one, 3)(batch, own)
        for part in ("means", "vars_predictive", "vars_generalization"):
            pooled_part = np.asarray(getattr(pooled, part))[3 * number : 3 * number + 3]
            np.testing.assert_allclose(pooled_part, getattr(alone, part), rtol=1e-5, atol=1e-7)


def leaves(model) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))]


def test_members_and_seeds_start_from_weights_of_their_own(data, tiny):
    config = unregularized.configure(tiny)
    configs = [config, config, config, config.replace(seed=1), config.replace(mask_seed=1)]
    models, tasks, _ = start_cohort(configs, [data] * 5, [0, 1, 2, 0, 0])
    weights = np.asarray(models.stages[1].spectral.weight_real)  # pyright: ignore[reportFunctionMemberAccess]
    apart = np.abs(weights[:, None] - weights).mean((2, 3, 4)) / np.abs(weights).mean()
    # Independent draws lie about as far apart as they are large. The seed of a mask draws no weights.
    draws = [0, 1, 2, 3, 0]
    np.testing.assert_array_equal(apart > 0.5, np.not_equal.outer(draws, draws))
    assert apart[0, 4] == 0
    # Batches and noise are drawn from the same keys.
    keys = np.asarray(jax.random.key_data(tasks.key))
    assert len({key.tobytes() for key in keys}) == 4
    alone = start_cohort([config], [data])[0]
    for a, b in zip(leaves(unstack(models, 0)), leaves(unstack(alone, 0)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["xreg+temperature", "ensemble", "dropout+conformal"])
def test_a_row_has_the_scores_of_its_own_models_and_splits(name, trajectories, tiny):
    """Seed 3: the part of reg that wrappers use is the one that its training never saw; reg is scored as a whole."""
    [point] = plan("grid", methods=name, seeds=1, first_seed=3, grid=["mask_seed=3"], base=tiny.replace(num_samples=2))
    method, whole = point.method, make_data(trajectories, point.config.data)
    [members] = scoring.trainings_of(point)
    assert [training.member for training in members] == list(range(method.members))
    trained = {}
    for number, training in enumerate(members):
        last = build_model(training.config.model, whole.train, key=jax.random.key(number))
        # The last member of the ensemble has diverged.
        trained[training.key(trajectories.digest)] = Trained(last, last, 0.0, 7 if number == 2 else -1)
    assert len(trained) == method.members
    seen = members[0].data(trajectories)
    expected = read_out(method, [list(trained.values())], seen, 5)
    [(key, row)] = scoring.score_trials({"it": point}, trained, trajectories)
    assert (key, row["notes"], row["seed"], row["method"]) == ("it", expected.notes, 3, name)
    assert row["diverged"] is (name == "ensemble")
    assert row["sigma"] == (sigma_per_site(expected.models[0]) if name != "ensemble" else {})
    for split, pairs in (("test", whole.test), ("reg", whole.reg), ("train", whole.train)):
        scores = evaluate(expected.predictor, pairs)
        if split == "test":  # five steps of four trajectories
            points = point_scores(expected.predictor, pairs, key=evaluation_key(0))
            final = points.std_mu.reshape(4, 5, *points.std_mu.shape[1:])[:, -1].mean()
            scores["std_mu_final"] = pytest.approx(final, rel=1e-5)
        assert row[split] == scores
    if name == "xreg+temperature":
        learned, kept = (set(np.asarray(pairs.rows).tolist()) for pairs in (seen.reg, seen.held_out))
        assert learned | kept == set(range(70, 76))
        assert not learned & kept


def test_stopped_early_a_model_is_the_one_of_its_lowest_nll(cached_waves, tiny, tmp_path):
    """One train trajectory is soon learned by heart: the best on reg is long before the last."""
    base = tiny.replace(train_size=1, learning_rate=1e-2, schedule="constant")
    methods = "unregularized,unregularized+early"
    points = plan("grid", methods=methods, seeds=2, steps=120, grid=["mask_seed=3"], base=base)
    rows = {(row["method"], row["seed"]): row for row in run_sweep(points, tmp_path / "s", progress=False)}
    assert len({trial_key(point, cached_waves.digest) for point in points}) == 4
    [history] = (tmp_path / "s" / "trained").glob("*.jsonl")
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    for seed in (0, 1):
        nll = [line["reg_nll"] for line in lines[seed::2]]
        assert len(nll) == 12
        assert min(nll) < nll[-1] - 0.1
        assert nll.index(min(nll)) < 10
        # Without noise, what the loop looks at is what is scored.
        assert rows["unregularized+early", seed]["reg"]["nll"] == pytest.approx(min(nll), abs=1e-3)
        assert rows["unregularized", seed]["reg"]["nll"] == pytest.approx(nll[-1], abs=1e-3)


@pytest.mark.parametrize(("steps", "horizon"), [(3, 3), (54, 50)])
def test_growth_is_fitted_to_rollouts_as_long_as_reg_has_them_up_to_50(steps, horizon, monkeypatch):
    fields = np.random.default_rng(3).normal(size=(POOL_SIZE, 55, 1, 6)).astype(np.float32)
    config = DataConfig(train_size=3, reg_size=4, test_size=2, observed_fraction=1.0, train_horizon=2, reg_steps=steps)
    made = make_data(Trajectories(fields, fields[: len(TEST_POOL)] + 1, {}, ""), config, check=False)
    asked = []

    def noted(predictor, pairs, steps):
        asked.append((pairs.pairs_per_row, steps))
        return fit_growth(predictor, pairs, steps)

    monkeypatch.setattr(readout, "fit_growth", noted)
    read_out(parse_method("persistence+growth"), [], made, 4)
    assert asked == [(steps, horizon)]
