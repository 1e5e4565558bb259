r"""The regions of space and time where a predictor is wrong, and whether its error bars say so.

A split is cut into blocks of a few time steps and points. In each block, e is the root mean square of the error and s
that of √U_tot. There are two rankings, which share no block:

- wrong and does not know it: the largest e / s, of blocks with e > 2s;
- wrong and knows it: the largest e, of blocks with e ≤ 2s.

Each lists a place once: of the blocks of one trajectory whose points touch, at whatever times, the worst.

The histogram of PIT values comes from the same pass.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.predictive.in_units import Predictive, standardized
from crossreg.predictors.batches import batches_of
from crossreg.predictors.predictor import Predictor
from crossreg.progress.display import CountDisplay

PIT_BINS = 20  # their edges are the ends of the central intervals of levels 0.1 … 0.9
BLOCK_STEPS, BLOCK_POINTS = 5, 8  # points along each axis
KNOWS = 2.0  # a predictor knows of an error of up to so many standard deviations
_LISTED = 12


class Region(NamedTuple):
    """A block of one trajectory: its time steps and points, ends included, and the RMS of the error and of √U_tot."""

    trajectory: int
    channel: int
    steps: tuple[int, int]
    points: tuple[tuple[int, int], ...]
    error: float
    std: float

    @property
    def ratio(self) -> float:
        """The RMS error in standard deviations; infinite where there is an error and √U_tot is 0."""
        return self.error / self.std if self.std > 0 else math.inf


class Scan(NamedTuple):
    """The result of a pass over a split: counts of PIT values, the RMS of the error and of √U_tot in every block."""

    pit: Float[np.ndarray, " bin"]
    error: Float[np.ndarray, "row block channel *blocks"]
    std: Float[np.ndarray, "row block channel *blocks"]


def scan(predictor: Predictor, pairs: AbstractPairs, *, key: PRNGKeyArray, progress: bool = False) -> Scan:
    """Compute the error and √U_tot in every block of a split, with the noise of the scores."""
    batches, done, total = [], 0, int(pairs.num_pairs)
    with CountDisplay("looking through test pairs", enabled=progress) as display:
        for batch, keys, size in batches_of(pairs, key=key):
            batches.append([part[:size] for part in jax.device_get(_scan_batch(predictor, batch, keys))])
            done += size
            display.update(done, total)
    sums = [np.concatenate(parts) for parts in zip(*batches, strict=True)]
    return join(sums, pairs.pairs_per_row, None if pairs.units is None else pairs.units.scale)


@eqx.filter_jit
def _scan_batch(
    predictor: Predictor, batch: Batch, keys: Key[Array, " batch"]
) -> tuple[Float[Array, "batch ..."], ...]:
    return sums_of(predictor(batch, keys), batch)


def sums_of(mixture: Predictive, batch: Batch) -> tuple[Float[Array, "batch ..."], ...]:
    """Return counts of PIT values of each pair, and sums over blocks of space of the weight, error² and U_tot.

    The last two are in the network's units.
    """
    mixture, truth = standardized(mixture, batch.y)
    weight = jnp.broadcast_to(batch.weight, batch.y.shape)
    bins = jnp.clip(jnp.floor(PIT_BINS * mixture.cdf(truth)), 0, PIT_BINS - 1)
    inner = tuple(range(1, batch.y.ndim))
    pit = jnp.stack([jnp.sum(weight * (bins == number), axis=inner) for number in range(PIT_BINS)], axis=1)
    sums = [weight, weight * (mixture.mean - truth) ** 2, weight * mixture.variance]
    for axis in range(2, batch.y.ndim):
        sums = [_add_up(values, axis, BLOCK_POINTS) for values in sums]
    return pit, *sums


def join(
    sums: Sequence[Float[np.ndarray, "pair ..."]], pairs_per_row: int, scale: Sequence[float] | None = None
) -> Scan:
    """Return the scan of whole trajectories.

    Args:
        sums: `sums_of` all of their pairs.
        pairs_per_row: The number of pairs of a trajectory.
        scale: The scale of each channel's units.
    """
    pit, *parts = (np.asarray(part, np.float64) for part in sums)
    weight, squared, variance = (
        _add_up(part.reshape(-1, pairs_per_row, *part.shape[1:]), 1, BLOCK_STEPS) for part in parts
    )
    unit = np.reshape([1.0] if scale is None else scale, (-1, *(1,) * (weight.ndim - 3)))
    with np.errstate(invalid="ignore"):  # a block may have no point that counts
        return Scan(pit.sum(0), unit * np.sqrt(squared / weight), unit * np.sqrt(variance / weight))


def _add_up(values: Any, axis: int, size: int) -> Any:
    """Sum over blocks of `size` along an axis; the last may be shorter."""
    xp = jnp if isinstance(values, jax.Array) else np
    padding = [(0, -values.shape[axis] % size if a == axis else 0) for a in range(values.ndim)]
    return xp.pad(values, padding).reshape(*values.shape[:axis], -1, size, *values.shape[axis + 1 :]).sum(axis + 1)


def rank_regions(scan: Scan, horizon: int, space: tuple[int, ...]) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """Return both rankings: wrong and does not know it, wrong and knows it."""
    _, error, std = scan

    def region(place: tuple[int, ...]) -> Region:
        row, time, channel, *blocks = place
        steps = (BLOCK_STEPS * time + 1, min(BLOCK_STEPS * (time + 1), horizon))
        ends = [(BLOCK_POINTS * b, min(BLOCK_POINTS * (b + 1), n) - 1) for b, n in zip(blocks, space, strict=True)]
        return Region(row, channel, steps, tuple(ends), float(error[place]), float(std[place]))

    def rank(values: Float[np.ndarray, "row block channel *blocks"]) -> tuple[Region, ...]:
        left, listed = values.copy(), []
        while len(listed) < _LISTED:
            place = tuple(int(i) for i in np.unravel_index(int(np.argmax(left)), left.shape))
            if not left[place] > 0:
                break
            listed.append(region(place))
            row, _, _, *blocks = place
            # A place is wrong for a while, and in all channels: it is listed once.
            left[(row, slice(None), slice(None), *(slice(max(b - 1, 0), b + 2) for b in blocks))] = -1.0
        return tuple(listed)

    with np.errstate(invalid="ignore", divide="ignore"):
        # An error where √U_tot is 0 is the worst; a block without any finite number is not ranked.
        ratio = np.where(np.isfinite(error) & np.isfinite(std) & (error > 0), error / std, -1.0)
        # Channels may have different units: an error is compared with those of its own channel.
        others = tuple(axis for axis in range(error.ndim) if axis != 2)
        # In a channel without any ranked block all are taken, since NumPy warns of a mean of nothing; none is listed.
        taken = (ratio >= 0) | ~np.any(ratio >= 0, axis=others, keepdims=True)
        usual = np.sqrt(np.mean(error**2, axis=others, keepdims=True, where=taken))
        relative = np.where((ratio >= 0) & (ratio <= KNOWS), error / usual, -1.0)
    return rank(np.where(ratio > KNOWS, ratio, -1.0)), rank(relative)
