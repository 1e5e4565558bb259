"""What is below a folder: single runs, sweeps and car experiments.

A run is read into what a row of a sweep holds, so that runs compare as rows do. Nothing in these files is taken for
granted: they may be of an older version, half written, or of something else by that name. What cannot be read is left
out, and the page says why.
"""

import functools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossreg.config import Config, changed_fields, load_yaml
from crossreg.errors import InputError
from crossreg.methods.names import UNTRAINED, parse_method
from crossreg.metrics.calibration import LEVELS
from crossreg.report.car_page import scores_table
from crossreg.report.car_run import CarRun, read_car_run
from crossreg.report.comparison import regime_of
from crossreg.report.history import history_line, number
from crossreg.report.progress import CountDisplay, clock
from crossreg.report.watch.folders import method_of
from crossreg.studies.archive import Archive
from crossreg.studies.grids import Point
from crossreg.studies.run_folder import CONFIG, HISTORY, METRICS, VERSIONS, check_scored
from crossreg.studies.sweep import trainings_of
from crossreg.studies.sweep_folder import PLAN, all_rows, asked_rows, load_points, point_key

_CARS, _SUMMARY = "test_cars.npz", "summary.json"
_DEPTH = 6
_MOST_RUNS = 1000
_LONGEST_REASON = 300
# What a file that is not what its name says may do to a reader.
_BROKEN = (InputError, OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)
_COLUMNS = ("scenario", "observed_fraction", "train_size", "reg_size", "seed", "steps")
_IDLE = ("evaluate_every", "engine", "evaluation_samples")  # they change no training

Row = dict[str, Any]
History = list[dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """A run folder."""

    name: str
    folder: Path
    config: Config
    versions: dict[str, Any]
    row: Row | None
    history: History
    state: str


@dataclass(frozen=True)
class Sweep:
    """A sweep folder. Histories are by the keys of rows; of an ensemble it is that of its first member."""

    name: str
    folder: Path
    asked: dict[str, Any]
    rows: list[Row]
    histories: dict[str, History]
    missing: int


@dataclass(frozen=True)
class Car:
    """A folder of `crossreg car`."""

    name: str
    folder: Path
    run: CarRun


@dataclass(frozen=True)
class Found:
    """All that is below a folder, and what could not be read: its name and the reason.

    `references` are rows of what was not trained, which a quickstart compares with.
    """

    name: str
    runs: list[Run] = field(default_factory=list)
    references: list[Row] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    cars: list[Car] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)


