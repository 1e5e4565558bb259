r"""Potential flow around a closed body by source panels (Hess and Smith, 1967).

The body is covered by flat panels, each a sheet of sources of one strength σ_j. With velocities in units of the
freestream $u_\infty = e_z$, the velocity at p is

$$ v(p) = u_\infty + \sum_j \sigma_j \int_{S_j} \frac{p - q}{|p - q|^3}\, dA(q), $$

and the strengths follow from $n_i \cdot v(c_i) = 0$ at every panel's centroid, approached from outside. The integral
over a flat polygon with normal n and counterclockwise corners is exact,

$$ \int_S \frac{p - q}{|p - q|^3} dA = \Omega n + \sum_{ab} m_{ab} \log\frac{r_a + r_b + l_{ab}}{r_a + r_b - l_{ab}}, $$

with m the outward normal of an edge ab in the plane, r the distances from p to its ends, l its length, and Ω the
solid angle under which p sees the panel (2π at the centroid itself). Farther than `NEAR` diameters away the panel acts
through its area A and second moment M alone, $r = p - c$:

$$ r \Big(\frac{A}{r^3} - \frac{3\,\mathrm{tr} M}{2 r^5} + \frac{15\, r \cdot M r}{2 r^7}\Big) - \frac{3 M r}{r^5}. $$

A plane wall is an image of the body: the velocity of a mirrored panel at p is the mirrored velocity of the panel at
the mirrored p. The ground is one such image; lateral symmetry is another, and halves the unknowns. The pressure
coefficient is $C_p = 1 - |v|^2$. The flow neither separates nor lifts: there is no wake and no Kutta condition.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree

from crossreg.errors import InputError

FREESTREAM = np.array([0.0, 0.0, 1.0])
NEAR = 4.0  # in diameters; the quadrupole's error there is below a thousandth of the panel's influence
_ROWS = 32  # points at a time, so that intermediate arrays fit the processor's cache


class Panels(NamedTuple):
    """Flat panels of three or four corners; a triangle repeats its last corner."""

    corners: Float[np.ndarray, "panel 4 3"]
    centre: Float[np.ndarray, "panel 3"]
    normal: Float[np.ndarray, "panel 3"]
    area: Float[np.ndarray, " panel"]
    moment: Float[np.ndarray, "panel 3 3"]
    diameter: Float[np.ndarray, " panel"]

    def take(self, chosen: Bool[np.ndarray, " panel"] | Int[np.ndarray, " chosen"]) -> "Panels":
        """Return some of the panels."""
        return Panels(*(field[chosen] for field in self))


class Mirror(NamedTuple):
    """A reflection p → sign · p + shift that keeps the axes."""

    sign: Float[np.ndarray, "3"]
    shift: Float[np.ndarray, "3"]

    def __call__(self, points: Float[np.ndarray, "point 3"]) -> Float[np.ndarray, "point 3"]:
        return points * self.sign + self.shift


class PanelFlow(NamedTuple):
    """A solved flow: the velocity at all panels, and the sources on the solved panels and their images."""

    velocity: Float[np.ndarray, "panel 3"]
    strength: Float[np.ndarray, " half"]


class PanelSystem(NamedTuple):
    """The factorised equations of the flow past a body.

    `solved`: the panels with unknowns. `partner`: for every panel, the solved one that it is or mirrors.
    """

    panels: Panels
    mirrors: list[Mirror]
    solved: Int[np.ndarray, " half"]
    partner: Int[np.ndarray, " panel"]
    parts: list[Float[np.ndarray, "half half"]]
    factors: tuple[np.ndarray, np.ndarray]

    def solve(self, outflow: Float[np.ndarray, " panel"] | None = None) -> PanelFlow:
        """Return the flow along +z; `outflow` is the normal velocity at panels, 0 by default."""
        sources = self.panels.take(self.solved)
        through = -sources.normal @ FREESTREAM + (0 if outflow is None else outflow[self.solved])
        strength = scipy.linalg.lu_solve(self.factors, through, check_finite=False)
        velocity = (FREESTREAM + np.stack([part @ strength for part in self.parts], 1))[self.partner]
        velocity[:, 0] *= np.where(self.panels.centre[:, 0] * sources.centre[self.partner, 0] < 0, -1, 1)
        return PanelFlow(velocity, strength)


def flat_panels(vertices: Float[np.ndarray, "vertex 3"], faces: Int[np.ndarray, "panel corner"]) -> Panels:
    """Return panels from triangles or quadrilaterals that are counterclockwise seen from outside.

    A quadrilateral need not be flat: its panel is its projection on the plane through its mean, across its diagonals.
    """
    corners = vertices[faces if faces.shape[1] == 4 else faces[:, [0, 1, 2, 2]]]
    vector = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]) / 2
    area = np.linalg.norm(vector, axis=1)
    diameter = np.maximum(
        np.linalg.norm(corners[:, 2] - corners[:, 0], axis=1), np.linalg.norm(corners[:, 3] - corners[:, 1], axis=1)
    )
    if (flat := ~(area > 1e-9 * diameter**2)).any():
        raise InputError(f"panel {int(flat.argmax())}: it has no area")
    normal = vector / area[:, None]
    middle = vertices[faces].mean(1)
    height = ((corners - middle[:, None]) * normal[:, None]).sum(-1)
    corners = corners - height[..., None] * normal[:, None]
    # The two triangles on either side of a diagonal have the panel's area, centroid and second moment.
    triangles = corners[:, [[0, 1, 2], [0, 2, 3]]]
    across = np.cross(triangles[:, :, 1] - triangles[:, :, 0], triangles[:, :, 2] - triangles[:, :, 0])
    areas = (across * normal[:, None]).sum(-1) / 2
    centre = np.einsum("pt,ptx->px", areas, triangles.mean(2)) / area[:, None]
    arms = triangles - centre[:, None, None]
    products = np.einsum("ptcx,ptcy->ptxy", arms, arms) + 9 * np.einsum("ptx,pty->ptxy", arms.mean(2), arms.mean(2))
    moment = np.einsum("pt,ptxy->pxy", areas, products) / 12
    return Panels(corners, centre, normal, area, moment, diameter)


def exact_influence(
    points: Float[np.ndarray, "pair 3"], panels: Panels
) -> tuple[Float[np.ndarray, "pair 3"], Float[np.ndarray, " pair"]]:
    """Return the in-plane part and the solid angle of each panel's exact influence on the point of the same row."""
    arms = panels.corners - points[:, None]
    distance = np.sqrt(np.einsum("pcx,pcx->pc", arms, arms))
    edges = np.roll(panels.corners, -1, 1) - panels.corners
    length = np.sqrt(np.einsum("pcx,pcx->pc", edges, edges))
    both = distance + np.roll(distance, -1, 1)
    # An edge without length (the fourth of a triangle) contributes nothing.
    logs = np.log((both + length) / np.maximum(both - length, 1e-300)) / np.where(length > 0, length, np.inf)
    in_plane = np.cross(np.einsum("pc,pcx->px", logs, edges), panels.normal)
    # tan(Ω/2) of a triangle seen from the origin (Van Oosterom and Strackee, 1983); the sign is that of the side.
    solid_angle = np.zeros(len(points))
    for b, c in ((1, 2), (2, 3)):
        ra, rb, rc = distance[:, 0], distance[:, b], distance[:, c]
        dots = [np.einsum("px,px->p", arms[:, i], arms[:, j]) for i, j in ((0, b), (b, c), (c, 0))]
        volume = np.einsum("px,px->p", arms[:, 0], np.cross(arms[:, b], arms[:, c]))
        solid_angle -= 2 * np.arctan2(volume, ra * rb * rc + dots[0] * rc + dots[1] * ra + dots[2] * rb)
    return in_plane, solid_angle


