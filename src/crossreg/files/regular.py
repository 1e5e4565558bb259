"""Opening of regular files only, as every file of a run folder is opened for reading.

A run folder may come from anybody. A link in it could disclose another file of this machine, and a pipe would wait
forever for a writer.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_NO_LINK = os.O_NOFOLLOW


def open_regular(path: Path, *, follow_links: bool = False) -> BufferedReader:
    """Open a regular file for reading.

    Args:
        path: The file.
        follow_links: Whether `path` itself may be a symbolic link, as it may for a file that the user has named.

    Returns:
        The open file, in binary mode.

    Raises:
        OSError: if it is anything but a regular file.
    """
    descriptor = open_descriptor(path, _FLAGS, follow_links=follow_links)
    return os.fdopen(descriptor, "rb")


def open_descriptor(path: Path, flags: int, *, follow_links: bool = False) -> int:
    """Open a regular file with the flags of `os.open`, and return its descriptor."""
    try:
        descriptor = os.open(path, flags if follow_links else flags | _NO_LINK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a file", str(path))
    return descriptor


def read_regular(path: Path, most: int = -1) -> bytes:
    """Return the content of a regular file, or its first `most` bytes; a link is not followed."""
    with open_regular(path) as file:
        return file.read(most)
