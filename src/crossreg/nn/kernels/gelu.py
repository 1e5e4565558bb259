"""GELU with noise factors around it, and its gradients written out."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def gelu_and_slope(x):
    """Return GELU in its tanh form, as `jax.nn.gelu` has it, and its derivative."""
    scale, cubic = np.float32(np.sqrt(2 / np.pi)), np.float32(0.044715)
    inner = scale * (x + cubic * x * x * x)
    # tanh from one exponential; if that overflows, 2/∞ = 0.
    tanh = 1 - 2 / (jnp.exp(2 * inner) + 1)
    slope = 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * scale * (1 + 3 * cubic * x * x)
    return 0.5 * x * (1 + tanh), slope


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def by_channel(
    a: Float[Array, "channel sample *space"],
    first: Float[Array, "channel sample"],
    second: Float[Array, "channel sample"],
    gelu: bool,
) -> Float[Array, "channel sample *space"]:
    r"""Return $f_2 \odot GELU(f_1 \odot a)$, or the same without the GELU, for fields that no cache holds.

    XLA repeats pointwise work in every operation that reads its result. The result of a loop, here over channels, is
    stored once instead. The backward pass keeps only a.
    """

    def one(each):
        a, first, second = _over_space(*each)
        return second * (jax.nn.gelu(first * a) if gelu else first * a)

    return jax.lax.map(one, (a, first, second))


def _over_space(field: Float[Array, "sample *space"], *factors: Float[Array, " sample"]):
    return field, *(factor.reshape(-1, *(1,) * (field.ndim - 1)) for factor in factors)


def _forward(a, first, second, gelu):
    return by_channel(a, first, second, gelu), (a, first, second)


def _backward(gelu, kept, grad):
    def one(each):
        grad, (a, first, second) = each[0], _over_space(*each[1:])
        value, slope = gelu_and_slope(first * a) if gelu else (first * a, 1.0)
        along = second * slope * grad
        ones = jnp.ones(a[0].size, a.dtype)
        sums = (jnp.matmul(f.reshape(len(a), -1), ones, precision="float32") for f in (a * along, value * grad))
        return first * along, *sums

    return jax.lax.map(one, (grad, *kept))


by_channel.defvjp(_forward, _backward)
