"""Files and folders that are written whole or not at all, and reading of arrays and JSON."""

import contextlib
import errno
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from crossreg.errors import InputError
from crossreg.files.arrays import read_npy
from crossreg.files.regular import read_regular

# No user names a file like this, so that files left by a killed process can be removed.
_TEMPORARY = re.compile(r".+\.\d+-[0-9a-f]{8}\.crossreg\.tmp")


@contextlib.contextmanager
def replacing(
    path: Path, *, durable: bool = True, announce: Callable[[Path], None] | None = None
) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that replaces it when the block ends without an error.

    Args:
        path: the file.
        durable: whether the file must survive a power cut, which takes a disk some milliseconds.
        announce: called with the temporary file before it replaces `path`.
    """
    # Machines that share a disk may have processes with the same number: in a container it is often 1.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.crossreg.tmp")
    opened = temporary.open("x+b")  # fails, and removes nothing, if there is a file of that name
    try:
        with opened as file:
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
        with contextlib.suppress(OSError):  # an earlier error matters more
            temporary.unlink(missing_ok=True)


def is_temporary(path: Path) -> bool:
    """Return whether a file is a temporary one of `replacing`."""
    return _TEMPORARY.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def check_no_link(folder: Path) -> None:
    """Raise OSError if a folder is a link: files in it would lie elsewhere."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "is a symbolic link, which is not written through", str(folder))


def make_folder(folder: Path, *, parents: bool = False) -> None:
    """Make a folder if there is none, durably, so that the files in it can survive a power cut.

    With `parents`, it is a folder that the user has named, which may be a link. Without, it lies inside the folder of a
    run, a sweep or a car experiment, which may come from anybody, and may not be a link.
    """
    if not parents:
        check_no_link(folder)
    if folder.is_dir():
        return
    if parents:
        make_folder(folder.parent, parents=True)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


@contextlib.contextmanager
def writing_to(where: str) -> Iterator[None]:
    """A block that writes files: an `OSError` in it becomes one line that starts with `where`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{where}: cannot write here ({error.strerror})") from error


@contextlib.contextmanager
def made_whole(folder: Path, argument: str = "out") -> Iterator[Path]:
    """Make a folder with all of its files, or none.

    Args:
        folder: The folder, which does not exist yet, or is empty.
        argument: The name of the argument that gave it, for errors.

    Yields:
        A folder beside it to write to, which replaces it if the block ends without an error, or is removed.
    """
    with writing_to(f"{argument} {folder}"):
        make_folder(folder.parent, parents=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            yield made
            if folder.exists():
                folder.rmdir()
            made.rename(folder)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, on file systems that can."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def check_replaceable(path: Path, mark: bytes, argument: str) -> None:
    """Raise InputError if `path` exists and its first kilobyte lacks the `mark` of files that crossreg wrote."""
    try:
        if mark in read_regular(path, 1024):
            return
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{argument} {path}: cannot write here ({error.strerror})") from error
    raise InputError(
        f"{argument} {path}: exists already, and was not written by crossreg; name another file, or remove it"
    )


def check_not_file(folder: Path) -> None:
    """Raise InputError if something other than a folder stands where a folder is to be made."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out {folder}: exists and is not a folder")


def check_is_folder(path: Path) -> None:
    """Raise InputError if `path` is a file or missing."""
    if path.is_file():
        raise InputError(f"{path}: is a file; name the folder")
    if not path.is_dir():
        raise InputError(f"{path}: no such folder")


def read_array(path: Path, what: str, *, follow_links: bool = True) -> np.ndarray:
    """Read an array from an NPY file, which may not be a link if it is in a run folder."""
    return read_npy(path, f"{what} {path}", follow_links=follow_links)


def read_stored(path: Path) -> bytes:
    """Read a file of a run folder; raise InputError if it is not readable, or is a link or a pipe."""
    try:
        return read_regular(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def read_json(path: Path, expected: str) -> Any:
    """Read a JSON file; errors say what was `expected`."""
    try:
        return json.loads(read_regular(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected {expected}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: not readable ({error}); expected {expected}") from error


def json_bytes(value: Any) -> bytes:
    """Return a value as the text of a JSON file; NaN and infinities are refused, since JSON has none."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in one move."""
    with replacing(path) as file:
        file.write(json_bytes(value))
