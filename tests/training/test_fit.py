"""`fit` that is stopped by Ctrl-C: what was trained is kept, and it says so."""

import signal

import equinox as eqx
import jax
import numpy as np
import pytest

from crossreg import fitting as module
from crossreg.fitting import fit
from crossreg.nn.build import build_model
from crossreg.progress.display import TrainingDisplay


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
    done = fit(model, data, tiny.train, progress=False)
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
    def nothing_yet(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(module, "train_replicas", nothing_yet)
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, tiny.train, progress=False)


def test_a_stop_before_the_first_look_has_no_history(model, data, tiny, monkeypatch, capsys):
    monkeypatch.setattr(TrainingDisplay, "update", lambda self, name, report: signal.raise_signal(signal.SIGINT))
    done = fit(model, data, tiny.train, progress=False)
    assert (done.stopped_at, done.history, done.diverged) == (1, [], False)


def test_a_training_that_ends_was_not_stopped(model, data, tiny, capsys):
    assert fit(model, data, tiny.train, progress=False, steps=2).stopped_at is None
    assert capsys.readouterr().err == ""
