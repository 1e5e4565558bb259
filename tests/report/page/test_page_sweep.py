"""The page of a sweep: its rows, and the test fields that are made from its stored models."""

import json
import re
import sys

import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.config import Config, to_yaml
from crossreg.data.apebench import load_trajectories
from crossreg.data.keys import evaluation_key
from crossreg.metrics.evaluation import point_scores
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.report.page.folders import find
from crossreg.report.page.rows import row_of_run
from crossreg.runs.archive import Archive
from crossreg.runs.sweep_folder import load_trials, sealed_row, trial_key
from crossreg.studies.sweep import fields as sweep_fields
from crossreg.studies.sweep.fields import FIELDS_FOLDER, choose, load_sweep_fields
from crossreg.studies.sweep.scoring import trainings_of


@pytest.fixture
def sweep(cached_waves, tiny, tmp_path):
    (tmp_path / "c.yaml").write_text(to_yaml(tiny))
    flags = ["--methods", "xreg,ensemble-2,persistence,ensemble-2+temperature", "--seeds", "2", "--steps", "20"]
    flags += ["--grid", "observed_fraction=0.5,0.8", "--config", str(tmp_path / "c.yaml"), "--quiet"]
    assert main(["sweep", "grid", "--out", str(tmp_path / "sweep"), *flags]) == 0
    return tmp_path / "sweep"


def test_a_sweep_is_reported_with_fields_of_its_models(sweep, tmp_path, monkeypatch):
    page = tmp_path / "r.html"
    assert main(["report", str(sweep), "--output", str(page), "--quiet"]) == 0
    data = json.loads(re.search(r'id="report">(.*?)</script>', page.read_text(), re.DOTALL)[1])  # pyright: ignore[reportOptionalSubscript]
    [group] = data["groups"]
    assert len(group["regimes"]) == 2
    lines = {line["label"]: line for line in group["regimes"][0]["lines"]}
    assert set(lines) == {"xreg", "ensemble-2", "persistence", "ensemble-2+temperature"}
    assert lines["xreg"]["history"]["step"] == [10, 20]
    assert lines["persistence"]["history"] is None
    assert {curve["y"] for curve in group["curves"]} >= {"test NLL", "test ECE"}
    assert [entry["label"].split(",")[0] for entry in data["entries"]] == ["xreg", "ensemble-2", "persistence", "xreg"]
    assert all(entry["trajectories"] for entry in data["entries"])

    # The fields are those that the scores were computed from.
    [found] = find(sweep).sweeps
    stored, missing = load_sweep_fields(sweep, found.rows)
    assert missing == {}
    row = next(row for row in found.rows if row["method"] == "ensemble-2")
    point = next(p for p in load_trials(sweep) if p.method.name == "ensemble-2")
    trajectories, archive = load_trajectories(point.config.data), Archive(sweep)
    keys = [t.key(trajectories.digest) for t in trainings_of(point)[0]]
    models = [archive.model(key, 2, (20,)) for key in keys]
    test = trainings_of(point)[0][0].data(trajectories).test
    scored = point_scores(EnsemblePredictor(models, 5), test, key=evaluation_key(0))
    np.testing.assert_allclose(stored[row["key"]].std[0], np.asarray(scored.std)[:5], rtol=2e-3, atol=1e-5)

    # Few are chosen, ours first, and none that was fitted after training.
    points = {trial_key(point, trajectories.digest): point for point in load_trials(sweep)}
    rows = {row["key"]: row for row in found.rows}
    chosen = [rows[key] for key in choose(points, found.rows, 9)]
    assert [(row["method"], row["observed_fraction"], row["seed"]) for row in chosen] == [
        ("xreg", 0.5, 0),
        ("ensemble-2", 0.5, 0),
        ("persistence", 0.5, 0),
        ("xreg", 0.8, 0),
    ]
    assert len(choose(points, found.rows, 2)) == 2

    # A folder that may only be read has them all the same.
    kept = sorted((sweep / FIELDS_FOLDER).iterdir())
    kept[1].unlink()

    def refuse(path, stored, **_):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(sweep_fields, "write_stored_fields", refuse)
        again, missing = load_sweep_fields(sweep, found.rows)
    assert (again.keys(), missing) == (stored.keys(), {})
    assert not kept[1].exists()
    load_sweep_fields(sweep, found.rows)

    # They are kept: without the data they are still there, and one that was not made says why.
    kept = sorted((sweep / FIELDS_FOLDER).iterdir())
    assert len(kept) == 4
    kept[0].unlink()
    (tmp_path / "cache").rename(tmp_path / "gone")
    for path in (sweep / "trained").glob("*.npz"):
        path.unlink()
    monkeypatch.setitem(sys.modules, "apebench", None)
    stored, missing = load_sweep_fields(sweep, found.rows)
    assert (len(stored), len(missing)) == (3, 1)
    assert "no cached data" in next(iter(missing.values()))


@pytest.mark.parametrize("odd", [{"settings": {"mask_seed": []}}, {"rollouts": {"leads": [1], "lost": [0]}}])
def test_an_odd_row_of_a_sweep_does_not_end_the_page(tmp_path, odd):
    metrics = {split: {"nll": 0.0, "ece_mix": 0.1, "coverage": [0.5] * 9} for split in ("test", "reg", "train")}
    config = Config()
    row = row_of_run("a", config, metrics, []) | {"settings": {}}
    (tmp_path / "sweep.json").write_text("{}")  # a plan that says nothing: all rows are shown
    rows = [row, row | {"key": "b", "seed": 1} | odd]
    (tmp_path / "rows.jsonl").write_text("".join(map(sealed_row, rows)))
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "r.html"), "--quiet"]) == 0
    assert "1 sweep" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("data", [None, 7, {}])
def test_a_plan_without_its_data_is_refused_in_one_line(tmp_path, capsys, data):
    asked = {"name": "paper", "methods": "xreg", "seeds": 1, "config": {}} | ({} if data is None else {"data": data})
    (tmp_path / "sweep.json").write_text(json.dumps(asked))
    (tmp_path / "rows.jsonl").write_text('{"key": "a"}\n')
    for command in ("figures", "table"):
        assert main([command, str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert "'data'" in said
        assert said.count("\n") == 1
