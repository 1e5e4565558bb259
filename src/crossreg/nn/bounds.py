r"""A smooth bound for every log σ.

$$ b(r) = \ell + \operatorname{softplus}(r - \ell) - \operatorname{softplus}(r - u) $$

is the identity well inside $[\ell, u]$, flattens outside, and never leaves the interval. Without a bound, the reg
gradient can drive a scale to several hundred and the run to NaN.

Flat also means that no gradient leads back: a head that one step throws far beyond a bound would stay there for the
rest of the run. So in training, beyond a bound, a gradient that points back inside has the slope ½ that $b$ has at the
bound. (The σ of a site is a parameter of its own: no step throws it there, as its outward gradient vanishes before.)
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Bounds = tuple[float, float]


def bound(raw: Float[Array, "*shape"], bounds: Bounds) -> Float[Array, "*shape"]:
    """Map an unconstrained `raw` smoothly into the interval `bounds`."""
    low, high = bounds
    value = low + jax.nn.softplus(raw - low) - jax.nn.softplus(raw - high)
    return jnp.clip(value, low, high)  # clips rounding errors alone, far outside


def bound_in_reverse(raw: Float[Array, "*shape"], bounds: Bounds) -> Float[Array, "*shape"]:
    """Return `bound`, to be differentiated in reverse mode only, with a gradient that leads back inside."""
    return jnp.asarray(_returning(raw, bounds))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _returning(raw: Array, bounds: Bounds) -> Array:
    return bound(raw, bounds)


def _forward(raw: Array, bounds: Bounds) -> tuple[Array, Array]:
    return bound(raw, bounds), raw


def _backward(bounds: Bounds, raw: Array, gradient: Array) -> tuple[Array]:
    low, high = bounds
    slope = jax.nn.sigmoid(raw - low) - jax.nn.sigmoid(raw - high)
    # Descent lowers a value whose gradient is positive.
    returns = ((raw > high) & (gradient > 0)) | ((raw < low) & (gradient < 0))
    return (gradient * jnp.where(returns, 0.5, slope),)


_returning.defvjp(_forward, _backward)


def unbound(value: float | Float[Array, "*shape"], bounds: Bounds) -> Float[Array, "*shape"]:
    """Return the `raw` for which `bound(raw, bounds)` is `value`, which must lie strictly inside."""
    low, high = bounds
    above, below = value - low, high - value
    return value + jnp.log(-jnp.expm1(-above)) - jnp.log(-jnp.expm1(-below))
