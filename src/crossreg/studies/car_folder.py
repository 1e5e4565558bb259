"""The folder of a car run: what its files are called, and how they are written.

config.yaml          every setting; versions.json says what it ran on
summary.json         scores of every method on the test cars, in the data's units (`car_summary`)
test_cars.npz        the test cars, one behind the other
predictions/*.npz    mean and standard deviations on them, of the first seed
history/*.jsonl      losses, scores on reg and σ per site while training, of the first seed
models/*.npz         the trained arrays; the same command on the same folder takes them as they are
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from crossreg.data.cars.pairs import CarScale
from crossreg.data.cars.surface import Surface
from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.metrics.evaluation import Points
from crossreg.studies.car_settings import CarStudy, settings_of
from crossreg.studies.run_folder import describe_machine, write_json

SETTINGS, SUMMARY, VERSIONS, TEST_CARS = "config.yaml", "summary.json", "versions.json", "test_cars.npz"
PREDICTIONS, HISTORY, MODELS = "predictions", "history", "models"


def _text(study: CarStudy) -> str:
    return yaml.safe_dump(settings_of(study), sort_keys=False)


def check_folder(folder: Path, study: CarStudy) -> None:
    """Refuses a folder that holds anything but this experiment."""
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return
        is_this = (folder / SETTINGS).read_bytes() == _text(study).encode()
    except OSError:
        is_this = False
    if not is_this:
        raise InputError(f"--out {folder}: holds something else than this experiment; choose a new or empty folder")


def open_folder(folder: Path, study: CarStudy) -> None:
    """Makes the folder of a run and writes what is known before training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SETTINGS).write_bytes(_text(study).encode())
        if not (folder / VERSIONS).exists():  # of what has trained here, whoever goes on
            write_json(folder / VERSIONS, describe_machine())
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error


def write_test_cars(folder: Path, cars: Sequence[Surface]) -> None:
    """The cars that are scored, one behind the other; a car without faces has none."""
    faces = [np.zeros((0, 3), np.int64) if car.faces is None else car.faces for car in cars]
    with replacing(folder / TEST_CARS) as file:
        np.savez_compressed(
            file,  # pyright: ignore[reportArgumentType]
            names=np.array([car.name for car in cars]),
            vertex_offsets=np.cumsum([0, *(len(car.vertices) for car in cars)]),
            vertices=np.concatenate([car.vertices for car in cars]).astype(np.float32),
            normals=np.concatenate([car.normals for car in cars]).astype(np.float32),
            truth=np.concatenate([car.pressure for car in cars]).astype(np.float32),
            face_offsets=np.cumsum([0, *(len(part) for part in faces)]),
            faces=np.concatenate(faces).astype(np.int32),
        )


def write_prediction(folder: Path, name: str, points: Points, scale: CarScale) -> None:
    """Mean and standard deviations at the vertices of the test cars, one car behind the other."""
    there = np.asarray(points.weight) > 0
    stds = {"std_predictive": "std_predictive", "std_generalization": "std_generalization", "std": "std_total"}
    arrays = {key: scale.pressure_std * np.asarray(getattr(points, field))[there] for key, field in stds.items()}
    arrays["mean"] = scale.pressure(np.asarray(points.mean)[there])
    (folder / PREDICTIONS).mkdir(exist_ok=True)
    with replacing(folder / PREDICTIONS / f"{name}.npz") as file:
        np.savez_compressed(file, **{k: v.astype(np.float32) for k, v in arrays.items()})  # pyright: ignore[reportArgumentType]
