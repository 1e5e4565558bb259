"""`crossreg sweep`: points to rows, in a folder that a killed sweep goes on from (`studies/sweep_folder.py`).

A point needs one or more trainings (the members of an ensemble, the candidates of a choice); points that need the same
one share it. Finished points and trainings are found by their content hash.
"""

import functools
import math
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from crossreg.config import Config, changed_fields
from crossreg.data.pairs import AbstractPairs, check_split, make_data, trajectories_of
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.methods.early import Trained
from crossreg.methods.readout import ReadOut, read_out
from crossreg.metrics.evaluation import Predictor, evaluate_all, sigma_per_site
from crossreg.nn.build import model_like
from crossreg.report.progress import clock
from crossreg.report.sweep_progress import SweepDisplay
from crossreg.studies.cohort import check_learnable, check_memory, memory_bytes
from crossreg.studies.cost import scoring_steps
from crossreg.studies.grids import Point
from crossreg.studies.machine import describe_machine
from crossreg.studies.memory_maps import release_programs
from crossreg.studies.programs import (
    Program,
    Training,
    cohort_of,
    compiled_ahead,
    on_device,
    plan_programs,
    train_program,
    without_idle,
)
from crossreg.studies.run_folder import finite_or_none
from crossreg.studies.saving import USUAL, Saving
from crossreg.studies.sweep_folder import ROWS, join, open_sweep, point_key, read_rows, sealed_row

# Settings that every row has under their own name.
_COLUMNS = ("scenario", "observed_fraction", "train_size", "reg_size", "seed", "steps")


def trainings_of(point: Point) -> list[list[Training]]:
    """What a point needs: for each candidate, its members."""
    return [
        [Training(without_idle(config), member, point.keeps_part_of_reg) for member in range(point.method.members)]
        for config in point.configs
    ]


def check_points(points: Sequence[Point]) -> None:
    """Refuses, before anything is trained, points that cannot be."""
    source = _source(points[0].config)
    for point in points:
        if _source(point.config) != source:
            raise InputError("a sweep has one scenario, grid and horizon; run one sweep for each")
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
    if data.data is not None:
        return (data.data, data.field, data.axes)
    return (data.scenario, data.num_spatial_dims, data.num_points, data.train_horizon, data.test_horizon)


def run_sweep(
    points: Sequence[Point],
    folder: Path,
    *,
    progress: bool = True,
    asked: dict[str, Any] | None = None,
    saving: Saving = USUAL,
) -> list[dict[str, Any]]:
    """Trains and scores all points into `folder`; returns their rows. What is there already is not done again."""
    check_points(points)
    trajectories = on_device(trajectories_of(points[0].config.data))
    channels, *space = trajectories.train.shape[2:]
    for config in {cohort_of(config): config for point in points for config in point.configs}.values():
        check_memory(config, trajectories.train.shape[2:])
        model_like(config.model, channels + config.data.mask_channel, (channels, *space))
    keys = [point_key(point, trajectories.digest) for point in points]
    asked = (asked or {}) | {"data": trajectories.digest}
    with open_sweep(folder, asked, keys=keys, saving=saving) as harmed:
        rows = _fill(points, folder, trajectories, progress, harmed, saving)
    return join(points, rows, trajectories.digest)


class _Open(NamedTuple):
    """What is still to be done of a sweep: rows by key, the trainings each waits for, and programs in their order."""

    waiting: dict[str, Point]
    needs: dict[str, set[str]]
    due: list[Program]


def _open_work(
    points: Sequence[Point],
    folder: Path,
    trajectories: Trajectories,
    rows: Container[str],
    *,
    harmed: Container[str] = (),
    write: bool,
) -> _Open:
    digest = trajectories.digest
    keyed = {point_key(point, digest): point for point in points}
    every = [training for point in keyed.values() for members in trainings_of(point) for training in members]
    num_points = math.prod(trajectories.train.shape[2:])
    programs = plan_programs(every, folder, digest, num_points, memory_bytes(), write=write)
    waiting = {key: point for key, point in keyed.items() if key not in rows}
    needs = {key: {t.key(digest) for ms in trainings_of(p) for t in ms} for key, p in waiting.items()}
    # A program is trained whole: a part of it would have other last digits.
    order = {training.key(digest): i for i, training in enumerate(every)}
    due = [p for p in programs if any(p.trainings.keys() & needed for needed in needs.values())]
    due += [p for p in programs if p.name in harmed and p not in due and p.trainings.keys() & order.keys()]
    due.sort(key=lambda program: min(order.get(key, len(order)) for key in program.trainings))
    return _Open(waiting, needs, due)


def describe_sweep(points: Sequence[Point], folder: Path) -> str:
    """What `run_sweep` would do, and about how long it would train; nothing is run or written."""
    check_points(points)
    trajectories = trajectories_of(points[0].config.data)
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


def _fill(
    points: Sequence[Point],
    folder: Path,
    trajectories: Trajectories,
    progress: bool,
    harmed: Container[str],
    saving: Saving,
) -> dict[str, dict]:
    rows = {row["key"]: row for row in read_rows(folder)}
    work = _open_work(points, folder, trajectories, rows, harmed=harmed, write=True)
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
        scoring_work=whole / steps * scoring / len(waiting) if steps and waiting else None,
        folder=folder,
        enabled=progress,
    )
    with display, compiled_ahead(due, folder, trajectories, memory_bytes()):
        for program in [None, *due]:  # before the first program, what needs none
            if program is not None:
                label, steps = _label(program, work), program.config.train.steps
                display.begin(label, steps, program.work(space), program=program.name)
                trained |= train_program(program, folder, trajectories, display, saving)
            ready = {key: waiting[key] for key, needed in needs.items() if needed <= trained.keys()}
            with (folder / ROWS).open("a") as file:
                for key, row in _score(ready, trained, trajectories):
                    rows[key] = row | {"key": key, "on": on}
                    file.write(sealed_row(rows[key]))
                    file.flush()
                    display.scored()
            needs = {key: needed for key, needed in needs.items() if key not in ready}
            trained = {key: t for key, t in trained.items() if any(key in needed for needed in needs.values())}
            release_programs()
    return rows


def _label(program: Program, work: _Open) -> str:
    """For which methods a program trains, and how many replicas."""
    methods = {p.method.name for key, p in work.waiting.items() if work.needs[key] & program.trainings.keys()}
    first, *others = sorted(methods, key=lambda name: (len(name), name)) or ["trained again:"]
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
    data = point.config.data
    settings = changed_fields(point.config) | point.changes
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
            "notes": read.notes,
        }
    )
