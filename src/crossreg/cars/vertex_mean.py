r"""The vertex mean, a baseline: each vertex has its mean pressure over the train cars.

It needs no network, but vertices that correspond from car to car. The error of a new car at vertex v has the variance

$$ \Big(1 + \frac1n\Big) \frac{(n-1) s_v^2 + 2 \bar s^2}{n + 1}, $$

with the variance $s_v^2$ over n train cars, shrunk a little towards the mean $\bar s^2$ over all vertices, since by
chance a few cars may agree at a vertex.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from crossreg.cars.pairs import CarPairs
from crossreg.data.pairs import Batch
from crossreg.errors import InputError
from crossreg.predictive.mixture import Mixture


class VertexMean(eqx.Module):
    """A predictor that gives every car the same Gaussian at each vertex."""

    mean: Float[Array, "1 vertex"]
    var: Float[Array, "1 vertex"]

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture:
        mean, var = (jnp.broadcast_to(part, batch.y.shape)[None] for part in (self.mean, self.var))
        return Mixture(mean, var, jnp.zeros_like(var))


def fit_vertex_mean(pairs: CarPairs) -> VertexMean:
    """Fit means and variances over the cars of a split; raise InputError if vertex counts differ."""
    if len(set(pairs.num_vertices.tolist())) > 1:
        raise InputError("vertex-mean: the cars have different vertex counts, so that vertices do not correspond")
    pressure = pairs.gather(jnp.arange(int(pairs.num_pairs))).y
    num_cars = pressure.shape[0]
    var = jnp.var(pressure, axis=0, ddof=min(1, num_cars - 1))
    pooled = jnp.mean(var) if num_cars > 1 else jnp.var(pressure)
    var = (1 + 1 / num_cars) * ((num_cars - 1) * var + 2 * pooled) / (num_cars + 1)
    return VertexMean(jnp.mean(pressure, axis=0), var)
