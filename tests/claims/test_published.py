"""Tables of the README and the docs, and the goals that were set, against the rows that are published."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from claimed import flat
from scipy.stats import t

from crossreg.designs.presets import SCENARIOS as PRESETS

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "docs" / "results" / "paper.jsonl"
sys.path.append(str(ROOT / "benchmarks"))  # its scripts import each other
PUBLISH, CARS, SCENARIOS = (
    runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py")) for name in ("publish", "publish_cars", "publish_scenarios")
)


@pytest.fixture(scope="module")
def rows():
    return [json.loads(line) for line in ROWS.read_text().splitlines()]


@pytest.mark.parametrize("name", ["README.md", "docs/summary.md"])
def test_the_table_of_the_summaries_is_that_of_the_rows(rows, name):
    table = (ROOT / name).read_text().split("<!-- written by benchmarks/publish.py -->")[1].split("<!-- end -->")[0]
    lines = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    assert len(lines) == 8
    for regime, *cells in lines:
        fraction, size = regime.split(", ")
        for method, cell in zip(("xreg", "dropout", "ensemble"), cells, strict=True):
            for score, said in zip(("nll", "ece_mix"), cell.split(" / "), strict=True):
                picked = [
                    row["test"][score]
                    for row in rows
                    if (row["method"], row["steps"]) == (method, 10_000)
                    and (row["observed_fraction"], row["train_size"]) == (float(fraction), int(size))
                ]
                mean, half = (float(number.replace("−", "-")) for number in said.split("±"))
                assert len(picked) == 10
                rounding = 0.0051 if score == "nll" else 0.00051
                assert mean == pytest.approx(np.mean(picked), abs=rounding)
                interval = t.ppf(0.975, 9) * np.std(picked, ddof=1) / np.sqrt(10)
                assert half == pytest.approx(interval, abs=rounding)


def test_the_goal_of_the_default_holds_in_the_rows(rows):
    """Mean test ECE at most .02 in every regime, and none of its runs diverged, at 10,000 and at 30,000 steps."""
    ours = [row for row in rows if row["method"] == "xreg"]
    assert not any(row["diverged"] for row in ours)
    regimes = {(row["observed_fraction"], row["train_size"], row["steps"]) for row in ours}
    assert len(regimes) == 16
    for regime in regimes:
        scores = [
            row["test"]["ece_mix"]
            for row in ours
            if (row["observed_fraction"], row["train_size"], row["steps"]) == regime
        ]
        assert np.mean(scores) <= 0.02


def without_figures(lines):
    """Lines of a page without those that show figures, and without the empty ones around them."""
    return [line for line in "\n".join(lines).splitlines() if line and not line.startswith("![")]


@pytest.mark.parametrize("name", PUBLISH["TITLES"])
def test_the_pages_of_results_are_those_of_the_rows(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    lines, tables = PUBLISH["section"](name, PUBLISH["TITLES"][name])
    page = (ROOT / "docs" / "results.md").read_text()
    part = page.split(f"\n{lines[0]}\n")[1].split("\n## ")[0]
    assert without_figures([lines[0], *part.splitlines()]) == without_figures(lines)
    assert (ROOT / "docs" / "results" / f"{name}.md").read_text() == "\n".join(tables) + "\n"


def test_the_page_of_results_holds_these_sets_and_no_others():
    page = (ROOT / "docs" / "results.md").read_text()
    heads = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert heads == list(PUBLISH["TITLES"].values())
    assert flat(PUBLISH["INTRODUCTION"][0]) in flat(page)
    assert flat(PUBLISH["SHORT"][0]) in flat(page)


@pytest.fixture(scope="module")
def cars():
    return json.loads((ROOT / CARS["RESULTS"]).read_text())


def test_the_goals_of_the_cars_hold_in_what_is_published(cars):
    """Of five seeds on the built-in family; the interval over seeds decides what is better."""
    xreg, dropout, ensemble, mean = (cars["methods"][m] for m in ("xreg", "dropout", "ensemble", "vertex-mean"))
    assert (xreg["seeds"], xreg["diverged"]) == (5, 0)
    assert all(run["test"]["relative_l2"] < mean["test"]["relative_l2"] for run in xreg["runs"])
    assert xreg["test"]["ece_mix"] <= 0.03
    assert xreg["test"]["spearman"] >= 0.4
    for baseline in (dropout, ensemble):
        ends = [m["test"]["ece_mix"] + sign * m["half_width"]["ece_mix"] for m, sign in ((xreg, 1), (baseline, -1))]
        assert ends[0] < ends[1]
    # Both parts of the standard deviation are there, within a factor of three of each other.
    parts = xreg["test"]["std_predictive"], xreg["test"]["std_generalization"]
    assert max(parts) < 3 * min(parts)


def test_the_means_of_the_cars_are_those_of_their_seeds(cars):
    for name, method in cars["methods"].items():
        good = [run["test"] for run in method["runs"] if not run["diverged"]]
        for score in ("relative_l2", "nll", "ece_mix", "crps", "spearman"):
            values = [scores[score] for scores in good]
            assert method["test"][score] == pytest.approx(np.mean(values), rel=1e-3), name
            if len(values) > 1:
                half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
                assert method["half_width"][score] == pytest.approx(half, rel=2e-2), name


def test_the_tables_of_the_cars_are_those_of_the_scores(cars):
    page = (ROOT / CARS["PAGE"]).read_text()
    for part, lines_of in CARS["PARTS"].items():
        begin, end = CARS["marks_of"](part)
        assert page.split(begin)[1].split(end)[0].strip().splitlines() == lines_of(cars)


def test_the_tables_of_further_scenarios_are_those_of_the_rows(monkeypatch):
    monkeypatch.chdir(ROOT)
    rows, made = SCENARIOS["read"]()
    assert {*rows} == {*made} == {*PRESETS} - {"diff_ks"}
    page = (ROOT / "docs" / "scenarios.md").read_text()
    for begin, lines in (("overview", SCENARIOS["overview"](rows)), ("details", SCENARIOS["details"](rows))):
        first, last = f"<!-- {begin}, written by benchmarks/publish_scenarios.py -->", f"<!-- end of {begin} -->"
        assert page.split(first)[1].split(last)[0].strip().splitlines() == "\n".join(lines).strip().splitlines()
