"""Reading of NPY and NPZ files, which may hold anything.

The size in a header is compared with the file's before memory is allocated, and nothing in a file is run: no pickle, no
Python. A compressed archive may unpack to a limited multiple of its size.
"""

import ast
import contextlib
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from crossreg.errors import InputError
from crossreg.files.memory import check_room, in_words
from crossreg.files.regular import open_regular

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 10_000
_MOST_AXES = 32
_KINDS = re.compile(r"[<>|=]?[?biufcSU]\d{0,9}")
# Compression halves numbers and shrinks masks and labels tenfold; a decompression bomb shrinks a thousandfold.
_MOST_UNPACKED = 32
_SMALL = 2**24
_CHUNK = 2**20
# Exceptions that zipfile, zlib and NumPy raise on damaged files.
_UNREADABLE = (
    OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error,
    NotImplementedError, RuntimeError, SyntaxError, OverflowError, MemoryError,
)  # fmt: skip


class ArrayHeader(NamedTuple):
    """The header of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class ArrayArchive:
    """An open NPZ file: names, headers, and arrays one at a time."""

    def __init__(self, file: zipfile.ZipFile, size: int, where: str):
        self._file, self._size, self._where = file, size, where
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in file.infolist():
            name = member.filename.removesuffix(".npy")
            if name in self._members:
                raise InputError(f"{where}: holds {name} twice")
            self._members[name] = member
        # Bytes of all arrays read so far: many small bombs are as bad as a large one.
        self._unpacked = 0

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def header(self, name: str) -> ArrayHeader:
        """Return the shape and type of an array without reading it."""
        with self._opened(name) as (_, header):
            return header

    def read(self, name: str) -> np.ndarray:
        """Read one array."""
        with self._opened(name) as (stream, header):
            self._unpacked += header.num_bytes
            if self._unpacked > (most := most_unpacked(self._size)):
                raise InputError(
                    f"{self._where}: unpacks to {in_words(self._unpacked)} or more; a file of {self._size} bytes may"
                    f" unpack to {in_words(most)} (np.savez stores arrays without compression)"
                )
            return _read_values(stream, header, f"{self._where}: {name}")

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[tuple[BufferedIOBase, ArrayHeader]]:
        if name not in self._members:
            raise InputError(f"{self._where}: has no array {name}; it has {', '.join(self._members) or 'none'}")
        member = self._members[name]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{self._where}: {name} is compressed in a way that NumPy does not use")
        if member.compress_size > self._size:
            raise InputError(f"{self._where}: {name} promises {member.compress_size} bytes; the file has {self._size}")
        with said_in_one_line(self._where), self._file.open(member) as stream:
            assert isinstance(stream, BufferedIOBase)
            yield stream, _read_header(stream, member.file_size, f"{self._where}: {name}")


def most_unpacked(size: int) -> int:
    """Return the bytes that a compressed file of this size may unpack to."""
    return _MOST_UNPACKED * size + _SMALL


def read_npy(path: Path, where: str | None = None, *, follow_links: bool = True) -> np.ndarray:
    """Read the array of an NPY file.

    Args:
        path: the file.
        where: what errors call it; by default its path.
        follow_links: whether the file may be a link, as a file that a user names may, and one in a run folder may not.

    Raises:
        InputError: if the file is not an array of numbers, booleans or text.
    """
    where = str(path) if where is None else where
    with said_in_one_line(where), open_regular(path, follow_links=follow_links) as file:
        size = _size_of(file)
        if file.read(4) == b"PK\x03\x04":
            raise InputError(f"{where}: is an NPZ archive; expected a single NPY array")
        file.seek(0)
        return _read_values(file, _read_header(file, size, where), where)


def map_npy(path: Path, where: str | None = None) -> np.ndarray:
    """Map the array of an NPY file: only the parts that are used are read."""
    where = str(path) if where is None else where
    with said_in_one_line(where), open_regular(path, follow_links=True) as file:
        header = _read_header(file, _size_of(file), where)
        if not header.num_bytes:
            return np.empty(header.shape, header.dtype)
        order = "F" if header.fortran_order else "C"
        return np.memmap(file, header.dtype, "r", file.tell(), header.shape, order)


@contextlib.contextmanager
def open_npz(path: Path, where: str | None = None, *, follow_links: bool = True) -> Iterator[ArrayArchive]:
    """Open an NPZ file, to be read array by array. Arguments and errors are those of `read_npy`."""
    where = str(path) if where is None else where
    with contextlib.ExitStack() as held:
        with said_in_one_line(where):
            file = held.enter_context(open_regular(path, follow_links=follow_links))
            archive = held.enter_context(zipfile.ZipFile(file))
        yield ArrayArchive(archive, _size_of(file), where)


def read_npz(path: Path, names: Sequence[str], *, follow_links: bool = True) -> dict[str, np.ndarray]:
    """Read the arrays with these names."""
    with open_npz(path, follow_links=follow_links) as archive:
        return {name: archive.read(name) for name in names}


@contextlib.contextmanager
def said_in_one_line(where: str) -> Iterator[None]:
    """Raise an InputError in place of any exception that a damaged file causes in its reader."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"not readable ({error})"
        raise InputError(f"{where}: {reason}") from error


