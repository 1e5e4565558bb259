"""What is not complete is shown as far as it is, with the reason in a line; and what a quickstart compares with."""

import json
import os
import time

import numpy as np
import pytest
from made_car_run import write_folder
from made_runs import STEPS, history, inside, scores, write_run
from watch_folders import write_sweep

from crossreg.cli.main import main
from crossreg.config import Config
from crossreg.methods.names import config_of
from crossreg.report.figures.drawing import method_looks
from crossreg.report.looks import COLORS
from crossreg.report.page.folders import find
from crossreg.report.page.write import make_groups, write_report


def spoilt(folder, **files):
    """A run of 300 steps whose files are changed, or removed with None."""
    write_run(folder, Config().replace(steps=300))
    for name, text in files.items():
        path = folder / name.replace("_", ".", 1)
        path.unlink() if text is None else path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"metrics_json": None}, "its training was stopped after step 150 of 300 (model.npz is missing)"),
        ({"metrics_json": None, "model_npz": "x"}, "trained, but not scored"),
        ({"metrics_json": "{"}, "metrics.json is corrupted"),
        ({"metrics_json": '{"reg": 1}'}, "metrics.json has no test scores"),
        ({"metrics_json": None, "metrics_jsonl": None}, "stopped before its first evaluation on reg"),
        ({"metrics_json": None, "progress_json": '{"step": 200}'}, "it is still training, step 150 of 300"),
        ({"metrics_json": None, "progress_json": '{"now": "scoring"}'}, "it is being scored"),
        ({"config_yaml": "data: [1"}, "its settings cannot be read"),
    ],
)
def test_the_reason_is_the_one_there_is(tmp_path, files, why):
    spoilt(tmp_path / "runs" / "half", **files)
    [item] = find(tmp_path / "runs").unfinished
    assert why in item.why
    assert (item.name, item.kind) == ("half", "run")
    page = write_report(tmp_path / "runs", tmp_path / "r.html")
    assert why.replace("'", "&#x27;") in page.read_text()
    if "metrics_jsonl" not in files:
        line = inside(page)["groups"][0]["regimes"][0]["lines"][0]
        assert line["history"]["step"] == list(STEPS)
        assert line["history"]["train_loss"] == [history(step, 0.0)["train_loss"] for step in STEPS]
    if "config_yaml" not in files:
        assert item.settings["train"]["steps"] == 300


def test_a_process_that_was_killed_is_not_training(tmp_path):
    folder = spoilt(tmp_path / "runs" / "half", metrics_json=None, progress_json="{}")
    before = time.time() - 600
    os.utime(folder / "progress.json", (before, before))
    [item] = find(tmp_path / "runs").unfinished
    assert "stopped" in item.why


def test_a_diverged_one_says_so(tmp_path):
    folder = spoilt(tmp_path / "runs" / "half", metrics_json=None)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(history(200, 0.0) | {"diverged_at": 1170}) + "\n{")
    [item] = find(tmp_path / "runs").unfinished
    assert item.why.endswith("; 1 line of metrics.jsonl could not be read; it diverged at step 1,170")


def test_a_sweep_that_has_begun(tmp_path):
    _, folder = write_sweep(tmp_path / "runs" / "sweep")
    whole = find(tmp_path / "runs")
    assert (whole.sweeps[0].missing, whole.unfinished) == (0, [])
    rows = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    (folder / "rows.jsonl").write_text("".join(rows[:1]))
    found = find(tmp_path / "runs")
    assert (found.sweeps[0].missing, len(found.unfinished)) == (3, 1)
    assert found.unfinished[0].why.startswith("3 of 4 runs are missing: it was stopped")
    # A row that does not say how long it was trained cannot be compared, and counts as missing.
    odd = json.loads(rows[1]) | {"steps": None}
    (folder / "rows.jsonl").write_text("".join([rows[0], json.dumps(odd) + "\n", *rows[2:]]))
    found = find(tmp_path / "runs")
    assert (len(found.sweeps[0].rows), found.sweeps[0].missing) == (3, 1)
    assert found.unfinished[0].why.startswith("1 of 4 runs are missing")
    # Without a single row there are curves all the same, by method, regime and seed.
    (folder / "rows.jsonl").unlink()
    [item] = find(tmp_path / "runs").unfinished
    assert "4 of 4 runs are missing" in item.why
    assert item.settings["train"]["steps"] == json.loads((folder / "sweep.json").read_text())["steps"]
    assert next(iter(item.histories)) == "xreg, 0.4 observed, 50 trajectories, seed 0"
    page = write_report(tmp_path / "runs", tmp_path / "r.html")
    [regime] = inside(page)["groups"][0]["regimes"]
    assert regime["lines"][0]["history"]["step"] == [10, 20]
    assert "Sweep" not in page.read_text().split("</style>")[1].split("<script")[0]


