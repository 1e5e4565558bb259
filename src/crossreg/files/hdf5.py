"""Opening of HDF5 files from anywhere, only if all of their content lies in them, in proportion to their size.

A dataset may take its bytes from another file on the machine, and a chunk of a few bytes may unpack to gigabytes.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

import h5py

from crossreg.errors import InputError
from crossreg.files.arrays import most_unpacked
from crossreg.files.memory import in_words

# Filters that only rearrange, check or round numbers; all others pack them. Packed twice, a chunk of a few bytes can
# unpack to a million times as many.
_NOT_PACKING = {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_NBIT, h5py.h5z.FILTER_SCALEOFFSET}


def open_own(path: Path, where: str) -> h5py.File:
    """Open an HDF5 file for reading, if all of its content lies in it.

    Args:
        path: the file.
        where: what errors call it.

    Returns:
        The open file.

    Raises:
        InputError: if the file is not readable, has external links, external storage or virtual datasets anywhere, or
            has a dataset that is packed more than once, or a chunk or a coordinate, which are read as a whole, that is
            far larger than the file.
    """
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"{where}: not a readable HDF5 file ({str(error).splitlines()[0]})") from error
    most = most_unpacked(path.stat().st_size)
    try:
        # Visitors return what is wrong: h5py does not pass on exceptions.
        wrong = file.visititems_links(_wrong_link) or file.visititems(partial(_wrong_dataset, most))
    except BaseException as error:
        file.close()
        if not isinstance(error, Exception):
            raise
        # On a damaged file, a visit may raise anything, SystemError included.
        raise InputError(f"{where}: not a readable HDF5 file ({str(error).splitlines()[0]})") from error
    if wrong:
        file.close()
        raise InputError(f"{where}: {wrong}")
    return file


def _wrong_link(name: str, link: Any) -> str | None:
    return None if isinstance(link, h5py.HardLink | h5py.SoftLink) else _elsewhere(name)


def _wrong_dataset(most: int, name: str, item: Any) -> str | None:
    if not isinstance(item, h5py.Dataset) or item.shape is None:
        return None
    if item.is_virtual or item.external:
        return _elsewhere(name)
    made = item.id.get_create_plist()
    if sum(made.get_filter(number)[0] not in _NOT_PACKING for number in range(made.get_nfilters())) > 1:
        return f"{name} is packed more than once; expected at most one filter that packs"
    is_coordinate = len(item.shape) == 1
    size = max(math.prod(item.chunks or (0,)), item.shape[0] if is_coordinate else 0) * item.dtype.itemsize
    if size <= most:
        return None
    part = "itself" if is_coordinate else "a chunk of it"
    return f"{name}: {part} would take {in_words(size)}, and a file of this size may take at most {in_words(most)}"


def _elsewhere(name: str) -> str:
    return f"{name} is in another file; expected it in this one"
