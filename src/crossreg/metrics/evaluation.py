"""Scores of a predictor on a split, from its mixture at every point."""

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
from jaxtyping import Array, Float, Int, PRNGKeyArray

from crossreg.data.keys import evaluation_key
from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.metrics.calibration import coverage, ece_from_coverage
from crossreg.metrics.localization import localization
from crossreg.nn.build import check_reads
from crossreg.nn.noise import site_sigmas
from crossreg.nn.surrogate import Surrogate, Trained, surrogate_in
from crossreg.predictive.in_units import InUnits, Predictive, standardized
from crossreg.predictors.batches import batches_of
from crossreg.predictors.predictor import Predictor, SurrogatePredictor, as_predictor

_SORTED_POINTS = 2**24


# On the device inside the compiled call, on the host after it.
Field = Float[Array, "pair channel *space"] | Float[np.ndarray, "pair channel *space"]


class PointScores(NamedTuple):
    """The truth, the mixture's moments and its scores at every point of some pairs."""

    truth: Field
    mean: Field
    nll: Field
    pit: Field
    crps: Field
    std_mu: Field
    std_predictive: Field
    std_generalization: Field
    std: Field
    weight: Field


def _points(mixture: Predictive, batch: Batch) -> PointScores:
    return PointScores(
        batch.y,
        mixture.mean,
        -mixture.log_prob(batch.y),
        mixture.cdf(batch.y),
        mixture.crps(batch.y),
        mixture.std_of_means,
        mixture.std_predictive,
        mixture.std_generalization,
        mixture.std,
        jnp.broadcast_to(batch.weight, batch.y.shape),
    )


@eqx.filter_jit
def _points_of_batch(predictor, batch: Batch, keys) -> PointScores:
    return _points(predictor(batch, keys), batch)


class Totals(NamedTuple):
    """Weighted sums over the points of each channel, in the network's units, from which the scores of a split follow.

    `covered` sums over all channels at each level. The network's units times `scale` are the fields' units.
    """

    weight: Float[Array, " channel"]
    nll: Float[Array, " channel"]
    crps: Float[Array, " channel"]
    squared_error: Float[Array, " channel"]
    std_mu: Float[Array, " channel"]
    std_predictive: Float[Array, " channel"]
    std_generalization: Float[Array, " channel"]
    std: Float[Array, " channel"]
    var_predictive: Float[Array, " channel"]
    var_generalization: Float[Array, " channel"]
    covered: Float[Array, " level"]
    scale: Float[Array, " channel"]


class Scored(NamedTuple):
    """A scored batch: its totals, and errors and standard deviations in units of the largest channel's scale."""

    totals: Totals
    error: Field
    std: Field
    weight: Field


@eqx.filter_jit
def _score_batch(predictor, batch: Batch, keys, size: Int[Array, ""]) -> Scored:
    """Score a batch on the device; pairs from `size` on are padding."""
    predictive = predictor(batch, keys)
    standard, truth = standardized(predictive, batch.y)
    scale = predictive.scale if isinstance(predictive, InUnits) else jnp.ones((batch.y.shape[1],))
    p = _points(standard, batch._replace(y=truth))
    counts = (jnp.arange(batch.y.shape[0]) < size).reshape(-1, *(1,) * (batch.y.ndim - 1))
    weight = p.weight * counts
    error = p.mean - p.truth

    def total(values):
        return jnp.sum(weight * values, axis=(0, *range(2, values.ndim)))

    totals = Totals(
        total(jnp.ones_like(error)),
        total(p.nll),
        total(p.crps),
        total(error**2),
        total(p.std_mu),
        total(p.std_predictive),
        total(p.std_generalization),
        total(p.std),
        total(p.std_predictive**2),
        total(p.std_generalization**2),
        jnp.nan_to_num(coverage(p.pit, weight)) * jnp.sum(weight),  # a batch may have no point that counts
        scale.reshape(-1),
    )
    if isinstance(predictive, InUnits):
        relative = scale / jnp.max(scale)
        return Scored(totals, relative * error, relative * p.std, weight)
    return Scored(totals, error, p.std, weight)


