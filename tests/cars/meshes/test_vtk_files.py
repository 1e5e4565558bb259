"""Legacy VTK files in every form, written here by hand, and what is refused."""

import struct
import time

import numpy as np
import pytest

from crossreg.cars.meshes.surface import triangles_of
from crossreg.cars.meshes.vtk_files import read_vtk
from crossreg.errors import InputError

TRIANGLE, POLYGON, QUAD = 5, 7, 9
# Numbers that single precision holds, two quads and a triangle on 7 points.
VERTICES = np.arange(21).reshape(7, 3) ** 2 / 8 - 3
CELLS = [[0, 1, 2, 3], [4, 2, 1], [3, 2, 5, 6]]
FACES = [[0, 1, 2, 3], [4, 2, 1, 1], [3, 2, 5, 6]]


class Writer:
    """The parts of a file. Fields and metadata stand wherever they may, and some look like sections."""

    def __init__(self, *, text: bool, version: str, dataset: str = "UNSTRUCTURED_GRID"):
        self.text, self.version = text, version
        self.content = f"# vtk DataFile Version {version}\nBINARY title\n{'ASCII' if text else 'BINARY'}\n".encode()
        self.line(f"DATASET {dataset}")

    def line(self, text: str) -> None:
        self.content += text.encode() + b"\n"

    def numbers(self, values, code: str) -> None:
        values = np.ravel(values).tolist()
        # Text breaks its lines anywhere.
        lines = [" ".join(map(repr, values[i : i + 9])) + " \n" for i in range(0, len(values), 9)]
        self.content += "".join(lines).encode() if self.text else struct.pack(f">{len(values)}{code}", *values) + b"\n"

    def fields(self, where: str) -> None:
        if where == "before":
            self.line("FIELD FieldData 1\nPOINTS 1 2 double")
            self.numbers([0.5, 2.0], "d")
        elif where == "between":
            self.line("METADATA\nCOMPONENT_NAMES\nCELLS%20x\ny\nz\n")
        else:
            self.line(f"POINT_DATA {len(VERTICES)}\nSCALARS pressure double\nLOOKUP_TABLE default")
            self.numbers(np.arange(7) / 3, "d")
            self.line(f"CELL_DATA {len(CELLS)}\nFIELD FieldData 1\nLINES 1 3 int")
            self.numbers([10, 65, 10], "i")

    def points(self, vertices, kind: str) -> None:
        self.line(f"POINTS {len(vertices)} {kind}")
        self.numbers(vertices, kind[0])

    def cells(self, name: str, cells, kind: str = "vtktypeint64") -> None:
        corners = [corner for cell in cells for corner in cell]
        if self.version < "5":
            self.line(f"{name} {len(cells)} {len(cells) + len(corners)}")
            self.numbers([number for cell in cells for number in (len(cell), *cell)], "i")
            return
        self.line(f"{name} {len(cells) + 1} {len(corners)}\nOFFSETS {kind}")
        code = "q" if kind in ("vtktypeint64", "long") else "i"
        self.numbers([0, *np.cumsum([len(cell) for cell in cells]).tolist()], code)
        self.line(f"CONNECTIVITY {kind}")
        self.numbers(corners, code)

    def types(self, types) -> None:
        self.line(f"CELL_TYPES {len(types)}")
        self.numbers(types, "i")


def grid(*, text: bool, version: str, vertices=VERTICES, cells=CELLS, types=(QUAD, TRIANGLE, QUAD)) -> bytes:
    writer = Writer(text=text, version=version)
    writer.points(vertices, "double")
    writer.cells("CELLS", cells)
    writer.types(types)
    return writer.content


def read(folder, content: bytes):
    (folder / "car.vtk").write_bytes(content)
    return read_vtk(folder / "car.vtk")


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("version", ["2.0", "4.2", "5.1"])
@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("dataset", ["UNSTRUCTURED_GRID", "POLYDATA"])
def test_every_form_gives_the_same_mesh(tmp_path, dataset, text, version, kind):
    writer = Writer(text=text, version=version, dataset=dataset)
    writer.fields("before")
    writer.points(VERTICES, kind)
    writer.fields("between")
    writer.cells("POLYGONS" if dataset == "POLYDATA" else "CELLS", CELLS)
    if dataset == "UNSTRUCTURED_GRID":
        writer.types([QUAD, POLYGON, POLYGON])
    writer.fields("after")
    vertices, faces = read(tmp_path, writer.content)
    assert (vertices.dtype, faces.dtype) == (np.float64, np.int64)
    np.testing.assert_array_equal(vertices, VERTICES)
    np.testing.assert_array_equal(faces, FACES)


