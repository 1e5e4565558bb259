"""A small valid file of every kind that is read, and the way by which it enters."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import jax
import numpy as np
import yaml

from crossreg.cars.meshes.normals import vertex_normals
from crossreg.cars.meshes.readers import find_cars
from crossreg.cars.meshes.surface import Surface
from crossreg.config import Config, load_yaml, to_dict
from crossreg.data import cache
from crossreg.data.checks import check_mask, check_trajectories
from crossreg.data.split import Split
from crossreg.data.trajectories import Trajectories, digest
from crossreg.files.whole import read_array
from crossreg.nn.build import model_like
from crossreg.report.cars.run import Prediction, read_car_run
from crossreg.runs.fields.stored_fields import LEVELS, Planes, StoredFields, read_stored_fields, write_stored_fields
from crossreg.runs.prediction import check_input
from crossreg.runs.run_folder import load_run
from crossreg.training.checkpoint import load_arrays, save_arrays

RNG = np.random.default_rng(0)


class Entrance(NamedTuple):
    """`make` writes a valid file and all that stands beside it; `read` reads it, and gives arrays to look at.

    `file` is what is damaged; `zipped` says that its arrays can also be damaged inside of it. `packed` files may take
    more memory than others for their size.
    """

    file: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    zipped: bool = False
    packed: bool = False


def fields(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def saved(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def body(around: int = 9, tube: int = 7):
    """Vertices, quads and a pressure on a ring."""
    u, v = np.meshgrid(*(2 * np.pi * np.arange(n) / n for n in (around, tube)), indexing="ij")
    vertices = np.stack([(2 + np.cos(v)) * np.cos(u), np.sin(v), (2 + np.cos(v)) * np.sin(u)], -1).reshape(-1, 3)
    number = np.arange(around * tube).reshape(around, tube)
    ahead = np.roll(number, -1, axis=0)
    quads = np.stack([number, ahead, np.roll(ahead, -1, axis=1), np.roll(number, -1, axis=1)], -1).reshape(-1, 4)
    return vertices, quads, np.cos(vertices[:, 2])


VERTICES, QUADS, PRESSURE = body()
TRIANGLES = QUADS[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)


# Prediction inputs and masks.


def _input(dtype: str, order: Any, version: tuple[int, int] | None = None) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "x.npy").write_bytes(saved(np.asarray(fields(5, 2, 20), dtype, order=order), version))

    return make


def _read_input(folder: Path) -> np.ndarray:
    return check_input(read_array(folder / "x.npy", "--input"), 2, 1, "x.npy")


def _make_mask(folder: Path) -> None:
    np.save(folder / "mask.npy", RNG.random(20) < 0.7)


def _read_mask(folder: Path) -> np.ndarray:
    return check_mask(read_array(folder / "mask.npy", "mask"), (20,), "mask mask.npy")


# Trajectories.

SPLIT = Split(range(0, 4), range(4, 6), range(0, 3))


def _make_cache(folder: Path) -> None:
    train, test = fields(6, 4, 2, 8), fields(3, 5, 2, 8)
    cache.write(folder / "waves.npz", Trajectories(train, test, {"source": "noise"}, digest(train, test)))


def _read_cache(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    found = check_trajectories(cache.read(folder / "waves.npz"), SPLIT)
    return found.train, found.test


# Run folders.

WEIGHTS = {"one": fields(3, 4), "two": fields(7), "count": np.arange(5)}


def _make_checkpoint(folder: Path) -> None:
    np.savez(folder / "model.npz", **{f"['{name}']": array for name, array in WEIGHTS.items()})  # pyright: ignore[reportArgumentType]


def _read_checkpoint(folder: Path) -> list[np.ndarray]:
    like = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in WEIGHTS.items()}
    loaded = load_arrays(folder / "model.npz", like)
    return [np.asarray(array) for array in loaded.values() if array.dtype.kind != "f"]  # a weight may be any number


def _make_run(folder: Path) -> None:
    config = Config().replace(mask_per="step", width=3, num_blocks=1, num_modes=2)
    (folder / "config.yaml").write_text(yaml.safe_dump(to_dict(config)))
    (folder / "fields.json").write_text(json.dumps({"channels": 2, "space": [20], "digest": "ab12"}))
    like = model_like(config.model, 2, (2, 20))
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf, like)
    save_arrays(folder / "model.npz", zeros)
    # As versions before seals and manifests wrote it: their digests would find any damage before a reader does.
    with np.load(folder / "model.npz") as sealed:
        arrays = dict(sealed)
    np.savez(folder / "model.npz", **arrays)  # pyright: ignore[reportArgumentType]


def _read_run(folder: Path) -> Any:
    return load_run(folder)


def _make_test_fields(folder: Path) -> None:
    shape = (2, 3, 1, 8)
    truth = fields(*shape)
    truth[:, 1, :, 3] = np.nan  # not measured
    names = ("truth", "error", "std_mu", "std_predictive", "std_generalization")
    flat = {name: fields(1, 2, 1, 4, 3) for name in names}
    stored = StoredFields(
        trajectories=np.arange(2), steps=np.arange(1, 4), observed=RNG.random((2, 3, 8)) < 0.7,
        planes=Planes(np.zeros(1, int), 2, np.arange(1, 3), RNG.random((1, 2, 4, 3)) < 0.7, **flat),
        names=("u",), gap_mean=np.where(np.isnan(truth), np.float32(0.5), np.float32(np.nan)),
        truth=truth, error=fields(*shape), std_mu=np.abs(fields(*shape)),
        std_predictive=np.abs(fields(*shape)), std_generalization=np.abs(fields(*shape)),
        offsets=np.sort(fields(len(LEVELS), *shape), axis=0), pit=np.arange(20.0), unaware=(), aware=(), scanned=2,
        space=(8, 6),
    )  # fmt: skip
    write_stored_fields(folder / "test_fields.npz", stored)


def _read_test_fields(folder: Path) -> np.ndarray:
    return read_stored_fields(folder / "test_fields.npz").observed


def _make_car_run(folder: Path) -> None:
    car = Surface("a", VERTICES, VERTICES, PRESSURE, TRIANGLES)
    np.savez_compressed(
        folder / "test_cars.npz",
        names=np.array([car.name, "b"]),
        vertex_offsets=np.array([0, 63, 126]),
        vertices=np.tile(VERTICES, (2, 1)),
        normals=np.tile(VERTICES, (2, 1)),
        truth=np.tile(PRESSURE, 2),
        face_offsets=np.array([0, len(TRIANGLES), len(TRIANGLES)]),
        faces=TRIANGLES,
    )
    (folder / "predictions").mkdir()
    np.savez(folder / "predictions" / "xreg.npz", **dict.fromkeys(Prediction._fields, np.tile(PRESSURE, 2)))  # pyright: ignore[reportArgumentType]
    (folder / "summary.json").write_text(json.dumps({"methods": {"xreg": {"test": {"nll": 1.0}, "half_width": {}}}}))


def _read_car_run(folder: Path) -> np.ndarray:
    run = read_car_run(folder)
    for car in run.cars:
        if car.faces is not None:
            assert car.vertices[car.faces].shape == (*car.faces.shape, 3)
    run.score("xreg", "nll")
    return np.concatenate([car.pressure for car in run.cars])


def _make_config(folder: Path) -> None:
    (folder / "c.yaml").write_text(yaml.safe_dump(to_dict(Config()), sort_keys=False))


def _read_config(folder: Path) -> Config:
    return load_yaml(folder / "c.yaml")


# Cars.


def _ply(text: bool) -> Callable[[Path], None]:
    header = f"ply\nformat {'ascii' if text else 'binary_little_endian'} 1.0\nelement vertex {len(VERTICES)}\n"
    header += "".join(f"property double {axis}\n" for axis in "xyz")
    header += f"element face {len(TRIANGLES)}\nproperty list uchar uint vertex_indices\nend_header\n"
    if text:
        lines = [" ".join(map(repr, row)) for row in VERTICES.tolist()]
        lines += [" ".join(map(str, (3, *row))) for row in TRIANGLES.tolist()]
        content = header.encode() + ("\n".join(lines) + "\n").encode()
    else:
        packed = np.array([(3, row) for row in TRIANGLES], dtype=[("count", "u1"), ("corners", "<u4", (3,))])
        content = header.encode() + VERTICES.astype("<f8").tobytes() + packed.tobytes()

    def make(folder: Path) -> None:
        (folder / "a.ply").write_bytes(content)
        np.save(folder / "a.npy", PRESSURE)

    return make


def _vtk(text: bool) -> Callable[[Path], None]:
    counts = np.full((len(QUADS), 1), 4)
    parts = ((VERTICES, ">f8"), (np.hstack([counts, QUADS]), ">i4"), (np.full((len(QUADS), 1), 9), ">i4"))
    points, cells, kinds = (
        ("\n".join(" ".join(map(repr, row)) for row in values.tolist()) + "\n").encode()
        if text
        else values.astype(kind).tobytes() + b"\n"
        for values, kind in parts
    )
    content = f"# vtk DataFile Version 2.0\ncar\n{'ASCII' if text else 'BINARY'}\nDATASET UNSTRUCTURED_GRID\n".encode()
    content += f"POINTS {len(VERTICES)} double\n".encode() + points
    content += f"CELLS {len(QUADS)} {5 * len(QUADS)}\n".encode() + cells
    content += f"CELL_TYPES {len(QUADS)}\n".encode() + kinds

    def make(folder: Path) -> None:
        (folder / "param1" / "a").mkdir(parents=True)
        (folder / "param1" / "a" / "quadpress_smpl.vtk").write_bytes(content)
        np.save(folder / "param1" / "a" / "press.npy", PRESSURE)

    return make


def _hdf5(folder: Path) -> None:
    (folder / "train").mkdir()
    with h5py.File(folder / "train" / "a.h5", "w") as file:
        file["surface.min_max_normalized_vertices"] = VERTICES
        file.create_dataset("surface/pressure", data=PRESSURE[:, None], compression="gzip", chunks=(16, 1))


def _car_npz(folder: Path) -> None:
    np.savez_compressed(
        folder / "a.npz", vertices=VERTICES, pressure=PRESSURE, faces=QUADS, normals=vertex_normals(VERTICES, TRIANGLES)
    )


def _read_car(name: str) -> Callable[[Path], list[np.ndarray]]:
    def read(folder: Path) -> list[np.ndarray]:
        car = find_cars(folder).read(name)
        return [car.vertices, car.normals, car.pressure]

    return read


def _make_listing(folder: Path) -> None:
    for name in "abc":
        np.savez(folder / f"{name}.npz", vertices=VERTICES, pressure=PRESSURE)
    (folder / "test.txt").write_text("b\n")


def _read_listing(folder: Path) -> None:
    cars = find_cars(folder)
    assert not set(cars.train) & set(cars.test)


ENTRANCES = {
    "input": Entrance("x.npy", _input("<f4", "C"), _read_input),
    "input-fortran": Entrance("x.npy", _input(">f8", "F"), _read_input),
    "input-version-3": Entrance("x.npy", _input("<f2", "C", (3, 0)), _read_input),
    "mask": Entrance("mask.npy", _make_mask, _read_mask),
    "trajectories": Entrance("waves.npz", _make_cache, _read_cache, zipped=True, packed=True),
    "checkpoint": Entrance("model.npz", _make_checkpoint, _read_checkpoint, zipped=True, packed=True),
    "run": Entrance("fields.json", _make_run, _read_run),
    "test-fields": Entrance("test_fields.npz", _make_test_fields, _read_test_fields, zipped=True, packed=True),
    "car-run": Entrance("test_cars.npz", _make_car_run, _read_car_run, zipped=True, packed=True),
    "car-prediction": Entrance("predictions/xreg.npz", _make_car_run, _read_car_run, zipped=True, packed=True),
    "car-summary": Entrance("summary.json", _make_car_run, _read_car_run),
    "config": Entrance("c.yaml", _make_config, _read_config),
    "ply-text": Entrance("a.ply", _ply(True), _read_car("a")),
    "ply": Entrance("a.ply", _ply(False), _read_car("a")),
    "vtk-text": Entrance("param1/a/quadpress_smpl.vtk", _vtk(True), _read_car("param1/a")),
    "vtk": Entrance("param1/a/quadpress_smpl.vtk", _vtk(False), _read_car("param1/a")),
    "hdf5": Entrance("train/a.h5", _hdf5, _read_car("train/a"), packed=True),
    "car": Entrance("a.npz", _car_npz, _read_car("a"), zipped=True, packed=True),
    "listing": Entrance("test.txt", _make_listing, _read_listing),
}
