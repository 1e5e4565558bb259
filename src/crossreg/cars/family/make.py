"""The built-in cars: a seeded design of shapes with the flow past each, made once and cached.

A car's pressure is its pressure coefficient Cp: potential flow by source panels (`panels`) past a parametric body
(`bodies`) above the ground, with separation by correlations (`wake`). It stands in for CFD, with the same kind of field
on the same kind of surface, and predicts no real car.

Shapes are a scrambled Sobol sequence in `bodies.RANGES`, shuffled, without those whose roof is too short: any range of
the family is a random part of one even design, and a smaller family is the beginning of a larger one. The name of the
cached file contains the request and the `VERSION` of the cars.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from crossreg.cars.family.bodies import LEAST_ROOF, RANGES, CarShape, Resolution, make_body, resolution, roof_length
from crossreg.cars.family.panels import at_vertices, flat_panels, make_system, pressure_coefficient
from crossreg.cars.family.wake import base_pressure, flow_with_wake, separated_share, vortex_pressure
from crossreg.cars.meshes.normals import vertex_normals
from crossreg.cars.meshes.surface import Surface
from crossreg.data.cache import read_arrays, read_if_there, write_arrays
from crossreg.errors import InputError
from crossreg.files.cache_folder import cache_folder

# To be raised whenever the same request gives other cars.
VERSION = 2
MOST_CARS = 1000
_FIELDS = ("vertices", "normals", "pressure", "faces")


def draw_shapes(num_cars: int, *, seed: int = 0) -> list[CarShape]:
    """Return the shapes of a family's cars, in the order in which they are split into train, reg and test."""
    from scipy.stats import qmc  # slow to import, and not needed if the cars are cached

    if not 1 <= num_cars <= MOST_CARS:
        raise InputError(f"num_cars is {num_cars}: the built-in family has 1 to {MOST_CARS} cars")
    if seed < 0:
        raise InputError(f"seed is {seed}: must be at least 0")
    rng = np.random.default_rng(seed)
    sequence = qmc.Sobol(len(RANGES), rng=rng)
    low, high = np.array(list(RANGES.values())).T
    shapes: list[CarShape] = []
    while len(shapes) < MOST_CARS:
        drawn = qmc.scale(sequence.random(64), low, high)
        shapes += [CarShape(*map(float, row)) for row in drawn]
        shapes = [shape for shape in shapes if roof_length(shape) >= LEAST_ROOF]
    return [shapes[row] for row in rng.permutation(MOST_CARS)[:num_cars]]


def make_car(shape: CarShape, cells: Resolution, name: str = "car") -> Surface:
    """Make a car and the pressure coefficient on it."""
    body = make_body(shape, cells)
    panels = flat_panels(body.vertices, body.faces)
    triangles = body.triangles()
    normals = vertex_normals(body.vertices, triangles)
    share = separated_share(body, normals)
    base = base_pressure(panels, share[body.faces].mean(1))
    flow = flow_with_wake(make_system(panels, symmetric=True, ground=0.0), share[body.faces], base)
    potential = pressure_coefficient(at_vertices(body.vertices, normals, body.faces, panels, flow.velocity))
    pressure = (1 - share) * (potential + vortex_pressure(body, normals)) + share * base
    return Surface(name, body.vertices, normals, pressure, triangles)


def make_family(
    num_cars: int = 140,
    *,
    points: int = 2850,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Surface]:
    """Return the cars of a family, from the cache if possible.

    A car of 2,850 points takes about 0.7 s on one core, one of 714 points 0.1 s.

    Args:
        num_cars: number of cars, at most 1000.
        points: approximate number of points of each car, 400 to 10000.
        seed: seed of the shapes.
        progress: called with the numbers of finished and of all cars.
    """
    cells = resolution(points)
    path = cache_folder() / f"cars-v{VERSION}-{num_cars}x{cells.points}-seed{seed}.npz"
    if (found := read_if_there(path, read_family)) is not None:
        return found
    cars = []
    for number, shape in enumerate(draw_shapes(num_cars, seed=seed)):
        cars.append(make_car(shape, cells, f"family-{seed}-{number:03d}"))
        if progress is not None:
            progress(number + 1, num_cars)
    write_family(path, cars)
    return cars


def write_family(path: Path, cars: list[Surface]) -> None:
    """Write cars of one topology."""
    arrays = {name: np.stack([getattr(car, name) for car in cars]) for name in _FIELDS[:-1]}
    write_arrays(path, arrays | {"faces": np.asarray(cars[0].faces)}, names=[car.name for car in cars])


def read_family(path: Path) -> list[Surface]:
    """Read cars written by `write_family`."""
    (*parts, faces), header = read_arrays(path, _FIELDS, "car cache", about=("names",))
    names = header["names"]
    if not isinstance(names, list) or {(len(names), *parts[0].shape[1:2])} != {a.shape[:2] for a in parts}:
        raise InputError(f"{path}: its names, vertices, normals and pressure are not of as many cars and points")
    vertices, normals, pressure = parts
    return [Surface(*car, faces) for car in zip(map(str, names), vertices, normals, pressure, strict=True)]
