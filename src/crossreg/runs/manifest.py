"""`manifest.json`: the SHA-256 of every file of a folder that a later command reads.

A file is announced before it takes its place: the manifest then has both digests, the old one's and the new one's, and
afterwards the new one's alone. So a kill at any moment leaves files that match their manifest, and a file that does
not match is corrupted. The manifest detects its own corruption: it must be, byte for byte, what its entries are written
as, with their digest.

Files that grow (histories in training, the rows of a sweep) get their entry at their end, or guard every line.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from crossreg.errors import InputError
from crossreg.files.regular import open_regular, read_regular
from crossreg.files.sealed import has_seal
from crossreg.files.whole import replacing

MANIFEST = "manifest.json"
_FORMAT = 1
_MODELS = ("model.npz", "trained/*.npz", "models/*.npz")  # of runs, of sweeps, of cars


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _render(files: Mapping[str, Sequence[str]]) -> bytes:
    own = {"format": _FORMAT, "files": {name: list(files[name]) for name in sorted(files)}}
    digest = hashlib.sha256(json.dumps(own).encode()).hexdigest()
    return (json.dumps(own | {"sha256": digest}, indent=1) + "\n").encode()


def read_manifest(folder: Path) -> dict[str, list[str]] | None:
    """The digests of each file, of which it must have one; None where a folder has no manifest (older versions).

    Versions that write no manifest do not seal their models either: with a sealed model, the manifest has been lost.
    """
    path = folder / MANIFEST
    try:
        raw = read_regular(path)
    except FileNotFoundError:
        if any(has_seal(model) for pattern in _MODELS for model in folder.glob(pattern)):
            raise InputError(f"{path}: is missing; what the folder holds cannot be vouched for") from None
        return None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    try:
        files = json.loads(raw)["files"]
        if raw != _render(files):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{path}: is corrupted; what the folder holds cannot be vouched for") from None
    return files


def check_files(folder: Path, names: Iterable[str], *, growing: Iterable[str] = ()) -> None:
    """Refuses files that are not as they were written; those that are missing are for their readers to miss.

    Those that are `growing` need an entry only once they have ended.
    """
    files = read_manifest(folder)
    if files is None:
        return
    for name in (*names, *(name for name in growing if name in files)):
        path = folder / name
        if not path.exists():
            continue
        if name not in files:
            raise InputError(f"{path}: is not in {MANIFEST}; expected what crossreg wrote")
        # A writer may have replaced both while they were read: then the manifest of now has it.
        if not _fits(path, files[name]) and not is_sound(folder, name):
            raise InputError(
                f"{path}: is corrupted (its SHA-256 is not the one in {MANIFEST});"
                " the same train, sweep or car command makes it again"
            )


def _fits(path: Path, digests: Sequence[str]) -> bool:
    try:
        return file_digest(path) in digests
    except OSError:
        return False


def is_sound(folder: Path, name: str) -> bool:
    """Whether a file is there as it was written. In a folder without a manifest, what is there counts."""
    files = read_manifest(folder)
    if files is None:
        return (folder / name).exists()
    return name in files and _fits(folder / name, files[name])


def _write(folder: Path, files: Mapping[str, Sequence[str]]) -> None:
    with replacing(folder / MANIFEST) as file:
        file.write(_render(files))


class Entry:
    """Puts the entry of one file: called with the whole temporary file, then closed when it has taken its place."""

    def __init__(self, folder: Path, name: str):
        self._folder, self._name = folder, name
        self._files: dict[str, list[str]] = {}
        self._replaces: list[str] = []

    def __call__(self, temporary: Path) -> None:
        digest = file_digest(temporary)
        self._files = read_manifest(self._folder) or {}
        before = self._files.get(self._name, []) if (self._folder / self._name).exists() else []
        self._files[self._name] = [digest]
        self._replaces = [old for old in before if old != digest]
        _write(self._folder, self._files | {self._name: [*self._replaces, digest]})

    def close(self) -> None:
        """The file has taken its place."""
        if self._replaces:
            _write(self._folder, self._files)


@contextlib.contextmanager
def entered(folder: Path, name: str) -> Iterator[Entry]:
    """What `announce` of a writer needs for a file of this name."""
    entry = Entry(folder, name)
    yield entry
    entry.close()


@contextlib.contextmanager
def recorded(folder: Path, name: str) -> Iterator[BinaryIO]:
    """`replacing` for a file of a folder with a manifest."""
    with entered(folder, name) as entry, replacing(folder / name, announce=entry) as file:
        yield file


def record_json(folder: Path, name: str, value: Any) -> None:
    """Writes JSON and its entry."""
    with recorded(folder, name) as file:
        file.write((json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def vouch(folder: Path, *names: str) -> None:
    """Enters files that are known to be good."""
    _write(folder, (read_manifest(folder) or {}) | {name: [file_digest(folder / name)] for name in names})


def claim(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Puts a manifest in place that lists only files which are about to be written, by what they will hold."""
    _write(folder, {name: [hashlib.sha256(content).hexdigest()] for name, content in contents.items()})


def begin_again(folder: Path, *names: str) -> None:
    """Puts a manifest of these files alone in place of one that was corrupted.

    In one move: of a folder without any, as older versions left them, every file would be taken as it is.
    """
    _write(folder, {name: [file_digest(folder / name)] for name in names})


def drop(folder: Path, *names: str) -> None:
    """Takes entries out: these files are about to be made again."""
    files = read_manifest(folder) or {}
    if any(name in files for name in names):
        _write(folder, {name: digests for name, digests in files.items() if name not in names})
