r"""Units of a user's fields: the network reads and predicts $(u - o)/s$ of each channel, its surrogate $u$ itself.

A pressure of 10⁵ Pa is too large for a network, whose log σ has bounds. Outside of the network, inputs, predictions and
scores are in the fields' own units: errors and standard deviations are s times as large, a log-density is lower by
log s, and coverage is the same.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Units(NamedTuple):
    """Offset o and scale s of each channel: plain numbers, which are part of a model's structure and never trained."""

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    def offsets(self, num_dims: int) -> Float[Array, "channel *ones"]:
        """Return o, to be added to fields (channel, *space)."""
        return jnp.asarray(self.offset, jnp.float32).reshape(-1, *(1,) * num_dims)

    def scales(self, num_dims: int) -> Float[Array, "channel *ones"]:
        """Return s, to be multiplied with fields (channel, *space)."""
        return jnp.asarray(self.scale, jnp.float32).reshape(-1, *(1,) * num_dims)

    def to_network(self, x: Float[Array, "in *axes"]) -> Float[Array, "in *axes"]:
        """Return fields as the network reads them; further channels (a mask) are left alone."""
        channels, num_dims = len(self.offset), x.ndim - 1
        field = (x[:channels] - self.offsets(num_dims)) / self.scales(num_dims)
        return jnp.concatenate([field, x[channels:]]) if x.shape[0] > channels else field