def point_scores(predictor: Predictor, pairs: AbstractPairs, *, key: PRNGKeyArray) -> PointScores:
    """Return the scores at every point of a split, as host arrays of shape (pair, channel, *space)."""
    launched = [(_points_of_batch(predictor, batch, keys), size) for batch, keys, size in batches_of(pairs, key=key)]
    chunks = [[values[:size] for values in jax.device_get(points)] for points, size in launched]
    return PointScores(*(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


def _launch(
    predictor: Predictor,
    pairs: AbstractPairs,
    key: PRNGKeyArray,
    progress: Callable[[int], None] | None = None,
    most_pairs: int | None = None,
    steps: range | None = None,
) -> list[Scored]:
    """Queue all batches on the device, waiting for each only if there is a progress display.

    Streamed data are always waited for, since queued batches take memory. Of those, points for sorting are kept from as
    many evenly spaced batches as memory allows.
    """
    launched, streams = [], pairs.in_files
    total = min(int(pairs.num_rows) * pairs.pairs_per_row, most_pairs or math.inf) * math.prod(pairs.field_shape)
    every = math.ceil(total / _SORTED_POINTS) if streams else 1
    for number, (batch, keys, size) in enumerate(batches_of(pairs, key=key, most_pairs=most_pairs, steps=steps)):
        scored = _score_batch(predictor, batch, keys, jnp.asarray(size))
        if number % every:
            scored = Scored(scored.totals, *(points[:0] for points in scored[1:]))
        launched.append(scored)
        if progress is not None or streams:
            jax.block_until_ready(scored.totals)
        if progress is not None:
            progress(size)
    return launched


def mean_nll(predictor: Predictor, pairs: AbstractPairs, *, key: PRNGKeyArray) -> float:
    """Return the mean NLL per point of a split, the score that candidates are chosen by."""
    totals = _totals(_launch(predictor, pairs, key))
    return float(totals.nll.sum() / totals.weight.sum())


def _totals(scored: list[Scored]) -> Totals:
    """Return the totals of a split in the fields' own units, in float64, which holds the square of any float32."""
    each = jax.device_get([batch.totals for batch in scored])
    sums = Totals(*(np.sum(np.asarray(parts, np.float64), axis=0) for parts in zip(*each, strict=True)))
    scale = np.asarray(each[0].scale, np.float64)
    lengths = ("crps", "std_mu", "std_predictive", "std_generalization", "std")
    squares = ("squared_error", "var_predictive", "var_generalization")
    return sums._replace(
        nll=sums.nll + sums.weight * np.log(scale),
        **{name: getattr(sums, name) * scale for name in lengths},
        **{name: getattr(sums, name) * scale**2 for name in squares},
        scale=scale,
    )


def _summarize(scored: list[Scored]) -> dict[str, object]:
    """Return the scores of a split from its batches."""
    totals = _totals(scored)
    with np.errstate(invalid="ignore", divide="ignore"):  # a channel, or a split, may have no point that counts
        mean = Totals(*(values.sum() / totals.weight.sum() for values in totals))
        covered = totals.covered / totals.weight.sum()
        of_channels = Totals(*(values / totals.weight for values in totals._replace(covered=totals.weight)))
    channels = {
        "nll": of_channels.nll,
        "crps": of_channels.crps,
        "rmse": np.sqrt(of_channels.squared_error),
        "std": of_channels.std,
    }
    rank_correlation, sparsification = localization(*([getattr(b, n) for b in scored] for n in Scored._fields[1:]))
    return {
        "nll": float(mean.nll),
        "ece_mix": float(ece_from_coverage(covered)),
        "crps": float(mean.crps),
        "rmse": float(np.sqrt(mean.squared_error)),
        "std_mu": float(mean.std_mu),
        "std_predictive": float(mean.std_predictive),
        "std_generalization": float(mean.std_generalization),
        "rms_predictive": float(np.sqrt(mean.var_predictive)),
        "rms_generalization": float(np.sqrt(mean.var_generalization)),
        "std": float(mean.std),
        "spearman": rank_correlation,
        "ause": sparsification,
        "coverage": covered.tolist(),
        **({f"channel_{name}": values.tolist() for name, values in channels.items()} if len(totals.scale) > 1 else {}),
    }


def evaluate(
    predictor: Surrogate | Trained | Predictor, pairs: AbstractPairs, *, num_samples: int = 30, seed: int = 0
) -> dict[str, object]:
    """Score a surrogate, or any predictor, on a split.

    Args:
        predictor: A surrogate, a `Fit` or a `Run`, of which `num_samples` instances are drawn, or any predictor.
        pairs: The split, for example `data.test`.
        num_samples: Samples per prediction of a surrogate.
        seed: Seed of the samples. Equal arguments give equal numbers.

    Returns:
        Scores by name, means over all points that count:

        - `nll` (per point), `ece_mix`, `crps`, `rmse`
        - `std`, `std_predictive`, `std_generalization`: the mean standard deviation and its two parts
        - `rms_predictive`, `rms_generalization`: √ of the mean U_pred and U_gen, to be compared with `rmse`
        - `std_mu`: the mean Std_ω[μ]
        - `spearman`, `ause`: how well `std` ranks the errors
        - `coverage`: of central intervals, one value per level 0.1 … 0.9
        - `channel_nll`, `channel_crps`, `channel_rmse`, `channel_std`: lists, for fields of several channels

    Raises:
        InputError: If the surrogate cannot read the fields of `pairs`, or these have other units than it was built for.
        TypeError: If `pairs` are not those of a split.

    Example:
        ```python
        xr.evaluate(result, data.test)["ece_mix"]
        ```
    """
    if not isinstance(pairs, AbstractPairs):
        raise TypeError(f"evaluate scores the pairs of a split, such as data.test, not a {type(pairs).__name__}")
    predictor = as_predictor(predictor, num_samples)
    if isinstance(predictor, SurrogatePredictor):
        check_reads(predictor.model, pairs)
    [scores] = evaluate_all([(predictor, pairs)], seed=seed)
    return scores


def evaluate_all(
    jobs: Iterable[tuple[Predictor, AbstractPairs]],
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    most_pairs: Callable[[AbstractPairs], int | None] = lambda pairs: None,
    steps: range | None = None,
) -> Iterator[dict[str, object]]:
    """Score many predictors and splits, in order; host threads fetch and sort while the device continues.

    Args:
        jobs: Predictors, each with a split.
        seed: Seed of the samples.
        progress: Called after each batch with the number of pairs in it.
        most_pairs: For a split, the number of evenly spaced pairs to score; None for all.
        steps: Score only pairs at these steps of their rows.

    Yields:
        The scores of each job, as `evaluate` returns them.

    Example:
        ```python
        predictor = xr.methods.EnsemblePredictor([result.model])
        test, reg = xr.metrics.evaluate_all([(predictor, data.test), (predictor, data.reg)])
        ```
    """
    # Points of unfinished jobs stay on the device.
    workers = min(os.cpu_count() or 1, 4)
    key = evaluation_key(seed)
    pending: deque[Future] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for predictor, pairs in jobs:
            launched = _launch(predictor, pairs, key, progress, most_pairs(pairs), steps)
            pending.append(pool.submit(_summarize, launched))
            # The points of a split stay in memory until they are sorted.
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def sigma_per_site(model: Surrogate | Trained) -> dict[str, list[float]]:
    """Return the σ of each noise site of a model.

    Args:
        model: The surrogate, or what holds one: a `Fit` or a `Run`.

    Returns:
        For the name of each site, its σ: one number per layer, channel or mode.

    Example:
        ```python
        xr.metrics.sigma_per_site(result)["pre_head"]
        ```
    """
    return {name: [float(v) for v in np.ravel(sigma)] for name, sigma in site_sigmas(surrogate_in(model)).items()}
