"""Splits too large for memory: pairs in files, read just before they are needed and held while they are used.

Which pairs a batch has follows from its key, so that they are known before it is drawn: `hold` reads them by their
numbers, and `gather` finds them among those. The held pairs are a `Pairs` of trajectories of one step, so that masks,
gaps, units and all numbers are the same as in memory.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int

from crossreg.config import DataConfig
from crossreg.data.files.split import Part
from crossreg.data.formats.source import SAMPLED_BYTES, Source
from crossreg.data.observation import mask_key_of, masking_in_words, masks_of
from crossreg.data.pairs import AbstractPairs, Batch, GridPairs, MaskKey, Pairs, make_pairs
from crossreg.data.units import Units

_FEW_PAIRS = 16
_NO_PAIR = np.iinfo(np.int32).max


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """The samples and times of a split in its files, and how they are observed; `number` is the split's."""

    source: Source
    part: Part
    number: int
    config: DataConfig
    units: Units

    @property
    def horizon(self) -> int:
        """Pairs of each trajectory."""
        return len(self.part.times) - 1

    def read(self, rows: Int[np.ndarray, " row"], numbers: Int[np.ndarray, " pair"], capacity: int) -> Pairs:
        """Read the pairs with these numbers, in order, as `capacity` trajectories of one step, the last ones zero."""
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
            # One mask for all is drawn here; others are those of the rows and pairs themselves.
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


class StreamedPairs(GridPairs):
    """The pairs of a split in files. Only pairs that are held, listed in `numbers`, can be gathered."""

    rows: Int[Array, " row"]
    num_rows: Int[Array, ""]
    numbers: Int[Array, " held"]
    held: Pairs | None
    reader: Reader = eqx.field(static=True)
    units: Units | None = eqx.field(static=True)
    shared: ClassVar[tuple[str, ...]] = ("numbers", "held")

    @property
    def horizon(self) -> int:
        return self.reader.horizon

    @property
    def field_shape(self) -> tuple[int, ...]:
        return self.reader.source.shape[2:]

    @property
    def in_channels(self) -> int:
        return self.field_shape[0] + self.reader.config.mask_channel

    @property
    def run_mask(self) -> Bool[Array, "*space"] | None:
        config = self.reader.config
        if config.mask_per != "run":
            return None
        key = mask_key_of(config, 0)
        return masks_of(key, jnp.zeros(1, jnp.int32), self.field_shape[1:], config.observed_fraction)[0]

    @property
    def masking(self) -> str:
        return masking_in_words(self.reader.config.observed_fraction, self.reader.config.mask_per, has_gaps=True)

    @property
    def may_have_gaps(self) -> bool:
        return int(self.num_pairs) * self.pair_bytes <= SAMPLED_BYTES  # large files are not read to look for gaps

    @property
    def in_files(self) -> bool:
        return True

    @property
    def held_part(self) -> tuple[Any, Any] | None:
        return None if self.held is None else (self.numbers, self.held)

    def with_held_part(self, part: tuple[Any, Any]) -> "StreamedPairs":
        return eqx.tree_at(lambda p: (p.numbers, p.held), self, part, is_leaf=lambda node: node is None)

    def hold(self, numbers: Int[np.ndarray, "..."], capacity: int | None = None) -> "StreamedPairs":
        own = np.unique(numbers)
        capacity = max(len(own), 1) if capacity is None else capacity
        # Stacked pairs have a replica axis in front of the rows.
        held = self.reader.read(np.asarray(self.rows).reshape(-1), own, capacity)
        padded = np.full(capacity, _NO_PAIR, np.int32)
        padded[: len(own)] = own
        return self.with_held_part((jnp.asarray(padded), held))

    def _places(self, index: Int[Array, " batch"]) -> tuple[Pairs, Int[Array, " batch"]]:
        """Return the held pairs, and the places of pairs among them; outside of programs, check that they are there."""
        if self.held is None:
            raise ValueError("the pairs are in a file: `hold` them first")
        places = jnp.searchsorted(self.numbers, index)
        if not isinstance(places, Tracer):
            wanted = np.asarray(index)[np.asarray(index < self.num_pairs)]
            if missing := np.setdiff1d(wanted, self.numbers).tolist():
                raise ValueError(f"pair {missing[0]} is in a file and not held: `hold` it first")
        return self.held, places

    def gather(self, index: Int[Array, " batch"], *, mask_key: MaskKey = None) -> Batch:
        """Return the pairs with these numbers, which must be held."""
        held, places = self._places(index)
        batch = held.gather(places, mask_key=mask_key)
        counts = (index < self.num_pairs).astype(batch.weight.dtype)
        return batch._replace(weight=batch.weight * counts.reshape(-1, *(1,) * (batch.weight.ndim - 1)))

    def known(self, index: Int[Array, " batch"]) -> Bool[Array, "batch channel *space"]:
        held, places = self._places(index)
        return held.known(places)

    def of(self, numbers: Sequence[int]) -> "StreamedPairs":
        index = np.asarray(numbers)
        rows = jnp.reshape(self.rows, -1)[index]
        empty = stream(self.reader)
        return eqx.tree_at(lambda p: (p.rows, p.num_rows), empty, (rows, jnp.full_like(empty.num_rows, index.size)))

    def in_memory(self, most_bytes: int) -> Pairs:
        """Return evenly spaced pairs in memory, as rows of one pair each: at least 16, however large they are."""
        numbers = evenly_spaced(int(self.num_pairs), max(_FEW_PAIRS, most_bytes // self.pair_bytes))
        return self.reader.read(np.asarray(self.rows), numbers, len(numbers))


def evenly_spaced(total: int, count: int | None) -> Int[np.ndarray, " number"]:
    """Return `count` numbers from 0 … total − 1, or all of them."""
    if count is None or count >= total:
        return np.arange(total)
    return np.arange(count) * total // count


def stream(reader: Reader) -> StreamedPairs:
    """Return the pairs of a split, none of them held."""
    size = len(reader.part.samples)
    return StreamedPairs(
        rows=jnp.arange(size, dtype=jnp.int32),
        num_rows=jnp.asarray(size, jnp.int32),
        numbers=jnp.zeros(0, jnp.int32),
        held=None,
        reader=reader,
        units=reader.units,
    )


def check_unchanged(*splits: AbstractPairs) -> None:
    """Raise InputError if the files of splits have changed since they were opened; memory cannot change."""
    for source in {id(p.reader.source): p.reader.source for p in splits if isinstance(p, StreamedPairs)}.values():
        source.check_unchanged()
