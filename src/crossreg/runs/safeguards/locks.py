"""Locks: one process at a time in the folder of a run, a sweep or a car experiment."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from crossreg.errors import InputError
from crossreg.files.regular import open_descriptor
from crossreg.files.whole import check_no_link, is_temporary, make_folder, writing_to
from crossreg.runs.file_names import LOCK


def open_lock(path: Path) -> TextIO:
    """Open a lock file, and create it where there is none.

    A file that is there is neither overwritten nor truncated, since it may be somebody else's. A link is refused with
    an `OSError`.
    """
    return os.fdopen(open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC), "r+")


@contextlib.contextmanager
def locked(folder: Path, who: str, *, inside: Iterable[str] = ()) -> Iterator[None]:
    """Make a folder and keep other processes out of it during this block.

    The system releases the lock when the process ends, however it ends. Temporary files that a killed process has left
    are removed.

    Args:
        folder: The folder, which is made where there is none.
        who: The name of this process in errors, as "training" or "sweep".
        inside: The folders in it that this process writes to. Nothing is removed from the others, which may belong to
            other processes.

    Raises:
        InputError: If another process has the lock, if the folder cannot be written to, or if one of `inside` is a
            link.
    """
    where, places = f"out {folder}", [folder / name for name in inside]
    with writing_to(where):
        make_folder(folder, parents=True)
    try:
        lock = open_lock(folder / LOCK)
    except OSError as error:
        raise InputError(f"{where}: cannot be locked ({LOCK}: {error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{where}: in use by another {who}") from error
        except OSError as error:
            raise InputError(f"{where}: its file system cannot lock files ({error.strerror})") from error
        for place in places:
            try:
                check_no_link(place)
            except OSError as error:
                raise InputError(f"{where}: cannot write here ({place.name}: {error.strerror})") from error
        for rest in (path for place in [folder, *places] for path in place.glob("*.tmp")):
            if is_temporary(rest):  # left by a process that was killed, since nobody else has the lock
                rest.unlink(missing_ok=True)
        yield
