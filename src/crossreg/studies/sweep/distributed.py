"""The driver of a sweep whose jobs are done by workers: it hands jobs out, takes results in, and tries lost jobs again.

One job trains a program and scores the trials that need no other program. Trials that need several programs (an
ensemble whose members are in different programs, a choice among dropout rates) are scored by further jobs as soon as
these programs are stored. Only the driver, which holds the lock of the folder, writes rows and the manifest.
"""

import collections
import math
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crossreg.data import cache
from crossreg.designs.grids import Trial
from crossreg.errors import InputError, say
from crossreg.files.sealed import is_sealed
from crossreg.files.whole import make_folder, replacing
from crossreg.machine.stopping import saved_on_stop
from crossreg.progress.jobs_display import JobsDisplay
from crossreg.runs.file_names import JOBS
from crossreg.runs.programs import Program, describe_program, digest_of, read_programs
from crossreg.runs.safeguards.saving import Saving
from crossreg.runs.safeguards.versions import source_digest
from crossreg.studies.launchers.base import DATA, SLURM_IDS, TOKEN, Job, Launcher, Outcome, remove_jobs
from crossreg.studies.sweep.open_work import OpenWork
from crossreg.studies.sweep.programs import take_in, take_out

_TRIES = 2
_SECONDS_BETWEEN_LOOKS = 1.0
# Fewer trials are not worth a separate job.
_LEAST_TRIALS = 8
# Variables that change how a worker computes.
_PASSED_ON = ("XLA_FLAGS", "NPROC", "JAX_DEFAULT_MATMUL_PRECISION")


def take_in_left(folder: Path) -> set[str]:
    """Take in programs that workers had trained when an earlier driver ended; return their names."""
    found = [path for path in (folder / JOBS).glob("*.npz") if is_sealed(path, path.stem)]
    programs = {program.name: program for program in read_programs(folder)} if found else {}
    taken = {path.stem for path in found if path.stem in programs}
    for name in taken:
        take_in(programs[name], folder, folder / JOBS / f"{name}.npz")
    return taken


def clear_left(folder: Path) -> None:
    """Remove the files of earlier workers, once their jobs are done.

    While the numbers of Slurm jobs are there, all stays: the next sweep with Slurm reads them and cancels the jobs.
    """
    if not (folder / JOBS / SLURM_IDS).exists():
        remove_jobs(folder)


def fill_by_jobs(
    work: OpenWork,
    launcher: Launcher,
    display: JobsDisplay,
    keep: Callable[[str, dict[str, Any]], None],
    saving: Saving,
) -> None:
    """Have workers do all open work of a sweep.

    A job that fails twice is reported; the others are finished.

    Args:
        work: The open work.
        launcher: Runs the jobs.
        display: Shows progress.
        keep: Called with the key and the row of every scored trial.
        saving: When workers write snapshots.
    """
    folder = work.folder
    programs = {program.name: program for program in work.due}
    stored = {name for name, p in programs.items() if name not in work.corrupted and p.is_done(folder)}
    due = [program for name, program in programs.items() if name not in stored]
    inside, groups = _divide(work, stored)
    shared = _shared(work, saving)
    _prepare(due, work, shared["token"])
    display.stored(stored)
    # The longest first, so that workers end together.
    by_length = sorted(due, key=lambda program: -program.work(work.space))
    open_jobs, tries, failed = {}, collections.Counter(), []

    def submit(jobs: Sequence[Job], *, first: bool = False) -> None:
        for job in jobs:
            open_jobs[job.name] = job
            tries[job.name] += 1
        if jobs:
            launcher.submit(jobs, first=first)

    def score_ready() -> list[Job]:
        jobs = []
        for names in [names for names in groups if names <= stored]:
            trials, needed = groups.pop(names), [programs[name] for name in sorted(names)]
            size = max(_LEAST_TRIALS, math.ceil(len(trials) / (launcher.room() or 1)))
            parts = [dict(list(trials.items())[i : i + size]) for i in range(0, len(trials), size)]
            jobs += [_job(shared, part, None, needed) for part in parts]
        return jobs

    with saved_on_stop(launcher.cancel):
        submit([*(_job(shared, inside[program.name], program) for program in by_length), *score_ready()])
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
                        submit([job], first=True)  # it is longer than the waiting jobs
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
        where = f"their files and logs are in {folder / JOBS}; the same command tries them again"
        say(f"{len(failed)} of {len(tries)} jobs failed: {labels}; {where}")
    else:
        remove_jobs(folder)


def _divide(
    work: OpenWork, stored: set[str]
) -> tuple[dict[str, dict[str, Trial]], dict[frozenset[str], dict[str, Trial]]]:
    """Return the trials that are scored by the job of the only program they need, and the others by their programs."""
    program_of = {key: program.name for program in work.due for key in program.trainings}
    inside: dict[str, dict[str, Trial]] = {program.name: {} for program in work.due if program.name not in stored}
    groups: dict[frozenset[str], dict[str, Trial]] = {}
    for key, needed in work.needs.items():
        names = frozenset(program_of[training] for training in needed)
        alone = len(names) == 1 and not names & stored
        (inside[min(names)] if alone else groups.setdefault(names, {}))[key] = work.waiting[key]
    return inside, groups


def _prepare(due: Sequence[Program], work: OpenWork, token: str) -> None:
    """Write the files that workers read, and remove those of programs that are to be trained."""
    folder = work.folder
    make_folder(folder / JOBS)
    cache.write(folder / DATA, work.trajectories)
    with replacing(folder / TOKEN) as file:
        file.write(token.encode())
    for program in due:
        take_out(program, folder)
        program.file(folder, ".npz").unlink(missing_ok=True)  # it is corrupted, or the program would not be due


def _shared(work: OpenWork, saving: Saving) -> dict[str, Any]:
    """Return the fields that all jobs of a sweep have in common."""
    return {
        "folder": str(work.folder.resolve()),
        "token": uuid.uuid4().hex,
        "digest": work.trajectories.digest,
        "source": source_digest(),
        "saving": saving,
        "environment": {name: os.environ[name] for name in _PASSED_ON if name in os.environ},
    }


def _job(
    shared: dict[str, Any], trials: dict[str, Trial], train: Program | None, stored: Sequence[Program] = ()
) -> Job:
    """Return the job that trains a program, if there is one, and scores trials."""
    methods = sorted({trial.method.name for trial in trials.values()})
    said = f"{', '.join(methods[:3])}{' …' * (len(methods) > 3)}" or "trained again"
    name, count = f"rows-{digest_of(list(trials))}", f"{len(trials)} row{'s' * (len(trials) != 1)} to score"
    if train is not None:
        name, count = train.name, f"× {len(train.trainings)}"
    described = {program.name: describe_program(program) for program in stored}
    own = None if train is None else (train.name, describe_program(train))
    return Job(name=name, label=f"{said} {count}", train=own, stored=described, trials=trials, **shared)


def _taken(program: Program, folder: Path, outcome: Outcome) -> Outcome:
    """Take in the trained program and return the outcome; an error if the file is corrupted or missing.

    A worker that does not see the folder has sent the content of the file.
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
    say(f"job {job.name} ({job.label}): {outcome.error}; {what}{said}")
