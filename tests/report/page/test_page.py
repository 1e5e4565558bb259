"""The page of `crossreg report`: what it is made from, and that nothing it reads can break it or become markup."""

import base64
import dataclasses
import json
import math

import numpy as np
import pytest
from made_runs import STEPS, fields, history, inside, scores, write_run

from crossreg.cli.main import main
from crossreg.config import Config
from crossreg.errors import InputError
from crossreg.progress.history import history_line
from crossreg.report.page import folders, write
from crossreg.report.page.fields import embed, encode, load_entries
from crossreg.report.page.folders import Sweep, find
from crossreg.report.page.lines import described, mean_history
from crossreg.report.page.write import LARGEST, make_groups, write_report
from crossreg.runs.fields.stored_fields import Planes


def test_seeds_become_lines_and_curves_with_their_intervals(runs, tmp_path):
    page = inside(write_report(runs, tmp_path / "r.html"))
    [group] = page["groups"]
    assert [regime["label"] for regime in group["regimes"]] == [
        "0.5 observed, 50 trajectories",
        "0.9 observed, 50 trajectories",
    ]
    assert [line["label"] for line in group["regimes"][1]["lines"]] == ["xreg", "dropout"]
    line = group["regimes"][1]["lines"][0]
    assert line["seeds"] == 3
    expected = np.mean([scores(0.9 + 0.1 * seed)["coverage"] for seed in range(3)], axis=0)
    np.testing.assert_allclose(line["coverage"]["test"], expected)
    assert line["history"]["step"] == list(STEPS)
    losses = [np.mean([history(step, 0.9 + 0.1 * seed)["train_loss"] for seed in range(3)]) for step in STEPS]
    np.testing.assert_allclose(line["history"]["train_loss"], losses)
    nll = next(curve for curve in group["curves"] if curve["y"] == "test NLL")
    xreg = nll["series"][0]
    assert (nll["x"], xreg["label"], xreg["x"]) == ("observed fraction", "xreg", [0.5, 0.9])
    values = [[scores(f + 0.1 * seed)["nll"] for seed in range(3)] for f in (0.5, 0.9)]
    np.testing.assert_allclose(xreg["y"], np.mean(values, axis=1))
    # Student's t with two degrees of freedom.
    np.testing.assert_allclose(xreg["half"], 4.302653 * np.std(values, axis=1, ddof=1) / math.sqrt(3), rtol=1e-6)
    spread = next(curve for curve in group["curves"] if curve["y"].startswith("mean Std"))
    assert (spread["x"], spread["series"][0]["x"]) == ("hidden fraction", [0.5, 0.1])
    assert [entry["label"] for entry in page["entries"]] == [
        f"{method}, {fraction} observed, 50 trajectories, seed 0"
        for fraction in (0.5, 0.9)
        for method in ("xreg", "dropout")
    ]


def test_a_geometric_mean_over_channels_and_what_is_missing():
    lines = [history(50, 0.0) | {"sigma": {"a": [0.01, 1.0, None]}}, history(100, 0.0) | {"sigma": {"a": [0.0]}}]
    lines = [line for line in map(history_line, lines) if line]
    mean = mean_history([lines])
    assert mean["sigma"]["a"] == [pytest.approx(0.1), None]
    assert mean_history([lines, lines[:1]])["step"] == [50, 100]


def test_long_histories_are_thinned_and_keep_their_ends():
    lines = [history_line(history(step, 0.0)) for step in range(50, 20_050, 50)]
    mean = mean_history([[line for line in lines if line]])
    assert (len(mean["step"]), mean["step"][0], mean["step"][-1]) == (100, 50, 20_000)
    gaps = np.diff(mean["step"])
    assert gaps.max() - gaps.min() <= 50
    np.testing.assert_allclose(mean["train_loss"], [history(step, 0.0)["train_loss"] for step in mean["step"]])


