"""The trainings of a car study, whose models are trained once, stored in single files and read again."""

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from crossreg.cars.grid.channels import NUM_CHANNELS
from crossreg.cars.pairs import CarPairs, with_all_to_train_on
from crossreg.config import Config, changed_fields
from crossreg.data.dataset import Data
from crossreg.errors import InputError, say
from crossreg.files.sealed import BYTES, check_seal, read_sealed
from crossreg.files.whole import make_folder
from crossreg.methods.early import Trained
from crossreg.methods.names import Method
from crossreg.nn.build import model_like
from crossreg.nn.surrogate import Surrogate
from crossreg.progress.display import TrainingDisplay
from crossreg.routing import Routed, merge, route
from crossreg.runs.file_names import HISTORIES, MODELS
from crossreg.runs.safeguards.manifest import drop, entered, expected_seal, is_sound, recorded
from crossreg.runs.safeguards.saving import USUAL, Saving
from crossreg.runs.safeguards.snapshots import HistoryLines, Resumable, SnapshotStore
from crossreg.training.checkpoint import load_arrays, save_arrays
from crossreg.training.cohort import bytes_of, check_learnable, check_memory, memory_bytes, start_cohort
from crossreg.training.replicas import Snapshot, unstack

_MEMORY_SHARE = 0.5  # of the devices, for one program


class Training(NamedTuple):
    """One config, trained with several seeds and members.

    `keeps`: it does not learn from the calibration part of reg. `all_data`: it trains on train and reg cars together.
    """

    name: str
    config: Config
    keeps: bool
    all_data: bool
    members: int

    @property
    def key(self) -> str:
        """Return its identity, which does not depend on the name of the method that needs it."""
        return json.dumps([changed_fields(self.config), self.keeps, self.all_data], sort_keys=True)

    def data(self, data: Data[CarPairs], seed: int) -> Data[CarPairs]:
        """Return the splits that it is given."""
        if self.all_data:
            return with_all_to_train_on(data)
        return data.split_off_calibration(seed) if self.keeps else data

    def check(self, grid: int) -> None:
        """Raise InputError if it cannot be trained, before any car is read or made."""
        if self.config.model.predict_increment:
            raise InputError(
                "predict_increment is True: must be false, since the input of a car is not a pressure that could change"
            )
        model_like(self.config.model, NUM_CHANNELS, (1, grid, grid))
        check_learnable(self.config)
        check_memory(self.config, (1, grid, grid))


def candidates_of(method: Method, base: Config) -> list[Training]:
    """Return the training of each candidate of a method."""
    configs = method.configs(base)
    keeps = method.wrapped and method.learns_on_reg(configs)
    names = [method.name] if len(configs) == 1 else [f"{method.name}-{number}" for number in range(len(configs))]
    return [Training(n, c, keeps, method.all_data, method.members) for n, c in zip(names, configs, strict=True)]


def trainings_of(methods: Sequence[Method], base: Config) -> dict[str, Training]:
    """Return all trainings by key; methods share equal ones, such as an ensemble and its first member."""
    found: dict[str, Training] = {}
    for method in methods:
        for training in candidates_of(method, base):
            known = found.get(training.key, training)
            found[training.key] = known._replace(members=max(known.members, training.members))
    return found


def train_or_load(
    training: Training,
    data: Data[CarPairs],
    seeds: int,
    folder: Path,
    *,
    known_members: int = 0,
    progress: bool,
    saving: Saving = USUAL,
) -> list[list[Trained]]:
    """Read the members of every seed, or train them in as few programs as memory allows and store each.

    Args:
        training: the training.
        data: the cars.
        seeds: number of seeds.
        folder: the folder of the study.
        known_members: members that the folder had before it was given more methods; they are trained in programs of
            their own, and so do not change.
        progress: report progress on stderr.
        saving: how often trainings are saved.

    Returns:
        The trained members of each seed.
    """
    files = _files(training, data, seeds, folder)
    each = bytes_of(training.config, math.prod(data.train.field_shape))
    most = max(1, int(_MEMORY_SHARE * memory_bytes() / each))
    # All replicas determine the programs, not only missing ones: weights depend slightly on the size of a program.
    parts = [[r for r in files if (r[1] < known_members) == known] for known in (True, False)]
    for chunk in (part[start : start + most] for part in parts for start in range(0, len(part), most)):
        if not all(_is_good(folder, *files[replica]) for replica in chunk):
            program, models = _resume(training, data, chunk, folder, saving)
            _train(training, program, len(chunk), folder, progress=progress)
            make_folder(folder / MODELS)
            snapshot, static = program.snapshot, route(models).static
            for number, replica in enumerate(chunk):
                _save(snapshot, static, program.history, number, folder, *files[replica])
            program.forget()
    _keep_history(training, folder, files[0, 0][0])
    return load_trained(training, data, seeds, folder)


