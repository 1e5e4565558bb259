"""The trainings of a sweep as replicas of a few compiled programs, in files that survive a kill (`runs/programs.py`).

Which trainings form a program is decided once, for all trainings that no program has yet, and written down: the last
digits of numbers depend on the number of replicas in a program, so a restart must find the same programs anywhere.
"""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import Config, TrainConfig
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError, say
from crossreg.files.sealed import BYTES, read_sealed
from crossreg.machine.devices import devices_in_use
from crossreg.methods.early import Trained
from crossreg.nn.surrogate import Surrogate
from crossreg.progress.sweep_display import SweepDisplay
from crossreg.runs.file_names import TRAINED
from crossreg.runs.programs import Finished, Program, Training, describe_program, digest_of, read_programs
from crossreg.runs.safeguards.manifest import drop, entered, record_json, recorded
from crossreg.runs.safeguards.saving import USUAL, Saving
from crossreg.runs.safeguards.snapshots import HistoryLines, Resumable, SnapshotStore
from crossreg.training.checkpoint import load_arrays, save_arrays
from crossreg.training.cohort import bytes_of, start_cohort
from crossreg.training.loop import compile_for
from crossreg.training.replicas import Snapshot, first_snapshot, unstack
from crossreg.training.step import Task

# On each device: with more, an H200 is no faster per replica, and snapshots get large.
_MOST_REPLICAS = 512
_MEMORY_SHARE = 0.5
_COMPILERS = 4


def without_idle(config: Config) -> Config:
    """Return the config with idle settings at their defaults, so that equal trainings have one hash.

    What is scored after training is idle and, without learning on reg, so are the settings of ρ.
    """
    idle: tuple[str, ...] = ("rollout_steps",)
    if config.train.reg_horizon == 1 or not config.model.learns_on_reg:
        idle += ("rollout_particles",)
    if not config.model.learns_on_reg:
        idle += ("k_reg", "reg_horizon", "reg_objective", "generalization_head_learning_rate")
        idle += () if config.train.train_rollout_steps > 1 else ("settle",)
    return config.replace(**{name: getattr(TrainConfig, name) for name in idle})


def plan_programs(
    trainings: Iterable[Training],
    folder: Path,
    digest: str,
    num_points: int,
    memory: int,
    *,
    most: int | None = None,
    workers: int = 1,
    write: bool = True,
) -> list[Program]:
    """Return the programs of a folder, and new ones for the trainings that are in none of them.

    Args:
        trainings: All trainings of the sweep.
        folder: The folder of the sweep.
        digest: The digest of the data.
        num_points: Points of a field, over all channels.
        memory: The bytes that a worker may fill; no program takes more.
        most: The most replicas in a new program; by default one worker's share of all new trainings, so that every
            worker has something to do.
        workers: How many workers train.
        write: Whether new programs are written down.
    """
    programs = read_programs(folder)
    known = {key for program in programs for key in program.trainings}
    cohorts: dict[tuple, dict[str, Training]] = {}
    for training in trainings:
        if (key := training.key(digest)) not in known:
            cohorts.setdefault(cohort_of(training.config), {})[key] = training
    most = most or math.ceil(sum(map(len, cohorts.values())) / workers)
    for cohort in cohorts.values():
        keys = list(cohort)
        count = math.ceil(len(keys) / min(most, most_replicas(cohort[keys[0]].config, num_points, memory)))
        for part in np.array_split(keys, count):
            program = Program(digest_of(part.tolist()), {key: cohort[key] for key in part.tolist()})
            programs.append(program)
            if write:
                record_json(folder, f"{TRAINED}/{program.name}.json", describe_program(program))
    return programs


def cohort_of(config: Config) -> tuple:
    """Return what the replicas of one program must share: configs with equal values here may train side by side."""
    data = dataclasses.replace(config.data, observed_fraction=1.0, mask_seed=0)
    if data.data is None:  # the units of data from files are those of their train split
        data = dataclasses.replace(data, train_size=1, reg_size=0, test_size=1, one_pool=False)
    return (data, config.model, dataclasses.replace(config.train, seed=0))


