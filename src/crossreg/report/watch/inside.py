"""Reading files below one folder, and nothing else.

No symbolic link is followed, neither the last part of a path nor one on the way: a folder is opened part by part, each
inside the one before. Files may be written, cut or removed at any time; what cannot be read is not there.
"""

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_LARGEST = 32 * 2**20  # bytes of a file that is read whole
Parts = tuple[str, ...]


class Stamp(NamedTuple):
    """A file as it was: equal stamps, equal contents."""

    inode: int
    size: int
    mtime_ns: int


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


class Inside:
    """The files below a root, by the parts of their path."""

    def __init__(self, root: Path):
        self.root = root.resolve()

    @contextlib.contextmanager
    def _folder(self, parts: Parts) -> Iterator[int]:
        """A folder below the root, as a descriptor."""
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
        """The files of a folder with their stamps, and the names of the folders in it; empty where there is none."""
        files, folders = {}, []
        with contextlib.suppress(OSError), self._folder(parts) as folder, os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # gone since
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        files[entry.name] = _stamp(entry.stat(follow_symlinks=False))
        return files, sorted(folders)

    def read(self, parts: Parts, start: int = 0, most: int = _LARGEST) -> bytes | None:
        """A file's bytes from `start` on, at most so many; None where it is no plain file that can be read."""
        with contextlib.suppress(OSError, ValueError), self._folder(parts[:-1]) as folder:
            # A pipe would wait for its writer.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(parts[-1], flags, dir_fd=folder), "rb") as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    file.seek(start)
                    return file.read(most)
        return None

    def json(self, parts: Parts) -> dict[str, Any]:
        """A JSON object; an empty one where the file holds none."""
        value = parsed(self.read(parts) or b"")
        return value if isinstance(value, dict) else {}


def parsed(text: bytes) -> Any:
    """The value that JSON text stands for, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