def test_a_file_as_it_is_printed_in_the_description_of_the_format(tmp_path):
    content = b"""# vtk DataFile Version 3.0

ASCII

DATASET POLYDATA
  POINTS 4 float
0.0 0.0 0.0 1e0 0
0  -1.5 1.0 +0.25
0.1 .5 -2E-1

POLYGONS 2 8
3 0 1 2
3 0 2 3"""
    for newline in (b"\n", b"\r\n"):
        vertices, faces = read(tmp_path, content.replace(b"\n", newline))
        np.testing.assert_allclose(vertices, [[0, 0, 0], [1, 0, 0], [-1.5, 1, 0.25], [0.1, 0.5, -0.2]], atol=1e-8)
        np.testing.assert_array_equal(faces, [[0, 1, 2], [0, 2, 3]])


def test_binary_bytes_that_look_like_text(tmp_path):
    # The coordinates spell names of sections and ends of lines, and no line ends between a section and the next.
    spelt = b"\nCELLS 9 9\n\nPOINTS 3 f\n \nCELL_TYPES\n\n".ljust(48, b" ")
    content = b"# vtk DataFile Version 4.2\n\nBINARY\nDATASET UNSTRUCTURED_GRID\nPOINTS 4 float\n" + spelt
    content += b"CELLS 1 4\n" + struct.pack(">4i", 3, 2, 0, 1) + b"CELL_TYPES 1\n" + struct.pack(">i", TRIANGLE)
    vertices, faces = read(tmp_path, content)
    np.testing.assert_array_equal(vertices, np.reshape(struct.unpack(">12f", spelt), (4, 3)))
    np.testing.assert_array_equal(faces, [[2, 0, 1]])


@pytest.mark.parametrize("kind", ["vtktypeint32", "vtktypeint64", "int", "long"])
@pytest.mark.parametrize("text", [True, False])
def test_offsets_of_32_and_of_64_bits(tmp_path, text, kind):
    writer = Writer(text=text, version="5.1", dataset="POLYDATA")
    writer.points(VERTICES, "float")
    writer.cells("POLYGONS", CELLS, kind)
    np.testing.assert_array_equal(read(tmp_path, writer.content)[1], FACES)


@pytest.mark.parametrize("version", ["4.2", "5.1"])
def test_triangles_among_quads_are_themselves_when_quads_are_split(tmp_path, version):
    _, faces = read(tmp_path, grid(text=True, version=version))
    np.testing.assert_array_equal(triangles_of(faces), [[0, 1, 2], [0, 2, 3], [4, 2, 1], [3, 2, 5], [3, 5, 6]])
    _, faces = read(tmp_path, grid(text=False, version=version, cells=CELLS[1:2], types=[TRIANGLE]))
    np.testing.assert_array_equal(faces, CELLS[1:2])


@pytest.mark.parametrize("version", ["4.2", "5.1"])
@pytest.mark.parametrize("text", [True, False])
def test_a_car_is_read_in_no_time(tmp_path, text, version):
    rng = np.random.default_rng(0)
    wanted, quads = rng.normal(size=(3682, 3)), rng.integers(0, 3682, (3584, 4))
    content = grid(text=text, version=version, vertices=wanted, cells=quads.tolist(), types=[QUAD] * len(quads))
    start = time.process_time()
    vertices, faces = read(tmp_path, content)
    assert time.process_time() - start < 0.2
    np.testing.assert_array_equal(vertices, wanted)
    np.testing.assert_array_equal(faces, quads)


@pytest.mark.parametrize("version", ["4.2", "5.1"])
@pytest.mark.parametrize("text", [True, False])
def test_a_file_that_ends_early_is_refused_wherever_it_ends(tmp_path, text, version):
    content = grid(text=text, version=version)
    for end in range(len(content.rstrip(b"\n ")) - 1):
        with pytest.raises(InputError) as caught:
            read(tmp_path, content[:end])
        assert str(caught.value).startswith(f"{tmp_path / 'car.vtk'}: ")
        assert "\n" not in str(caught.value)


