"""`crossreg sweep`: points to rows, in a folder that a killed sweep goes on from.

sweep.json    what was asked for last, and every start with its versions and device
trained/      the trained replicas (`studies/programs.py`)
rows.jsonl    one line per finished point, whoever asked for it

A point needs one or more trainings (the members of an ensemble, the candidates of a choice); points that need the same
one share it. Finished points and trainings are found by their content hash.
"""

import contextlib
import fcntl
import functools
import json
import math
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from crossreg.config import Config, changed_fields, default_settings, from_dict
from crossreg.data.apebench import load_trajectories
from crossreg.data.pairs import AbstractPairs, check_split, make_data
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.files import check_is_folder, replacing
from crossreg.methods.early import Trained
from crossreg.methods.readout import ReadOut, read_out
from crossreg.metrics.evaluation import Predictor, evaluate_all, sigma_per_site
from crossreg.nn.build import model_like
from crossreg.report.progress import clock
from crossreg.report.sweep_progress import SweepDisplay
from crossreg.studies.cohort import check_learnable, check_memory, memory_bytes
from crossreg.studies.cost import scoring_steps
from crossreg.studies.grids import Point, plan
from crossreg.studies.memory_maps import release_programs
from crossreg.studies.programs import (
    FORMAT,
    TRAINED_FOLDER,
    Program,
    Training,
    cohort_of,
    compiled_ahead,
    digest_of,
    on_device,
    plan_programs,
    train_program,
    without_idle,
)
from crossreg.studies.run_folder import describe_machine, finite_or_none, write_json

PLAN, ROWS, LOCK = "sweep.json", "rows.jsonl", "lock"
# Settings that every row has under their own name.
_COLUMNS = ("scenario", "observed_fraction", "train_size", "reg_size", "seed", "steps")


def trainings_of(point: Point) -> list[list[Training]]:
    """What a point needs: for each candidate, its members."""
    return [
        [Training(without_idle(config), member, point.keeps_part_of_reg) for member in range(point.method.members)]
        for config in point.configs
    ]


def point_key(point: Point, digest: str) -> str:
    """The identity of a row."""
    configs = [changed_fields(config) for config in point.configs] or [changed_fields(point.config)]
    return digest_of([FORMAT, digest, configs, point.method.members, point.method.name])


def check_points(points: Sequence[Point]) -> None:
    """Refuses, before anything is trained, points that cannot be."""
    source = _source(points[0].config)
    for point in points:
        if _source(point.config) != source:
            raise InputError("a sweep has one scenario, grid and horizon; run one sweep for each")
        if point.config.data.data is not None:
            raise InputError(f"--data {point.config.data.data}: a sweep takes scenarios; train each run on your files")
        split = check_split(point.config.data)
        least = 2 if point.keeps_part_of_reg else 1 if point.needs_reg else 0
        if len(split.reg) < least:
            raise InputError(
                f"--methods {point.method.name}: needs --reg-size {least} or more, not {point.config.data.reg_size}"
            )
        for config in point.configs:
            check_learnable(config)


def _source(config: Config) -> tuple:
    """The settings that decide which trajectories are loaded."""
    data = config.data
    return (data.scenario, data.num_spatial_dims, data.num_points, data.train_horizon, data.test_horizon)