def test_cars_without_their_scores(tmp_path, cars):
    folder = tmp_path / "runs" / "cars"
    folder.mkdir(parents=True)
    write_folder(folder, cars)
    steps = [json.loads(line)["step"] for line in (folder / "history" / "xreg.jsonl").read_text().splitlines()]
    (folder / "summary.json").unlink()
    [item] = find(tmp_path / "runs").unfinished
    assert (item.kind, "stopped before it was scored" in item.why) == ("car experiment", True)
    assert [line["step"] for line in item.histories["xreg"]] == steps
    # Before there are any test cars, the settings say what it is.
    (folder / "test_cars.npz").unlink()
    (folder / "config.yaml").write_text("cars: {train_size: 20}\ntrain: {steps: 300}\n")
    [item] = find(tmp_path / "runs").unfinished
    assert (item.kind, item.settings["cars"]) == ("car experiment", {"train_size": 20})


def test_persistence_of_every_quickstart_below(tmp_path):
    for place, fraction in (("a/quick", 0.7), ("b", 0.5)):
        config = Config().replace(observed_fraction=fraction, steps=150)
        write_run(tmp_path / "runs" / place / "xreg", config)
        splits = {split: scores(3.0 + fraction) for split in ("test", "reg", "train")}
        summary = {"methods": {"xreg": splits, "persistence": splits}, "references": {"persistence-masked": splits}}
        (tmp_path / "runs" / place / "summary.json").write_text(json.dumps(summary))
    found = find(tmp_path / "runs")
    [group] = make_groups(found)
    lines = {(line.method, line.regime["observed_fraction"]): line for line in group.lines}
    assert set(lines) == {(m, f) for m in ("xreg", "persistence", "persistence-masked") for f in (0.5, 0.7)}
    assert lines["persistence", 0.5].values("test_nll") == [scores(3.5)["nll"]]
    assert "persistence-masked" in write_report(tmp_path / "runs", tmp_path / "r.html").read_text()
    # Nothing above the folder that is reported is read.
    assert find(tmp_path / "runs" / "b" / "xreg").references == []


def test_looks_are_those_of_the_figures(tmp_path):
    for method in ("xreg", "unregularized", "dropout"):
        write_run(tmp_path / "runs" / method, config_of(method, Config().replace(steps=150)))
    write_run(tmp_path / "runs" / "heads", Config().replace(steps=150, feature_noise="none"))
    [group] = inside(write_report(tmp_path / "runs", tmp_path / "r.html"))["groups"]
    drawn = method_looks(group["looks"])
    assert {name: COLORS[color] for name, (color, _) in group["looks"].items()} == {
        name: look["color"] for name, look in drawn.items()
    }
    assert group["looks"]["xreg"] == [0, 0]
    assert group["looks"]["xreg-heads"] == [0, 1]
    assert group["looks"]["unregularized"] == [3, 0]


def test_a_report_has_a_place_of_its_own(tmp_path, capsys):
    folder = write_run(tmp_path / "run", Config().replace(steps=150))
    assert main(["report", str(folder), "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert (folder / "report.html").exists()
    for command in ("report", "figures", "watch", "table"):
        assert main([command, str(folder / "config.yaml")]) == 2
        assert "config.yaml: is a file; name the folder" in capsys.readouterr().err
        assert main([command, str(folder / "none")]) == 2
        assert "none: no such folder" in capsys.readouterr().err


def test_times_and_versions_of_sweeps_and_cars(tmp_path, cars):
    _, folder = write_sweep(tmp_path / "runs" / "sweep")
    plan = json.loads((folder / "sweep.json").read_text())
    starts = [{"crossreg": "0.1", "jax": "9.8.7", "python": "3.99", "device": "a fast one"}]
    (folder / "sweep.json").write_text(json.dumps(plan | {"starts": starts}))
    os.utime(folder / "trained" / "abc.json", (1e9, 1e9))
    os.utime(folder / "rows.jsonl", (1e9 + 90, 1e9 + 90))
    (tmp_path / "runs" / "cars").mkdir()
    write_folder(tmp_path / "runs" / "cars", cars)
    (tmp_path / "runs" / "cars" / "versions.json").write_text(json.dumps({"jax": "6.5.4", "device": "another"}))
    os.utime(tmp_path / "runs" / "cars" / "versions.json", (2e9, 2e9))
    os.utime(tmp_path / "runs" / "cars" / "summary.json", (2e9 + 3600, 2e9 + 3600))
    text = write_report(tmp_path / "runs", tmp_path / "r.html").read_text()
    for said in (
        "crossreg 0.1, jax 9.8.7, python 3.99", "a fast one", "2001-09-09 01:48 UTC, about 1:30 after it began",
        "jax 6.5.4", "another", "2033-05-18 04:33 UTC, about 1:00:00 after it began",
    ):  # fmt: skip
        assert said in text
    np.testing.assert_equal(find(tmp_path / "runs").cars[0].versions["jax"], "6.5.4")
