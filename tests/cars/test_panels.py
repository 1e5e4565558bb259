"""The panel method against quadrature, closed forms and the symmetries of the flow."""

import numpy as np
import pytest
from scipy.integrate import quad

from crossreg.cars.family.bodies import box_mesh
from crossreg.cars.family.panels import (
    FREESTREAM,
    NEAR,
    at_vertices,
    exact_influence,
    far_influence,
    flat_panels,
    influence,
    make_system,
    pressure_coefficient,
)
from crossreg.cars.meshes.normals import vertex_normals
from crossreg.cars.meshes.surface import triangles_of
from crossreg.errors import InputError

ROTATION = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 3)))[0]
ROTATION *= np.linalg.det(ROTATION)  # no reflection


def cube_sphere(cells):
    """A sphere of six patches: no pole, eight vertices with three panels."""
    index, faces = box_mesh((cells, cells, cells))
    points = np.tan((2 * index / cells - 1) * np.pi / 4)
    return points / np.linalg.norm(points, axis=1, keepdims=True), faces


def globe(rings, sectors):
    """A sphere of meridians and parallels: two poles, with triangles around them."""
    polar, azimuth = np.linspace(0, np.pi, rings + 1)[1:-1], 2 * np.pi * np.arange(sectors) / sectors
    body = np.stack(
        [
            np.outer(np.sin(polar), np.cos(azimuth)),
            np.outer(np.sin(polar), np.sin(azimuth)),
            np.outer(np.cos(polar), np.ones(sectors)),
        ],
        -1,
    ).reshape(-1, 3)
    number = 1 + np.arange(len(body)).reshape(rings - 1, sectors)
    after = np.roll(number, -1, 1)
    last = len(body) + 1
    north = np.stack([np.zeros(sectors, int), number[0], after[0], after[0]], 1)
    south = np.stack([number[-1], np.full(sectors, last), after[-1], after[-1]], 1)
    belt = np.stack([number[:-1], number[1:], after[1:], after[:-1]], -1).reshape(-1, 4)
    return np.concatenate([[[0, 0, 1]], body, [[0, 0, -1]]]), np.concatenate([north, belt, south])


def turned(vertices, faces):
    return vertices @ ROTATION, faces


def surface_velocity(vertices, faces, **kind):
    panels = flat_panels(vertices, faces)
    flow = make_system(panels, **kind).solve()
    return at_vertices(vertices, vertex_normals(vertices, triangles_of(faces)), faces, panels, flow.velocity)


def sphere_error(vertices, faces, **kind):
    pressure = pressure_coefficient(surface_velocity(vertices, faces, **kind))
    return np.abs(pressure - (1 - 9 / 4 * (1 - vertices[:, 2] ** 2))).max()


@pytest.mark.parametrize(
    ("coarse", "fine", "symmetric"),
    [
        (cube_sphere(6), cube_sphere(12), True),
        (globe(14, 28), globe(24, 48), True),
        (turned(*cube_sphere(7)), turned(*cube_sphere(11)), False),
    ],
    ids=["patches", "poles", "turned"],
)
def test_a_sphere_has_its_closed_form_everywhere_and_finer_panels_come_nearer(coarse, fine, symmetric):
    error = sphere_error(*fine, symmetric=symmetric)
    assert error < 0.02
    # Of second order in the panels' size.
    size = len(fine[1]) / len(coarse[1])
    assert sphere_error(*coarse, symmetric=symmetric) > 0.8 * size * error


def test_triangles_come_near_too():
    vertices, faces = cube_sphere(10)
    assert sphere_error(vertices, triangles_of(faces)) < 0.05


