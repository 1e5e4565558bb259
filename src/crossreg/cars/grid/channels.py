"""A car on the grid: nine channels on the torus, which the network reads.

0–2  position of the cell's vertex, in the units of the surface
3–5  position of the cell on the torus
6–8  vertex normal × torus normal
"""

import numpy as np
from jaxtyping import Float

from crossreg.cars.grid.torus import torus
from crossreg.cars.grid.transport import Transport
from crossreg.cars.meshes.surface import Surface
from crossreg.errors import InputError

NUM_CHANNELS = 9


def latent_channels(surface: Surface, transport: Transport) -> Float[np.ndarray, "9 grid grid"]:
    """Return the channels of one car; the caller normalises the first three.

    Args:
        surface: the car.
        transport: its map to the grid, which must have as many vertices.
    """
    if len(transport.decode) != len(surface.vertices):
        raise InputError(
            f"car {surface.name}: has {len(surface.vertices)} vertices, but its map has"
            f" {len(transport.decode)}; make the map from this car"
        )
    points, normals = torus(len(transport.encode))
    across = np.cross(surface.normals[transport.encode], normals)
    channels = np.concatenate([surface.vertices[transport.encode], points, across], axis=-1)
    return np.ascontiguousarray(np.moveaxis(channels, -1, 0), dtype=np.float32)
