"""All scores of a model on a split, from its mixture at every point."""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from crossreg.data.pairs import Batch, Pairs
from crossreg.errors import InputError
from crossreg.metrics.calibration import coverage, ece_from_coverage
from crossreg.metrics.localization import ause, spearman
from crossreg.nn.noise import site_sigmas
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.predictive import Mixture, Predictive
from crossreg.streams import EVALUATION_STREAM

# Points per compiled call: bounds memory, keeps 30 samples of them in a CPU's cache, and changes no number, since each
# pair has noise of its own.
_POINTS_PER_CALL = {"cpu": 2**12, "accelerator": 2**17}
Predictor = Callable[[Batch, Key[Array, " batch"]], Predictive]


# Device arrays inside the compiled call, host arrays after it.
Field = Float[Array, "pair channel *space"] | Float[np.ndarray, "pair channel *space"]


class Points(NamedTuple):
    """What a mixture says of the truth at every point of some pairs."""

    truth: Field
    mean: Field
    nll: Field
    pit: Field
    crps: Field
    std_mu: Field
    std_predictive: Field
    std_generalization: Field
    std_total: Field
    weight: Field


def _points(mixture: Predictive, batch: Batch) -> Points:
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
def _score_batch(predictor, batch: Batch, keys) -> Points:
    return _points(predictor(batch, keys), batch)


class SurrogatePredictor(eqx.Module):
    """A surrogate as something that turns a batch into a mixture."""

    model: Surrogate
    num_samples: int = eqx.field(static=True)

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture:
        return predict(self.model, batch.x, key=keys, num_samples=self.num_samples)


def batches_of(pairs: Pairs, *, key: PRNGKeyArray) -> Iterator[tuple[Batch, Key[Array, " batch"], int]]:
    """All pairs of a split in batches of one shape, a key for each pair, and how many of the batch count."""
    num_pairs = int(pairs.num_pairs)
    if not num_pairs:
        raise InputError("the split has no trajectories to score on")
    points_per_call = _POINTS_PER_CALL["cpu" if jax.default_backend() == "cpu" else "accelerator"]
    most = max(1, points_per_call // math.prod(pairs.trajectories.shape[2:]))
    # A power of two where few are enough: splits of about one size share a program.
    chunk = min(most, 1 << (num_pairs - 1).bit_length())
    for start in range(0, num_pairs, chunk):
        # Filled up with the last pair and gathered outside: one program serves all chunks.
        index = np.minimum(np.arange(start, start + chunk), num_pairs - 1)
        yield *_gather(pairs, key, jnp.asarray(index)), min(chunk, num_pairs - start)


@eqx.filter_jit
def _gather(pairs: Pairs, key: PRNGKeyArray, index: Int[Array, " batch"]) -> tuple[Batch, Key[Array, " batch"]]:
    return pairs.gather(index), jax.vmap(lambda i: jax.random.fold_in(key, i))(index)


def score_points(predictor: Predictor, pairs: Pairs, *, key: PRNGKeyArray) -> Points:
    """Scores every pair of a split, batch by batch, into host arrays."""
    return _fetch(_launch(predictor, pairs, key))


def _launch(predictor: Predictor, pairs: Pairs, key: PRNGKeyArray) -> list[tuple[Points, int]]:
    """Sends all batches to the device, without waiting for them, and how many pairs of each count."""
    return [(_score_batch(predictor, batch, keys), size) for batch, keys, size in batches_of(pairs, key=key)]


def _fetch(launched: list[tuple[Points, int]]) -> Points:
    chunks = [[values[:size] for values in jax.device_get(points)] for points, size in launched]
    return Points(*(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


def summarize(points: Points) -> dict[str, object]:
    """The scores of a split. Sums run in float64; `coverage` has one value per level 0.1 … 0.9."""
    weight = np.asarray(points.weight, np.float64)
    total = weight.sum()

    def mean(values) -> float:
        return float(np.sum(weight * values) / total)

    def root_mean_square(values) -> float:
        return float(np.sqrt(mean(np.square(values, dtype=np.float64))))

    error = np.asarray(points.mean, np.float64) - points.truth
    covered = coverage(np.asarray(points.pit, np.float64), weight)
    scored = weight.ravel() > 0
    flat_error, flat_std = error.ravel()[scored], np.ravel(points.std_total)[scored]
    return {
        "nll": mean(points.nll),
        "ece_mix": float(ece_from_coverage(covered)),
        "crps": mean(points.crps),
        "rmse": root_mean_square(error),
        "std_mu": mean(points.std_mu),
        "std_predictive": mean(points.std_predictive),
        "std_generalization": mean(points.std_generalization),
        "rms_predictive": root_mean_square(points.std_predictive),
        "rms_generalization": root_mean_square(points.std_generalization),
        "sharpness": mean(points.std_total),
        "spearman": spearman(flat_error, flat_std),
        "ause": ause(flat_error, flat_std),
        "coverage": covered.tolist(),
    }


def evaluate(model: Surrogate, pairs: Pairs, *, num_samples: int = 30, seed: int = 0) -> dict[str, object]:
    """Scores a surrogate on a split.

    Returns `nll` (per point), `ece_mix`, `crps`, `rmse`, `std_mu` (mean Std_ω[μ]), the mean
    `std_predictive`, `std_generalization` and `sharpness` (mean total std), `rms_predictive` and
    `rms_generalization` (√ of the mean U_pred and U_gen, to be held against `rmse`), `spearman` and
    `ause` (|error| against total std), and `coverage`. Equal arguments give equal numbers.
    """
    [scores] = evaluate_all([(SurrogatePredictor(model, num_samples), pairs)], seed=seed)
    return scores


def evaluate_all(jobs: Iterable[tuple[Predictor, Pairs]], *, seed: int = 0) -> Iterator[dict[str, object]]:
    """`evaluate` for many predictors and splits, in order: host threads fetch and sort while the device goes on."""
    workers = os.cpu_count() or 1
    key = evaluation_key(seed)
    pending: deque[Future] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for predictor, pairs in jobs:
            launched = _launch(predictor, pairs, key)
            pending.append(pool.submit(lambda launched=launched: summarize(_fetch(launched))))
            # A split's points wait in memory until they are sorted.
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def evaluation_key(seed: int) -> PRNGKeyArray:
    """The key of the noise an evaluation draws: none that training draws from."""
    return jax.random.fold_in(jax.random.key(seed), EVALUATION_STREAM)


def calibration_key() -> PRNGKeyArray:
    """The key of the noise that a wrapper calibrates under: none that an evaluation draws."""
    return jax.random.fold_in(evaluation_key(0), EVALUATION_STREAM)


def sigma_per_site(model: Surrogate) -> dict[str, list[float]]:
    """σ of each noise site, by its name; one number per layer, channel or mode."""
    return {name: [float(v) for v in np.ravel(sigma)] for name, sigma in site_sigmas(model).items()}
