"""Read meshes of triangles and quads from legacy VTK files, as text or as big-endian binary. One quad:

    # vtk DataFile Version 4.2       CELLS 1 5         (cells; numbers: each cell's count of corners and its corners)
    any title                        4  0 1 2 3
    ASCII                        or, from version 5 on,
    DATASET UNSTRUCTURED_GRID        CELLS 2 4         (offsets, one more than cells; corners)
    POINTS 4 float                   OFFSETS vtktypeint64
    0 0 0  1 0 0  1 1 0  0 1 0       0 4
    CELLS …                          CONNECTIVITY vtktypeint64
    CELL_TYPES 1                     0 1 2 3
    9                            where cell c has the corners connectivity[offsets[c] : offsets[c + 1]].

POLYDATA has POLYGONS in place of CELLS and no CELL_TYPES. Fields and metadata are skipped wherever they occur.
"""

import re
import warnings
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from crossreg.cars.meshes.mesh_files import check_size
from crossreg.errors import InputError

_REALS = {"float": ">f4", "double": ">f8"}
_INTEGERS = {"int": ">i4", "vtktypeint32": ">i4", "long": ">i8", "vtktypeint64": ">i8"}
_TRIANGLE, _POLYGON, _QUAD = 5, 7, 9


def read_vtk(path: Path) -> tuple[Float[np.ndarray, "vertex 3"], Int[np.ndarray, "face corner"]]:
    """Return vertices and faces. If there are quads, faces have 4 corners, and a triangle repeats its last one."""
    check_size(path)
    content = path.read_bytes()
    header = re.match(rb"# vtk DataFile[^\n]*\n[^\n]*\n\s*(ASCII|BINARY)\s+DATASET[ \t]+(\w+)[ \t\r]*\n", content)
    if header is None:
        raise InputError(f"{path}: not a readable VTK mesh (it does not start as a legacy VTK file)")
    sections = _Sections(path, content[header.end() :], is_text=header[1] == b"ASCII")
    if (dataset := header[2].decode()) not in ("UNSTRUCTURED_GRID", "POLYDATA"):
        raise InputError(f"{path}: holds a {dataset}; expected an UNSTRUCTURED_GRID or POLYDATA")
    other = re.search(rb"(?m)^(VERTICES|LINES|TRIANGLE_STRIPS)[ \t]+\d+[ \t]+\d+[ \t\r]*\n", sections.rest)
    if dataset == "POLYDATA" and other:
        raise InputError(f"{path}: holds {other[1].decode()}; expected POLYGONS alone")
    num_vertices, kind = sections.find(r"POINTS[ \t]+(\d{1,18})[ \t]+(\w+)")
    vertices = sections.numbers("POINTS", 3 * int(num_vertices), kind, _REALS).reshape(-1, 3)
    offsets, corners = _cells(sections, "POLYGONS" if dataset == "POLYDATA" else "CELLS")
    kinds = np.full(len(offsets) - 1, _POLYGON)
    if dataset == "UNSTRUCTURED_GRID":
        (num_cells,) = sections.find(r"CELL_TYPES[ \t]+(\d{1,18})")
        if int(num_cells) != len(kinds):
            raise InputError(f"{path}: {num_cells} CELL_TYPES for {len(kinds)} CELLS")
        kinds = sections.numbers("CELL_TYPES", len(kinds), "int", _INTEGERS)
    faces = _faces(path, offsets, corners, kinds)
    if (outside := faces[(faces < 0) | (faces >= len(vertices))]).size:
        raise InputError(f"{path}: a face has vertex {outside[0]}; there are {len(vertices)} vertices, numbered from 0")
    return vertices.astype(np.float64), faces


