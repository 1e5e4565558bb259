"""Files of cars in every layout, as tests write them."""

import io
import os
from pathlib import Path

import numpy as np

from crossreg.cars.meshes.surface import make_surface

# The sizes of ShapeNet-Car's surface and of its pressure: 22 · 163 = 3586.
SHAPENET, SHAPENET_VALUES = (22, 163), 3682
# Four real cars, and beside them the reference's maps: no part of the repository.
_FOLDER = os.environ.get("CROSSREG_CARS") or Path(__file__).parents[2] / "shared" / "cars"
REAL_CARS = Path(_FOLDER) / "neuraloperator_mini"


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


def write_stand_ins(folder: Path) -> None:
    """Four made-up cars as neuraloperator's mini set has them: layout, sizes, axes, and about its pressures.

    A surface of 64 rings of 56 vertices and two ends has the 3,586 vertices and 7,168 triangles of ShapeNet-Car. Like
    there, vertices correspond, cars differ in shape, a few quads are cut along the other diagonal, and the file of the
    pressure holds 96 values more.
    """
    rings, around = 64, 56
    polar = np.repeat(np.pi * np.arange(1, rings + 1) / (rings + 1), around)
    angle = np.tile(2 * np.pi * np.arange(around) / around, rings)
    number = np.arange(rings * around).reshape(rings, around)
    ahead, beside, across = number[1:], np.roll(number[:-1], -1, axis=1), np.roll(number[1:], -1, axis=1)
    quads = np.stack([number[:-1], beside, across, ahead], axis=-1).reshape(-1, 4)
    nose, rear = rings * around, rings * around + 1
    sides = [(nose, number[0]), (rear, number[-1])]
    ends = [np.stack([np.full(around, end), ring, np.roll(ring, 1)], axis=-1) for end, ring in sides]
    order = np.random.default_rng(0).permutation(rear + 1)
    for place, name in enumerate(("001", "002", "004", "005")):
        height, slope, phase = 1.2 + 0.05 * place, 0.1 + 0.1 * place, 0.9 * place
        along, radius = -np.cos(polar), np.sqrt(np.sin(polar))
        x, y = 0.9 * radius * np.cos(angle), height / 2 * radius * np.sin(angle)
        vertices = np.stack([x, y, 2.2 * along + slope * y * radius], axis=-1)
        vertices = np.concatenate([vertices, [[0, 0, -2.2], [0, 0, 2.2]]])
        vertices[:, 1] += 0.1 + height / 2
        facing = np.append(-along, [1, -1]).clip(0) ** 16
        pressure = 205 * facing - 75 + 16 * np.sin(3 * vertices[:, 2] + phase) + 30 * vertices[:, 1] * (1 - facing)
        turned = np.where((np.arange(len(quads)) % 97 == place)[:, None], np.roll(quads, 1, axis=1), quads)
        faces = order[np.concatenate([triangles(turned), *ends])]
        inside = np.full(SHAPENET_VALUES - len(order), 1e3)
        own = folder / "neuraloperator_mini" / "data" / name
        write(own / "tri_mesh.ply", ply(vertices[np.argsort(order)], faces))
        write(own / "press.npy", np.insert(pressure[np.argsort(order)], 16, inside))
    write(folder / "neuraloperator_mini" / "train.txt", "001,002,004")
    write(folder / "neuraloperator_mini" / "test.txt", "005")


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
