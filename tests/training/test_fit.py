"""`fit`: the model it builds, what its result does, and Ctrl-C, which keeps what was trained."""

import dataclasses
import inspect
import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg import fitting as module
from crossreg.config import Config, DataConfig
from crossreg.data.load import make_data
from crossreg.errors import InputError
from crossreg.fitting import fit
from crossreg.methods import train_noise, unregularized
from crossreg.metrics.evaluation import evaluate
from crossreg.nn.build import build_model
from crossreg.nn.surrogate import predict
from crossreg.progress.display import TrainingDisplay
from crossreg.training.cohort import start_cohort
from crossreg.training.loop import train_replicas


@pytest.fixture
def model(data, tiny):
    return build_model(tiny.model, data.train, key=jax.random.key(1))


def test_a_stop_keeps_what_was_trained(model, data, tiny, monkeypatch, capsys):
    reports = []

    def update(self, name, report):
        reports.append(report)
        if report.step == 20:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainingDisplay, "update", update)
    done = fit(data, model, tiny.train, progress=False)
    assert (done.stopped_at, reports[-1].step, tiny.train.steps) == (20, 20, 30)
    assert [line["step"] for line in done.history] == [10, 20]
    assert not done.diverged
    assert "crossreg: fit: stopped at step 20 of 30; its model is kept\n" in capsys.readouterr().err
    kept, last, start = (
        jax.tree.leaves(eqx.filter(m, eqx.is_inexact_array)) for m in (done.model, reports[-1].models, model)
    )
    for ours, theirs in zip(kept, last, strict=True):
        np.testing.assert_array_equal(ours, theirs[0])
    assert any((a != b).any() for a, b in zip(kept, start, strict=True))


def test_a_stop_before_the_first_report_keeps_nothing(model, data, tiny, monkeypatch):
    def nothing_yet(*_, **__):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(module, "train_replicas", nothing_yet)
    with pytest.raises(KeyboardInterrupt):
        fit(data, model, tiny.train, progress=False)


def test_a_stop_before_the_first_look_has_no_history(model, data, tiny, monkeypatch, capsys):
    monkeypatch.setattr(TrainingDisplay, "update", lambda self, name, report: signal.raise_signal(signal.SIGINT))
    done = fit(data, model, tiny.train, progress=False)
    assert (done.stopped_at, done.history, done.diverged) == (1, [], False)


def test_a_training_that_ends_was_not_stopped(model, data, tiny, capsys):
    done = fit(data, model, tiny.train, progress=False, steps=2)
    assert done.stopped_at is None
    assert capsys.readouterr().err == ""
    assert repr(done) == f"Fit: 2 steps, seed 0\n{data!r}"


def test_a_training_that_diverged_says_so(model, data, tiny, capsys):
    spoiled = dataclasses.replace(data.train, trajectories=data.train.trajectories.at[0].set(jnp.inf))
    done = fit(dataclasses.replace(data, train=spoiled), model, tiny.train, progress=False)
    step = done.history[-1]["diverged_at"]
    assert done.diverged
    assert step > 0
    assert capsys.readouterr().err == f"crossreg: fit: diverged at step {step}; its last finite state is kept\n"


def test_a_fit_without_a_model_is_a_run_of_the_command_line(data, tiny):
    """The default model, bit for bit as `crossreg train` starts and trains it."""
    done = fit(data, tiny.model, tiny.train, seed=3, progress=False)
    config = tiny.replace(seed=3)
    *_, last = train_replicas(*start_cohort([config], [data]))
    ours, theirs = (jax.tree.leaves(eqx.filter(model, eqx.is_array)) for model in (done.model, last.models))
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other[0])
    assert done.built_from == tiny.model
    assert done.train == config.train
    assert [line["step"] for line in done.history] == [10, 20, 30]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"num_samples": 1},
            "num_samples is 1: noise inside the network is learned from the spread of 2 or more samples",
        ),
        ({"num_samples": 2, "reg_objective": "fair"}, "num_samples is 2: `reg_objective=fair` needs 4 or more"),
        (
            {"reg_objective": "fair", "reg_horizon": 2, "rollout_particles": 3},
            "rollout_particles is 3: `reg_objective=fair` needs 4 or more",
        ),
    ],
)
@pytest.mark.parametrize("is_built", [True, False])
def test_noise_that_could_not_be_learned_is_refused(changes, said, is_built, model, data, tiny):
    """From settings, and in a model that was built elsewhere."""
    with pytest.raises(InputError, match=f"^{said}"):
        fit(data, model if is_built else tiny.model, tiny.train, progress=False, **changes)


def test_a_model_that_learns_on_reg_needs_it(model, data, trajectories, tiny):
    without = dataclasses.replace(data, reg=make_data(trajectories, DataConfig(train_size=7, reg_size=0)).reg)
    for learns in (model, tiny.model):
        with pytest.raises(InputError, match=r"^reg_size is 0: this model learns on reg"):
            fit(without, learns, tiny.train, progress=False)
    plain = build_model(unregularized.configure(tiny).model, data.train)
    assert fit(without, plain, tiny.train, progress=False, steps=1).history


def test_predictive_noise_inside_needs_a_spread_too(data, tiny):
    """Of one sample there is none, and a CRPS of one would only shrink the noise."""
    noisy = build_model(train_noise.configure(tiny).model, data.train)
    for model in (noisy, train_noise.configure(tiny).model):
        for name in ("num_samples", "train_samples"):
            draws = {"train_samples": None, name: 1}
            train = dataclasses.replace(tiny.train, train_objective="crps", **draws)
            with pytest.raises(InputError, match=f"^{name} is 1: noise inside the network is learned from the spread"):
                fit(data, model, train, progress=False)


def test_a_fit_predicts_and_scores_with_its_own_model_and_data(data, tiny):
    done = fit(data, tiny.model, tiny.train, progress=False, steps=3)
    x = np.asarray(data.test.gather(jnp.arange(5)).x)
    key = jax.random.key(7)
    ours, theirs = done.predict(x, key=key, num_samples=4), predict(done.model, jnp.asarray(x), key=key, num_samples=4)
    np.testing.assert_array_equal(ours.mean, theirs.mean)
    np.testing.assert_array_equal(done.predict(x).means, done.predict(x).means)
    assert done.predict(x).means.shape == (30, *x.shape)
    assert done.evaluate(num_samples=4) == evaluate(done.model, data.test, num_samples=4)
    assert done.evaluate(data.reg, num_samples=4) == evaluate(done.model, data.reg, num_samples=4)
    assert done.evaluate(num_samples=4) != done.evaluate(data.reg, num_samples=4)


def test_a_network_of_your_own_is_told_what_makes_it_a_model(data):
    with pytest.raises(TypeError, match="not a Linear; `cross_regularize` makes a Surrogate of a network of your own"):
        inspect.unwrap(fit)(data, eqx.nn.Linear(2, 2, key=jax.random.key(0)), progress=False)  # pyright: ignore


@pytest.mark.parametrize("settings", [{"config": Config()}, {"config": {"steps": 3}}])
def test_settings_of_another_kind_are_named(settings, data):
    kind = type(settings["config"]).__name__
    with pytest.raises(TypeError, match=f"takes the settings of training as a TrainConfig, not as a {kind}"):
        inspect.unwrap(fit)(data, progress=False, **settings)
