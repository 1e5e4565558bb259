"""What is asked for, before anything is loaded: cohorts of replicas, out of a sweep's name, settings, or a folder.

Seeds are alike: what one of them needs is counted once and multiplied, so that a million replicas are no more work than
ten.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from crossreg.config import Config, DataConfig, load_yaml
from crossreg.data.apebench import cached_file
from crossreg.designs.grids import ALL_METHODS, NAMES, Trial, default_steps, plan
from crossreg.designs.presets import PRESETS, preset, scenario_settings
from crossreg.errors import InputError
from crossreg.files.arrays import open_npz
from crossreg.methods.names import Method, parse_methods
from crossreg.runs.programs import Program, Training, read_programs
from crossreg.runs.saving import USUAL
from crossreg.runs.snapshots import SnapshotStore
from crossreg.runs.sweep_folder import PLAN, data_digest, load_trials, read_rows, trial_key
from crossreg.studies.planning.packing import Cohort
from crossreg.studies.sweep.programs import cohort_of
from crossreg.studies.sweep.run import check_trials
from crossreg.studies.sweep.scoring import trainings_of

_MOST_SEEDS = 10**7
# What APEBench takes where a scenario is not told its own.
_USUAL_POINTS, _USUAL_DIMS, _USUAL_CHANNELS = 160, 1, 1
RowSeconds = Callable[[Trial], float]


class Asked(NamedTuple):
    """What to plan: a sweep's name, a preset, a file of settings or a folder, and the flags of `crossreg sweep`."""

    what: str
    methods: str | None = None
    seeds: int = 5
    first_seed: int = 0
    steps: int | None = None
    grid: Sequence[str] = ()
    scenario: str | None = None
    config: Path | None = None


class AskedTrials(NamedTuple):
    """Trials, how many seeds each stands for, and the folder that has a part of them already."""

    trials: list[Trial]
    seeds: int
    folder: Path | None


class Demand(NamedTuple):
    """Rows that are asked for, and left; cohorts to train; seconds of scoring that wait for no training."""

    asked: int
    left: int
    cohorts: list[Cohort]
    rows: float


def asked_trials(asked: Asked) -> AskedTrials:
    """The trials that are asked for, each with one seed."""
    path = Path(asked.what)
    if asked.what not in (*NAMES, *PRESETS) and path.is_dir():
        for name, default in Asked._field_defaults.items():
            if getattr(asked, name) != default:
                flag = name.replace("_", "-")
                raise InputError(f"--{flag}: {path} is a folder, which says it itself; leave the flag out")
        if not (path / PLAN).exists():
            raise InputError(f"{path}: is no folder of a sweep ({PLAN} is missing)")
        trials, seeds, folder = load_trials(path), 1, path
    else:
        if not 1 <= asked.seeds <= _MOST_SEEDS:
            raise InputError(f"--seeds {asked.seeds}: must lie in 1 … {_MOST_SEEDS}")
        trials, seeds, folder = (_of_sweep if asked.what in NAMES else _of_settings)(asked), asked.seeds, None
    if (own := trials[0].config.data.data) is not None:
        raise InputError(
            f"{asked.what}: is of own data ({own}), which plans do not know; `crossreg sweep … --plan` does"
        )
    check_trials(trials)
    return AskedTrials(trials, seeds, folder)


