r"""The latent surface: a torus, as a grid that is periodic in both axes.

$$ x(\theta, \varphi) = \big((R + r\cos\theta)\cos\varphi,\ (R + r\cos\theta)\sin\varphi,\ r\sin\theta\big) $$

with θ on the first axis, φ on the second, R = 1, r = 1/2. The normal is $x_\theta \times x_\varphi$ at length 1; it
points into the tube, as in the reference implementation.
"""

import numpy as np
from jaxtyping import Float

RADIUS, TUBE_RADIUS = 1.0, 0.5


def torus(grid: int) -> tuple[Float[np.ndarray, "grid grid 3"], Float[np.ndarray, "grid grid 3"]]:
    """Points and normals of the grid × grid torus, the angles 2πk/grid."""
    angle = 2 * np.pi * np.arange(grid) / grid
    theta, phi = np.meshgrid(angle, angle, indexing="ij")
    outward = np.stack([np.cos(theta) * np.cos(phi), np.cos(theta) * np.sin(phi), np.sin(theta)], axis=-1)
    ring = np.stack([np.cos(phi), np.sin(phi), np.zeros_like(phi)], axis=-1)
    return RADIUS * ring + TUBE_RADIUS * outward, -outward
