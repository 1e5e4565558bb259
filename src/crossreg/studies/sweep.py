"""`crossreg sweep`: many runs as few programs, in a folder that a killed sweep goes on from.

sweep.json            what was asked for, versions and device
trained/HASH.npz      the trained replicas of one program; HASH.part.npz while it trains
trained/HASH.jsonl    their history
rows.jsonl            one line per finished point

A point needs one or more trainings (the members of an ensemble, the candidates of a choice); points that need the same
one share it. Trainings of equal shape are replicas of one compiled program. Which ones go together follows from all of
the sweep's points, never from what is left to do: the numbers depend on the width of a program in their last digits.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import Config, to_dict
from crossreg.data.apebench import load_trajectories
from crossreg.data.pairs import Data, make_data
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.methods.readout import ReadOut, Trained, read_out
from crossreg.metrics.evaluation import Predictor, evaluate_all, sigma_per_site
from crossreg.report.progress import SweepDisplay
from crossreg.studies.cohort import start_cohort
from crossreg.studies.grids import Point, cohort_of
from crossreg.studies.run_folder import describe_machine, finite_or_none, write_json
from crossreg.training.checkpoint import load_arrays, save_arrays
from crossreg.training.loop import Snapshot, first_snapshot, train_replicas, unstack

PLAN, ROWS, TRAINED = "sweep.json", "rows.jsonl", "trained"
# Part of every hash: to be raised when the same settings give other numbers than before.
_FORMAT = 1
_SECONDS_BETWEEN_SNAPSHOTS = 60.0
_MOST_REPLICAS = 512
# Bytes of a train step for each feature of each sample, in every block: values kept for the gradient, and their copies.
_BYTES_PER_FEATURE = 64
_MEMORY_SHARE = 0.5


class Training(NamedTuple):
    """One replica: a config with its method in it, the member's number, and whether a part of reg is kept from it."""

    config: Config
    member: int
    keeps_part_of_reg: bool


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def training_hash(training: Training, digest: str) -> str:
    """The identity of a training: equal hashes, equal work."""
    return _hash([_FORMAT, digest, to_dict(training.config), training.member, training.keeps_part_of_reg])


def point_hash(point: Point, digest: str) -> str:
    """The identity of a row."""
    configs = [to_dict(c) for c in point.method.configs(point.config)] or [to_dict(point.config)]
    return _hash([_FORMAT, digest, configs, point.method.members, point.method.name])


def trainings_of(point: Point) -> list[list[Training]]:
    """What a point needs: for each candidate, its members."""
    keeps = point.method.keeps_part_of_reg(point.config)
    return [
        [Training(config, member, keeps) for member in range(point.method.members)]
        for config in point.method.configs(point.config)
    ]


def data_of(config: Config, keeps_part_of_reg: bool, trajectories: Trajectories) -> Data:
    """The splits a training sees."""
    data = make_data(trajectories, config.data)
    return data.keep_part_of_reg() if keeps_part_of_reg else data


def memory_bytes() -> int:
    """All memory of the device that trains."""
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def most_replicas(config: Config, points: int, memory: int) -> int:
    """How many replicas of this config fit into memory."""
    samples = config.train.num_samples * config.train.batch_size
    bytes_each = samples * points * config.model.width * (config.model.num_blocks + 1) * _BYTES_PER_FEATURE
    return int(np.clip(_MEMORY_SHARE * memory // bytes_each, 1, _MOST_REPLICAS))


def chunks_of(points: Sequence[Point], digest: str, num_points: int, memory: int) -> list[list[Training]]:
    """The programs of a sweep: trainings of equal shape, in even portions that fit into memory."""
    groups: dict[tuple, dict[str, Training]] = {}
    for point in points:
        for members in trainings_of(point):
            for training in members:
                key = cohort_of(training.config)
                groups.setdefault(key, {}).setdefault(training_hash(training, digest), training)
    chunks = []
    for group in groups.values():
        trainings = list(group.values())
        count = math.ceil(len(trainings) / most_replicas(trainings[0].config, num_points, memory))
        chunks += [[trainings[i] for i in part] for part in np.array_split(np.arange(len(trainings)), count)]
    return chunks


def _snapshot_like(models) -> Snapshot:
    return eqx.filter_eval_shape(first_snapshot, models)


def _save_history(path: Path, lines: list[dict[str, Any]]) -> None:
    with replacing(path) as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines).encode())


