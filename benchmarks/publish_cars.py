"""Scores of finished car runs into `docs/results/cars.json`, and as tables into `docs/cars_results.md`.

    crossreg car --profile full --split-seed 1 --methods all --out runs/cars
    python benchmarks/publish_cars.py runs/cars      # several folders of equal settings are read as one

Their settings may differ in the methods alone. The figure of all methods is that of the last folder. Without a folder
the tables are written again from the stored scores.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.cars.metrics import SCORE_NAMES
from crossreg.metrics.intervals import interval
from crossreg.runs.file_names import SUMMARY, VERSIONS

RESULTS, PAGE = Path("docs/results/cars.json"), Path("docs/cars_results.md")
FIGURE = Path("docs/figures/cars_methods.png")
_COLUMNS = ("relative_l2", "nll", "ece_mix", "crps", "spearman")
_DIFFERENCES = ("relative_l2", "ece_mix", "crps", "spearman")
_OFF = 3.0  # noise with a larger σ leaves little of what a channel says


def collect(folders: list[Path]) -> dict[str, Any]:
    """The summaries of several folders as one, each method once."""
    found: dict[str, Any] = {}
    for folder in folders:
        summary = json.loads((folder / SUMMARY).read_text())
        methods = summary.pop("methods")
        summary["settings"]["cars"].pop("methods")
        machine = json.loads((folder / VERSIONS).read_text())
        if found and {k: found[k] for k in summary} != summary:
            sys.exit(f"{folder}: its settings differ from those of {folders[0]}")
        known = found.get("machines", [])
        machines = known if machine in known else [*known, machine]
        found = summary | {"machines": machines, "methods": found.get("methods", {}) | methods}
    return found


def rounded(value: Any) -> Any:
    """Five digits: more say nothing, and are long."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _lines(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    return [*lines, *(f"| {name} | " + " | ".join(cells).replace("-", "−") + " |" for name, *cells in rows)]


def table(summary: dict[str, Any]) -> list[str]:
    """A line for every method: the mean over seeds, its interval, and behind it that over test cars."""
    rows = []
    for name, method in summary["methods"].items():
        cells = []
        for score in _COLUMNS:
            value, half = method["test"][score], method["half_width"].get(score)
            digits = 3 if abs(value) < 10 else 0
            text = f"{value:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")
            over = method["over_cars"].get(score)
            cells.append(text + ("" if over is None else f" ({over[0]:.{digits}f} to {over[1]:.{digits}f})"))
        rows.append([name, *cells])
    return _lines([SCORE_NAMES[score] for score in _COLUMNS], rows)


def differences(summary: dict[str, Any]) -> list[str]:
    """A line for every other method: xreg less the other, mean and 95% interval over the seeds."""
    rows = []
    for name in summary["methods"]:
        cells = [paired_difference(summary, name, score) for score in _DIFFERENCES]
        if name != "xreg":
            rows.append([name, *(f"{mean:+.3f} ± {half:.3f}" for mean, half in cells)])
    return _lines([SCORE_NAMES[score] for score in _DIFFERENCES], rows)


def paired_difference(summary: dict[str, Any], other: str, score: str) -> tuple[float, float]:
    """xreg less another method, seed by seed; one that has no seeds is the same for all."""
    ours, theirs = ([run["test"][score] for run in summary["methods"][m]["runs"]] for m in ("xreg", other))
    found = interval((np.array(ours) - np.array(theirs)).tolist())
    assert found is not None
    return found.mean, found.half


def sites(summary: dict[str, Any]) -> list[str]:
    """A line for every noise site of xreg: the σ of its channels, over all seeds."""
    runs = [run["sigma"] for run in summary["methods"]["xreg"]["runs"]]
    rows = []
    for site in runs[0]:
        sigma = np.concatenate([run[site] for run in runs])
        low, middle, high = np.quantile(sigma, (0.1, 0.5, 0.9))
        rows.append([f"`{site}`", f"{middle:.2g}", f"{low:.2g} to {high:.2g}", f"{np.mean(sigma > _OFF):.0%}"])
    return _lines(["median σ", "tenth to ninth decile", f"above {_OFF:g}"], rows)


PARTS = {"scores": table, "differences": differences, "sites": sites}


def marks_of(part: str) -> tuple[str, str]:
    """Return the marks before and after a table of the page."""
    return f"<!-- {part}, written by benchmarks/publish_cars.py -->", f"<!-- end of {part} -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    folders = parser.parse_args().folders
    if folders:
        RESULTS.write_text(json.dumps(rounded(collect(folders)), indent=1) + "\n")
        shutil.copyfile(folders[-1] / "figures" / "methods.png", FIGURE)
    summary = json.loads(RESULTS.read_text())
    text = PAGE.read_text()
    for part, lines_of in PARTS.items():
        begin, end = marks_of(part)
        head, rest = text.split(begin)
        text = "\n".join([head + begin, "", *lines_of(summary), "", end + rest.split(end)[1]])
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
