"""Read cars from a folder. Its layout is recognised from its files:

| layout                  | cars                                                          | test part                  |
|-------------------------|---------------------------------------------------------------|----------------------------|
| neuraloperator          | `data/<id>/tri_mesh.ply`, `data/<id>/press.npy`               | `test.txt`                 |
| processed ShapeNet-Car  | `data/mesh_<id>.ply`, `data/press_<id>.npy`, for the ids of   | `test.txt`, or what        |
|                         | `watertight_meshes.txt`                                       | follows the first 500      |
| original ShapeNet-Car   | `training_data/param<0-8>/<hash>/quadpress_smpl.vtk`,         | none                       |
|                         | `press.npy` beside it; empty folders are skipped              |                            |
| DINOZAUR                | `train/*.h5`, `test/*.h5`                                     | `test/`                    |
| NPZ files               | `*.npz` with vertices, pressure; faces and normals if present | `test.txt`, if present     |
| PLY and NPY files       | `<name>.ply`, `<name>.npy`                                    | `test.txt`, if present     |

`train.txt` and `test.txt` hold names separated by commas or white space. A car in neither is not used; if only one of
them exists, the cars it does not list are the other part. Only names are read until a car is requested.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from crossreg.cars.meshes.car_set import CarSet, split_cars
from crossreg.cars.meshes.mesh_files import match_shapenet, read_hdf5, read_npz, read_pressure
from crossreg.cars.meshes.ply_files import read_ply
from crossreg.cars.meshes.surface import Surface, make_surface
from crossreg.cars.meshes.vtk_files import read_vtk
from crossreg.errors import InputError

_PROCESSED_TRAIN = 500
_DINOZAUR_NAMES = ("surface.min_max_normalized_vertices", "surface.pressure")
_GEOMETRIES = (".npz", ".ply", ".vtk")


class Cars(NamedTuple):
    """The cars of a run; `note` is a line to print if there were fewer than requested."""

    train: tuple[Surface, ...]
    reg: tuple[Surface, ...]
    test: tuple[Surface, ...]
    note: str | None


def load_cars(path: Path, *, train_size: int = 30, reg_size: int = 50, test_size: int = 60, seed: int = 0) -> Cars:
    """Draw train, reg and test cars of a folder as [`split_cars`][] does, and read these."""
    cars = find_cars(path)
    split = split_cars(cars, train_size=train_size, reg_size=reg_size, test_size=test_size, seed=seed)
    train, reg, test = (tuple(cars.read(name) for name in part) for part in (split.train, split.reg, split.test))
    return Cars(train, reg, test, split.note)


def find_cars(path: Path) -> CarSet:
    """Return the cars of a folder, or of the only data set at most two folders below it."""
    if not path.is_dir():
        raise InputError(f"{path}: {'not a folder' if path.exists() else 'missing'}; expected a folder of cars")
    if found := _release_in(path):
        return found
    for below in ("*", "*/*"):  # DINOZAUR's is in data/shapenetcar of its repository
        folders = [folder for folder in sorted(path.glob(below)) if folder.is_dir()]
        releases = {folder: found for folder in folders if (found := _release_in(folder))}
        if len(releases) > 1:
            names = ", ".join(folder.relative_to(path).as_posix() for folder in releases)
            raise InputError(f"{path}: holds several sets of cars, {names}; name one of them")
        if releases:
            return next(iter(releases.values()))
    if found := _npz_files(path) or _ply_files(path):
        return found
    raise InputError(
        f"{path}: no cars found; expected data/<id>/tri_mesh.ply and press.npy (neuraloperator),"
        " data/mesh_<id>.ply and press_<id>.npy (processed ShapeNet-Car),"
        " training_data/param<n>/<hash>/quadpress_smpl.vtk and press.npy (original ShapeNet-Car),"
        " train/*.h5 and test/*.h5 (DINOZAUR), *.npz with vertices and pressure, or <name>.ply and <name>.npy"
    )


def read_geometries(path: Path) -> list[Surface]:
    """Read cars to predict for, without pressure, from an NPZ, PLY or VTK file, a folder of these, or a set of cars."""
    if path.is_dir():
        if files := sorted(file for suffix in _GEOMETRIES for file in path.glob(f"*{suffix}")):
            return [_read_geometry(file) for file in files]
        cars = find_cars(path)
        return [cars.read(name) for name in sorted(cars.train + cars.test)]
    return [_read_geometry(path)]


def _read_geometry(path: Path) -> Surface:
    if path.suffix not in _GEOMETRIES:
        raise InputError(f"{path}: expected a car as {', '.join(_GEOMETRIES)}, or a folder of cars")
    if path.suffix == ".npz":
        arrays = read_npz(path, needed=("vertices",))
        return make_surface(path.stem, arrays["vertices"], None, arrays.get("faces"), arrays.get("normals"))
    vertices, faces = read_ply(path) if path.suffix == ".ply" else read_vtk(path)
    if faces is None:
        return make_surface(path.stem, vertices, None)
    used, faces = _used(faces)
    return make_surface(path.stem, vertices[used], None, faces)


def _used(faces: Int[np.ndarray, "face corner"]) -> tuple[Int[np.ndarray, " used"], Int[np.ndarray, "face corner"]]:
    """Return the vertices that faces use, and the faces by places among these; original files hold further points."""
    used, corners = np.unique(faces, return_inverse=True)
    return used, corners.reshape(faces.shape)


def _release_in(folder: Path) -> CarSet | None:
    return _neuraloperator(folder) or _processed(folder) or _original(folder) or _dinozaur(folder)


def _neuraloperator(folder: Path) -> CarSet | None:
    if not any(folder.glob("data/*/tri_mesh.ply")):
        return None
    train, test = _own_split(folder, [car.name for car in (folder / "data").iterdir() if car.is_dir()])
    files = {n: (folder / "data" / n / "tri_mesh.ply", folder / "data" / n / "press.npy") for n in train + test}
    return _of_pairs(f"{folder} (neuraloperator)", train, test, files, _read_pair)


def _processed(folder: Path) -> CarSet | None:
    if not any(folder.glob("data/mesh_*.ply")):
        return None
    listing = folder / "watertight_meshes.txt"
    names = [_padded(name) for name in _names_in(listing)]
    if any((folder / f"{part}.txt").is_file() for part in ("train", "test")):
        train, test = _own_split(folder, names, _padded)
    else:
        train, test = names[:_PROCESSED_TRAIN], names[_PROCESSED_TRAIN:]
    files = {n: (folder / "data" / f"mesh_{n}.ply", folder / "data" / f"press_{n}.npy") for n in names}
    return _of_pairs(f"{folder} (processed ShapeNet-Car)", train, test, files, _read_pair)


def _original(folder: Path) -> CarSet | None:
    if (folder / "training_data").is_dir():
        folder = folder / "training_data"
    cars = {f"{car.parent.name}/{car.name}": car for car in folder.glob("param*/*") if car.is_dir()}
    files = {name: (car / "quadpress_smpl.vtk", car / "press.npy") for name, car in cars.items()}
    files = {name: pair for name, pair in files.items() if any(file.is_file() for file in pair)}
    if not files:
        return None
    return _of_pairs(f"{folder} (original ShapeNet-Car)", list(files), [], files, _read_original)


def _dinozaur(folder: Path) -> CarSet | None:
    files = {f"{part}/{file.stem}": file for part in ("train", "test") for file in folder.glob(f"{part}/*.h5")}
    if not files:
        return None

    def read(name: str) -> Surface:
        vertices, pressure = read_hdf5(files[name], _DINOZAUR_NAMES)
        return make_surface(name, vertices, pressure)

    train, test = (tuple(sorted(n for n in files if n.startswith(part))) for part in ("train/", "test/"))
    return CarSet(f"{folder} (DINOZAUR)", train, test, read)


def _npz_files(folder: Path) -> CarSet | None:
    files = {file.stem: file for file in folder.glob("*.npz")}
    if not files:
        return None
    if any(folder.glob("*.ply")):
        raise InputError(f"{folder}: holds both NPZ and PLY files; expected cars of one kind")
    train, test = _own_split(folder, sorted(files))

    def read(name: str) -> Surface:
        return make_surface(name, **read_npz(files[name]))

    return CarSet(f"{folder} (NPZ files)", tuple(sorted(train)), tuple(sorted(test)), read)


def _ply_files(folder: Path) -> CarSet | None:
    if not any(folder.glob("*.ply")):
        return None
    names = sorted({file.stem for kind in ("ply", "npy") for file in folder.glob(f"*.{kind}")})
    train, test = _own_split(folder, names)
    files = {name: (folder / f"{name}.ply", folder / f"{name}.npy") for name in names}
    return _of_pairs(f"{folder} (PLY and NPY files)", train, test, files, _read_pair)


def _of_pairs(
    origin: str,
    train: list[str],
    test: list[str],
    files: dict[str, tuple[Path, Path]],
    read_pair: Callable[[str, Path, Path], Surface],
) -> CarSet:
    """Return a set of cars with a mesh file and a pressure file each, all of which must exist."""
    for name in train + test:
        for file in files[name]:
            if not file.is_file():
                raise InputError(f"{file}: missing; every car has a mesh and a pressure file")
    return CarSet(origin, tuple(sorted(train)), tuple(sorted(test)), lambda name: read_pair(name, *files[name]))


def _read_pair(name: str, mesh: Path, field: Path) -> Surface:
    vertices, faces = read_ply(mesh)
    return make_surface(name, vertices, match_shapenet(read_pressure(field), len(vertices)), faces)


def _read_original(name: str, mesh: Path, field: Path) -> Surface:
    vertices, faces = read_vtk(mesh)
    pressure = read_pressure(field)
    if pressure.shape[:1] == (len(vertices),):
        used, faces = _used(faces)
        vertices, pressure = vertices[used], pressure[used]
    return make_surface(name, vertices, match_shapenet(pressure, len(vertices)), faces)


def _padded(name: str) -> str:
    """Return a car's number as in file names."""
    return name.zfill(3)


