r"""Persistence: the next field is the one that is seen, with Gaussian errors sized on train.

Every table has this row. A point that is not observed is predicted as 0, as the network sees
it. `persistence` has one σ per channel; `persistence-masked` knows which points are hidden and
sizes its errors for seen and for hidden points apart.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.data.pairs import Batch, Pairs
from crossreg.predictive import Mixture


class Persistence(eqx.Module):
    """The mixture of one Gaussian around the observed input."""

    var_seen: Float[Array, " channel"]
    var_hidden: Float[Array, " channel"]

    def __call__(self, batch: Batch, key: PRNGKeyArray) -> Mixture:
        mean, seen = _split_input(batch)
        shape = (-1, *(1,) * (mean.ndim - 2))
        var = jnp.where(seen, self.var_seen.reshape(shape), self.var_hidden.reshape(shape))
        var = jnp.broadcast_to(var, mean.shape)
        return Mixture(mean[None], var[None], jnp.zeros_like(mean)[None])


def _split_input(batch: Batch):
    """The observed field, and which of its points are seen (those that are not exactly 0)."""
    mean = batch.x[:, : batch.y.shape[1]]
    return mean, mean != 0


def fit_persistence(pairs: Pairs, *, knows_mask: bool = False) -> Persistence:
    """Sizes the errors of persistence on a split."""
    batch = pairs.gather(jnp.arange(int(pairs.num_pairs)))
    mean, seen = _split_input(batch)
    squared = (batch.y - mean) ** 2
    axes = (0, *range(2, squared.ndim))

    def mean_over(weight):
        weight = jnp.broadcast_to(weight * batch.weight, squared.shape)
        return jnp.sum(weight * squared, axes) / jnp.maximum(jnp.sum(weight, axes), 1)

    if not knows_mask:
        var = mean_over(jnp.ones_like(squared))
        return Persistence(var, var)
    hidden = mean_over((~seen).astype(squared.dtype))
    return Persistence(mean_over(seen.astype(squared.dtype)), jnp.maximum(hidden, jnp.finfo(hidden.dtype).tiny))
