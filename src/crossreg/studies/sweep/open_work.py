"""The open work of a sweep: trials without a row, the trainings that they need, and the programs to train."""

import math
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossreg.data.trajectories import Trajectories
from crossreg.designs.grids import Trial
from crossreg.runs.programs import Program
from crossreg.runs.sweep_folder import read_rows, trial_key
from crossreg.studies.sweep.programs import plan_programs
from crossreg.studies.sweep.scoring import trainings_of
from crossreg.training.cost import measured_elsewhere, scoring_steps


def methods_label(names: Iterable[str]) -> str:
    """Return names of methods in short: the shortest one, and how many more."""
    first, *others = sorted(names, key=lambda name: (len(name), name))
    return f"{first} and {len(others)} more" if others else first


class Packing(NamedTuple):
    """Limits on the number of replicas in a new program.

    Attributes:
        memory: The bytes that a worker may fill.
        most: The most replicas of a program that were asked for, or None.
        workers: How many workers train.
    """

    memory: int
    most: int | None = None
    workers: int = 1


class OpenWork(NamedTuple):
    """The open work of a sweep.

    Attributes:
        folder: The folder of the sweep.
        trajectories: The data.
        rows: The rows that are there, by key; new rows are added.
        waiting: The trials without a row, by the keys of their rows.
        needs: The keys of the trainings that each of these trials needs.
        due: The programs that they need, in order; some may be trained already.
        corrupted: The names of trained programs that are corrupted.
    """

    folder: Path
    trajectories: Trajectories
    rows: dict[str, dict[str, Any]]
    waiting: dict[str, Trial]
    needs: dict[str, set[str]]
    due: list[Program]
    corrupted: Container[str]

    @property
    def space(self) -> tuple[int, ...]:
        """The shape of a field, without its channels."""
        return self.trajectories.train.shape[3:]

    def label(self, program: Program) -> str:
        """Return the methods that a program trains for, and the number of its replicas."""
        trainings = program.trainings.keys()
        methods = {trial.method.name for key, trial in self.waiting.items() if self.needs[key] & trainings}
        return f"{methods_label(methods) if methods else 'trained again:'} × {len(trainings)}"

    def extent(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """Return the arguments of a display that say how much there is to do; `trials` are all trials of the sweep."""
        whole = sum((program.work(self.space) for program in self.due), 0.0)
        steps = sum(len(program.trainings) * program.config.train.steps for program in self.due)
        scoring = sum(scoring_steps(trial.config, trial.method.members) for trial in self.waiting.values())
        is_known = measured_elsewhere() is None and all(p.seconds(self.space) is not None for p in self.due)
        return {
            "work": whole,
            "programs": len(self.due),
            "trials": len(trials),
            "scored": len(trials) - len(self.waiting),
            "seconds_per_work": 1.0 if is_known else None,
            "scoring_work": whole / steps * scoring / len(self.waiting) if steps and self.waiting else None,
            "folder": self.folder,
        }


def open_work(
    trials: Sequence[Trial],
    folder: Path,
    trajectories: Trajectories,
    packing: Packing,
    *,
    corrupted: Container[str] = (),
    write: bool,
) -> OpenWork:
    """Return what is still to be done for the trials; with `write`, new programs are written into the folder."""
    digest = trajectories.digest
    rows = {row["key"]: row for row in read_rows(folder)}
    keyed = {trial_key(trial, digest): trial for trial in trials}
    trainings = {key: [t for members in trainings_of(trial) for t in members] for key, trial in keyed.items()}
    every = [training for needed in trainings.values() for training in needed]
    num_points = math.prod(trajectories.train.shape[2:])
    programs = plan_programs(
        every, folder, digest, num_points, packing.memory, most=packing.most, workers=packing.workers, write=write
    )
    waiting = {key: trial for key, trial in keyed.items() if key not in rows}
    needs = {key: {training.key(digest) for training in trainings[key]} for key in waiting}
    # A program is always trained whole: a part of it would have other last digits.
    order = {training.key(digest): i for i, training in enumerate(every)}
    due = [p for p in programs if any(p.trainings.keys() & needed for needed in needs.values())]
    due += [p for p in programs if p.name in corrupted and p not in due and p.trainings.keys() & order.keys()]
    due.sort(key=lambda program: min(order.get(key, len(order)) for key in program.trainings))
    return OpenWork(folder, trajectories, rows, waiting, needs, due, corrupted)
