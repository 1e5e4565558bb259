r"""The correlation of errors between channels, fitted to held-out fields after training.

A mixture describes each channel by itself. Noise inside the model moves all channels at once, so the spread of the
means $\mu_s$ is already joint; the part that σ describes is not. Its correlation R follows from moments of the error
$e = y - E_s[\mu_s]$,

$$ E[e_c e_d] - \mathrm{Cov}_s(\mu_c, \mu_d)
   = R_{cd} \, k_c k_d \, E[\sigma_{pred,c}\sigma_{pred,d} + \sigma_{gen,c}\sigma_{gen,d}], \qquad R_{cc} = 1, $$

where $k_c$ is the factor by which the σ of a channel is too small. A channel whose error is explained by the spread of
the means alone has nothing left to correlate.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from crossreg.data.keys import calibration_key
from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.errors import InputError
from crossreg.nn.surrogate import Surrogate, Trained
from crossreg.predictive.in_units import standardized
from crossreg.predictors.batches import NOTHING_SCORED, batches_of
from crossreg.predictors.predictor import Predictor, as_predictor, with_components


@eqx.filter_jit
def _moments(predictor, batch: Batch, keys, size):
    """Return both sides of the equation without R and k, summed over a batch; pairs from `size` on are padding."""
    predictive = with_components(predictor(batch, keys), "correlation", "to compare")
    mixture, truth = standardized(predictive, batch.y)  # R has no units
    counts = (jnp.arange(batch.x.shape[0]) < size).reshape(-1, *(1,) * (batch.y.ndim - 1))
    weight = jnp.broadcast_to(batch.weight * counts, batch.y.shape)

    def pairwise(values):
        """Sum the products of all pairs of channels over points and components."""
        values = jnp.moveaxis(values * jnp.sqrt(weight), -(batch.y.ndim - 1), -1)
        flat = values.reshape(-1, values.shape[-1])
        return jnp.matmul(flat.T, flat, precision="float32")

    # A point counts for two channels where it counts for both.
    error = jnp.where(weight > 0, truth - mixture.mean, 0.0)
    spread = pairwise(mixture.means - mixture.mean) / mixture.num_samples
    sigmas = (jnp.sqrt(mixture.vars_predictive), jnp.sqrt(mixture.vars_generalization))
    return pairwise(error) - spread, sum(pairwise(sigma) for sigma in sigmas) / mixture.num_samples


def fit_correlation(
    predictor: Surrogate | Trained | Predictor, pairs: AbstractPairs, *, num_samples: int = 30
) -> Float[np.ndarray, "channel channel"]:
    """Estimate R from held-out pairs.

    Args:
        predictor: A surrogate, a `Fit` or a `Run`, of which `num_samples` instances are drawn, or any predictor.
        pairs: Held-out pairs that the predictor was not trained on.
        num_samples: Samples per prediction of a surrogate.

    Returns:
        R of shape (channel, channel): symmetric, positive semi-definite, 1 on its diagonal.

    Raises:
        InputError: If the pairs have no point that is scored, or the predictor is recalibrated already.

    Example:
        ```python
        correlation = xr.methods.fit_correlation(result.model, data.reg)
        difference = result.predict(x).combined(np.array([[1.0, -1.0]]), correlation=correlation)
        ```
    """
    predictor = as_predictor(predictor, num_samples)
    left = right = 0.0
    for batch, keys, size in batches_of(pairs, key=calibration_key()):
        errors, sigmas = _moments(predictor, batch, keys, jnp.asarray(size))
        left, right = left + np.asarray(errors, np.float64), right + np.asarray(sigmas, np.float64)
    if not np.any(right):
        raise InputError(NOTHING_SCORED)
    return _correlation(np.asarray(left), np.asarray(right))


def _correlation(
    errors: Float[np.ndarray, "channel channel"], sigmas: Float[np.ndarray, "channel channel"]
) -> Float[np.ndarray, "channel channel"]:
    """Return the correlation matrix nearest to the ratio of both sums."""
    scale = np.sqrt(np.maximum(np.diag(errors), 0.0) * np.diag(sigmas))
    weights = sigmas * np.outer(scale, scale) / np.outer(np.diag(sigmas), np.diag(sigmas))
    found = np.where(weights > 0, errors / np.where(weights > 0, weights, 1.0), 0.0)
    np.fill_diagonal(found, 1.0)
    values, vectors = np.linalg.eigh(np.clip(found, -1.0, 1.0))
    found = (vectors * np.maximum(values, 0.0)) @ vectors.T
    length = np.sqrt(np.diag(found))
    return found / np.outer(length, length)
