"""The pairs of input and target of a split, as training and scoring see them.

Of trajectories these are the one-step pairs (x_t, x_{t+1}). No pair is stored: pairs are numbered, and `gather` makes a
batch of those that are asked for. A batch follows from a key alone, so that training has no loader state.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from crossreg.config import DataConfig
from crossreg.config.settings import MaskPer
from crossreg.data.observation import apply_masks, draw_mask, mask_key_of, masking_in_words, masks_of
from crossreg.data.units import Units

# One key for a batch, or one for each of its pairs.
MaskKey = PRNGKeyArray | Key[Array, " batch"] | None

Some = TypeVar("Some", bound="AbstractPairs")


class Batch(NamedTuple):
    """Some pairs, as a network reads them and a loss scores them.

    Attributes:
        x: The inputs, (batch, channel, *space), with hidden points at 0, or at their channel's offset. A mask channel
            comes last, where there is one.
        y: The targets: at all points of the inputs or, where `at` is given, at some of them.
        mask: The observed points of the inputs.
        weight: The weight of each point of the targets: 0 where it is not known, or not scored.
        at: The points of the targets, numbered in row-major order; None for all points.

    Example:
        ```python
        batch = data.test[:3]
        batch.x.shape, batch.y.shape
        ```
    """

    x: Float[Array, "batch in *space"]
    y: Float[Array, "batch channel *points"]
    mask: Bool[Array, "batch 1 *space"]
    weight: Float[Array, "batch #channel *#points"]
    at: Int[Array, "batch point"] | None = None


class AbstractPairs(eqx.Module):
    """The pairs of one split: all that training, scoring and methods know about data.

    `rows` are the trajectories (or cars) in use, of which the first `num_rows` count: padding lets splits of different
    sizes stack along a replica axis. `units` are those of the fields, where a network sees them standardised. The
    arrays named in `shared` are common to all replicas.
    """

    rows: eqx.AbstractVar[Int[Array, " row"]]
    num_rows: eqx.AbstractVar[Int[Array, ""]]
    units: eqx.AbstractVar[Units | None]
    shared: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def in_channels(self) -> int:
        """Channels that the network reads."""

    @property
    @abstractmethod
    def field_shape(self) -> tuple[int, ...]:
        """Shape (channel, *space) of the fields that the network predicts."""

    @property
    @abstractmethod
    def pairs_per_row(self) -> int:
        """Pairs of each row."""

    @abstractmethod
    def gather(self, index: Int[Array, " batch"], *, mask_key: MaskKey = None) -> Batch:
        """Return the pairs with these numbers; pair i belongs to row i // pairs_per_row."""

    @abstractmethod
    def of(self, numbers: Sequence[int]) -> "AbstractPairs":
        """Return the pairs of some rows, given by their numbers."""

    def __getitem__(self, index: int | slice | Sequence[int] | Int[np.ndarray, " batch"]) -> Batch:
        """Return a batch of pairs: `pairs[:3]`, `pairs[7]` or `pairs[[0, 7]]`, read from their files if necessary."""
        numbers = np.atleast_1d(np.arange(int(self.num_pairs))[index])
        return self.hold(numbers).gather(jnp.asarray(numbers))

    @property
    def max_pairs(self) -> int:
        """Number of pairs, including those of padding rows."""
        return self.rows.shape[-1] * self.pairs_per_row

    @property
    def num_pairs(self) -> Int[Array, ""]:
        """Number of pairs that count."""
        return self.num_rows * self.pairs_per_row

    @property
    def pair_bytes(self) -> int:
        """Bytes of the two fields of a pair."""
        return 8 * math.prod(self.field_shape)

    @property
    def run_mask(self) -> Bool[Array, "*space"] | None:
        """The mask of the run, where one mask serves all of its pairs."""
        return None

    @property
    def masking(self) -> str:
        """Which points of an input are observed, in words; empty where there are no masks."""
        return ""

    @property
    def may_have_gaps(self) -> bool:
        """Whether `unmeasured` has to look at the values."""
        return False

    @property
    def in_files(self) -> bool:
        """Whether pairs must be read from files (`hold`) before they can be gathered; in memory, all are held."""
        return False

    def hold(self: Some, numbers: Int[np.ndarray, "..."], capacity: int | None = None) -> Some:
        """Return pairs of which these can be gathered, read from their files if necessary.

        Args:
            numbers: numbers of the pairs, in any order and number of axes.
            capacity: pairs that there is room for; by default as many as are held.
        """
        return self

    @property
    def held_part(self) -> tuple[Any, Any] | None:
        """What `hold` has read, for devices that each hold a part; None where nothing has been read."""
        return None

    def with_held_part(self: Some, part: tuple[Any, Any]) -> Some:
        """Return pairs that hold `part` instead."""
        return self

    def in_memory(self, most_bytes: int) -> "AbstractPairs":
        """Return these pairs, or, of pairs in files, evenly spaced ones of about `most_bytes` in memory."""
        return self

    def draw(self, key: PRNGKeyArray, batch_size: int, horizon: int = 1) -> tuple[Int[Array, " batch"], PRNGKeyArray]:
        """Draw the numbers of a mini-batch, uniformly with replacement, and the key of its masks.

        With a `horizon` K, they are the first ones of K pairs that follow each other in a row.
        """
        index_key, mask_key = jax.random.split(key)
        firsts = self.pairs_per_row - horizon + 1
        number = jax.random.randint(index_key, (batch_size,), 0, self.num_rows * firsts)
        return number // firsts * self.pairs_per_row + number % firsts, mask_key

    def sample(self, key: PRNGKeyArray, batch_size: int) -> Batch:
        """Return a mini-batch, drawn uniformly with replacement."""
        index, mask_key = self.draw(key, batch_size)
        return self.gather(index, mask_key=mask_key)