def find(folder: Path, *, progress: bool = False) -> Found:
    """Reads everything below a folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    found = Found(folder.resolve().name or "/")
    kinds: dict[str, tuple[list, Callable]] = {
        PLAN: (found.sweeps, functools.partial(read_sweep, progress=progress)),
        _CARS: (found.cars, read_car),
        CONFIG: (found.runs, read_run),
    }
    places = list(_walk(folder))
    with CountDisplay("folders read", enabled=progress and len(places) > 1) as display:
        for done, (path, names) in enumerate(places, start=1):
            name = found.name if path == folder else path.relative_to(folder).as_posix()
            mark = next((mark for mark in kinds if mark in names), None)
            try:
                if mark is None:
                    raise InputError(f"what is below was not looked at: it is more than {_DEPTH} folders down")
                if len(found.runs) >= _MOST_RUNS and mark == CONFIG:
                    raise InputError(f"left out: a page has at most {_MOST_RUNS} runs")
                listed, read = kinds[mark]
                listed.append(read(name, path))
            except _BROKEN as error:
                found.problems.append((name, " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__))
            display.update(done, len(places))
    if not (found.runs or found.sweeps or found.cars):
        why = f"; {found.problems[0][0]}: {found.problems[0][1]}" if found.problems else ""
        raise InputError(f"{folder}: nothing below it is a run, a sweep or a car experiment that can be read{why}")
    found.references.extend(_references(folder, found.runs))
    return found


def _references(folder: Path, runs: list[Run]) -> list[Row]:
    """Persistence, as the summary of a quickstart has it, in the regime of its runs."""
    summary, rows = _read_json(folder / _SUMMARY), [run.row for run in runs if run.row is not None]
    if not rows or not {"methods", "references"} <= summary.keys():
        return []
    sources = [summary[name] for name in ("methods", "references") if isinstance(summary[name], dict)]
    scored = {name: s for source in sources for name, s in source.items() if isinstance(s, dict)}
    return [
        scored_row(rows[0] | {"key": f"{_SUMMARY} {name}", "method": name, "diverged": False, "sigma": {}} | metrics)
        for name, metrics in scored.items()
        if name in UNTRAINED and isinstance(metrics.get("test"), dict)
    ]


def _walk(folder: Path) -> Iterator[tuple[Path, set[str]]]:
    """The folders that hold something to report, and the names in them; what lies deeper in these is their own.

    Of a folder that is as deep as is looked, and has folders of its own, there are no names.
    """
    for at, folders, files in os.walk(folder):
        path, names = Path(at), set(files)
        if names & {PLAN, _CARS, CONFIG}:
            folders.clear()
            yield path, names
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if folders and len(path.relative_to(folder).parts) >= _DEPTH:
            folders.clear()
            yield path, set()


def read_car(name: str, folder: Path) -> Car:
    """A car experiment whose scores can be shown."""
    run = read_car_run(folder)
    # What is odd in a summary shows only here: the page then says so, and has the rest.
    scores_table(run)
    for method in run.methods:
        run.coverage(method)
    return Car(name, folder, run)


def read_run(name: str, folder: Path) -> Run:
    """A run folder, finished or not."""
    check_scored(folder)
    config = load_yaml(folder / CONFIG)
    versions = _read_json(folder / VERSIONS)
    history = [line for line in map(history_line, _lines(folder / HISTORY)) if line]
    metrics = _read_json(folder / METRICS)
    if not isinstance(metrics.get("test"), dict):
        last = history[-1]["step"] if history else 0
        return Run(
            name, folder, config, versions, None, history, f"not finished: step {last:,} of {config.train.steps:,}"
        )
    return Run(name, folder, config, versions, _row(name, config, metrics, history), history, _when(folder))


def _row(name: str, config: Config, metrics: Mapping[str, Any], history: History) -> Row:
    """What a sweep would have written of the run."""
    method = method_of(config)
    usual = Config() if method == "own settings" else parse_method(method).configs(Config())[0]
    own = changed_fields(usual)
    changes = {k: v for k, v in changed_fields(config).items() if own.get(k) != v and k not in (*_COLUMNS, *_IDLE)}
    data = config.data
    return scored_row(
        {
            "key": name,
            "method": method,
            "seed": config.train.seed,
            "steps": config.train.steps,
            "changes": {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()},
            "diverged": any(line["diverged_at"] >= 0 for line in history[-1:]),
            **{k: getattr(data, k) for k in ("scenario", "observed_fraction", "train_size", "reg_size")},
            **{k: metrics.get(k) for k in ("test", "reg", "train", "sigma")},
        }
    )


def scored_row(row: Row) -> Row:
    """A row with nothing but finite numbers, or None, for its scores."""

    def scores(values: Any) -> dict[str, Any] | None:
        if not isinstance(values, dict):
            return None
        kept: dict[str, Any] = {k: number(v) for k, v in values.items() if k != "coverage"}
        covered = values.get("coverage")
        covered = [number(v) for v in covered] if isinstance(covered, list) else []
        fits = len(covered) == len(LEVELS) and None not in covered
        return kept | {"coverage": covered if fits else None}

    if any(number(row[name]) is None for name in _COLUMNS[1:]):
        raise ValueError("a row without its regime")
    sigma = row.get("sigma")
    sigma = sigma if isinstance(sigma, dict) else {}
    return row | {
        "method": str(row["method"]),
        "diverged": bool(row["diverged"]),
        "sigma": {str(site): [number(v) for v in values] for site, values in sigma.items() if isinstance(values, list)},
        **{split: scores(row.get(split)) for split in ("test", "reg", "train")},
    }


def read_sweep(name: str, folder: Path, *, progress: bool = False) -> Sweep:
    """The rows that a sweep was asked for last, or all that are there."""
    asked = _read_json(folder / PLAN)
    try:
        rows, total = asked_rows(folder)
        points = {point_key(point, asked["data"]): point for point in load_points(folder)}
    except InputError:
        rows, points = all_rows(folder), {}
        total = len(rows)
    kept = []
    for row in rows:
        try:
            regime_of(row)
            kept.append(scored_row(row))
        except _BROKEN:
            continue
    if not kept:
        raise InputError("no run of the sweep is finished")
    try:
        histories = _histories(folder, kept, points, asked.get("data", ""), progress=progress)
    except _BROKEN:
        histories = {}
    return Sweep(name, folder, asked, kept, histories, total - len(kept))


def _histories(
    folder: Path, rows: list[Row], points: Mapping[str, Point], digest: str, *, progress: bool
) -> dict[str, History]:
    archive, found = Archive(folder), {}
    with CountDisplay("histories read", enabled=progress) as display:
        for done, row in enumerate(rows, start=1):
            point = points.get(row["key"])
            if point is not None and point.configs:
                key = trainings_of(point)[0][0].key(digest)
                if key in archive:
                    found[row["key"]] = [line for line in map(history_line, archive.history(key)) if line]
            display.update(done, len(rows))
    return found


def distinct(rows: list[Row]) -> list[Row]:
    """Rows of which no two are the same method, regime and seed: of those that are, the later ones get their name."""
    seen: set[str] = set()
    kept = []
    for row in rows:
        mask = row.get("changes", {}).get("mask_seed")
        place = str((sorted(regime_of(row).items(), key=str), row["method"], row["seed"], mask, row["reg_size"]))
        kept.append(row | {"method": f"{row['method']} ({row['key']})"} if place in seen else row)
        seen.add(place)
    return kept


def _read_json(path: Path) -> dict[str, Any]:
    """An object from a JSON file; empty where there is none."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _lines(path: Path) -> Iterator[Any]:
    """The lines of a JSON lines file that can be read: a kill may have cut the last one short."""
    try:
        text = path.read_text()
    except (OSError, ValueError):
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def _when(folder: Path) -> str:
    """When a run ended and about how long it took, by the times of its files."""
    begun, ended = ((folder / name).stat().st_mtime for name in (CONFIG, METRICS))
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(ended))
    took = f", about {clock(ended - begun)} after it began" if ended - begun >= 1 else ""
    return f"finished {day} UTC{took}"
