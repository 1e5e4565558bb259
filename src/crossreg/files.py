"""Files: writing so that a reader sees all of one or nothing, and reading arrays that users give."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile

import numpy as np

from crossreg.errors import InputError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file beside `path` that takes its place when the block ends well."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_is_folder(path: Path) -> None:
    """Refuses what is no folder, and says which of the two it is."""
    if path.is_file():
        raise InputError(f"{path}: is a file; name the folder")
    if not path.is_dir():
        raise InputError(f"{path}: no such folder")


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
