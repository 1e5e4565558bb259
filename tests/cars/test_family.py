"""The built-in cars: bodies that are bodies, a wake where there should be one, a design, and a cache."""

from dataclasses import astuple, fields, replace

import numpy as np
import pytest

from crossreg.cars.family import make as family
from crossreg.cars.family.bodies import (
    LEAST_ROOF,
    RANGES,
    CarShape,
    make_body,
    resolution,
    roof_length,
    round_box,
    upper_outline,
)
from crossreg.cars.family.make import VERSION, draw_shapes, make_car, make_family
from crossreg.cars.family.panels import exact_influence, flat_panels, make_system
from crossreg.cars.family.wake import base_pressure, flow_with_wake, rim_weight, separated_share, vortex_pressure
from crossreg.cars.meshes.normals import vertex_normals
from crossreg.errors import InputError

COARSE = resolution(430)
MIDDLE = CarShape(**{name: (low + high) / 2 for name, (low, high) in RANGES.items()})
SHAPES = draw_shapes(5, seed=3)


def share_of(shape, cells=COARSE):
    body = make_body(shape, cells)
    return body, separated_share(body, vertex_normals(body.vertices, body.triangles()))


def top_line(body):
    """The vertices over the car in the plane x = 0, from nose to tail."""
    middle = body.lines[np.abs(body.vertices[body.lines, 0]).max(1) < 1e-9]
    return middle[body.vertices[middle, 1].mean(1).argmax()]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"length {shape.length:.2f}")
def test_a_body_is_closed_symmetric_and_does_not_cut_itself(shape):
    body = make_body(shape, COARSE)
    triangles = body.triangles()
    assert len(body.vertices) == COARSE.points
    # Each edge is passed once in either direction, and the surface is that of a ball.
    edges = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    assert set(map(tuple, edges)) == set(map(tuple, edges[:, ::-1]))
    assert len(np.unique(edges, axis=0)) == len(edges)
    assert len(body.vertices) - len(edges) // 2 + len(triangles) == 2
    # Just outside every triangle the winding number is 0, just inside it is 1.
    panels = flat_panels(body.vertices, triangles)
    for side, winding in ((1, 0), (-1, 1)):
        points = (panels.centre + side * 1e-5 * panels.normal)[::3]
        pairs = panels.take(np.tile(np.arange(len(triangles)), len(points)))
        _, solid_angle = exact_influence(np.repeat(points, len(triangles), 0), pairs)
        assert -solid_angle.reshape(len(points), -1).sum(1) / (4 * np.pi) == pytest.approx(winding, abs=1e-6)
    mirrored = body.vertices * [-1, 1, 1]
    assert np.unique(mirrored.round(9), axis=0) == pytest.approx(np.unique(body.vertices.round(9), axis=0))


def test_all_bodies_share_one_mesh_whose_panels_are_not_slivers():
    for shape in SHAPES:
        body = make_body(shape, resolution(1500))
        assert np.array_equal(body.faces, make_body(MIDDLE, resolution(1500)).faces)
        corners = body.vertices[body.faces]
        sides = np.roll(corners, -1, 1) - corners
        length = np.linalg.norm(sides, axis=2)
        cosine = -(sides * np.roll(sides, 1, 1)).sum(2) / (length * np.roll(length, 1, 1))
        assert np.abs(cosine).max() < np.cos(np.radians(20))
        assert (length.max(1) / length.min(1)).max() < 8


def test_parameters_are_what_they_say():
    assert [field.name for field in fields(CarShape)] == list(RANGES)
    assert len(RANGES) >= 8
    for shape in SHAPES:
        body = make_body(shape, resolution(2850))
        x, y, z = body.vertices.T
        assert 2 * x.max() == pytest.approx(shape.width, rel=0.02)
        assert y.max() == pytest.approx(shape.roof_height, abs=0.02)
        assert y.min() == pytest.approx(shape.ride_height, abs=0.02)
        assert np.ptp(z) == pytest.approx(shape.length, abs=0.05)
        # Between the rounded corners of the outline the windows are straight.
        run, rise = np.diff(upper_outline(shape), axis=0).T
        slope = np.degrees(np.arctan2(rise, run))
        assert slope.max() == pytest.approx(shape.windscreen_angle)
        assert slope.min() == pytest.approx(-shape.backlight_angle)


def test_every_parameter_moves_the_body_and_the_pressure():
    base = make_car(MIDDLE, COARSE)
    for name, (low, high) in RANGES.items():
        other = make_car(replace(MIDDLE, **{name: getattr(MIDDLE, name) + 0.2 * (high - low)}), COARSE)
        assert np.abs(other.vertices - base.vertices).max() > 3e-3, name
        assert np.abs(other.pressure - base.pressure).max() > 3e-3, name


