"""What the methods of a car study train, and its trained models: made once, stored one by one, read again."""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp

from crossreg.config import Config, changed_fields
from crossreg.data.cars.channels import NUM_CHANNELS
from crossreg.data.cars.pairs import CarPairs, with_all_to_train_on
from crossreg.data.pairs import Data
from crossreg.errors import InputError
from crossreg.methods.early import Trained
from crossreg.methods.names import Method
from crossreg.nn.build import model_like
from crossreg.report.progress import TrainingDisplay
from crossreg.routing import Routed, merge
from crossreg.studies.car_folder import HISTORY, MODELS
from crossreg.studies.cohort import bytes_of, check_learnable, check_memory, memory_bytes, start_cohort
from crossreg.studies.programs import append_lines
from crossreg.training.checkpoint import load_arrays, save_arrays
from crossreg.training.loop import Progress, train_replicas, unstack

_MEMORY_SHARE = 0.5  # of the device, for one program


class Training(NamedTuple):
    """One config, trained with several seeds and members.

    `keeps` says that a part of reg is kept from it, `all_data` that it trains on train and reg together.
    """

    name: str
    config: Config
    keeps: bool
    all_data: bool
    members: int

    @property
    def key(self) -> str:
        """What identifies it, whatever the method that asks for it is called."""
        return json.dumps([changed_fields(self.config), self.keeps, self.all_data], sort_keys=True)

    def data(self, data: Data[CarPairs], seed: int) -> Data[CarPairs]:
        """The splits that it is given."""
        if self.all_data:
            return with_all_to_train_on(data)
        return data.keep_part_of_reg(seed) if self.keeps else data

    def check(self, grid: int) -> None:
        """Refuses what could not be trained, before anything is made."""
        if self.config.model.predict_increment:
            raise InputError("predict_increment: a car's input is no pressure that could change")
        model_like(self.config.model, NUM_CHANNELS, (1, grid, grid))
        check_learnable(self.config)
        check_memory(self.config, (1, grid, grid))


def candidates_of(method: Method, base: Config) -> list[Training]:
    """The training of each candidate of a method."""
    configs = method.configs(base)
    keeps = method.wrapped and method.learns_on_reg(configs)
    names = [method.name] if len(configs) == 1 else [f"{method.name}-{number}" for number in range(len(configs))]
    return [Training(n, c, keeps, method.all_data, method.members) for n, c in zip(names, configs, strict=True)]


def trainings_of(methods: Sequence[Method], base: Config) -> dict[str, Training]:
    """What must be trained, by key: methods with one config share it, as an ensemble and its first member do."""
    found: dict[str, Training] = {}
    for method in methods:
        for training in candidates_of(method, base):
            known = found.get(training.key, training)
            found[training.key] = known._replace(members=max(known.members, training.members))
    return found


def train_or_load(
    training: Training, data: Data[CarPairs], seeds: int, folder: Path, *, progress: bool
) -> list[list[Trained]]:
    """The members of every seed: read, or trained in as few programs as memory allows and stored one by one."""
    replicas = [(seed, member) for seed in range(seeds) for member in range(training.members)]
    each = bytes_of(training.config, math.prod(data.train.field_shape))
    most = max(1, int(_MEMORY_SHARE * memory_bytes() / each))

    def path(replica: tuple[int, int]) -> Path:
        name = hashlib.sha256(repr((training.key, data.digest, replica)).encode()).hexdigest()[:12]
        return folder / MODELS / f"{training.name}-seed{replica[0]}-{replica[1]}-{name}.npz"

    # Programs follow from all replicas, not from those that are missing: weights depend a little on their number.
    for start in range(0, len(replicas), most):
        chunk = replicas[start : start + most]
        if all(path(replica).exists() for replica in chunk):
            continue
        report = _train(training, data, chunk, folder, progress=progress)
        theta_psi, rho = report.snapshot.best
        best = merge(Routed(theta_psi.tree(), rho.tree(), report.static))
        (folder / MODELS).mkdir(exist_ok=True)
        for number, replica in enumerate(chunk):
            states = (report.snapshot.best_nll[number], report.snapshot.state.diverged_at[number])
            save_arrays(path(replica), (unstack(report.models, number), unstack(best, number), *states))
    done = [_load(path(replica), training.config, data.train) for replica in replicas]
    return [done[seed * training.members : (seed + 1) * training.members] for seed in range(seeds)]


def _train(
    training: Training, data: Data[CarPairs], chunk: Sequence[tuple[int, int]], folder: Path, *, progress: bool
) -> Progress:
    """Trains some replicas; the history of the first seed's first member is written."""
    configs = [training.config.replace(seed=seed) for seed, _ in chunk]
    splits = [training.data(data, seed) for seed, _ in chunk]
    report = None
    history = folder / HISTORY / f"{training.name}.jsonl"
    if is_first := chunk[0] == (0, 0):
        history.parent.mkdir(exist_ok=True)
        history.write_text("")
    label = training.name if len(chunk) == 1 else f"{training.name} × {len(chunk)}"
    with TrainingDisplay({label: training.config.train.steps}, folders={label: folder}, enabled=progress) as display:
        for report in train_replicas(*start_cohort(configs, splits, [member for _, member in chunk])):
            display.update(label, report)
            if report.record is not None and is_first:
                append_lines(history, [report.record.of(0)])
    assert report is not None  # a config has at least one step
    return report


def _load(path: Path, config: Config, pairs: CarPairs) -> Trained:
    like = model_like(config.model, pairs.in_channels, pairs.field_shape)
    stored = (like, like, jnp.zeros(()), jnp.zeros((), jnp.int32))
    last, best, best_nll, diverged_at = load_arrays(path, stored)
    return Trained(last, best, float(best_nll), int(diverged_at))