class _Sections:
    """A file read from front to back; `rest` is the part not yet read."""

    def __init__(self, path: Path, rest: bytes, *, is_text: bool):
        self.path, self.rest, self.is_text = path, rest, is_text

    def find(self, line: str) -> tuple[str, ...]:
        """Return the values on the next line of this form, and move past it."""
        match = re.search(rf"(?m)^[ \t]*{line}[ \t\r]*\n".encode(), self.rest)
        if match is None:
            raise InputError(f"{self.path}: has no section {line.partition('[')[0]}, or a damaged one")
        self.rest = self.rest[match.end() :]
        return tuple(value.decode() for value in match.groups())

    def numbers(self, name: str, count: int, kind: str, kinds: dict[str, str]) -> np.ndarray:
        """Return the next numbers, and move past them."""
        if kind not in kinds:
            raise InputError(f"{self.path}: {name} of type {kind}; expected {', '.join(kinds)}")
        dtype = np.dtype(kinds[kind])
        # Text ends where the next name starts, in capitals (nan and inf are not); a number takes a digit and a space.
        text_end = re.search(rb"(?m)^[ \t]*[A-Z]|\Z", self.rest) if self.is_text else None
        end = text_end.start() if text_end else count * dtype.itemsize
        held = (end + 1) // 2 if text_end else len(self.rest) // dtype.itemsize
        if not 0 < count <= held:
            raise InputError(f"{self.path}: {name} promises {count} numbers; expected 1 to {held}, by the file's size")
        values, self.rest = self.rest[:end], self.rest[end:]
        native = dtype.newbyteorder("=")
        if not self.is_text:
            return np.frombuffer(values, dtype).astype(native)
        try:
            with warnings.catch_warnings(action="error"):  # numpy only warns of a word that is no number
                numbers = np.fromstring(values, np.int64 if dtype.kind == "i" else native, sep=" ")
        except (Warning, ValueError) as error:
            raise InputError(f"{self.path}: {name} holds a word that is not of type {kind}") from error
        if len(numbers) != count:
            raise InputError(f"{self.path}: {name} promises {count} numbers, but has {len(numbers)}")
        return numbers


def _cells(sections: _Sections, name: str) -> tuple[Int[np.ndarray, " offset"], Int[np.ndarray, " number"]]:
    """Return offsets and corners of the cells, from either form."""
    first, second = map(int, sections.find(rf"{name}[ \t]+(\d{{1,18}})[ \t]+(\d{{1,18}})"))
    # The content tells the form more reliably than the version. A list in binary starts with a zero byte.
    if sections.rest[:64].lstrip().startswith(b"OFFSETS"):
        (kind,) = sections.find(r"OFFSETS[ \t]+(\w+)")
        offsets = sections.numbers("OFFSETS", first, kind, _INTEGERS)
        (kind,) = sections.find(r"CONNECTIVITY[ \t]+(\w+)")
        corners = sections.numbers("CONNECTIVITY", second, kind, _INTEGERS)
        if offsets[0] != 0 or offsets[-1] != second or (offsets[1:] < offsets[:-1]).any():
            raise InputError(f"{sections.path}: OFFSETS do not rise from 0 to the number of corners, {second}")
        return offsets.astype(np.int64), corners.astype(np.int64)
    listed = sections.numbers(name, second, "int", _INTEGERS).astype(np.int64)
    counts, starts, start = listed.tolist(), [], 0
    while start < second and counts[start] >= 0:
        starts.append(start)
        start += counts[start] + 1
    if start != second or len(starts) != first:
        raise InputError(f"{sections.path}: the {second} numbers of {name} are not {first} lists of corners")
    return np.array([*starts, second]) - np.arange(first + 1), np.delete(listed, starts)


def _faces(
    path: Path,
    offsets: Int[np.ndarray, " offset"],
    corners: Int[np.ndarray, " number"],
    kinds: Int[np.ndarray, " cell"],
) -> Int[np.ndarray, "cell corner"]:
    count = np.diff(offsets)
    good = (count == 3) & np.isin(kinds, (_TRIANGLE, _POLYGON)) | (count == 4) & np.isin(kinds, (_QUAD, _POLYGON))
    if not good.all():
        cell = int(np.argmin(good))
        raise InputError(
            f"{path}: cell {cell} has VTK type {kinds[cell]} and {count[cell]} corners;"
            f" expected triangles ({_TRIANGLE}), quads ({_QUAD}), or polygons ({_POLYGON}) of 3 or 4 corners"
        )
    return corners[offsets[:-1, None] + np.minimum(np.arange(count.max()), count[:, None] - 1)]