def test_a_box_rounded_all_the_way_is_an_ellipsoid():
    rng = np.random.default_rng(0)
    box = rng.uniform(-1, 1, (60, 3))
    box[np.arange(60), np.arange(60) % 3] = np.where(np.arange(60) % 2, 1, -1)
    assert np.linalg.norm(round_box(box, np.ones((2, 3))), axis=1) == pytest.approx(1)
    # With small radii what is off the edges stays where it is.
    middle = np.sort(np.abs(box), axis=1)[:, 1] < 0.8
    assert round_box(box, np.full((2, 3), 0.2))[middle] == pytest.approx(box[middle])


def test_a_shape_outside_the_family_is_refused():
    with pytest.raises(InputError, match=r"tumblehome is 50: must lie in 6 … 22"):
        make_body(replace(MIDDLE, tumblehome=50.0), COARSE)
    with pytest.raises(InputError, match=r"the windows leave a roof of .* m; expected at least 0\.7 m"):
        make_body(replace(MIDDLE, length=3.7, backlight_angle=16.0), COARSE)
    with pytest.raises(InputError, match="points is 90: a built-in car has 400 to 10000"):
        resolution(90)


def test_flow_leaves_a_steep_backlight_and_follows_a_shallow_one():
    shallow = replace(MIDDLE, length=4.9, bonnet_length=0.8, backlight_angle=18.0, boot_length=0.3, roof_height=1.4)
    for shape, attached in ((shallow, True), (replace(shallow, backlight_angle=50.0), False)):
        body, share = share_of(shape, resolution(2850))
        line = top_line(body)
        z, y = body.vertices[line, 2], body.vertices[line, 1]
        window = (z > 0) & (y < shape.roof_height - 0.15) & (y > shape.boot_height + 0.1)
        assert window.any()
        assert share[line[window]].max() < 0.1 if attached else share[line[window]].min() > 0.9
        # The base is separated and the front half is not.
        behind = (body.vertices[:, 2] > 0.49 * shape.length) & (np.abs(body.vertices[:, 0]) < 0.5)
        assert share[behind].min() > 0.99
        assert share[body.vertices[:, 2] < 0].max() < 1e-3
        assert (vortex_pressure(body, vertex_normals(body.vertices, body.triangles()))[line[window]] <= 0).all()


def test_a_wake_covers_a_short_boot_and_leaves_a_long_way_behind_a_low_step():
    notch = replace(MIDDLE, length=4.9, bonnet_length=0.8, backlight_angle=50.0, boot_length=0.7)
    body, share = share_of(notch, resolution(2850))
    on_boot = share[top_line(body)][body.vertices[top_line(body), 2] > 0.5 * notch.length - 0.5]
    assert on_boot.min() > 0.9
    # A long flat body with one step: the edge is down after six heights.
    z = np.linspace(0, 4, 401)
    fall = np.where((z > 1) & (z < 1.1), np.tan(np.radians(60)), 0.0)
    height = -np.concatenate([[0], np.cumsum((fall[1:] + fall[:-1]) / 2 * np.diff(z))])
    lines = np.arange(401)[None]
    normals = np.stack([np.zeros(401), np.ones(401), fall], 1) / np.sqrt(1 + fall**2)[:, None]
    step = body._replace(vertices=np.stack([np.zeros(401), height, z], 1), lines=lines)
    wake = separated_share(step, normals)
    back = 1 + 6 * -height[-1]
    assert wake[(z > 1.03) & (z < 1.3)].min() > 0.7
    assert wake[z > back + 0.1].max() < 1e-2
    assert wake[z < 0.95].max() < 1e-3


def test_the_flow_has_the_base_pressure_where_it_leaves():
    body, share = share_of(MIDDLE)
    panels = flat_panels(body.vertices, body.faces)
    shares = share[body.faces]
    base = base_pressure(panels, shares.mean(1))
    flow = flow_with_wake(make_system(panels, symmetric=True, ground=0.0), shares, base)
    assert rim_weight(panels, shares) @ (flow.velocity**2).sum(1) == pytest.approx(1 - base)
    # A pressure that no stream gives the rim: the nearest, where |v|² over the rim is least, so v ⟂ dv/dκ in the mean.
    system = make_system(panels, symmetric=True, ground=0.0)
    nearest = flow_with_wake(system, shares, 0.99)
    stream = shares.mean(1) * np.maximum(panels.normal[:, 2], 0)
    change = system.solve(stream).velocity - system.solve().velocity
    rim = rim_weight(panels, shares)
    assert rim @ (nearest.velocity**2).sum(1) > 1 - 0.99
    assert rim @ (nearest.velocity * change).sum(1) == pytest.approx(0, abs=1e-9)
    # Hoerner's formula on areas known otherwise: a quarter of a unit cube's rear face, five and three quarters around.
    cube = flat_panels(
        np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float),
        np.array([[0, 2, 6, 4], [1, 5, 7, 3], [0, 4, 5, 1], [2, 3, 7, 6], [0, 1, 3, 2], [4, 6, 7, 5]]),
    )
    quarter = np.where(cube.normal[:, 2] > 0.5, 0.25, 0.0)
    assert base_pressure(cube, quarter) == pytest.approx(-0.029 / np.sqrt(0.003 * 5.75 / 0.25))


