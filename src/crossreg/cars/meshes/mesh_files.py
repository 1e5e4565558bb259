"""Read fields, and cars as arrays, from NPY, NPZ and HDF5 files. A file that cannot be read raises an InputError.

A header may promise more than memory holds, so it is compared with the file's size, or with a limit, before memory is
allocated. h5py is imported when an HDF5 file is read.
"""

from pathlib import Path

import numpy as np

from crossreg.errors import InputError
from crossreg.files.arrays import most_unpacked, open_npz, read_npy
from crossreg.files.memory import in_words

# An array of this many rows of three numbers takes 120 MB. Cars have some thousands of points.
_MAX_POINTS = 5_000_000
_MAX_BYTES = 2**31
# ShapeNet-Car's pressure also has values at 96 points inside the car that no face uses.
_SHAPENET_VALUES, _SHAPENET_VERTICES, _INSIDE = 3682, 3586, slice(16, 112)


def read_pressure(path: Path) -> np.ndarray:
    """Return the field of an NPY file."""
    check_size(path)
    return read_npy(path, f"{path}: not a readable NPY array")


def match_shapenet(pressure: np.ndarray, num_vertices: int) -> np.ndarray:
    """Cut ShapeNet-Car's 3,682 values to the 3,586 on the surface, p[:16] and p[112:]; leave other fields unchanged."""
    if pressure.shape[:1] == (_SHAPENET_VALUES,) and num_vertices == _SHAPENET_VERTICES:
        return np.delete(pressure, _INSIDE, axis=0)
    return pressure


def read_npz(path: Path, needed: tuple[str, ...] = ("vertices", "pressure")) -> dict[str, np.ndarray]:
    """Return the arrays vertices, pressure, faces and normals of an NPZ file, those that it has."""
    check_size(path)
    with open_npz(path, f"{path}: not a readable NPZ archive") as archive:
        if missing := {*needed} - set(archive.names):
            raise InputError(f"{path}: has no {' and no '.join(sorted(missing))}; it has {', '.join(archive.names)}")
        return {n: archive.read(n) for n in ("vertices", "pressure", "faces", "normals") if n in archive.names}


def read_hdf5(path: Path, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Return datasets of an HDF5 file; dots in a name may be part of it or separate groups."""
    size = check_size(path, limit=None)
    import h5py

    from crossreg.files.hdf5 import open_own

    def read(file: h5py.File, name: str) -> np.ndarray:
        for key in (name, name.replace(".", "/")):
            if isinstance(dataset := file.get(key), h5py.Dataset):
                if dataset.size is None or dataset.size > 3 * _MAX_POINTS:
                    raise InputError(f"{path}: {name} has shape {dataset.shape}; expected at most {_MAX_POINTS} points")
                if dataset.dtype.kind not in "fiu":
                    raise InputError(f"{path}: {name} has type {dataset.dtype}; expected real numbers")
                # Data never written, or compressed, may unpack to more than the file.
                if dataset.nbytes > most_unpacked(size):
                    raise InputError(
                        f"{path}: {name} has {in_words(dataset.nbytes)}; the whole file has {in_words(size)}"
                    )
                return dataset[()]
        raise InputError(f"{path}: has no dataset {name}; it has {', '.join(file) or 'none'}")

    try:
        with open_own(path, str(path)) as file:
            return tuple(read(file, name) for name in names)
    except InputError:
        raise
    except Exception as error:  # h5py has no exception type of its own for corrupted files
        raise InputError(f"{path}: not a readable HDF5 file ({error})") from error


def check_size(path: Path, limit: int | None = _MAX_BYTES) -> int:
    """Return the size of a file in bytes; raise InputError if it is missing, or larger than a car can be."""
    if not path.is_file():
        raise InputError(f"{path}: missing")
    size = path.stat().st_size
    if limit is not None and size > limit:
        raise InputError(f"{path}: has {size} bytes; expected one car, at most {limit >> 30} GB")
    return size
