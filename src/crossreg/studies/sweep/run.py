"""`crossreg sweep`: trials to rows, in a folder that a killed sweep goes on from (`runs/sweep_folder.py`).

A trial needs one or more trainings (the members of an ensemble, the candidates of a choice); trials that need the same
one share it. Finished trials and trainings are found by their content hash.
"""

import contextlib
import math
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from crossreg.config import Config
from crossreg.data.load import check_split
from crossreg.data.trajectories import Trajectories
from crossreg.designs.grids import Trial
from crossreg.errors import InputError
from crossreg.machine.devices import devices_in_use
from crossreg.machine.memory_maps import release_programs
from crossreg.methods.early import Trained
from crossreg.nn.build import model_like
from crossreg.progress.display import clock
from crossreg.progress.jobs_display import JobsDisplay, Part
from crossreg.progress.sweep_display import SweepDisplay
from crossreg.runs.programs import Program
from crossreg.runs.saving import USUAL, Saving
from crossreg.runs.sweep_folder import ROWS, join, open_sweep, read_rows, sealed_row, trial_key
from crossreg.runs.versions import describe_driver, describe_machine
from crossreg.studies.launchers import Launcher, open_launcher
from crossreg.studies.launchers.settings import HERE, Workers
from crossreg.studies.sweep.distributed import JobPlan, clear_left, fill_by_jobs, take_in_left
from crossreg.studies.sweep.programs import cohort_of, compiled_ahead, on_device, plan_programs, train_program
from crossreg.studies.sweep.scoring import score_trials, scored_on, shared_trajectories, trainings_of
from crossreg.training.cohort import check_learnable, check_memory, memory_bytes
from crossreg.training.cost import scoring_steps


def check_trials(trials: Sequence[Trial]) -> None:
    """Refuses, before anything is trained, trials that cannot be."""
    source = _source(trials[0].config)
    for trial in trials:
        if _source(trial.config) != source:
            raise InputError("a sweep has one scenario, grid and horizon; run one sweep for each")
        split = check_split(trial.config.data)
        least = 2 if trial.splits_off_calibration else 1 if trial.needs_reg else 0
        if len(split.reg) < least:
            raise InputError(
                f"--methods {trial.method.name}: needs --reg-size {least} or more, not {trial.config.data.reg_size}"
            )
        for config in trial.configs:
            check_learnable(config)
    # Seeds are alike in this, and there may be thousands.
    unseeded = {str((p.method.name, p.changes, p.base.model, vars(p.base.train) | {"seed": 0})): p for p in trials}
    for trial in unseeded.values():
        trial.method.check_settings(trial.base, trial.changes)


def _source(config: Config) -> tuple:
    """The settings that decide which trajectories are loaded."""
    data = config.data
    if data.data is not None:
        return (data.data, data.field, data.axes)
    return (data.scenario, data.num_spatial_dims, data.num_points, data.train_horizon, data.test_horizon)


