"""Arrays of numbers in NPZ files with a seal, by which a single corrupted bit is detected. No pickle.

Any NPZ reader opens them: the seal is the comment that a ZIP archive may end with,

    crossreg seal 1 IDENTITY sha256 DIGEST

DIGEST covers every byte before it; IDENTITY names the settings or data that the file results from (or is `-`). Before
an array is allocated, its name, type, shape and size are checked against the expected ones and the file's size.
"""

import functools
import hashlib
import math
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from crossreg.errors import InputError
from crossreg.files.arrays import open_npz
from crossreg.files.regular import open_regular
from crossreg.files.whole import replacing

_SEAL = re.compile(rb"crossreg seal 1 ([\w.-]{1,64}) sha256 ([0-9a-f]{64})")
_LONGEST = 256
_PIECE = 2**20
_END_RECORD = struct.Struct("<4s4H2LH")  # of a ZIP archive; its last field is the length of the comment


class Kind(NamedTuple):
    """The type and shape that an array must have; None in the shape stands for any length."""

    shape: tuple[int | None, ...]
    dtype: np.dtype

    def fits(self, shape: tuple[int, ...], dtype: np.dtype) -> bool:
        lengths = zip(self.shape, shape, strict=False)
        return dtype == self.dtype and len(shape) == len(self.shape) and all(a in (None, b) for a, b in lengths)


BYTES = Kind((None,), np.dtype(np.uint8))


def write_sealed(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    *,
    identity: str = "-",
    compressed: bool = False,
    announce: Callable[[Path], None] | None = None,
) -> None:
    """Write arrays in one move, with a seal.

    Args:
        path: the file, which is replaced.
        arrays: the arrays by their names.
        identity: what the arrays result from.
        compressed: whether to compress them.
        announce: as in `replacing`.
    """
    with replacing(path, announce=announce) as file:
        save: Any = np.savez_compressed if compressed else np.savez
        save(file, allow_pickle=False, **arrays)
        head = f"crossreg seal 1 {identity} sha256 ".encode()
        file.seek(-2, 2)
        file.write(struct.pack("<H", len(head) + 64) + head)
        file.seek(0)
        file_digest = _digest(file, None)
        file.seek(0, 2)
        file.write(file_digest.encode())


def _digest(file: BinaryIO, length: int | None) -> str:
    """Return the SHA-256 of the first bytes of a file, or of all that are left, read piece by piece."""
    digest, left = hashlib.sha256(), math.inf if length is None else length
    while left > 0 and (piece := file.read(int(min(_PIECE, left)))):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest()


def check_seal(path: Path) -> str | None:
    """Return the identity in the seal of a file, or None for an archive that never had a seal.

    Raises:
        ValueError: if the file is corrupted.
    """
    about = path.stat()
    return _check_seal(path, about.st_mtime_ns, about.st_size, about.st_ino)


@functools.lru_cache(maxsize=64)
def _check_seal(path: Path, _written: int, size: int, _inode: int) -> str | None:
    with open_regular(path) as file:
        file.seek(max(0, size - _LONGEST))
        end = file.read()
        found = _SEAL.search(end)
        if found is None or found.end() != len(end):
            # An archive without a comment ends in its end record, which damage cannot make of a sealed one.
            record = end[-_END_RECORD.size :]
            if len(record) == _END_RECORD.size and record[:4] == b"PK\5\6" and record[-2:] == b"\0\0":
                return None
            raise ValueError("its end is missing or corrupted")
        file.seek(0)
        if _digest(file, size - 64) != found[2].decode():
            raise ValueError("its content does not match its SHA-256")
    return found[1].decode()


def has_seal(path: Path) -> bool:
    """Return whether a file ends in a seal, corrupted or not."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, path.stat().st_size - _LONGEST))
            return _SEAL.search(file.read()) is not None
    except OSError:
        return False


def seal_or_none(path: Path) -> str | None:
    """Return the identity in the seal of a file; None if it is corrupted, missing, or was never sealed."""
    try:
        return check_seal(path)
    except (OSError, ValueError):
        return None


def is_sealed(path: Path, identity: str) -> bool:
    """Return whether a file is intact and has this identity."""
    return seal_or_none(path) == identity


def check_sealed(path: Path, what: str) -> str | None:
    """Return the result of `check_seal`; raise InputError if the file is no intact `what`, or missing."""
    try:
        return check_seal(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path}: not a readable {what} ({reason})") from error


def read_sealed(
    path: Path, kinds: Mapping[str, Kind], what: str, *, identity: str | None = None, pick: int | None = None
) -> dict[str, np.ndarray]:
    """Read arrays from a sealed file.

    Args:
        path: the file.
        kinds: the names of the arrays, and the type and shape that each must have.
        what: what the file should be, for errors.
        identity: the identity that its seal must have, if any.
        pick: an index along the first axis of each array; by default all entries are read.

    Raises:
        InputError: if the file is corrupted, or anything in it is not as expected.
    """
    own = check_sealed(path, what)
    if identity is not None and own != identity:
        raise InputError(f"{path}: belongs to other settings or data ({own}, not {identity})")
    with open_npz(path, f"{path}: not a readable {what}", follow_links=False) as archive:
        for name, kind in kinds.items():
            if name not in archive.names:
                raise InputError(f"{path}: has no array {name}, which the run's config needs")
            shape, dtype, _ = archive.header(name)
            if not kind.fits(shape, dtype):
                raise InputError(f"{path}: {name} is {dtype}{shape}, not {kind.dtype}{tuple(kind.shape)}")
            if pick is not None and not 0 <= pick < shape[0]:
                raise InputError(f"{path}: {name} has {shape[0]} entries; asked for number {pick}")
        return {name: archive.read(name) if pick is None else archive.read(name)[pick].copy() for name in kinds}
