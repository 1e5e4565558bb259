r"""How the errors of channels go together, fitted to held-out fields after training.

A mixture says of each channel alone how far off it may be. Noise inside the model moves all channels at once, so that
the means $\mu_s$ of a component share it; what σ stands for they do not. Its correlation R follows from moments of the
error $e = y - E_s[\mu_s]$,

$$ E[e_c e_d] - \mathrm{Cov}_s(\mu_c, \mu_d)
   = R_{cd} \, k_c k_d \, E[\sigma_{pred,c}\sigma_{pred,d} + \sigma_{gen,c}\sigma_{gen,d}], \qquad R_{cc} = 1, $$

where $k_c$ is by how much the σ of a channel is too small. Where the spread of the means is all the error that a
channel has, nothing is left to go together.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from crossreg.data.keys import calibration_key
from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.nn.surrogate import Surrogate
from crossreg.predictive.in_units import standardized
from crossreg.predictors.batches import batches_of
from crossreg.predictors.predictor import Predictor, SurrogatePredictor


@eqx.filter_jit
def _moments(predictor, batch: Batch, keys, size):
    """Both sides of the equation, without R and k, summed over a batch; pairs from `size` on only fill it up."""
    mixture, truth = standardized(predictor(batch, keys), batch.y)  # R has no units
    counts = (jnp.arange(batch.x.shape[0]) < size).reshape(-1, *(1,) * (batch.y.ndim - 1))
    weight = jnp.broadcast_to(batch.weight * counts, batch.y.shape)

    def pairwise(values):
        """Sums over points and, of components, means of the products of all channels."""
        values = jnp.moveaxis(values * jnp.sqrt(weight), -(batch.y.ndim - 1), -1)
        flat = values.reshape(-1, values.shape[-1])
        return jnp.matmul(flat.T, flat, precision="float32")

    # A point counts for two channels where it counts for both.
    error = jnp.where(weight > 0, truth - mixture.mean, 0.0)
    spread = pairwise(mixture.means - mixture.mean) / mixture.num_samples
    sigmas = (jnp.sqrt(mixture.vars_predictive), jnp.sqrt(mixture.vars_generalization))
    return pairwise(error) - spread, sum(pairwise(sigma) for sigma in sigmas) / mixture.num_samples


def fit_correlation(
    predictor: Surrogate | Predictor, pairs: AbstractPairs, *, num_samples: int = 30
) -> Float[np.ndarray, "channel channel"]:
    """R of `pairs`, which the model has not been trained on: symmetric, 1 on its diagonal, no eigenvalue negative.

    `predictor` is a model, of which `num_samples` are drawn, or gives mixtures itself, as an ensemble does.
    """
    if isinstance(predictor, Surrogate):
        predictor = SurrogatePredictor(predictor, num_samples)
    left = right = 0.0
    for batch, keys, size in batches_of(pairs, key=calibration_key()):
        errors, sigmas = _moments(predictor, batch, keys, jnp.asarray(size))
        left, right = left + np.asarray(errors, np.float64), right + np.asarray(sigmas, np.float64)
    return _correlation(np.asarray(left), np.asarray(right))


def _correlation(
    errors: Float[np.ndarray, "channel channel"], sigmas: Float[np.ndarray, "channel channel"]
) -> Float[np.ndarray, "channel channel"]:
    """R of both sums, as near as a correlation is to them."""
    scale = np.sqrt(np.maximum(np.diag(errors), 0.0) * np.diag(sigmas))
    weights = sigmas * np.outer(scale, scale) / np.outer(np.diag(sigmas), np.diag(sigmas))
    found = np.where(weights > 0, errors / np.where(weights > 0, weights, 1.0), 0.0)
    np.fill_diagonal(found, 1.0)
    values, vectors = np.linalg.eigh(np.clip(found, -1.0, 1.0))
    found = (vectors * np.maximum(values, 0.0)) @ vectors.T
    length = np.sqrt(np.diag(found))
    return found / np.outer(length, length)
