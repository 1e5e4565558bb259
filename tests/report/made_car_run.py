"""A car run that was made up: a folder as `crossreg car` writes it, with errors that are known."""

import json
from pathlib import Path

import numpy as np

from crossreg.cars.meshes.surface import Surface
from crossreg.metrics.calibration import LEVELS
from crossreg.report.cars.run import Prediction

STEPS = (100, 200, 300, 400)
NAMES = ("a", "b", "</script><b>", "d", "e")
# Relative errors of a method on each car; xreg's middle car is the fourth.
ERRORS = {"xreg": (0.3, 0.1, 0.05, 0.2, 0.25), "dropout": (0.1, 0.2, 0.3, 0.4, 0.5), "vertex-mean": (0.5,) * 5}


def predicted(car: Surface, relative: float) -> Prediction:
    """A mean that is off by a part of the truth, and standard deviations of 3 : 4 : 5 that grow along the car."""
    std = 0.01 * (3 + car.vertices[:, 2])
    return Prediction((1 + relative) * car.pressure, 3 * std, 4 * std, 5 * std)


def write_folder(folder: Path, cars: list[Surface]) -> Path:
    faces = [np.zeros((0, 3), int) if car.faces is None else car.faces for car in cars]
    np.savez(
        folder / "test_cars.npz",
        names=np.array([car.name for car in cars]),
        vertex_offsets=np.cumsum([0, *(len(car.vertices) for car in cars)]),
        vertices=np.concatenate([car.vertices for car in cars]),
        normals=np.concatenate([car.normals for car in cars]),
        truth=np.concatenate([car.pressure for car in cars]),
        face_offsets=np.cumsum([0, *map(len, faces)]),
        faces=np.concatenate(faces),
    )
    (folder / "predictions").mkdir()
    (folder / "history").mkdir()
    for method, errors in ERRORS.items():
        parts = [predicted(car, error) for car, error in zip(cars, errors, strict=True)]
        arrays = {n: np.concatenate([getattr(part, n) for part in parts]) for n in Prediction._fields}
        np.savez(folder / "predictions" / f"{method}.npz", allow_pickle=False, **arrays)
    for method in ("xreg", "dropout"):
        lines = [{"step": t, "reg_nll": -1.0, "sigma": sigma_at(t) if method == "xreg" else {}} for t in STEPS]
        (folder / "history" / f"{method}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_summary(folder, SCORES)
    return folder


def sigma_at(step):
    return {"lift": [0.01 * step, 0.03 * step, 0.05 * step], "block": [0.2 * step] * 7}


COVERAGE = [level**2 for level in LEVELS]
# The three forms that a score may have.
SCORES = {
    "xreg": {
        "seeds": 5,
        "diverged": 1,
        "test": {"nll": -1.25, "ece_mix": 0.0125, "relative_l2": 0.1, "spearman": 0.5, "coverage": COVERAGE},
        "half_width": {"nll": 0.5, "ece_mix": 0.0025, "relative_l2": 0.01},
        "over_cars": {"nll": [-1.75, -0.5], "relative_l2": [0.07, 0.14], "ece_mix": None},
    },
    "dropout": {
        "test": {"nll": 2.0, "ece_mix": 0.1, "relative_l2": 0.3, "coverage": COVERAGE[::-1]},
        "half_width": {"nll": 0.5, "ece_mix": None, "relative_l2": 0.1},
    },
    "vertex-mean": {
        "test": {"nll": None, "ece_mix": 0.3, "relative_l2": 0.5, "coverage": None},
        "half_width": {},
    },
}


def write_summary(folder, methods, units="Cp"):
    about = {"train": 30, "reg": 50, "test": 5, "units": units, "seeds": [0, 1], "settings": {"model": {"width": 17}}}
    (folder / "summary.json").write_text(json.dumps(about | {"methods": methods}))
