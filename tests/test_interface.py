"""The public interface: names, what old names do, and a result that is saved and loaded."""

import dataclasses
import json
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import optax
import pytest

import crossreg as xr
from crossreg.data.load import ARRAYS, load_config
from crossreg.fitting import fit
from crossreg.forecasts.rollout import rollout
from crossreg.nn.surrogate import surrogate_in
from crossreg.objectives import scaled_crps
from crossreg.runs.final_scores import final_metrics
from crossreg.studies import train
from made_fields import fields

SMALL = xr.ModelConfig(width=4, num_blocks=2, num_modes=3)
QUICK: dict[str, Any] = {"steps": 20, "batch_size": 4, "num_samples": 3, "evaluation_samples": 4, "evaluate_every": 10}
NAMES = {
    "Config", "Data", "DataConfig", "Fit", "Forecast", "InUnits", "InputError", "Mixture", "ModelConfig", "Run",
    "TrainConfig", "build_model", "cross_regularize", "data", "evaluate", "export", "fit", "forecasts", "load",
    "load_run", "methods", "metrics", "nn", "predict", "preset", "rollout",
}  # fmt: skip


def test_the_public_names():
    assert set(dir(xr)) == NAMES
    for name in NAMES:
        assert getattr(xr, name) is not None
    for package in (xr.data, xr.export, xr.forecasts, xr.methods, xr.metrics, xr.nn):
        for name in dir(package):  # a module of the same name would take its place once it is imported
            assert not isinstance(getattr(package, name), ModuleType), name
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
            _ = package.nothing
    with pytest.raises(AttributeError, match="module 'crossreg' has no attribute 'nothing'"):
        _ = xr.nothing


@pytest.mark.parametrize("name", sorted(xr._MOVED))
def test_an_old_name_is_the_new_one_and_warns(name):
    with pytest.warns(DeprecationWarning, match=f"crossreg.{name} is now crossreg.{xr._MOVED[name]}"):
        old = getattr(xr, name)
    assert name in ("load_data", "load_file") or old is eval(f"xr.{xr._MOVED[name]}")


def test_importing_the_package_imports_no_jax():
    program = "import sys, crossreg.data, crossreg.methods, crossreg.metrics, crossreg.nn, crossreg.export;"
    subprocess.run([sys.executable, "-c", f"{program} assert 'jax' not in sys.modules"], check=True)


