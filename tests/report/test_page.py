"""The page of `crossreg report`: what it is made from, and that nothing it reads can break it or become markup."""

import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from made_runs import STEPS, fields, history, scores, write_run

from crossreg.cli import main
from crossreg.config import Config
from crossreg.errors import InputError
from crossreg.methods import TRAINED
from crossreg.report.page.fields import embed, encode, load_entries
from crossreg.report.page.folders import find
from crossreg.report.page.lines import described, mean_history
from crossreg.report.page.write import LARGEST, make_groups, write_report

NASTY = "</script><img src=x onerror=alert(1)>&\"'"


@pytest.fixture
def runs(tmp_path):
    """Two methods in two regimes, three seeds of each, one of them two folders down."""
    root = tmp_path / "all runs"
    for method, offset in (("xreg", 0.0), ("dropout", 1.0)):
        for fraction in (0.5, 0.9):
            for seed in range(3):
                config = TRAINED[method](Config().replace(observed_fraction=fraction, seed=seed, steps=150))
                deeper = "more/" if seed == 2 else ""
                write_run(
                    root / f"{deeper}{method}-{fraction}-{seed}", config, offset + fraction + 0.1 * seed,
                    with_fields=seed == 0,
                )  # fmt: skip
    return root


def inside(path) -> dict:
    """What the page's script reads."""
    text = path.read_text()
    return json.loads(re.search(r'id="report">(.*?)</script>', text, re.DOTALL)[1])  # pyright: ignore[reportOptionalSubscript]


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
    mean = mean_history([lines])
    assert mean["sigma"]["a"] == [pytest.approx(0.1), None]
    assert mean_history([lines, lines[:1]])["step"] == [50, 100]


def test_arrays_survive_the_page(runs, tmp_path):
    import base64

    values = np.array([[0.5, -2.0, np.nan], [np.inf, 1e-4, 2.0]], np.float32)
    stored = encode(values)
    numbers = np.frombuffer(base64.b64decode(stored["data"]), "<i2").reshape(values.shape)
    read = np.where(numbers == -32768, np.nan, numbers * (stored["top"] / 32767))
    np.testing.assert_allclose(read, np.where(np.isfinite(values), values, np.nan), atol=stored["top"] / 60_000)


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
    assert parser.tags.count("script") == 2
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
    if name == "config.yaml":
        assert "could not be read" in text
    if name == "test_fields.npz":
        assert any("not readable" in entry["why"] for entry in inside(tmp_path / "r.html")["entries"])


def test_what_cannot_be_reported_is_refused_in_one_line(runs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "sweep.json").write_text("{}")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "test_cars.npz").write_text("x")
    out = str(tmp_path / "r.html")
    for folder, output, message in (
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


def test_equal_runs_and_unfinished_ones_are_told_apart(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / "runs" / name, Config().replace(steps=150))
    (write_run(tmp_path / "runs" / "three", Config().replace(steps=300, seed=5)) / "metrics.json").unlink()
    found = find(tmp_path / "runs")
    [group] = make_groups(found)
    assert [line["label"] for line in described(group)["regimes"][0]["lines"]] == ["xreg", "xreg (two)"]
    page = write_report(tmp_path / "runs", tmp_path / "r.html").read_text()
    assert "not finished: step 150 of 300" in page


def test_a_run_without_fields_says_why(tmp_path):
    folder = write_run(tmp_path / "run", Config().replace(steps=150), with_fields=False)
    [entry] = inside(write_report(folder, tmp_path / "r.html"))["entries"]
    assert "its training has not finished (model.npz is missing)" in entry["why"]
    assert entry["trajectories"] == []


def test_a_page_says_what_it_shows_of_a_field(tmp_path):
    folder = write_run(tmp_path / "run", Config().replace(steps=150))
    [entry] = inside(write_report(folder, tmp_path / "r.html"))["entries"]
    stored = fields()
    assert [t["number"] for t in entry["trajectories"]] == stored.trajectories.tolist()
    assert (entry["channels"], entry["points"], entry["scanned"]) == (2, 18, 8)
    assert entry["unaware"][0]["ratio"] == pytest.approx(5)
    assert entry["pit"] == stored.pit.tolist()
    with pytest.raises(InputError, match="no such folder"):
        find(tmp_path / "nothing")
