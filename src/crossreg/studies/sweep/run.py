"""`crossreg sweep`: trials become rows, in a folder from which a killed sweep resumes (`runs/sweep_folder.py`).

A trial needs one or more trainings (the members of an ensemble, the candidates of a choice); trials that need the same
training share it. Finished trials and trainings are found by their content hash.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from crossreg.config import Config
from crossreg.data.apebench import cached_file
from crossreg.data.files.load import check_acts
from crossreg.data.load import check_split
from crossreg.data.trajectories import Trajectories
from crossreg.designs.grids import Trial
from crossreg.errors import InputError, say
from crossreg.machine.devices import devices_in_use
from crossreg.machine.memory_maps import release_programs
from crossreg.machine.processor import describe_processor
from crossreg.methods.early import Trained
from crossreg.nn.build import model_like
from crossreg.progress.display import clock
from crossreg.progress.jobs_display import JobsDisplay, Part
from crossreg.progress.sweep_display import SweepDisplay
from crossreg.runs.file_names import ROWS
from crossreg.runs.safeguards.saving import USUAL, Saving
from crossreg.runs.safeguards.versions import describe_driver, describe_machine
from crossreg.runs.sweep_folder import join, open_sweep, sealed_row, trial_key
from crossreg.studies.launchers.base import Launcher
from crossreg.studies.launchers.open import open_launcher
from crossreg.studies.launchers.settings import HERE, Workers
from crossreg.studies.sweep.distributed import clear_left, fill_by_jobs, take_in_left
from crossreg.studies.sweep.open_work import OpenWork, Packing, open_work
from crossreg.studies.sweep.programs import cohort_of, compiled_ahead, on_device, train_program
from crossreg.studies.sweep.scoring import score_trials, scored_on, shared_trajectories
from crossreg.training.cohort import check_learnable, check_memory, memory_bytes
from crossreg.training.cost import measured_elsewhere


def check_trials(trials: Sequence[Trial]) -> None:
    """Raise InputError, before anything is trained, if a trial cannot be trained or scored."""
    source = _source(trials[0].config)
    for trial in trials:
        if _source(trial.config) != source:
            raise InputError("a sweep has one scenario, grid and horizon; run one sweep for each")
        check_acts(trial.config.data)
        split = check_split(trial.config.data)
        least = 2 if trial.splits_off_calibration else 1 if trial.needs_reg else 0
        if len(split.reg) < least:
            raise InputError(
                f"methods {trial.method.name}: needs `reg_size={least}` or more, not {trial.config.data.reg_size}"
            )
        for config in trial.configs:
            check_learnable(config)
    # Each trial is checked for one seed: the others are alike, and there may be thousands.
    unseeded = {str((t.method.name, t.changes, t.base.model, vars(t.base.train) | {"seed": 0})): t for t in trials}
    for trial in unseeded.values():
        trial.method.check_settings(trial.base, trial.changes)


def _source(config: Config) -> tuple | Path:
    """Return the settings that decide which trajectories are loaded."""
    data = config.data
    if data.data is not None:
        return (data.data, data.field, data.axes)
    return cached_file(data)


def run_sweep(
    trials: Sequence[Trial],
    folder: Path,
    *,
    progress: bool = True,
    asked: dict[str, Any] | None = None,
    saving: Saving = USUAL,
    workers: Workers = HERE,
) -> list[dict[str, Any]]:
    """Train and score all trials, except those that are finished in the folder already.

    Args:
        trials: The trials, all on the same trajectories.
        folder: The folder of the sweep: new, empty, or of an earlier sweep.
        progress: Whether progress is shown.
        asked: What the command asked for, to be stored in `sweep.json`.
        saving: When snapshots are written.
        workers: Which workers train; by default this process does.

    Returns:
        The rows of the trials. With workers, rows of jobs that failed twice are missing, and stderr has named the jobs.

    Raises:
        InputError: A trial cannot be trained, or the folder cannot be used; nothing has been trained then.
    """
    check_trials(trials)
    trajectories = shared_trajectories(trials)
    asked = (asked or {}) | {"data": trajectories.digest}
    keys = [trial_key(trial, trajectories.digest) for trial in trials]
    with contextlib.ExitStack() as stack:
        launcher = None if workers.in_process else stack.enter_context(open_launcher(workers, folder))
        if launcher is None:
            packing, machine = Packing(workers.memory or memory_bytes(), workers.most_replicas), describe_machine()
            _check_fit(trials, trajectories)
            trajectories = on_device(trajectories)
        else:
            packing = Packing(workers.memory or launcher.memory(), workers.most_replicas, launcher.room() or 1)
            machine = describe_driver()
            _check_fit(trials, trajectories, packing.memory // (workers.worker_gpus or 1))
        opened = stack.enter_context(open_sweep(folder, asked, keys=keys, saving=saving, machine=machine))
        corrupted = opened - take_in_left(folder)
        work = open_work(trials, folder, trajectories, packing, corrupted=corrupted, write=True)
        if launcher is None:
            if progress and len(devices := devices_in_use()) > 1:
                say(f"{len(devices)} devices ({devices[0].device_kind}) divide the replicas among them")
            display = SweepDisplay(**work.extent(trials), enabled=progress)
            _train_here(work, display, saving, packing.memory)
            clear_left(folder)
        else:
            if progress:
                say(f"workers ({workers.launcher}): {launcher.room() or 'as many as there is room for'}")
            _train_by_workers(work, trials, saving, launcher, progress=progress)
    return join(trials, work.rows, trajectories.digest)


def _check_fit(trials: Sequence[Trial], trajectories: Trajectories, memory: int | None = None) -> None:
    """Raise InputError if a replica does not fit into the memory of a device, by default of one of this machine."""
    channels, *space = trajectories.train.shape[2:]
    for config in {cohort_of(config): config for trial in trials for config in trial.configs}.values():
        check_memory(config, trajectories.train.shape[2:], memory)
        model_like(config.model, channels + config.data.mask_channel, (channels, *space))


def describe_sweep(trials: Sequence[Trial], folder: Path, workers: Workers = HERE) -> str:
    """Return what `run_sweep` would do, and about how long it would train; nothing is run or written."""
    check_trials(trials)
    trajectories = shared_trajectories(trials)
    packing = Packing(workers.memory or memory_bytes(), workers.most_replicas, workers.workers or 1)
    work = open_work(trials, folder, trajectories, packing, write=False)
    due = [program for program in work.due if not program.is_done(folder)]
    seconds = [program.seconds(work.space) for program in due]
    known = [s for s in seconds if s is not None]
    device = jax.devices()[0].device_kind
    took = f"about {clock(sum(known))} of training" if len(known) == len(seconds) else "no times are known"
    lines = [
        f"{len(work.waiting)} of {len(trials)} rows to make, {len(due)} program{'s' * (len(due) != 1)} to train;"
        f" {took} on {device}, compilation and scoring aside"
    ]
    if known and (processor := measured_elsewhere()) is not None:
        lines.append(f"  times are those measured on {processor}; on this machine ({describe_processor()}) they differ")
    for program, s in zip(due, seconds, strict=True):
        steps = f"{program.config.train.steps:,} steps"
        lines.append(f"  {work.label(program):<40}{steps:>15}{'' if s is None else clock(s):>10}")
    return "\n".join(lines)


def _train_here(work: OpenWork, display: SweepDisplay, saving: Saving, memory: int) -> None:
    """Train and score what is missing, one program after another, in this process."""
    folder, trajectories, needs = work.folder, work.trajectories, work.needs
    trained: dict[str, Trained] = {}
    on = scored_on()
    with display, compiled_ahead(work.due, folder, trajectories, memory):
        for program in [None, *work.due]:  # first score the trials that need no program
            if program is not None:
                steps = program.config.train.steps
                display.begin(work.label(program), steps, program.work(work.space), program=program.name)
                trained |= train_program(program, folder, trajectories, display, saving)
            ready = {key: work.waiting[key] for key, needed in needs.items() if needed <= trained.keys()}
            for key, row in score_trials(ready, trained, trajectories):
                _keep(work, key, row | {"key": key, "on": on}, display)
            needs = {key: needed for key, needed in needs.items() if key not in ready}
            trained = {key: t for key, t in trained.items() if any(key in needed for needed in needs.values())}
            release_programs()


def _train_by_workers(
    work: OpenWork, trials: Sequence[Trial], saving: Saving, launcher: Launcher, *, progress: bool
) -> None:
    """Train and score what is missing by jobs of workers."""
    parts = {
        p.name: Part(work.label(p), p.config.train.steps, p.work(work.space), p.file(work.folder, ".jsonl"))
        for p in work.due
    }
    display = JobsDisplay(parts, **work.extent(trials), enabled=progress)
    with display:
        fill_by_jobs(work, launcher, display, lambda key, row: _keep(work, key, row, display), saving)


def _keep(work: OpenWork, key: str, row: dict[str, Any], display: SweepDisplay) -> None:
    """Add a row to the folder, once."""
    if key not in work.rows:
        work.rows[key] = row
        with (work.folder / ROWS).open("a") as file:
            file.write(sealed_row(row))
        display.scored()
