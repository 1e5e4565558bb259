"""`crossreg car`: pressure with error bars on car surfaces, by an optimal transport neural operator.

Surfaces go to a torus grid, a 2-D FNO runs there, and its prediction is read at the vertices (`data/cars/pairs.py`).
Predictive noise is at the head, generalization noise inside. Every method runs through the same code, and all its seeds
train as replicas of one program. A folder holds

config.yaml          every setting; versions.json says what it ran on
summary.json         scores of every method on the test cars, in the data's units
test_cars.npz        the test cars, one behind the other
predictions/*.npz    mean and standard deviations on them, of the first seed
history/*.jsonl      losses, scores on reg and σ per site while training, of the first seed
models/*.npz         the trained arrays; the same command on the same folder takes them as they are
"""

import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import yaml

from crossreg.config import Config, changed_fields, to_dict
from crossreg.data.cars.channels import NUM_CHANNELS
from crossreg.data.cars.family import make_family
from crossreg.data.cars.pairs import CarPairs, CarScale, make_car_data, vertices_correspond
from crossreg.data.cars.readers import Cars, load_cars
from crossreg.data.pairs import Data
from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.methods.early import Trained
from crossreg.methods.names import Method, parse_methods
from crossreg.methods.readout import read_out
from crossreg.methods.vertex_mean import fit_vertex_mean
from crossreg.metrics.cars import car_scores
from crossreg.metrics.evaluation import Points, evaluation_key, score_points, sigma_per_site
from crossreg.nn.build import model_like
from crossreg.report.comparison import interval
from crossreg.report.progress import CountDisplay, TrainingDisplay
from crossreg.routing import Routed, merge
from crossreg.studies.cohort import bytes_of, check_learnable, check_memory, memory_bytes, start_cohort
from crossreg.studies.run_folder import describe_machine, finite_or_none, write_json
from crossreg.training.checkpoint import load_arrays, save_arrays
from crossreg.training.loop import Progress, train_replicas, unstack

METHODS = "xreg,unregularized,dropout,ensemble"
VERTEX_MEAN = "vertex-mean"
FAMILY = "family"
SETTINGS, SUMMARY, VERSIONS, TEST_CARS = "config.yaml", "summary.json", "versions.json", "test_cars.npz"
PREDICTIONS, HISTORY, MODELS = "predictions", "history", "models"
Profile = Literal["quick", "full"]
_MEMORY_SHARE = 0.5  # of the device, for one program