def test_an_ellipsoid_has_its_closed_form():
    axes = np.array([1.0, 0.7, 1.6])
    vertices, faces = cube_sphere(20)
    vertices = vertices * axes
    # Lamb, Hydrodynamics, §114: the surface velocity is the tangential part of 2 / (2 − γ) e_z.
    gamma = quad(lambda s: np.prod(axes) / ((axes[2] ** 2 + s) * np.sqrt(np.prod(axes**2 + s))), 0, np.inf)[0]
    normals = vertices / axes**2
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    expected = 2 / (2 - gamma) * (np.array([0, 0, 1]) - normals[:, 2:] * normals)
    velocity = surface_velocity(vertices, faces, symmetric=True)
    # At 2,402 vertices 0.014 and 0.011.
    assert np.abs(velocity - expected).max() < 0.015
    assert np.abs(pressure_coefficient(velocity) - pressure_coefficient(expected)).max() < 0.012


def gauss(panel, point, order=60):
    """∫ (p − q)/|p − q|³ dA over a flat quadrilateral by Gauss points on its bilinear map."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    s, t = np.meshgrid((nodes + 1) / 2, (nodes + 1) / 2)
    s, t, weight = s[..., None], t[..., None], np.outer(weights, weights) / 4
    a, b, c, d = panel
    q = (1 - s) * (1 - t) * a + s * (1 - t) * b + s * t * c + (1 - s) * t * d
    along, up = (1 - t) * (b - a) + t * (c - d), (1 - s) * (d - a) + s * (c - b)
    weight = weight * np.linalg.norm(np.cross(along, up), axis=-1)
    arm = point - q
    return (weight[..., None] * arm / np.linalg.norm(arm, axis=-1, keepdims=True) ** 3).sum((0, 1))


def one_panel(corners):
    return flat_panels(corners, np.arange(len(corners))[None])


CORNERS = np.array([[0.0, 0, 0], [1.3, 0.1, 0], [1.1, 0.9, 0], [-0.2, 0.6, 0]]) @ ROTATION + 0.5


def test_the_influence_of_a_panel_is_its_integral():
    panel = one_panel(CORNERS)
    places = np.array([[0.3, 0.2, 0.5], [0.3, 0.2, -0.5], [2.0, 1.5, 0.0], [-1.0, 0.4, 0.8], [0.5, 3.0, -2.0]])
    for point in places @ ROTATION + 0.5:
        in_plane, solid_angle = exact_influence(point[None], panel)
        assert in_plane[0] + solid_angle[0] * panel.normal[0] == pytest.approx(gauss(CORNERS, point), abs=1e-8)


def test_a_triangle_is_a_panel_whose_last_corner_is_there_twice():
    point = np.array([[0.1, 0.9, -0.4]])
    parts = [exact_influence(point, one_panel(CORNERS[list(chosen)])) for chosen in ((0, 1, 2), (0, 2, 3))]
    whole = exact_influence(point, one_panel(CORNERS))
    for one, other, both in zip(*parts, whole, strict=True):
        assert one + other == pytest.approx(both, abs=1e-12)


def test_just_outside_the_middle_of_a_panel_the_solid_angle_is_half_of_all():
    panel = one_panel(CORNERS)
    for side in (1, -1):
        _, solid_angle = exact_influence(panel.centre + side * 1e-7 * panel.normal, panel)
        assert solid_angle[0] == pytest.approx(side * 2 * np.pi, abs=1e-5)


def test_a_far_panel_acts_through_its_area_and_second_moment():
    panel = one_panel(CORNERS)
    ways = np.random.default_rng(0).normal(size=(50, 3))
    points = panel.centre + NEAR * panel.diameter * ways / np.linalg.norm(ways, axis=1, keepdims=True)
    parts, square = far_influence(points, panel)
    expected = np.stack([gauss(CORNERS, point, 12) for point in points])
    error = np.linalg.norm(np.concatenate(parts, 1) - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert error.max() < 1e-3
    assert square[:, 0] == pytest.approx((NEAR * panel.diameter[0]) ** 2)


@pytest.fixture(scope="module")
def above_ground():
    vertices, faces = cube_sphere(6)
    return flat_panels(vertices * [0.6, 0.4, 1.1] + [0, 0.55, 0], faces)


def velocity_at(points, system, flow):
    """The velocity at points off the body."""
    parts = influence(points, system.panels.take(system.solved), system.mirrors)
    return FREESTREAM + np.stack([part @ flow.strength for part in parts], 1)


def test_nothing_flows_through_the_ground_or_the_plane_of_symmetry(above_ground):
    system = make_system(above_ground, symmetric=True, ground=0.1)
    flow = system.solve()
    places = np.random.default_rng(1).uniform(-3, 3, (40, 3))
    assert np.abs(velocity_at(places * [1, 0, 1] + [0, 0.1, 0], system, flow)[:, 1]).max() < 1e-12
    assert np.abs(velocity_at(np.abs(places) * [0, 1, 1] + [0, 1.2, 0], system, flow)[:, 0]).max() < 1e-12
    assert np.abs((flow.velocity * above_ground.normal).sum(1)).max() < 1e-12


def test_images_are_the_flow_past_the_mirrored_bodies_themselves(above_ground):
    by_image = make_system(above_ground, symmetric=True, ground=0.1).solve()
    mirrored = above_ground.corners[:, ::-1] * [1, -1, 1] + [0, 0.2, 0]
    corners = np.concatenate([above_ground.corners, mirrored])
    both = flat_panels(corners.reshape(-1, 3), np.arange(4 * len(corners)).reshape(-1, 4))
    alone = make_system(both).solve()
    assert by_image.velocity == pytest.approx(alone.velocity[: len(above_ground.area)], abs=1e-10)


def test_a_sphere_that_lets_out_evenly_is_a_point_source():
    panels = flat_panels(*cube_sphere(10))
    system = make_system(panels, symmetric=True)
    still, flow = system.solve(), system.solve(np.full(len(panels.area), 0.3))
    assert (flow.velocity * panels.normal).sum(1) == pytest.approx(0.3, abs=1e-12)
    places = np.array([[1.5, 0.3, -0.7], [0.2, -2.0, 1.1], [-3.0, 0.0, 0.4]])
    expected = 0.3 * places / np.linalg.norm(places, axis=1, keepdims=True) ** 3
    added = velocity_at(places, system, flow) - velocity_at(places, system, still)
    assert added == pytest.approx(expected, rel=0.03, abs=1e-3)


def test_a_linear_velocity_comes_exactly_to_the_vertices_of_an_uneven_mesh():
    rng = np.random.default_rng(2)
    x, y = np.meshgrid(np.arange(6.0), np.arange(8.0), indexing="ij")
    plane = np.stack([x.ravel(), y.ravel(), np.zeros(48)], 1)
    plane[:, :2] += rng.uniform(-0.25, 0.25, (48, 2))
    number = np.arange(48).reshape(6, 8)
    faces = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], -1).reshape(-1, 4)
    panels = flat_panels(plane, faces)
    slope = rng.normal(size=(3, 3)) * [1, 1, 0]
    got = at_vertices(plane, np.tile([0.0, 0, 1], (48, 1)), faces, panels, panels.centre @ slope + [1, 2, 0])
    inside = number[1:-1, 1:-1].ravel()
    assert got[inside] == pytest.approx((plane @ slope + [1, 2, 0])[inside], abs=1e-4)


def test_what_cannot_be_solved_is_refused(above_ground):
    vertices, faces = cube_sphere(2)
    with pytest.raises(InputError, match="panel 3: it has no area"):
        flat_panels(vertices, np.concatenate([faces[:3], [[1, 1, 2, 2]]]))
    with pytest.raises(InputError, match=r"ground is 0\.3: must be below the body, which reaches down to 0\.1"):
        make_system(above_ground, ground=0.3)
    aside = np.array([0.1, 0, 0])
    for other in (flat_panels(vertices + aside, faces), flat_panels(*cube_sphere(3))):
        with pytest.raises(InputError, match="mirror images of each other"):
            make_system(other, symmetric=True)