def _load_history(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train_chunk(
    trainings: Sequence[Training], folder: Path, trajectories: Trajectories, display: SweepDisplay
) -> Iterator[Trained]:
    """The trained replicas of one program: read if they are there, gone on with if they were begun."""
    hashes = [training_hash(training, trajectories.digest) for training in trainings]
    name = _hash(hashes)
    done, part, history_file = (folder / TRAINED / f"{name}{ending}" for ending in (".npz", ".part.npz", ".jsonl"))
    configs = [training.config for training in trainings]
    data = [data_of(t.config, t.keeps_part_of_reg, trajectories) for t in trainings]
    models, tasks, train_config = start_cohort(configs, data, [t.member for t in trainings])
    history: list[dict[str, Any]] = []
    if done.exists():
        snapshot, last_nll = load_arrays(done, (_snapshot_like(models), jnp.zeros(len(trainings))))
        display.skip(len(trainings) * train_config.steps)
    else:
        start = None
        if part.exists():
            start = load_arrays(part, _snapshot_like(models))
            history = [line for line in _load_history(history_file) if line["step"] <= int(start.step)]
            display.skip(len(trainings) * int(start.step))
        report, saved = None, time.perf_counter()

        def save():
            assert report is not None
            _save_history(history_file, history)
            save_arrays(part, report.snapshot)

        try:
            for report in train_replicas(models, tasks, train_config, start=start):
                if report.record is not None:
                    history += [{"training": h} | report.record.of(i) for i, h in enumerate(hashes)]
                display.update(report, len(trainings))
                if time.perf_counter() - saved > _SECONDS_BETWEEN_SNAPSHOTS and report.step < train_config.steps:
                    save()
                    saved = time.perf_counter()
        except KeyboardInterrupt:
            if report is not None:
                save()
            raise
        assert report is not None
        assert report.record is not None
        snapshot, last_nll = report.snapshot, jnp.asarray(report.record.reg_nll)
        _save_history(history_file, history)
        save_arrays(done, (snapshot, last_nll))
        part.unlink(missing_ok=True)
    static = eqx.filter(models, eqx.is_inexact_array, inverse=True)
    state = snapshot.state
    last = eqx.combine(state.theta_psi, state.rho, static)
    best = eqx.combine(*snapshot.best, static)
    for i in range(len(trainings)):
        yield Trained(
            unstack(last, i),
            unstack(best, i),
            float(last_nll[i]),
            float(snapshot.best_nll[i]),
            int(state.diverged_at[i]),
        )


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The finished points of a sweep. A line that a kill cut short is left out."""
    rows = []
    path = folder / ROWS
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def _row(point: Point, key: str, read: ReadOut, diverged: bool, test, reg) -> dict[str, Any]:
    data = point.config.data
    return finite_or_none(
        {
            "observed_fraction": data.observed_fraction,
            "train_size": data.train_size,
            "reg_size": data.reg_size,
            "method": point.method.name,
            "seed": point.config.train.seed,
            "steps": point.config.train.steps,
            "diverged": diverged,
            "test": test,
            "reg": reg,
            "sigma": sigma_per_site(read.models[0]) if len(read.models) == 1 else {},
            "notes": read.notes,
            "changes": point.changes,
            "key": key,
        }
    )


def open_sweep(folder: Path, description: dict[str, Any]) -> None:
    """Makes the folder of a sweep, or finds an earlier one there; a folder of anything else is refused."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: exists and is not a folder")
    if folder.exists() and any(folder.iterdir()) and not (folder / PLAN).exists():
        raise InputError(f"--out {folder}: holds something else than a sweep; choose a new or empty folder")
    try:
        (folder / TRAINED).mkdir(parents=True, exist_ok=True)
        write_json(folder / PLAN, description)
        # What a kill cut short would spoil the line that is written behind it.
        rows = "".join(json.dumps(row) + "\n" for row in read_rows(folder))
        with replacing(folder / ROWS) as file:
            file.write(rows.encode())
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error


