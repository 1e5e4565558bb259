"""The scores of a car run over its seeds, against their definitions."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from crossreg.cars.metrics import CarMeans, bootstrap
from crossreg.cars.summary import ScoredRun, method_summary
from crossreg.report.cars.table import car_table

COVERAGES = np.linspace(0.05, 0.95, 9) ** np.array([[1.0], [1.2], [3.0], [9.0]])
NLL = (-1.0, -0.4, 0.9, 50.0)


def scored(seed: int, *, diverged: bool = False) -> ScoredRun:
    """A run whose scores and cars are its own, on three cars."""
    rng = np.random.default_rng(seed)
    cars = CarMeans(np.array([4.0, 4, 4]), *rng.gamma(2.0, size=(4, 3)), rng.uniform(size=(3, 9)))  # pyright: ignore[reportCallIssue]
    scores: dict[str, Any] = {"nll": NLL[seed], "rmse": float(2**seed), "coverage": COVERAGES[seed].tolist()}
    return ScoredRun({"seed": seed, "diverged": diverged}, scores, cars)


def test_a_method_is_the_mean_of_its_seeds_without_those_that_diverged():
    good = [scored(seed) for seed in range(3)]
    found = method_summary([*good, scored(3, diverged=True)])
    assert (found["seeds"], found["diverged"]) == (4, 1)
    assert found["test"]["nll"] == pytest.approx(np.mean(NLL[:3]))
    assert found["test"]["rmse"] == pytest.approx(7 / 3)
    np.testing.assert_allclose(found["test"]["coverage"], COVERAGES[:3].mean(axis=0))
    assert found["half_width"]["nll"] == pytest.approx(stats.t.ppf(0.975, 2) * np.std(NLL[:3], ddof=1) / np.sqrt(3))
    assert found["half_width"].keys() == {"nll", "rmse"}
    cars = [run.cars for run in good]
    assert found["over_cars"] == {score: [*limits] for score, limits in bootstrap(cars).items()}
    for score in ("relative_l2", "nll"):
        np.testing.assert_allclose(found["cars"][score], np.mean([getattr(own, score) for own in cars], axis=0))
    # Those that diverged are counted, and can be looked up.
    assert [run["test"]["nll"] for run in found["runs"]] == [*NLL]
    assert [run["diverged"] for run in found["runs"]] == [False, False, False, True]


def test_a_method_all_of_whose_seeds_diverged_has_no_scores():
    found = method_summary([scored(0, diverged=True)])
    assert (found["seeds"], found["diverged"]) == (1, 1)
    assert found["test"] == {"coverage": None}
    assert found["half_width"] == found["over_cars"] == {}
    assert found["cars"] == {"relative_l2": None, "nll": None}


def test_a_table_has_every_score_under_its_title_to_three_digits():
    names = ("relative_l2", "rmse", "nll", "ece_mix", "spearman", "std_predictive", "std_generalization")
    values = (0.12345, 34.567, -1.23456, 0.023456, 0.7654321, 12.3456, 456.789)
    halves = (0.011, 1.22, 0.033, 0.0044, 0.055, 0.66, 7.7)
    test, half = (dict(zip(names, numbers, strict=True)) for numbers in (values, halves))
    over = {"relative_l2": [0.0888, 0.2222], "rmse": [31.11, 36.66], "nll": [-1.5, -1.0], "ece_mix": [0.01, 0.0333]}
    entry = {"seeds": 3, "diverged": 1, "test": test, "half_width": half, "over_cars": over}
    counts = {"train": 5, "reg": 6, "test": 7, "units": "Cp"}
    text = car_table(counts | {"methods": {"xreg": entry}})
    head, row, note, _, over_head, over_row, _ = text.split("\n")
    titles = (
        "method",
        "seeds",
        "diverged",
        "relative L2",
        "RMSE",
        "NLL",
        "ECE",
        "Spearman",
        "mean σ_pred",
        "mean σ_gen",
    )
    cells = ("xreg", "3", "1", "0.123 ± 0.011", "34.6 ± 1.2", "-1.235 ± 0.033", "0.0235 ± 0.0044", "0.765 ± 0.055",
             "12.3 ± 0.7", "457 ± 8")  # fmt: skip
    assert [part.strip() for part in head.split("  ") if part.strip()] == [*titles]
    assert [part.strip() for part in row.split("  ") if part.strip()] == [*cells]
    assert note == "on the test cars; 5 train, 6 reg and 7 test cars; pressure as Cp; ± over seeds, on the same cars"
    assert [part.strip() for part in over_head.split("  ") if part.strip()] == [
        "method", "relative L2", "RMSE", "NLL", "ECE", "CRPS",
    ]  # fmt: skip
    assert [part.strip() for part in over_row.split("  ") if part.strip()] == [
        "xreg", "0.089 to 0.222", "31.1 to 36.7", "-1.500 to -1.000", "0.0100 to 0.0333", "–",
    ]  # fmt: skip
