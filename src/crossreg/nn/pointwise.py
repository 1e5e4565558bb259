"""A linear map of the channels, the same at every point."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class PointwiseLinear(eqx.Module):
    r"""$h_{o}(x) = \sum_i W_{oi} h_i(x) + b_o$; starts uniform in $\pm 1/\sqrt{C_{in}}$."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __init__(self, in_channels: int, out_channels: int, *, key: PRNGKeyArray):
        weight_key, bias_key = jax.random.split(key)
        limit = 1 / math.sqrt(in_channels)
        self.weight = jax.random.uniform(weight_key, (out_channels, in_channels), minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(bias_key, (out_channels,), minval=-limit, maxval=limit)

    def __call__(self, h: Float[Array, "in *space"]) -> Float[Array, "out *space"]:
        bias = self.bias.reshape(-1, *(1,) * (h.ndim - 1))
        return jnp.tensordot(self.weight, h, axes=1) + bias
