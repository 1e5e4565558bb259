"""Reads files below one folder, and no others.

No symbolic link is followed, neither at the end of a path nor on the way: a folder is opened part by part, each inside
the one before. Files may be written, cut or removed at any time; one that cannot be read counts as absent.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from crossreg.progress.history import parsed

_LARGEST = 32 * 2**20  # bytes of a file that is read whole
Parts = tuple[str, ...]


class Stamp(NamedTuple):
    """The state of a file: equal stamps mean equal contents."""

    inode: int
    size: int
    mtime_ns: int


class Inside:
    """The files below a root, by the parts of their path."""

    def __init__(self, root: Path):
        self.root = root.resolve()

    @contextlib.contextmanager
    def _folder(self, parts: Parts) -> Iterator[int]:
        """Open a folder below the root, as a descriptor."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(self.root, flags)
        try:
            for part in parts:
                if part in ("", ".", "..") or "/" in part:
                    raise FileNotFoundError(part)
                folder, above = os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder), folder
                os.close(above)
            yield folder
        finally:
            os.close(folder)

    def files(self, parts: Parts) -> tuple[dict[str, Stamp], list[str]]:
        """Return the files of a folder with their stamps, and the names of its folders; empty where there is none."""
        files, folders = {}, []
        with contextlib.suppress(OSError), self._folder(parts) as folder, os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # gone since
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        found = entry.stat(follow_symlinks=False)
                        files[entry.name] = Stamp(found.st_ino, found.st_size, found.st_mtime_ns)
        return files, sorted(folders)

    def read(self, parts: Parts, start: int = 0, most: int = _LARGEST) -> bytes | None:
        """Return at most `most` bytes of a file from `start` on; None where it is no regular file that can be read."""
        with contextlib.suppress(OSError, ValueError), self._folder(parts[:-1]) as folder:
            # A pipe would wait for its writer.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(parts[-1], flags, dir_fd=folder), "rb") as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    file.seek(start)
                    return file.read(most)
        return None

    def json(self, parts: Parts) -> dict[str, Any]:
        """Return the object of a JSON file, empty where it holds none."""
        value = parsed(self.read(parts) or b"")
        return value if isinstance(value, dict) else {}
