"""The page on the price of error bars: its tables are made from the rows, and its sentences say what these say."""

import json
import runpy
import sys

import numpy as np
import pytest
from claimed import RESULTS, ROOT, Claim, flat, page, rows

from crossreg.config import TrainConfig
from crossreg.methods.xreg import INDEPENDENT

sys.path.insert(0, str(ROOT / "benchmarks"))
MADE = runpy.run_path(str(ROOT / "benchmarks" / "price.py"))
PAGE = "docs/price.md"


def prices() -> list[dict]:
    return [row for row in json.loads((RESULTS / "price.json").read_text()) if row["device"] == "cpu"]


def test_the_tables_are_those_of_the_rows(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / PAGE).read_text()
    tables = {
        "price": MADE["price_table"](json.loads((RESULTS / "price.json").read_text())),
        "scores": MADE["score_table"](),
        "tried": MADE["tried_table"](prices()),
    }
    for name, lines in tables.items():
        begin, end = f"<!-- {name}, written by benchmarks/price.py -->", f"<!-- end of {name} -->"
        assert text.split(begin)[1].split(end)[0].strip().splitlines() == lines[1:]


def test_the_price_of_a_training_weighs_its_steps_by_the_time_that_they_take():
    made_up = [
        {"group": "training", "contender": name, "ratio": [ratio, 0, 0]}
        for name, ratio in {"xreg": 2.0, "xreg, while ρ settles": 4.0, "plain": 1.0}.items()
    ]
    assert MADE["of_training"](made_up, "xreg") == pytest.approx(2 + 2 * TrainConfig.settle)
    assert MADE["of_training"](made_up, "plain") == 1
    ten = [row | {"contender": row["contender"].replace("xreg", "xreg, ten independent samples")} for row in made_up]
    assert MADE["of_training"](ten, "xreg, ten independent samples") == pytest.approx(2 + 2 * INDEPENDENT["settle"])


def test_every_run_of_the_default_has_a_partner():
    for name in ("draws", "gradient"):
        found = [(r["observed_fraction"], r["train_size"], r["seed"]) for r in rows(name) if r["method"] == "xreg"]
        assert len(found) == len(set(found)) == 80, name
    assert {(row["mask_seed"], row["seed"]) for row in MADE["tried"]()} == {(11, 100), (11, 101)}


def price_of(name: str) -> str:
    return f"{MADE['of_training'](prices(), name):.1f}"


def what_a_training_costs() -> str:
    return f"""A training of XReg takes {price_of("xreg")} times as long as that of the plain network on two cores,
        where it took {price_of("xreg, ten independent samples")} times with ten independent samples"""


def what_a_prediction_costs() -> str:
    times = {n: MADE["ratio"](prices(), f"prediction of {n}", "xreg, 30 samples") for n in MADE["FIELDS"]}
    return f"""A prediction of 30 samples takes {times[1]:.1f} times as long for one field, and {times[25]:.0f} times
        for 25 at once"""


def the_rate_of_the_sites() -> str:
    found = {}
    for row in MADE["tried"](rates=True):
        regime = (row["observed_fraction"], row["train_size"])
        found.setdefault((row["changes"]["site_learning_rate"], regime), []).append(row["test"]["nll"])
    assert {len(values) for values in found.values()} == {6}
    low, high = (
        ", ".join(f"{np.mean(values):.2f}".replace("-", "−") for (rate, _), values in found.items() if rate == wanted)
        for wanted in (0.01, 0.02)
    )
    return f"""With a rate of 2·10⁻² in place of 10⁻², the NLL at 0.4 observed, and with 20 and 30 trajectories, is
        {high} in place of {low}"""


def the_comparisons() -> str:
    lines = MADE["score_table"]()[3:]
    [ece] = [part for line in lines for part in line.split("**")[1::2]]
    assert len(lines) == 8
    assert lines[0].startswith("| 0.4, 50 |")
    assert f"/ **{ece}** /" in lines[0]
    return f"""Of the {3 * len(lines)} differences, one is beyond the interval, as chance alone would have it: the ECE
        at 0.4 observed, by {ece}."""


CLAIMS: list[Claim] = [what_a_training_costs, what_a_prediction_costs, the_rate_of_the_sites, the_comparisons]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_the_page_says_what_the_rows_say(claim: Claim, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert flat(claim()) in page(PAGE)


def test_few_samples_cost_less_the_fewer_they_are():
    found = [MADE["ratio"](prices(), "tried", MADE["name_of"](row["changes"])) for row in MADE["tried"]()[::16]]
    ten, two_and_ten, two_and_four, one_and_four, pairs, rarer = found
    assert ten > two_and_ten > two_and_four > pairs > rarer > one_and_four
    assert np.isfinite(found).all()