def run_sweep(
    points: Sequence[Point], folder: Path, *, progress: bool = True, description: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Trains and scores all points into `folder`; returns their rows. What is there already is not done again."""
    for point in points:
        if point.method.needs_reg(point.config) and not point.config.data.reg_size:
            raise InputError(f"--methods {point.method.name}: uses held-out data, and --reg-size is 0")
    trajectories = load_trajectories(points[0].config.data)
    if any(load_trajectories_key(p.config) != load_trajectories_key(points[0].config) for p in points):
        raise InputError("a sweep has one scenario, grid and horizon; run one sweep for each")
    digest = trajectories.digest
    open_sweep(folder, (description or {}) | {"versions": describe_machine(), "data": digest, "points": len(points)})
    keys = [point_hash(point, digest) for point in points]
    finished = {row["key"]: row for row in read_rows(folder)}
    chunks = chunks_of(points, digest, math.prod(trajectories.train.shape[2:]), memory_bytes())
    waiting = {key: point for key, point in zip(keys, points, strict=True) if key not in finished}
    needed = {training_hash(t, digest) for p in waiting.values() for members in trainings_of(p) for t in members}
    # A program is needed whole or not at all: a part of it would have other last digits.
    due = [chunk for chunk in chunks if any(training_hash(t, digest) in needed for t in chunk)]
    trained: dict[str, Trained] = {}
    replica_steps = sum(len(chunk) * chunk[0].config.train.steps for chunk in due)
    with SweepDisplay(replica_steps, len(due), len(waiting), enabled=progress) as display:
        for chunk in [[], *due]:  # before the first program, what needs none
            if chunk:
                display.begin(chunk_label(chunk), chunk[0].config.train.steps)
                hashes = [training_hash(training, digest) for training in chunk]
                trained |= zip(hashes, train_chunk(chunk, folder, trajectories, display), strict=True)
            ready = {
                key: point
                for key, point in waiting.items()
                if all(training_hash(t, digest) in trained for members in trainings_of(point) for t in members)
            }
            with (folder / ROWS).open("a") as file:
                for key, row in _score(ready, trained, trajectories):
                    file.write(json.dumps(row, allow_nan=False) + "\n")
                    file.flush()
                    finished[key] = row
                    del waiting[key]
                    display.scored()
            still = {training_hash(t, digest) for p in waiting.values() for members in trainings_of(p) for t in members}
            trained = {key: value for key, value in trained.items() if key in still}
    return [finished[key] for key in keys]


def load_trajectories_key(config: Config) -> tuple:
    """The settings that decide which trajectories are loaded."""
    data = config.data
    return (data.scenario, data.num_spatial_dims, data.num_points, data.train_horizon, data.test_horizon)


def chunk_label(chunk: Sequence[Training]) -> str:
    """What trains, in a few words."""
    model = chunk[0].config.model
    noise = {"generalization": "xreg", "none": "plain"}.get(model.feature_noise, model.feature_noise)
    return f"{noise} × {len(chunk)}"


def _score(
    points: dict[str, Point], trained: dict[str, Trained], trajectories: Trajectories
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of points whose trainings are done."""
    reads: list[tuple[str, Point, ReadOut, bool, bool]] = []

    def jobs() -> Iterable[tuple[Predictor, Any]]:
        for key, point in points.items():
            trainings = trainings_of(point)
            candidates = [[trained[training_hash(t, trajectories.digest)] for t in members] for members in trainings]
            data = data_of(point.config, point.method.keeps_part_of_reg(point.config), trajectories)
            read = read_out(point.method, candidates, data, point.config.train.evaluation_samples)
            whole = data_of(point.config, False, trajectories)
            has_reg = bool(int(whole.reg.num_pairs))
            diverged = any(t.diverged_at >= 0 for members in candidates for t in members)
            reads.append((key, point, read, diverged, has_reg))
            yield read.predictor, whole.test
            if has_reg:
                yield read.predictor, whole.reg

    scores = evaluate_all(jobs())
    for number in range(len(points)):
        test = next(scores)
        key, point, read, diverged, has_reg = reads[number]
        yield key, _row(point, key, read, diverged, test, next(scores) if has_reg else None)
