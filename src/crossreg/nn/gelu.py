"""GELU with noise factors around it, and its gradients written out."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def gelu_and_slope(x):
    """GELU in its tanh form, as `jax.nn.gelu`, and its derivative."""
    scale, cubic = np.float32(np.sqrt(2 / np.pi)), np.float32(0.044715)
    inner = scale * (x + cubic * x * x * x)
    # tanh by one exponential; where it overflows, 2/∞ = 0.
    tanh = 1 - 2 / (jnp.exp(2 * inner) + 1)
    slope = 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * scale * (1 + 3 * cubic * x * x)
    return 0.5 * x * (1 + tanh), slope


@jax.custom_vjp
def scaled_gelu(
    a: Float[Array, "channel sample *space"],
    first: Float[Array, "channel sample"],
    second: Float[Array, "channel sample"],
) -> Float[Array, "channel sample *space"]:
    r"""$f_2 \odot GELU(f_1 \odot a)$, one channel after the other, for fields that no cache holds.

    XLA computes pointwise work again in everything that reads it, each time from all that it is made of, and in the
    order of the reader. What a loop has written is read as it is. Only a is kept for the way back.
    """
    return jax.lax.map(lambda each: _of_channel(*each), (a, first, second))


def _of_channel(a, first, second):
    return _over_space(second, a) * jax.nn.gelu(_over_space(first, a) * a)


def _over_space(factor: Float[Array, " sample"], field: Float[Array, "sample *space"]):
    return factor.reshape(-1, *(1,) * (field.ndim - 1))


def _forward(a, first, second):
    return scaled_gelu(a, first, second), (a, first, second)


def _backward(kept, grad):
    def back(each):
        a, first, second, grad = each
        first, second = _over_space(first, a), _over_space(second, a)
        value, slope = gelu_and_slope(first * a)
        along = second * slope * grad
        ones = jnp.ones(a[0].size, a.dtype)
        sums = (jnp.matmul(f.reshape(len(a), -1), ones, precision="float32") for f in (a * along, value * grad))
        return first * along, *sums

    return jax.lax.map(back, (*kept, grad))


scaled_gelu.defvjp(_forward, _backward)
