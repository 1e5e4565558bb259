"""Own files that many runs of one process read: opened once, and every split of them read once.

The runs of a sweep that have the same splits so share one copy of the fields, as those on a scenario do.
"""

import functools
from pathlib import Path

import numpy as np

from crossreg.config import DataConfig
from crossreg.data.files.load import in_memory, read_part, units_of, used_bytes
from crossreg.data.files.overlap import warn_of_overlap
from crossreg.data.files.source import Source, open_source
from crossreg.data.files.split import Part, check_repeated, split_source
from crossreg.data.pairs import Data, Pairs
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.memory import in_words

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
        """The splits of a config; sizes that the files do not have, or memory has no room for, are refused."""
        parts = split_source(self.source, config)
        if (size := used_bytes(self.source, parts)) > config.in_memory_gib * 2**30:
            raise InputError(
                f"--data {self.source.path}: takes {in_words(size)}, and a sweep needs its data in memory; let"
                f" in_memory_gib in --config be more than {config.in_memory_gib:g}, or train each run"
            )
        if size > self.source.most_held:
            raise InputError(
                f"--data {self.source.path}: unpacks from {in_words(self.source.stored)} to {in_words(size)}, and a"
                f" sweep holds at most {in_words(self.source.most_held)} of it in memory; store it without packing"
            )
        if (every := tuple(parts.values())) not in self._checked:
            if config.split == "trajectory":
                check_repeated(self.source, parts)
            warn_of_overlap(self.source, parts)
            self._checked.add(every)
        return parts

    def data(self, config: DataConfig) -> Data[Pairs]:
        """The three splits of a config."""
        parts = self.parts(config)
        units = self._units(self.source, parts["train"], observed_only=config.score_on == "observed")
        return in_memory(self.source, parts, config, units, self._read)


def pool_of(config: DataConfig) -> Pool:
    """The files of a config; once more the same where they are as they were."""
    path = Path(str(config.data))
    return _pool(path, config.field, config.axes, _stamps(path))


@functools.lru_cache(1)
def _pool(path: Path, field: str | None, axes: str | None, stamps: tuple) -> Pool:
    return Pool(open_source(path, field=field, axes=axes))


def _stamps(path: Path) -> tuple:
    """What changes with the content of files."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return tuple((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.exists())


def pool_trajectories(config: DataConfig) -> Trajectories:
    """Own files as what a sweep hands on: the fields of one run, and the digest that all of them are known by."""
    data = pool_of(config).data(config)
    train, test = (np.asarray(pairs.trajectories) for pairs in (data.train, data.test))
    return Trajectories(train, test, {"source": str(config.data)}, data.digest)
