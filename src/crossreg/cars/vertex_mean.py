r"""The vertex mean: each vertex has the mean pressure that it has over the train cars. A row of every table of cars.

Where vertices correspond from car to car this needs no network. The error of a new car at vertex v has the variance

$$ \Big(1 + \frac1n\Big) \frac{(n-1) s_v^2 + 2 \bar s^2}{n + 1}, $$

from the variance $s_v^2$ over n train cars, drawn a little towards the mean $\bar s^2$ over all vertices: of few cars
some vertices have none by chance.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from crossreg.cars.pairs import CarPairs
from crossreg.data.pairs import Batch
from crossreg.errors import InputError
from crossreg.predictive.mixture import Mixture


class VertexMean(eqx.Module):
    """The mixture of one Gaussian at every vertex, the same for all cars."""

    mean: Float[Array, "1 vertex"]
    var: Float[Array, "1 vertex"]

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture:
        mean, var = (jnp.broadcast_to(part, batch.y.shape)[None] for part in (self.mean, self.var))
        return Mixture(mean, var, jnp.zeros_like(var))


def fit_vertex_mean(pairs: CarPairs) -> VertexMean:
    """Means and variances over the cars of a split, which must have equally many vertices, one for one."""
    if len(set(pairs.num_vertices.tolist())) > 1:
        raise InputError("vertex-mean: the cars have different vertex counts, so that vertices do not correspond")
    pressure = pairs.gather(jnp.arange(int(pairs.num_pairs))).y
    num_cars = pressure.shape[0]
    var = jnp.var(pressure, axis=0, ddof=min(1, num_cars - 1))
    pooled = jnp.mean(var) if num_cars > 1 else jnp.var(pressure)
    var = (1 + 1 / num_cars) * ((num_cars - 1) * var + 2 * pooled) / (num_cars + 1)
    return VertexMean(jnp.mean(pressure, axis=0), var)
