"""The cache of data that take long to make: made once, read everywhere.

A file is named after what was asked for, not after the versions that made it: copied to a machine without the
generator, it is found there and is all that is needed. It holds arrays and a header with their SHA-256, which is
checked at every reading. Trajectories of a chaotic system in float32 depend on the batch size that they are made with,
so a set is made once, at its largest, and sliced.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from crossreg.data.trajectories import Trajectories, digest
from crossreg.errors import InputError
from crossreg.files.arrays import open_npz
from crossreg.files.cache_folder import cache_folder
from crossreg.files.sealed import check_sealed, write_sealed
from crossreg.files.whole import make_folder

Stored = TypeVar("Stored")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], **about: Any) -> None:
    """Write arrays and a header `about` them in one move: a reader sees all of it or nothing."""
    header = json.dumps(about | {"digest": digest(*arrays.values())}, sort_keys=True)
    try:
        make_folder(path.parent, parents=True)
        write_sealed(path, {"header": np.array(header)} | dict(arrays))
    except OSError as error:
        raise InputError(
            f"{path.parent}: cannot store data here ({error.strerror}); set CROSSREG_CACHE to another folder"
        ) from error


def read_arrays(
    path: Path, names: Sequence[str], what: str, *, about: Sequence[str] = ()
) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Read arrays that `write_arrays` wrote, and the entries `about` of their header.

    Raises:
        InputError: if the file is not a readable `what`, or its content does not match its hash.
    """
    check_sealed(path.resolve(), what)  # a cached file may be a link
    with open_npz(path, f"{path}: not a readable {what}") as archive:
        text, arrays = str(archive.read("header")), [archive.read(name) for name in names]
    try:
        header = json.loads(text)
        header = {name: header[name] for name in (*about, "digest")}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a readable {what} ({error})") from error
    if digest(*arrays) != header["digest"]:
        raise InputError(f"{path}: its content does not match its hash")
    return arrays, header


def read_if_there(path: Path, read: Callable[[Path], Stored]) -> Stored | None:
    """Return the content of a file, or None if there is none or, after a line that reports it, it is corrupted."""
    if not path.exists():
        return None
    try:
        return read(path)
    except InputError as error:
        print(f"crossreg: {error}; making it again", file=sys.stderr)
        return None


def load_or_generate(name: str, generate: Callable[[], Trajectories]) -> Trajectories:
    """Return the cached trajectories called `name`, generated and stored first if they are not there."""
    path = cache_folder() / f"{name}.npz"
    if (found := read_if_there(path, read)) is not None:
        return found
    trajectories = generate()
    write(path, trajectories)
    return trajectories


def write(path: Path, trajectories: Trajectories) -> None:
    """Write trajectories and their origin."""
    write_arrays(path, {"train": trajectories.train, "test": trajectories.test}, origin=trajectories.origin)


def read(path: Path) -> Trajectories:
    """Read trajectories that `write` wrote."""
    (train, test), header = read_arrays(path, ("train", "test"), "trajectory cache", about=("origin",))
    return Trajectories(train, test, **header)
