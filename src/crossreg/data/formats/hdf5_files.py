"""HDF5 files: those of The Well and of PDEBench by their layout, others by the names of their dimensions, or `axes`.

Nothing is read before it is needed: an h5py dataset reads what it is indexed with.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crossreg.data.formats.axes import MASK, SPACE, stored_as
from crossreg.data.formats.numpy_files import choose_fields, coordinates_in, make_segment, times_of
from crossreg.data.formats.pdebench import is_pdebench, open_pdebench
from crossreg.data.formats.source import Opened, Wanted
from crossreg.data.formats.the_well import is_the_well, open_the_well
from crossreg.files.hdf5 import open_own

# Attributes in which writers name the dimensions of a dataset that has no dimension scales.
_NAMES = ("_ARRAY_DIMENSIONS", "dims", "dimensions", "axes")


def open_hdf5(path: Path, wanted: Wanted) -> Opened:
    """Open the trajectories of one file. Where the user gives the axes, they hold, whoever made the file."""
    file = open_own(path, f"data {path}")
    if wanted.axes is None and is_the_well(file):
        return open_the_well(path, file, wanted.fields)
    if wanted.axes is None and is_pdebench(file):
        return open_pdebench(path, file, wanted)
    arrays: dict[str, Any] = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            arrays[name] = item

    file.visititems(add)
    mask = arrays.pop(MASK, None)
    chosen, notes = choose_fields(path, arrays, wanted, dimension_names)
    about: dict[str, Any] = {"names": dimension_names, "coordinates": coordinates_in(arrays), "stored_as": stored_as}
    segment = make_segment(path, chosen, wanted, mask, **about)
    notes += times_of(arrays, segment.variables[0], dimension_names(next(iter(chosen.values()))))
    notes += tuple(
        f"{name}: its numbers are packed, and unpacked by {one.scale:g} · n + {one.offset:g}, as the file says"
        for name, one in zip(chosen, segment.variables, strict=True)
        if (one.scale, one.offset) != (1, 0)
    )
    if wanted.axes is None:
        read = zip(chosen.items(), segment.variables, strict=True)
        named = [f"{name}: axes {variable.axes}" for (name, dataset), variable in read if dimension_names(dataset)]
        notes += tuple(f"{axes}, by the names in the file" for axes in named)
    return Opened("HDF5", (segment,), notes)


def dimension_names(dataset: Any) -> Sequence[str] | None:
    """Return the names of a dataset's axes, from labels, dimension scales or an attribute; None if one is missing.

    An attribute may hold a name for each axis, or all of them in one text, as in "time lat lon" or "btxy".
    """
    names = [axis.label or (str(axis[0].name).rsplit("/", 1)[-1] if len(axis) else "") for axis in dataset.dims]
    if names and all(names):
        return names
    for attribute in _NAMES:
        value = dataset.attrs.get(attribute, ())
        texts = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in np.ravel(value).tolist()]
        if not all(isinstance(text, str) for text in texts):
            continue
        if len(texts) == 1 and len(dataset.shape) > 1:
            texts = list(texts[0]) if set(texts[0]) <= set("btc" + SPACE) else re.findall(r"[\w-]+", texts[0])
        if texts and len(texts) == len(dataset.shape) and all(texts):
            return texts
    return None
