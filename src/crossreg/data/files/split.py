"""Which trajectories of a source, or which times of each, are train, reg and test.

Sizes that are not given are 10% for reg and 20% for test, at least one each, and the rest for train.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from crossreg.config import DataConfig
from crossreg.data.formats.source import Source
from crossreg.errors import InputError

_REG_SHARE, _TEST_SHARE = 0.1, 0.2
NAMES = ("train", "reg", "test")


class Part(NamedTuple):
    """The samples of a source, and the times, that a split has."""

    samples: tuple[int, ...]
    times: range

    @property
    def slice(self) -> slice:
        return slice(self.times.start, self.times.stop, self.times.step)


def suggested_sizes(count: int) -> tuple[int, int, int]:
    """Divide a number of trajectories, or times, 70/10/20 among train, reg and test."""
    reg, test = (max(1, round(share * count)) for share in (_REG_SHARE, _TEST_SHARE))
    return count - reg - test, reg, test


def split_source(source: Source, config: DataConfig) -> dict[str, Part]:
    """Return the samples and times of train, reg and test.

    Raises:
        InputError: if there are too few trajectories or times for what the config asks.
    """
    times = range(0, source.times, config.time_stride)
    if len(times) < 2:
        raise InputError(
            f"time_stride is {config.time_stride}: leaves {len(times)} of {source.times} times; expected at least 2"
        )
    if config.split == "time":
        return _by_time(source, config, times)
    sizes = (config.train_size, config.reg_size, config.test_size)
    if source.splits is not None:
        pools = [list(source.splits[name]) for name in NAMES]
        sizes = [len(pool) if size is None else size for pool, size in zip(pools, sizes, strict=True)]
        for name, size, pool in zip(NAMES, sizes, pools, strict=True):
            if size > len(pool):
                raise InputError(f"{name}_size is {size}: {source.path} has {len(pool)} trajectories for {name}")
        rng = np.random.default_rng(config.split_seed)
        # A whole split keeps the order of its files; a part is chosen by the seed.
        chosen = [
            pool if size == len(pool) else rng.permutation(pool)[:size].tolist()
            for size, pool in zip(sizes, pools, strict=True)
        ]
    else:
        chosen = _cut(_shuffled(source, config), _sizes(sizes, source.samples, f"{source.path}", "trajectories"))
    horizons = (config.train_horizon, config.train_horizon, config.test_horizon)
    return {
        name: Part(tuple(samples), times[: None if horizon is None else horizon + 1])
        for name, samples, horizon in zip(NAMES, chosen, horizons, strict=True)
    }


def _shuffled(source: Source, config: DataConfig) -> list[int]:
    return np.random.default_rng(config.split_seed).permutation(source.samples).tolist()


def _cut(order: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Take test first, then reg, then train, so that another train size does not change the others."""
    train, reg, test = sizes
    order = list(order)
    return [order[test + reg : test + reg + train], order[test : test + reg], order[:test]]


def _sizes(sizes: Sequence[int | None], count: int, where: str, what: str) -> list[int]:
    """Return the sizes, with those that were not given filled in; raise InputError if there are not as many."""
    if count < 3 and None in sizes and what == "trajectories":
        raise InputError(
            f"data {where}: has {count} {'trajectory' if count == 1 else what}; train, reg and test need one each;"
            " `split='time'` divides the times of each trajectory instead"
        )
    train, reg, test = sizes
    suggested = suggested_sizes(count)
    reg, test = suggested[1] if reg is None else reg, suggested[2] if test is None else test
    if train is None and reg + test >= count:
        raise InputError(
            f"reg_size is {reg} and test_size is {test}: none of {count} {what} is left to train on ({where})"
        )
    train = count - reg - test if train is None else train
    if train < 1 or train + reg + test > count:
        raise InputError(
            f"train_size is {train}, reg_size is {reg} and test_size is {test}: together at most {count} {what},"
            f" at least one to train on ({where})"
        )
    return [train, reg, test]


def _by_time(source: Source, config: DataConfig, times: range) -> dict[str, Part]:
    """Give the first times of every trajectory to train, the next to reg, the last to test: splits share no step."""
    if config.train_horizon is not None or config.test_horizon is not None:
        raise InputError("split is time: sizes are steps already; leave `train_horizon` and `test_horizon` out")
    if source.splits is not None:
        raise InputError(
            f"split is time: {source.path} is split already, into folders for train, reg and test; leave `split` out"
        )
    # A part of n steps has n + 1 times, and parts share none.
    steps = len(times) - 3
    if steps < 3:
        raise InputError(f"split is time: {len(times)} times are too few; train, reg and test need 6")
    asked = (config.train_size, config.reg_size, config.test_size)
    train, reg, test = _sizes(asked, steps, f"{source.path}: {len(times)} times", "steps")
    samples = tuple(range(source.samples))
    ends = np.cumsum([train + 1, reg + 1, test + 1]).tolist()
    starts = [0, *ends[:2]]
    parts = {name: Part(samples, times[a:b]) for name, a, b in zip(NAMES, starts, ends, strict=True)}
    return parts if reg else parts | {"reg": Part((), times[:2])}


def check_repeated(source: Source, parts: Mapping[str, Part]) -> None:
    """Raise InputError if a trajectory is in two splits: what is scored must not be learned.

    Trajectories are the same if their first two fields are: with one equal field, their parameters may differ. Fields
    that are uniform or missing do not count.
    """
    seen: dict[bytes, tuple[int, str]] = {}
    for name, part in parts.items():
        for sample in part.samples:
            fields = np.concatenate([source.frames(sample, slice(t, t + 1)) for t in part.times[:2]])
            if not np.nanmax(fields, initial=-np.inf) > np.nanmin(fields, initial=np.inf):
                continue
            other, where = seen.setdefault(hashlib.sha256((fields + 0).tobytes()).digest(), (sample, name))
            if where != name:
                raise InputError(
                    f"data {source.path}: trajectory {sample} of {name} begins as trajectory {other} of {where} does;"
                    " expected each trajectory once, so that none is both learned and scored"
                )