class GridPairs(AbstractPairs):
    """The one-step pairs of trajectories on a grid, in memory ([`Pairs`][]) or in files (`files/streamed.py`)."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Pairs of each trajectory."""

    @property
    def pairs_per_row(self) -> int:
        return self.horizon

    @abstractmethod
    def known(self, index: Int[Array, " batch"]) -> Bool[Array, "batch channel *space"]:
        """Return where the targets of pairs are known, scored or not.

        A target is known where it was measured. With `score_on="observed"`, what the files' own mask hides may be
        anything, and is not known.
        """


class Pairs(GridPairs):
    """The one-step pairs of trajectories in memory, under an observation mask.

    Data from files may have a mask of their own, and missing values, which are NaN: these are hidden from the input
    and are not scored as targets.

    Attributes:
        trajectories: All trajectories of the pool, (trajectory, time, channel, *space).
        rows: The numbers of the trajectories in use.
        num_rows: How many of `rows` count; the others are padding.
        masks: One mask, one per row, or one per pair, as `mask_per` says.
        observed_fraction: The share of observed points.
        mask_per: What a mask is drawn for.
        mask_channel: Whether inputs have the mask as their last channel.
        score_on: Whether all points are scored, or only observed ones.
        observed: The files' own mask, at every time; None where they have none.
        has_gaps: Whether values may be missing.
        units: Offset and scale of each channel; None where fields are not standardised.

    Example:
        ```python
        data.test[7].x               # the input of one pair
        data.test.gather(jnp.arange(8)).y
        ```
    """

    trajectories: Float[Array, "trajectory time channel *space"]
    rows: Int[Array, " row"]
    num_rows: Int[Array, ""]
    masks: Bool[Array, "mask *space"]
    observed_fraction: Float[Array, ""]
    mask_per: MaskPer = eqx.field(static=True)
    mask_channel: bool = eqx.field(static=True)
    score_on: Literal["all", "observed"] = eqx.field(static=True)
    observed: Bool[Array, "trajectory time *space"] | None = None
    has_gaps: bool = eqx.field(static=True, default=False)
    units: Units | None = eqx.field(static=True, default=None)
    shared: ClassVar[tuple[str, ...]] = ("trajectories", "observed")

    @property
    def horizon(self) -> int:
        return self.trajectories.shape[1] - 1

    @property
    def field_shape(self) -> tuple[int, ...]:
        return self.trajectories.shape[2:]

    @property
    def in_channels(self) -> int:
        return self.trajectories.shape[2] + self.mask_channel

    def gather(self, index: Int[Array, " batch"], *, mask_key: MaskKey = None) -> Batch:
        """Return the pairs with these numbers; pair i is step i % horizon of row i // horizon.

        Args:
            index: Numbers of pairs.
            mask_key: With `mask_per="step"`, the key of new masks; without it, each pair has a fixed one.

        Returns:
            The pairs as a batch.
        """
        row, time = index // self.horizon, index % self.horizon
        x = self.trajectories[self.rows[row], time]
        y = self.trajectories[self.rows[row], time + 1]
        mask = self._masks(index, row, mask_key)[:, None]
        if self.observed is not None:
            mask = mask & self.observed[self.rows[row], time][:, None]
        counts = (index < self.num_pairs).astype(x.dtype).reshape(-1, *(1,) * (y.ndim - 1))
        hidden = None if self.units is None else self.units.offsets(x.ndim - 2)
        target = None if self.observed is None else self.observed[self.rows[row], time + 1][:, None]
        how = {"has_gaps": self.has_gaps, "mask_channel": self.mask_channel, "score_on": self.score_on}
        masked = apply_masks(x, y, mask, counts, hidden=hidden, target_mask=target, **how)
        return Batch(*masked)

    def known(self, index: Int[Array, " batch"]) -> Bool[Array, "batch channel *space"]:
        row, time = index // self.horizon, index % self.horizon
        known = jnp.isfinite(self.trajectories[self.rows[row], time + 1])
        if self.score_on == "observed" and self.observed is not None:
            known = known & self.observed[self.rows[row], time + 1][:, None]
        return known

    @property
    def run_mask(self) -> Bool[Array, "*space"] | None:
        return self.masks[0] if self.mask_per == "run" else None

    @property
    def masking(self) -> str:
        return masking_in_words(float(self.observed_fraction), self.mask_per, has_gaps=self.may_have_gaps)

    @property
    def may_have_gaps(self) -> bool:
        return self.has_gaps or self.observed is not None

    def of(self, numbers: Sequence[int]) -> "Pairs":
        """Return the pairs of some rows, given by their numbers, under the same masks."""
        index = np.asarray(numbers)
        masks = self.masks
        if self.mask_per == "trajectory":
            masks = masks[index]
        elif self.mask_per != "run":
            masks = masks[(index[:, None] * self.horizon + np.arange(self.horizon)).ravel()]
        return eqx.tree_at(
            lambda p: (p.rows, p.num_rows, p.masks),
            self,
            (self.rows[index], jnp.full_like(self.num_rows, index.size), masks),
        )

    def _masks(self, index, row, mask_key) -> Bool[Array, "batch *space"]:
        space = self.masks.shape[1:]
        if self.mask_per == "step" and mask_key is not None:
            keys = mask_key if mask_key.ndim else jax.random.split(mask_key, index.shape[0])
            return jax.vmap(lambda k: draw_mask(k, space, self.observed_fraction))(keys)
        number = {"run": jnp.zeros_like(index), "trajectory": row, "pair": index, "step": index}
        return self.masks[number[self.mask_per]]


