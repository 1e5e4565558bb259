"""Splits that are not in memory: the pairs that are needed next are read, and held while they are used.

A batch follows from a key, so that its pairs are known before it is drawn. `hold` reads some pairs by their numbers;
`gather` then finds them among those. What is held is a `Pairs` of trajectories of one step, so that masks, gaps and
units are those of a split in memory, and so are all numbers.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, overload

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from crossreg.config import DataConfig
from crossreg.data.files.split import Part
from crossreg.data.formats.source import Source
from crossreg.data.observation import masks_of
from crossreg.data.pairs import AbstractPairs, Batch, MaskKey, Pairs, make_pairs, mask_key_of
from crossreg.data.units import Units

_FEW_PAIRS = 16
_NO_PAIR = np.iinfo(np.int32).max


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """The samples and times of a split in its files, and how they are observed. Split `number` of a run."""

    source: Source
    part: Part
    number: int
    config: DataConfig
    units: Units

    @property
    def horizon(self) -> int:
        """Pairs of each sample."""
        return len(self.part.times) - 1

    @property
    def pair_bytes(self) -> int:
        """Bytes of the two fields of a pair."""
        return 2 * self.source.frame_bytes

    def read(self, rows: Int[np.ndarray, " row"], numbers: Int[np.ndarray, " pair"], capacity: int) -> Pairs:
        """The pairs of these numbers, in order, as trajectories of one step; filled up with zeros."""
        source, times = self.source, self.part.times
        fields = np.zeros((capacity, 2, *source.shape[2:]), np.float32)
        observed = np.ones((capacity, 2, *source.space), bool) if source.has_mask else None
        row, step = np.divmod(numbers, self.horizon)
        for place, (sample, first) in enumerate(zip(rows[row].tolist(), step.tolist(), strict=True)):
            pair = slice(times[first], times[first + 1] + 1, times.step)
            fields[place] = source.frames(self.part.samples[sample], pair)
            if observed is not None:
                observed[place] = source.observed(self.part.samples[sample], pair)
        own: dict[str, Any] = {"observed": None if observed is None else jnp.asarray(observed)}
        held = make_pairs(
            jnp.asarray(fields),
            range(capacity),
            self.number,
            # Of a mask for all, one is drawn; others are those of the rows and pairs themselves.
            dataclasses.replace(self.config, mask_per="run"),
            has_gaps=True,
            units=self.units,
            **own,
        )
        if self.config.mask_per == "run":
            return held
        which = rows[row] if self.config.mask_per == "trajectory" else rows[row] * self.horizon + step
        which = np.concatenate([which, np.zeros(capacity - len(which), which.dtype)])
        key = mask_key_of(self.config, self.number)
        masks = masks_of(key, jnp.asarray(which), source.space, self.config.observed_fraction)
        return dataclasses.replace(held, masks=masks, mask_per=self.config.mask_per)


class StreamedPairs(AbstractPairs):
    """The pairs of a split in files. Only those that are held, by their `numbers`, can be gathered."""

    rows: Int[Array, " row"]
    num_rows: Int[Array, ""]
    numbers: Int[Array, " held"]
    held: Pairs | None
    reader: Reader = eqx.field(static=True)
    units: Units | None = eqx.field(static=True)
    shared: ClassVar[tuple[str, ...]] = ("numbers", "held")

    @property
    def horizon(self) -> int:
        """Pairs per trajectory."""
        return self.reader.horizon

    @property
    def pairs_per_row(self) -> int:
        return self.reader.horizon

    @property
    def field_shape(self) -> tuple[int, ...]:
        return self.reader.source.shape[2:]

    @property
    def in_channels(self) -> int:
        return self.field_shape[0] + self.reader.config.mask_channel

    @property
    def run_mask(self) -> Bool[Array, "*space"] | None:
        """The mask of the run, where the run has just one."""
        config = self.reader.config
        if config.mask_per != "run":
            return None
        return masks_of(
            mask_key_of(config, 0), jnp.zeros(1, jnp.int32), self.field_shape[1:], config.observed_fraction
        )[0]

    def hold(self, numbers: Int[np.ndarray, "..."], capacity: int | None = None) -> "StreamedPairs":
        """The same with the pairs of these numbers read; `capacity` is how many there is room for."""
        own = np.unique(numbers)
        capacity = max(len(own), 1) if capacity is None else capacity
        # Stacked pairs have a replica axis before the rows.
        held = self.reader.read(np.asarray(self.rows).reshape(-1), own, capacity)
        padded = np.full(capacity, _NO_PAIR, np.int32)
        padded[: len(own)] = own
        return eqx.tree_at(
            lambda p: (p.numbers, p.held), self, (jnp.asarray(padded), held), is_leaf=lambda node: node is None
        )

    def gather(self, index: Int[Array, " batch"], *, mask_key: MaskKey = None) -> Batch:
        """The pairs of the given numbers, which must be held."""
        if self.held is None:
            raise ValueError("the pairs are in a file: `hold` them first")
        batch = self.held.gather(jnp.searchsorted(self.numbers, index), mask_key=mask_key)
        counts = (index < self.num_pairs).astype(batch.weight.dtype)
        return batch._replace(weight=batch.weight * counts.reshape(-1, *(1,) * (batch.weight.ndim - 1)))

    def known(self, index: Int[Array, " batch"]) -> Bool[Array, "batch channel *space"]:
        """Where the targets of pairs that are held are known."""
        if self.held is None:
            raise ValueError("the pairs are in a file: `hold` them first")
        return self.held.known(jnp.searchsorted(self.numbers, index))

    def of(self, numbers: Sequence[int]) -> "StreamedPairs":
        index = np.asarray(numbers)
        rows = jnp.reshape(self.rows, -1)[index]
        empty = stream(self.reader)
        return eqx.tree_at(lambda p: (p.rows, p.num_rows), empty, (rows, jnp.full_like(empty.num_rows, index.size)))

    def evenly_spaced(self, most_bytes: int) -> Pairs:
        """Some of the pairs, in memory, as rows of one pair each: as many as asked for, or a few of large fields."""
        count = max(_FEW_PAIRS, most_bytes // self.reader.pair_bytes)
        numbers = evenly_spaced(int(self.num_pairs), count)
        return self.reader.read(np.asarray(self.rows), numbers, len(numbers))


def evenly_spaced(total: int, count: int | None) -> Int[np.ndarray, " number"]:
    """`count` numbers from 0 … total − 1, or all of them."""
    if count is None or count >= total:
        return np.arange(total)
    return np.arange(count) * total // count


def stream(reader: Reader) -> StreamedPairs:
    """The pairs of a split, none of them held."""
    size = len(reader.part.samples)
    rows = jnp.arange(size, dtype=jnp.int32)
    return StreamedPairs(
        rows=rows,
        num_rows=jnp.asarray(size, jnp.int32),
        numbers=jnp.zeros(0, jnp.int32),
        held=None,
        reader=reader,
        units=reader.units,
    )


def check_unchanged(*splits: AbstractPairs) -> None:
    """Refuses splits whose files have changed since they were opened; what is in memory cannot change."""
    for source in {id(p.reader.source): p.reader.source for p in splits if isinstance(p, StreamedPairs)}.values():
        source.check_unchanged()


@overload
def hold(
    pairs: Pairs | StreamedPairs, numbers: Int[np.ndarray, "..."], capacity: int | None = None
) -> Pairs | StreamedPairs: ...
@overload
def hold(pairs: AbstractPairs, numbers: Int[np.ndarray, "..."], capacity: int | None = None) -> AbstractPairs: ...
def hold(pairs: AbstractPairs, numbers: Int[np.ndarray, "..."], capacity: int | None = None) -> AbstractPairs:
    """Pairs that can be gathered by these numbers: read now, if they are in a file."""
    return pairs.hold(numbers, capacity) if isinstance(pairs, StreamedPairs) else pairs