TEXT, NEW_TEXT = grid(text=True, version="4.2"), grid(text=True, version="5.1")
BINARY, NEW_BINARY = grid(text=False, version="4.2"), grid(text=False, version="5.1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable VTK mesh"),
        (b"<VTKFile type='PolyData'>", "not a readable VTK mesh"),
        (TEXT.replace(b"ASCII", b"EBCDIC"), "not a readable VTK mesh"),
        (
            TEXT.replace(b"UNSTRUCTURED", b"STRUCTURED"),
            "holds a STRUCTURED_GRID; expected an UNSTRUCTURED_GRID or POLY",
        ),
        (TEXT.replace(b"POINTS", b"PINTS"), "no section POINTS, or a damaged one"),
        (TEXT.replace(b"POINTS 7", b"POINTS seven"), "no section POINTS, or a damaged one"),
        (TEXT.replace(b"double", b"quadruple"), "POINTS of type quadruple; expected float, double"),
        (TEXT.replace(b"POINTS 7", b"POINTS 0"), "POINTS promises 0 numbers; expected 1 to"),
        (TEXT.replace(b"POINTS 7", b"POINTS 8"), "POINTS promises 24 numbers, but has 21"),
        (TEXT.replace(b"POINTS 7", b"POINTS 6"), "POINTS promises 18 numbers, but has 21"),
        (TEXT.replace(b"-3.0", b"left"), "POINTS holds a word that is not of type double"),
        (TEXT.replace(b"CELLS 3 14", b"CELLS 3 14.0"), "no section CELLS"),
        (TEXT.replace(b"CELLS 3", b"CELLS 4"), "the 14 numbers of CELLS are not 4 lists of corners"),
        (TEXT.replace(b"4 0 1 2 3", b"9 0 1 2 3"), "the 14 numbers of CELLS are not 3 lists of corners"),
        (TEXT.replace(b"4 0 1 2 3", b"-1 0 1 2 3"), "the 14 numbers of CELLS are not 3 lists of corners"),
        (TEXT.replace(b"4 0 1 2 3", b"4 0 1 2 7"), "a face has vertex 7; there are 7 vertices, numbered from 0"),
        (TEXT.replace(b"4 0 1 2 3", b"4 0 1 2 -3"), "a face has vertex -3; there are 7 vertices"),
        (TEXT.replace(b"4 0 1 2 3", b"4 0 1 2 3.5"), "CELLS holds a word that is not of type int"),
        (TEXT.replace(b"CELL_TYPES 3", b"CELL_TYPES 2"), "2 CELL_TYPES for 3 CELLS"),
        (TEXT.replace(b"9 5 9", b"9 9 9"), "cell 1 has VTK type 9 and 3 corners"),
        (TEXT.replace(b"9 5 9", b"9 5 10"), r"cell 2 has VTK type 10 and 4 corners; expected triangles \(5\), quads"),
        (grid(text=True, version="4.2", cells=[range(5)], types=[POLYGON]), "cell 0 has VTK type 7 and 5 corners"),
        (NEW_TEXT.replace(b"0 4 7 11", b"0 7 4 11"), "OFFSETS do not rise from 0 to the number of corners, 11"),
        (NEW_TEXT.replace(b"0 4 7 11", b"0 4 7 12"), "OFFSETS do not rise from 0"),
        (NEW_TEXT.replace(b"0 4 7 11", b"1 4 7 11"), "OFFSETS do not rise from 0"),
        (NEW_TEXT.replace(b"CONN", b"CON"), "no section CONNECTIVITY"),
        (NEW_TEXT.replace(b"OFFSETS vtktypeint64", b"OFFSETS bit"), "OFFSETS of type bit; expected int, vtktypeint32"),
        (BINARY.replace(b"POINTS 7", b"POINTS 63000000000"), "POINTS promises 189000000000 numbers; expected 1 to"),
        (BINARY.replace(b"CELLS 3 14", b"CELLS 3 99999999999"), "CELLS promises 99999999999 numbers; expected 1 to"),
        (NEW_BINARY.replace(b"CELLS 4 11", b"CELLS 99999999 11"), "OFFSETS promises 99999999 numbers; expected 1 to"),
        (NEW_BINARY.replace(b"CELLS 4 11", b"CELLS 0 0"), "OFFSETS promises 0 numbers; expected 1 to"),
    ],
)
def test_what_is_refused(tmp_path, content, message):
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path / 'car.vtk'}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", ["4.2", "5.1"])
@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize(("before", "name"), [(True, "VERTICES"), (True, "LINES"), (False, "TRIANGLE_STRIPS")])
def test_polydata_of_other_cells_is_refused(tmp_path, before, name, text, version):
    writer = Writer(text=text, version=version, dataset="POLYDATA")
    writer.points(VERTICES, "float")
    for section in (name, "POLYGONS") if before else ("POLYGONS", name):
        writer.cells(section, CELLS)
    with pytest.raises(InputError, match=rf"car\.vtk: holds {name}; expected POLYGONS alone"):
        read(tmp_path, writer.content)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.vtk: missing"):
        read_vtk(tmp_path / "nothing.vtk")
