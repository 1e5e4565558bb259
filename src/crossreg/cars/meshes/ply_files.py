"""Read meshes of triangles and quads from PLY files, as text or as binary of either byte order. One triangle:

    ply                              element face 1
    format ascii 1.0                 property list uchar int vertex_indices
    comment any                      end_header
    element vertex 3                 0 0 0
    property float x                 1 0 0
    property float y                 0 1 0
    property float z                 3 0 1 2

A row of an element holds the values of its properties in order; a list starts with its length. Other properties and
elements, such as colours, edges or texture, are skipped.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
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
_BYTE_ORDERS = {"ascii": None, "binary_little_endian": "<", "binary_big_endian": ">"}
_CORNERS = ("vertex_indices", "vertex_index")


class Property(NamedTuple):
    """A value in every row, or a list of values where `length` gives the type of the list's length."""

    name: str
    kind: str
    length: str | None = None


@dataclass(frozen=True)
class Element:
    """Rows of the same properties."""

    name: str
    count: int
    properties: list[Property]


def read_ply(path: Path) -> tuple[Float[np.ndarray, "vertex 3"], Int[np.ndarray, "face 3"] | None]:
    """Return the vertices and triangles of a PLY file; no faces if it has only points."""
    size = check_size(path)
    try:
        content = path.read_bytes()
        start, encoding, elements = _read_header(content)
        counts = {element.name: element.count for element in elements}
        num_vertices, num_faces = counts.get("vertex", 0), counts.get("face", 0)
        promised = f"{path}: promises {num_vertices} vertices and {num_faces} faces, but"
        # A row takes at least a byte, three coordinates at least 6, and a triangle 4.
        if 6 * num_vertices + 4 * num_faces > size or sum(counts.values()) > size:
            raise InputError(f"{promised} has {size} bytes")
        stream = _Stream(memoryview(content)[start:], _BYTE_ORDERS[encoding])
        try:
            found = {element.name: _read_rows(element, stream) for element in elements}
        except EOFError as error:
            raise InputError(f"{promised} ends before them") from error
        stream.check_end()
        return _vertices(found.get("vertex", {})), _triangles(found.get("face", {}))
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable PLY mesh ({error})") from error


def _read_header(content: bytes) -> tuple[int, str, list[Element]]:
    """Return where the rows start, their encoding and the elements."""
    end = re.compile(rb"^end_header[ \t]*\r?\n", re.MULTILINE).search(content[:_LONGEST_HEADER])
    if not re.match(rb"ply\s", content) or end is None:
        raise ValueError("it does not start as one, or its header has no end")
    encoding, elements = "", []
    for line in content[: end.start()].decode("latin1").splitlines()[1:]:
        words = line.split()
        match words:
            case [] | ["comment" | "obj_info", *_]:
                pass
            case ["format", name, "1.0"] if name in _BYTE_ORDERS and not encoding:
                encoding = name
            case ["element", name, count] if re.fullmatch(r"[0-9]{1,18}", count):
                elements.append(Element(name, int(count), []))
            case ["property", "list", length, kind, name] if elements and length in _KINDS and kind in _KINDS:
                elements[-1].properties.append(Property(name, _KINDS[kind], _KINDS[length]))
            case ["property", kind, name] if elements and kind in _KINDS:
                elements[-1].properties.append(Property(name, _KINDS[kind]))
            case _:
                raise ValueError(f"its header has the line {line[:60]!r}")
    if not encoding or len({element.name for element in elements}) < len(elements):
        raise ValueError("its header names no format, or an element twice")
    if any(len({p.name for p in e.properties}) < len(e.properties) or not e.properties for e in elements):
        raise ValueError("an element has no properties, or one of them twice")
    return end.end(), encoding, elements


class _Stream:
    """The rows of a file, read from front to back: numbers of a text, or bytes if there is a byte order.

    `place` is the index of the next number or byte.
    """

    def __init__(self, body: memoryview, byte_order: str | None):
        self._order, self.place = byte_order, 0
        if byte_order is not None:
            self._body = np.frombuffer(body, np.uint8)
            return
        try:
            with warnings.catch_warnings(action="error"):  # numpy only warns of a word that is no number
                self._body = np.fromstring(bytes(body), np.float64, sep=" ") if len(body) else np.empty(0)
        except (Warning, ValueError) as error:
            raise ValueError("it holds a word that is not a number") from error

    def take(self, kinds: Sequence[str], rows: int) -> list[np.ndarray]:
        """Return the columns of the next rows, whose values have these types."""
        if not kinds:
            return []
        dtype = np.dtype([(str(number), (self._order or "") + kind) for number, kind in enumerate(kinds)])
        end = self.place + rows * (dtype.itemsize if self._order else len(kinds))
        if end > len(self._body):
            raise EOFError
        block, self.place = self._body[self.place : end], end
        if self._order:
            values = block.view(dtype)
            return [values[name] for name in dtype.names or ()]
        return [_typed(column, kind) for column, kind in zip(block.reshape(rows, -1).T, kinds, strict=True)]

    def check_end(self) -> None:
        """Raise ValueError if anything follows the last row."""
        if left := len(self._body) - self.place:
            raise ValueError(f"{left} {'bytes' if self._order else 'numbers'} follow its last row")