def make_pairs(array: Array, rows: range, number: int, config: DataConfig, **own: Any) -> Pairs:
    """Return the pairs of some rows of an array (trajectory, time, channel, *space).

    Args:
        array: the trajectories.
        rows: those of the split.
        number: 0 for train, 1 for reg, 2 for test.
        config: how the inputs are observed.
        own: further fields of [`Pairs`][], which data from files have.
    """
    horizon = array.shape[1] - 1
    size = len(rows)
    # An empty split has one row that does not count: its scores are NaN, and nothing else is special about it.
    rows = rows or range(1)
    num_pairs = len(rows) * horizon
    count = {"run": 1, "trajectory": len(rows), "pair": num_pairs, "step": num_pairs}[config.mask_per]
    return Pairs(
        trajectories=array,
        rows=jnp.asarray(list(rows), jnp.int32),
        num_rows=jnp.asarray(size, jnp.int32),
        masks=masks_of(mask_key_of(config, number), jnp.arange(count), array.shape[3:], config.observed_fraction),
        observed_fraction=jnp.asarray(config.observed_fraction, array.dtype),
        mask_per=config.mask_per,
        mask_channel=config.mask_channel,
        score_on=config.score_on,
        **own,
    )


def stack_pairs(pairs: Sequence[Some]) -> Some:
    """Stack the splits of several replicas along a leading axis, with arrays padded to the longest.

    Arrays that replicas share get no such axis (see `replica_axes`).
    """
    first = pairs[0]
    shapes = [[array.shape for array in jax.tree.leaves(_shared(p))] for p in pairs]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"replicas must share one array of {', '.join(first.shared)}")

    def stack(*leaves):
        longest = max((leaf.shape[0] for leaf in leaves if leaf.ndim), default=0)
        return jnp.stack([_padded(leaf, longest) for leaf in leaves])

    stacked = jax.tree.map(stack, *(_with_shared(p, [None] * len(p.shared)) for p in pairs))
    return _with_shared(stacked, _shared(first))


def _padded(array: Array, length: int) -> Array:
    """Repeat the last row up to a length; a scalar is left alone."""
    if not array.ndim:
        return array
    return jnp.pad(array, [(0, length - array.shape[0])] + [(0, 0)] * (array.ndim - 1), mode="edge")


def _shared(pairs: AbstractPairs) -> list[Any]:
    return [getattr(pairs, name) for name in pairs.shared]


def _with_shared(pairs: Some, values: Sequence[Any]) -> Some:
    return eqx.tree_at(_shared, pairs, list(values), is_leaf=lambda node: node is None)


def replica_axes(pairs: Some) -> Some:
    """Return the `in_axes` with which vmap maps stacked pairs over replicas: 0, and None for shared arrays."""
    axes = jax.tree.map(lambda _: 0, pairs)
    return _with_shared(axes, [None] * len(pairs.shared))
