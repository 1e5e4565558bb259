"""Surfaces: normals against closed forms, meshes in any winding, and what is refused."""

import dataclasses

import numpy as np
import pytest

from crossreg.cars.meshes.normals import estimate_normals, turn_outward, vertex_normals
from crossreg.cars.meshes.surface import axes_warning, make_surface
from crossreg.errors import InputError


def torus(around: int = 37, tube: int = 22, major: float = 1.0, minor: float = 0.4):
    """Vertices, quads (wound outward) and exact normals of a torus: closed, smooth and not convex."""
    u, v = np.meshgrid(2 * np.pi * np.arange(around) / around, 2 * np.pi * np.arange(tube) / tube, indexing="ij")
    normals = np.stack([np.cos(v) * np.cos(u), np.cos(v) * np.sin(u), np.sin(v)], axis=-1).reshape(-1, 3)
    centre = np.stack([np.cos(u), np.sin(u), 0 * u], axis=-1).reshape(-1, 3)
    number = np.arange(around * tube).reshape(around, tube)
    ahead, up = np.roll(number, -1, axis=0), np.roll(number, -1, axis=1)
    quads = np.stack([number, ahead, np.roll(ahead, -1, axis=1), up], axis=-1).reshape(-1, 4)
    return major * centre + minor * normals, quads, normals


def notchback(length: int = 30, width: int = 12, height: int = 6):
    """Vertices and quads of a car of cubes: a slab with a cabin on it, sharp edges and two inner corners.

    The quads are wound this way and that.
    """
    solid = np.zeros((width + 2, 2 * height + 2, length + 2), bool)
    solid[1:-1, 1 : height + 1, 1:-1] = True
    solid[1:-1, height + 1 : -1, 9:23] = True
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    quads = []
    for axis in range(3):
        for side in (0, 1):
            exposed = np.argwhere(solid & ~np.roll(solid, 1 - 2 * side, axis=axis))
            quads.append(exposed[:, None] + np.insert(corners, axis, side, axis=1))
    used, number = np.unique(np.concatenate(quads).reshape(-1, 3), axis=0, return_inverse=True)
    return used.astype(float), number.reshape(-1, 4)


def field(vertices: np.ndarray) -> np.ndarray:
    """A pressure that varies along the last axis."""
    return -35 + 40 * np.cos(vertices[:, 2]) + vertices[:, 0]


def volume(vertices: np.ndarray, faces: np.ndarray) -> float:
    return float(np.linalg.det(vertices[faces]).sum() / 6)


def test_normals_and_volume_of_a_torus_are_its_own():
    vertices, quads, normals = torus()
    surface = make_surface("torus", vertices, field(vertices), quads)
    assert surface.faces is not None
    assert surface.faces.shape == (2 * len(quads), 3)
    assert volume(surface.vertices, surface.faces) == pytest.approx(2 * np.pi**2 * 0.4**2, rel=0.02)
    # The quads' diagonals tilt the normals a little, less on a finer mesh.
    errors = []
    for size in (1, 2):
        vertices, quads, normals = torus(37 * size, 22 * size)
        surface = make_surface("torus", vertices, field(vertices), quads)
        errors.append(np.abs(surface.normals - normals).max())
    assert errors[0] < 0.05
    assert errors[1] < 0.6 * errors[0]


def test_vertex_normals_weigh_by_area():
    # Three right-angled triangles meet in the origin; their areas are 3/2, 3/2 and 2.
    vertices = np.array([[0.0, 0, 0], [2, 0, 0], [0, 2, 0], [0, 0, 1.5]])
    faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    expected = -np.array([3.0, 3.0, 4.0])
    np.testing.assert_allclose(vertex_normals(vertices, faces)[0], expected / np.linalg.norm(expected))