def _typed(column: np.ndarray, kind: str) -> np.ndarray:
    """Return numbers of a text in their type."""
    if kind[0] == "f":
        return column
    if not np.isin(column % 1, 0).all() or (np.abs(column) > 2**53).any():
        raise ValueError("it holds a number that is not whole where one is expected")
    return column.astype(np.int64)


class _Lists(NamedTuple):
    """One list per row; lists shorter than the longest repeat their last value."""

    values: np.ndarray
    lengths: np.ndarray


_Columns = dict[str, np.ndarray | _Lists]


def _read_rows(element: Element, stream: _Stream) -> _Columns:
    """Return the values of each property of an element."""
    if not element.count:
        return {}
    start = stream.place
    widths = [len(values) for values in _read_row(element, stream)]
    stream.place = start
    if (found := _read_alike(element, stream, widths)) is not None:  # lists mostly have one length
        return found
    stream.place = start
    return _read_one_by_one(element, stream)


def _read_alike(element: Element, stream: _Stream, widths: Sequence[int]) -> _Columns | None:
    """Return all rows at once if every row's lists have these lengths, otherwise None."""
    layout = list(zip(element.properties, widths, strict=True))
    kinds = [kind for each, width in layout for kind in [*filter(None, [each.length]), *[each.kind] * width]]
    try:
        columns = iter(stream.take(kinds, element.count))
    except (EOFError, ValueError):
        return None
    found: _Columns = {}
    for each, width in layout:
        lengths = next(columns) if each.length else None
        values = list(islice(columns, width))
        if lengths is None:
            found[each.name] = values[0]
        elif (lengths == width).all():
            found[each.name] = _Lists(np.stack(values, -1) if values else np.empty((element.count, 0)), lengths)
        else:
            return None
    return found


def _read_one_by_one(element: Element, stream: _Stream) -> _Columns:
    """Return rows whose lists differ in length, as triangles among quads do."""
    rows = [_read_row(element, stream) for _ in range(element.count)]
    found: _Columns = {}
    for each, lists in zip(element.properties, zip(*rows, strict=True), strict=True):
        lengths = np.array([len(values) for values in lists])
        filled = np.array([values + (values[-1:] or [0]) * (lengths.max() - len(values)) for values in lists])
        found[each.name] = _Lists(filled, lengths) if each.length else filled[:, 0]
    return found


def _read_row(element: Element, stream: _Stream) -> list[list[Any]]:
    """Return the values of each property in the next row."""
    row = []
    for each in element.properties:
        width = _read_length(stream, each.length) if each.length else 1
        row.append([column.item() for column in stream.take([each.kind] * width, 1)])
    return row


def _read_length(stream: _Stream, kind: str) -> int:
    length = float(stream.take([kind], 1)[0][0])
    if not 0 <= length <= _LONGEST_LIST or length % 1:
        raise ValueError(f"it has a list of {length:g} values; expected at most {_LONGEST_LIST}")
    return int(length)


def _vertices(vertex: _Columns) -> Float[np.ndarray, "vertex 3"]:
    axes = [values for axis in "xyz" if isinstance(values := vertex.get(axis), np.ndarray)]
    if len(axes) < 3:
        raise ValueError("it has no vertices with x, y and z")
    return np.stack(axes, axis=-1, dtype=np.float64)


def _triangles(face: _Columns) -> Int[np.ndarray, "face 3"] | None:
    if not face:
        return None
    corners = next((face[name] for name in _CORNERS if name in face), None)
    if not isinstance(corners, _Lists) or corners.values.dtype.kind not in "iu":
        raise ValueError("its faces are not lists of whole numbers named vertex_indices")
    if (wrong := np.flatnonzero((corners.lengths < 3) | (corners.lengths > 4))).size:
        raise ValueError(f"face {wrong[0]} has {corners.lengths[wrong[0]]} corners; expected 3 or 4")
    return triangles_of(corners.values.astype(np.int64))
