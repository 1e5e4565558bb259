"""Fields, and cars as arrays, from files: NPY, NPZ, HDF5. Each reader gives plain arrays or one clear line.

A header may promise more than memory holds, so what it says is compared with the file's size, or with a limit, before
anything is made of that size. The packages that read a format are imported when a file of it is met.
"""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from crossreg.errors import InputError
from crossreg.files.arrays import most_unpacked, open_npz, read_npy
from crossreg.files.memory import in_words

# An array of this many rows of three numbers takes 120 MB. Cars have some thousands of points.
_MAX_POINTS = 5_000_000
_MAX_BYTES = 2**31
# ShapeNet-Car's pressure also stands at 96 points inside the car that no face uses.
_SHAPENET_VALUES, _SHAPENET_VERTICES, _INSIDE = 3682, 3586, slice(16, 112)


def read_pressure(path: Path) -> np.ndarray:
    """The field of an NPY file."""
    check_size(path)
    return read_npy(path, f"{path}: not a readable NPY array")


def match_shapenet(pressure: np.ndarray, num_vertices: int) -> np.ndarray:
    """ShapeNet-Car's 3,682 values cut to the 3,586 on the surface, p[:16] and p[112:]; other fields as they are."""
    if pressure.shape[:1] == (_SHAPENET_VALUES,) and num_vertices == _SHAPENET_VERTICES:
        return np.delete(pressure, _INSIDE, axis=0)
    return pressure


def read_npz(path: Path, needed: tuple[str, ...] = ("vertices", "pressure")) -> dict[str, np.ndarray]:
    """`vertices` and `pressure`, and `faces` and `normals` where the NPZ file has them."""
    check_size(path)
    with open_npz(path, f"{path}: not a readable NPZ archive") as archive:
        if missing := {*needed} - set(archive.names):
            raise InputError(f"{path}: has no {' and no '.join(sorted(missing))}; it has {', '.join(archive.names)}")
        return {n: archive.read(n) for n in ("vertices", "pressure", "faces", "normals") if n in archive.names}


def read_hdf5(path: Path, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Datasets of an HDF5 file; the dots in a name may be part of it or stand between groups."""
    size = check_size(path, limit=None)
    h5py = _package("h5py", path)
    from crossreg.files.hdf5 import open_own

    try:
        with open_own(path, str(path)) as file:
            return tuple(_dataset(h5py, file, name, path, size) for name in names)
    except InputError:
        raise
    except Exception as error:  # whatever h5py makes of damage: it has no type of error for it
        raise InputError(f"{path}: not a readable HDF5 file ({error})") from error


def _dataset(h5py: ModuleType, file: Any, name: str, path: Path, size: int) -> np.ndarray:
    for key in (name, name.replace(".", "/")):
        if isinstance(dataset := file.get(key), h5py.Dataset):
            if dataset.size is None or dataset.size > 3 * _MAX_POINTS:
                raise InputError(f"{path}: {name} has shape {dataset.shape}; expected at most {_MAX_POINTS} points")
            if dataset.dtype.kind not in "fiu":
                raise InputError(f"{path}: {name} has type {dataset.dtype}; expected real numbers")
            # What was never written, or is packed, may unfold to more than the file.
            if dataset.nbytes > most_unpacked(size):
                raise InputError(f"{path}: {name} has {in_words(dataset.nbytes)}; the file has {in_words(size)}")
            return dataset[()]
    raise InputError(f"{path}: has no dataset {name}; it has {', '.join(file) or 'none'}")


def check_size(path: Path, limit: int | None = _MAX_BYTES) -> int:
    """How many bytes a file has, if it is there and not larger than one car can be."""
    if not path.is_file():
        raise InputError(f"{path}: missing")
    size = path.stat().st_size
    if limit is not None and size > limit:
        raise InputError(f"{path}: has {size} bytes; expected one car, at most {limit >> 30} GB")
    return size


def _package(name: str, path: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise InputError(
            f"{path}: needs the package {package}, which is not installed (pip install {package})"
        ) from error
