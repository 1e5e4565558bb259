"""`crossreg predict` on the folder of a car experiment: pressure with error bars for new cars.

The stored models of a method's first seed are read out as when they were scored, which needs the experiment's cars:
they are read again, or made again if they are the built-in ones. A car whose vertices correspond to theirs shares their
map to the torus; any other gets a map of its own.
"""

from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import numpy as np

from crossreg.cars.grid.transport import Transport, transports
from crossreg.cars.meshes.likeness import check_like
from crossreg.cars.meshes.readers import read_geometries
from crossreg.cars.meshes.surface import Surface
from crossreg.cars.pairs import check_grid, mean_map, pairs_of, vertices_correspond
from crossreg.cars.study import VERTEX_MEAN, Prepared, prepare
from crossreg.cars.training import candidates_of, load_trained, trainings_of
from crossreg.cars.vertex_mean import fit_vertex_mean
from crossreg.data.keys import evaluation_key
from crossreg.data.pairs import Batch
from crossreg.designs.car_study import CarStudy, methods_of
from crossreg.errors import InputError, say
from crossreg.methods.names import parse_method
from crossreg.methods.readout import read_out
from crossreg.predictors.batches import batches_of
from crossreg.predictors.predictor import Predictor
from crossreg.runs.car_folder import stored_study
from crossreg.runs.file_names import CONFIG
from crossreg.runs.prediction import check_levels, summarize, write_arrays
from crossreg.runs.safeguards.manifest import check_files

DEFAULT = "xreg"


def predict_car_file(
    folder: Path, source: Path, target: Path, *, method: str, levels: tuple[float, ...], progress: bool = False
) -> dict[str, np.ndarray]:
    """Predict the pressure on cars from files, in the units of the experiment, and write it to an NPZ file.

    The arrays are concatenated over cars, with car k at `vertex_offsets[k] : vertex_offsets[k + 1]`. The noise of a car
    depends only on its place among the cars.

    Args:
        folder: the folder of a car experiment.
        source: a file or folder of cars.
        target: the NPZ file to write.
        method: one of the experiment's methods, or vertex-mean.
        levels: levels of the quantiles.
        progress: report progress on stderr.

    Returns:
        The arrays of the file; `quantiles` has a leading axis of levels.

    Raises:
        InputError: if a file is missing or corrupted, a car is unlike those of the experiment, or a prediction is not
            finite.
    """
    if target.exists():
        raise InputError(f"output {target}: exists already; name another file, or remove it")
    if not source.exists():
        raise InputError(f"input {source}: no such file or folder")
    check_levels(levels)
    check_files(folder, [CONFIG])
    study = stored_study(folder)
    cars = read_geometries(source)
    check_grid(cars, study.grid)
    ready = prepare(study, progress=progress)
    for warning in check_like(cars, ready.cars.train):
        say(warning)
    predictor = _predictor(method, study, ready, folder)
    pairs = pairs_of(cars, _maps(cars, ready, study, must_share=method == VERTEX_MEAN), ready.scale)
    parts = [
        {name: np.asarray(array)[:size] for name, array in _predict(predictor, batch, keys, levels).items()}
        for batch, keys, size in batches_of(pairs, key=evaluation_key(0))
    ]
    sizes = [len(car.vertices) for car in cars]

    def joined(name: str) -> np.ndarray:
        """Return an array (1 or level, vertex of any car), without the padding."""
        rows = np.concatenate([part[name] for part in parts]).reshape(len(cars), -1, max(sizes))
        return np.concatenate([row[:, :size] for row, size in zip(rows, sizes, strict=True)], axis=-1)

    scale = ready.scale
    arrays = {"mean": scale.pressure(joined("mean")[0])}
    arrays |= {n: scale.pressure_std * joined(n)[0] for n in ("std", "std_predictive", "std_generalization")}
    arrays |= {"quantiles": scale.pressure(joined("quantiles")), "levels": np.asarray(levels)}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise InputError(f"input {source}: the predicted {name} is not finite; {method} may have diverged")
    arrays |= {"names": np.array([car.name for car in cars]), "vertex_offsets": np.cumsum([0, *sizes])}
    arrays["vertices"] = np.concatenate([car.vertices for car in cars]).astype(np.float32)
    write_arrays(target, arrays)
    return arrays


@eqx.filter_jit
def _predict(predictor, batch: Batch, keys, levels: tuple[float, ...]):
    return summarize(predictor(batch, keys), levels)


def _maps(cars: Sequence[Surface], ready: Prepared, study: CarStudy, *, must_share: bool) -> list[Transport]:
    """Return the map of each car."""
    shared = [ready.has_one_map(study) and vertices_correspond([ready.cars.train[0], car]) for car in cars]
    others = [car for car, shares in zip(cars, shared, strict=True) if not shares]
    if others and (must_share or ready.has_one_map(study)):
        said = f"car {others[0].name}: its vertices do not correspond to those of the experiment's cars"
        if must_share:
            raise InputError(f"{said}, which {VERTEX_MEAN} needs")
        say(f"{said}; it gets a map of its own, unlike those it was trained with")
    own = iter(transports([car.vertices for car in others], study.grid))
    common = mean_map(ready.cars.train, study.grid) if any(shared) else None
    return [common if shares and common is not None else next(own) for shares in shared]


def _predictor(name: str, study: CarStudy, ready: Prepared, folder: Path) -> Predictor:
    """Return the predictor of a method's first seed."""
    if name == VERTEX_MEAN and ready.vertices_correspond:
        return fit_vertex_mean(ready.data.train)
    methods = {method.name: method for method in methods_of(study)}
    method = None if name == VERTEX_MEAN else methods.get(parse_method(name, "method", for_cars=True).name)
    if method is None:
        known = ", ".join([*methods, *([VERTEX_MEAN] if ready.vertices_correspond else [])])
        raise InputError(f"method {name}: is not in {folder}; there are {known}")
    trainings = trainings_of([*methods.values()], study.config)
    candidates = candidates_of(method, study.config)
    needed = [trainings[candidate.key] for candidate in candidates]
    members = [load_trained(training, ready.data, study.seeds, folder)[0][: method.members] for training in needed]
    data = candidates[0].data(ready.data, 0)
    return read_out(method, members, data, study.config.train.evaluation_samples).predictor
