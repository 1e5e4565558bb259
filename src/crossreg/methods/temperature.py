r"""One number that widens or narrows every mixture, fitted to held-out NLL.

$$ \mu_s \mapsto m + a(\mu_s - m), \qquad \sigma_s \mapsto a\sigma_s, \qquad m = \tfrac1S \sum_s \mu_s $$
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.metrics.evaluation import Predictor, batches_of, calibration_key
from crossreg.predictive import Mixture

# log a is looked for on this grid, then on a finer one around its best point.
_LARGEST_LOG, _GRID = 4.0, 33


class Tempered(eqx.Module):
    """A predictor whose mixtures are widened by `temperature`."""

    predictor: Predictor
    temperature: Float[Array, ""]

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture:
        return self.predictor(batch, keys).tempered(self.temperature)  # pyright: ignore[reportAttributeAccessIssue]


@eqx.filter_jit
def _nll_of_each(predictor, batch: Batch, keys, size, temperatures: Float[Array, " grid"]):
    """Summed NLL at each temperature and the number of points; pairs from `size` on only fill the batch up."""
    mixture = predictor(batch, keys)
    counts = (jnp.arange(batch.x.shape[0]) < size).reshape(-1, *(1,) * (batch.y.ndim - 1))
    weight = jnp.broadcast_to(batch.weight * counts, batch.y.shape)
    return jax.lax.map(lambda a: -jnp.sum(weight * mixture.tempered(a).log_prob(batch.y)), temperatures), weight.sum()


def fit_temperature(predictor: Predictor, pairs: AbstractPairs) -> Tempered:
    """The temperature of the lowest mean NLL on `pairs`, to 10⁻³ of its logarithm."""

    def scores(logs: np.ndarray) -> np.ndarray:
        temperatures = jnp.asarray(np.exp(logs), jnp.float32)
        totals, count = np.zeros(logs.size), 0.0
        for batch, keys, size in batches_of(pairs, key=calibration_key()):
            nll, points = _nll_of_each(predictor, batch, keys, jnp.asarray(size), temperatures)
            totals, count = totals + np.asarray(nll, np.float64), count + float(points)
        return totals / count

    center, reach = 0.0, _LARGEST_LOG
    for _ in range(3):
        logs = center + np.linspace(-reach, reach, _GRID)
        nll = scores(logs)
        center = float(logs[np.argmin(np.where(np.isfinite(nll), nll, np.inf))])
        reach = 2 * reach / (_GRID - 1)
    return Tempered(predictor, jnp.asarray(np.exp(center), jnp.float32))