@dataclass(frozen=True)
class CarStudy:
    """All settings of the experiment; `config` has those of the network and of the training."""

    data: str = FAMILY
    """A folder of cars, or `family` for the built-in ones."""
    points: int = 2850
    """Vertices of a built-in car, about."""
    train_size: int = 30
    """Cars that θ and ψ learn from."""
    reg_size: int = 50
    """Cars that ρ learns from."""
    test_size: int = 60
    """Cars that are scored."""
    split_seed: int = 0
    """Which cars are which, and which built-in family it is."""
    grid: int = 64
    """Cells of the torus along each axis."""
    own_maps: bool = False
    """Map every car to the torus on its own, even where vertices correspond and one map would do."""
    seeds: int = 5
    """Trainings of each method."""
    methods: str = METHODS
    """Comma-separated names. The vertex mean is there besides, where vertices correspond."""
    config: Config = dataclasses.field(default_factory=Config)

    def __post_init__(self):
        for name in ("train_size", "reg_size", "test_size", "seeds"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least 1")


def car_study(profile: Profile, *, data: Path | None = None) -> CarStudy:
    """The settings of a profile, for the built-in cars or a folder of others; all with the paper's rates.

    `quick` has fewer and coarser cars and a smaller network: minutes on two cores. `full` is for a GPU. Cars of a
    folder are as fine as they are: they get the grid of `full`.
    """
    rates = {"learning_rate": 1e-3, "site_learning_rate": 1e-2, "generalization_head_learning_rate": 1e-3}
    full = CarStudy(config=Config().replace(width=32, num_modes=16, batch_size=4, steps=10_000, **rates))
    if profile == "quick":
        # In so few steps ρ has too few updates at the end of a run alone.
        config = Config().replace(width=16, num_modes=8, batch_size=4, num_samples=6, steps=2500, settle=0.4, **rates)
        quick = CarStudy(points=714, train_size=20, reg_size=20, test_size=20, grid=32, seeds=1, config=config)
        full = quick if data is None else dataclasses.replace(quick, grid=full.grid)
    return full if data is None else dataclasses.replace(full, data=str(data))


class Prepared(NamedTuple):
    """The cars of a study, and the same as pairs on the grid; whether a vertex means the same place on each."""

    cars: Cars
    data: Data[CarPairs]
    scale: CarScale
    vertices_correspond: bool


def prepare(study: CarStudy, *, progress: bool = True) -> Prepared:
    """Reads or makes the cars, and their maps to the torus."""
    sizes = {"train_size": study.train_size, "reg_size": study.reg_size, "test_size": study.test_size}
    if study.data == FAMILY:
        with CountDisplay("cars made", enabled=progress) as display:
            made = make_family(sum(sizes.values()), points=study.points, seed=study.split_seed, progress=display.update)
        # Test cars first: they stay what they are when the other sizes change, and so do all but the last train cars.
        first, second = study.test_size, study.test_size + study.reg_size
        cars = Cars(tuple(made[second:]), tuple(made[first:second]), tuple(made[:first]), None)
    else:
        cars = load_cars(Path(study.data), **sizes, seed=study.split_seed)
    if cars.note:
        print(f"crossreg: {cars.note}", file=sys.stderr)
    with CountDisplay("cars mapped to the torus", enabled=progress) as display:
        data, scale = make_car_data(cars, study.grid, own_maps=study.own_maps, progress=display.update)
    return Prepared(cars, data, scale, vertices_correspond([*cars.train, *cars.reg, *cars.test]))


class Training(NamedTuple):
    """One config, trained with several seeds and members; `keeps` says that a part of reg is kept from it."""

    name: str
    config: Config
    keeps: bool
    members: int

    @property
    def key(self) -> tuple[str, bool]:
        return json.dumps(changed_fields(self.config), sort_keys=True), self.keeps


def trainings_of(methods: Sequence[Method], base: Config) -> dict[tuple[str, bool], Training]:
    """What must be trained: methods with one config share it, as an ensemble and its first member do."""
    found: dict[tuple[str, bool], Training] = {}
    for method in methods:
        for training in _of_method(method, base):
            known = found.get(training.key, training)
            found[training.key] = known._replace(members=max(known.members, training.members))
    return found


def _of_method(method: Method, base: Config) -> list[Training]:
    configs = method.configs(base)
    keeps = method.wrapped and method.learns_on_reg(configs)
    names = [method.name] if len(configs) == 1 else [f"{method.name}-{number}" for number in range(len(configs))]
    return [Training(name, config, keeps, method.members) for name, config in zip(names, configs, strict=True)]


def run_car(study: CarStudy, folder: Path, *, progress: bool = True) -> dict[str, Any]:
    """Runs the experiment into a folder; returns what `summary.json` holds."""
    methods = parse_methods(study.methods)
    for method in methods:
        if not method.candidates:
            raise InputError(f"--methods {method.name}: a car's input is no pressure that could persist")
    trainings = trainings_of(methods, study.config)
    _check_folder(folder, study)
    for training in trainings.values():
        _check_settings(training.config, study.grid)
    ready = prepare(study, progress=progress)
    for training in trainings.values():
        if training.keeps and len(ready.cars.reg) < 2:
            raise InputError(f"--methods {training.name}: calibrates on a reg car it did not learn from; there is 1")
    _open(folder, study)
    _write_cars(folder, ready.cars)
    trained = {
        key: _trained(training, ready.data, study.seeds, folder, progress=progress)
        for key, training in trainings.items()
    }
    rows: dict[str, list[dict[str, Any]]] = {}
    with CountDisplay("predictors scored", enabled=progress) as display:
        total = study.seeds * len(methods) + 1
        for number, (method, seed) in enumerate((m, s) for m in methods for s in range(study.seeds)):
            keys = [training.key for training in _of_method(method, study.config)]
            candidates = [trained[key][seed][: method.members] for key in keys]
            data = ready.data.keep_part_of_reg(seed) if keys[0][1] else ready.data
            out = read_out(method, candidates, data, study.config.train.evaluation_samples)
            points = score_points(out.predictor, data.test, key=evaluation_key(0))
            row = {"seed": seed, "diverged": out.failed, "sigma": sigma_per_site(out.models[0])} | out.notes
            rows.setdefault(method.name, []).append(row | {"test": car_scores(points, ready.scale)})
            if seed == 0:
                _write_prediction(folder, method.name, points, ready.scale)
                if len(candidates) > 1:
                    chosen = folder / HISTORY / f"{method.name}-{out.chosen}.jsonl"
                    (folder / HISTORY / f"{method.name}.jsonl").write_bytes(chosen.read_bytes())
            display.update(number + 1, total)
        if ready.vertices_correspond:
            points = score_points(fit_vertex_mean(ready.data.train), ready.data.test, key=evaluation_key(0))
            rows[VERTEX_MEAN] = [{"diverged": False, "test": car_scores(points, ready.scale)}]
            _write_prediction(folder, VERTEX_MEAN, points, ready.scale)
        elif progress:
            print("crossreg: vertices do not correspond from car to car: no vertex mean", file=sys.stderr)
        display.update(total, total)
    summary = _summary(study, ready, rows)
    write_json(folder / SUMMARY, summary)
    return summary


def _trained(
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
        report = _train_chunk(training, data, chunk, folder, progress=progress)
        theta_psi, rho = report.snapshot.best
        best = merge(Routed(theta_psi.tree(), rho.tree(), report.static))
        (folder / MODELS).mkdir(exist_ok=True)
        for number, replica in enumerate(chunk):
            states = (report.snapshot.best_nll[number], report.snapshot.state.diverged_at[number])
            save_arrays(path(replica), (unstack(report.models, number), unstack(best, number), *states))
    done = [_load(path(replica), training.config, data.train) for replica in replicas]
    return [done[seed * training.members : (seed + 1) * training.members] for seed in range(seeds)]


def _train_chunk(
    training: Training, data: Data[CarPairs], chunk: Sequence[tuple[int, int]], folder: Path, *, progress: bool
) -> Progress:
    """Trains some replicas; the history of the first seed's first member is written."""
    configs = [training.config.replace(seed=seed) for seed, _ in chunk]
    splits = [data.keep_part_of_reg(seed) if training.keeps else data for seed, _ in chunk]
    report, lines = None, []
    label = training.name if len(chunk) == 1 else f"{training.name} × {len(chunk)}"
    with TrainingDisplay({label: training.config.train.steps}, enabled=progress) as display:
        for report in train_replicas(*start_cohort(configs, splits, [member for _, member in chunk])):
            display.update(label, report)
            if report.record is not None:
                lines.append(json.dumps(report.record.of(0)) + "\n")
    assert report is not None  # a config has at least one step
    if chunk[0] == (0, 0):
        (folder / HISTORY).mkdir(exist_ok=True)
        (folder / HISTORY / f"{training.name}.jsonl").write_text("".join(lines))
    return report


def _load(path: Path, config: Config, pairs: CarPairs) -> Trained:
    like = model_like(config.model, pairs.in_channels, pairs.field_shape)
    stored = (like, like, jnp.zeros(()), jnp.zeros((), jnp.int32))
    last, best, best_nll, diverged_at = load_arrays(path, stored)
    return Trained(last, best, float(best_nll), int(diverged_at))


def _settings(study: CarStudy) -> dict[str, Any]:
    fields = {f.name: getattr(study, f.name) for f in dataclasses.fields(study) if f.name != "config"}
    groups = to_dict(study.config)
    return {"cars": fields, "model": groups["model"], "train": groups["train"]}


def _check_settings(config: Config, grid: int) -> None:
    """Refuses what could not be trained, before anything is made."""
    if config.model.predict_increment:
        raise InputError("predict_increment: a car's input is no pressure that could change")
    model_like(config.model, NUM_CHANNELS, (1, grid, grid))
    check_learnable(config)
    check_memory(config, grid**2)


def _text(study: CarStudy) -> str:
    return yaml.safe_dump(_settings(study), sort_keys=False)


def _check_folder(folder: Path, study: CarStudy) -> None:
    """Refuses a folder that holds anything but this experiment."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        settings = folder / SETTINGS
        if not settings.is_file() or settings.read_text() != _text(study):
            raise InputError(f"--out {folder}: holds something else than this experiment; choose a new or empty folder")


def _open(folder: Path, study: CarStudy) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SETTINGS).write_text(_text(study))
        if not (folder / VERSIONS).exists():  # of what has trained here, whoever goes on
            write_json(folder / VERSIONS, describe_machine())
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error


def _write_cars(folder: Path, cars: Cars) -> None:
    test = cars.test
    faces = [np.zeros((0, 3), np.int64) if car.faces is None else car.faces for car in test]
    with replacing(folder / TEST_CARS) as file:
        np.savez_compressed(
            file,  # pyright: ignore[reportArgumentType]
            names=np.array([car.name for car in test]),
            vertex_offsets=np.cumsum([0, *(len(car.vertices) for car in test)]),
            vertices=np.concatenate([car.vertices for car in test]).astype(np.float32),
            normals=np.concatenate([car.normals for car in test]).astype(np.float32),
            truth=np.concatenate([car.pressure for car in test]).astype(np.float32),
            face_offsets=np.cumsum([0, *(len(part) for part in faces)]),
            faces=np.concatenate(faces).astype(np.int32),
        )


def _write_prediction(folder: Path, name: str, points: Points, scale: CarScale) -> None:
    """Mean and standard deviations at the vertices of the test cars, one car behind the other."""
    there = np.asarray(points.weight) > 0
    stds = {"std_predictive": "std_predictive", "std_generalization": "std_generalization", "std": "std_total"}
    arrays = {key: scale.pressure_std * np.asarray(getattr(points, field))[there] for key, field in stds.items()}
    arrays["mean"] = scale.pressure(np.asarray(points.mean)[there])
    (folder / PREDICTIONS).mkdir(exist_ok=True)
    with replacing(folder / PREDICTIONS / f"{name}.npz") as file:
        np.savez_compressed(file, **{k: v.astype(np.float32) for k, v in arrays.items()})  # pyright: ignore[reportArgumentType]


def _summary(study: CarStudy, ready: Prepared, rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Means and 95% intervals over seeds; runs that diverged are counted and left out."""
    methods = {}
    for name, runs in rows.items():
        good = [run["test"] for run in runs if not run["diverged"]]
        test, half = {}, {}
        for score in runs[0]["test"]:
            values = [scores[score] for scores in good]
            if score == "coverage":
                test[score] = np.mean(values, axis=0).tolist() if values else None
            elif (found := interval(values)) is not None:
                test[score], half[score] = found
        counts = {"seeds": len(runs), "diverged": len(runs) - len(good)}
        methods[name] = counts | {"test": test, "half_width": half, "runs": runs}
    counts = {split: len(getattr(ready.cars, split)) for split in ("train", "reg", "test")}
    vertices = [len(car.vertices) for car in ready.cars.test]
    about = {"units": "Cp" if study.data == FAMILY else "the data's own", "vertices": [min(vertices), max(vertices)]}
    about["maps"] = "one" if ready.vertices_correspond and not study.own_maps else "own"
    return finite_or_none(counts | about | {"settings": _settings(study), "methods": methods})


_COLUMNS = {"relative_l2": "rel. L2", "rmse": "RMSE", "nll": "NLL", "ece_mix": "ECE", "spearman": "Spearman"}


def car_table(summary: dict[str, Any]) -> str:
    """The scores of all methods on the test cars, as text."""
    header = ["method", "seeds", "diverged", *_COLUMNS.values(), "std pred", "std gen"]
    lines = [header]
    for name, method in summary["methods"].items():
        cells = [name, str(method["seeds"]), str(method["diverged"])]
        for score in (*_COLUMNS, "std_predictive", "std_generalization"):
            value, half = method["test"].get(score), method["half_width"].get(score)
            cells.append("–" if value is None else f"{value:.3f}" + ("" if half is None else f" ± {half:.3f}"))
        lines.append(cells)
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    counts = f"{summary['train']} train, {summary['reg']} reg and {summary['test']} test cars"
    units = "as Cp" if summary["units"] == "Cp" else "in the data's own units"
    return "\n".join([*text, f"on the test cars; {counts}; pressure {units}; ± over seeds, on the same cars"])
