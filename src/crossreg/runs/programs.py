"""The programs of a sweep on disk: trainings that run side by side, and what is kept of them.

trained/NAME.json       the trainings of a program, in the order of its replicas
trained/NAME.npz        its replicas when it has ended: parameters at the last step and at the best, and their history
trained/NAME.jsonl      their history, as it goes on
snapshots/NAME.*.npz    what it goes on from while it trains (`runs/snapshots.py`)
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int, PyTree

from crossreg.config import Config, changed_fields, from_dict, to_dict
from crossreg.data.load import make_data
from crossreg.data.pairs import Data
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.files.sealed import seal_or_none
from crossreg.runs.manifest import check_files
from crossreg.training.checkpoint import Tree, load_arrays
from crossreg.training.cost import seconds_of
from crossreg.training.parallel import over_replicas

TRAINED_FOLDER = "trained"


# Part of every hash: to be raised when the same settings give other numbers than before, or a default changes.
FORMAT = 8


def digest_of(value: Any) -> str:
    """A short content hash of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


class Training(NamedTuple):
    """One replica: a config with its method in it, the member's number, and whether a part of reg is kept from it."""

    config: Config
    member: int
    splits_off_calibration: bool

    def key(self, digest: str) -> str:
        """Its identity on data of this digest: equal keys, equal work."""
        return digest_of([FORMAT, digest, changed_fields(self.config), self.member, self.splits_off_calibration])

    def data(self, trajectories: Trajectories) -> Data:
        """The splits it sees."""
        return data_of(self.config, trajectories, splits_off_calibration=self.splits_off_calibration)


def data_of(config: Config, trajectories: Trajectories, *, splits_off_calibration: bool = False) -> Data:
    """The splits of a config."""
    data = make_data(trajectories, config.data, check=False)
    return data.split_off_calibration(config.train.seed) if splits_off_calibration else data


class Program(NamedTuple):
    """Trainings that run side by side, by their keys."""

    name: str
    trainings: dict[str, Training]

    @property
    def config(self) -> Config:
        """The config of one of them: they differ in data and seeds only."""
        return next(iter(self.trainings.values())).config

    def seconds(self, space: tuple[int, ...]) -> float | None:
        """About how long it trains here, compilation aside, or None where nothing is known of the device."""
        return seconds_of(self.config, space, over_replicas(len(self.trainings)).per_device)

    def work(self, space: tuple[int, ...]) -> float:
        """The same in some unit that all programs share."""
        seconds = self.seconds(space)
        return float(len(self.trainings) * self.config.train.steps) if seconds is None else seconds

    def file(self, folder: Path, ending: str) -> Path:
        return folder / self.name_of(ending)

    def name_of(self, ending: str) -> str:
        """The name of one of its files, as the manifest has it."""
        return f"{TRAINED_FOLDER}/{self.name}{ending}"

    def is_done(self, folder: Path) -> bool:
        return self.file(folder, ".npz").exists()

    def identity(self, folder: Path) -> str | None:
        """What the seal of its trained replicas must say, by the keys of the trainings, whatever the file is called.

        Older versions had no seal: there the manifest decides.
        """
        if seal_or_none(self.file(folder, ".npz")) is not None:
            return digest_of(list(self.trainings))
        check_files(folder, [self.name_of(".npz")])
        return None

    def load(self, folder: Path, like: Tree, *, replica: int | None = None) -> Tree:
        """Its trained replicas, or one of them; a file of another program by its name is refused."""
        return load_arrays(self.file(folder, ".npz"), like, replica=replica, identity=self.identity(folder))


def read_programs(folder: Path) -> list[Program]:
    """The programs that a folder has, trained or not."""
    paths = sorted((folder / TRAINED_FOLDER).glob("*.json"))
    check_files(folder, [path.relative_to(folder).as_posix() for path in paths])
    return [program_in(path) for path in paths]


def program_in(path: Path) -> Program:
    """The program that a file describes."""
    try:
        return described_program(path.stem, json.loads(read_regular(path)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error}); remove it to train its part again") from error


def describe_program(program: Program) -> list[dict[str, Any]]:
    """A program as plain values: what its file holds, and what a worker is told."""
    return [{"key": key} | t._asdict() | {"config": to_dict(t.config)} for key, t in program.trainings.items()]


def described_program(name: str, description: list[dict[str, Any]]) -> Program:
    """The program of a description."""
    return Program(
        name,
        {
            item["key"]: Training(from_dict(item["config"]), item["member"], item["splits_off_calibration"])
            for item in description
        },
    )


class Finished(NamedTuple):
    """What is kept of a finished program: stacked parameters, at the last step and at their best, and its NLL."""

    last: PyTree
    best: PyTree
    best_nll: Float[Array, " replica"] | None
    diverged_at: Int[Array, " replica"] | None
