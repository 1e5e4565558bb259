"""Own files that many runs of one process read: opened once, and every split of them read once.

The runs of a sweep that have the same splits so share one copy of the fields, as those on a scenario do.
"""

import functools
import hashlib
from pathlib import Path

import numpy as np

from crossreg.config import DataConfig
from crossreg.data.files.load import digest_of, in_memory, read_part, units_of, used_bytes
from crossreg.data.files.overlap import warn_of_overlap
from crossreg.data.files.split import Part, check_repeated, split_source
from crossreg.data.formats.source import Source, open_source, stamps_of
from crossreg.data.pairs import Data, Pairs
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.files.memory import check_room, in_words

# Splits that are kept: those of the program that trains, and of the one behind it.
_KEPT_SPLITS = 6


class Pool:
    """Own files, all of whose splits fit into memory."""

    def __init__(self, source: Source):
        self.source = source
        # What a split is read as, and its units, follow from the source and the part alone.
        self._read = functools.lru_cache(_KEPT_SPLITS)(read_part)
        self._units = functools.lru_cache(_KEPT_SPLITS)(units_of)
        self._checked: set[tuple[Part, ...]] = set()

    def parts(self, config: DataConfig) -> dict[str, Part]:
        """The splits of a config; sizes that the files do not have, or memory has no room for, are refused.

        What may be held is what in_memory_gib says, however small the packed files are: a sweep has no other way.
        """
        parts = split_source(self.source, config)
        if (size := used_bytes(self.source, parts)) > config.in_memory_gib * 2**30:
            raise InputError(
                f"--data {self.source.path}: takes {in_words(size)}, and a sweep needs its data in memory; let"
                f" in_memory_gib in --config be more than {config.in_memory_gib:g}, or train each run"
            )
        if (every := tuple(parts.values())) not in self._checked:
            check_room(2 * size, f"--data {self.source.path} in memory, by in_memory_gib: its splits")
            if config.split == "trajectory":
                check_repeated(self.source, parts)
            warn_of_overlap(self.source, parts)
            self._checked.add(every)
        return parts

    def digest(self, config: DataConfig) -> str:
        """What a run of this config knows the files by: every number that it holds of them counts."""
        return digest_of(self.source, config, self.parts(config))

    def data(self, config: DataConfig) -> Data[Pairs]:
        """The three splits of a config."""
        parts = self.parts(config)
        units = self._units(self.source, parts["train"], observed_only=config.score_on == "observed")
        return in_memory(self.source, parts, config, units, self._read)


def pool_of(config: DataConfig) -> Pool:
    """The files of a config; once more the same where they are as they were."""
    path = Path(str(config.data))
    return _pool(path, config.field, config.axes, stamps_of(path))


@functools.lru_cache(1)
def _pool(path: Path, field: str | None, axes: str | None, stamps: tuple) -> Pool:
    return Pool(open_source(path, field=field, axes=axes))


def pool_trajectories(config: DataConfig, *others: DataConfig) -> Trajectories:
    """Own files as what a sweep hands on: the fields of one run, and the one digest that all of them are known by.

    It is that of each run where they all know the files by the same: files that are small enough for memory, or one
    division of larger ones. Otherwise it is the SHA-256 of theirs, which `origin` lists.
    """
    pool = pool_of(config)
    data = pool.data(config)
    known = sorted({pool.digest(one) for one in (config, *others)})
    digest = known[0] if len(known) == 1 else hashlib.sha256("".join(known).encode()).hexdigest()
    train, test = (np.asarray(pairs.trajectories) for pairs in (data.train, data.test))
    origin = {"source": str(config.data), "known_by": " ".join(known), "digest": digest}
    return Trajectories(train, test, origin, digest)


def shared_data(trajectories: Trajectories, config: DataConfig) -> Data[Pairs]:
    """The three splits of one run of a sweep; files that are others than `pool_trajectories` found are refused."""
    pool = pool_of(config)
    if pool.digest(config) not in trajectories.origin.get("known_by", "").split():
        raise InputError(f"--data {config.data}: has changed since it was first read")
    return pool.data(config)
