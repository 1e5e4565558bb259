r"""Closed car bodies from a few lengths and angles, all of one topology.

A body is the image of a rounded box. The grid of a box of $n_x \times n_y \times n_z$ cells is a closed mesh of
quadrilaterals with

$$ 2 (n_x n_y + n_y n_z + n_z n_x) + 2 $$

vertices and no poles. Its edges and corners are rounded to ellipses, and then the space around it is deformed:
(ξ, η, ζ) ∈ [−1, 1]³, lateral, up and streamwise, is mapped to

$$ (z, y) = C(\zeta, \eta) + \text{bow and crown in } \xi^2, \qquad x = \xi\, w(z, y), $$

where C fills the car's side view by transfinite interpolation (Gordon and Hall, 1973) between four curves: floor,
front, rear, and the upper outline over bonnet, windscreen, roof, backlight and boot. The half width w narrows towards
both ends and, by the tumblehome, above the cowl. The deformation is one-to-one, so a body is closed, symmetric and free
of self-intersections, like the box. Vertices correspond by their place on the box. There are no wheels.

Lengths are in metres, angles in degrees; the ground is y = 0 and the nose is at −z.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from crossreg.cars.meshes.surface import triangles_of
from crossreg.errors import InputError


@dataclass(frozen=True)
class CarShape:
    """The parameters of a car. Heights are above the ground, angles from the horizontal."""

    length: float
    width: float
    roof_height: float
    ride_height: float
    nose_height: float
    cowl_height: float
    bonnet_length: float
    windscreen_angle: float
    backlight_angle: float
    boot_height: float
    boot_length: float
    front_rounding: float
    rear_rounding: float
    edge_rounding: float
    tumblehome: float
    nose_bow: float
    tail_taper: float
    diffuser_angle: float


# From small hatchbacks to saloons and vans.
RANGES = {
    "length": (3.7, 4.9),
    "width": (1.65, 1.95),
    "roof_height": (1.35, 1.75),
    "ride_height": (0.14, 0.26),
    "nose_height": (0.66, 0.82),
    "cowl_height": (0.86, 1.04),
    "bonnet_length": (0.75, 1.3),
    "windscreen_angle": (26.0, 48.0),
    "backlight_angle": (15.0, 65.0),
    "boot_height": (0.92, 1.08),
    "boot_length": (0.04, 0.7),
    "front_rounding": (0.16, 0.42),
    "rear_rounding": (0.07, 0.22),
    "edge_rounding": (0.12, 0.3),
    "tumblehome": (6.0, 22.0),
    "nose_bow": (0.08, 0.35),
    "tail_taper": (0.02, 0.14),
    "diffuser_angle": (0.0, 9.0),
}
LEAST_ROOF = 0.7  # metres between windscreen and backlight


class Resolution(NamedTuple):
    """Cells across, up and along the box; the first is even, so that x = 0 is a line of the mesh."""

    across: int
    up: int
    along: int

    @property
    def points(self) -> int:
        """Return the number of vertices of the body."""
        return 2 * (self.across * self.up + self.up * self.along + self.along * self.across) + 2


class Body(NamedTuple):
    """A closed mesh of quadrilaterals, counterclockwise seen from outside.

    `lines` are the mesh lines that run along the car, from the rim of the front to the rim of the rear.
    """

    vertices: Float[np.ndarray, "vertex 3"]
    faces: Int[np.ndarray, "panel 4"]
    lines: Int[np.ndarray, "line station"]

    def triangles(self) -> Int[np.ndarray, "face 3"]:
        """Return every quadrilateral cut in two, symmetrically about x = 0."""
        left = self.vertices[self.faces][:, :, 0].mean(1, keepdims=True) < 0
        return triangles_of(np.where(left, np.roll(self.faces, 1, 1), self.faces))


def resolution(points: int) -> Resolution:
    """Return the resolution whose bodies have about this number of points."""
    if not 400 <= points <= 10_000:
        raise InputError(f"points is {points}: a built-in car has 400 to 10000")
    scale = np.sqrt(points / 2850)
    return Resolution(2 * round(8 * scale), round(12 * scale), round(44 * scale))


def box_mesh(size: tuple[int, int, int]) -> tuple[Int[np.ndarray, "vertex 3"], Int[np.ndarray, "panel 4"]]:
    """Return grid indices of the vertices on the surface of a box, and its quadrilaterals."""
    grid = np.stack(np.meshgrid(*(np.arange(n + 1) for n in size), indexing="ij"), -1)
    on_surface = ((grid == 0) | (grid == np.array(size))).any(-1)
    number = np.where(on_surface, np.cumsum(on_surface).reshape(on_surface.shape) - 1, -1)
    faces = []
    for axis in range(3):
        # The other two axes in cyclic order: their cross product points along this one.
        sheets = np.moveaxis(number, [axis, (axis + 1) % 3, (axis + 2) % 3], [0, 1, 2])
        low, high = (
            np.stack([s[:-1, :-1], s[1:, :-1], s[1:, 1:], s[:-1, 1:]], -1).reshape(-1, 4) for s in sheets[[0, -1]]
        )
        faces += [low[:, ::-1], high]
    return grid[on_surface], np.concatenate(faces)


def round_box(box: Float[np.ndarray, "vertex 3"], radii: Float[np.ndarray, "2 3"]) -> Float[np.ndarray, "vertex 3"]:
    """Round edges and corners of the surface of [−1, 1]³ to ellipses of `radii`, at the low and the high ends."""
    radius = np.where(box < 0, radii[0], radii[1])
    core = np.sign(box) * np.minimum(np.abs(box), 1 - radius)
    cube = (box - core) / radius
    # From the surface of a cube to that of a ball, with little distortion.
    square = cube**2
    others, more = np.roll(square, -1, 1), np.roll(square, -2, 1)
    return core + radius * cube * np.sqrt(1 - others / 2 - more / 2 + others * more / 3)


def fillet(corners: Float[np.ndarray, "corner 2"], reach: Float[np.ndarray, " inner"]) -> Float[np.ndarray, "point 2"]:
    """Replace inner corners of a polyline by parabolas that begin `reach` before them, or later if space is short."""
    t = np.linspace(0, 1, 24)[:, None]
    parts = [corners[:1]]
    for before, corner, after, length in zip(corners[:-2], corners[1:-1], corners[2:], reach, strict=True):
        ends = [
            corner + (other - corner) * min(0.48, length / np.linalg.norm(other - corner)) for other in (before, after)
        ]
        parts.append((1 - t) ** 2 * ends[0] + 2 * t * (1 - t) * corner + t**2 * ends[1])
    return np.concatenate([*parts, corners[-1:]])


def along_curve(
    curve: Float[np.ndarray, "point 2"], fraction: Float[np.ndarray, " sample"]
) -> Float[np.ndarray, "sample 2"]:
    """Return points of a curve at fractions of its length."""
    length = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1))])
    return np.stack([np.interp(fraction * length[-1], length, curve[:, axis]) for axis in range(2)], 1)


def _roof_ends(shape: CarShape) -> tuple[Float[np.ndarray, "2 2"], Float[np.ndarray, "2 2"]]:
    """Return (z, y) of the lower and the upper end of windscreen and backlight."""
    # The roof is highest in its middle; both its ends are a little lower.
    end = shape.roof_height - 0.05
    low = np.array(
        [
            [shape.bonnet_length - shape.length / 2, shape.cowl_height],
            [shape.length / 2 - shape.boot_length, shape.boot_height],
        ]
    )
    slopes = np.tan(np.radians([shape.windscreen_angle, -shape.backlight_angle]))
    return low, np.stack([low[:, 0] + (end - low[:, 1]) / slopes, np.full(2, end)], 1)


def roof_length(shape: CarShape) -> float:
    """Return the length of the roof between windscreen and backlight."""
    front, rear = _roof_ends(shape)[1]
    return float(rear[0] - front[0])


def upper_outline(shape: CarShape) -> Float[np.ndarray, "point 2"]:
    """Return (z, y) over bonnet, windscreen, roof, backlight and boot in the plane x = 0."""
    (cowl, deck), (front, rear) = _roof_ends(shape)
    top = [0.6 * front[0] + 0.4 * rear[0], shape.roof_height]
    nose = [-shape.length / 2 + 0.08, shape.nose_height]
    tail = [shape.length / 2 - 0.03, shape.boot_height - 0.03]
    return fillet(np.array([nose, cowl, front, top, rear, deck, tail]), np.array([0.2, 0.4, 1.0, 0.25, 0.15]))


def floor_outline(shape: CarShape) -> Float[np.ndarray, "point 2"]:
    """Return (z, y) under the car, with a diffuser along its last 0.8 m."""
    nose, tail = -shape.length / 2, shape.length / 2
    rise = 0.8 * np.tan(np.radians(shape.diffuser_angle))
    low = shape.ride_height
    corners = np.array([[nose + 0.1, low + 0.04], [nose + 0.7, low], [tail - 0.8, low], [tail - 0.05, low + rise]])
    return fillet(corners, np.array([0.3, 0.3]))


def check_shape(shape: CarShape) -> None:
    """Raise InputError for a shape outside the family, whose body may intersect itself."""
    for name, (low, high) in RANGES.items():
        if not low <= getattr(shape, name) <= high:
            raise InputError(f"{name} is {getattr(shape, name):g}: must lie in {low:g} … {high:g}")
    if roof_length(shape) < LEAST_ROOF:
        raise InputError(f"the windows leave a roof of {roof_length(shape):.2f} m; expected at least {LEAST_ROOF:g} m")


def make_body(shape: CarShape, cells: Resolution) -> Body:
    """Make the body of a car at a resolution."""
    check_shape(shape)
    index, faces = box_mesh(cells)
    even = index / np.array(cells)
    # Cells are smaller towards the edges, where the surface bends most.
    box = 2 * (even - np.array([0.4, 0.3, 0.5]) * np.sin(2 * np.pi * even) / (2 * np.pi)) - 1
    half_width = shape.width / 2
    radii = np.array(
        [
            [shape.edge_rounding / half_width, 0.35, 2 * shape.front_rounding / shape.length],
            [shape.edge_rounding / half_width, 0.45, 2 * shape.rear_rounding / shape.length],
        ]
    )
    lateral, up, along = round_box(box, radii).T
    s, t = (1 + along) / 2, (1 + up) / 2
    top, floor = along_curve(upper_outline(shape), s), along_curve(floor_outline(shape), s)
    low_front, low_rear = floor_outline(shape)[[0, -1]]
    high_front, high_rear = upper_outline(shape)[[0, -1]]
    s, t = s[:, None], t[:, None]
    # Front and rear bulge a little between their ends, like bumpers.
    bulge = 4 * t * (1 - t) * np.array([1.0, 0.0])
    front = (1 - t) * low_front + t * high_front - 0.06 * bulge
    rear = (1 - t) * low_rear + t * high_rear + 0.04 * bulge
    bilinear = (1 - s) * ((1 - t) * low_front + t * high_front) + s * ((1 - t) * low_rear + t * high_rear)
    z, y = ((1 - t) * floor + t * top + (1 - s) * front + s * rear - bilinear).T
    s, t = s[:, 0], t[:, 0]
    z = z + lateral**2 * (shape.nose_bow * (1 - s) ** 3 - 0.06 * s**3)
    y = y - 0.04 * lateral**2 * t
    vertices = np.stack([lateral * half_width * _narrowing(shape, z, y), y, z], 1)
    return Body(vertices, faces, _lines(index, cells))


def _narrowing(
    shape: CarShape, z: Float[np.ndarray, " vertex"], y: Float[np.ndarray, " vertex"]
) -> Float[np.ndarray, " vertex"]:
    """Return the relative half width, which decreases towards both ends, above the cowl and at the sills."""
    forward = np.maximum(0, -z / shape.length - 0.1) / 0.4
    backward = np.maximum(0, z / shape.length - 0.1) / 0.4
    plan = 1 - 0.08 * forward**2 - shape.tail_taper * backward**2
    # A smooth ramp above the cowl.
    above = 0.06 * np.logaddexp(0, (y - shape.cowl_height) / 0.06)
    sill = np.maximum(0, 0.45 - y)
    return plan - (np.tan(np.radians(shape.tumblehome)) * above + 0.25 * sill**2 / 0.45) / (shape.width / 2)


def _lines(index: Int[np.ndarray, "vertex 3"], cells: Resolution) -> Int[np.ndarray, "line station"]:
    """Return the mesh lines along the car, once around it."""
    # Vertices are numbered with the index along the car running fastest.
    on_tube = ((index[:, :2] == 0) | (index[:, :2] == np.array(cells[:2]))).any(1)
    return np.flatnonzero(on_tube).reshape(-1, cells.along + 1)
