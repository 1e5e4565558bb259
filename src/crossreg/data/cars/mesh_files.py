"""Meshes and fields from files: PLY, NPY, NPZ, HDF5. Each reader gives plain arrays or one clear line.

A header may promise more than memory holds, so what it says is compared with the file's size, or with a limit, before
anything is made of that size. The packages that read a format are imported when a file of it is met.
"""

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Int

from crossreg.data.cars.surface import triangles_of
from crossreg.errors import InputError

# An array of this many rows of three numbers takes 120 MB. Cars have some thousands of points.
_MAX_POINTS = 5_000_000
_MAX_BYTES = 2**31
# ShapeNet-Car's pressure also stands at 96 points inside the car that no face uses.
_SHAPENET_VALUES, _SHAPENET_VERTICES, _INSIDE = 3682, 3586, slice(16, 112)


def read_ply(path: Path) -> tuple[Float[np.ndarray, "vertex 3"], Int[np.ndarray, "face 3"] | None]:
    """Vertices and triangles of a PLY file; no faces where it has only points."""
    size = _check_size(path)
    with path.open("rb") as file:
        header = file.read(2**16).partition(b"end_header")[0]
    counts = {name: int(count) for name, count in re.findall(rb"(?m)^element +(\w+) +(\d{1,18})\s", header)}
    num_vertices, num_faces = counts.get(b"vertex", 0), counts.get(b"face", 0)
    _check_promise(path, num_vertices, num_faces, size)
    load_ply = _package("trimesh.exchange.ply", path).load_ply
    try:
        with path.open("rb") as file:
            mesh = load_ply(file, fix_texture=False, skip_materials=True)
        vertices = np.asarray(mesh["vertices"], np.float64)
        faces = np.empty((0, 3), np.int64) if mesh.get("faces") is None else np.asarray(mesh["faces"], np.int64)
    except Exception as error:  # whatever trimesh makes of a file that is no PLY
        raise InputError(f"{path}: not a readable PLY mesh ({error})") from error
    if len(vertices) != num_vertices or len(faces) < num_faces:
        raise InputError(f"{path}: promises {num_vertices} vertices and {num_faces} faces, but ends before them")
    return vertices, triangles_of(faces) if len(faces) else None


def read_pressure(path: Path) -> np.ndarray:
    """The field of an NPY file."""
    _check_size(path)
    try:
        # Mapped and not read: a header that promises more than the file has is refused before memory is taken.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, OverflowError, EOFError, BadZipFile) as error:
        raise InputError(f"{path}: not a readable NPY array ({error})") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path}: is an NPZ archive; expected a single NPY array")
    return np.array(array)


def match_shapenet(pressure: np.ndarray, num_vertices: int) -> np.ndarray:
    """ShapeNet-Car's 3,682 values cut to the 3,586 on the surface, p[:16] and p[112:]; other fields as they are."""
    if pressure.shape[:1] == (_SHAPENET_VALUES,) and num_vertices == _SHAPENET_VERTICES:
        return np.delete(pressure, _INSIDE, axis=0)
    return pressure


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """`vertices` and `pressure`, and `faces` and `normals` where the NPZ file has them."""
    _check_size(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            if missing := {"vertices", "pressure"} - set(file.files):
                raise InputError(f"{path}: has no {' and no '.join(sorted(missing))}; it has {', '.join(file.files)}")
            names = [name for name in ("vertices", "pressure", "faces", "normals") if name in file.files]
            for name in names:
                if file.zip.getinfo(f"{name}.npy").file_size > _MAX_BYTES:
                    raise InputError(f"{path}: {name} is larger than {_MAX_BYTES >> 30} GB")
            return {name: file[name] for name in names}
    except InputError:
        raise
    except (OSError, ValueError, KeyError, AttributeError, OverflowError, MemoryError, EOFError, BadZipFile) as error:
        raise InputError(f"{path}: not a readable NPZ archive ({error})") from error


def read_hdf5(path: Path, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Datasets of an HDF5 file; the dots in a name may be part of it or stand between groups."""
    _check_size(path, limit=None)
    h5py = _package("h5py", path)
    try:
        with h5py.File(path, "r") as file:
            return tuple(_dataset(h5py, file, name, path) for name in names)
    except OSError as error:
        raise InputError(f"{path}: not a readable HDF5 file ({error})") from error


def _dataset(h5py: ModuleType, file: Any, name: str, path: Path) -> np.ndarray:
    for key in (name, name.replace(".", "/")):
        if isinstance(dataset := file.get(key), h5py.Dataset):
            if dataset.size is None or dataset.size > 3 * _MAX_POINTS:
                raise InputError(f"{path}: {name} has shape {dataset.shape}; expected at most {_MAX_POINTS} points")
            return dataset[()]
    raise InputError(f"{path}: has no dataset {name}; it has {', '.join(file) or 'none'}")


def _check_size(path: Path, limit: int | None = _MAX_BYTES) -> int:
    if not path.is_file():
        raise InputError(f"{path}: missing")
    size = path.stat().st_size
    if limit is not None and size > limit:
        raise InputError(f"{path}: has {size} bytes; expected one car, at most {limit >> 30} GB")
    return size


def _check_promise(path: Path, num_vertices: int, num_faces: int, size: int) -> None:
    # Three coordinates take at least 6 bytes, a triangle at least 4.
    if 6 * num_vertices + 4 * num_faces > size:
        raise InputError(f"{path}: promises {num_vertices} vertices and {num_faces} faces, but has {size} bytes")


def _package(name: str, path: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise InputError(
            f"{path}: needs the package {package}, which is not installed (pip install {package})"
        ) from error
