"""Write the test cars of a study, and the predictions of each method on them, into its folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crossreg.cars.meshes.surface import Surface
from crossreg.cars.pairs import CarScale
from crossreg.files.sealed import write_sealed
from crossreg.files.whole import make_folder
from crossreg.metrics.evaluation import PointScores
from crossreg.runs.file_names import PREDICTIONS, TEST_CARS
from crossreg.runs.safeguards.manifest import entered


def write_test_cars(folder: Path, cars: Sequence[Surface]) -> None:
    """Write the test cars, concatenated; a car without faces has an empty range of them."""
    faces = [np.zeros((0, 3), np.int64) if car.faces is None else car.faces for car in cars]
    arrays = {
        "names": np.array([car.name for car in cars]),
        "vertex_offsets": np.cumsum([0, *(len(car.vertices) for car in cars)]),
        "vertices": np.concatenate([car.vertices for car in cars]).astype(np.float32),
        "normals": np.concatenate([car.normals for car in cars]).astype(np.float32),
        "truth": np.concatenate([car.pressure for car in cars]).astype(np.float32),
        "face_offsets": np.cumsum([0, *(len(part) for part in faces)]),
        "faces": np.concatenate(faces).astype(np.int32),
    }
    with entered(folder, TEST_CARS) as entry:
        write_sealed(folder / TEST_CARS, arrays, compressed=True, announce=entry)


def write_prediction(folder: Path, name: str, points: PointScores, scale: CarScale) -> None:
    """Write mean and standard deviations at the vertices of the test cars, concatenated."""
    there = np.asarray(points.weight) > 0
    stds = ("std_predictive", "std_generalization", "std")
    arrays = {name: scale.pressure_std * np.asarray(getattr(points, name))[there] for name in stds}
    arrays["mean"] = scale.pressure(np.asarray(points.mean)[there])
    make_folder(folder / PREDICTIONS)
    arrays = {key: values.astype(np.float32) for key, values in arrays.items()}
    with entered(folder, f"{PREDICTIONS}/{name}.npz") as entry:
        write_sealed(folder / PREDICTIONS / f"{name}.npz", arrays, compressed=True, announce=entry)
