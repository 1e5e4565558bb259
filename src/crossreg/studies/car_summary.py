"""Scores of a car run as `summary.json` holds them and as a table shows them.

There are two intervals, and they answer different questions. `half_width` is half of Student's 95% interval over seeds,
on the same cars: how much a score depends on the start of a training. `over_cars` has the ends of the 95% interval of a
bootstrap over the test cars, with the same seeds: how much it depends on which cars were scored. Runs that diverged are
counted and left out of both.
"""

from typing import Any, NamedTuple

import numpy as np

from crossreg.metrics.cars import CarMeans, bootstrap
from crossreg.report.comparison import interval

_COLUMNS = {"relative_l2": "rel. L2", "rmse": "RMSE", "nll": "NLL", "ece_mix": "ECE", "spearman": "Spearman"}
_PARTS = {"std_predictive": "std pred", "std_generalization": "std gen"}
_OVER_CARS = {"relative_l2": "rel. L2", "rmse": "RMSE", "nll": "NLL", "ece_mix": "ECE", "crps": "CRPS"}


class ScoredRun(NamedTuple):
    """One seed of a method: what is known of it, its scores on the test cars, and what they are on every car."""

    about: dict[str, Any]
    scores: dict[str, Any]
    cars: CarMeans


def method_summary(runs: list[ScoredRun]) -> dict[str, Any]:
    """What all seeds of a method say together, and each of them."""
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
    """The scores of all methods on the test cars, as text."""
    methods = summary["methods"]
    columns = _COLUMNS | _PARTS
    lines = [["method", "seeds", "diverged", *columns.values()]]
    for name, method in methods.items():
        cells = [name, str(method["seeds"]), str(method["diverged"])]
        for score in columns:
            value, half = method["test"].get(score), method["half_width"].get(score)
            cells.append("–" if value is None else f"{value:.3f}" + ("" if half is None else f" ± {half:.3f}"))
        lines.append(cells)
    counts = f"{summary['train']} train, {summary['reg']} reg and {summary['test']} test cars"
    units = "as Cp" if summary["units"] == "Cp" else "in the data's own units"
    text = [*_aligned(lines), f"on the test cars; {counts}; pressure {units}; ± over seeds, on the same cars"]
    if any(method["over_cars"] for method in methods.values()):
        lines = [["method", *_OVER_CARS.values()]]
        for name, method in methods.items():
            limits = [method["over_cars"].get(score) for score in _OVER_CARS]
            lines.append([name, *("–" if found is None else f"{found[0]:.3f} to {found[1]:.3f}" for found in limits)])
        text += ["", *_aligned(lines), "95% intervals over test cars (bootstrap), with these seeds"]
    return "\n".join(text)


def _aligned(lines: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
