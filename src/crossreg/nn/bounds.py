r"""A smooth bound for every log σ.

$$ b(r) = \ell + \operatorname{softplus}(r - \ell) - \operatorname{softplus}(r - u) $$

is the identity well inside $[\ell, u]$, flattens outside, and never leaves the interval. Without a bound
the reg gradient can drive a scale to several hundred and the run to NaN.

Flat also means that a gradient has no way back: a head that one step throws far beyond a bound would stay there for
the rest of its run. So in training a gradient that points back inside keeps, beyond a bound, the slope ½ that $b$ has
at it. (The σ of a site is a parameter of its own: it is not thrown there, and its outward gradient dies on the way.)
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Bounds = tuple[float, float]


def bound(raw: Float[Array, "*shape"], bounds: Bounds) -> Float[Array, "*shape"]:
    """Maps an unconstrained `raw` smoothly into the interval `bounds`."""
    low, high = bounds
    value = low + jax.nn.softplus(raw - low) - jax.nn.softplus(raw - high)
    return jnp.clip(value, low, high)  # only rounding, far outside, is ever clipped


def bound_in_reverse(raw: Float[Array, "*shape"], bounds: Bounds) -> Float[Array, "*shape"]:
    """The same, to be differentiated in reverse mode only, with the way back open."""
    return jnp.asarray(_returning(raw, bounds))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _returning(raw: Array, bounds: Bounds) -> Array:
    return bound(raw, bounds)


def _forward(raw: Array, bounds: Bounds) -> tuple[Array, Array]:
    return bound(raw, bounds), raw


def _backward(bounds: Bounds, raw: Array, gradient: Array) -> tuple[Array]:
    low, high = bounds
    slope = jax.nn.sigmoid(raw - low) - jax.nn.sigmoid(raw - high)
    # Descent lowers what has a positive gradient.
    returns = ((raw > high) & (gradient > 0)) | ((raw < low) & (gradient < 0))
    return (gradient * jnp.where(returns, 0.5, slope),)


_returning.defvjp(_forward, _backward)


def unbound(value: float | Float[Array, "*shape"], bounds: Bounds) -> Float[Array, "*shape"]:
    """The `raw` for which `bound(raw, bounds)` is `value`, which must lie strictly inside."""
    low, high = bounds
    above, below = value - low, high - value
    return value + jnp.log(-jnp.expm1(-above)) - jnp.log(-jnp.expm1(-below))
