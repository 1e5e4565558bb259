"""Sweeps of forecasts: rows by lead into `docs/results`, tables and figures into `docs/rollouts.md`.

    crossreg sweep rollouts --seeds 10 --out runs/rollouts
    crossreg sweep rollouts --seeds 10 --scenario diff_kdv --out runs/rollouts-kdv      # and so on
    crossreg sweep rollouts-equal-data --seeds 10 --out runs/rollouts-equal
    python benchmarks/publish_rollouts.py runs/rollouts runs/rollouts-kdv …    # rows of other sweeps are kept
    python benchmarks/publish_rollouts.py --page                               # the page and figures, from the rows

A run that was published before is replaced. A sweep that is not finished is refused, and so is a row without scores.
Runs that diverged are refused too, unless `--diverged` asks for them: then they are counted, without scores.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import rollouts_page
from crossreg.config import changed_fields, default_settings, from_dict
from crossreg.designs.grids import default_steps
from crossreg.designs.presets import SCENARIOS
from crossreg.errors import InputError
from crossreg.report.looks import family_place
from crossreg.runs.file_names import PLAN
from crossreg.runs.sweep_folder import asked_rows
from publish import RESULTS, made_by, rounded
from rollout_lines import SCORES, STUDIES, run_of

ROWS, MADE = RESULTS / "rollouts.jsonl", RESULTS / "rollouts.json"
LEADS = (1, 2, 5, 10, 20, 30, 40, 50, 75, 100)
_COLUMNS = ("study", "scenario", "observed_fraction", "train_size", "reg_size")
# Settings that every sweep of a study shares, or that are columns.
_UNTOLD = ("rollout_steps", "one_pool", *_COLUMNS)
# A file that is larger is better published with fewer leads.
_MOST_BYTES = 4_000_000

Row = dict[str, Any]


def settings_of(row: Mapping[str, Any], study: str) -> dict[str, Any]:
    """Return the settings of a run that neither its study nor its scenario has, such as `reg_steps`."""
    asked = default_settings() | row.get("settings", {}) | {"steps": row["steps"]}
    usual = default_settings() | SCENARIOS.get(row["scenario"], {}) | {"steps": default_steps(study)}
    return {name: value for name, value in asked.items() if name not in _UNTOLD and value != usual.get(name)}


def by_lead(row: Mapping[str, Any], study: str, leads: Sequence[int] = LEADS) -> list[Row]:
    """Return the published rows of a run, one for each lead.

    Args:
        row: A row of a sweep, as `asked_rows` reads it.
        study: The name of the sweep.
        leads: The leads that are published, as far as the run has them.

    Raises:
        InputError: If the row has no scores of forecasts.
    """
    found = row.get("rollouts") or {}
    lists: dict[str, Any] = {name: found.get(name) for name in (*SCORES, "lost")}
    length = len(found.get("leads", ()))
    missing = [name for name, values in lists.items() if not values or len(values) != length]
    if missing or "particles_in_all" not in found:
        said = "no scores of forecasts" if not found else f"no {(missing or ['particles_in_all'])[0]} by lead"
        raise InputError(f"{row['method']} with seed {row['seed']} has {said}; score it with the sweep {study}")
    about = {"study": study} | {name: row[name] for name in _COLUMNS[1:]} | settings_of(row, study)
    about |= {"method": row["method"], "seed": row["seed"]} | ({"diverged": True} if row["diverged"] else {})
    rows = []
    for place, lead in enumerate(found["leads"]):
        if lead in leads:
            scores = {name: None if row["diverged"] else lists[name][place] for name in SCORES}
            out_of_range = {"out_of_range": found["lost"][place], "particles_in_all": found["particles_in_all"]}
            rows.append(about | {"lead": lead} | rounded(scores) | out_of_range)
    return rows


def read_folder(
    folder: Path, *, diverged: bool = False, finished: bool = False, leads: Sequence[int] = LEADS
) -> list[Row]:
    """Return the published rows of a finished sweep of forecasts.

    Args:
        folder: The folder of the sweep.
        diverged: Whether runs that diverged are published, without scores.
        finished: Whether, of a sweep that was cut off, the methods are published of which every seed is finished.
        leads: The leads that are published.

    Raises:
        InputError: If the sweep is another one or not finished, or a run failed or was not scored.
    """
    rows, total = asked_rows(folder)
    plan = json.loads((folder / PLAN).read_text())
    name = plan["name"]
    study = "rollouts" if name == "grid" else name  # one fraction of it, or some settings
    if study not in STUDIES:
        raise InputError(f"{folder}: holds the sweep {study}; expected {' or '.join(STUDIES)}")
    if finished:
        counts = Counter(row["method"] for row in rows)
        rows = [row for row in rows if counts[row["method"]] == max(counts.values()) >= plan["seeds"]]
    elif len(rows) < total:
        raise InputError(f"{folder}: {total - len(rows)} of {total} runs are not finished")
    failed = [f"{row['method']} with seed {row['seed']}" for row in rows if row["diverged"]]
    if failed and not diverged:
        raise InputError(
            f"{folder}: {len(failed)} of {total} runs diverged, the first is {failed[0]}; `--diverged` publishes them"
            " without scores"
        )
    try:
        return [one for row in rows for one in by_lead(row, study, leads)]
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error


def merged(known: Iterable[Row], new: Sequence[Row]) -> list[Row]:
    """Return known rows and new ones in order; of a run that is in both, only the new rows."""
    replaced = {run_of(row) for row in new}
    return sorted([*(row for row in known if run_of(row) not in replaced), *new], key=_order)


def _order(row: Row) -> tuple:
    scenarios = [*SCENARIOS]
    place = scenarios.index(row["scenario"]) if row["scenario"] in scenarios else len(scenarios)
    setting = (STUDIES.index(row["study"]), place, row["scenario"], -row["observed_fraction"])
    method = (family_place(row["method"]), len(row["method"]), row["method"])
    others = {k: v for k, v in json.loads(run_of(row)).items() if k not in (*_COLUMNS, "method", "seed")}
    return (
        *setting,
        len(others),
        json.dumps(others),
        row["train_size"] + row["reg_size"],
        *method,
        row["seed"],
        row["lead"],
    )


def read() -> list[Row]:
    """Return the published rows."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def provenance_of(folder: Path) -> dict[str, Any]:
    """Return the command, settings, data and machines of a sweep; the command has the settings off their defaults."""
    made = made_by(folder)
    changed = changed_fields(from_dict(made["config"]))
    scenario = changed.pop("scenario", None)
    preset = SCENARIOS.get(scenario, {}) | {"observed_fraction": made["config"]["data"]["observed_fraction"]}
    others = {k: v for k, v in changed.items() if preset.get(k) != v and k not in ("steps", "seed")}
    words = [f"--scenario {scenario}"] if scenario else []
    words += [f"--config FILE ({', '.join(f'{k}: {json.dumps(v)}' for k, v in others.items())})"] if others else []
    command = made["command"].removesuffix(" --out DIR")
    return made | {"command": " ".join([command, *words, "--out DIR"])}


