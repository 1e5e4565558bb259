"""What the reference computed for two real cars: normals, torus, channels and the cost of its map.

`reference_facts.npz` holds these numbers at 24 vertices of each car, with the triangles around them, and for the map
the means of 256 groups of vertices: no mesh, and 20 kB. Beside the real cars, the same tests take all their vertices
too. The file is made from those cars by `python tests/cars/reference_facts.py FOLDER`.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crossreg.cars.meshes.readers import find_cars

GRID = 103
NAMES = ("001", "002")
_FILE = Path(__file__).with_suffix(".npz")


class CarFacts(NamedTuple):
    """One car, in whole or in part."""

    vertices: np.ndarray  # (vertex, 3)
    faces: np.ndarray  # (face, 3), wound outward
    rows: np.ndarray  # (row,) the vertices that have all their faces
    normals: np.ndarray  # (row, 3) the reference's normals of these
    cells: np.ndarray  # (cell,) cells of the torus, as flat numbers
    encode: np.ndarray  # (cell,) the vertex that the reference maps to each of them
    positions: np.ndarray  # (cell, 3) where that vertex is, as the reference has it
    torus: np.ndarray  # (cell, 3) the reference's torus there
    torus_normals: np.ndarray  # (cell, 3)
    points: np.ndarray  # (point, 3) what is mapped onto the torus, to compare its cost with the reference's
    cost: np.ndarray  # () the mean squared distance of the reference's map, of all vertices


def whole_facts(folder: Path, name: str) -> CarFacts:
    """All that the reference says of a car in the folder of the real ones."""
    surface = find_cars(folder).read(name)
    assert surface.faces is not None
    with np.load(folder / "reference_transport.npz") as stored:
        torus, encode, target = stored["torus"], stored[f"{name}_ind_enc"], stored[f"{name}_target"]
        return CarFacts(
            vertices=surface.vertices,
            faces=surface.faces,
            rows=np.arange(len(surface.vertices)),
            normals=stored[f"{name}_nor_t"],
            cells=np.arange(GRID**2),
            encode=encode,
            positions=target[encode],
            torus=torus,
            torus_normals=stored["torus_normals"].reshape(-1, 3),
            points=target,
            cost=np.mean(np.sum((torus.astype(np.float64) - target[encode]) ** 2, axis=1)),
        )


def stored_facts(name: str) -> CarFacts:
    """The part that is in the repository."""
    with np.load(_FILE) as stored:
        return CarFacts(*(stored[f"{name}_{field}"] for field in CarFacts._fields))


def _excerpt(whole: CarFacts, num_rows: int = 24, halvings: int = 8) -> CarFacts:
    rows = np.linspace(0, len(whole.vertices) - 1, num_rows).astype(int)
    kept, corners = np.unique(whole.faces[np.isin(whole.faces, rows).any(axis=1)], return_inverse=True)
    there = np.isin(whole.encode, rows)
    groups = [whole.points]
    for _ in range(halvings):
        groups = [half for group in groups for half in _halves(group)]
    return whole._replace(
        vertices=whole.vertices[kept],
        faces=corners.reshape(-1, 3),
        rows=np.searchsorted(kept, rows),
        normals=whole.normals[rows],
        cells=whole.cells[there],
        encode=np.searchsorted(kept, whole.encode[there]),
        positions=whole.positions[there],
        torus=whole.torus[there],
        torus_normals=whole.torus_normals[there],
        points=np.array([group.mean(axis=0) for group in groups]),
    )


def _halves(points: np.ndarray) -> list[np.ndarray]:
    """Points on either side of the median along their longest extent."""
    order = np.argsort(points[:, np.ptp(points, axis=0).argmax()], kind="stable")
    return np.array_split(points[order], 2)


if __name__ == "__main__":
    found = {name: _excerpt(whole_facts(Path(sys.argv[1]), name)) for name in NAMES}
    arrays = {f"{name}_{field}": value for name, facts in found.items() for field, value in facts._asdict().items()}
    np.savez_compressed(_FILE, allow_pickle=False, **arrays)
