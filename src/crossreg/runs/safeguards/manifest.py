"""`manifest.json`: the SHA-256 of every file of a folder that a later command reads.

Before a file is replaced, the manifest lists both digests, that of the old file and that of the new one; afterwards it
lists the new one alone. So a kill at any moment leaves files that match their manifest, and a file that does not match
is corrupted. A corrupted manifest is detected too: its bytes must be exactly those to which its entries are written,
their own digest included.

Files that grow (histories during training, the rows of a sweep) are listed once they are complete, or have a digest in
each line.
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from crossreg.errors import InputError
from crossreg.files.regular import open_regular, read_regular
from crossreg.files.sealed import has_seal, seal_or_none
from crossreg.files.whole import json_bytes, replacing
from crossreg.runs.file_names import MANIFEST, MODEL, MODELS, TRAINED

_FORMAT = 1
_MODELS = (MODEL, f"{TRAINED}/*.npz", f"{MODELS}/*.npz")  # of runs, of sweeps, of cars


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(folder: Path, names: Iterable[str]) -> dict[str, list[str]]:
    return {name: [file_digest(folder / name)] for name in names}


def _render(files: Mapping[str, Sequence[str]]) -> bytes:
    own = {"format": _FORMAT, "files": {name: list(files[name]) for name in sorted(files)}}
    digest = hashlib.sha256(json.dumps(own).encode()).hexdigest()
    return (json.dumps(own | {"sha256": digest}, indent=1) + "\n").encode()


def _write(folder: Path, files: Mapping[str, Sequence[str]]) -> None:
    with replacing(folder / MANIFEST) as file:
        file.write(_render(files))


def read_manifest(folder: Path) -> dict[str, list[str]] | None:
    """Read the manifest of a folder.

    Returns:
        The digests by file name; a file must have one of its digests. None where a folder has no manifest, because an
        older version wrote it.

    Raises:
        InputError: If the manifest is corrupted, or missing beside a sealed model. Versions that wrote no manifest did
            not seal their models either, so there the manifest has been lost.
    """
    path = folder / MANIFEST
    try:
        raw = read_regular(path)
    except FileNotFoundError:
        if any(has_seal(model) for pattern in _MODELS for model in folder.glob(pattern)):
            raise InputError(f"{path}: is missing, so the files of the folder cannot be verified") from None
        return None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    try:
        files = json.loads(raw)["files"]
        if raw != _render(files):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{path}: is corrupted, so the files of the folder cannot be verified") from None
    return files


def check_files(folder: Path, names: Iterable[str], *, growing: Iterable[str] = ()) -> None:
    """Check files against the manifest of their folder; missing files are left to their readers.

    Args:
        folder: The folder of the manifest. Without a manifest, nothing is checked.
        names: Files that must be listed.
        growing: Files that are listed only once they are complete.

    Raises:
        InputError: If a file is corrupted, or is not listed.
    """
    files = read_manifest(folder)
    if files is None:
        return
    for name in (*names, *(name for name in growing if name in files)):
        path = folder / name
        if not path.exists():
            continue
        if name not in files:
            raise InputError(f"{path}: is not listed in {MANIFEST}; expected only files that crossreg wrote")
        # A writer may have replaced the file and the manifest between the two reads: then the new manifest lists it.
        if not _fits(path, files[name]) and not is_sound(folder, name):
            raise InputError(
                f"{path}: is corrupted (its SHA-256 is not the one in {MANIFEST});"
                " run the same train, sweep or car command to make it again"
            )


def expected_seal(folder: Path, name: str, identity: str) -> str | None:
    """Return the identity that the seal of a file must have, for its reader.

    Older versions sealed nothing: then the file is checked against the manifest, and there is no identity.
    """
    if seal_or_none(folder / name) is not None:
        return identity
    check_files(folder, [name])
    return None


def _fits(path: Path, digests: Sequence[str]) -> bool:
    try:
        return file_digest(path) in digests
    except OSError:
        return False


def is_sound(folder: Path, name: str) -> bool:
    """Return whether a file is there as it was written; in a folder without a manifest, whether it is there."""
    files = read_manifest(folder)
    if files is None:
        return (folder / name).exists()
    return name in files and _fits(folder / name, files[name])


@contextlib.contextmanager
def entered(folder: Path, name: str) -> Iterator[Callable[[Path], None]]:
    """List a file that is written in this block.

    Args:
        folder: The folder of the manifest.
        name: The file, relative to the folder.

    Yields:
        A function for the `announce` of a writer. It is called with the complete temporary file, before that takes the
        place of the old file.
    """
    files: dict[str, list[str]] = {}
    replaces: list[str] = []

    def announce(temporary: Path) -> None:
        digest = file_digest(temporary)
        files.update(read_manifest(folder) or {})
        before = files.get(name, []) if (folder / name).exists() else []
        files[name] = [digest]
        replaces.extend(old for old in before if old != digest)
        _write(folder, files | {name: [*replaces, digest]})

    yield announce
    if replaces:
        _write(folder, files)


@contextlib.contextmanager
def recorded(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Open a file of a folder with a manifest to write it, as `replacing` does, and list it."""
    with entered(folder, name) as announce, replacing(folder / name, announce=announce) as file:
        yield file


def record_json(folder: Path, name: str, value: Any) -> None:
    """Write a JSON file and list it."""
    with recorded(folder, name) as file:
        file.write(json_bytes(value))


def vouch(folder: Path, *names: str) -> None:
    """List files that are known to be good."""
    _write(folder, (read_manifest(folder) or {}) | _digests(folder, names))


def begin_again(folder: Path, *names: str) -> None:
    """Replace a corrupted manifest by one that lists these files alone.

    In one move: without any manifest the folder would be one of an older version, whose files are not checked.
    """
    _write(folder, _digests(folder, names))


def adopt(
    folder: Path, names: Sequence[str], sealed: Callable[[], Iterable[str]] = lambda: (), *, empty: bool = False
) -> None:
    """Make sure that a folder, which an earlier process may have left, has a good manifest.

    Args:
        folder: The folder.
        names: The files that are there. Where there are some and no manifest, an older version wrote them, and all
            are listed.
        sealed: Names the files that can be checked without a manifest. Where the manifest is corrupted, they alone are
            listed, and a warning is printed.
        empty: Whether a folder without any of these files gets a manifest too.
    """
    try:
        if read_manifest(folder) is None and (names or empty):
            vouch(folder, *names)
    except InputError as error:
        print(f"crossreg: {error}; what cannot be checked is made again", file=sys.stderr)
        begin_again(folder, *sealed())


def claim(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write a manifest that lists only files which are about to be written, given their contents."""
    _write(folder, {name: [hashlib.sha256(content).hexdigest()] for name, content in contents.items()})


def drop(folder: Path, *names: str) -> None:
    """Remove files from the manifest: they are about to be made again."""
    files = read_manifest(folder) or {}
    if any(name in files for name in names):
        _write(folder, {name: digests for name, digests in files.items() if name not in names})
