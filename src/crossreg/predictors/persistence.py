r"""Persistence: predict the observed input again, with Gaussian errors whose size is fitted on train.

Every table has this row. A hidden point is predicted as 0, the value that the network sees. `persistence` has one σ per
channel; `persistence-masked` knows which points are hidden and has one σ for observed and one for hidden points.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.data.units import Units
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture

_SMALLEST_VARIANCE = 1e-20
# Of pairs in files, as many as fit into so many bytes are enough to size errors by.
_MOST_BYTES = 2**26


class Persistence(eqx.Module):
    """One Gaussian around the observed input at every point; variances are those of the standardised fields."""

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
    """Fit the error sizes of persistence to a split.

    Args:
        pairs: The train split; of one that stays in its files, evenly spaced pairs are read.
        knows_mask: Fit observed and hidden points separately. If all are observed, or all hidden, both have one σ.

    Returns:
        A predictor whose mean is the input, with the standard deviation of the changes on this split.

    Example:
        ```python
        persistence = xr.methods.fit_persistence(data.train)
        xr.evaluate(persistence, data.test)["crps"]
        ```
    """
    pairs = pairs.in_memory(_MOST_BYTES)
    batch = pairs.gather(jnp.arange(int(pairs.num_pairs)))
    x, y = (_standard(fields, pairs.units) for fields in (batch.x[:, : batch.y.shape[1]], batch.y))
    squared = (y - x) ** 2
    axes = (0, *range(2, squared.ndim))

    def mean_over(points, otherwise):
        weight = jnp.broadcast_to(points * batch.weight, squared.shape)
        count = jnp.sum(weight, axes)
        mean = jnp.where(count > 0, jnp.sum(weight * squared, axes) / jnp.maximum(count, 1), otherwise)
        # A field that never changes has no error, and a Gaussian needs a variance.
        return jnp.maximum(mean, _SMALLEST_VARIANCE)

    # Where no change of a channel was measured, it has the spread of standardised fields.
    var = mean_over(jnp.ones_like(batch.mask), 1.0)
    if not knows_mask:
        return Persistence(var, var, pairs.units)
    return Persistence(mean_over(batch.mask, var), mean_over(~batch.mask, var), pairs.units)
