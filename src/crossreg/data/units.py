r"""Units of a user's fields: a network reads and gives $(u - o)/s$ of each channel, its surrogate u itself.

Pressures of 10⁵ Pa are no numbers for a network, and its log σ has bounds. Everything outside of the network, inputs,
predictions and scores, is in the fields' own units: errors and standard deviations are s times as large, a log-density
is log s lower, coverage is the same.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Units(NamedTuple):
    """Offset o and scale s of each channel: plain numbers, part of a model's structure and never trained."""

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    def offsets(self, num_dims: int) -> Float[Array, "channel *ones"]:
        """o, to be added to fields (channel, *space)."""
        return jnp.asarray(self.offset, jnp.float32).reshape(-1, *(1,) * num_dims)

    def scales(self, num_dims: int) -> Float[Array, "channel *ones"]:
        """s, to be multiplied with fields (channel, *space)."""
        return jnp.asarray(self.scale, jnp.float32).reshape(-1, *(1,) * num_dims)

    def to_network(self, x: Float[Array, "in *axes"]) -> Float[Array, "in *axes"]:
        """Fields as the network reads them; further channels (a mask) stay as they are."""
        channels, num_dims = len(self.offset), x.ndim - 1
        field = (x[:channels] - self.offsets(num_dims)) / self.scales(num_dims)
        return jnp.concatenate([field, x[channels:]]) if x.shape[0] > channels else field
