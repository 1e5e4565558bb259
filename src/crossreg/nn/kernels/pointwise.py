"""A linear map of the channels, the same at every point."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.errors import InputError
from crossreg.nn.kernels.pending import TRAINING_PRECISION, BatchedStage

HE_GAIN = math.sqrt(6)


class PointwiseLinear(BatchedStage):
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
        self._check_channels(h)
        bias = self.bias.reshape(-1, *(1,) * (h.ndim - 1))
        return jnp.tensordot(self.weight, h, axes=1) + bias

    def reverse(self, h: Float[Array, "in *space"]) -> Float[Array, "out *space"]:
        self._check_channels(h)
        return mix_channels(self.weight, h) + self.bias.reshape(-1, *(1,) * (h.ndim - 1))

    def _check_channels(self, h: Float[Array, "in *space"]) -> None:
        if h.shape[0] != self.weight.shape[1]:
            raise InputError(f"the input has {h.shape[0]} channels; the network reads {self.weight.shape[1]}")


@jax.custom_vjp
def mix_channels(weight: Float[Array, "out in"], h: Float[Array, "in *any"]) -> Float[Array, "out *any"]:
    """W h over the first axis. JAX's own gradients put channels last, and a CPU then copies whole fields."""
    return jnp.tensordot(weight, h, axes=1)


def _mix_forward(weight, h):
    return mix_channels(weight, h), (weight, h)


def _mix_backward(kept, grad):
    weight, h = kept
    axes = tuple(range(1, h.ndim))
    # A gradient is taken when `predict` has returned, and its setting of the precision with it.
    if jax.default_backend() == "cpu" or h.ndim < 3:
        dweight = jnp.tensordot(grad, h, axes=(axes, axes), precision=TRAINING_PRECISION)
    else:
        # One small product for each sample: a GPU has them all at once, where a single long sum keeps few of its
        # processors busy.
        each = (field.reshape(*field.shape[:2], -1) for field in (grad, h))
        dweight = jnp.sum(jnp.einsum("osx,isx->soi", *each, precision=TRAINING_PRECISION), axis=0)
    return dweight, jnp.tensordot(weight.T, grad, axes=1, precision=TRAINING_PRECISION)


mix_channels.defvjp(_mix_forward, _mix_backward)