def far_influence(
    points: Float[np.ndarray, "point 3"], panels: Panels
) -> tuple[list[Float[np.ndarray, "point panel"]], Float[np.ndarray, "point panel"]]:
    """Return the three components of every panel's influence on every point, up to the second moment, and |p − c|²."""
    arms = [points[:, x, None] - panels.centre[:, x] for x in range(3)]
    turned = [
        points @ panels.moment[:, x].T - np.einsum("py,py->p", panels.moment[:, x], panels.centre) for x in range(3)
    ]
    square = arms[0] ** 2 + arms[1] ** 2 + arms[2] ** 2
    inverse_square = 1 / square
    inverse_cube = inverse_square * np.sqrt(inverse_square)
    form = arms[0] * turned[0] + arms[1] * turned[1] + arms[2] * turned[2]
    trace = np.trace(panels.moment, axis1=1, axis2=2)
    along = inverse_cube * (panels.area + inverse_square * (7.5 * form * inverse_square - 1.5 * trace))
    across = 3 * inverse_cube * inverse_square
    return [arm * along - part * across for arm, part in zip(arms, turned, strict=True)], square


def influence(
    points: Float[np.ndarray, "point 3"], panels: Panels, mirrors: list[Mirror], *, own: bool = False
) -> list[Float[np.ndarray, "point panel"]]:
    """Return the three components of the velocity at points for unit strength of each panel and its images.

    With `own`, point i is the centroid of panel i, approached from outside.
    """
    parts = [np.zeros((len(points), len(panels.area))) for _ in range(3)]
    reach = (NEAR * panels.diameter) ** 2
    for number, mirror in enumerate(mirrors):
        for start in range(0, len(points), _ROWS):
            block = mirror(points[start : start + _ROWS])
            with np.errstate(divide="ignore", invalid="ignore"):  # at a panel's own centroid; replaced below
                values, square = far_influence(block, panels)
            row, column = np.nonzero(square < reach)
            near = panels.take(column)
            in_plane, solid_angle = exact_influence(block[row], near)
            if own and number == 0:
                solid_angle[row + start == column] = 2 * np.pi
            exact = in_plane + solid_angle[:, None] * near.normal
            for axis in range(3):
                values[axis][row, column] = exact[:, axis]
                parts[axis][start : start + _ROWS] += mirror.sign[axis] * values[axis]
    return parts


