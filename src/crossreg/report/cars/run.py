r"""Read the folder of `crossreg car`, for its figures and its page.

Files hold test cars and predictions concatenated over cars; here they are split. A prediction's variance has two parts,
$U_{tot} = U_{pred} + U_{gen}$; files hold the three square roots.

The roofline is the row of upward-facing vertices in the symmetry plane, from nose to tail.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from crossreg.cars.meshes.surface import Surface
from crossreg.errors import InputError, say
from crossreg.files.arrays import read_npz
from crossreg.files.regular import read_regular
from crossreg.metrics.intervals import Interval
from crossreg.progress.history import read_history
from crossreg.runs.file_names import HISTORIES, PREDICTIONS, SUMMARY, TEST_CARS
from crossreg.runs.safeguards.manifest import check_files

_CARS = ("names", "vertex_offsets", "vertices", "normals", "truth", "face_offsets", "faces")
# The largest distance of a roofline's vertices from the symmetry plane, relative to the car's width. On ShapeNet cars,
# whose next row of vertices is at 3%, this is 1 cm.
_NEAR = 0.006
_LOOKS_UP = 0.2
_FEWEST = 12
TOP_LEVEL = 0.995


class Prediction(NamedTuple):
    """A method's prediction for one car, in the data's units."""

    mean: Float[np.ndarray, " vertex"]
    std_predictive: Float[np.ndarray, " vertex"]
    std_generalization: Float[np.ndarray, " vertex"]
    std: Float[np.ndarray, " vertex"]


@dataclass(frozen=True)
class CarRun:
    """The contents of a folder. Predictions and histories are those of the first seed, by method.

    A method whose prediction is not finite has no prediction here, but may have scores.
    """

    summary: dict[str, Any]
    cars: tuple[Surface, ...]
    predictions: dict[str, tuple[Prediction, ...]]
    histories: dict[str, list[dict[str, Any]]]

    @property
    def methods(self) -> list[str]:
        """Return all methods that were scored."""
        return list(self.summary["methods"])

    @property
    def units(self) -> str:
        """Return the unit of the pressure."""
        return "Cp" if self.summary.get("units") == "Cp" else "the data's units"

    @property
    def pressure_label(self) -> str:
        return "pressure coefficient Cp" if self.units == "Cp" else "pressure in the data's units"

    def score(self, method: str, name: str) -> Interval | None:
        """Return a test score and half its 95% interval, NaN for one seed; None if there is no such score."""
        entry = self.summary["methods"][method]
        value, half = entry["test"].get(name), entry["half_width"].get(name)
        return None if value is None else Interval(float(value), math.nan if half is None else float(half))

    def over_cars(self, method: str, name: str) -> tuple[float, float] | None:
        """Return the ends of a test score's 95% interval over test cars; None without one, as for a single car."""
        limits = self.summary["methods"][method].get("over_cars", {}).get(name)
        return None if limits is None or None in limits else (float(limits[0]), float(limits[1]))

    def coverage(self, method: str) -> Float[np.ndarray, " level"] | None:
        """Return the share of vertices inside the central interval of each level 0.1 … 0.9."""
        value = self.summary["methods"][method]["test"].get("coverage")
        return None if value is None else np.array(value, float)

    def relative_l2(self, method: str) -> Float[np.ndarray, " car"]:
        r"""Return $\|\hat p - p\|_2 / \|p\|_2$ of every car."""
        pairs = zip(self.predictions[method], self.cars, strict=True)
        return np.array([np.linalg.norm(p.mean - c.pressure) / np.linalg.norm(c.pressure) for p, c in pairs])

    @property
    def ranked_by(self) -> str | None:
        """Return the method whose errors order the cars: xreg or, without it, the first; None without predictions."""
        return "xreg" if "xreg" in self.predictions else next(iter(self.predictions), None)

    def ranking(self) -> Int[np.ndarray, " car"]:
        """Return the cars from the smallest to the largest relative L2 error of `ranked_by`."""
        if self.ranked_by is None:
            return np.arange(len(self.cars))
        return np.argsort(self.relative_l2(self.ranked_by), kind="stable")

    def typical_car(self) -> int:
        """Return the car in the middle of the ranking, neither a good nor a bad example."""
        return int(self.ranking()[(len(self.cars) - 1) // 2])


def read_car_run(folder: Path) -> CarRun:
    """Read a folder of `crossreg car --out`; raise InputError if a file is missing or corrupted."""
    check_files(folder, [SUMMARY, TEST_CARS])
    summary = _read_summary(folder / SUMMARY)
    stored = _read_arrays(folder / TEST_CARS, _CARS)
    offsets, face_offsets = stored["vertex_offsets"], stored["face_offsets"]
    for name, ends, parts in (
        ("vertex_offsets", offsets, ("vertices", "normals", "truth")),
        ("face_offsets", face_offsets, ("faces",)),
    ):
        counts = ends.ndim == 1 and len(ends) > 1 and ends.dtype.kind in "iu" and ends[0] == 0 and _rise(ends)
        if not counts or stored["names"].shape != (len(ends) - 1,) or any(_rows(stored[p]) != ends[-1] for p in parts):
            raise InputError(f"{folder / 'test_cars.npz'}: {name} do not fit {', '.join(('names', *parts))}")
    _check_cars(folder / TEST_CARS, stored)
    faces = [part if len(part) else None for part in np.split(stored["faces"], face_offsets[1:-1])]
    cut = [np.split(stored[name], offsets[1:-1]) for name in ("vertices", "normals", "truth")]
    cars = tuple(Surface(str(n), *rest) for n, *rest in zip(stored["names"], *cut, faces, strict=True))
    predictions, histories = {}, {}
    for method in summary["methods"]:
        path = folder / PREDICTIONS / f"{method}.npz"
        check_files(folder, [f"predictions/{method}.npz"], growing=[f"history/{method}.jsonl"])
        arrays = _read_arrays(path, Prediction._fields)
        for name, values in arrays.items():
            if values.shape != (offsets[-1],):
                raise InputError(f"{path}: {name} has shape {values.shape}; the test cars have {offsets[-1]} vertices")
        if all(np.isfinite(values).all() for values in arrays.values()):
            parts = [np.split(arrays[name], offsets[1:-1]) for name in Prediction._fields]
            predictions[method] = tuple(Prediction(*car) for car in zip(*parts, strict=True))
        else:
            say(f"{path}: not finite; {method} is not drawn")
        histories[method] = read_history(folder / HISTORIES / f"{method}.jsonl")
    return CarRun(summary, cars, predictions, histories)


def roofline(car: Surface) -> Int[np.ndarray, " point"]:
    """Return the upward-facing vertices near the symmetry plane, sorted along z.

    If a mesh has no row of vertices there, the strip is widened until it has a dozen.
    """
    x = car.vertices[:, 0]
    width, away = np.ptp(x), np.abs(x - (x.min() + x.max()) / 2)
    looks_up = car.normals[:, 1] > _LOOKS_UP
    near = _NEAR * width
    while np.sum(looks_up & (away < near)) < _FEWEST and near < width:
        near *= 2
    chosen = np.flatnonzero(looks_up & (away < near))
    return chosen[np.argsort(car.vertices[chosen, 2], kind="stable")]


def top_of_scale(*values: Float[np.ndarray, "..."]) -> float:
    """Return the upper end of the colour scale of errors and standard deviations: all but the largest 0.5%."""
    return float(np.quantile(np.concatenate([np.ravel(v) for v in values]), TOP_LEVEL))


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(read_regular(path))
        entries = summary["methods"].values()
        if all(isinstance(entry["test"], dict) and isinstance(entry["half_width"], dict) for entry in entries):
            return summary
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not the summary of a car run"
        raise InputError(f"{path}: {reason}; expected a folder written by `crossreg car --out`") from error
    raise InputError(f"{path}: a method has no test scores; expected a folder written by `crossreg car --out`")


def _read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    try:
        return read_npz(path, names, follow_links=False)
    except InputError as error:
        raise InputError(f"{error}; expected an NPZ file with {', '.join(names)}") from error


def _rise(ends: np.ndarray) -> bool:
    return bool((ends[:-1] <= ends[1:]).all())


def _rows(array: np.ndarray) -> int:
    return len(array) if array.ndim else -1


def _check_cars(path: Path, stored: dict[str, np.ndarray]) -> None:
    """Raise InputError unless arrays have the axes of cars, and faces refer to vertices of their car."""
    for name, kinds, axes in (
        ("vertices", "f", (3,)),
        ("normals", "f", (3,)),
        ("truth", "f", ()),
        ("faces", "iu", (3,)),
    ):
        array = stored[name]
        if array.dtype.kind not in kinds or array.shape[1:] != axes:
            raise InputError(f"{path}: {name} is {array.dtype}{array.shape}; expected what `crossreg car` writes")
    limits = np.repeat(np.diff(stored["vertex_offsets"]), np.diff(stored["face_offsets"]))
    faces = stored["faces"]
    if (faces < 0).any() or (faces >= limits[:, None]).any():
        raise InputError(f"{path}: a face has a vertex that its car does not have")
