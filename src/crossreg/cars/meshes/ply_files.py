"""Meshes of triangles and quads from PLY files, as text or as binary of either byte order. One triangle:

    ply                              element face 1
    format ascii 1.0                 property list uchar int vertex_indices
    comment any                      end_header
    element vertex 3                 0 0 0
    property float x                 1 0 0
    property float y                 0 1 0
    property float z                 3 0 1 2

A row of an element has the values of its properties one behind the other, a list its length first. What else is there,
as colours, edges or texture, is passed over.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from crossreg.cars.meshes.mesh_files import check_size
from crossreg.cars.meshes.surface import triangles_of
from crossreg.errors import InputError

_LONGEST_HEADER = 2**16
_LONGEST_LIST = 255
_KINDS = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
_BYTE_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">"}
_CORNERS = ("vertex_indices", "vertex_index")


class Property(NamedTuple):
    """A value of every row, or with `length`, the type of its length, a list of them."""

    name: str
    kind: str
    length: str | None = None


@dataclass
class Element:
    """Rows of the same properties."""

    name: str
    count: int
    properties: list[Property]


def read_ply(path: Path) -> tuple[Float[np.ndarray, "vertex 3"], Int[np.ndarray, "face 3"] | None]:
    """Vertices and triangles of a PLY file; no faces where it has only points."""
    size = check_size(path)
    try:
        content = path.read_bytes()
        start, encoding, elements = _read_header(content)
        counts = {element.name: element.count for element in elements}
        num_vertices, num_faces = counts.get("vertex", 0), counts.get("face", 0)
        # A row takes at least a byte, three coordinates at least 6, and a triangle 4.
        if 6 * num_vertices + 4 * num_faces > size or sum(counts.values()) > size:
            raise InputError(f"{path}: promises {num_vertices} vertices and {num_faces} faces, but has {size} bytes")
        body = memoryview(content)[start:]
        stream = _Text(body) if encoding == "ascii" else _Binary(body, _BYTE_ORDERS[encoding])
        try:
            found = {element.name: _read_rows(element, stream) for element in elements}
        except EOFError as error:
            raise InputError(
                f"{path}: promises {num_vertices} vertices and {num_faces} faces, but ends before them"
            ) from error
        stream.check_end()
        return _vertices(found.get("vertex", {})), _triangles(found.get("face", {}))
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable PLY mesh ({error})") from error


def _read_header(content: bytes) -> tuple[int, str, list[Element]]:
    """Where the rows start, how they are written, and what they are."""
    end = re.compile(rb"^end_header[ \t]*\r?\n", re.MULTILINE).search(content[:_LONGEST_HEADER])
    if not re.match(rb"ply\s", content) or end is None:
        raise ValueError("it does not start as one, or its header has no end")
    encoding, elements = "", []
    for line in content[: end.start()].decode("latin1").splitlines()[1:]:
        words = line.split()
        match words:
            case [] | ["comment" | "obj_info", *_]:
                pass
            case ["format", "ascii" | "binary_little_endian" | "binary_big_endian", "1.0"] if not encoding:
                encoding = words[1]
            case ["element", name, count] if re.fullmatch(r"[0-9]{1,18}", count):
                elements.append(Element(name, int(count), []))
            case ["property", "list", length, kind, name] if elements and length in _KINDS and kind in _KINDS:
                elements[-1].properties.append(Property(name, _KINDS[kind], _KINDS[length]))
            case ["property", kind, name] if elements and kind in _KINDS:
                elements[-1].properties.append(Property(name, _KINDS[kind]))
            case _:
                raise ValueError(f"its header has the line {line[:60]!r}")
    names = [element.name for element in elements]
    if not encoding or len(set(names)) < len(names):
        raise ValueError("its header names no format, or an element twice")
    if any(len({p.name for p in e.properties}) < len(e.properties) or not e.properties for e in elements):
        raise ValueError("an element has no property, or one twice")
    return end.end(), encoding, elements


class _Text:
    """The rows of a text, from front to back: `place` is where the next one starts."""

    def __init__(self, body: memoryview):
        try:
            with warnings.catch_warnings(action="error"):  # numpy only warns of a word that is no number
                self._numbers = np.fromstring(bytes(body), np.float64, sep=" ") if bytes(body[:1]) else np.empty(0)
        except (Warning, ValueError) as error:
            raise ValueError("it holds a word that is no number") from error
        self.place = 0

    def take(self, kinds: Sequence[str], rows: int) -> list[np.ndarray]:
        """So many rows of values of these types, as columns."""
        if not kinds:
            return []
        end = self.place + rows * len(kinds)
        if end > len(self._numbers):
            raise EOFError
        block = self._numbers[self.place : end].reshape(rows, len(kinds))
        self.place = end
        return [_whole(column, kind) for column, kind in zip(block.T, kinds, strict=True)]

    def check_end(self) -> None:
        """Refuses what stands behind the last row."""
        if self.place < len(self._numbers):
            raise ValueError(f"{len(self._numbers) - self.place} numbers follow its last row")


def _whole(column: np.ndarray, kind: str) -> np.ndarray:
    """Numbers of a text in their type."""
    if kind[0] == "f":
        return column
    if not np.isin(column % 1, 0).all() or (np.abs(column) > 2**53).any():
        raise ValueError("it holds a number that is not whole where one is expected")
    return column.astype(np.int64)


class _Binary:
    """The same of bytes."""

    def __init__(self, body: memoryview, byte_order: str):
        self._body, self._order, self.place = body, byte_order, 0

    def take(self, kinds: Sequence[str], rows: int) -> list[np.ndarray]:
        if not kinds:
            return []
        dtype = np.dtype([(str(number), self._order + kind) for number, kind in enumerate(kinds)])
        end = self.place + rows * dtype.itemsize
        if end > len(self._body):
            raise EOFError
        block = np.frombuffer(self._body[self.place : end], dtype)
        self.place = end
        return [block[name] for name in dtype.names or ()]

    def check_end(self) -> None:
        if self.place < len(self._body):
            raise ValueError(f"{len(self._body) - self.place} bytes follow its last row")


_Stream = _Text | _Binary


class _Lists(NamedTuple):
    """A list in every row: those that are shorter than others have their last value again."""

    values: np.ndarray
    lengths: np.ndarray


def _read_rows(element: Element, stream: _Stream) -> dict[str, np.ndarray | _Lists]:
    """The values of each property."""
    if not element.count:
        return {}
    start = stream.place
    widths = _widths(element, stream)
    stream.place = start
    try:  # as if all lists were as long as those of the first row; they mostly are
        columns, found = stream.take(_kinds(element, widths), element.count), {}
    except EOFError:
        return _read_one_by_one(element, stream)
    for each, width in zip(element.properties, widths, strict=True):
        first, *others = columns[: width + (each.length is not None)]
        columns = columns[1 + len(others) :]
        if each.length is None:
            found[each.name] = first
        elif (first != width).any():
            stream.place = start
            return _read_one_by_one(element, stream)
        else:
            found[each.name] = _Lists(np.stack(others, -1) if others else np.empty((element.count, 0)), first)
    return found


def _read_one_by_one(element: Element, stream: _Stream) -> dict[str, np.ndarray | _Lists]:
    """The same where lists differ in length, as for triangles among quads."""
    rows: dict[str, list[list[Any]]] = {each.name: [] for each in element.properties}
    for _ in range(element.count):
        for each in element.properties:
            width = 1 if each.length is None else _length(stream, each.length)
            rows[each.name].append([column.item() for column in stream.take([each.kind] * width, 1)])
    found: dict[str, np.ndarray | _Lists] = {}
    for each in element.properties:
        lists = rows[each.name]
        lengths = np.array([len(values) for values in lists])
        filled = np.array([values + (values[-1:] or [0]) * (lengths.max() - len(values)) for values in lists])
        found[each.name] = filled[:, 0] if each.length is None else _Lists(filled, lengths)
    return found


def _widths(element: Element, stream: _Stream) -> list[int]:
    """How many values each property has in the first row."""
    widths = []
    for each in element.properties:
        widths.append(1 if each.length is None else _length(stream, each.length))
        stream.take([each.kind] * widths[-1], 1)
    return widths


def _length(stream: _Stream, kind: str) -> int:
    length = float(stream.take([kind], 1)[0][0])
    if not 0 <= length <= _LONGEST_LIST or length % 1:
        raise ValueError(f"it has a list of {length:g} values; expected at most {_LONGEST_LIST}")
    return int(length)


def _kinds(element: Element, widths: Sequence[int]) -> list[str]:
    """The types of all values of a row."""
    kinds = []
    for each, width in zip(element.properties, widths, strict=True):
        kinds += [each.kind] * width if each.length is None else [each.length, *[each.kind] * width]
    return kinds


def _vertices(vertex: dict[str, np.ndarray | _Lists]) -> Float[np.ndarray, "vertex 3"]:
    axes = [vertex.get(axis) for axis in "xyz"]
    columns = [np.asarray(values, np.float64) for values in axes if isinstance(values, np.ndarray)]
    if len(columns) < 3:
        raise ValueError("it has no vertices with x, y and z")
    return np.stack(columns, axis=-1)


def _triangles(face: dict[str, np.ndarray | _Lists]) -> Int[np.ndarray, "face 3"] | None:
    if not face:
        return None
    corners = next((face[name] for name in _CORNERS if name in face), None)
    if not isinstance(corners, _Lists) or corners.values.dtype.kind not in "iu":
        raise ValueError("its faces are no lists of whole numbers called vertex_indices")
    if (wrong := np.flatnonzero((corners.lengths < 3) | (corners.lengths > 4))).size:
        raise ValueError(f"face {wrong[0]} has {corners.lengths[wrong[0]]} corners; expected 3 or 4")
    return triangles_of(corners.values.astype(np.int64))
