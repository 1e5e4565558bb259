"""Finds and reads single runs, sweeps and car experiments below a folder.

A run is read into a row, as a sweep has them, so that both are compared alike. Nothing in these files is taken for
granted: they may be of an older version, half written, or something else by that name. Incomplete ones are kept apart
with the reason (`page/unfinished.py`); those that cannot be read at all are left out, and the page says why.
"""

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossreg.config import Config, load_stored
from crossreg.designs.grids import Trial
from crossreg.errors import InputError
from crossreg.files.whole import check_is_folder
from crossreg.progress.display import CountDisplay
from crossreg.progress.history import known_lines
from crossreg.report.cars.page import scores_table
from crossreg.report.cars.run import CarRun, read_car_run
from crossreg.report.page.files import History, readable_json, readable_lines, said_time
from crossreg.report.page.rows import Row, reference_rows, row_of_run, scored_row
from crossreg.report.page.unfinished import (
    Unfinished,
    unfinished_car,
    unfinished_run,
    unfinished_sweep,
    unread,
)
from crossreg.report.shared.stored import DEPTH
from crossreg.report.tables.comparison import collect
from crossreg.runs.archive import Archive
from crossreg.runs.file_names import (
    CONFIG,
    HISTORY,
    METRICS,
    PLAN,
    ROLLOUT,
    ROWS,
    SUMMARY,
    TEST_CARS,
    TRAINED,
    VERSIONS,
)
from crossreg.runs.kinds import Kind, kind_by, read_sections
from crossreg.runs.older_names import with_current_names
from crossreg.runs.run_folder import check_scored
from crossreg.runs.sweep_folder import all_rows, asked_rows, load_trials, trial_key
from crossreg.studies.sweep.scoring import trainings_of

_MOST_RUNS = 1000
_LONGEST_REASON = 300
# What a reader may raise on a file that is not what its name says.
_BROKEN = (InputError, OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


@dataclass(frozen=True)
class Run:
    """A run folder that was trained and scored."""

    name: str
    folder: Path
    config: Config
    versions: dict[str, Any]
    row: Row
    history: History
    state: str


@dataclass(frozen=True)
class Sweep:
    """A sweep folder. Histories are by the keys of rows; that of an ensemble is its first member's."""

    name: str
    folder: Path
    asked: dict[str, Any]
    rows: list[Row]
    histories: dict[str, History]
    missing: int
    when: str = ""


@dataclass(frozen=True)
class Car:
    """A folder of `crossreg car`."""

    name: str
    folder: Path
    run: CarRun
    versions: dict[str, Any]
    when: str


@dataclass(frozen=True)
class Found:
    """All that is below a folder. `problems` are names of what could not be read, and the reasons.

    `references` are rows of methods without training, with which a quickstart compares.
    """

    name: str
    runs: list[Run] = field(default_factory=list)
    references: list[Row] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    cars: list[Car] = field(default_factory=list)
    unfinished: list[Unfinished] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)

    def add(self, item: Run | Sweep | Car | Unfinished | None) -> None:
        """Add an item that was read from a folder."""
        lists: dict[type, list[Any]] = {
            Run: self.runs, Sweep: self.sweeps, Car: self.cars, Unfinished: self.unfinished,
        }  # fmt: skip
        if item is not None:
            lists[type(item)].append(item)


Items = list[Run | Sweep | Car | Unfinished | None]
Read = Callable[[str, Path], Items]


def find(folder: Path, *, progress: bool = False) -> Found:
    """Read everything below a folder.

    Args:
        folder: A run folder, or one with runs, sweeps and car experiments at most six folders down.
        progress: Whether to count the folders on the terminal.

    Returns:
        What was found, complete or not.

    Raises:
        InputError: If there is no such folder, or nothing below it can be read.
    """
    check_is_folder(folder)
    found = Found(folder.resolve().name or "/")
    readers: dict[Kind | None, Read] = {
        "sweep": functools.partial(read_sweep, progress=progress), "cars": read_car, "run": read_run,
    }  # fmt: skip
    places = list(walk(folder))
    with CountDisplay("folders read", enabled=progress and len(places) > 1) as display:
        for done, (path, names) in enumerate(places, start=1):
            name = found.name if path == folder else path.relative_to(folder).as_posix()
            kind = kind_by(names, read_sections(path / CONFIG))
            try:
                if kind is None:
                    raise InputError(f"not read, since it is more than {DEPTH} levels deep")
                if len(found.runs) >= _MOST_RUNS and kind == "run":
                    raise InputError(f"left out: a page has at most {_MOST_RUNS} runs")
                for item in readers[kind](name, path):
                    found.add(item)
            except _BROKEN as error:
                found.problems.append((name, reason_of(error)))
            display.update(done, len(places))
    if not (found.runs or found.sweeps or found.cars or found.unfinished):
        why = f"; {found.problems[0][0]}: {found.problems[0][1]}" if found.problems else ""
        raise InputError(f"{folder}: nothing below it is a run, a sweep or a car experiment that can be read{why}")
    found.references.extend(_references(folder, found.runs))
    return found


