"""Scores of finished car runs into `docs/results/cars.json`, and as a table into `docs/cars.md`.

    crossreg car --profile full --split-seed 1 --methods all --out runs/cars
    python benchmarks/publish_cars.py runs/cars      # several folders of equal settings are read as one

Their settings may differ in the methods alone.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from crossreg.studies.car_folder import SUMMARY, VERSIONS

RESULTS, PAGE = Path("docs/results/cars.json"), Path("docs/cars.md")
_MARKS = ("<!-- written by benchmarks/publish_cars.py -->", "<!-- end -->")
_COLUMNS = {"relative_l2": "relative L2", "nll": "NLL", "ece_mix": "ECE", "crps": "CRPS", "spearman": "Spearman"}


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


def table(summary: dict[str, Any]) -> list[str]:
    """A line for every method: the mean over seeds, its interval, and below it that over test cars."""
    lines = ["| | " + " | ".join(_COLUMNS.values()) + " |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for name, method in summary["methods"].items():
        cells = []
        for score in _COLUMNS:
            value, half = method["test"][score], method["half_width"].get(score)
            digits = 3 if abs(value) < 10 else 0
            text = f"{value:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")
            over = method["over_cars"].get(score)
            cells.append(text + ("" if over is None else f" ({over[0]:.{digits}f} to {over[1]:.{digits}f})"))
        lines.append(f"| {name} | " + " | ".join(cells).replace("-", "−") + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    folders = parser.parse_args().folders
    if folders:
        RESULTS.write_text(json.dumps(rounded(collect(folders)), indent=1) + "\n")
    summary = json.loads(RESULTS.read_text())
    text = PAGE.read_text()
    head, rest = text.split(_MARKS[0])
    lines = [head + _MARKS[0], "", *table(summary), "", _MARKS[1] + rest.split(_MARKS[1])[1]]
    PAGE.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
