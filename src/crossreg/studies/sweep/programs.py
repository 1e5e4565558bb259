"""The trainings of a sweep as replicas of few compiled programs, in files that outlive a kill (`runs/programs.py`).

Which trainings go together is decided once, from all that a sweep is asked for and that no program has yet, and
written down: the numbers depend on the width of a program in their last digits, so that a restart, wherever it
happens, must find the same programs.
"""

import contextlib
import dataclasses
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import Config, TrainConfig
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.files.sealed import BYTES, read_sealed
from crossreg.machine.devices import devices_in_use
from crossreg.methods.early import Trained
from crossreg.nn.surrogate import Surrogate
from crossreg.progress.sweep_display import SweepDisplay
from crossreg.runs.manifest import drop, entered, record_json, recorded
from crossreg.runs.programs import (
    TRAINED_FOLDER,
    Finished,
    Program,
    Training,
    describe_program,
    digest_of,
    read_programs,
)
from crossreg.runs.saving import USUAL, Saving
from crossreg.runs.snapshots import HistoryLines, Resumable, SnapshotStore
from crossreg.training.checkpoint import load_arrays, save_arrays
from crossreg.training.cohort import bytes_of, start_cohort
from crossreg.training.loop import compile_for
from crossreg.training.replicas import Snapshot, first_snapshot, unstack
from crossreg.training.step import Task

# On each device: beyond this an H200 is no faster for each replica, and a snapshot gets large.
_MOST_REPLICAS = 512
_MEMORY_SHARE = 0.5
_COMPILERS = 4


def without_idle(config: Config) -> Config:
    """The config with what concerns ρ at its defaults where nothing learns on reg: the same training, and one hash."""
    if config.model.learns_on_reg:
        return config
    idle = ("k_reg", "settle", "reg_objective", "generalization_head_learning_rate")
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
    """The programs of a folder, and new ones, written down unless they are only looked at, for trainings in none.

    A program has what fits into a worker's memory, and at most `most` replicas; without it, at most one worker's share
    of all, so that every worker has something to do.
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
                record_json(folder, f"{TRAINED_FOLDER}/{program.name}.json", describe_program(program))
    return programs


def cohort_of(config: Config) -> tuple:
    """What the replicas of one program share: configs of equal value here may train side by side."""
    data = dataclasses.replace(config.data, observed_fraction=1.0, mask_seed=0)
    if data.data is None:  # the units of own data are those of their train split
        data = dataclasses.replace(data, train_size=1, reg_size=0, test_size=1, one_pool=False)
    return (data, config.model, dataclasses.replace(config.train, seed=0))


def most_replicas(config: Config, num_points: int, memory: int, *, devices: int | None = None) -> int:
    """How many replicas of this config fit into memory, in a train step and when they are monitored.

    `devices` is how many have that memory together, by default those in use here.
    """
    most = _MOST_REPLICAS * (devices or len(devices_in_use()))
    return int(np.clip(_MEMORY_SHARE * memory // bytes_of(config, num_points), 1, most))


def bytes_beside(memory: int) -> float:
    """What a program may take that is compiled while another trains."""
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
    """Compiles programs that are still to be trained while others train.

    Not on a CPU, which would only have less time for the training, and not those that are too large to be looked at
    beside another: compiling runs them once on the monitored split.
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
                # What goes wrong there goes wrong again, and is reported, when its turn comes.
                pool.submit(lambda program: compile_for(*_start(program, trajectories)), program)
        yield
    finally:
        # Not waited for: after a stop, nobody wants what they compile.
        pool.shutdown(wait=False, cancel_futures=True)


def train_program(
    program: Program, folder: Path, trajectories: Trajectories, display: SweepDisplay, saving: Saving = USUAL
) -> dict[str, Trained]:
    """The trained replicas of a program: read if they are there, gone on with if they were begun."""
    started = _start(program, trajectories)
    finished = _read_finished(program.file(folder, ".npz"), started[0], lambda: program.identity(folder))
    if finished is not None:
        display.skip(program.config.train.steps)
    else:
        take_out(program, folder)
        with _to_the_end(program, started, folder, display, saving) as (finished, history):
            with recorded(folder, program.name_of(".jsonl")) as file:
                file.write(history)
            with entered(folder, program.name_of(".npz")) as entry:
                _store(program, program.file(folder, ".npz"), finished, history, announce=entry)
    return _trained(program, started[0], finished)


def train_apart(
    program: Program, folder: Path, file: Path, trajectories: Trajectories, display: SweepDisplay, saving: Saving
) -> dict[str, Trained]:
    """The same for one worker among several: what it trains goes into a file of its own, and not into the manifest.

    Snapshots and the growing history are where a sweep without workers has them.
    """
    started = _start(program, trajectories)
    finished = _read_finished(file, started[0], lambda: program.name)
    if finished is None:
        with _to_the_end(program, started, folder, display, saving) as (finished, history):
            _store(program, file, finished, history)
    return _trained(program, started[0], finished)


def read_program(program: Program, folder: Path, trajectories: Trajectories) -> dict[str, Trained]:
    """The trained replicas of a program that has ended."""
    models, *_ = _start(program, trajectories)
    return _trained(program, models, program.load(folder, _like(models)))


def take_out(program: Program, folder: Path) -> None:
    """Takes what is to be trained out of the manifest."""
    drop(folder, program.name_of(".jsonl"), program.name_of(".npz"))


def take_in(program: Program, folder: Path, file: Path) -> None:
    """Gives a file that `train_apart` has made its place among the trained programs, with its history."""
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
    """Trains a program; its snapshots are forgotten when the block, which stores what is given to it, has ended."""
    keys = list(program.trainings)
    lines = HistoryLines(
        program.file(folder, ".jsonl"), lambda record: [{"training": k} | record.of(i) for i, k in enumerate(keys)]
    )
    training = Resumable(*started, lines, SnapshotStore(folder, program.name, program.name, saving))
    if training.begun_at:
        display.skip(training.begun_at)
        label = display.label or program.name
        print(f"crossreg: {label} goes on from step {training.begun_at}", file=sys.stderr, flush=True)
    with training.saved_on_stop():
        for report in training.reports():
            display.update(report)
        yield _finish(training.snapshot), training.history
    training.forget()


def _store(
    program: Program, file: Path, finished: Finished, history: bytes, *, announce: Callable[[Path], None] | None = None
) -> None:
    more = {"history": np.frombuffer(history, np.uint8)}
    save_arrays(file, finished, identity=program.name, announce=announce, more=more)


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


def _read_finished(file: Path, models: Surrogate, identity: Callable[[], str | None]) -> Finished | None:
    """The replicas of a program that has ended, or None; a file that was corrupted is said, and made again."""
    if not file.exists():
        return None
    try:
        return load_arrays(file, _like(models), identity=identity())
    except InputError as error:
        print(f"crossreg: {error}; trained again", file=sys.stderr)
        return None


def on_device(trajectories: Trajectories) -> Trajectories:
    """The same with arrays on the device, so that all replicas share one copy."""
    return trajectories._replace(train=jnp.asarray(trajectories.train), test=jnp.asarray(trajectories.test))  # pyright: ignore[reportArgumentType]