def reason_of(error: BaseException) -> str:
    """Return an error on one line."""
    return " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__


def _references(folder: Path, runs: list[Run]) -> list[Row]:
    """Return the rows with which quickstarts at or below the folder compare their runs."""
    firsts = {run.folder.parent: run.row for run in reversed(runs) if run.folder != folder}
    return [
        row
        for parent, first in reversed(firsts.items())
        for row in reference_rows(
            parent.relative_to(folder.parent).as_posix(), with_current_names(readable_json(parent / SUMMARY)), first
        )
    ]


def walk(folder: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yield the folders that hold something to report, with the names of their files, and look no deeper in them.

    The names are empty for a folder whose own folders would be too deep to be looked at.
    """
    for at, folders, files in os.walk(folder):
        path, names = Path(at), set(files)
        if names & {PLAN, TEST_CARS, CONFIG}:
            folders.clear()
            yield path, names
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if folders and len(path.relative_to(folder).parts) >= DEPTH:
            folders.clear()
            yield path, set()


def read_car(name: str, folder: Path) -> Items:
    """Read a car experiment, or the parts of one whose scores cannot be shown."""
    if not (folder / TEST_CARS).exists():
        return [unfinished_car(name, folder, f"{TEST_CARS} is missing")]
    try:
        run = read_car_run(folder)
        # Odd values in a summary show only here: the page then says so, and has the rest.
        scores_table(run)
        for method in run.methods:
            run.coverage(method)
    except _BROKEN as error:
        return [unfinished_car(name, folder, reason_of(error))]
    when = said_time([folder / VERSIONS, folder / CONFIG], folder / SUMMARY)
    return [Car(name, folder, run, readable_json(folder / VERSIONS), when)]


def read_run(name: str, folder: Path) -> Items:
    """Read a run folder, finished or not."""
    try:
        check_scored(folder)
    except InputError as error:
        return [unfinished_run(name, folder, reason_of(error))]
    metrics = with_current_names(readable_json(folder / METRICS))
    try:
        config = load_stored(folder / CONFIG)
    except InputError as error:
        return [unfinished_run(name, folder, f"its settings cannot be read: {reason_of(error)}")]
    if not isinstance(metrics.get("test"), dict):
        return [unfinished_run(name, folder)]
    history, broken = readable_lines(folder / HISTORY)
    state = f"finished {said_time([folder / CONFIG], folder / METRICS)}{unread(broken)}"
    if forecasts := readable_json(folder / ROLLOUT):
        metrics = metrics | {"rollouts": forecasts}
    row = row_of_run(name, config, metrics, history)
    return [Run(name, folder, config, readable_json(folder / VERSIONS), row, history, state)]


def read_sweep(name: str, folder: Path, *, progress: bool = False) -> Items:
    """Read the rows that a sweep was last asked for, or all of its rows; and the missing part of it."""
    asked = readable_json(folder / PLAN)
    try:
        rows, total = asked_rows(folder)
        trials = {trial_key(trial, asked["data"]): trial for trial in load_trials(folder)}
    except InputError as error:
        rows, trials = all_rows(folder), {}
        total = len(rows)
        if not rows:
            raise InputError(f"no run of the sweep is finished ({reason_of(error)})") from error
    kept = []
    for row in rows:
        try:
            collect([scored := scored_row(row)])
            kept.append(scored)
        except _BROKEN:
            continue
    open_part = unfinished_sweep(name, folder, asked, len(kept), total)
    if not kept:
        return [open_part]
    try:
        histories = _histories(folder, kept, trials, asked.get("data", ""), progress=progress)
    except _BROKEN:
        histories = {}
    begun = sorted((folder / TRAINED).glob("*.json"))
    when = said_time([*begun, folder / ROWS], folder / ROWS)
    return [Sweep(name, folder, asked, kept, histories, total - len(kept), when), open_part]


def _histories(
    folder: Path, rows: list[Row], trials: Mapping[str, Trial], digest: str, *, progress: bool
) -> dict[str, History]:
    archive, found = Archive(folder), {}
    with CountDisplay("histories read", enabled=progress) as display:
        for done, row in enumerate(rows, start=1):
            trial = trials.get(row["key"])
            if trial is not None and trial.configs:
                key = trainings_of(trial)[0][0].key(digest)
                if key in archive:
                    found[row["key"]] = known_lines(archive.history(key))
            display.update(done, len(rows))
    return found
