r"""Persistence: the next field is the one that is seen, with Gaussian errors sized on train.

Every table has this row. A point that is not observed is predicted as 0, as the network sees
it. `persistence` has one σ per channel; `persistence-masked` knows which points are hidden and
sizes its errors for seen and for hidden points apart.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.data.units import Units
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture

_SMALLEST_VARIANCE = 1e-20


class Persistence(eqx.Module):
    """The mixture of one Gaussian around the observed input. Variances are those of the standardised fields."""

    var_seen: Float[Array, " channel"]
    var_hidden: Float[Array, " channel"]
    units: Units | None = eqx.field(static=True, default=None)

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture | InUnits:
        mean = _standard(batch.x[:, : batch.y.shape[1]], self.units)
        num_dims = mean.ndim - 2
        shape = (-1, *(1,) * num_dims)
        var = jnp.where(batch.mask, self.var_seen.reshape(shape), self.var_hidden.reshape(shape))
        mixture = Mixture(mean[None], var[None], jnp.zeros_like(mean)[None])
        if self.units is None:
            return mixture
        return InUnits(mixture, self.units.offsets(num_dims), self.units.scales(num_dims))


def _standard(fields: Float[Array, "batch channel *space"], units: Units | None):
    if units is None:
        return fields
    num_dims = fields.ndim - 2
    return (fields - units.offsets(num_dims)) / units.scales(num_dims)


def fit_persistence(pairs: AbstractPairs, *, knows_mask: bool = False) -> Persistence:
    """Sizes the errors of persistence on a split."""
    batch = pairs.gather(jnp.arange(int(pairs.num_pairs)))
    x, y = (_standard(fields, pairs.units) for fields in (batch.x[:, : batch.y.shape[1]], batch.y))
    squared = (y - x) ** 2
    axes = (0, *range(2, squared.ndim))

    def mean_over(points):
        weight = jnp.broadcast_to(points * batch.weight, squared.shape)
        mean = jnp.sum(weight * squared, axes) / jnp.maximum(jnp.sum(weight, axes), 1)
        # A field that never changes has no error at all, and no Gaussian.
        return jnp.maximum(mean, _SMALLEST_VARIANCE)

    if not knows_mask:
        var = mean_over(jnp.ones_like(batch.mask))
        return Persistence(var, var, pairs.units)
    return Persistence(mean_over(batch.mask), mean_over(~batch.mask), pairs.units)
