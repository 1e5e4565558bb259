"""`crossreg watch`: what it says is what the files hold, whatever happens to them meanwhile."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from watch_folders import SCORES, SITES, history, jsonl, write_run

from crossreg.config import Config, to_dict, to_yaml
from crossreg.methods.names import config_of
from crossreg.progress.display import TrainingDisplay
from crossreg.progress.history import geometric_mean, history_line
from crossreg.progress.sweep_display import SweepDisplay
from crossreg.report.shared.stored import method_of
from crossreg.report.watch import history as history_module
from crossreg.report.watch import listing as listing_module
from crossreg.report.watch import trainings
from crossreg.report.watch.folders import read_settings
from crossreg.report.watch.history import GrowingHistory, GrowingLines, curves
from crossreg.report.watch.inside import Inside
from crossreg.report.watch.listing import Listing
from crossreg.training.replicas import Progress, Record


def test_the_list_is_what_the_files_say(client):
    runs = client.runs()
    one = runs["deep/one", "xreg", 0]
    assert (one["state"], one["step"], one["steps"]) == ("finished", 500, 500)
    assert one["scores"]["test_nll"] == SCORES["nll"]
    assert one["scores"]["reg_ece"] == SCORES["ece_mix"]
    assert one["regime"] == {
        "observed_fraction": 0.7, "train_size": 50, "reg_size": 50, "seed": 0, "scenario": "diff_ks"
    }  # fmt: skip
    two = runs["two", "dropout", 0]
    assert (two["state"], two["step"], two["diverged_at"]) == ("unfinished", 250, 99)
    assert runs["sweep", "ensemble-2", 1]["regime"]["observed_fraction"] == 0.4
    assert runs["cars", "xreg", None]["scores"]["test_relative_l2"] == 0.16
    assert runs["cars", "vertex-mean", None]["state"] == "finished"
    # A link, to a folder or to files, is not there.
    assert {name for name, *_ in runs} == {"deep/one", "two", "sweep", "cars", "half"}
    assert runs["half", "xreg", 0]["scores"] == {}


def test_curves_are_the_histories(client):
    runs = client.runs()
    curve = client.json(f"/api/curve/{runs['deep/one', 'xreg', 0]['id']}")
    assert curve["step"] == [250, 500]
    assert curve["train_loss"]["mean"] == [history(250)["train_loss"], history(500)["train_loss"]]
    assert curve["reg_loss"]["mean"] == [None, None]
    np.testing.assert_allclose(curve["sigma"]["block1"], 0.1)
    # Two members of an ensemble: trainings 2 and 3 of the program for seed 0.
    curve = client.json(f"/api/curve/{runs['sweep', 'ensemble-2', 0]['id']}")
    assert curve["reg_nll"] == {"mean": [3.0, 3.0], "low": [2.5, 2.5], "high": [3.5, 3.5]}
    # Training 1, the second seed of xreg, diverged.
    curve = client.json(f"/api/curve/{runs['sweep', 'xreg', 1]['id']}")
    assert curve["reg_nll"]["mean"] == [1.5, None]
    assert curve["diverged"] == {"0.4 observed, 50 trajectories, seed 1": 15}
    assert client.json(f"/api/curve/{runs['cars', 'vertex-mean', None]['id']}")["step"] == []
    assert client.get("/api/curve/0123456789abcdef")[0] == 404


def test_what_trains_is_followed(client, watched):
    def record(step):
        one = np.asarray([1.0, np.nan, 3.0])
        return Record(step, one, one, one, one, one, {}, np.asarray([-1, 7, -1]))

    def progress(step, record=None):
        return Progress(step, 75.0, record, None, None)  # pyright: ignore[reportArgumentType]

    with SweepDisplay(100.0, 2, 9, folder=watched / "sweep", enabled=False) as display:
        display.begin("xreg × 3", 20, 50.0, program="abc")
        assert client.json("/api/live")["live"][0]["now"] == "compiling"
        display.update(progress(10, record(10)))
        [live] = client.json("/api/live")["live"]
        expected = {"step": 10, "steps": 20, "trained": 0.25, "number": 1, "programs": 2, "points": 9}
        assert {key: live[key] for key in expected} == expected
        assert [replica["diverged_at"] for replica in live["replicas"]] == [-1, 7, -1]
        assert [replica["reg_ece"] for replica in live["replicas"]] == [1.0, None, 3.0]
        assert live["replicas"][1]["name"] == "0.4 observed, 50 trajectories, seed 1"
        assert client.json(f"/api/curve/{live['id']}")["reg_nll"]["high"][0] == 5.5
        os.utime(watched / "sweep" / "progress.json", (time.time() - 90, time.time() - 90))
        assert len(client.json("/api/live")["live"]) == 1
        os.utime(watched / "sweep" / "progress.json", (time.time() - 300, time.time() - 300))
        found = client.json("/api/live")
        assert found["live"] == []  # what is silent does not count as training
        assert [one["silent"] for one in found["silent"]] == [pytest.approx(300, abs=20)]
        listed = client.runs()["sweep", "xreg × 3", None]
        assert (listed["state"], listed["when"]) == ("silent", pytest.approx(time.time() - 300, abs=20))
    assert not (watched / "sweep" / "progress.json").exists()
    with TrainingDisplay({"r": 750}, folders={"r": watched / "two"}, enabled=False) as display:
        display.update("r", progress(300))
        display.update("r", progress(500, record(500)))
        found = client.json("/api/live")
        [live] = found["live"]
        assert (live["step"], live["left"], live["state"]) == (500, "1:15", "training")
        display.update("r", progress(750, record(750)))
        # A step more is no other list.
        assert client.json("/api/live")["version"] == found["version"]
        assert client.json("/api/live")["live"][0]["step"] == 750
    assert client.json("/api/live")["live"] == []


def test_files_may_change_at_any_time(client, watched):
    name = client.runs()["two", "dropout", 0]["id"]
    path = watched / "two" / "metrics.jsonl"

    def steps():
        return client.json(f"/api/curve/{name}")["step"]

    with path.open("a") as file:
        file.write(json.dumps(history(500))[:40])
    assert steps() == [250]  # a line that is not whole yet waits
    with path.open("a") as file:
        file.write(json.dumps(history(500))[40:] + "\nnot JSON\n[1]\n" + '{"step": "x"}\n')
    assert steps() == [250, 500]
    version = client.json("/api/live")["version"]
    assert client.json("/api/live")["version"] == version
    shorter = path.with_name("new")
    shorter.write_text(jsonl(history(50)))
    shorter.replace(path)
    assert steps() == [50]
    path.write_text(jsonl(history(60)))
    assert steps() == [60]
    shutil.rmtree(watched / "two")
    assert client.get(f"/api/curve/{name}")[0] == 404
    assert client.json("/api/live")["version"] > version
    assert "two" not in {key[0] for key in client.runs()}


@pytest.mark.parametrize(
    "damage",
    [
        ("config.yaml", "data: [1, 2"),
        ("config.yaml", "data: &a [*a]\ntrain: {steps: .nan}"),
        ("config.yaml", "- " * 5000),
        ("config.yaml", f"model: {{width: 0x{'f' * 5000}}}"),
        ("config.yaml", "data: {scenario: 2026-01-01, train_size: [7]}"),
        ("metrics.json", '{"test": {"nll": 1e999, "crps": NaN, "rmse": true}, "reg": 5}'),
        ("metrics.json", "[" * 100_000),
        (
            "metrics.jsonl",
            '{"step": 1e400}\n{"step": 5, "sigma": {"a": [0.0, null]}, "train_loss": 1' + "0" * 400 + "}\n",
        ),
        ("progress.json", '{"replicas": [3, {"reg_nll": {}}], "step": [], "label": 7}'),
        ("metrics.jsonl", "\udcff\0".encode(errors="surrogateescape").decode("latin-1")),
    ],
)
def test_no_file_stops_it(client, watched, damage):
    (watched / "deep" / "one" / damage[0]).write_text(damage[1])
    for path in ("/api/runs", "/api/live"):
        assert client.get(path)[0] == 200
    for run in client.json("/api/runs")["runs"]:
        assert client.get(f"/api/curve/{run['id']}")[0] == 200


@pytest.mark.parametrize(
    "plan",
    [
        "[]",
        "{}",
        '{"name": 3, "seeds": 1, "config": {}}',
        '{"seeds": 1e9, "name": "grid"}',
        "{",
        json.dumps({"name": "grid", "seeds": 1, "config": {}, "data": "d", "grid": ["sites=" + "[" * 5000]}),
        json.dumps({"name": "paper", "seeds": 10**15, "config": {}, "data": "d"}),
    ],
)
def test_a_sweep_of_another_kind_has_scores_and_no_curves(client, watched, plan):
    (watched / "sweep" / "sweep.json").write_text(plan)
    runs = client.runs()
    assert runs["sweep", "xreg", 0]["scores"]["test_nll"] == SCORES["nll"]
    assert client.json(f"/api/curve/{runs['sweep', 'xreg', 0]['id']}")["step"] == []


def test_settings_that_grow_when_read_are_none(tmp_path):
    """Aliases of aliases, of which a kilobyte prints as gigabytes; nesting at which the loader in C dies."""
    levels = [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}' if n else 'lol'] * 9)}]\n" for n in range(6)]
    inside, path = Inside(tmp_path), tmp_path / "config.yaml"
    for text in ("".join(levels) + "data: {scenario: *x5}\n", "data: " + "[" * 60_000, "data: " + "{a: " * 15_000):
        path.write_text(text)
        assert read_settings(inside, ("config.yaml",)) == {}
    path.write_text(to_yaml(Config()))
    assert read_settings(inside, ("config.yaml",)) == to_dict(Config())


def test_a_plan_is_made_once_and_nobody_else_waits(watched, monkeypatch):
    monkeypatch.setattr(listing_module, "_SECONDS_BETWEEN_LOOKS", 0.0)
    planned, go_on = [], threading.Event()
    make = trainings._by_place

    def slowly(asked):
        planned.append(asked)
        assert go_on.wait(10)
        return make(asked)

    monkeypatch.setattr(trainings, "_by_place", slowly)
    listing = Listing(Inside(watched))
    rows = [run for run in listing.runs()["runs"] if run["kind"] == "sweep"]
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(listing.curve, row["id"]) for row in rows]
        assert pool.submit(listing.live).result(timeout=5)["live"] == []
        go_on.set()
        assert [curve["step"] for one in waiting if (curve := one.result(timeout=10))] == [[10, 20]] * len(rows)
    # A program more is no other plan; another start of the sweep is.
    (watched / "sweep" / "trained" / "more.json").write_text("[]")
    listing.curve(rows[0]["id"])
    assert len(planned) == 1
    asked = watched / "sweep" / "sweep.json"
    asked.write_text(asked.read_text() + "\n")
    listing.curve(rows[0]["id"])
    assert len(planned) == 2


@pytest.mark.parametrize(("most", "steps"), [(4, [10, 20]), (3, [])])
def test_a_plan_that_is_too_large_is_not_made(client, monkeypatch, most, steps):
    monkeypatch.setattr(trainings, "_MOST_POINTS", most)  # two methods with two seeds each
    for run in client.json("/api/runs")["runs"]:
        if run["kind"] == "sweep":
            assert client.json(f"/api/curve/{run['id']}")["step"] == steps


def test_what_is_not_looked_into_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(listing_module, "_SECONDS_BETWEEN_LOOKS", 0.0)
    write_run(tmp_path / "1/2/3/4/5/6", Config(), history(10))
    listing = Listing(Inside(tmp_path))
    found = listing.runs()
    assert ([run["name"] for run in found["runs"]], found["unseen"]) == (["1/2/3/4/5/6"], [])
    write_run(tmp_path / "a/b/c/d/e/f/g", Config(), history(10))
    deeper = listing.runs()
    assert len(deeper["runs"]) == 1
    assert deeper["unseen"] == ["folders more than 6 below this one, such as a/b/c/d/e/f/g"]
    assert deeper["version"] > found["version"]
    monkeypatch.setattr(listing_module, "_MOST_FOLDERS", 9)  # the root, six to the run, two of the others
    assert listing.runs()["unseen"] == ["folders beyond the first 9, such as a/b/c"]


def test_thousands_of_runs_cost_little(tmp_path, monkeypatch):
    monkeypatch.setattr(listing_module, "_SECONDS_BETWEEN_LOOKS", 0.0)
    first = write_run(tmp_path / "run0", Config(), history(10))
    for number in range(1, 600):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        for file in first.iterdir():
            os.link(file, folder / file.name)
    listing = Listing(Inside(tmp_path))
    assert len(listing.runs()["runs"]) == 600
    begun = time.process_time()
    for _ in range(5):
        listing.live()
    assert (time.process_time() - begun) / 5 < 0.1


def test_methods_are_called_as_sweeps_call_them():
    for name in ("xreg", "dropout", "unregularized"):
        assert method_of(config_of(name, Config().replace(steps=70))) == name
    assert method_of(Config().replace(generalization_head=False)) == "xreg-internal"
    assert method_of(Config().replace(sites=("block1",))) == "own settings"


def test_curves_are_means_over_those_that_go_on(tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_text(jsonl(*({"training": str(n)} | history(10, float(n), 5 if n == 3 else -1) for n in range(4))))
    inside, lines = Inside(tmp_path), GrowingLines(history_line)
    stamp = inside.files(())[0]["h.jsonl"]
    assert lines.update(inside, ("h.jsonl",), stamp)
    assert not lines.update(inside, ("h.jsonl",), stamp)
    found = curves(lines.items)
    assert found["reg_nll"] == {"mean": [1.5], "low": [0.5], "high": [2.5]}
    assert found["diverged"] == {"3": 5}
    assert list(found["sigma"]) == list(SITES)


def test_of_a_long_history_evenly_spaced_steps_and_the_newest_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(history_module, "_FEWEST_STEPS", 4)
    read = []
    monkeypatch.setattr(history_module, "parsed", lambda line: read.append(line) or json.loads(line))
    path, inside, lines = tmp_path / "h.jsonl", Inside(tmp_path), GrowingHistory(history_line)
    for number in range(1, 72):
        with path.open("a") as file:
            file.write(jsonl(*({"training": name} | history(10 * number, float(name)) for name in "012")))
        if number % 7 in (1, 2) or number < 9:
            lines.update(inside, ("h.jsonl",), inside.files(())[0]["h.jsonl"])
            steps = list(dict.fromkeys(line["step"] for line in lines.items))
            assert [line["training"] for line in lines.items] == ["0", "1", "2"] * len(steps)
            assert steps[-1] == 10 * number
            apart = next(stride for stride in (1, 2, 4, 8, 16) if number <= 8 * stride)
            assert steps == list(dict.fromkeys([*range(10, 10 * number + 1, 10 * apart), 10 * number]))
    found = curves(lines.items)
    assert found["step"] == [10, 170, 330, 490, 650, 710]
    assert found["reg_nll"]["mean"] == [1.5] * 6
    # The whole file at once: lines that are not kept are not parsed either.
    read.clear()
    again = GrowingHistory(history_line)
    again.update(inside, ("h.jsonl",), inside.files(())[0]["h.jsonl"])
    assert curves(again.items) == found
    assert len(read) < 3 * (8 + 4 + 4 + 4 + 4 + 2)
    # Cut and written anew, it is another.
    path.write_text(jsonl(*(history(step) for step in (5, 6))))
    again.update(inside, ("h.jsonl",), inside.files(())[0]["h.jsonl"])
    assert [line["step"] for line in again.items] == [5, 6]


def test_a_geometric_mean_is_of_what_is_positive():
    assert geometric_mean([0.01, 1.0, 10.0]) == pytest.approx(0.1 ** (1 / 3))
    assert geometric_mean([1e308, 1e308]) == pytest.approx(1e308)
    assert geometric_mean([0.0, 4.0, None, 9.0, float("nan"), -1.0, "x", True]) == pytest.approx(6.0)
    for values in ([], [0.0, -1.0], [None, float("inf")]):
        assert geometric_mean(values) is None
    line = history_line({"step": 7, "sigma": {"a": [4.0, 9.0], "b": [0.0], "c": 3}, "reg_std_mu": 0.5, "reg_nll": "x"})
    assert line is not None
    assert line["sigma"] == {"a": pytest.approx(6.0), "b": None, "c": None}
    assert (line["reg_std_mu"], line["reg_nll"], line["diverged_at"]) == (0.5, None, -1)
    assert history_line({"step": 7.5}) is None
    assert history_line([1]) is None


def test_the_device_is_left_to_those_who_train(watched):
    """JAX takes most of a GPU's memory once it has looked for one."""
    code = (
        "import pathlib, sys, jax._src.xla_bridge as bridge\n"
        "from crossreg.report.watch.inside import Inside\n"
        "from crossreg.report.watch.listing import Listing\n"
        "listing = Listing(Inside(pathlib.Path(sys.argv[1])))\n"
        "steps = [len(listing.curve(run['id'])['step']) for run in listing.runs()['runs']]\n"
        "assert sum(steps) > 5, steps\n"
        "assert not bridge.backends_are_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(watched)], check=True)
