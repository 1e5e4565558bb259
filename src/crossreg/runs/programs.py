"""The programs of a sweep on disk: trainings that run side by side, and what is kept of them.

trained/NAME.json       the trainings of a program, in the order of its replicas
trained/NAME.npz        a finished program: parameters of its replicas at the last step and at the best, their history
trained/NAME.jsonl      the history, which grows during training
snapshots/NAME.*.npz    what the program resumes from (`runs/safeguards/snapshots.py`)
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int, PyTree

from crossreg.config import Config, changed_fields, from_dict, to_dict
from crossreg.data.dataset import Data
from crossreg.data.load import make_data
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.runs.file_names import TRAINED
from crossreg.runs.safeguards.manifest import check_files, expected_seal
from crossreg.training.checkpoint import Tree, load_arrays
from crossreg.training.cost import seconds_of
from crossreg.training.parallel import over_replicas

# Part of every hash. It must be raised when the same settings give other numbers than before, or a default changes.
FORMAT = 9


def digest_of(value: Any) -> str:
    """Return a short content hash of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


class Training(NamedTuple):
    """One model to be trained, a replica of a program.

    Attributes:
        config: All settings, those of the method among them.
        member: The number of the model in its ensemble.
        splits_off_calibration: Whether it does not see the calibration part of reg.
    """

    config: Config
    member: int
    splits_off_calibration: bool

    def key(self, digest: str) -> str:
        """Return its identity on data of this digest: equal keys, equal work."""
        return digest_of([FORMAT, digest, changed_fields(self.config), self.member, self.splits_off_calibration])

    def data(self, trajectories: Trajectories) -> Data:
        """Return the splits that it sees."""
        return data_of(self.config, trajectories, splits_off_calibration=self.splits_off_calibration)


def data_of(config: Config, trajectories: Trajectories, *, splits_off_calibration: bool = False) -> Data:
    """Return the splits of a config, with or without the calibration part of reg split off."""
    data = make_data(trajectories, config.data, check=False)
    return data.split_off_calibration(config.train.seed) if splits_off_calibration else data


class Program(NamedTuple):
    """Trainings that run side by side, by their keys; `name` is that of its files."""

    name: str
    trainings: dict[str, Training]

    @property
    def config(self) -> Config:
        """The config of its first training; the others differ in data and seeds only."""
        return next(iter(self.trainings.values())).config

    def seconds(self, space: tuple[int, ...]) -> float | None:
        """Estimate how long it trains here, compilation aside; None where the device is unknown."""
        return seconds_of(self.config, space, over_replicas(len(self.trainings)).per_device)

    def work(self, space: tuple[int, ...]) -> float:
        """Estimate how long it trains, in some unit that all programs share."""
        seconds = self.seconds(space)
        return float(len(self.trainings) * self.config.train.steps) if seconds is None else seconds

    def file(self, folder: Path, ending: str) -> Path:
        """Return the path of one of its files in the folder of a sweep."""
        return folder / self.name_of(ending)

    def name_of(self, ending: str) -> str:
        """Return the name of one of its files, as the manifest lists it."""
        return f"{TRAINED}/{self.name}{ending}"

    def is_done(self, folder: Path) -> bool:
        """Return whether it has finished."""
        return self.file(folder, ".npz").exists()

    def load(self, folder: Path, like: Tree, *, replica: int | None = None) -> Tree:
        """Load its trained replicas, or one of them.

        Args:
            folder: The folder of the sweep.
            like: A tree of the shapes that are expected.
            replica: The number of the replica, if only one is wanted.

        Raises:
            InputError: If the file is corrupted, or is that of another program.
        """
        identity = expected_seal(folder, self.name_of(".npz"), digest_of(list(self.trainings)))
        return load_arrays(self.file(folder, ".npz"), like, replica=replica, identity=identity)


def read_programs(folder: Path) -> list[Program]:
    """Read the programs of a sweep's folder, finished or not."""
    paths = sorted((folder / TRAINED).glob("*.json"))
    check_files(folder, [path.relative_to(folder).as_posix() for path in paths])
    return [program_in(path) for path in paths]


def program_in(path: Path) -> Program:
    """Read the program that a file describes."""
    try:
        return described_program(path.stem, json.loads(read_regular(path)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error}); remove it to train its part again") from error


def describe_program(program: Program) -> list[dict[str, Any]]:
    """Return a program as plain values, for its file and for workers."""
    return [
        {"key": key, "config": to_dict(t.config), "member": t.member, "keeps_part_of_reg": t.splits_off_calibration}
        for key, t in program.trainings.items()
    ]


def described_program(name: str, description: list[dict[str, Any]]) -> Program:
    """Return the program of a description."""

    def training(item: dict[str, Any]) -> Training:
        return Training(from_dict(item["config"]), item["member"], item["keeps_part_of_reg"])

    return Program(name, {item["key"]: training(item) for item in description})


class Finished(NamedTuple):
    """A finished program: stacked parameters of its replicas at the last step and at the best, and the best NLL."""

    last: PyTree
    best: PyTree
    best_nll: Float[Array, " replica"] | None
    diverged_at: Int[Array, " replica"] | None
