"""Scores of a car run, for `summary.json` and for a table.

There are two intervals. `half_width` is half of Student's 95% interval over seeds, on the same cars: how much a score
depends on the start of a training. `over_cars` has the ends of a 95% bootstrap interval over the test cars, with the
same seeds: how much a score depends on the cars. Diverged runs are counted, and excluded from both.
"""

from typing import Any, NamedTuple

import numpy as np

from crossreg.cars.metrics import SCORE_NAMES, CarMeans, bootstrap
from crossreg.metrics.intervals import decimals_of, interval

_COLUMNS = ("relative_l2", "rmse", "nll", "ece_mix", "spearman", "std_predictive", "std_generalization")
_OVER_CARS = ("relative_l2", "rmse", "nll", "ece_mix", "crps")


class ScoredRun(NamedTuple):
    """One seed of a method: facts about it, its scores on the test cars, and those of every car."""

    about: dict[str, Any]
    scores: dict[str, Any]
    cars: CarMeans


def method_summary(runs: list[ScoredRun]) -> dict[str, Any]:
    """Return the scores of a method over its seeds, and of each seed."""
    good = [run for run in runs if not run.about["diverged"]]
    test, half = {}, {}
    for score in runs[0].scores:
        values = [run.scores[score] for run in good]
        if score == "coverage":
            test[score] = np.mean(values, axis=0).tolist() if values else None
        elif (found := interval(values)) is not None:
            test[score], half[score] = found
    return {
        "seeds": len(runs),
        "diverged": len(runs) - len(good),
        "test": test,
        "half_width": half,
        "over_cars": {score: [*limits] for score, limits in bootstrap([run.cars for run in good]).items()},
        "cars": {
            score: np.mean([getattr(run.cars, score) for run in good], axis=0).tolist() if good else None
            for score in ("relative_l2", "nll")
        },
        "runs": [run.about | {"test": run.scores} for run in runs],
    }


def car_table(summary: dict[str, Any]) -> str:
    """Return the scores of all methods on the test cars as a text table."""
    methods = summary["methods"]
    lines = [["method", "seeds", "diverged", *(SCORE_NAMES[score] for score in _COLUMNS)]]
    for name, method in methods.items():
        cells = [name, str(method["seeds"]), str(method["diverged"])]
        for score in _COLUMNS:
            value, half = method["test"].get(score), method["half_width"].get(score)
            decimals = 0 if value is None else decimals_of(value, score)
            ends = "" if half is None else f" ± {half:.{decimals}f}"
            cells.append("–" if value is None else f"{value:.{decimals}f}{ends}")
        lines.append(cells)
    counts = f"{summary['train']} train, {summary['reg']} reg and {summary['test']} test cars"
    units = "as Cp" if summary["units"] == "Cp" else "in the data's own units"
    several = any(half is not None for method in methods.values() for half in method["half_width"].values())
    seeds = "; ± over seeds, on the same cars" if several else ""
    text = [*_aligned(lines), f"on the test cars; {counts}; pressure {units}{seeds}"]
    if any(method["over_cars"] for method in methods.values()):
        lines = [["method", *(SCORE_NAMES[score] for score in _OVER_CARS)]]
        for name, method in methods.items():
            lines.append([name, *(_limits(method["over_cars"].get(score), score) for score in _OVER_CARS)])
        text += ["", *_aligned(lines), "95% intervals over test cars (bootstrap), with these seeds"]
    return "\n".join(text)


def _limits(limits: list[float] | None, score: str) -> str:
    if limits is None or None in limits:
        return "–"
    decimals = decimals_of(max(limits, key=abs), score)
    return f"{limits[0]:.{decimals}f} to {limits[1]:.{decimals}f}"


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