def _own_split(folder: Path, names: list[str], spelled: Callable[[str], str] = str) -> tuple[list[str], list[str]]:
    """Return the names in the folder's `train.txt` and `test.txt`; without either, all are train.

    If there is only one of them, the cars it does not list are the other part.
    """
    listed = {}
    for part in ("train", "test"):
        if (file := folder / f"{part}.txt").is_file():
            listed[part] = [spelled(name) for name in _names_in(file)]
            for name in listed[part]:
                if name not in names:
                    raise InputError(f"{file}: lists car {name}, whose files are missing")
    train, test = listed.get("train"), listed.get("test")
    if test is None:
        test = [] if train is None else [name for name in names if name not in train]
    if train is None:
        train = [name for name in names if name not in test]
    if both := sorted(set(train) & set(test)):
        raise InputError(f"{folder}: train.txt and test.txt both list car {both[0]}; expected it in one of them")
    return train, test


def _names_in(file: Path) -> list[str]:
    """Return the names in a text file, separated by commas or white space."""
    if not file.is_file():
        raise InputError(f"{file}: missing; it names the cars")
    try:
        names = [name for name in re.split(r"[\s,]+", file.read_text()) if name]
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not a text file of names") from error
    if len(set(names)) < len(names):
        raise InputError(f"{file}: lists car {max(names, key=names.count)} more than once")
    return names
