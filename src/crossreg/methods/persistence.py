r"""Persistence: the next field is the one that is seen, with Gaussian errors sized on train.

Every table has this row. A point that is not observed is predicted as 0, as the network sees
it. `persistence` has one σ per channel; `persistence-masked` knows which points are hidden and
sizes its errors for seen and for hidden points apart.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.predictive import Mixture

_SMALLEST_VARIANCE = 1e-20


class Persistence(eqx.Module):
    """The mixture of one Gaussian around the observed input."""

    var_seen: Float[Array, " channel"]
    var_hidden: Float[Array, " channel"]

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture:
        mean = batch.x[:, : batch.y.shape[1]]
        shape = (-1, *(1,) * (mean.ndim - 2))
        var = jnp.where(batch.mask, self.var_seen.reshape(shape), self.var_hidden.reshape(shape))
        return Mixture(mean[None], var[None], jnp.zeros_like(mean)[None])


def fit_persistence(pairs: AbstractPairs, *, knows_mask: bool = False) -> Persistence:
    """Sizes the errors of persistence on a split."""
    batch = pairs.gather(jnp.arange(int(pairs.num_pairs)))
    squared = (batch.y - batch.x[:, : batch.y.shape[1]]) ** 2
    axes = (0, *range(2, squared.ndim))

    def mean_over(points):
        weight = jnp.broadcast_to(points * batch.weight, squared.shape)
        mean = jnp.sum(weight * squared, axes) / jnp.maximum(jnp.sum(weight, axes), 1)
        # A field that never changes has no error at all, and no Gaussian.
        return jnp.maximum(mean, _SMALLEST_VARIANCE)

    if not knows_mask:
        var = mean_over(jnp.ones_like(batch.mask))
        return Persistence(var, var)
    return Persistence(mean_over(batch.mask), mean_over(~batch.mask))
