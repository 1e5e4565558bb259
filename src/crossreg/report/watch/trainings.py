"""Finds the trainings of a row of a sweep, and the program that trained them.

Rows and trainings are known by hashes of their settings. Hashing all trials of a large sweep would take a minute, so
only those with the method, the seed and the sizes of the requested row are hashed.
"""

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from crossreg.errors import InputError
from crossreg.progress.history import whole
from crossreg.report.shared.stored import training_name, trainings_in
from crossreg.report.watch.folders import Entry
from crossreg.report.watch.inside import Inside, Parts, Stamp
from crossreg.runs.file_names import PLAN

if TYPE_CHECKING:
    from crossreg.designs.grids import Trial

_MOST_POINTS = 50_000
_MOST_METHODS = 200
_LONGEST_PLAN = 2**20
_PLACE = ("observed_fraction", "train_size", "reg_size")
Place = tuple[Any, ...]


class ProgramFile(NamedTuple):
    """The replicas of a program in words, by the keys of their trainings."""

    stamp: Stamp
    names: dict[str, str]


def read_program(inside: Inside, parts: Parts, stamp: Stamp) -> ProgramFile:
    """Read the replicas of a `trained/*.json`."""
    trainings = trainings_in(inside.read(parts) or b"")
    return ProgramFile(stamp, {key: training_name(training) for key, training in trainings.items()})


class SweepPlan:
    """The trials of a `sweep.json`, planned when a row is first requested; other requests wait meanwhile."""

    def __init__(self, stamp: Stamp, asked: dict[str, Any]):
        self.stamp = stamp
        self._asked = asked
        self._lock = threading.Lock()
        self._trials: "dict[Place, list[Trial]] | None" = None
        self._keyed: "dict[Place, dict[str, Trial]]" = {}

    def trainings(self, row: Entry) -> list[str]:
        """Return the keys of a row's trainings; none where the plan has no such row."""
        from crossreg.runs.sweep_folder import trial_key
        from crossreg.studies.sweep.scoring import trainings_of

        digest = str(self._asked.get("data"))
        place = (row.method, row.regime.get("seed"), *(row.regime.get(name) for name in _PLACE))
        with self._lock:
            if self._trials is None:
                self._trials = _by_place(self._asked)
            if place in self._trials and place not in self._keyed:
                self._keyed[place] = {trial_key(trial, digest): trial for trial in self._trials[place]}
        trial = self._keyed.get(place, {}).get(row.key)
        return [] if trial is None else [t.key(digest) for members in trainings_of(trial) for t in members]


def read_plan(inside: Inside, parts: Parts, stamp: Stamp) -> SweepPlan:
    """Read the plan of a `sweep.json`; it has no trials where it cannot be read."""
    return SweepPlan(stamp, inside.json(parts) if stamp.size <= _LONGEST_PLAN else {})


def _by_place(asked: dict[str, Any]) -> "dict[Place, list[Trial]]":
    """Return the trials of a sweep by the method, the seed and the sizes that their rows name."""
    from crossreg.runs.sweep_folder import trials_of

    try:
        trials = trials_of(asked, PLAN) if _is_plannable(asked) else []
    except (InputError, AttributeError, ValueError, TypeError, RecursionError):
        return {}  # a plan of another version: its rows have scores and no curves
    found: dict[Place, list[Trial]] = {}
    for trial in trials:
        sizes = (getattr(trial.config.data, name) for name in _PLACE)
        found.setdefault((trial.method.name, trial.config.train.seed, *sizes), []).append(trial)
    return found


def _is_plannable(asked: dict[str, Any]) -> bool:
    """Return whether a plan has few enough trials to be made, without making them."""
    from crossreg.designs.grids import plan

    name, methods, grid = asked.get("name"), asked.get("methods"), asked.get("grid", [])
    seeds = whole(asked.get("seeds"))
    if not isinstance(name, str) or seeds is None or seeds < 1 or not isinstance(grid, list):
        return False
    # Values are YAML, whose aliases grow without bound when printed.
    if not all(isinstance(item, str) and not set(item) & set("&*") for item in grid):
        return False
    if methods is not None and (not isinstance(methods, str) or methods.count(",") >= _MOST_METHODS):
        return False
    count = seeds * len(plan(name, methods=methods, seeds=1, grid=["k_reg=1"] if name == "grid" else []))
    for values in grid:
        count *= values.count(",") + 1
        if count > _MOST_POINTS:  # before it grows further: a list may have a million items
            return False
    return count <= _MOST_POINTS
