"""The folder of a car run: what its files are called, and how they are written.

config.yaml          every setting; versions.json says what it ran on
summary.json         scores of every method on the test cars, in the data's units (`car_summary`)
test_cars.npz        the test cars, one behind the other
predictions/*.npz    mean and standard deviations on them, of the first seed
history/*.jsonl      losses, scores on reg and σ per site while training, of the first seed
models/*.npz         the trained arrays; the same command on the same folder takes them as they are
manifest.json        the SHA-256 of each of them (`studies/manifest.py`)
snapshots/           what a killed training goes on from (`studies/snapshots.py`); lock keeps a second process out
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from crossreg.data.cars.pairs import CarScale
from crossreg.data.cars.surface import Surface
from crossreg.errors import InputError
from crossreg.metrics.evaluation import Points
from crossreg.report.progress_file import PROGRESS
from crossreg.sealed import write_sealed
from crossreg.studies.car_settings import CarStudy, settings_of
from crossreg.studies.locks import LOCK
from crossreg.studies.machine import check_numerics, describe_machine
from crossreg.studies.manifest import MANIFEST, entered, is_sound, read_manifest, record_json, recorded, vouch
from crossreg.studies.saving import USUAL, Saving
from crossreg.studies.snapshots import SNAPSHOTS

SETTINGS, SUMMARY, VERSIONS, TEST_CARS = "config.yaml", "summary.json", "versions.json", "test_cars.npz"
PREDICTIONS, HISTORY, MODELS = "predictions", "history", "models"
_SUFFIXES = (".json", ".jsonl", ".npz")


def _text(study: CarStudy) -> str:
    return yaml.safe_dump(settings_of(study), sort_keys=False)


def check_folder(folder: Path, study: CarStudy) -> None:
    """Refuses a folder that holds anything but this experiment."""
    try:
        names = {path.name for path in folder.iterdir() if path.suffix != ".tmp"} if folder.exists() else set()
        if not names - {LOCK, MANIFEST}:
            return
        is_this = (folder / SETTINGS).read_bytes() == _text(study).encode()
        if not is_this:
            # Settings that were harmed, or lost: its other files say that it is a car experiment.
            is_this = TEST_CARS in names and _is_harmed(folder, SETTINGS)
    except OSError:
        is_this = False
    if not is_this:
        raise InputError(f"--out {folder}: holds something else than this experiment; choose a new or empty folder")


def _is_harmed(folder: Path, name: str) -> bool:
    """Whether a good manifest says that a file is not as it was written."""
    try:
        return name in (read_manifest(folder) or {}) and not is_sound(folder, name)
    except InputError:
        return False


def open_folder(folder: Path, study: CarStudy, saving: Saving = USUAL) -> None:
    """Writes what is known before training, and looks at what an earlier process has left."""
    try:
        there = [path for path in folder.rglob("*") if path.is_file() and path.suffix in (".yaml", *_SUFFIXES)]
        names = [name for p in there if (name := p.relative_to(folder).as_posix()) not in (MANIFEST, PROGRESS)]
        names = [name for name in names if not name.startswith(SNAPSHOTS)]
        try:
            if read_manifest(folder) is None and names:  # of an older version: taken as it is
                vouch(folder, *names)
        except InputError as error:
            print(f"crossreg: {error}; what cannot be checked is made again", file=sys.stderr)
            (folder / MANIFEST).unlink()
            vouch(folder)
        if is_sound(folder, VERSIONS) and not is_sound(folder, SUMMARY):
            stored = json.loads((folder / VERSIONS).read_text())
            check_numerics(stored, describe_machine(), str(folder), force=saving.force)
        if not is_sound(folder, SETTINGS):
            with recorded(folder, SETTINGS) as file:
                file.write(_text(study).encode())
        if not is_sound(folder, VERSIONS):  # of what has trained here, whoever goes on
            record_json(folder, VERSIONS, describe_machine())
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error


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


def write_prediction(folder: Path, name: str, points: Points, scale: CarScale) -> None:
    """Mean and standard deviations at the vertices of the test cars, one car behind the other."""
    there = np.asarray(points.weight) > 0
    stds = {"std_predictive": "std_predictive", "std_generalization": "std_generalization", "std": "std_total"}
    arrays = {key: scale.pressure_std * np.asarray(getattr(points, field))[there] for key, field in stds.items()}
    arrays["mean"] = scale.pressure(np.asarray(points.mean)[there])
    (folder / PREDICTIONS).mkdir(exist_ok=True)
    arrays = {key: values.astype(np.float32) for key, values in arrays.items()}
    with entered(folder, f"{PREDICTIONS}/{name}.npz") as entry:
        write_sealed(folder / PREDICTIONS / f"{name}.npz", arrays, compressed=True, announce=entry)