def test_a_cars_pressure_is_a_pressure_coefficient():
    for shape in SHAPES[:3]:
        car = make_car(shape, COARSE)
        body, share = share_of(shape)
        assert car.pressure.max() <= 1
        nose = car.vertices[car.pressure.argmax()]
        assert car.pressure.max() > 0.9
        assert nose[2] < -0.45 * shape.length
        assert -2 < car.pressure.min() < -0.4
        # Behind, one base pressure.
        behind = car.pressure[share > 0.999]
        assert np.ptp(behind) < 2e-3
        assert -0.3 < behind.mean() < -0.05
        order = [np.lexsort(np.round(car.vertices * [side, 1, 1], 9).T) for side in (1, -1)]
        assert car.pressure[order[0]] == pytest.approx(car.pressure[order[1]], abs=1e-9)
        assert car.normals == pytest.approx(vertex_normals(car.vertices, body.triangles()))


def test_a_design_is_even_seeded_and_inside_its_ranges():
    shapes = draw_shapes(140)
    table = np.array([astuple(shape) for shape in shapes])
    low, high = np.array(list(RANGES.values())).T
    assert table.shape == (140, len(RANGES))
    assert ((table >= low) & (table <= high)).all()
    assert min(map(roof_length, shapes)) >= LEAST_ROOF
    assert len({shape.length for shape in shapes}) == 140
    assert shapes == draw_shapes(140)
    assert shapes[:20] != draw_shapes(140, seed=1)[:20]
    # A cut of 30 is spread over every range like the whole: mean and spread of parts of an even design.
    part = (table[:30] - table.mean(0)) / table.std(0)
    assert np.abs(part.mean(0)).max() < 3 / np.sqrt(30)
    assert np.abs(part.std(0) - 1).max() < 0.4
    with pytest.raises(InputError, match="num_cars is 0: the built-in family has 1 to 1000 cars"):
        draw_shapes(0)
    with pytest.raises(InputError, match="seed is -1: must be at least 0"):
        draw_shapes(3, seed=-1)


def test_the_cars_of_this_version_are_these():
    """Fails where the same request gives other cars: then `family.VERSION` must be raised, as cached cars differ."""
    car = make_car(draw_shapes(3, seed=0)[2], resolution(400))
    pressure = [-0.552292, -0.309088, -0.490288, -0.300420, -0.105886, -0.381023, -0.616159]
    assert (VERSION, len(car.pressure)) == (2, 370)
    assert car.pressure[::60] == pytest.approx(pressure, abs=1e-5)
    assert car.vertices[100] == pytest.approx([-0.640763, 0.225680, 1.949300], abs=1e-5)


def test_the_mean_car_is_neither_good_nor_useless():
    pressure = np.stack([make_car(shape, COARSE).pressure for shape in draw_shapes(24)])
    guess = pressure[:12].mean(0)
    error = np.linalg.norm(pressure[12:] - guess, axis=1) / np.linalg.norm(pressure[12:], axis=1)
    assert 0.15 < error.mean() < 0.4


def test_a_family_is_made_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path / "cache"))
    seen = []
    made = make_family(3, points=430, seed=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert [car.name for car in made] == ["family-2-000", "family-2-001", "family-2-002"]
    (path,) = (tmp_path / "cache").iterdir()
    assert path.name == f"cars-v{family.VERSION}-3x{COARSE.points}-seed2.npz"
    with monkeypatch.context() as without_solver:
        without_solver.setattr(family, "make_car", None)
        read = make_family(3, points=430, seed=2)
    for one, other in zip(made, read, strict=True):
        assert one.name == other.name
        for name in ("vertices", "normals", "pressure", "faces"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
    # A file that was changed is made again.
    with np.load(path) as file:
        changed = dict(file)
    changed["pressure"] = changed["pressure"] + 1e-6
    np.savez(path, allow_pickle=False, **changed)
    again = make_family(3, points=430, seed=2)
    assert "does not match its hash; making it again" in capsys.readouterr().err
    assert np.array_equal(again[2].pressure, made[2].pressure)
    path.write_bytes(b"no archive")
    assert len(make_family(3, points=430, seed=2)) == 3
    assert "not a readable car cache" in capsys.readouterr().err
