"""PLY files against trimesh, and in the encodings and mixtures that it does not read."""

import numpy as np
import pytest
import trimesh
from trimesh.exchange.ply import export_ply, load_ply

from crossreg.cars.meshes.ply_files import read_ply
from crossreg.errors import InputError

BOX = trimesh.creation.icosphere(subdivisions=2)


def ply(encoding: str, elements: str, body: bytes) -> bytes:
    return f"ply\nformat {encoding} 1.0\ncomment made up\n{elements}end_header\n".encode() + body


@pytest.mark.parametrize("encoding", ["ascii", "binary"])
@pytest.mark.parametrize("normals", [False, True])
def test_what_trimesh_writes_is_read_as_trimesh_reads_it(tmp_path, encoding, normals):
    written = export_ply(BOX, encoding=encoding, vertex_normal=normals)
    (tmp_path / "a.ply").write_bytes(written if isinstance(written, bytes) else written.encode())
    vertices, faces = read_ply(tmp_path / "a.ply")
    with (tmp_path / "a.ply").open("rb") as file:
        wanted = load_ply(file)
    np.testing.assert_allclose(vertices, wanted["vertices"], rtol=1e-7)
    np.testing.assert_array_equal(faces, wanted["faces"])
    assert (vertices.dtype, len(faces if faces is not None else [])) == (np.float64, 320)


def test_released_cars_are_as_trimesh_has_them(released_cars):
    for path in sorted(released_cars.glob("**/*.ply")):
        vertices, faces = read_ply(path)
        with path.open("rb") as file:
            wanted = load_ply(file)
        np.testing.assert_array_equal(vertices, wanted["vertices"])
        np.testing.assert_array_equal(faces, wanted["faces"])


VERTICES = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 2]])
LISTS = [[0, 1, 2, 3], [0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]]
TRIANGLES = [[0, 1, 2], [0, 2, 3], *LISTS[1:]]


@pytest.mark.parametrize("encoding", ["ascii", "binary_little_endian", "binary_big_endian"])
@pytest.mark.parametrize("name", ["vertex_indices", "vertex_index"])
def test_quads_among_triangles_with_much_else_around(tmp_path, encoding, name):
    """Colours behind the coordinates, an element before and one behind, and a list of texture in every face."""
    order = ">" if "big" in encoding else "<"
    elements = (
        "element camera 2\nproperty float a\nproperty list uchar short b\n"
        "element vertex 5\nproperty float x\nproperty float y\nproperty double z\nproperty uchar red\n"
        f"element face 5\nproperty uchar flag\nproperty list uchar int {name}\nproperty list ushort float texcoord\n"
        "element edge 0\nproperty int vertex1\n"
    )
    rows: list[list[tuple[str, list[float]]]] = [[("f4", [0.5]), ("u1", [n]), ("i2", [7] * n)] for n in (0, 3)]
    rows += [[("f4", row[:2].tolist()), ("f8", row[2:].tolist()), ("u1", [9])] for row in VERTICES]
    rows += [[("u1", [1, len(c)]), ("i4", [*c]), ("u2", [len(c)]), ("f4", [0.25] * len(c))] for c in LISTS]
    if encoding == "ascii":
        lines = [" ".join(f"{value:g}" for _, values in row for value in values) for row in rows]
        body = ("\r\n".join(lines) + "\r\n").encode()
    else:
        body = b"".join(np.array(values, order + kind).tobytes() for row in rows for kind, values in row)
    (tmp_path / "a.ply").write_bytes(ply(encoding, elements, body))
    vertices, faces = read_ply(tmp_path / "a.ply")
    np.testing.assert_array_equal(vertices, VERTICES)
    np.testing.assert_array_equal(faces, TRIANGLES)


POINT = "element vertex 1\nproperty float x\nproperty float y\nproperty float z\n"
FACE = "element face 1\nproperty list uchar int vertex_indices\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (ply("ascii", POINT + FACE, b"0 0 0\n2 0 0\n"), "face 0 has 2 corners; expected 3 or 4"),
        (ply("ascii", POINT + FACE, b"0 0 0\n5 0 0 0 0 0\n"), "face 0 has 5 corners"),
        (ply("ascii", POINT + FACE, b"0 0 0\n-3 0 0 0\n"), "a list of -3 values"),
        (ply("ascii", POINT + FACE, b"0 0 0\n3 0 0 0.5\n"), "not whole"),
        (ply("ascii", POINT + FACE, b"0 0 0\n3 0 0 nan\n"), "not whole"),
        (ply("ascii", POINT + FACE, b"0 0 0\n3 0 0 a\n"), "a word that is not a number"),
        (ply("ascii", POINT + FACE.replace(" int ", " float "), b"0 0 0\n3 0 0 0\n"), "not lists of whole numbers"),
        (ply("ascii", POINT + FACE.replace("vertex_indices", "corners"), b"0 0 0\n3 0 0 0\n"), "named vertex_indices"),
        (ply("ascii", POINT, b"0 0 0 1\n"), "1 numbers follow its last row"),
        (ply("binary_little_endian", POINT, bytes(13)), "1 bytes follow its last row"),
        (ply("binary_little_endian", POINT, bytes(11)), "promises 1 vertices and 0 faces, but ends before them"),
        (ply("ascii", POINT.replace(" z", " w"), b"0 0 0\n"), "no vertices with x, y and z"),
        (ply("ascii", POINT.replace(" z", " y"), b"0 0 0\n"), "or one of them twice"),
        (ply("ascii", POINT + POINT, b"0 0 0\n" * 2), "an element twice"),
        (ply("ascii", POINT.replace("float", "quad"), b"0 0 0\n"), "its header has the line 'property quad x'"),
        (ply("ascii", "property float x\n", b"0\n"), "its header has the line 'property float x'"),
        (ply("ebcdic", POINT, b"0 0 0\n"), "its header has the line 'format ebcdic 1.0'"),
        (ply("ascii", "element vertex 1\n", b""), "an element has no properties"),
        (b"ply\n" + POINT.encode() + b"end_header\n0 0 0\n", "names no format"),
    ],
)
def test_what_is_no_mesh_is_named(tmp_path, content, said):
    (tmp_path / "a.ply").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_ply(tmp_path / "a.ply")
    assert said in str(caught.value)


def test_a_text_whose_first_face_is_shorter_than_others(tmp_path):
    mixed = [LISTS[1], LISTS[0], *LISTS[2:]]
    elements = POINT.replace("vertex 1", "vertex 5") + FACE.replace("face 1", "face 5")
    elements += "property list uchar float texcoord\n"
    points = "".join(" ".join(map(str, row)) + "\n" for row in VERTICES.tolist())
    faces = "".join(f"{len(c)} {' '.join(map(str, c))} 1 0.25\n" for c in mixed)
    (tmp_path / "a.ply").write_bytes(ply("ascii", elements, (points + faces).encode()))
    vertices, faces = read_ply(tmp_path / "a.ply")
    np.testing.assert_array_equal(vertices, VERTICES)
    np.testing.assert_array_equal(faces, triangles_of_lists(mixed))


def triangles_of_lists(lists):
    return [corners for c in lists for corners in ([c[:3], [c[0], c[2], c[3]]] if len(c) == 4 else [c])]


def test_points_alone_have_no_faces(tmp_path):
    (tmp_path / "a.ply").write_bytes(ply("ascii", POINT, b"1 2 3\n"))
    vertices, faces = read_ply(tmp_path / "a.ply")
    np.testing.assert_array_equal(vertices, [[1, 2, 3]])
    assert faces is None
