"""The page of `crossreg report` from folders that hold anything: it says so, and nothing becomes markup or a script."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_car_run import SCORES, write_folder, write_summary
from made_runs import STEPS, fields, inside, write_run

from crossreg.cli.main import main
from crossreg.config import Config, load_yaml
from crossreg.report.page.data_names import data_names, with_names
from crossreg.report.page.folders import Found, Sweep, find
from crossreg.report.page.write import write_report
from crossreg.runs.fields.stored_fields import write_stored_fields
from crossreg.runs.file_names import TEST_FIELDS

NASTY = "</script><img src=x onerror=alert(1)>&\"'"


class Tags(HTMLParser):
    """Counts elements, and collects text outside of scripts."""

    def __init__(self):
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def test_names_and_settings_stay_text(tmp_path):
    root = tmp_path / NASTY.replace("/", "∕")
    folder = write_run(root / "a <b>bold</b> run", Config().replace(steps=150))
    write_run(root / "b", Config().replace(steps=150, scenario=NASTY))
    (folder / "versions.json").write_text(json.dumps({"device": NASTY, NASTY: [NASTY, None, math.nan]}))
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["sigma"] = {NASTY: [0.1, math.nan]}
    metrics["test"]["nll"] = math.nan
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (root / "c").mkdir()
    (root / "c" / "config.yaml").write_text(f"data: {{scenario: [{NASTY}]}}")
    text = write_report(root, tmp_path / "r.html").read_text()
    parser = Tags()
    parser.feed(text)
    assert "img" not in parser.tags
    assert parser.tags.count("script") == 3
    policy = re.search(r"script-src ([^;]*);", text)[1]  # pyright: ignore[reportOptionalSubscript]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert policy == " ".join(f"'sha256-{one}'" for one in hashes)
    assert "a <b>bold</b> run" in parser.text
    assert NASTY in parser.text
    assert "NaN" not in inside(tmp_path / "r.html").__repr__().replace("nan", "NaN")
    assert "–" in parser.text  # the score that is no number


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.json", "{"),
        ("metrics.json", '{"test": {"coverage": "x", "nll": []}, "reg": 3, "sigma": 7}'),
        ("metrics.jsonl", '{"step": 1}\n7\n{"step": "x"}\n{"step": 2, "sigma": {"a": [1, "x"]}}\n{"st'),
        ("versions.json", "[1, 2]"),
        ("test_fields.npz", "no archive"),
        ("config.yaml", "data: [1]"),
        ("config.yaml", "\x00\xff"),
    ],
)
def test_damaged_folders_give_a_page_that_says_so(tmp_path, name, content):
    write_run(tmp_path / "runs" / "good", Config().replace(steps=150))
    bad = write_run(tmp_path / "runs" / "bad", Config().replace(steps=150, seed=1, width=9))
    (bad / name).write_text(content)
    assert main(["report", str(tmp_path / "runs"), "--output", str(tmp_path / "r.html"), "--quiet"]) == 0
    text = (tmp_path / "r.html").read_text()
    assert "good" in text
    if name == "config.yaml":  # its curves are there all the same
        assert "bad</b> (run, 150 steps): its settings cannot be read: " in text
        [regime] = inside(tmp_path / "r.html")["groups"][-1]["regimes"]
        assert [(line["label"], line["history"]["step"]) for line in regime["lines"]] == [("bad", list(STEPS))]
    if name == "metrics.jsonl":
        assert "3 lines of metrics.jsonl could not be read" in text
    if name == "test_fields.npz":
        assert any(
            "not a readable file of test fields" in entry["why"] for entry in inside(tmp_path / "r.html")["entries"]
        )


@pytest.mark.parametrize(
    ("odd", "is_shown"),
    [
        ({"test": {"nll": math.nan, "ece_mix": math.inf, "coverage": [math.nan] * 9}}, True),
        ({"seeds": NASTY, "diverged": NASTY}, True),
        ({"test": {"nll": "<img>"}}, False),
        ({"over_cars": 7}, False),
    ],
)
def test_an_odd_car_experiment_gives_a_page(runs, cars, tmp_path, odd, is_shown):
    (runs / "cars").mkdir()
    write_folder(runs / "cars", cars)
    write_summary(runs / "cars", SCORES | {"xreg": SCORES["xreg"] | odd})
    assert main(["report", str(runs), "--output", str(tmp_path / "r.html"), "--quiet"]) == 0
    parser = Tags()
    parser.feed((tmp_path / "r.html").read_text())
    assert "img" not in parser.tags
    assert ("1 incomplete" in parser.text) != is_shown


def test_an_error_without_an_error_bar_is_shown(tmp_path):
    folder = write_run(tmp_path / "run", Config().replace(steps=150))
    stored = fields()
    write_stored_fields(folder / TEST_FIELDS, stored._replace(unaware=(stored.unaware[0]._replace(std=0.0),)))
    [entry] = inside(write_report(folder, tmp_path / "r.html"))["entries"]
    assert (entry["unaware"][0]["ratio"], entry["unaware"][0]["std"]) == (None, 0)


def test_a_page_names_own_files_and_not_where_they_are(tmp_path):
    """Two files of one name are told apart by their folders, and no path is anywhere in the page."""
    home = "/home/somebody/secret place"
    for name, path in (("one", f"{home}/a/flow.npz"), ("two", f"{home}/b/flow.npz"), ("three", f"{home}/c/u.h5")):
        own = {"data": path, "scenario": Path(path).name, "steps": 150}
        folder = write_run(tmp_path / "runs" / name, Config().replace(**own), with_fields=name == "one")
        if name == "three":  # never scored
            (folder / "metrics.json").unlink()
    write_run(tmp_path / "runs" / "ks", Config().replace(steps=150))
    text = write_report(tmp_path / "runs", tmp_path / "r.html").read_text()
    assert home not in text
    assert "secret" not in text
    for name in ("a/flow.npz", "b/flow.npz", "<dd>u.h5</dd>"):
        assert name in text
    alone = write_report(tmp_path / "runs" / "one", tmp_path / "one.html").read_text()
    assert "<dt>data</dt><dd>flow.npz</dd>" in alone
    assert load_yaml(tmp_path / "runs" / "one" / "config.yaml").data.data == f"{home}/a/flow.npz"


def test_a_page_of_a_sweep_names_its_file(tmp_path):
    row = {"settings": {"data": "/home/x/flow.npz", "width": 4}, "changes": {}, "key": "k"}
    asked = {"config": {"data": {"data": "/home/x/flow.npz"}}}
    found = Found("all", sweeps=[Sweep("s", tmp_path, asked, [row], {}, 0)], problems=[("x", "/home/x/flow.npz: gone")])
    names = data_names(found)
    assert names == {"/home/x/flow.npz": "flow.npz"}
    [sweep] = with_names(found, names).sweeps
    assert sweep.asked["config"]["data"]["data"] == sweep.rows[0]["settings"]["data"] == "flow.npz"
    assert with_names(found, names).problems == [("x", "flow.npz: gone")]


def test_a_report_of_an_older_run(tmp_path):
    folder = write_run(tmp_path / "run", Config(), with_fields=False)
    metrics = json.loads((folder / "metrics.json").read_text())
    wanted = metrics["test"]["std"]
    for part in (metrics["test"], metrics["reg"]):
        part["sharpness"] = part.pop("std")
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "manifest.json").unlink(missing_ok=True)
    [run] = find(folder).runs
    assert run.row["test"]["std"] == wanted
    assert "sharpness" not in run.row["test"]
