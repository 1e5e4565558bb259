"""HDF5 files: those of The Well and of PDEBench by their layout, any other by --field and --axes.

Nothing is read before it is needed: an h5py dataset reads what it is indexed with.
"""

from pathlib import Path
from typing import Any

import h5py

from crossreg.data.files.axes import MASK, missing_value
from crossreg.data.files.numpy_files import choose_fields, make_segment
from crossreg.data.files.pdebench import is_pdebench, open_pdebench
from crossreg.data.files.source import Opened
from crossreg.data.files.the_well import is_the_well, open_the_well
from crossreg.errors import InputError


def open_hdf5(path: Path, fields: tuple[str, ...], axes: str | None) -> Opened:
    """The trajectories of one file. With --axes, a file is taken for what they say, whoever made it."""
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"--data {path}: not an HDF5 file, or harmed ({str(error).splitlines()[0]})") from error
    if axes is None and is_the_well(file):
        return open_the_well(path, file, fields)
    if axes is None and is_pdebench(file):
        return open_pdebench(path, file, fields)
    arrays: dict[str, Any] = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            arrays[name] = item

    file.visititems(add)
    mask = arrays.pop(MASK, None)
    chosen, notes = choose_fields(path, arrays, fields, axes)
    return Opened("HDF5", (make_segment(path, chosen, axes, mask, missing_value),), notes)
