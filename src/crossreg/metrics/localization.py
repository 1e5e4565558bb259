r"""Whether uncertainty is large where the error is: Spearman's rank correlation and the sparsification error (AUSE).

Spearman's correlation is between |error| and uncertainty; it is 0 where either is constant.

AUSE is the area under the sparsification error, for RMSE, relative to the RMSE over all points: drop the fraction f of
points with the largest uncertainty and take the RMSE of the rest; do the same by the true |error|; the area between the
two curves over f in [0, 1) is 0 for a perfect ranking. Points of equal uncertainty each count with the mean of their
squared errors, so that the order in which they are stored does not matter.

Both need all points sorted by |error| and by uncertainty. A GPU sorts a million points at little cost; on a CPU, NumPy
sorts faster than XLA.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Values = Float[np.ndarray, " point"]
_FRACTIONS = 100


def localization(
    error: Sequence[Float[Array, "..."]], std: Sequence[Float[Array, "..."]], weight: Sequence[Float[Array, "..."]]
) -> tuple[float, float]:
    """Return Spearman's correlation and AUSE over all points, NaN where none counts.

    Args:
        error: Errors, one array per batch.
        std: Standard deviations, of the same shapes.
        weight: Weights, of the same shapes; points of weight 0 do not count.
    """
    if jax.default_backend() != "cpu":
        flat = (jnp.concatenate([jnp.ravel(part) for part in parts]) for parts in (error, std, weight))
        correlation, area = on_device(*flat)
        return float(correlation), float(area)
    return on_host(*(np.concatenate([np.ravel(p) for p in parts]) for parts in (error, std, weight)))


def on_host(error: Values, std: Values, weight: Values) -> tuple[float, float]:
    """Return both scores, computed by NumPy."""
    error, std = np.abs(error[weight > 0]), std[weight > 0]
    if not error.size:  # no target of these pairs was measured
        return float("nan"), float("nan")
    orders = np.argsort(error, kind="stable"), np.argsort(std, kind="stable")
    return spearman(error, std, orders), ause(error, std, orders)


def _ties(in_order: Values) -> tuple[np.ndarray, np.ndarray]:
    """Return where each stretch of equal values starts, and how long it is."""
    starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
    return starts, np.diff(starts, append=in_order.size)


def _ranks(values: Values, order: np.ndarray) -> Values:
    """Return ranks minus their mean; equal values share the mean of their ranks."""
    starts, counts = _ties(values[order])
    ranks = np.empty(values.size)
    ranks[order] = np.repeat(starts + (counts - values.size) / 2, counts)
    return ranks


def spearman(error: Values, std: Values, orders: tuple[np.ndarray, np.ndarray]) -> float:
    """Return Spearman's correlation of |error| and uncertainty, from the orders that sort them."""
    a, b = _ranks(error, orders[0]), _ranks(std, orders[1])
    norm = np.sqrt(np.sum(a**2) * np.sum(b**2))
    return float(np.sum(a * b) / norm) if norm > 0 else 0.0


def ause(error: Values, std: Values, orders: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the area under the sparsification error, from the orders that sort |error| and uncertainty."""
    squared = np.square(error, dtype=np.float64)
    total = np.sqrt(squared.mean())
    if total == 0:
        return 0.0
    share = 1 - np.arange(_FRACTIONS) / _FRACTIONS
    counts = np.maximum(np.rint(squared.size * share).astype(int), 1)

    def curve(values, order):
        starts, tied = _ties(values[order])
        shared = np.repeat(np.add.reduceat(squared[order], starts) / tied, tied)
        return np.sqrt(np.cumsum(shared)[counts - 1] / counts)

    return float(np.mean(curve(std, orders[1]) - curve(error, orders[0])) / total)


@jax.jit
def on_device(
    error: Float[Array, " point"], std: Float[Array, " point"], weight: Float[Array, " point"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return both scores from one compiled function, whatever the number of points that count."""
    counted = weight > 0
    count = jnp.sum(counted)
    index = jnp.arange(error.size)

    def sort(values):
        # Points that do not count are sorted to the end.
        keys = jnp.where(counted, values, jnp.inf)
        order = jnp.argsort(keys, stable=True)
        return keys[order], order

    def centred_ranks(in_order, order):
        differs = in_order[1:] != in_order[:-1]
        first = jax.lax.cummax(jnp.where(jnp.append(True, differs), index, 0))
        last = jax.lax.cummin(jnp.where(jnp.append(differs, True), index, error.size), reverse=True)
        # In units of the count, so that their squares stay small.
        ranks = (0.5 * (first + jnp.minimum(last, count - 1)) - 0.5 * (count - 1)) / count
        return jnp.zeros(error.shape).at[order].set(jnp.where(index < count, ranks, 0.0))

    by_error, by_std = sort(jnp.abs(error)), sort(std)
    a, b = centred_ranks(*by_error), centred_ranks(*by_std)
    norm = jnp.sqrt(jnp.sum(a**2) * jnp.sum(b**2))
    correlation = jnp.where(norm > 0, jnp.sum(a * b) / jnp.where(norm > 0, norm, 1), 0.0)

    squared = jnp.where(counted, error**2, 0.0)
    total = jnp.sqrt(jnp.sum(squared) / count)
    share = 1 - jnp.arange(_FRACTIONS) / _FRACTIONS
    kept = jnp.maximum(jnp.rint(count * share).astype(int), 1)

    def curve(in_order, order):
        stretch = jnp.cumsum(jnp.append(False, in_order[1:] != in_order[:-1]))
        sums, tied = (jax.ops.segment_sum(a, stretch, error.size) for a in (squared[order], jnp.ones(error.shape)))
        return jnp.sqrt(jnp.cumsum((sums / tied)[stretch])[kept - 1] / kept)

    area = jnp.mean(curve(*by_std) - curve(*by_error)) / jnp.where(total > 0, total, 1)
    return correlation, area
