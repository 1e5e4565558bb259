"""A car: points on a closed surface, their pressure and their outward normals.

Axes are those of ShapeNet-Car: x lateral, y up, z streamwise with the nose at −z.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from crossreg.cars.meshes.normals import area_vectors, edges_of, estimate_normals, turn_outward, vertex_normals
from crossreg.errors import InputError, say

# Points this close to a plane, relative to their spread, have no volume in single precision.
_FLAT = 1e-6
# The mean cosine of given normals and those of the surface: above 0.97 in all cars that were examined, below 0.55 where
# two axes are exchanged.
_OTHER_NORMALS = 0.8


@dataclass(frozen=True)
class Surface:
    """One car. `normals` have length 1 and point out of the body; `faces` is None if the source has none."""

    name: str
    vertices: Float[np.ndarray, "vertex 3"]
    normals: Float[np.ndarray, "vertex 3"]
    pressure: Float[np.ndarray, " vertex"]
    faces: Int[np.ndarray, "face 3"] | None = None


def make_surface(
    name: str,
    vertices: np.ndarray,
    pressure: np.ndarray | None,
    faces: np.ndarray | None = None,
    normals: np.ndarray | None = None,
) -> Surface:
    """Make a car from checked arrays, with outward normals. An open mesh prints a warning.

    Args:
        name: the car's name, for messages.
        vertices: (vertex, 3).
        pressure: (vertex,) or (vertex, 1); None, for a car to predict for, becomes 0.
        faces: triangles (face, 3) or quads (face, 4), in any winding.
        normals: (vertex, 3) of any length, all outward or all inward; by default computed from the faces, or from the
            points if there are no faces.

    Raises:
        InputError: if the arrays are no closed surface with a finite field on it.
    """
    vertices = _numbers(name, "vertices", vertices, "(vertex, 3)")
    if vertices.ndim != 2 or vertices.shape[1] != 3:
        raise InputError(f"car {name}: vertices have shape {vertices.shape}; expected (vertex, 3)")
    _check_extent(name, vertices)
    pressure = np.zeros(len(vertices)) if pressure is None else _check_pressure(name, pressure, len(vertices))
    if faces is None:
        outward = estimate_normals(vertices)
    else:
        faces = turn_outward(vertices, _check_faces(name, vertices, faces))
        _warn_if_open(name, faces)
        outward = vertex_normals(vertices, faces)
        if (without := np.flatnonzero(~outward.any(axis=1))).size:
            raise InputError(
                f"car {name}: vertex {without[0]} has no normal, since its faces together have no area;"
                " merge vertices that coincide, or leave out the faces: normals are then estimated from the points"
            )
    if normals is not None:
        outward = _check_normals(name, normals, outward)
    return Surface(name, vertices, outward, pressure, faces)


def _numbers(name: str, what: str, array: np.ndarray, shape: str) -> Float[np.ndarray, "..."]:
    """Return a copy in double precision of an array of finite real numbers."""
    array = np.asarray(array)
    if array.dtype.kind not in "fiu":
        raise InputError(f"car {name}: {what} of type {array.dtype}; expected real numbers, {shape}")
    with np.errstate(over="ignore"):
        finite = np.isfinite(array.astype(np.float32))
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise InputError(
            f"car {name}: {what} not finite, as float32, in {np.sum(~finite)} places, the first at index {where}"
        )
    return np.array(array, np.float64)


def _check_pressure(name: str, pressure: np.ndarray, num_vertices: int) -> Float[np.ndarray, " vertex"]:
    pressure = _numbers(name, "pressure", pressure, "(vertex,) or (vertex, 1)")
    if pressure.shape not in ((pressure.size,), (pressure.size, 1)):
        raise InputError(f"car {name}: pressure has shape {pressure.shape}; expected (vertex,) or (vertex, 1)")
    if pressure.size != num_vertices:
        raise InputError(
            f"car {name}: {pressure.size} pressure values for {num_vertices} vertices; expected one for each"
        )
    if np.ptp(pressure) <= 1e-12 * np.abs(pressure).max():
        raise InputError(f"car {name}: pressure is {pressure.flat[0]:g} everywhere; expected a field that varies")
    return pressure.ravel()


def axes_warning(cars: Sequence[Surface]) -> str | None:
    """Return a warning if cars are longest along another axis than z, else None."""
    longest = [int(np.argmax(np.ptp(car.vertices, axis=0))) for car in cars]
    if not (wrong := [number for number, axis in enumerate(longest) if axis != 2]):
        return None
    first = wrong[0]
    return (
        f"{len(wrong)} of {len(cars)} cars are longest along another axis than z, the first, {cars[first].name}, along"
        f" {'xyz'[longest[first]]}; expected x lateral, y up, z streamwise with the nose at -z"
    )


def _check_extent(name: str, vertices: Float[np.ndarray, "vertex 3"]) -> None:
    if len(vertices) < 4:
        raise InputError(f"car {name}: degenerate mesh of {len(vertices)} vertices; a body needs at least 4")
    centred = vertices - vertices.mean(axis=0)
    least, _, most = np.sqrt(np.linalg.eigvalsh(centred.T @ centred).clip(0))
    if least <= _FLAT * most:
        raise InputError(f"car {name}: degenerate mesh, its {len(vertices)} vertices all lie in a plane")


def _check_faces(name: str, vertices: Float[np.ndarray, "vertex 3"], faces: np.ndarray) -> Int[np.ndarray, "face 3"]:
    """Return the faces as triangles, which must use all vertices."""
    faces = np.asarray(faces)
    if faces.ndim != 2 or faces.shape[1] not in (3, 4) or faces.dtype.kind not in "iu" or not len(faces):
        raise InputError(
            f"car {name}: faces of type {faces.dtype} and shape {faces.shape};"
            " expected vertex numbers, (face, 3) or (face, 4)"
        )
    if faces.min() < 0 or faces.max() >= len(vertices):
        wrong = faces.min() if faces.min() < 0 else faces.max()
        raise InputError(f"car {name}: a face has vertex {wrong}; there are {len(vertices)} vertices, numbered from 0")
    triangles = triangles_of(faces.astype(np.int64))
    # A quad may be a triangle that repeats its last corner.
    repeated = len(faces) - len(triangles) if faces.shape[1] == 3 else 0
    area = np.linalg.norm(area_vectors(vertices, triangles), axis=1).sum()
    if area <= _FLAT**2 * np.ptp(vertices) ** 2:
        raise InputError(f"car {name}: degenerate mesh, its faces have no area")
    used = np.unique(triangles)
    if len(used) != len(vertices):
        missing = np.setdiff1d(np.arange(len(vertices)), used)[0]
        dropped = f", without {repeated} faces that have a corner twice" if repeated else ""
        raise InputError(
            f"car {name}: {len(vertices)} vertices, but the faces use only {len(used)} of them{dropped}; the first of"
            f" the others is {missing}: remove those and their pressure, or give no faces"
        )
    return triangles


def triangles_of(faces: Int[np.ndarray, "face corner"]) -> Int[np.ndarray, "triangle 3"]:
    """Split quads (a, b, c, d) into triangles (a, b, c) and (a, c, d); drop triangles with a repeated corner."""
    if faces.shape[1] == 4:
        faces = faces[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)
    return faces[(faces != np.roll(faces, 1, axis=1)).all(axis=1)]


def _warn_if_open(name: str, faces: Int[np.ndarray, "face 3"]) -> None:
    _, count = edges_of(faces)
    if num_open := int(np.sum(count != 2)):
        edges = f"{num_open} of its {len(count)} edges do not have two faces"
        say(f"car {name}: open mesh: {edges}; normals may point inwards there")


def _check_normals(
    name: str, normals: np.ndarray, outward: Float[np.ndarray, "vertex 3"]
) -> Float[np.ndarray, "vertex 3"]:
    """Return given normals at length 1, turned to the side of `outward`."""
    normals = _numbers(name, "normals", normals, "(vertex, 3)")
    if normals.shape != outward.shape:
        raise InputError(f"car {name}: normals have shape {normals.shape}; the vertices have {outward.shape}")
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    if not length.all():
        raise InputError(f"car {name}: the normal of vertex {int(np.argmin(length))} has no length")
    cosine = float(np.mean(np.sum(normals / length * outward, axis=1)))
    if abs(cosine) < _OTHER_NORMALS:
        raise InputError(
            f"car {name}: its normals are not those of its surface, with a mean cosine of {abs(cosine):.2f} between"
            " them: give them along the axes of the vertices and all outward, or leave them out"
        )
    return normals / length * np.sign(cosine)
