"""A linear map of the channels, the same at every point."""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.errors import InputError
from crossreg.nn.kernels import BatchedStage, mix_channels

HE_GAIN = math.sqrt(6)


class PointwiseLinear(BatchedStage):
    r"""$h_{o}(x) = \sum_i W_{oi} h_i(x) + b_o$.

    W starts uniform in $\pm g/\sqrt{C_{in}}$ and b in $\pm 1/\sqrt{C_{in}}$. A gain g of 1 is the usual start and
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
        return self._apply(partial(jnp.tensordot, axes=1), h)

    def reverse(self, h: Float[Array, "in *space"]) -> Float[Array, "out *space"]:
        return self._apply(mix_channels, h)

    def _apply(self, mix: Callable, h: Float[Array, "in *space"]) -> Float[Array, "out *space"]:
        if h.shape[0] != self.weight.shape[1]:
            raise InputError(f"the input has {h.shape[0]} channels; the network reads {self.weight.shape[1]}")
        return mix(self.weight, h) + self.bias.reshape(-1, *(1,) * (h.ndim - 1))
