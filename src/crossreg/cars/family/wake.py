r"""Separation on a car by published correlations: an empirical addition to potential flow, not CFD.

Potential flow closes at the rear of a body and recovers all its pressure there. The flow past a real car separates, and
the pressure at its rear is low and nearly uniform. At every point a separated share χ ∈ [0, 1] blends the two,

$$ C_p = (1 - \chi) (C_p^{pot} + C_p^{vortex}) + \chi\, C_{pb}. $$

θ is the slope at which the surface falls away from the stream, $\sin\theta = n_z$.

*Separation.* Flow follows a slope up to about 30° (Ahmed, Ramm and Faltin, 1984): $\chi_\theta = 1 / (1 +
e^{-(\theta - 30°)/3°})$. The edge of separated flow descends at β with tan β = 1/6, as after a step, where it
reattaches after about six heights (Eaton and Johnston, 1981). Along each mesh line from nose to tail the depth δ of the
surface below that edge obeys

$$ \frac{d\delta}{dz} = \chi \tan\theta - \tan\beta, \quad \delta \ge 0, \qquad
   \chi = 1 - (1 - \chi_\theta) (1 - \chi_\delta), \quad \chi_\delta = 1 - e^{-(\delta / 0.08\,\mathrm{m})^2}, $$

so a boot lies in the wake of a steep backlight, and extends beyond it if it is long enough.

*The base pressure* is that of blunt bodies (Hoerner, 1965): $C_{pb} = -0.029 / \sqrt{C_f S_{wet} / S_{base}}$ with $C_f
= 0.003$, the attached area as the wetted one and the separated area, seen from behind, as the base. A tapered tail has
a smaller base and a higher pressure on it.

*The wake's displacement.* Separated panels emit a stream, $n \cdot v = \kappa \chi n_z$ (the wake source model of
Parkinson and Jandali, 1970), so that the flow does not turn around the tail. As there, κ follows from the base
pressure, which the flow must have where it separates: $\langle |v|^2 \rangle = 1 - C_{pb}$ over the rim, the panels
within which χ changes.

*Pillar vortices.* Along the sides of an attached slope two vortices roll up, as on a delta wing, and suck:
$C_p^{vortex} = -\pi \sin^2\theta \cos\theta\, e^{-(b - |x|)^+ / 0.2 b}$, Polhamus' (1966) vortex lift, with $n_y$ for
cos θ and b the half width of the upward-facing surface, the largest $n_y |x|$ across the car. They vanish as the slope
separates, which is the jump that Ahmed found at 30°.
"""

import numpy as np
from jaxtyping import Float

from crossreg.cars.family.bodies import Body
from crossreg.cars.family.panels import PanelFlow, Panels, PanelSystem

CRITICAL_SLOPE, SLOPE_WIDTH = np.radians(30), np.radians(3)
EDGE_DESCENT = 1 / 6
DEPTH = 0.08
SKIN_FRICTION = 0.003
VORTEX_WIDTH = 0.2


def separated_share(body: Body, normals: Float[np.ndarray, "vertex 3"]) -> Float[np.ndarray, " vertex"]:
    """Return χ at every vertex. On the front and the rear face, which no line along the car crosses, it is χ_θ."""
    slope = np.arcsin(np.clip(normals[:, 2], -1, 1))
    share = 1 / (1 + np.exp((CRITICAL_SLOPE - slope) / SLOPE_WIDTH))
    steep, z = share[body.lines], body.vertices[body.lines, 2]
    fall = np.tan(np.clip(slope, -CRITICAL_SLOPE, np.radians(80)))[body.lines]
    depth = np.zeros(steep.shape)
    for here in range(1, z.shape[1]):
        step = np.maximum(z[:, here] - z[:, here - 1], 0)  # a bowed front may make a line run back a little
        separated = _either(steep[:, here - 1 : here + 1].mean(1), _below(depth[:, here - 1]))
        change = separated * fall[:, here - 1 : here + 1].mean(1) - EDGE_DESCENT
        depth[:, here] = np.maximum(0, depth[:, here - 1] + step * change)
    share[body.lines] = _either(steep, _below(depth))
    return share


def _below(depth: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return 1 - np.exp(-((depth / DEPTH) ** 2))


def _either(one: Float[np.ndarray, "..."], other: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return 1 - (1 - one) * (1 - other)


def base_pressure(panels: Panels, share: Float[np.ndarray, " panel"]) -> float:
    """Return C_pb of a body from the separated share of its panels."""
    base = (share * panels.area * np.maximum(panels.normal[:, 2], 0)).sum()
    wetted = ((1 - share) * panels.area).sum()
    return float(-0.029 / np.sqrt(SKIN_FRICTION * wetted / base))


def rim_weight(panels: Panels, share: Float[np.ndarray, "panel corner"]) -> Float[np.ndarray, " panel"]:
    """Return the weight of each panel as part of the rim; the weights sum to 1."""
    weight = panels.area * np.ptp(share, axis=1) ** 2
    return weight / weight.sum()


def flow_with_wake(system: PanelSystem, share: Float[np.ndarray, "panel corner"], base: float) -> PanelFlow:
    """Return the flow whose separated panels emit the stream that gives the rim the base pressure.

    If no stream gives the rim so high a pressure, the nearest one is taken.
    """
    stream = share.mean(1) * np.maximum(system.panels.normal[:, 2], 0)
    closed = system.solve()
    # Velocities are linear in κ, so |v|² over the rim is a quadratic. It falls as κ grows from 0: the first root.
    added = system.solve(stream).velocity - closed.velocity
    rim = rim_weight(system.panels, share)
    square, linear, constant = (
        float(rim @ (one * other).sum(1))
        for one, other in ((added, added), (added, closed.velocity), (closed.velocity, closed.velocity))
    )
    room = max(linear**2 - square * (constant - 1 + base), 0)  # without a root, where |v|² is lowest
    strength = max((-linear - np.sqrt(room)) / square, 0)
    return system.solve(strength * stream)


def vortex_pressure(body: Body, normals: Float[np.ndarray, "vertex 3"]) -> Float[np.ndarray, " vertex"]:
    """Return C_p^vortex at every vertex, before separation."""
    across = np.abs(body.vertices[body.lines, 0])
    _, up, along = np.moveaxis(np.maximum(normals[body.lines], 0), -1, 0)
    half_width = (up * across).max(0)
    inboard = np.maximum(1 - across / half_width, 0)
    pressure = np.zeros(len(normals))
    pressure[body.lines] = -np.pi * along**2 * up * np.exp(-inboard / VORTEX_WIDTH)
    return pressure