def make_system(panels: Panels, *, symmetric: bool = False, ground: float | None = None) -> PanelSystem:
    """Make the equations of the flow past a closed body.

    Args:
        panels: the body's panels.
        symmetric: the body is its own mirror image in x = 0, so that only panels with x > 0 have unknowns.
        ground: the height y of the ground, if any.

    Raises:
        InputError: if the body reaches the ground, or is not symmetric.
    """
    mirrors = [Mirror(np.ones(3), np.zeros(3))]
    if symmetric:
        mirrors.append(Mirror(np.array([-1.0, 1.0, 1.0]), np.zeros(3)))
    if ground is not None:
        if panels.corners[..., 1].min() <= ground:
            raise InputError(
                f"ground is {ground:g}: must be below the body, which reaches down to {panels.corners[..., 1].min():g}"
            )
        mirrors += [Mirror(m.sign * [1, -1, 1], np.array([0, 2 * ground, 0])) for m in mirrors]
    solved, partner = _partners(panels.centre) if symmetric else (np.arange(len(panels.area)),) * 2
    half = panels.take(solved)
    parts = influence(half.centre, half, mirrors, own=True)
    matrix = sum(half.normal[:, axis, None] * parts[axis] for axis in range(3))
    factors = scipy.linalg.lu_factor(matrix, overwrite_a=True, check_finite=False)
    return PanelSystem(panels, mirrors, solved, partner, parts, factors)


def _partners(centre: Float[np.ndarray, "panel 3"]) -> tuple[Int[np.ndarray, " half"], Int[np.ndarray, " panel"]]:
    """Return the panels with x > 0, and for every panel the one of these that it is or mirrors."""
    solved = np.flatnonzero(centre[:, 0] > 0)
    distance, partner = KDTree(centre[solved]).query(centre * np.where(centre[:, :1] < 0, [-1, 1, 1], 1))
    if 2 * len(solved) != len(centre) or distance.max() > 1e-6 * np.ptp(centre, axis=0).max():
        raise InputError("symmetric: panels with x > 0 and with x < 0 must be mirror images of each other")
    return solved, np.asarray(partner)


def at_vertices(
    vertices: Float[np.ndarray, "vertex 3"],
    normals: Float[np.ndarray, "vertex 3"],
    faces: Int[np.ndarray, "panel corner"],
    panels: Panels,
    velocity: Float[np.ndarray, "panel 3"],
) -> Float[np.ndarray, "vertex 3"]:
    """Return the velocity at vertices, tangent to the surface, from that at the centroids of the panels around each.

    Every panel's velocity is first rotated as its normal is onto that of the vertex, which preserves the speed where
    the surface bends. The result is the value at the vertex of the best linear fit, which is as accurate for a vertex
    off the centre of its panels.
    """
    vertex, panel = faces.ravel(), np.repeat(np.arange(len(faces)), faces.shape[1])
    here, there, turned = normals[vertex], panels.normal[panel], velocity[panel]
    lean = (turned * here).sum(1) / (1 + (here * there).sum(1))
    turned = turned - lean[:, None] * (here + there)
    # Two directions in the tangent plane, from the axis that is farthest from the normal.
    first = np.cross(normals, np.eye(3)[np.abs(normals).argmin(1)])
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normals, first)
    offset = panels.centre[panel] - vertices[vertex]
    # In units of the size of the surrounding panels, so that the fit does not depend on scale.
    size = np.sqrt(np.bincount(vertex, panels.area[panel]) / np.bincount(vertex))[vertex]
    terms = np.stack([np.ones(len(vertex)), *((offset * way[vertex]).sum(1) / size for way in (first, second))], 1)
    square = np.zeros((len(vertices), 3, 3))
    right = np.zeros((len(vertices), 3, 3))
    np.add.at(square, vertex, terms[:, :, None] * terms[:, None])
    np.add.at(right, vertex, terms[:, :, None] * turned[:, None])
    # Keeps undetermined slopes at zero.
    square[:, [1, 2], [1, 2]] += 1e-6
    fitted = np.linalg.solve(square, right)[:, 0]
    return fitted - (fitted * normals).sum(1, keepdims=True) * normals


def pressure_coefficient(velocity: Float[np.ndarray, "point 3"]) -> Float[np.ndarray, " point"]:
    """Return Cp = 1 − |v|² for velocities in units of the freestream."""
    return 1 - (velocity**2).sum(-1)