def most_replicas(config: Config, num_points: int, memory: int, *, devices: int | None = None) -> int:
    """Return how many replicas of a config fit into memory, in a train step and when they are monitored.

    `devices` is the number of devices that have this memory together, by default those in use here.
    """
    most = _MOST_REPLICAS * (devices or len(devices_in_use()))
    return int(np.clip(_MEMORY_SHARE * memory // bytes_of(config, num_points), 1, most))


def bytes_beside(memory: int) -> float:
    """Return the bytes that a program may take that is compiled while another trains."""
    return (1 - _MEMORY_SHARE) * memory / (_COMPILERS + 1)


def _finish(snapshot: Snapshot) -> Finished:
    state = snapshot.state
    last, best = (eqx.combine(*(p.tree() for p in parts)) for parts in ((state.theta_psi, state.rho), snapshot.best))
    return Finished(last, best, snapshot.best_nll, state.diverged_at)


def _start(program: Program, trajectories: Trajectories) -> tuple[Surrogate, Task, TrainConfig]:
    trainings = list(program.trainings.values())
    return start_cohort(
        [t.config for t in trainings], [t.data(trajectories) for t in trainings], [t.member for t in trainings]
    )


@contextlib.contextmanager
def compiled_ahead(
    programs: Sequence[Program], folder: Path, trajectories: Trajectories, memory: int
) -> Iterator[None]:
    """Compile programs that are still to be trained while others train.

    A CPU compiles nothing ahead, since that would only slow the training down. Nor are programs compiled that are too
    large to run beside another: compilation runs them once on the monitored split.
    """
    if jax.default_backend() == "cpu":
        yield
        return
    num_points = math.prod(trajectories.train.shape[2:])
    share = bytes_beside(memory)
    pool = ThreadPoolExecutor(min(_COMPILERS, os.cpu_count() or 1))
    try:
        for program in programs[1:]:
            fits = len(program.trainings) * bytes_of(program.config, num_points) <= share
            if fits and not program.is_done(folder):
                # An error here occurs again, and is reported, when the program is trained.
                pool.submit(lambda program: compile_for(*_start(program, trajectories)), program)
        yield
    finally:
        # Without waiting: after a stop, the compiled programs are of no use.
        pool.shutdown(wait=False, cancel_futures=True)


def train_program(
    program: Program,
    folder: Path,
    trajectories: Trajectories,
    display: SweepDisplay,
    saving: Saving = USUAL,
    *,
    into: Path | None = None,
) -> dict[str, Trained]:
    """Return the trained replicas of a program, by the keys of its trainings.

    A trained program is read, and one that was begun resumes from its snapshot.

    Args:
        program: The program.
        folder: The folder of the sweep, which has the snapshots and the growing history.
        trajectories: The data.
        display: Shows progress.
        saving: When snapshots are written.
        into: For a worker: a file for the trained replicas and their history, outside the manifest.
    """
    started = _start(program, trajectories)
    finished = _read_finished(program, folder, started[0], into)
    if finished is not None:
        display.skip(program.config.train.steps)
    else:
        if into is None:
            take_out(program, folder)
        with _to_the_end(program, started, folder, display, saving) as (finished, history):
            if into is not None:
                _store(program, into, finished, history)
            else:
                with recorded(folder, program.name_of(".jsonl")) as file:
                    file.write(history)
                with entered(folder, program.name_of(".npz")) as entry:
                    _store(program, program.file(folder, ".npz"), finished, history, announce=entry)
    return _trained(program, started[0], finished)


def read_program(program: Program, folder: Path, trajectories: Trajectories) -> dict[str, Trained]:
    """Return the trained replicas of a program that has ended, by the keys of its trainings."""
    models, *_ = _start(program, trajectories)
    return _trained(program, models, program.load(folder, _like(models)))


def take_out(program: Program, folder: Path) -> None:
    """Remove the files of a program that is about to be trained from the manifest."""
    drop(folder, program.name_of(".jsonl"), program.name_of(".npz"))


def take_in(program: Program, folder: Path, file: Path) -> None:
    """Move a file that a worker has trained to its place among the trained programs, with its history."""
    history = read_sealed(file, {"history": BYTES}, "program", identity=program.name)["history"].tobytes()
    with recorded(folder, program.name_of(".jsonl")) as lines:
        lines.write(history)
    with entered(folder, program.name_of(".npz")) as entry:
        entry(file)
        file.replace(program.file(folder, ".npz"))


@contextlib.contextmanager
def _to_the_end(
    program: Program, started: tuple[Surrogate, Task, TrainConfig], folder: Path, display: SweepDisplay, saving: Saving
) -> Iterator[tuple[Finished, bytes]]:
    """Train a program; its snapshots are removed after the block, which must store the replicas and the history."""
    keys = list(program.trainings)
    lines = HistoryLines(
        program.file(folder, ".jsonl"), lambda record: [{"training": k} | record.of(i) for i, k in enumerate(keys)]
    )
    training = Resumable(*started, lines, SnapshotStore(folder, program.name, program.name, saving))
    if training.begun_at:
        display.skip(training.begun_at)
        label = display.label or program.name
        say(f"{label} resumes from step {training.begun_at}")
    with training.saved_on_stop():
        for report in training.reports():
            display.update(report)
        yield _finish(training.snapshot), training.history
    training.forget()


def _store(
    program: Program, file: Path, finished: Finished, history: bytes, **announce: Callable[[Path], None]
) -> None:
    more = {"history": np.frombuffer(history, np.uint8)}
    save_arrays(file, finished, identity=program.name, more=more, **announce)


def _trained(program: Program, models: Surrogate, finished: Finished) -> dict[str, Trained]:
    static = eqx.filter(models, eqx.is_inexact_array, inverse=True)
    last, best = (eqx.combine(arrays, static) for arrays in (finished.last, finished.best))
    best_nll, diverged_at = np.asarray(finished.best_nll), np.asarray(finished.diverged_at)
    return {
        key: Trained(unstack(last, i), unstack(best, i), float(best_nll[i]), int(diverged_at[i]))
        for i, key in enumerate(program.trainings)
    }


def _like(models: Surrogate) -> Finished:
    return eqx.filter_eval_shape(_finish, eqx.filter_eval_shape(first_snapshot, models))


def _read_finished(program: Program, folder: Path, models: Surrogate, into: Path | None) -> Finished | None:
    """Return the replicas of a program that has ended, else None; report a corrupted file."""
    if not (into or program.file(folder, ".npz")).exists():
        return None
    try:
        if into is not None:
            return load_arrays(into, _like(models), identity=program.name)
        return program.load(folder, _like(models))
    except InputError as error:
        say(f"{error}; trained again")
        return None


def on_device(trajectories: Trajectories) -> Trajectories:
    """Return the trajectories with their arrays on the device, so that all replicas share one copy."""
    return trajectories._replace(train=jnp.asarray(trajectories.train), test=jnp.asarray(trajectories.test))  # pyright: ignore[reportArgumentType]
