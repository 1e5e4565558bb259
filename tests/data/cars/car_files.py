"""Files of cars in every layout, as tests write them."""

import io
from pathlib import Path

import numpy as np

from crossreg.data.cars.surface import make_surface

# The sizes of ShapeNet-Car's surface and of its pressure: 22 · 163 = 3586.
SHAPENET, SHAPENET_VALUES = (22, 163), 3682


def body(around: int, tube: int):
    """Vertices, quads and a pressure on a ring with a tube of its own width."""
    u, v = np.meshgrid(2 * np.pi * np.arange(around) / around, 2 * np.pi * np.arange(tube) / tube, indexing="ij")
    radius = 2 + np.cos(v)
    vertices = np.stack([radius * np.cos(u), np.sin(v), radius * np.sin(u)], axis=-1).reshape(-1, 3)
    number = np.arange(around * tube).reshape(around, tube)
    ahead = np.roll(number, -1, axis=0)
    quads = np.stack([number, ahead, np.roll(ahead, -1, axis=1), np.roll(number, -1, axis=1)], axis=-1).reshape(-1, 4)
    return vertices, quads, -35 + 40 * np.cos(vertices[:, 2])


def triangles(quads):
    return quads[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)


def ply(vertices, faces=None, *, text: bool = False) -> bytes:
    """A PLY file as Open3D writes it: double xyz, triangles of unsigned integers."""
    header = f"ply\nformat {'ascii' if text else 'binary_little_endian'} 1.0\nelement vertex {len(vertices)}\n"
    header += "".join(f"property double {axis}\n" for axis in "xyz")
    if faces is not None:
        header += f"element face {len(faces)}\nproperty list uchar uint vertex_indices\n"
    rows = [] if faces is None else faces
    if text:
        lines = [" ".join(map(repr, row)) for row in vertices.tolist()]
        lines += [" ".join(map(str, (len(row), *row))) for row in rows]
        return (header + "end_header\n" + "\n".join(lines) + "\n").encode()
    count = 3 if faces is None else faces.shape[1]
    packed = np.array([(count, row) for row in rows], dtype=[("count", "u1"), ("corners", "<u4", (count,))])
    return (header + "end_header\n").encode() + vertices.astype("<f8").tobytes() + packed.tobytes()


def vtk(vertices, quads) -> str:
    """A legacy VTK file of quads, as in the original release."""
    lines = [
        "# vtk DataFile Version 2.0",
        "car",
        "ASCII",
        "DATASET UNSTRUCTURED_GRID",
        f"POINTS {len(vertices)} double",
    ]
    lines += [" ".join(map(repr, row)) for row in vertices.tolist()]
    lines += [f"CELLS {len(quads)} {5 * len(quads)}", *(f"4 {' '.join(map(str, row))}" for row in quads)]
    return "\n".join([*lines, f"CELL_TYPES {len(quads)}", *["9"] * len(quads), ""])


def npy_promising(shape: tuple[int, ...]) -> bytes:
    """An NPY file whose header promises an array that it does not hold."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(80)


def write(path: Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_neuraloperator(folder: Path, sizes: dict[str, tuple[int, int]]) -> None:
    for name, size in sizes.items():
        vertices, quads, pressure = body(*size)
        write(folder / "data" / name / "tri_mesh.ply", ply(vertices, triangles(quads)))
        write(folder / "data" / name / "press.npy", pressure)


def check_body(surface, size: tuple[int, int], *, rtol: float = 1e-12) -> None:
    vertices, quads, pressure = body(*size)
    wanted = make_surface("wanted", vertices, pressure, quads)
    np.testing.assert_allclose(surface.vertices, wanted.vertices, rtol, atol=rtol)
    np.testing.assert_allclose(surface.pressure, wanted.pressure, rtol, atol=rtol)
    np.testing.assert_allclose(surface.normals, wanted.normals, rtol, atol=1e-9 + rtol)
