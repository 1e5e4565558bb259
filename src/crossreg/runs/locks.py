"""One process for one folder."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from crossreg.errors import InputError
from crossreg.files.regular import open_descriptor
from crossreg.files.whole import check_no_link, is_temporary, make_folder

LOCK = "lock"


def open_lock(path: Path) -> TextIO:
    """Open a lock file, and make it where there is none.

    What it holds is neither written over nor cut off: it may be somebody else's file, and is no link to one.
    """
    return os.fdopen(open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC), "r+")


@contextlib.contextmanager
def locked(folder: Path, who: str, *, inside: Iterable[str] = ()) -> Iterator[None]:
    """Makes a folder and keeps others out of it; the system lets go of it when the process ends, however it does.

    `inside` are the folders in it that the process writes to. In the others nothing is removed, as they may be those of
    other processes, and one of `inside` that is a link to somewhere else is refused.
    """
    places = [folder, *(folder / name for name in inside)]
    try:
        make_folder(folder, parents=True)
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error
    try:
        lock = open_lock(folder / LOCK)
    except OSError as error:
        raise InputError(f"--out {folder}: cannot be locked ({LOCK}: {error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"--out {folder}: another {who} is at work there") from error
        except OSError as error:
            raise InputError(f"--out {folder}: its file system gives no lock ({error.strerror})") from error
        for place in places[1:]:
            try:
                check_no_link(place)
            except OSError as error:
                raise InputError(f"--out {folder}: cannot write here ({place.name}: {error.strerror})") from error
        for rest in filter(is_temporary, (path for place in places for path in place.glob("*.tmp"))):
            rest.unlink(missing_ok=True)  # of a process that was killed: nobody else has the lock
        yield