def run_sweep(
    trials: Sequence[Trial],
    folder: Path,
    *,
    progress: bool = True,
    asked: dict[str, Any] | None = None,
    saving: Saving = USUAL,
    workers: Workers = HERE,
) -> list[dict[str, Any]]:
    """Trains and scores all trials into `folder`; returns their rows. What is there already is not done again.

    Where `workers` are others than this process, rows of jobs that failed twice are missing; a line has said why.
    """
    check_trials(trials)
    trajectories = shared_trajectories(trials)
    asked = (asked or {}) | {"data": trajectories.digest}
    if workers.in_process:
        packing = _Packing(workers.memory or memory_bytes(), workers.most_replicas)
        _check_fit(trials, trajectories)
        with _opened(trials, folder, asked, saving, describe_machine()) as corrupted:
            if progress and len(devices := devices_in_use()) > 1:
                _say(f"{len(devices)} devices ({devices[0].device_kind}) divide the replicas among them")
            rows = _fill(trials, folder, on_device(trajectories), progress, corrupted, saving, packing)
            clear_left(folder)
    else:
        with open_launcher(workers, folder) as launcher:
            packing = _Packing(workers.memory or launcher.memory(), workers.most_replicas, launcher.room() or 1)
            _check_fit(trials, trajectories, packing.memory // (workers.worker_gpus or 1))
            with _opened(trials, folder, asked, saving, describe_driver()) as corrupted:
                if progress:
                    _say(f"workers ({workers.launcher}): {launcher.room() or 'as many as there is room for'}")
                rows = _launch(trials, folder, trajectories, progress, corrupted, saving, packing, launcher)
    return join(trials, rows, trajectories.digest)


def _say(what: str) -> None:
    print(f"crossreg: {what}", file=sys.stderr, flush=True)


class _Packing(NamedTuple):
    """What decides how many replicas a program has: the memory of a worker, the most that were asked for, workers."""

    memory: int
    most: int | None = None
    workers: int = 1


def _check_fit(trials: Sequence[Trial], trajectories: Trajectories, memory: int | None = None) -> None:
    """Refuses what a device of a worker could not hold; by default what this one could not."""
    channels, *space = trajectories.train.shape[2:]
    for config in {cohort_of(config): config for trial in trials for config in trial.configs}.values():
        check_memory(config, trajectories.train.shape[2:], memory)
        model_like(config.model, channels + config.data.mask_channel, (channels, *space))


@contextlib.contextmanager
def _opened(
    trials: Sequence[Trial], folder: Path, asked: dict[str, Any], saving: Saving, machine: dict[str, str]
) -> Iterator[set[str]]:
    """The folder of a sweep, to be filled; gives the names of trained programs that were corrupted."""
    keys = [trial_key(trial, asked["data"]) for trial in trials]
    with open_sweep(folder, asked, keys=keys, saving=saving, machine=machine) as corrupted:
        yield corrupted - take_in_left(folder)


class _Open(NamedTuple):
    """What is still to be done of a sweep: rows by key, the trainings each waits for, and programs in their order."""

    waiting: dict[str, Trial]
    needs: dict[str, set[str]]
    due: list[Program]


def _open_work(
    trials: Sequence[Trial],
    folder: Path,
    trajectories: Trajectories,
    rows: Container[str],
    packing: _Packing,
    *,
    corrupted: Container[str] = (),
    write: bool,
) -> _Open:
    digest = trajectories.digest
    keyed = {trial_key(trial, digest): trial for trial in trials}
    every = [training for trial in keyed.values() for members in trainings_of(trial) for training in members]
    num_points = math.prod(trajectories.train.shape[2:])
    programs = plan_programs(
        every, folder, digest, num_points, packing.memory, most=packing.most, workers=packing.workers, write=write
    )
    waiting = {key: trial for key, trial in keyed.items() if key not in rows}
    needs = {key: {t.key(digest) for ms in trainings_of(p) for t in ms} for key, p in waiting.items()}
    # A program is trained whole: a part of it would have other last digits.
    order = {training.key(digest): i for i, training in enumerate(every)}
    due = [p for p in programs if any(p.trainings.keys() & needed for needed in needs.values())]
    due += [p for p in programs if p.name in corrupted and p not in due and p.trainings.keys() & order.keys()]
    due.sort(key=lambda program: min(order.get(key, len(order)) for key in program.trainings))
    return _Open(waiting, needs, due)


def describe_sweep(trials: Sequence[Trial], folder: Path, workers: Workers = HERE) -> str:
    """What `run_sweep` would do, and about how long it would train; nothing is run or written."""
    check_trials(trials)
    trajectories = shared_trajectories(trials)
    space = trajectories.train.shape[3:]
    packing = _Packing(workers.memory or memory_bytes(), workers.most_replicas, workers.workers or 1)
    work = _open_work(trials, folder, trajectories, {row["key"] for row in read_rows(folder)}, packing, write=False)
    due = [program for program in work.due if not program.is_done(folder)]
    seconds = [program.seconds(space) for program in due]
    known = [s for s in seconds if s is not None]
    device = jax.devices()[0].device_kind
    took = f"about {clock(sum(known))} of training" if len(known) == len(seconds) else "no times are known"
    lines = [
        f"{len(work.waiting)} of {len(trials)} rows to make, {len(due)} program{'s' * (len(due) != 1)} to train;"
        f" {took} on {device}, compilation and scoring aside"
    ]
    for program, s in zip(due, seconds, strict=True):
        steps = f"{program.config.train.steps:,} steps"
        lines.append(f"  {_label(program, work):<40}{steps:>15}{'' if s is None else clock(s):>10}")
    return "\n".join(lines)


def _fill(
    trials: Sequence[Trial],
    folder: Path,
    trajectories: Trajectories,
    progress: bool,
    corrupted: Container[str],
    saving: Saving,
    packing: _Packing,
) -> dict[str, dict]:
    """Trains and scores what is missing, one program after another, in this process."""
    rows = {row["key"]: row for row in read_rows(folder)}
    work = _open_work(trials, folder, trajectories, rows, packing, corrupted=corrupted, write=True)
    waiting, needs, due = work
    trained: dict[str, Trained] = {}
    on = scored_on()
    space = trajectories.train.shape[3:]
    display = SweepDisplay(**_extent(trials, work, space), folder=folder, enabled=progress)
    with display, compiled_ahead(due, folder, trajectories, packing.memory):
        for program in [None, *due]:  # before the first program, what needs none
            if program is not None:
                label, steps = _label(program, work), program.config.train.steps
                display.begin(label, steps, program.work(space), program=program.name)
                trained |= train_program(program, folder, trajectories, display, saving)
            ready = {key: waiting[key] for key, needed in needs.items() if needed <= trained.keys()}
            with (folder / ROWS).open("a") as file:
                for key, row in score_trials(ready, trained, trajectories):
                    rows[key] = row | {"key": key, "on": on}
                    file.write(sealed_row(rows[key]))
                    file.flush()
                    display.scored()
            needs = {key: needed for key, needed in needs.items() if key not in ready}
            trained = {key: t for key, t in trained.items() if any(key in needed for needed in needs.values())}
            release_programs()
    return rows


def _launch(
    trials: Sequence[Trial],
    folder: Path,
    trajectories: Trajectories,
    progress: bool,
    corrupted: Container[str],
    saving: Saving,
    packing: _Packing,
    launcher: Launcher,
) -> dict[str, dict]:
    """The same by jobs of workers."""
    rows = {row["key"]: row for row in read_rows(folder)}
    work = _open_work(trials, folder, trajectories, rows, packing, corrupted=corrupted, write=True)
    space = trajectories.train.shape[3:]
    parts = {p.name: Part(_label(p, work), p.config.train.steps, p.work(space)) for p in work.due}
    display = JobsDisplay(parts, **_extent(trials, work, space), folder=folder, enabled=progress)
    with (folder / ROWS).open("a") as file, display:

        def keep(key: str, row: dict[str, Any]) -> None:
            if key not in rows:
                rows[key] = row
                file.write(sealed_row(row))
                file.flush()
                display.scored()

        due = [program for program in work.due if program.name in corrupted or not program.is_done(folder)]
        names = {program.name for program in due}
        stored = [program for program in work.due if program.name not in names]
        fill_by_jobs(
            JobPlan(work.waiting, work.needs, due, stored), folder, trajectories, launcher, display, keep, saving
        )
    return rows


def _extent(trials: Sequence[Trial], work: _Open, space: tuple[int, ...]) -> dict[str, Any]:
    """How much there is to do, for a display."""
    whole = sum((program.work(space) for program in work.due), 0.0)
    steps = sum(len(program.trainings) * program.config.train.steps for program in work.due)
    scoring = sum(scoring_steps(trial.config, trial.method.members) for trial in work.waiting.values())
    return {
        "work": whole,
        "programs": len(work.due),
        "trials": len(trials),
        "scored": len(trials) - len(work.waiting),
        "seconds_per_work": 1.0 if all(program.seconds(space) is not None for program in work.due) else None,
        "scoring_work": whole / steps * scoring / len(work.waiting) if steps and work.waiting else None,
    }


def _label(program: Program, work: _Open) -> str:
    """For which methods a program trains, and how many replicas."""
    methods = {p.method.name for key, p in work.waiting.items() if work.needs[key] & program.trainings.keys()}
    first, *others = sorted(methods, key=lambda name: (len(name), name)) or ["trained again:"]
    more = f" and {len(others)} more" if others else ""
    return f"{first}{more} × {len(program.trainings)}"
