"""Files: writing so that a reader sees all of one or nothing, and reading arrays that users give."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np

from crossreg.errors import InputError


@contextlib.contextmanager
def replacing(
    path: Path, *, durable: bool = True, announce: Callable[[Path], None] | None = None
) -> Iterator[BinaryIO]:
    """Opens a temporary file beside `path` that takes its place when the block ends well.

    `durable`: it outlives a power cut too, which takes a disk some milliseconds. `announce` is told of the whole
    temporary file before it takes its place.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w+b") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if announce is not None:
            announce(temporary)
        os.replace(temporary, path)
        if durable:
            _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # what went wrong before is what matters
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable; a file system that cannot is left as it is."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def read_array(path: Path, what: str) -> np.ndarray:
    """An array from an NPY file."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not an NPY array"
        raise InputError(f"{what} {path}: {reason}") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{what} {path}: is an NPZ archive; expected a single NPY array")
    return array
