"""A linear map of the channels, the same at every point."""

import math
from typing import ClassVar

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
    takes_many: ClassVar[bool] = True

    def __init__(self, in_channels: int, out_channels: int, *, gain: float = 1.0, key: PRNGKeyArray):
        weight_key, bias_key = jax.random.split(key)
        limit = 1 / math.sqrt(in_channels)
        self.weight = gain * jax.random.uniform(weight_key, (out_channels, in_channels), minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(bias_key, (out_channels,), minval=-limit, maxval=limit)

    def __call__(self, h: Float[Array, "in *space"]) -> Float[Array, "out *space"]:
        bias = self.bias.reshape(-1, *(1,) * (h.ndim - 1))
        return mix_channels(self.weight, h) + bias


@jax.custom_vjp
def mix_channels(weight: Float[Array, "out in"], h: Float[Array, "in *any"]) -> Float[Array, "out *any"]:
    """W h over the first axis. Its gradients, written out, keep the channels first, so that nothing is transposed."""
    return jnp.tensordot(weight, h, axes=1)


def _forward(weight, h):
    return mix_channels(weight, h), (weight, h)


def _backward(kept, grad):
    weight, h = kept
    axes = tuple(range(1, h.ndim))
    return jnp.tensordot(grad, h, axes=(axes, axes)), jnp.tensordot(weight.T, grad, axes=1)


mix_channels.defvjp(_forward, _backward)