def store(folders: Sequence[Path], **how: Any) -> None:
    """Publish the rows of sweeps, and beside them how they were made.

    Args:
        folders: The folders of the sweeps.
        **how: Further arguments of `read_folder`.

    Raises:
        InputError: As `read_folder`; then nothing is written.
    """
    rows, made = read(), json.loads(MADE.read_text()) if MADE.exists() else []
    for folder in folders:
        new = read_folder(folder, **how)
        rows, about = merged(rows, new), provenance_of(folder)
        made = [one for one in made if any(one[k] != about[k] for k in ("command", "config", "data"))] + [about]
        print(f"{folder}: {len({run_of(row) for row in new})} runs")
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    RESULTS.mkdir(parents=True, exist_ok=True)
    ROWS.write_text(text)
    MADE.write_text(json.dumps(made, indent=1) + "\n")
    print(f"{ROWS}: {len(rows)} rows, {len(text.encode()) / 1e6:.1f} MB")
    if len(text.encode()) > _MOST_BYTES:
        print(f"  more than {_MOST_BYTES / 1e6:.0f} MB: publish fewer `--leads`")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--page", action="store_true", help="write the page, its figures, and the front pages' block")
    parser.add_argument("--diverged", action="store_true", help="publish runs that diverged, without scores")
    parser.add_argument("--finished", action="store_true", help="of a sweep that was cut off, the finished methods")
    parser.add_argument("--leads", default=",".join(map(str, LEADS)), help="the leads that are published")
    arguments = parser.parse_args()
    if not arguments.folders and not arguments.page:
        parser.error("give folders of sweeps, or --page")
    try:
        if arguments.folders:
            leads = [int(lead) for lead in arguments.leads.split(",")]
            store(arguments.folders, diverged=arguments.diverged, finished=arguments.finished, leads=leads)
        if arguments.page:
            rollouts_page.write(read(), json.loads(MADE.read_text()) if MADE.exists() else [])
    except InputError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
