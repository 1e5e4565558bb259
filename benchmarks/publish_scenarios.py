"""Sweeps over methods on further scenarios: rows into `docs/results`, tables and maps into `docs/scenarios.md`.

    crossreg sweep scenario --scenario phy_kolm_flow --out runs/phy_kolm_flow     # for each of the scenarios
    python benchmarks/publish_scenarios.py runs/diff_kdv runs/phy_kolm_flow …     # those of other scenarios are kept
    python benchmarks/publish_scenarios.py --planes planes/                       # maps of the 2-D ones

The folder of planes has NAME.npz for a scenario, with the arrays `truth` and `steps` of some test pairs, and `error`,
`std_mu`, `std_predictive` and `std_generalization` of each method, as in METHOD/error, of shape (pair, channel, x, y).

Without a folder the tables are written again from the stored rows.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.designs.presets import SCENARIOS
from crossreg.report.figures.drawing import Plane, plane_maps
from crossreg.report.tables.comparison import Line, collect, with_interval
from crossreg.report.tables.comparison_tables import as_markdown, common_setting
from crossreg.runs.sweep_folder import asked_rows
from publish import RESULTS, compact, made_by

ROWS, MADE = RESULTS / "scenarios.jsonl", RESULTS / "scenarios.json"
PAGE, FIGURES = Path("docs/scenarios.md"), Path("docs/figures/scenarios")
_SHOWN = ("xreg", "dropout", "ensemble", "dropout+conformal", "ensemble+conformal")
_IN_MAPS = ("xreg", "dropout", "ensemble")
_FIELDS = ("error", "std_mu", "std_predictive", "std_generalization")


def read() -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """The stored rows by scenario, and how they came about."""
    rows: dict[str, list[dict[str, Any]]] = {}
    if ROWS.exists():
        for line in ROWS.read_text().splitlines():
            row = json.loads(line)
            rows.setdefault(row["scenario"], []).append(row)
    return rows, json.loads(MADE.read_text()) if MADE.exists() else {}


def store(folders: Sequence[Path]) -> None:
    """Replace the published rows of scenarios with those of finished sweeps."""
    by_scenario, made = read()
    for folder in folders:
        rows, total = asked_rows(folder)
        if len(rows) < total:
            sys.exit(f"{folder}: {total - len(rows)} of {total} runs are not finished")
        [name] = {row["scenario"] for row in rows}
        by_scenario[name] = [compact(row) for row in rows]
        about = made_by(folder)
        data = {k: v for k, v in about["config"]["data"].items() if k in ("num_points", "num_spatial_dims")}
        made[name] = {
            "command": f"crossreg sweep scenario --scenario {name} --out DIR",
            "data": about["data"],
            "settings": data | {"test_horizon": about["config"]["data"]["test_horizon"]},
            "starts": about["starts"],
        }
    ordered = [name for name in SCENARIOS if name in by_scenario]
    every = [row for name in ordered for row in by_scenario[name]]
    ROWS.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in every))
    MADE.write_text(json.dumps({name: made[name] for name in ordered}, indent=1) + "\n")


def _cell(line: Line) -> str:
    nll, ece = (line.interval(score) for score in ("test_nll", "test_ece_mix"))
    return f"{with_interval(nll, 2)} / {with_interval(ece, 3)}".replace("/ 0.", "/ .").replace("± 0.", "± .")


def overview(by_scenario: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return a table with one line for each scenario: NLL / ECE of common methods."""
    table = ["| | " + " | ".join(f"`{name}`" for name in _SHOWN) + " |", "|---" * (len(_SHOWN) + 1) + "|"]
    for name, rows in by_scenario.items():
        lines = {line.method: line for line in collect(rows)}
        table.append(f"| `{name}` | " + " | ".join(_cell(lines[method]) for method in _SHOWN) + " |")
    return table


def details(by_scenario: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the tables with all scores of every scenario."""
    parts = []
    for name, rows in by_scenario.items():
        lines = collect(rows)
        parts += [f"### {name}", "", as_markdown(lines), "", common_setting(lines) or "", ""]
    return parts[:-1]


def put(begin: str, lines: Sequence[str]) -> None:
    """Put lines between their marks on the page."""
    first, last = f"<!-- {begin}, written by benchmarks/publish_scenarios.py -->", f"<!-- end of {begin} -->"
    before, rest = PAGE.read_text().split(first)
    PAGE.write_text("\n".join([before + first, "", *lines, "", last + rest.split(last)[1]]))


def draw(folder: Path) -> None:
    """Maps of the last stored step and the first channel, a row for each method, from `NAME.npz`."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            rows = []
            for method in _IN_MAPS:
                error, std_mu, predictive, generalization = (file[f"{method}/{field}"][-1, 0] for field in _FIELDS)
                total = np.hypot(predictive, generalization)
                rows.append(Plane(method, file["truth"][-1, 0], error, std_mu, total))
            title = f"{path.stem}, test trajectory 0, step {file['steps'][-1]}"
            title += ", channel 0" if file["truth"].shape[1] > 1 else ""
        for written in plane_maps(rows, FIGURES / path.stem, title=title, shared=False):
            if written.suffix != ".png":
                written.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--planes", type=Path)
    arguments = parser.parse_args()
    if arguments.folders:
        store(arguments.folders)
    if arguments.planes:
        draw(arguments.planes)
    by_scenario, _ = read()
    put("overview", overview(by_scenario))
    put("details", details(by_scenario))


if __name__ == "__main__":
    main()
