"""The quickstart on small made-up data: what it writes, that it starts afresh, what it never removes."""

import json

import pytest

from crossreg.data.pairs import load_data
from crossreg.errors import InputError
from crossreg.methods.persistence import fit_persistence
from crossreg.metrics.evaluation import evaluate_predictor
from crossreg.studies import quickstart as module


@pytest.fixture
def small(monkeypatch, tiny, cached_waves):
    """The quickstart with a small base config."""
    monkeypatch.setattr(module, "Config", lambda: tiny)


def test_summary_figures_and_runs(small, tiny, tmp_path, capsys):
    out = tmp_path / "quickstart"
    module.quickstart(out, steps=10)
    summary = json.loads((out / "summary.json").read_text())
    assert {"xreg", "dropout", "unregularized", "persistence"} <= set(summary["methods"])
    for scores in summary["methods"].values():
        for split in ("test", "reg", "train"):
            assert {"nll", "ece_mix", "crps", "rmse", "std_mu", "coverage"} <= set(scores[split])
    for name in ("calibration", "maps_xreg", "maps_dropout", "maps_unregularized"):
        for ending in ("png", "pdf"):
            assert (out / f"{name}.{ending}").stat().st_size > 1000
    assert summary["methods"]["xreg"] == json.loads((out / "xreg" / "metrics.json").read_text())
    shown = capsys.readouterr()
    assert "persistence" in shown.out
    assert "test ECE" in shown.out
    assert all(name in shown.err for name in ("xreg", "dropout", "unregularized"))

    assert set(summary["references"]) == {"persistence-masked"}
    data = load_data(tiny.data)
    persistence = ((summary["methods"]["persistence"], False), (summary["references"]["persistence-masked"], True))
    for scores, knows_mask in persistence:
        predictor = fit_persistence(data.train, knows_mask=knows_mask)
        for split in ("test", "reg", "train"):
            assert scores[split] == evaluate_predictor(predictor, getattr(data, split))

    module.quickstart(out, steps=10, progress=False)
    assert json.loads((out / "summary.json").read_text()) == summary


def test_test_fields_are_computed_with_a_display(small, tmp_path, monkeypatch):
    told = []

    class StoppedError(Exception):
        pass

    def computed(*_, progress, **__):
        told.append(progress)
        raise StoppedError

    monkeypatch.setattr(module, "compute_test_fields", computed)
    for progress in (True, False):
        with pytest.raises(StoppedError):
            module.quickstart(tmp_path / "quickstart", steps=10, progress=progress)
    assert told == [True, False]


def test_a_folder_of_something_else_is_kept(small, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.csv").write_text("1,2")
    (tmp_path / "mine" / "summary.json").write_text("{}")
    with pytest.raises(InputError, match=r"holds data\.csv, which no quickstart wrote"):
        module.quickstart(tmp_path / "mine", steps=10)
    with pytest.raises(InputError, match="is not a folder"):
        module.quickstart(tmp_path / "mine" / "data.csv", steps=10)
    with pytest.raises(InputError, match="--steps 0"):
        module.quickstart(tmp_path / "mine", steps=0)
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"data.csv", "summary.json"}
