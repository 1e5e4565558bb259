"""Files that many runs of one process read: opened once, and each of their splits read once.

The runs of a sweep with the same splits share one copy of the fields, as runs on a scenario do.
"""

import functools
import hashlib
from pathlib import Path

import numpy as np

from crossreg.config import DataConfig
from crossreg.data.dataset import Data
from crossreg.data.files.load import (
    check_splits,
    digest_of,
    in_memory,
    read_part,
    units_of,
    used_bytes,
    warn_of_likeness,
)
from crossreg.data.files.split import Part, split_source
from crossreg.data.formats.open import open_source, stamps_of
from crossreg.data.formats.source import Source
from crossreg.data.pairs import Pairs
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.files.memory import check_room, in_words

# Splits that are kept: those of the program that is training, and of the next one.
_KEPT_SPLITS = 6


class Pool:
    """Files all of whose splits fit into memory."""

    def __init__(self, source: Source):
        self.source = source
        # A split, and its units, follow from the source and the part alone.
        self._read = functools.lru_cache(_KEPT_SPLITS)(read_part)
        self._units = functools.lru_cache(_KEPT_SPLITS)(units_of)
        self._checked: set[tuple[Part, ...]] = set()

    def parts(self, config: DataConfig) -> dict[str, Part]:
        """Return the splits of a config.

        However small the compressed files are, `in_memory_gib` is the limit: a sweep cannot read from files.

        Raises:
            InputError: if the files do not have as many trajectories, or memory has no room for them.
        """
        parts = split_source(self.source, config)
        if (size := used_bytes(self.source, parts)) > config.in_memory_gib * 2**30:
            raise InputError(
                f"data {self.source.path}: takes {in_words(size)}, and a sweep needs its data in memory; set"
                f" in_memory_gib above {config.in_memory_gib:g} in the config, or train each run by itself"
            )
        if (every := tuple(parts.values())) not in self._checked:
            check_room(2 * size, f"data {self.source.path} in memory, by in_memory_gib: its splits")
            if not self._checked:
                warn_of_likeness(self.source, config)
            check_splits(self.source, parts, config)
            self._checked.add(every)
        return parts

    def digest(self, config: DataConfig) -> str:
        """Return the digest that a run of this config recognises the files by, of every number that it reads."""
        return digest_of(self.source, config, self.parts(config))

    def data(self, config: DataConfig) -> Data[Pairs]:
        """Return the three splits of a config."""
        parts = self.parts(config)
        units = self._units(self.source, parts["train"], observed_only=config.score_on == "observed")
        return in_memory(self.source, parts, config, units, self._read)


def pool_of(config: DataConfig) -> Pool:
    """Return the files of a config, opened only once unless they change."""
    path = Path(str(config.data))
    return _pool(path, config.field, config.axes, stamps_of(path))


@functools.lru_cache(1)
def _pool(path: Path, field: str | None, axes: str | None, stamps: tuple) -> Pool:
    return Pool(open_source(path, field=field, axes=axes))


def pool_trajectories(config: DataConfig, *others: DataConfig) -> Trajectories:
    """Return the fields of one run of a sweep, and the digest that all of its runs recognise the files by.

    Runs agree on a digest if the files are within `in_memory_gib`, or if they divide larger files alike. Otherwise the
    digest is the SHA-256 of theirs, which `origin` lists.
    """
    pool = pool_of(config)
    data = pool.data(config)
    known = sorted({pool.digest(one) for one in (config, *others)})
    digest = known[0] if len(known) == 1 else hashlib.sha256("".join(known).encode()).hexdigest()
    train, test = (np.asarray(pairs.trajectories) for pairs in (data.train, data.test))
    origin = {"source": str(config.data), "known_by": " ".join(known), "digest": digest}
    return Trajectories(train, test, origin, digest)


def shared_data(trajectories: Trajectories, config: DataConfig) -> Data[Pairs]:
    """Return the three splits of one run of a sweep; raise InputError if files changed since `pool_trajectories`."""
    pool = pool_of(config)
    if pool.digest(config) not in trajectories.origin.get("known_by", "").split():
        raise InputError(f"data {config.data}: has changed since it was first read; load it again")
    return pool.data(config)
