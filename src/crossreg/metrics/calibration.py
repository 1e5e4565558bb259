r"""Calibration of a mixture, from its PIT values $u = \frac1S\sum_s \Phi((y-\mu_s)/\sigma_s)$.

The central interval of level α covers the truth exactly when $|2u - 1| \le \alpha$, so that coverage needs no
quantile search.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from crossreg.objectives import Weight, weighted_mean

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def coverage(pit: Float[Array, "*shape"], weight: Weight = None, levels=LEVELS) -> Float[Array, " level"]:
    """The fraction of points inside the central interval of each level."""
    distance = jnp.abs(2 * pit - 1)
    return jnp.stack([weighted_mean((distance <= level).astype(pit.dtype), weight) for level in levels])


def ece_from_coverage(covered: Float[Array, " level"], levels=LEVELS) -> Float[Array, ""]:
    r"""$\mathrm{ECE}_{mix} = \frac{1}{|A|}\sum_{\alpha \in A} |\widehat{\mathrm{Coverage}}(\alpha) - \alpha|$."""
    return jnp.mean(jnp.abs(covered - jnp.asarray(levels, covered.dtype)))


def ece(pit: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    """ECE_mix over the levels 0.1 … 0.9."""
    return ece_from_coverage(coverage(pit, weight))