def test_a_page_that_would_be_too_large_is_refused(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(write, "LARGEST", 50_000)
    assert main(["report", str(runs), "--output", str(tmp_path / "r.html"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "MB" in said
    assert "one by one" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "r.html").exists()


def test_folders_that_are_too_deep_are_named(runs, tmp_path):
    deep = runs / "1/2/3/4/5/6"
    write_run(deep / "run", Config().replace(steps=150, seed=9))
    write_run(runs / "1/2/3/4/5/run", Config().replace(steps=150, seed=8))
    found = find(runs)
    assert "1/2/3/4/5/run" in {run.name for run in found.runs}
    assert found.problems == [("1/2/3/4/5/6", "not read, since it is more than 6 levels deep")]
    assert "more than 6 levels deep" in write_report(runs, tmp_path / "r.html").read_text()


def test_reading_says_how_far_it_is(runs, monkeypatch):
    counted = []

    class Display:
        def __init__(self, what, *, enabled):
            self.what = what if enabled else ""

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, done, total):
            counted.append((self.what, done, total))

    monkeypatch.setattr(folders, "CountDisplay", Display)
    find(runs, progress=True)
    assert counted == [("folders read", number, 12) for number in range(1, 13)]
    find(runs)
    assert counted[-1] == ("", 12, 12)


def test_a_sweep_named_runs_hides_no_single_run(runs):
    found = find(runs)
    rows = [run.row for run in found.runs if run.row is not None]
    sweep = Sweep("runs", runs / "runs", {}, rows[:1], {}, 0)
    with_sweep = dataclasses.replace(found, sweeps=[sweep])
    entries = load_entries(with_sweep, make_groups(with_sweep))
    assert sum(entry.fields is not None for entry in entries) == 4
    assert "sweep.json" in entries[-1].why


def test_arrays_survive_the_page(runs, tmp_path):
    # Two steps of two channels in very different units, and one of which nothing is known.
    values = np.array([[0.5, -2.0, np.nan], [1e5, -2e5, 7.0], [np.nan] * 3], np.float32)
    values = np.stack([values, np.array([[np.inf, 1e-4, 2.0], [3.0, 0.0, 1e4], [np.inf] * 3], np.float32)])
    stored = encode(values)
    assert stored["tops"] == [2.0, 2e5, 1.0]
    numbers = np.frombuffer(base64.b64decode(stored["data"]), "<i2").reshape(values.shape)
    tops = np.asarray(stored["tops"])[:, None]
    read = np.where(numbers == -32768, np.nan, numbers * (tops / 32767))
    np.testing.assert_allclose(read / tops, np.where(np.isfinite(values), values, np.nan) / tops, atol=1 / 60_000)
    # A field is kept from the middle of its range: a pressure has the digits of its spread.
    pressure = np.float32(1e5) + values
    stored = encode(pressure, centred=True)
    numbers = np.frombuffer(base64.b64decode(stored["data"]), "<i2").reshape(values.shape)
    tops, origins = (np.asarray(stored[name])[:, None] for name in ("tops", "origins"))
    assert origins[0, 0] == pytest.approx(1e5, abs=3)
    read = np.where(numbers == -32768, np.nan, numbers * (tops / 32767) + origins)
    np.testing.assert_allclose(read[:, 0], np.where(np.isfinite(values), pressure, np.nan)[:, 0], rtol=0, atol=1e-3)


def test_room_is_shared(runs):
    found = find(runs)
    entries = load_entries(found, make_groups(found))
    sizes = [len(json.dumps(entry)) for entry in embed(entries, LARGEST)]
    assert [len(e["trajectories"]) for e in embed(entries, LARGEST)] == [3] * 4
    for room in (sum(sizes), sum(sizes) // 2, sum(sizes) // 8):
        shown = embed(entries, room)
        assert sum(len(json.dumps(entry["trajectories"])) for entry in shown) <= room
        assert all(entry["trajectories"] or "left out" in entry["why"] for entry in shown)
    assert len(embed(entries, 0)) == 4


def test_planes_take_no_more_room_than_there_is(runs):
    """Of many large planes fewer trajectories are kept, those that the page shows first, and then none."""
    found = find(runs)
    entries = load_entries(found, make_groups(found))
    numbers = np.asarray([0, 1, 4])
    shape = (3, 3, 2, 40, 30)
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    names = ("truth", "error", "std_mu", "std_predictive", "std_generalization")
    planes = Planes(numbers, 1, np.asarray([1, 5, 9]), np.ones((3, 3, 40, 30), bool), **dict.fromkeys(names, values))
    assert all(entry.fields is not None for entry in entries)
    entries = [e._replace(fields=e.fields and e.fields._replace(planes=planes)) for e in entries]
    one = int(values[0].size * 10 * 4 / 3 + 3 * 40 * 30 * 4 / 3)
    kept = {}
    for room in (LARGEST, 8 * one, 3 * one, one // 4):
        shown = embed(entries, room)
        assert sum(len(json.dumps(entry["trajectories"] + entry.get("planes", []))) for entry in shown) <= room
        kept[room] = [[plane["number"] for plane in entry.get("planes", [])] for entry in shown]
    assert kept[LARGEST] == [[4, 0, 1]] * 4  # first the trajectory with the worst region
    assert kept[8 * one] == [[4]] * 4
    assert kept[3 * one] == kept[one // 4] == [[]] * 4


def test_what_cannot_be_reported_is_refused_in_one_line(runs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "sweep.json").write_text("{}")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "test_cars.npz").write_text("x")
    out = str(tmp_path / "r.html")
    (tmp_path / "mine.html").write_text("<html>mine</html>")
    for folder, output, message in (
        (runs, tmp_path / "mine.html", "exists already, and was not written by crossreg"),
        (tmp_path / "none", out, "no such folder"),
        (tmp_path / "empty", out, "nothing below it"),
        (tmp_path / "odd", out, "nothing below it"),
        (tmp_path / "half", out, "nothing below it"),
        (runs, tmp_path, "is a folder"),
        (runs, tmp_path / "x.pdf", "ends in .html"),
        (runs, tmp_path / "no" / "x.html", "there is no folder"),
    ):
        assert main(["report", str(folder), "--output", str(output)]) == 2
        said = capsys.readouterr()
        assert message in said.err
        assert said.err.count("\n") == 1
        assert said.out == ""
    assert not (tmp_path / "r.html").exists()
    assert (tmp_path / "mine.html").read_text() == "<html>mine</html>"


def test_equal_runs_and_unfinished_ones_are_told_apart(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / "runs" / name, Config().replace(steps=150))
    (write_run(tmp_path / "runs" / "three", Config().replace(steps=300, seed=5)) / "metrics.json").unlink()
    found = find(tmp_path / "runs")
    [group] = make_groups(found)
    assert [line["label"] for line in described(group)["regimes"][0]["lines"]] == ["xreg", "xreg (two)"]
    write_report(tmp_path / "runs", tmp_path / "r.html")
    page = write_report(tmp_path / "runs", tmp_path / "r.html").read_text()  # its own page it may replace
    assert "not finished: its training was stopped after step 150 of 300 (model.npz is missing)" in page
    [line] = inside(tmp_path / "r.html")["groups"][1]["regimes"][0]["lines"]
    assert (line["label"], line["history"]["step"]) == ("xreg (three)", list(STEPS))


def test_a_run_without_fields_says_why(tmp_path):
    folder = write_run(tmp_path / "run", Config().replace(steps=150), with_fields=False)
    [entry] = inside(write_report(folder, tmp_path / "r.html"))["entries"]
    assert "its training has not finished (model.npz is missing)" in entry["why"]
    assert entry["trajectories"] == []


def test_a_page_says_what_it_shows_of_a_field(tmp_path):
    folder = write_run(tmp_path / "run", Config().replace(steps=150))
    [entry] = inside(write_report(folder, tmp_path / "r.html"))["entries"]
    stored = fields()
    assert [t["number"] for t in entry["trajectories"]] == [4, 0, 1]  # first the one with the worst region
    assert (entry["channels"], entry["points"], entry["scanned"]) == (2, 18, 8)
    assert entry["unaware"][0]["ratio"] == pytest.approx(5)
    assert entry["pit"] == stored.pit.tolist()
    with pytest.raises(InputError, match="no such folder"):
        find(tmp_path / "nothing")