@contextlib.contextmanager
def open_sweep(folder: Path, asked: dict[str, Any]) -> Iterator[None]:
    """Makes the folder of a sweep, or finds an earlier one there, and keeps others out of it."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: exists and is not a folder")
    foreign = [p.name for p in folder.iterdir() if p.suffix != ".tmp"] if folder.exists() else []
    if foreign and PLAN not in foreign and set(foreign) - {LOCK, TRAINED_FOLDER}:
        raise InputError(f"--out {folder}: holds something else than a sweep; choose a new or empty folder")
    try:
        (folder / TRAINED_FOLDER).mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"--out {folder}: another sweep is at work there") from error
        for rest in (*folder.glob("*.tmp"), *(folder / TRAINED_FOLDER).glob("*.tmp")):
            rest.unlink()  # of a process that was killed: nobody else has the lock
        earlier = _read_plan(folder) if (folder / PLAN).exists() else {}
        if earlier and _called(earlier) != _called(asked):
            print(f"crossreg: {folder} held {_called(earlier)}; tables are now of this one", file=sys.stderr)
        write_json(folder / PLAN, asked | {"starts": [*earlier.get("starts", []), describe_machine()]})
        # A line that a kill cut short would spoil the one behind it.
        with replacing(folder / ROWS) as file:
            file.write("".join(json.dumps(row) + "\n" for row in read_rows(folder)).encode())
        yield


def _called(asked: dict[str, Any]) -> str:
    """What a command asked for, in a few words."""
    parts = [f"a sweep {asked.get('name', '')}".strip()]
    parts += [
        f"--{k.replace('_', '-')} {asked[k]}" for k in ("methods", "seeds", "first_seed", "steps") if asked.get(k)
    ]
    parts += [f"--grid {item}" for item in asked.get("grid", [])]
    # As set then: fields that a later version adds are at their defaults.
    settings = changed_fields(from_dict(asked.get("config", {})))
    return " ".join([*parts, *(f"--{k.replace('_', '-')} {v}" for k, v in settings.items() if k != "steps")])


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """All finished points of a folder, each once; a line that a kill cut short is left out."""
    rows: dict[str, dict[str, Any]] = {}
    path = folder / ROWS
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            rows[row["key"]] = row
    return list(rows.values())


def _read_plan(folder: Path) -> dict[str, Any]:
    if not (folder / PLAN).exists():
        raise InputError(f"{folder}: holds no sweep ({PLAN} is missing)")
    try:
        return json.loads((folder / PLAN).read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: holds no sweep that could be read ({error})") from error


def load_points(folder: Path) -> list[Point]:
    """The points that a sweep was asked for last."""
    return points_of(_read_plan(folder), str(folder / PLAN))


def points_of(asked: dict[str, Any], where: str) -> list[Point]:
    """The points of what a `sweep.json` holds."""
    try:
        base = from_dict(asked["config"], where=where)
        if not isinstance(asked["data"], str):  # the keys of rows need it
            raise TypeError("data")
        fields = ("methods", "seeds", "first_seed", "steps", "grid")
        return plan(asked["name"], **{k: asked[k] for k in fields if k in asked}, base=base)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: {error!r} is missing or wrong") from error


def all_rows(folder: Path) -> list[dict[str, Any]]:
    """Every finished row of a folder, whichever command asked for it; its changes are all that it sets."""
    check_is_folder(folder)
    _read_plan(folder)
    defaults = default_settings()
    return [
        row | {"changes": {k: v for k, v in row.get("settings", {}).items() if v != defaults[k]}}
        for row in read_rows(folder)
    ]


def asked_rows(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """The finished rows among the points asked for last, and how many were asked for."""
    check_is_folder(folder)
    points = load_points(folder)
    rows = {row["key"]: row for row in read_rows(folder)}
    asked = _join(points, rows, _read_plan(folder)["data"])
    if rows and not asked:
        raise InputError(f"{folder}: its {len(rows)} rows are of earlier sweeps, none of the one asked for last")
    return asked, len(points)


def _join(points: Sequence[Point], rows: dict[str, dict[str, Any]], digest: str) -> list[dict[str, Any]]:
    """Rows in the order of the points; what a sweep calls a change is the asking sweep's business, not the row's."""
    keys = [point_key(point, digest) for point in points]
    return [rows[k] | {"changes": dict(p.changes)} for k, p in zip(keys, points, strict=True) if k in rows]


def run_sweep(points: Sequence[Point], folder: Path, *, progress: bool = True, asked: dict[str, Any] | None = None):
    """Trains and scores all points into `folder`; returns their rows. What is there already is not done again."""
    check_points(points)
    trajectories = on_device(load_trajectories(points[0].config.data))
    channels, *space = trajectories.train.shape[2:]
    for config in {cohort_of(config): config for point in points for config in point.configs}.values():
        check_memory(config, trajectories.train.shape[2:])
        model_like(config.model, channels + config.data.mask_channel, (channels, *space))
    with open_sweep(folder, (asked or {}) | {"data": trajectories.digest}):
        rows = _fill(points, folder, trajectories, progress)
    return _join(points, rows, trajectories.digest)


class _Open(NamedTuple):
    """What is still to be done of a sweep: rows by key, the trainings each waits for, and programs in their order."""

    waiting: dict[str, Point]
    needs: dict[str, set[str]]
    due: list[Program]


def _open_work(
    points: Sequence[Point], folder: Path, trajectories: Trajectories, rows: Container[str], *, write: bool
) -> _Open:
    digest = trajectories.digest
    keyed = {point_key(point, digest): point for point in points}
    every = [training for point in keyed.values() for members in trainings_of(point) for training in members]
    num_points = math.prod(trajectories.train.shape[2:])
    programs = plan_programs(every, folder, digest, num_points, memory_bytes(), write=write)
    waiting = {key: point for key, point in keyed.items() if key not in rows}
    needs = {key: {t.key(digest) for ms in trainings_of(p) for t in ms} for key, p in waiting.items()}
    # A program is trained whole: a part of it would have other last digits.
    due = [p for p in programs if any(p.trainings.keys() & needed for needed in needs.values())]
    order = {training.key(digest): i for i, training in enumerate(every)}
    due.sort(key=lambda program: min(order.get(key, len(order)) for key in program.trainings))
    return _Open(waiting, needs, due)


def describe_sweep(points: Sequence[Point], folder: Path) -> str:
    """What `run_sweep` would do, and about how long it would train; nothing is run or written."""
    check_points(points)
    trajectories = load_trajectories(points[0].config.data)
    space = trajectories.train.shape[3:]
    work = _open_work(points, folder, trajectories, {row["key"] for row in read_rows(folder)}, write=False)
    due = [program for program in work.due if not program.is_done(folder)]
    seconds = [program.seconds(space) for program in due]
    known = [s for s in seconds if s is not None]
    device = jax.devices()[0].device_kind
    took = f"about {clock(sum(known))} of training" if len(known) == len(seconds) else "no times are known"
    lines = [
        f"{len(work.waiting)} of {len(points)} rows to make, {len(due)} program{'s' * (len(due) != 1)} to train;"
        f" {took} on {device}, compilation and scoring aside"
    ]
    for program, s in zip(due, seconds, strict=True):
        steps = f"{program.config.train.steps:,} steps"
        lines.append(f"  {_label(program, work):<40}{steps:>15}{'' if s is None else clock(s):>10}")
    return "\n".join(lines)


def _fill(points: Sequence[Point], folder: Path, trajectories: Trajectories, progress: bool) -> dict[str, dict]:
    rows = {row["key"]: row for row in read_rows(folder)}
    work = _open_work(points, folder, trajectories, rows, write=True)
    waiting, needs, due = work
    trained: dict[str, Trained] = {}
    machine = describe_machine()
    on = {name: machine[name] for name in ("crossreg", "jax", "device")}
    space = trajectories.train.shape[3:]
    whole = sum((program.work(space) for program in due), 0.0)
    guess = 1.0 if all(program.seconds(space) is not None for program in due) else None
    done = len(points) - len(waiting)
    steps = sum(len(program.trainings) * program.config.train.steps for program in due)
    scoring = sum(scoring_steps(point.config, point.method.members) for point in waiting.values())
    display = SweepDisplay(
        whole,
        len(due),
        len(points),
        scored=done,
        seconds_per_work=guess,
        scoring_work=whole / steps * scoring / len(waiting) if steps else None,
        folder=folder,
        enabled=progress,
    )
    with display, compiled_ahead(due, folder, trajectories, memory_bytes()):
        for program in [None, *due]:  # before the first program, what needs none
            if program is not None:
                label, steps = _label(program, work), program.config.train.steps
                display.begin(label, steps, program.work(space), program=program.name)
                trained |= train_program(program, folder, trajectories, display)
            ready = {key: waiting[key] for key, needed in needs.items() if needed <= trained.keys()}
            with (folder / ROWS).open("a") as file:
                for key, row in _score(ready, trained, trajectories):
                    rows[key] = row | {"key": key, "on": on}
                    file.write(json.dumps(rows[key], allow_nan=False) + "\n")
                    file.flush()
                    display.scored()
            needs = {key: needed for key, needed in needs.items() if key not in ready}
            trained = {key: t for key, t in trained.items() if any(key in needed for needed in needs.values())}
            release_programs()
    return rows


def _label(program: Program, work: _Open) -> str:
    """For which methods a program trains, and how many replicas."""
    methods = {p.method.name for key, p in work.waiting.items() if work.needs[key] & program.trainings.keys()}
    first, *others = sorted(methods, key=lambda name: (len(name), name))
    more = f" and {len(others)} more" if others else ""
    return f"{first}{more} × {len(program.trainings)}"


def _score(
    points: dict[str, Point], trained: dict[str, Trained], trajectories: Trajectories
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of points whose trainings are done."""
    reads: list[ReadOut] = []
    splits_of = functools.cache(lambda config: make_data(trajectories, config, check=False))  # the same for many points

    def jobs() -> Iterator[tuple[Predictor, AbstractPairs]]:
        for point in points.values():
            candidates = [[trained[t.key(trajectories.digest)] for t in members] for members in trainings_of(point)]
            whole = splits_of(point.config.data)
            data = whole.keep_part_of_reg(point.config.train.seed) if point.keeps_part_of_reg else whole
            reads.append(read_out(point.method, candidates, data, point.config.train.evaluation_samples))
            splits = {"test": data.test, "reg": whole.reg, "train": data.train}
            for name in _splits(point):
                yield reads[-1].predictor, splits[name]

    scores = evaluate_all(jobs())
    for number, (key, point) in enumerate(points.items()):
        by_split = {name: next(scores) for name in _splits(point)}
        yield key, _row(point, reads[number], by_split)


def _splits(point: Point) -> tuple[str, ...]:
    """The splits that a point is scored on."""
    return ("test", "reg", "train") if point.config.data.reg_size else ("test", "train")


def _row(point: Point, read: ReadOut, scores: dict[str, dict[str, Any]]) -> dict[str, Any]:
    data, notes = point.config.data, dict(read.notes)
    settings = changed_fields(point.config) | point.changes
    if len(point.configs) > 1:
        notes["dropout_rate"] = point.configs[read.chosen].model.dropout_rate
    return finite_or_none(
        {
            "scenario": data.scenario,
            "observed_fraction": data.observed_fraction,
            "train_size": data.train_size,
            "reg_size": data.reg_size,
            "method": point.method.name,
            "seed": point.config.train.seed,
            "steps": point.config.train.steps,
            "settings": {k: v for k, v in settings.items() if k not in _COLUMNS},
            "diverged": read.failed or not math.isfinite(scores["test"]["nll"]),
            "test": scores["test"],
            "reg": scores.get("reg"),
            "train": scores["train"],
            "sigma": sigma_per_site(read.models[0]) if len(read.models) == 1 else {},
            "notes": notes,
        }
    )
