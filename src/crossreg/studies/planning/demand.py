"""The demand of a plan: cohorts of replicas, from the name of a sweep, from settings, or from a folder.

No data are loaded. What one seed needs is counted once and multiplied, so a million replicas take no longer than ten.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from crossreg.config import Config, DataConfig, load_yaml
from crossreg.config.field_types import check
from crossreg.data.apebench import cached_file
from crossreg.designs.grids import ALL_METHODS, NAMES, Trial, default_steps, plan
from crossreg.designs.presets import PRESETS, preset, scenario_settings
from crossreg.errors import InputError
from crossreg.files.arrays import open_npz
from crossreg.methods.names import Method, parse_methods
from crossreg.runs.file_names import PLAN
from crossreg.runs.kinds import kind_of
from crossreg.runs.programs import Program, Training, read_programs
from crossreg.runs.safeguards.saving import USUAL
from crossreg.runs.safeguards.snapshots import SnapshotStore
from crossreg.runs.sweep_folder import data_digest, load_trials, read_rows, trial_key
from crossreg.studies.planning.packing import Cohort
from crossreg.studies.planning.settings import Asked
from crossreg.studies.sweep.open_work import methods_label
from crossreg.studies.sweep.programs import cohort_of
from crossreg.studies.sweep.run import check_trials
from crossreg.studies.sweep.scoring import trainings_of

_MOST_SEEDS = 10**7
# APEBench's defaults.
_USUAL_POINTS, _USUAL_DIMS, _USUAL_CHANNELS = 160, 1, 1
RowSeconds = Callable[[Trial], float]


class AskedTrials(NamedTuple):
    """The trials to plan for.

    Attributes:
        trials: The trials.
        seeds: How many seeds each of them stands for.
        folder: The folder of a sweep that has some of them already, or None.
    """

    trials: list[Trial]
    seeds: int
    folder: Path | None


class Demand(NamedTuple):
    """The work that is asked for, and what is left of it.

    Attributes:
        asked: The number of rows that are asked for.
        left: The number of rows that are not done yet.
        cohorts: The replicas to train.
        rows: Seconds of scoring for trials that wait for no training.
    """

    asked: int
    left: int
    cohorts: list[Cohort]
    rows: float


def asked_trials(asked: Asked) -> AskedTrials:
    """Return the trials that are asked for, each for one seed; those of a folder for all seeds."""
    path = Path(asked.what)
    if asked.what not in (*NAMES, *PRESETS) and path.is_dir():
        for known in dataclasses.fields(Asked)[1:]:
            if getattr(asked, known.name) != known.default:
                raise InputError(f"`{known.name}`: {path} is a folder, which has this setting itself; leave it out")
        if kind_of(path) != "sweep":
            raise InputError(f"{path}: is not the folder of a sweep ({PLAN} is missing)")
        trials, seeds, folder = load_trials(path), 1, path
    else:
        check(1 <= asked.seeds <= _MOST_SEEDS, "seeds", asked.seeds, f"must lie in 1 … {_MOST_SEEDS}")
        trials, seeds, folder = (_of_sweep if asked.what in NAMES else _of_settings)(asked), asked.seeds, None
    if (own := trials[0].config.data.data) is not None:
        raise InputError(
            f"{asked.what}: uses your data ({own}), which plans do not support; use `crossreg sweep … --plan`"
        )
    check_trials(trials)
    return AskedTrials(trials, seeds, folder)


def _of_sweep(asked: Asked) -> list[Trial]:
    """Return the trials of a named sweep."""
    base = None
    if asked.config is not None or asked.scenario is not None:
        base = Config().replace(steps=default_steps(asked.what))
    if base and asked.scenario is not None:
        base = base.replace(**scenario_settings(asked.scenario))
    if asked.config is not None:
        base = load_yaml(asked.config, base=base)
    flags = {"methods": asked.methods, "first_seed": asked.first_seed, "steps": asked.steps, "grid": asked.grid}
    return plan(asked.what, **flags, seeds=1, base=base)


def _of_settings(asked: Asked) -> list[Trial]:
    """Return the trial of a preset or a settings file, or with `methods` and `grid` all their combinations."""
    what, scenario = asked.what, asked.scenario
    check(scenario is None, "scenario", scenario, f"is for named sweeps; {what} has a scenario itself")
    if asked.what in PRESETS:
        config = preset(asked.what)
        config = config if asked.config is None else load_yaml(asked.config, base=config)
    elif Path(asked.what).is_file():
        config = load_yaml(Path(asked.what))
        check(asked.config is None, "config", asked.config, f"{asked.what} has settings already; give one of them")
    else:
        raise InputError(
            f"{asked.what}: neither a sweep ({', '.join(NAMES)}), nor a preset ({', '.join(PRESETS)}), nor a YAML file"
            " or the folder of a sweep"
        )
    config = config.replace(seed=asked.first_seed, **({} if asked.steps is None else {"steps": asked.steps}))
    itself = Method(Path(asked.what).stem, (lambda config: config,))
    methods = ALL_METHODS if asked.methods == "all" else asked.methods
    if asked.grid:
        flags = {"seeds": 1, "first_seed": asked.first_seed, "grid": asked.grid}
        trials = plan("grid", methods=methods or "xreg", **flags, base=config)
        return trials if methods else [Trial(trial.base, itself, trial.changes) for trial in trials]
    return [Trial(config, method, {}) for method in (parse_methods(methods) if methods else [itself])]


def field_shape_of(data: DataConfig) -> tuple[tuple[int, ...], bool]:
    """Return the shape (channel, *space) of a scenario's fields, and whether it is known from a cached file.

    Otherwise it is the shape that APEBench makes by default.
    """
    path = cached_file(data)
    if path.exists():
        with open_npz(path) as archive:
            return archive.header("train").shape[2:], True
    size = data.num_points or _USUAL_POINTS
    dims = data.num_spatial_dims or _USUAL_DIMS
    return (_USUAL_CHANNELS, *(size,) * dims), False


def demand_of(asked: AskedTrials, row_seconds: RowSeconds) -> Demand:
    """Return the work for the trials; `row_seconds` returns the seconds that scoring a trial takes.

    Some trainings of a folder may be in programs that are decided already; a program is planned as one job.
    """
    folder, digest, programs = asked.folder, "", {}
    if folder is None:
        waiting = {(t.method.name, *(t.configs or [t.config])): t for t in asked.trials}
        num_asked = num_left = len(asked.trials) * asked.seeds
    else:
        digest, done = data_digest(folder), {row["key"] for row in read_rows(folder)}
        programs = {program.name: program for program in read_programs(folder)}
        keyed = {trial_key(trial, digest): trial for trial in asked.trials}
        waiting = {key: trial for key, trial in keyed.items() if key not in done}
        num_asked, num_left = len(keyed), len(waiting)
    program_of = {key: program.name for program in programs.values() for key in program.trainings}
    gathered: dict[object, _Gathered] = collections.defaultdict(_Gathered)
    rows = 0.0
    for trial in waiting.values():
        trainings = [t for members in trainings_of(trial) for t in members]
        seconds = row_seconds(trial)
        rows += 0.0 if trainings else seconds
        for training in trainings:  # each has an equal share of the row's scoring
            name = program_of.get(training.key(digest)) if folder else None
            some = gathered[name or cohort_of(training.config)]
            some.trainings[training] = None
            some.methods.add(trial.method.name)
            some.scoring += seconds / len(trainings)
    cohorts = []
    for place, some in gathered.items():
        if folder is None or not isinstance(place, str):
            cohorts.append(some.cohort(asked.seeds))
        elif (program := programs[place]).is_done(folder):
            rows += some.scoring
        else:
            # A program is trained whole, with trainings that no row waits for.
            some.trainings.update(dict.fromkeys(program.trainings.values()))
            cohorts.append(some.cohort(fixed=True, left=_left(program, folder)))
    return Demand(num_asked, num_left, cohorts, rows * asked.seeds)


class _Gathered:
    """Trainings of one cohort or program, with their methods and the seconds of scoring."""

    def __init__(self) -> None:
        self.trainings: dict[Training, None] = {}  # in order, so that a plan is the same in every process
        self.methods: set[str] = set()
        self.scoring = 0.0

    def cohort(self, seeds: int = 1, **fields: Any) -> Cohort:
        config, count = next(iter(self.trainings)).config, len(self.trainings)
        return Cohort(methods_label(self.methods), config, seeds * count, self.scoring / count, **fields)


def _left(program: Program, folder: Path) -> float:
    """Return the share of its steps that a program has still to train."""
    steps = SnapshotStore(folder, program.name, program.name, USUAL).steps()
    return 1 - (steps[0] if steps else 0) / program.config.train.steps


@functools.cache
def _untimed(config: Config) -> Config:
    """Return the config without settings that do not change how long scoring takes."""
    return config.replace(seed=0, mask_seed=0, observed_fraction=1.0)


def priced_rows(seconds: Callable[[Config, int, int], float]) -> RowSeconds:
    """Return a function of trials that calls `seconds(config, members, more_reg)` once for equal arguments."""
    priced = functools.cache(seconds)

    def of(trial: Trial) -> float:
        config = _untimed((trial.configs or [trial.config])[0])
        candidates = len(trial.configs)
        more_reg = int(trial.method.wrapped) + (candidates if candidates > 1 else 0)
        members = trial.method.members if candidates else 0
        return priced(config, members, more_reg)

    return of
