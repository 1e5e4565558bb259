"""A sweep by jobs of workers: what goes out, what is taken in, and what is tried again.

One job trains a program and scores the trials that need nothing else. Trials that need several programs (an ensemble
whose members lie apart, a choice among dropout rates) are scored by jobs of their own as soon as all of them are
stored. The driver writes rows and the manifest, under the lock of the folder, and nobody else does.
"""

import collections
import math
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossreg.data import cache
from crossreg.data.trajectories import Trajectories
from crossreg.designs.grids import Trial
from crossreg.errors import InputError
from crossreg.files.sealed import is_sealed
from crossreg.files.whole import make_folder, replacing
from crossreg.machine.stopping import saved_on_stop
from crossreg.progress.jobs_display import JobsDisplay
from crossreg.runs.programs import Program, describe_program, digest_of, read_programs
from crossreg.runs.saving import Saving
from crossreg.runs.sweep_folder import JOBS
from crossreg.runs.versions import source_digest
from crossreg.studies.launchers.base import DATA, SLURM_IDS, TOKEN, Job, Launcher, Outcome, Wired, remove_jobs
from crossreg.studies.sweep.programs import take_in, take_out

_TRIES = 2
_SECONDS_BETWEEN_LOOKS = 1.0
# Fewer trials are not worth a job of their own.
_LEAST_TRIALS = 8
# What a worker elsewhere computes with should be what was said here.
_PASSED_ON = ("XLA_FLAGS", "NPROC", "JAX_DEFAULT_MATMUL_PRECISION")


class JobPlan(NamedTuple):
    """What is to be done: trials by key, the trainings each needs, programs to train and those that are stored."""

    trials: dict[str, Trial]
    needs: dict[str, set[str]]
    due: list[Program]
    stored: list[Program]


def take_in_left(folder: Path) -> set[str]:
    """Takes in what workers had trained when an earlier driver ended; the names of these programs."""
    found = [path for path in (folder / JOBS).glob("*.npz") if is_sealed(path, path.stem)]
    programs = {program.name: program for program in read_programs(folder)} if found else {}
    taken = {path.stem for path in found if path.stem in programs}
    for name in taken:
        take_in(programs[name], folder, folder / JOBS / f"{name}.npz")
    return taken


def clear_left(folder: Path) -> None:
    """Takes away what workers of an earlier sweep have left, once another process has done their jobs.

    Jobs that Slurm may still have are cancelled by the next sweep that is launched there, from what is written here.
    """
    if not (folder / JOBS / SLURM_IDS).exists():
        remove_jobs(folder)


class _Group(NamedTuple):
    """Trials that need the same programs, more than one job trains."""

    programs: frozenset[str]
    trials: list[str]


def fill_by_jobs(
    plan: JobPlan,
    folder: Path,
    trajectories: Trajectories,
    launcher: Launcher,
    display: JobsDisplay,
    keep: Callable[[str, dict[str, Any]], None],
    saving: Saving,
) -> None:
    """Has all jobs done, and tells `keep` of every row. What fails twice is said, and the others are finished."""
    programs = {program.name: program for program in (*plan.due, *plan.stored)}
    stored = {program.name for program in plan.stored}
    inside, groups = _divide(plan, stored)
    make = _Maker(folder, trajectories, saving, programs, plan.trials)
    _prepare(plan.due, folder, trajectories, make.token)
    display.stored(stored)
    space = trajectories.train.shape[3:]
    by_length = sorted(plan.due, key=lambda program: -program.work(space))  # the longest first: workers end together
    open_jobs, tries, failed = {}, collections.Counter(), []

    def submit(jobs: Sequence[Job], *, first: bool = False) -> None:
        for job in jobs:
            open_jobs[job.name] = job
            tries[job.name] += 1
        if jobs:
            launcher.submit(jobs, first=first)

    def score_ready() -> list[Job]:
        ready = [group for group in groups if group.programs <= stored]
        groups[:] = [group for group in groups if group not in ready]
        size = [max(_LEAST_TRIALS, math.ceil(len(group.trials) / (launcher.room() or 1))) for group in ready]
        return [
            make.job(group.trials[i : i + n], stored=group.programs)
            for group, n in zip(ready, size, strict=True)
            for i in range(0, len(group.trials), n)
        ]

    with saved_on_stop(launcher.cancel):
        submit([*(make.job(inside[p.name], train=p) for p in by_length), *score_ready()])
        while open_jobs:
            display.look(len(open_jobs))
            for job, came in launcher.ended(_SECONDS_BETWEEN_LOOKS):
                if job.name not in open_jobs:
                    continue
                is_trained = job.train is not None and not came.error
                outcome = _taken(programs[job.name], folder, came) if is_trained else came
                if outcome.error:
                    if outcome.again and tries[job.name] < _TRIES:
                        _say(job, outcome, "tried again")
                        submit([job], first=True)  # it was longer than those that wait: they end together
                    else:
                        _say(job, outcome, "given up")
                        failed.append(open_jobs.pop(job.name))
                    continue
                del open_jobs[job.name]
                if job.train is not None:
                    stored.add(job.name)
                    display.ended(job.name)
                for key, row in outcome.rows.items():
                    keep(key, row)
            submit(score_ready())
        display.look(0)
    if failed:
        labels = ", ".join(f"{job.name} ({job.label})" for job in failed)
        print(
            f"crossreg: {len(failed)} of {len(tries)} jobs failed: {labels}; what they and their last words were is in"
            f" {folder / JOBS}, and the same command tries them again",
            file=sys.stderr,
            flush=True,
        )
    else:
        remove_jobs(folder)


