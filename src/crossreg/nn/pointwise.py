"""A linear map of the channels, the same at every point."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

HE_GAIN = math.sqrt(6)


class PointwiseLinear(eqx.Module):
    r"""$h_{o}(x) = \sum_i W_{oi} h_i(x) + b_o$.

    W starts uniform in $\pm g/\sqrt{C_{in}}$ and b in $\pm 1/\sqrt{C_{in}}$. A gain g of 1 is the usual start, which
    loses two thirds of the variance; `HE_GAIN` gives W the variance $2/C_{in}$, which keeps it through a GELU.
    """

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __init__(self, in_channels: int, out_channels: int, *, gain: float = 1.0, key: PRNGKeyArray):
        weight_key, bias_key = jax.random.split(key)
        limit = 1 / math.sqrt(in_channels)
        self.weight = gain * jax.random.uniform(weight_key, (out_channels, in_channels), minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(bias_key, (out_channels,), minval=-limit, maxval=limit)

    def __call__(self, h: Float[Array, "in *space"]) -> Float[Array, "out *space"]:
        bias = self.bias.reshape(-1, *(1,) * (h.ndim - 1))
        return jnp.tensordot(self.weight, h, axes=1) + bias
