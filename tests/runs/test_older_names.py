"""Scores in files of older versions get their current names: "sharpness" is the mean total standard deviation."""

import json

from crossreg.designs.car_study import CarStudy
from crossreg.runs.car_folder import finished_summary, settings_of
from crossreg.runs.file_names import METRICS
from crossreg.runs.older_names import with_current_names
from crossreg.runs.run_folder import read_metrics
from crossreg.runs.safeguards.manifest import record_json, vouch
from crossreg.runs.sweep_folder import read_rows, sealed_row

OLD = {"nll": -0.5, "sharpness": 0.25, "channel_sharpness": [0.125, 0.375]}
NOW = {"nll": -0.5, "std": 0.25, "channel_std": [0.125, 0.375]}


def test_scores_at_any_depth_get_their_names():
    assert with_current_names({"test": OLD, "test_times": {"within": OLD}, "reg": None}) == {
        "test": NOW,
        "test_times": {"within": NOW},
        "reg": None,
    }
    assert with_current_names(NOW) == NOW
    assert with_current_names([1, 2]) == [1, 2]


def test_the_metrics_of_a_run(tmp_path):
    stored = {"test": OLD, "reg": OLD, "train": None, "sigma": {"block1": [0.5, 2.0]}}
    (tmp_path / METRICS).write_text(json.dumps(stored))  # without a manifest, as the oldest versions have it
    assert read_metrics(tmp_path) == {"test": NOW, "reg": NOW, "train": None, "sigma": {"block1": [0.5, 2.0]}}
    record_json(tmp_path, METRICS, stored)
    assert read_metrics(tmp_path)["test"] == NOW


def test_the_rows_of_a_sweep(tmp_path):
    """With a digest per row, which is that of the old names, and without."""
    rows = [{"key": "a", "method": "xreg", "test": OLD}, {"key": "b", "method": "dropout", "test": NOW}]
    wanted = [{"key": "a", "method": "xreg", "test": NOW}, {"key": "b", "method": "dropout", "test": NOW}]
    for written in (sealed_row, lambda row: json.dumps(row) + "\n"):
        (tmp_path / "rows.jsonl").write_text("".join(map(written, rows)))
        assert read_rows(tmp_path) == wanted


def test_the_summary_of_a_car_experiment(tmp_path):
    study = CarStudy()
    methods = {name: {"test": OLD, "half_width": OLD} for name in ("xreg", "dropout")}
    record_json(tmp_path, "summary.json", {"settings": settings_of(study), "methods": methods})
    (tmp_path / "predictions").mkdir()
    for name in methods:
        (tmp_path / "predictions" / f"{name}.npz").write_bytes(b"whole")
        vouch(tmp_path, f"predictions/{name}.npz")
    found = finished_summary(tmp_path, study, list(methods))
    assert found is not None
    assert found["methods"] == {name: {"test": NOW, "half_width": NOW} for name in methods}
