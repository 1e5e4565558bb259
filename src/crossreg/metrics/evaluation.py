"""All scores of a model on a split, from its mixture at every point."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.data.pairs import Batch, Pairs
from crossreg.metrics.calibration import LEVELS
from crossreg.metrics.localization import ause, spearman
from crossreg.nn.noise import site_sigmas
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.predictive import Mixture

# Pairs per compiled call: bounds memory and is no part of a result's definition.
_CHUNK = 250
Predictor = Callable[[Batch, PRNGKeyArray], Mixture]


class Points(NamedTuple):
    """What a mixture says of the truth at every point of some pairs."""

    truth: Float[Array, "pair channel *space"]
    mean: Float[Array, "pair channel *space"]
    nll: Float[Array, "pair channel *space"]
    pit: Float[Array, "pair channel *space"]
    crps: Float[Array, "pair channel *space"]
    std_mu: Float[Array, "pair channel *space"]
    std_predictive: Float[Array, "pair channel *space"]
    std_generalization: Float[Array, "pair channel *space"]
    std_total: Float[Array, "pair channel *space"]
    weight: Float[Array, "pair channel *space"]


def _points(mixture: Mixture, batch: Batch) -> Points:
    return Points(
        batch.y,
        mixture.mean,
        -mixture.log_prob(batch.y),
        mixture.cdf(batch.y),
        mixture.crps(batch.y),
        jnp.sqrt(mixture.var_of_means),
        mixture.std_predictive,
        mixture.std_generalization,
        mixture.std,
        jnp.broadcast_to(batch.weight, batch.y.shape),
    )


@eqx.filter_jit
def _score_chunk(predictor, pairs: Pairs, index, key) -> Points:
    batch = pairs.gather(index)
    with jax.default_matmul_precision("float32"):
        return _points(predictor(batch, key), batch)


class SurrogatePredictor(eqx.Module):
    """A surrogate as something that turns a batch into a mixture."""

    model: Surrogate
    num_samples: int = eqx.field(static=True)

    def __call__(self, batch: Batch, key: PRNGKeyArray) -> Mixture:
        return predict(self.model, batch.x, key=key, num_samples=self.num_samples)


def score_points(predictor: Predictor, pairs: Pairs, *, key: PRNGKeyArray) -> Points:
    """Scores every pair of a split, chunk by chunk, into host arrays."""
    num_pairs = int(pairs.num_pairs)
    chunk = min(_CHUNK, num_pairs)
    chunks = []
    for number, start in enumerate(range(0, num_pairs, chunk)):
        # The last chunk is filled up with its last pair, so that one program serves all.
        index = np.minimum(np.arange(start, start + chunk), num_pairs - 1)
        points = _score_chunk(predictor, pairs, jnp.asarray(index), jax.random.fold_in(key, number))
        chunks.append(jax.tree.map(lambda a: np.asarray(a)[: num_pairs - start], points))
    return Points(*(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


def summarize(points: Points) -> dict[str, object]:
    """The scores of a split. Sums run in float64; `coverage` has one value per level 0.1 … 0.9."""
    weight = np.asarray(points.weight, np.float64)
    total = weight.sum()

    def mean(values) -> float:
        return float(np.sum(weight * values) / total)

    error = np.asarray(points.mean, np.float64) - points.truth
    distance = np.abs(2 * np.asarray(points.pit, np.float64) - 1)
    covered = [mean(distance <= level) for level in LEVELS]
    scored = weight.ravel() > 0
    flat_error, flat_std = error.ravel()[scored], points.std_total.ravel()[scored]
    return {
        "nll": mean(points.nll),
        "ece_mix": float(np.mean(np.abs(np.subtract(covered, LEVELS)))),
        "crps": mean(points.crps),
        "rmse": float(np.sqrt(mean(error**2))),
        "std_mu": mean(points.std_mu),
        "std_predictive": mean(points.std_predictive),
        "std_generalization": mean(points.std_generalization),
        "sharpness": mean(points.std_total),
        "spearman": spearman(flat_error, flat_std),
        "ause": ause(flat_error, flat_std),
        "coverage": covered,
    }


def evaluate(model: Surrogate, pairs: Pairs, *, num_samples: int = 10, seed: int = 0) -> dict[str, object]:
    """Scores a surrogate on a split.

    Returns `nll` (per point), `ece_mix`, `crps`, `rmse`, `std_mu` (mean Std_ω[μ]), the mean
    `std_predictive`, `std_generalization` and `sharpness` (mean total std), `spearman` and `ause`
    (|error| against total std), and `coverage`. Equal arguments give equal numbers.
    """
    key = evaluation_key(seed)
    return summarize(score_points(SurrogatePredictor(model, num_samples), pairs, key=key))


def evaluation_key(seed: int) -> PRNGKeyArray:
    """The key of the noise an evaluation draws: none that training draws from."""
    return jax.random.fold_in(jax.random.key(seed), 0x7FFFFFFF)


def sigma_per_site(model: Surrogate) -> dict[str, list[float]]:
    """σ of each noise site, by its name; one number per layer, channel or mode."""
    return {name: [float(v) for v in np.ravel(sigma)] for name, sigma in site_sigmas(model).items()}