def load_trained(training: Training, data: Data[CarPairs], seeds: int, folder: Path) -> list[list[Trained]]:
    """Read the members of every seed; raise InputError if one is missing or corrupted."""
    files = _files(training, data, seeds, folder).values()
    if not all(path.exists() for path, _ in files):
        raise InputError(
            f"{folder}: has no model of {training.name} for its cars as they are now; the same `crossreg car` trains it"
        )
    done = [_load(folder, *file, training.config, data.train) for file in files]
    return [done[seed * training.members : (seed + 1) * training.members] for seed in range(seeds)]


def is_trained(training: Training, data: Data[CarPairs], seeds: int, folder: Path) -> bool:
    """Return whether a folder has all members of every seed."""
    return all(_is_good(folder, *file) for file in _files(training, data, seeds, folder).values())


def _files(
    training: Training, data: Data[CarPairs], seeds: int, folder: Path
) -> dict[tuple[int, int], tuple[Path, str]]:
    """Return the file and the identity of the model of each (seed, member)."""
    found = {}
    for replica in itertools.product(range(seeds), range(training.members)):
        identity = _digest(training.key, data.digest, replica)
        found[replica] = folder / MODELS / f"{training.name}-seed{replica[0]}-{replica[1]}-{identity}.npz", identity
    return found


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _is_good(folder: Path, path: Path, identity: str) -> bool:
    """Return whether a model is stored; a corrupted one is reported, to be trained again."""
    try:
        if not path.exists() or (seal := check_seal(path)) == identity:
            return path.exists()
        # Files of older versions have no seal; for these the manifest decides.
        return seal is None and is_sound(folder, path.relative_to(folder).as_posix())
    except (OSError, ValueError) as error:
        say(f"{path}: is corrupted ({error}); trained again")
        return False


def _resume(
    training: Training, data: Data[CarPairs], chunk: Sequence[tuple[int, int]], folder: Path, saving: Saving
) -> tuple[Resumable, Surrogate]:
    """Start or resume some replicas as one program; the history of the first seed's first member is written.

    Returns:
        The program, and its models before the first step.
    """
    configs = [training.config.replace(seed=seed) for seed, _ in chunk]
    started = start_cohort(configs, [training.data(data, seed) for seed, _ in chunk], [member for _, member in chunk])
    identity = _digest(training.key, data.digest, tuple(chunk))
    file = None
    if chunk[0] == (0, 0):
        file = folder / HISTORIES / f"{training.name}.jsonl"
        make_folder(file.parent)
        drop(folder, file.relative_to(folder).as_posix())
    kept = SnapshotStore(folder, identity, identity, saving)
    return Resumable(*started, HistoryLines(file, lambda record: [record.of(0)]), kept), started[0]


def _train(training: Training, program: Resumable, replicas: int, folder: Path, *, progress: bool) -> None:
    label = training.name if replicas == 1 else f"{training.name} × {replicas}"
    steps, begun_at = training.config.train.steps, program.begun_at
    if begun_at:
        say(f"{label} resumes from step {begun_at}")
    if begun_at == steps:
        return
    with (
        program.saved_on_stop(),
        TrainingDisplay({label: steps}, folders={label: folder}, enabled=progress) as display,
    ):
        for report in program.reports():
            display.update(label, report)
        program.save()


def _save(
    snapshot: Snapshot, static: Surrogate, history: bytes, number: int, folder: Path, path: Path, identity: str
) -> None:
    """Store a replica at its last and its best step, with the history of its program."""
    last, best = (
        unstack(merge(Routed(theta_psi.tree(), rho.tree(), static)), number)
        for theta_psi, rho in ((snapshot.state.theta_psi, snapshot.state.rho), snapshot.best)
    )
    states = (snapshot.best_nll[number], snapshot.state.diverged_at[number])
    more = {"history": np.frombuffer(history, np.uint8)}
    with entered(folder, path.relative_to(folder).as_posix()) as entry:
        save_arrays(path, (last, best, *states), identity=identity, announce=entry, more=more)


def _keep_history(training: Training, folder: Path, first: Path) -> None:
    """Write the history file of a finished training if it is missing or corrupted."""
    name = f"{HISTORIES}/{training.name}.jsonl"
    if check_seal(first) is not None and not is_sound(folder, name):
        make_folder(folder / HISTORIES)
        with recorded(folder, name) as file:
            file.write(read_sealed(first, {"history": BYTES}, "checkpoint")["history"].tobytes())


def _load(folder: Path, path: Path, identity: str, config: Config, pairs: CarPairs) -> Trained:
    like = model_like(config.model, pairs.in_channels, pairs.field_shape)
    stored = (like, like, jnp.zeros(()), jnp.zeros((), jnp.int32))
    own = expected_seal(folder, path.relative_to(folder).as_posix(), identity)
    last, best, best_nll, diverged_at = load_arrays(path, stored, identity=own)
    return Trained(last, best, float(best_nll), int(diverged_at))