def test_the_old_order_of_fit_works_with_a_warning(tmp_path):
    """Without the type checks of the tests, as a user runs it."""
    np.save(tmp_path / "u.npy", fields(channels=1, samples=12))
    program = """
import sys, warnings
import crossreg as xr
warnings.simplefilter("ignore")
data = xr.load_file(sys.argv[1])
model = xr.build_model(xr.ModelConfig(width=2, num_blocks=1, num_modes=2), data.train)
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    old = xr.fit(model, data, steps=2, num_samples=2, progress=False)
assert "fit(model, data) is now fit(data, model)" in [str(w.message) for w in found], found
new = xr.fit(data, model, steps=2, num_samples=2, progress=False)
assert old.evaluate() == new.evaluate()
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "u.npy")], check=True)


@pytest.fixture(scope="module")
def trajectories() -> np.ndarray:
    return fields(samples=20, times=7)


@pytest.fixture(scope="module")
def data(trajectories) -> xr.Data:
    return xr.load(trajectories, observed_fraction=0.8)


@pytest.fixture(scope="module")
def result(data) -> xr.Fit:
    return fit(data, SMALL, **QUICK, progress=False)


def test_a_result_is_saved_as_a_run_and_loaded(result, data, tmp_path):
    scores = result.save(tmp_path / "run", progress=False)
    run = xr.load_run(tmp_path / "run")
    x = data.test[:3].x
    np.testing.assert_array_equal(xr.predict(run.model, x).means, result.predict(data.test[:3]).means)
    np.testing.assert_array_equal(run.predict(x).means, result.predict(x, num_samples=4).means)
    assert run.config.model == SMALL
    assert (run.config.train.steps, run.config.data.observed_fraction) == (20, 0.8)
    assert (run.config.data.train_size, run.config.data.reg_size, run.config.data.test_size) == (14, 2, 4)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == scores
    assert scores["test"] == result.evaluate(num_samples=4)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines == result.history
    assert [line["step"] for line in lines] == [10, 20]
    with pytest.raises(xr.InputError, match="already holds a run"):
        result.save(tmp_path / "run", progress=False)


def test_a_result_that_settings_do_not_describe_is_not_saved(result, data, tmp_path):
    own = fit(data, xr.build_model(SMALL, data.train), **QUICK, progress=False)
    plain = result._replace(data=result.data.split_off_calibration(0).__class__(data.train, data.reg, data.test, ""))
    part = result._replace(data=data.split_off_calibration(0))
    tuned = fit(data, SMALL, optimizer=optax.sgd(1e-3), **QUICK, progress=False)
    for odd, said in ((own, "the model"), (tuned, "the model"), (plain, "the data"), (part, "the data")):
        with pytest.raises(xr.InputError, match=f"these do not describe {said}"):
            odd.save(tmp_path / "none")
    with pytest.raises(xr.InputError, match="stopped at step 9 of 20"):
        result._replace(stopped_at=9).save(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_objective_and_an_optimizer_reach_the_training(result, data):
    def leaves(done: xr.Fit):
        return [np.asarray(leaf) for leaf in jax.tree.leaves(done.model) if hasattr(leaf, "dtype")]

    named, same = (fit(data, SMALL, reg_objective=how, **QUICK, progress=False) for how in ("crps", scaled_crps))
    for ours, theirs in zip(leaves(same), leaves(result), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert named.train.reg_objective == "crps"
    # A name is a setting, a function is none: no run folder could say what was minimised.
    assert (named.built_from, same.built_from) == (SMALL, None)
    plain = dataclasses.replace(SMALL, feature_noise="none", generalization_head=False)
    with pytest.raises(xr.InputError, match="reg_objective: nothing in this model learns on reg"):
        fit(data, plain, reg_objective=scaled_crps, **QUICK, progress=False)
    still = fit(data, SMALL, optimizer=optax.set_to_zero(), **QUICK, progress=False)

    for other in (named, still):
        assert any((a != b).any() for a, b in zip(leaves(other), leaves(result), strict=True))


def test_pairs_are_indexed(data):
    batch, index = data.test[2:9:3], np.array([2, 5, 8])
    for ours, theirs in zip(batch, data.test.gather(jax.numpy.asarray(index)), strict=True):
        if ours is not None:
            np.testing.assert_array_equal(ours, theirs)
    assert data.test[7].x.shape == (1, 2, 20)
    np.testing.assert_array_equal(data.test[[0, 7]].y[1], data.test[7].y[0])
    np.testing.assert_array_equal(data.test[-1].y, data.test[int(data.test.num_pairs) - 1].y)
    with pytest.raises(IndexError):
        data.test[10_000]


def test_a_surrogate_is_a_predictor_wherever_one_is_taken(result, data):
    for wrap in (xr.methods.fit_conformal, xr.methods.fit_temperature):
        ours = xr.evaluate(wrap(result.model, data.reg, num_samples=4), data.test)
        theirs = xr.evaluate(wrap(xr.methods.EnsemblePredictor([result.model], 4), data.reg), data.test)
        assert ours == theirs
        assert ours != xr.evaluate(result.model, data.test, num_samples=4)


@pytest.fixture(scope="module")
def run(result, trajectories, tmp_path_factory) -> xr.Run:
    """The result, saved as one that was trained on a file with the same fields."""
    folder = tmp_path_factory.mktemp("own")
    np.save(folder / "u.npy", trajectories)
    in_file = xr.load(folder / "u.npy", observed_fraction=0.8)
    result._replace(data=in_file).save(folder / "run", progress=False)
    return xr.load_run(folder / "run")


def test_a_run_is_printed_in_short(run):
    assert repr(run) == "Run: 20 steps, seed 0\nData of u.npy: 2 channels (field[0], field[1]) on 20 points"


def test_a_result_and_a_run_stand_for_their_surrogate(result, run, data, tmp_path):
    x = data.test[:3].x
    scores = xr.evaluate(result.model, data.test, num_samples=4)
    forecast = rollout(result.model, x[:, :2], 2, 3, mask=data.train.run_mask).mean
    assert np.abs(forecast - rollout(result.model, x[:, :2], 2, 3).mean).max() > 1e-3
    for holder in (result, run):
        np.testing.assert_array_equal(xr.predict(holder, x).means, xr.predict(result.model, x).means)
        assert xr.evaluate(holder, data.test, num_samples=4) == scores
        assert xr.metrics.sigma_per_site(holder) == xr.metrics.sigma_per_site(result.model)
        np.testing.assert_array_equal(rollout(holder, x[:, :2], 2, 3).mean, forecast)
        inputs = np.asarray(data.train[np.arange(int(data.train.num_pairs))].x)
        low, high = inputs.min((0, 2)), inputs.max((0, 2))
        limits = rollout(holder, x[:, :2], 2, 3).limits
        np.testing.assert_allclose(limits.low, low - 0.1 * (high - low), rtol=1e-5)
        np.testing.assert_allclose(limits.high, high + 0.1 * (high - low), rtol=1e-5)
        for fit_to in (xr.methods.fit_conformal, xr.methods.fit_temperature):
            ours, theirs = (fit_to(model, data.reg, num_samples=4) for model in (holder, result.model))
            for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
                np.testing.assert_array_equal(a, b)
        ours, theirs = (xr.methods.fit_correlation(model, data.reg) for model in (holder, result.model))
        np.testing.assert_array_equal(ours, theirs)
        ours, theirs = (xr.methods.EnsemblePredictor([one, result.model], 4) for one in (holder, result.model))
        assert xr.evaluate(ours, data.test) == xr.evaluate(theirs, data.test)
    with pytest.raises(TypeError, match="expected a surrogate, or a Fit or a Run, which hold one, not a SimpleName"):
        surrogate_in(cast(Any, SimpleNamespace(model="a name")))


def test_a_run_scores_itself_on_its_own_splits(result, run, data):
    stored = final_metrics(run.model, data, run.config)
    for split in ("train", "reg", "test"):
        assert run.evaluate(split) == result.evaluate(split, num_samples=4) == stored[split]
    assert run.evaluate() == run.evaluate(data.test) == stored["test"] != stored["reg"]
    assert run.evaluate(num_samples=2) == result.evaluate(num_samples=2) != stored["test"]
    with pytest.raises(xr.InputError, match="calibration: no such split; there are train, reg, test"):
        data.pairs_of("calibration")


def test_a_save_that_is_interrupted_leaves_nothing(result, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train, "final_metrics", interrupted)
        with pytest.raises(KeyboardInterrupt):
            result.save(tmp_path / "run", progress=False)
    assert list(tmp_path.iterdir()) == []
    result.save(tmp_path / "run", progress=False)
    assert xr.load_run(tmp_path / "run").config.train.steps == 20


def test_a_folder_called_like_the_data_is_not_read(trajectories, tmp_path, monkeypatch):
    """Neither is an array a scenario: a run of it is not compared with runs of another system."""
    monkeypatch.chdir(tmp_path)
    for name in (ARRAYS, "array"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "other.npy", fields(samples=40, times=4))
    config = xr.load(trajectories).config
    assert config is not None
    assert (config.scenario, config.data, config.sizes, config.horizons) == (ARRAYS, ARRAYS, (14, 2, 4), (6, 6))
    with pytest.raises(xr.InputError, match=r"^data: were arrays in memory, which a run does not store"):
        load_config(config)
    parts = xr.load(trajectories, split="time", train_size=2, reg_size=1, test_size=1)
    assert parts.config is not None
    assert parts.config.sizes == (2, 1, 1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda u: xr.load(data="u.npy"), "data: is given by `source`; write load('u.npy', …)"),
        (lambda u: xr.load(u, scenario="diff_ks"), "scenario: is given by `source`"),
        (lambda u: xr.load(u, trainsize=3), "trainsize: no such setting of data; did you mean train_size?"),
        (lambda u: fit(xr.load(u), stepz=3), "stepz: no such setting of training; did you mean steps?"),
        (lambda u: fit(xr.load(u), width=3), "width: no such setting of training; those of the model go into"),
    ],
)
def test_a_slip_is_named(call, said, trajectories):
    with pytest.raises(xr.InputError) as found:
        call(trajectories)
    assert str(found.value).startswith(said)