def _divide(plan: JobPlan, stored: set[str]) -> tuple[dict[str, list[str]], list[_Group]]:
    """The trials that a program's own job scores, and the groups of all others."""
    program_of = {key: p.name for p in (*plan.due, *plan.stored) for key in p.trainings}
    inside: dict[str, list[str]] = {program.name: [] for program in plan.due}
    groups: dict[frozenset[str], list[str]] = {}
    for key, needed in plan.needs.items():
        names = frozenset(program_of[training] for training in needed)
        if len(names) == 1 and not names & stored:
            inside[min(names)].append(key)
        else:
            groups.setdefault(names, []).append(key)
    return inside, [_Group(names, keys) for names, keys in groups.items()]


def _prepare(due: Sequence[Program], folder: Path, trajectories: Trajectories, token: str) -> None:
    """Puts there what workers read, and takes away what is to be made again."""
    make_folder(folder / JOBS)
    cache.write(folder / DATA, trajectories)
    with replacing(folder / TOKEN) as file:
        file.write(token.encode())
    for program in due:
        take_out(program, folder)
        program.file(folder, ".npz").unlink(missing_ok=True)  # corrupted, or it would not be due


class _Maker:
    """Makes the jobs of one sweep."""

    def __init__(
        self,
        folder: Path,
        trajectories: Trajectories,
        saving: Saving,
        programs: dict[str, Program],
        trials: dict[str, Trial],
    ):
        self.token = uuid.uuid4().hex
        self._programs, self._trials = programs, trials
        self._common = {
            "folder": str(folder.resolve()),
            "token": self.token,
            "digest": trajectories.digest,
            "source": source_digest(),
            "saving": saving,
            "environment": {name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        }

    def job(self, keys: Sequence[str], *, train: Program | None = None, stored: frozenset[str] = frozenset()) -> Job:
        methods = sorted({self._trials[key].method.name for key in keys})
        said = f"{', '.join(methods[:3])}{' …' * (len(methods) > 3)}" or "trained again"
        count = f"× {len(train.trainings)}" if train else f"{len(keys)} rows to score"
        return Job(
            name=train.name if train else f"rows-{digest_of(list(keys))}",
            label=f"{said} {count}",
            train=(train.name, describe_program(train)) if train else None,
            stored={name: describe_program(self._programs[name]) for name in sorted(stored)},
            trials={key: Wired.of(self._trials[key]) for key in keys},
            **self._common,
        )


def _taken(program: Program, folder: Path, outcome: Outcome) -> Outcome:
    """The outcome, once the trained program has its place; an error where its file is corrupted, or does not show.

    A worker that does not see the folder has sent the file itself.
    """
    file = folder / JOBS / f"{program.name}.npz"
    if outcome.trained is not None:
        with replacing(file) as target:
            target.write(outcome.trained)
    try:
        take_in(program, folder, file)
    except InputError as error:
        return Outcome(error=str(error))
    (folder / JOBS / f"{program.name}.lock").unlink(missing_ok=True)
    return outcome


def _say(job: Job, outcome: Outcome, what: str) -> None:
    said = "".join(f"\n  | {line}" for line in outcome.lines.splitlines())
    print(f"crossreg: job {job.name} ({job.label}): {outcome.error}; {what}{said}", file=sys.stderr, flush=True)