def _size_of(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _read_header(stream: BufferedIOBase, size: int, where: str) -> ArrayHeader:
    """Read the header of an array that is `size` bytes long, header included."""
    start = stream.read(8)
    if len(start) < 8 or start[:6] != _MAGIC:
        raise InputError(f"{where}: not an NPY array")
    if start[6] not in (1, 2, 3):
        raise InputError(f"{where}: is of NPY version {start[6]}; expected 1, 2 or 3")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > min(_LONGEST_HEADER, size):
        raise InputError(f"{where}: its header promises {length} bytes; expected at most {_LONGEST_HEADER}")
    text = stream.read(length).decode("utf-8" if start[6] == 3 else "latin1")
    header = _parse(text, where)
    held = size - 8 - width - length
    if header.num_bytes != held:
        raise InputError(
            f"{where}: promises {header.dtype} of shape {_shown(header.shape)}, {in_words(header.num_bytes)},"
            f" but holds {held} bytes"
        )
    return header


def _parse(text: str, where: str) -> ArrayHeader:
    """Parse the text of a header, a Python dictionary."""
    # Headers have few brackets; many would overflow the parser's stack. Python 2 wrote 3L for 3.
    if sum(map(text.count, "([{")) > 16 or "\\" in text:
        raise InputError(f"{where}: not the header of an array of numbers")
    try:
        values: Any = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text.strip()))
        descr, fortran, shape = (values.pop(name) for name in ("descr", "fortran_order", "shape"))
    except _UNREADABLE as error:
        raise InputError(f"{where}: not the header of an NPY array ({text[:60].strip()})") from error
    if values or not isinstance(fortran, bool):
        raise InputError(f"{where}: not the header of an NPY array ({text[:60].strip()})")
    if not isinstance(descr, str) or not _KINDS.fullmatch(descr):
        raise InputError(f"{where}: has type {descr}; expected numbers, booleans or text")
    if not isinstance(shape, tuple) or len(shape) > _MOST_AXES or not all(type(n) is int and n >= 0 for n in shape):
        raise InputError(f"{where}: has shape {shape}; expected a tuple of at most {_MOST_AXES} sizes, 0 or more each")
    dtype = np.dtype(descr)
    if dtype.itemsize == 0:
        raise InputError(f"{where}: has type {descr}, whose values take no bytes")
    return ArrayHeader(shape, dtype, fortran)


def _shown(shape: tuple[int, ...]) -> str:
    return f"({', '.join(str(n) if n < 10**15 else f'10^{int(math.log10(n))}' for n in shape)})"


def _read_values(stream: BufferedIOBase, header: ArrayHeader, where: str) -> np.ndarray:
    """Read the numbers after a header, in the machine's byte order."""
    check_room(header.num_bytes, f"{where}: an array of shape {_shown(header.shape)}")
    array = np.empty(math.prod(header.shape), header.dtype)
    target, start = array.view(np.uint8).data if array.size else memoryview(b""), 0
    while start < len(target):
        read = stream.readinto(target[start : start + _CHUNK])
        if not read:
            raise InputError(f"{where}: ends after {start} of {header.num_bytes} bytes")
        start += read
    if not header.dtype.isnative:
        array = array.byteswap(inplace=True).view(header.dtype.newbyteorder("="))
    return array.reshape(header.shape[::-1]).T if header.fortran_order else array.reshape(header.shape)
