"""`crossreg car`: pressure with error bars on car surfaces, by an optimal transport neural operator.

Surfaces are mapped to a torus grid, a 2-D FNO runs there, and its prediction is read at the vertices (`cars/pairs.py`).
The default `xreg` has predictive noise at the head, and generalization noise inside and at a head of its own, with ρ
trained on the scaled CRPS; `xreg-internal-mm` and `xreg-internal-mixture` have generalization noise inside alone, with
ρ trained on a likelihood. All methods run through the same code, and all seeds of a method train as replicas of one
program. `runs/car_folder.py` describes the folder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossreg.cars.family.make import make_family
from crossreg.cars.meshes.likeness import check_alike, check_apart
from crossreg.cars.meshes.readers import Cars, load_cars
from crossreg.cars.meshes.surface import axes_warning
from crossreg.cars.metrics import car_means, car_scores
from crossreg.cars.pairs import CarPairs, CarScale, make_car_data, vertices_correspond, with_all_to_train_on
from crossreg.cars.stored import write_prediction, write_test_cars
from crossreg.cars.summary import ScoredRun, method_summary
from crossreg.cars.training import Training, candidates_of, is_trained, train_or_load, trainings_of
from crossreg.cars.vertex_mean import fit_vertex_mean
from crossreg.data.dataset import Data
from crossreg.data.keys import evaluation_key
from crossreg.designs.car_study import FAMILY, CarStudy, methods_of, settings_of
from crossreg.errors import InputError, say
from crossreg.files.regular import read_regular
from crossreg.methods.early import Trained
from crossreg.methods.names import ALL_DATA, Method
from crossreg.methods.readout import read_out
from crossreg.metrics.evaluation import point_scores, sigma_per_site
from crossreg.predictors.predictor import Predictor
from crossreg.progress.display import CountDisplay
from crossreg.runs.car_folder import check_folder, finished_summary, open_folder, with_both_methods, write_settings
from crossreg.runs.file_names import FIGURES, HISTORIES, MODELS, PREDICTIONS, SNAPSHOTS, SUMMARY, VERSIONS
from crossreg.runs.final_scores import finite_or_none
from crossreg.runs.safeguards.locks import locked
from crossreg.runs.safeguards.manifest import record_json, recorded
from crossreg.runs.safeguards.saving import USUAL, Saving
from crossreg.runs.safeguards.versions import check_versions

VERTEX_MEAN = "vertex-mean"


# Each training of a study with its models, by seed and member; by the training's key.
_Trainings = dict[str, tuple[Training, list[list[Trained]]]]


class Prepared(NamedTuple):
    """The cars of a study, as surfaces and as pairs on the grid, and whether their vertices correspond."""

    cars: Cars
    data: Data[CarPairs]
    scale: CarScale
    vertices_correspond: bool

    def has_one_map(self, study: CarStudy) -> bool:
        """Return whether all cars share a map to the torus."""
        return self.vertices_correspond and not study.own_maps


def prepare(study: CarStudy, *, progress: bool = True) -> Prepared:
    """Read or make the cars of a study, and map them to the torus."""
    sizes = {"train_size": study.train_size, "reg_size": study.reg_size, "test_size": study.test_size}
    if study.data == FAMILY:
        with CountDisplay("cars made", enabled=progress) as display:
            made = make_family(sum(sizes.values()), points=study.points, seed=study.split_seed, progress=display.update)
        # Test cars come first, so that they do not depend on the other sizes, then reg cars: with another `train_size`
        # alone, the train cars of the smaller one are the first of the larger one's.
        first, second = study.test_size, study.test_size + study.reg_size
        cars = Cars(tuple(made[second:]), tuple(made[first:second]), tuple(made[:first]), None)
    else:
        cars = load_cars(Path(study.data), **sizes, seed=study.split_seed)
    if cars.note:
        say(cars.note)
    every = [*cars.train, *cars.reg, *cars.test]
    if warning := axes_warning(every):
        say(warning)
    if study.data != FAMILY:
        splits = {"train": cars.train, "reg": cars.reg, "test": cars.test}
        for warning in [*check_alike(every), *check_apart(splits)]:
            say(warning)
    with CountDisplay("cars mapped to the torus", enabled=progress) as display:
        data, scale = make_car_data(cars, study.grid, own_maps=study.own_maps, progress=display.update)
    ready = Prepared(cars, data, scale, vertices_correspond(every))
    if progress:
        maps = "one map for all" if ready.has_one_map(study) else "a map for each"
        say(f"{len(every)} cars on {study.grid} x {study.grid} cells, {maps}")
    return ready


def run_car(study: CarStudy, folder: Path, *, progress: bool = True, saving: Saving = USUAL) -> dict[str, Any]:
    """Run the experiment into a folder, or complete a folder that has a part of it.

    A folder with the same settings but other methods keeps its methods and gets the additional ones.

    Args:
        study: the settings.
        folder: a new or empty folder, or one of this experiment.
        progress: report progress on stderr.
        saving: how often trainings are saved, and whether other versions of packages may resume them.

    Returns:
        The contents of `summary.json`.

    Raises:
        InputError: if a setting cannot be trained, or the folder holds something else.
    """
    for method in methods_of(study):
        method.check_settings(study.config, {})
    known: dict[str, Training] = {}
    if (stored := check_folder(folder, study)) is not None:
        known = trainings_of(methods_of(stored), study.config)
        study = with_both_methods(stored, study)
    methods = methods_of(study)
    trainings = trainings_of(methods, study.config)
    for training in trainings.values():
        training.check(study.grid)
    ready = prepare(study, progress=progress)
    for training in trainings.values():
        if training.keeps and len(ready.cars.reg) < 2:
            raise InputError(
                f"methods {training.name}: needs at least 2 reg cars, to calibrate on one that it did not learn from;"
                " there is 1"
            )
    with locked(folder, "car experiment", inside=[MODELS, HISTORIES, PREDICTIONS, SNAPSHOTS, FIGURES]):
        open_folder(folder, stored or study)
        write_test_cars(folder, ready.cars.test)
        summary = finished_summary(folder, study, [method.name for method in methods])
        if summary is not None and all(is_trained(t, ready.data, study.seeds, folder) for t in trainings.values()):
            if progress:
                say(f"{folder} is finished; its scores are read from it")
            return summary
        check_versions(folder / VERSIONS, force=saving.force)
        trained: _Trainings = {}
        for key, training in trainings.items():
            members = known[key].members if key in known else 0
            trained[key] = (
                training,
                train_or_load(
                    training, ready.data, study.seeds, folder, known_members=members, progress=progress, saving=saving
                ),
            )
        summary = _score_all(methods, study, ready, trained, folder, progress=progress)
        if stored is not None and stored != study:
            write_settings(folder, study)
        return summary


def _score_all(
    methods: Sequence[Method],
    study: CarStudy,
    ready: Prepared,
    trained: _Trainings,
    folder: Path,
    *,
    progress: bool,
) -> dict[str, Any]:
    """Score all methods, and write their predictions and the summary, which is returned."""
    runs: dict[str, list[ScoredRun]] = {}
    with CountDisplay("predictors scored", enabled=progress) as display:
        total = study.seeds * len(methods) + 1
        for number, (method, seed) in enumerate((m, s) for m in methods for s in range(study.seeds)):
            runs.setdefault(method.name, []).append(_score(method, seed, study, ready, trained, folder))
            display.update(number + 1, total)
        if ready.vertices_correspond:
            runs |= _score_vertex_means(methods, ready, folder)
        elif progress:
            say("vertices do not correspond from car to car: no vertex mean")
        display.update(total, total)
    summary = finite_or_none(
        _about(study, ready)
        | {"settings": settings_of(study), "methods": {name: method_summary(seeds) for name, seeds in runs.items()}}
    )
    record_json(folder, SUMMARY, summary)
    return summary


def _score(method: Method, seed: int, study: CarStudy, ready: Prepared, trained: _Trainings, folder: Path) -> ScoredRun:
    """Score one seed of a method on the test cars. The predictions of the first seed are stored."""
    candidates = candidates_of(method, study.config)
    members = [trained[candidate.key][1][seed][: method.members] for candidate in candidates]
    data = candidates[0].data(ready.data, seed)
    out = read_out(method, members, data, study.config.train.evaluation_samples)
    if seed == 0 and len(candidates) > 1:
        # The chosen one may have been trained for another method.
        training, _ = trained[candidates[out.chosen].key]
        chosen = folder / HISTORIES / f"{training.name}.jsonl"
        if chosen.exists():
            with recorded(folder, f"{HISTORIES}/{method.name}.jsonl") as file:
                file.write(read_regular(chosen))
    about = {"seed": seed, "diverged": out.failed, "sigma": sigma_per_site(out.models[0])} | out.notes
    return _scored(out.predictor, ready, about, folder, method.name if seed == 0 else None)


def _score_vertex_means(methods: Sequence[Method], ready: Prepared, folder: Path) -> dict[str, list[ScoredRun]]:
    """Score the vertex mean over the train cars, and over train and reg cars if a method trains on both."""
    found = {VERTEX_MEAN: ready.data}
    if any(method.all_data for method in methods):
        found[VERTEX_MEAN + ALL_DATA] = with_all_to_train_on(ready.data)
    return {
        name: [_scored(fit_vertex_mean(data.train), ready, {"diverged": False}, folder, name)]
        for name, data in found.items()
    }


def _scored(
    predictor: Predictor, ready: Prepared, about: dict[str, Any], folder: Path, store_as: str | None
) -> ScoredRun:
    points = point_scores(predictor, ready.data.test, key=evaluation_key(0))
    if store_as is not None:
        write_prediction(folder, store_as, points, ready.scale)
    return ScoredRun(about, car_scores(points, ready.scale), car_means(points, ready.scale))


def _about(study: CarStudy, ready: Prepared) -> dict[str, Any]:
    """Return numbers of cars and vertices, units and maps, for the summary."""
    vertices = [len(car.vertices) for car in ready.cars.test]
    return {
        **{split: len(getattr(ready.cars, split)) for split in ("train", "reg", "test")},
        "units": "Cp" if study.data == FAMILY else "the data's own",
        "vertices": [min(vertices), max(vertices)],
        "maps": "one" if ready.has_one_map(study) else "own",
    }