@pytest.mark.parametrize("wound", ["inward", "some", "second piece"])
def test_triangles_are_turned_outward(wound):
    vertices, quads, normals = torus(19, 11)
    triangles = quads[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)
    far = np.array([0.2, 7.0, -3.0])
    vertices, normals = np.concatenate([vertices, 0.3 * vertices + far]), np.tile(normals, (2, 1))
    triangles = np.concatenate([triangles, triangles + len(vertices) // 2])
    turned = {
        "inward": np.ones(len(triangles), bool),
        "some": np.random.default_rng(0).random(len(triangles)) < 0.4,
        "second piece": np.arange(len(triangles)) >= len(triangles) // 2,
    }[wound]
    given = np.where(turned[:, None], triangles[:, ::-1], triangles)
    np.testing.assert_array_equal(np.sort(turn_outward(vertices, given)), np.sort(triangles))
    surface = make_surface("two", vertices, field(vertices), given)
    np.testing.assert_allclose(surface.normals, vertex_normals(vertices, triangles), atol=1e-12)
    assert np.einsum("vi,vi->v", surface.normals, normals).min() > 0.95


def test_normals_from_the_points_of_a_smooth_body():
    vertices, _, normals = torus(61, 29)
    surface = make_surface("cloud", vertices, field(vertices))
    assert surface.faces is None
    np.testing.assert_allclose(np.linalg.norm(surface.normals, axis=1), 1)
    cosine = np.einsum("vi,vi->v", surface.normals, normals)
    assert cosine.min() > np.cos(np.radians(3))


def test_normals_from_the_points_of_a_body_with_edges_and_steps():
    vertices, quads = notchback()
    surface = make_surface("steps", vertices, field(vertices), quads)
    assert surface.faces is not None
    assert volume(surface.vertices, surface.faces) == pytest.approx(12 * 6 * 30 + 12 * 6 * 14)
    cosine = np.einsum("vi,vi->v", estimate_normals(vertices), surface.normals)
    assert np.mean(cosine > 0) >= 0.99
    # Exact on the flats, which most points are on; at an edge there is no one normal.
    angle = np.degrees(np.arccos(cosine.clip(-1, 1)))
    assert np.median(angle) < 1e-3
    assert angle.mean() < 8


def test_normals_from_scattered_points_and_of_separate_pieces():
    rng = np.random.default_rng(3)
    u, v = rng.uniform(0, 2 * np.pi, (2, 1500))
    tube = np.stack([np.cos(v) * np.cos(u), np.cos(v) * np.sin(u), np.sin(v)], axis=1)
    ball = rng.normal(size=(400, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    ring = np.stack([np.cos(u), np.sin(u), 0 * u], axis=1)
    points = np.concatenate([ring + 0.4 * tube, 0.3 * ball + [3.0, 1.0, 0.0]])
    # Another order, and another scale of each axis, are the same body to the estimate.
    order = rng.permutation(len(points))
    normals = np.concatenate([tube, ball])[order]
    assert np.mean(np.einsum("vi,vi->v", estimate_normals(points[order]), normals) > 0) >= 0.99
    scale = np.array([1.0, 3.0, 0.5])
    assert np.mean(np.einsum("vi,vi->v", estimate_normals(points[order] * scale), normals / scale) > 0) >= 0.99


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("with_faces", [True, False])
def test_given_normals_are_kept_but_for_length_and_side(sign, with_faces):
    vertices, quads, normals = torus(19, 11)
    given = sign * 2.5 * normals
    surface = make_surface("given", vertices, field(vertices), quads if with_faces else None, given)
    np.testing.assert_allclose(surface.normals, normals, atol=1e-12)


def test_other_types_and_shapes_of_the_same_arrays():
    vertices, quads, _ = torus(13, 7)
    vertices = vertices.astype(np.float32)
    pressure = np.arange(len(vertices))[:, None]
    surface = make_surface("types", vertices, pressure, quads.astype(np.uint32))
    assert surface.pressure.shape == (13 * 7,)
    assert surface.vertices.dtype == surface.pressure.dtype == surface.normals.dtype == np.float64
    # A quad with two corners in one place is a triangle.
    doubled = np.column_stack([quads[:, :3], quads[:, 2]])
    rest = np.column_stack([quads[:, [0, 2, 3]], quads[:, 3]])
    same = make_surface("doubled", vertices, pressure, np.concatenate([doubled, rest]))
    np.testing.assert_allclose(same.normals, surface.normals, atol=1e-12)


def test_an_open_mesh_is_warned_of(capsys):
    vertices, quads, normals = torus(19, 11)
    make_surface("closed", vertices, field(vertices), quads)
    assert capsys.readouterr().err == ""
    # A removed quad leaves its four sides open; its diagonal goes with it.
    surface = make_surface("holed", vertices, field(vertices), quads[1:, ::-1])
    assert capsys.readouterr().err == (
        f"crossreg: car holed: open mesh: 4 of its {3 * len(quads) - 1} edges do not have two faces;"
        " normals may point inwards there\n"
    )
    assert np.einsum("vi,vi->v", surface.normals, normals).min() > 0.9


def _bad(change):
    vertices, quads, _ = torus(13, 7)
    arrays = {"vertices": vertices, "pressure": field(vertices), "faces": quads, "normals": None}
    change(arrays)
    return arrays


def _set(name, value):
    return lambda arrays: arrays.update({name: value(arrays[name])})


def _replaced(place, value):
    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


def _one_vertex_in_flat_faces(quads):
    """Triangles; those at vertex 5 have a corner twice."""
    triangles = quads[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)
    triangles[(triangles == 5).any(axis=1), 1] = triangles[(triangles == 5).any(axis=1), 0]
    return triangles


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("pressure", lambda p: p[:-3]), "88 pressure values for 91 vertices"),
        (_set("pressure", lambda p: p.reshape(7, 13)), r"pressure has shape \(7, 13\); expected \(vertex,\)"),
        (_set("pressure", _replaced(5, np.nan)), r"pressure not finite, as float32, in 1 places, .* index \(5,\)"),
        (_set("pressure", _replaced(slice(4, 6), -np.inf)), r"pressure not finite, as float32, in 2 places"),
        (_set("pressure", np.zeros_like), "pressure is 0 everywhere"),
        (_set("pressure", lambda p: np.full_like(p, 0.1) + 1e-17), "pressure is 0.1 everywhere"),
        (_set("pressure", lambda p: p.astype(str)), "pressure of type <U.*; expected real numbers"),
        (_set("vertices", _replaced((3, 1), np.nan)), r"vertices not finite, as float32, .* index \(3, 1\)"),
        (_set("vertices", _replaced((3, 1), 1e300)), r"vertices not finite, as float32, .* index \(3, 1\)"),
        (_set("vertices", lambda v: v[:, :2]), r"vertices have shape \(91, 2\)"),
        (_set("vertices", lambda v: v * [1, 1, 0] + [0, 0, 5]), "degenerate mesh, its 91 vertices all lie in a plane"),
        (_set("vertices", lambda v: v[:, [0, 1, 0]] + 2), "all lie in a plane"),
        (_set("vertices", np.ones_like), "all lie in a plane"),
        (_set("faces", _replaced((8, 2), 91)), "a face has vertex 91; there are 91 vertices"),
        (_set("faces", _replaced((8, 2), -1)), "a face has vertex -1; there are 91 vertices"),
        (_set("faces", lambda f: f.astype(float)), r"faces of type float64 and shape \(91, 4\)"),
        (_set("faces", lambda f: f[:, :2]), r"faces of type int64 and shape \(91, 2\)"),
        (_set("faces", lambda f: f[:0]), r"shape \(0, 4\)"),
        (_set("faces", lambda f: f[:, [0, 0, 0]]), "its faces have no area"),
        (_set("faces", lambda f: f[:40]), "91 vertices, but the faces use only 4.*remove those and their pressure, or"),
        (
            _set("faces", _one_vertex_in_flat_faces),
            "use only 90 of them, without 6 faces that have a corner twice; .* 5:",
        ),
        (_set("normals", lambda n: np.ones((90, 3))), r"normals have shape \(90, 3\); the vertices have \(91, 3\)"),
        (_set("normals", lambda n: np.eye(91, 3)), "the normal of vertex 3 has no length"),
        (_set("normals", lambda n: np.ones((91, 3))), "its normals are not those of its surface"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(InputError, match=f"car wrong: .*{message}"):
        make_surface("wrong", **_bad(change))


def test_cars_along_another_axis_are_warned_of():
    good = make_surface("good", **_bad(lambda arrays: None))
    long = dataclasses.replace(good, vertices=good.vertices * [1, 1, 9])
    aside = dataclasses.replace(long, name="aside", vertices=long.vertices[:, [2, 1, 0]])
    assert axes_warning([long, long]) is None
    warning = axes_warning([long, aside, long])
    assert warning is not None
    assert warning.startswith(
        "1 of 3 cars are longest along another axis than z, the first, aside, along x; expected x"
    )


def test_fewer_than_four_points_and_faces_without_an_area():
    with pytest.raises(InputError, match="car small: degenerate mesh of 3 vertices"):
        make_surface("small", np.eye(3), np.arange(3.0))
    # Four points that span a body, and faces that are lines.
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [0, 0, 1]])
    with pytest.raises(InputError, match="its faces have no area"):
        make_surface("lines", vertices, np.arange(5.0), np.array([[0, 1, 2]]))
    with pytest.raises(InputError, match="vertex 1 has no normal"):
        make_surface("line", vertices, np.arange(5.0), np.array([[0, 1, 2], [0, 3, 4], [0, 2, 3], [2, 3, 4]]))
