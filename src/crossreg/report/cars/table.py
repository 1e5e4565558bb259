"""The scores of a car experiment as a text table, from `summary.json`."""

from typing import Any

from crossreg.cars.metrics import SCORE_NAMES
from crossreg.metrics.intervals import decimals_of
from crossreg.report.tables.layout import aligned

_COLUMNS = ("relative_l2", "rmse", "nll", "ece_mix", "spearman", "std_predictive", "std_generalization")
_OVER_CARS = ("relative_l2", "rmse", "nll", "ece_mix", "crps")


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
    text = [aligned(lines), f"on the test cars; {counts}; pressure {units}{seeds}"]
    if any(method["over_cars"] for method in methods.values()):
        lines = [["method", *(SCORE_NAMES[score] for score in _OVER_CARS)]]
        for name, method in methods.items():
            lines.append([name, *(_limits(method["over_cars"].get(score), score) for score in _OVER_CARS)])
        text += ["", aligned(lines), "95% intervals over test cars (bootstrap), with these seeds"]
    return "\n".join(text)


def _limits(limits: list[float] | None, score: str) -> str:
    if limits is None or None in limits:
        return "–"
    decimals = decimals_of(max(limits, key=abs), score)
    return f"{limits[0]:.{decimals}f} to {limits[1]:.{decimals}f}"