def _of_sweep(asked: Asked) -> list[Trial]:
    """The trials of a sweep that has a name."""
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
    """One run, of a preset or of a file of settings; with --methods, all of theirs, and with --grid, all of its."""
    if asked.scenario is not None:
        raise InputError(f"--scenario {asked.scenario}: is for sweeps that have a name; {asked.what} says it itself")
    if asked.what in PRESETS:
        config = preset(asked.what)
        config = config if asked.config is None else load_yaml(asked.config, base=config)
    elif Path(asked.what).is_file():
        config = load_yaml(Path(asked.what))
        if asked.config is not None:
            raise InputError(f"--config {asked.config}: {asked.what} has the settings; give one of them")
    else:
        raise InputError(
            f"{asked.what}: neither a sweep ({', '.join(NAMES)}), nor a preset ({', '.join(PRESETS)}), nor a YAML file"
            " or a sweep's folder"
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
    """(channel, *space) of a scenario's fields, and whether a file here says so: else it is what APEBench takes."""
    path = cached_file(data)
    if path.exists():
        with open_npz(path) as archive:
            return archive.header("train").shape[2:], True
    size = data.num_points or _USUAL_POINTS
    dims = data.num_spatial_dims or _USUAL_DIMS
    return (_USUAL_CHANNELS, *(size,) * dims), False


def demand_of(asked: AskedTrials, row_seconds: RowSeconds) -> Demand:
    """What is to be done for the trials; `row_seconds` says how long scoring one takes."""
    return _left_in(asked, row_seconds) if asked.folder is not None else _from_nothing(asked, row_seconds)


class _Gathered:
    """Trainings of one cohort, and the methods and seconds of scoring that they are for."""

    def __init__(self) -> None:
        self.trainings: set[Training] = set()
        self.methods: set[str] = set()
        self.scoring = 0.0

    def cohort(self, seeds: int = 1, **fields) -> Cohort:
        first, *others = sorted(self.methods, key=lambda name: (len(name), name))
        label = first + (f" and {len(others)} more" if others else "")
        count = len(self.trainings)
        config = next(iter(self.trainings)).config
        return Cohort(label, config, seeds * count, self.scoring / count, **fields)


def _gather(needs: Iterable[tuple[Trial, Sequence[tuple[object, Training]]]], row_seconds: RowSeconds):
    """Trainings by where they belong; of a row's scoring, each has an equal share. And rows that need none."""
    gathered: dict[object, _Gathered] = {}
    rows = 0.0
    for trial, trainings in needs:
        seconds = row_seconds(trial)
        rows += 0.0 if trainings else seconds
        for place, training in trainings:
            some = gathered.setdefault(place, _Gathered())
            some.trainings.add(training)
            some.methods.add(trial.method.name)
            some.scoring += seconds / len(trainings)
    return gathered, rows


def _from_nothing(asked: AskedTrials, row_seconds: RowSeconds) -> Demand:
    unique = {(p.method.name, *(p.configs or [p.config])): p for p in asked.trials}
    needs = (
        (trial, [(cohort_of(t.config), t) for members in trainings_of(trial) for t in members])
        for trial in unique.values()
    )
    gathered, rows = _gather(needs, row_seconds)
    asked_rows = len(asked.trials) * asked.seeds
    cohorts = [some.cohort(asked.seeds) for some in gathered.values()]
    return Demand(asked_rows, asked_rows, cohorts, rows * asked.seeds)


def _left_in(asked: AskedTrials, row_seconds: RowSeconds) -> Demand:
    """What a folder does not have yet: rows, and trainings, some of them in programs that were decided already."""
    assert asked.folder is not None
    folder, digest = asked.folder, data_digest(asked.folder)
    done = {row["key"] for row in read_rows(folder)}
    programs = read_programs(folder)
    home: dict[str, Program] = {key: program for program in programs for key in program.trainings}
    keyed = {trial_key(trial, digest): trial for trial in asked.trials}
    waiting = {key: trial for key, trial in keyed.items() if key not in done}

    def places(trial: Trial) -> list[tuple[object, Training]]:
        found = []
        for training in (t for members in trainings_of(trial) for t in members):
            program = home.get(training.key(digest))
            found.append((cohort_of(training.config) if program is None else program.name, training))
        return found

    gathered, rows = _gather(((trial, places(trial)) for trial in waiting.values()), row_seconds)
    by_name = {program.name: program for program in programs}
    cohorts = []
    for place, some in gathered.items():
        if not isinstance(place, str):
            cohorts.append(some.cohort())
        elif by_name[place].is_done(folder):
            rows += some.scoring
        else:
            program = by_name[place]
            # It is trained whole, also what no row waits for.
            some.trainings.update(program.trainings.values())
            cohorts.append(some.cohort(fixed=True, left=_left(program, folder)))
    return Demand(len(keyed), len(waiting), cohorts, rows)


def _left(program: Program, folder: Path) -> float:
    """The share of its steps that a program has still to go."""
    steps = SnapshotStore(folder, program.name, program.name, USUAL).steps()
    return 1 - (steps[0] if steps else 0) / program.config.train.steps


@functools.cache
def _untimed(config: Config) -> Config:
    """A config without what does not change how long scoring takes."""
    return config.replace(seed=0, mask_seed=0, observed_fraction=1.0)


def priced_rows(seconds: Callable[[Config, int, int], float]) -> RowSeconds:
    """`seconds(config, members, more_reg)` for trials, computed once for those alike."""
    known: dict[tuple, float] = {}

    def of(trial: Trial) -> float:
        config = _untimed((trial.configs or [trial.config])[0])
        candidates = len(trial.configs)
        more_reg = int(trial.method.wrapped) + (candidates if candidates > 1 else 0)
        members = trial.method.members if candidates else 0
        key = (config, members, more_reg)
        if key not in known:
            known[key] = seconds(*key)
        return known[key]

    return of
