"""Files: writing so that a reader sees all of one or nothing, and reading what users give."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from crossreg.array_files import read_npy
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
    return read_npy(path, f"{what} {path}")


def read_json(path: Path, expected: str) -> Any:
    """The value of a JSON file; `expected` says in errors what should be there."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected {expected}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: not readable ({error}); expected {expected}") from error
