"""The test cars of a study, and what each method predicts on them, as files of its folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crossreg.cars.meshes.surface import Surface
from crossreg.cars.pairs import CarScale
from crossreg.files.sealed import write_sealed
from crossreg.files.whole import make_folder
from crossreg.metrics.evaluation import PointScores
from crossreg.runs.car_folder import PREDICTIONS, TEST_CARS
from crossreg.runs.manifest import (
    entered,
)


def write_test_cars(folder: Path, cars: Sequence[Surface]) -> None:
    """The cars that are scored, one behind the other; a car without faces has none."""
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
    """Mean and standard deviations at the vertices of the test cars, one car behind the other."""
    there = np.asarray(points.weight) > 0
    stds = {"std_predictive": "std_predictive", "std_generalization": "std_generalization", "std": "std"}
    arrays = {key: scale.pressure_std * np.asarray(getattr(points, field))[there] for key, field in stds.items()}
    arrays["mean"] = scale.pressure(np.asarray(points.mean)[there])
    make_folder(folder / PREDICTIONS)
    arrays = {key: values.astype(np.float32) for key, values in arrays.items()}
    with entered(folder, f"{PREDICTIONS}/{name}.npz") as entry:
        write_sealed(folder / PREDICTIONS / f"{name}.npz", arrays, compressed=True, announce=entry)
