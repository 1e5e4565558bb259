r"""A smooth bound for every log σ.

$$ b(r) = \ell + \operatorname{softplus}(r - \ell) - \operatorname{softplus}(r - u) $$

is the identity well inside $[\ell, u]$, flattens outside, and never leaves the interval. Without a bound
the reg gradient can drive a scale to several hundred and the run to NaN.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Bounds = tuple[float, float]


def bound(raw: Float[Array, "*shape"], bounds: Bounds) -> Float[Array, "*shape"]:
    """Maps an unconstrained `raw` smoothly into the interval `bounds`."""
    low, high = bounds
    value = low + jax.nn.softplus(raw - low) - jax.nn.softplus(raw - high)
    return jnp.clip(value, low, high)  # only rounding, far outside, is ever clipped


def unbound(value: float | Float[Array, "*shape"], bounds: Bounds) -> Float[Array, "*shape"]:
    """The `raw` for which `bound(raw, bounds)` is `value`, which must lie strictly inside."""
    low, high = bounds
    above, below = value - low, high - value
    return value + jnp.log(-jnp.expm1(-above)) - jnp.log(-jnp.expm1(-below))
