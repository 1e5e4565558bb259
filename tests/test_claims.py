"""What README and docs say of results, against the rows that are published."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "docs" / "results" / "paper.jsonl"


@pytest.fixture(scope="module")
def rows():
    return [json.loads(line) for line in ROWS.read_text().splitlines()]


def test_the_table_of_the_readme_is_that_of_the_rows(rows):
    table = (
        (ROOT / "README.md").read_text().split("<!-- written by benchmarks/publish.py -->")[1].split("<!-- end -->")[0]
    )
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
                mean, half = (float(number.replace("−", "-")) for number in said.split(" ± "))
                assert len(picked) == 10
                assert mean == pytest.approx(np.mean(picked), abs=0.006 if score == "nll" else 0.0006)
                interval = t.ppf(0.975, 9) * np.std(picked, ddof=1) / np.sqrt(10)
                assert half == pytest.approx(interval, abs=0.006 if score == "nll" else 0.0006)


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
