"""Which trainings the rows of a sweep were made of, and which program trained them.

A row is known by the hash of its settings, and so is a training. To hash all trials of a large sweep takes a minute;
only those are hashed that have the method, the seed and the sizes of the row that is asked for.
"""

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from crossreg.errors import InputError
from crossreg.progress.history import number, whole
from crossreg.report.watch.folders import Entry, section
from crossreg.report.watch.inside import Inside, Parts, Stamp, parsed

if TYPE_CHECKING:
    from crossreg.designs.grids import Trial

_MOST_POINTS = 50_000
_MOST_METHODS = 200
_LONGEST_PLAN = 2**20
_PLACE = ("observed_fraction", "train_size", "reg_size")
Place = tuple[Any, ...]


class ProgramFile(NamedTuple):
    """The replicas that were trained as one, by their keys, in words."""

    stamp: Stamp
    names: dict[str, str]


def read_program(inside: Inside, parts: Parts, stamp: Stamp) -> ProgramFile:
    """The replicas of a `trained/*.json`."""
    described = parsed(inside.read(parts) or b"")
    items = [item for item in described if isinstance(item, dict)] if isinstance(described, list) else []
    return ProgramFile(stamp, {item["key"]: _name(item) for item in items if isinstance(item.get("key"), str)})


def _name(item: dict[str, Any]) -> str:
    """A replica in words: its regime, its seed, and which member of an ensemble it is."""
    config = section(item, "config")
    data, seed = section(config, "data"), whole(section(config, "train").get("seed"))
    fraction, size = number(data.get("observed_fraction")), whole(data.get("train_size"))
    if fraction is None or size is None or seed is None:
        return item["key"][:8]
    member = whole(item.get("member"))
    return f"{fraction:g} observed, {size} trajectories, seed {seed}" + (f", member {member}" if member else "")


class SweepPlan:
    """The trials of a `sweep.json`. They are planned when a row is first asked for; who asks meanwhile waits."""

    def __init__(self, stamp: Stamp, asked: dict[str, Any]):
        self.stamp = stamp
        self._asked = asked
        self._lock = threading.Lock()
        self._trials: "dict[Place, list[Trial]] | None" = None
        self._keyed: "dict[Place, dict[str, Trial]]" = {}

    def trainings(self, row: Entry) -> list[str]:
        """The keys of a row's trainings; none where the plan has no such row."""
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
    """The plan of a `sweep.json`; one without trials where it cannot be read."""
    return SweepPlan(stamp, inside.json(parts) if stamp.size <= _LONGEST_PLAN else {})


def _by_place(asked: dict[str, Any]) -> "dict[Place, list[Trial]]":
    """The trials of a sweep by what a row says of itself."""
    from crossreg.runs.sweep_folder import trials_of

    try:
        trials = trials_of(asked, "sweep.json") if _is_plannable(asked) else []
    except (InputError, AttributeError, ValueError, TypeError, RecursionError):
        return {}  # no plan of this version: its rows have scores and no curves
    found: dict[Place, list[Trial]] = {}
    for trial in trials:
        sizes = (getattr(trial.config.data, name) for name in _PLACE)
        found.setdefault((trial.method.name, trial.config.train.seed, *sizes), []).append(trial)
    return found


def _is_plannable(asked: dict[str, Any]) -> bool:
    """Whether a plan has so few trials that they can be made, which is told without making them."""
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
