"""A warning of steps that are in two splits, as where trajectories are overlapping windows of one simulation."""

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from crossreg.data.files.split import Part
from crossreg.data.formats.source import Source

# Values of each field that are compared to find equal steps, before these are compared in full.
_LOOKED_AT = 24
# Steps with equal values at these points that are compared in full, until one pair is equal.
_COMPARED = 32


class _Steps(NamedTuple):
    """The steps of a split: a number that equal steps share, and the sample and time of each."""

    number: np.ndarray
    sample: np.ndarray
    time: np.ndarray


def overlap_warning(source: Source, parts: Mapping[str, Part]) -> str | None:
    """Return a warning that names splits with steps in common, or None.

    A step is a field and the next one. Equal fields alone do not count, since trajectories of different parameters may
    begin alike; nor do steps in which nothing changes, and uniform fields.
    """
    steps = {name: _steps(source, part) for name, part in parts.items() if part.samples}
    for one, other in combinations(steps, 2):
        _, first, second = np.intersect1d(steps[one].number, steps[other].number, return_indices=True)
        for place, twin in list(zip(first.tolist(), second.tolist(), strict=True))[:_COMPARED]:
            own, own_time = (int(values[place]) for values in steps[one][1:])
            sample, time = (int(values[twin]) for values in steps[other][1:])
            if _are_equal(_step(source, parts[one], own, own_time), _step(source, parts[other], sample, time)):
                count = int(np.isin(steps[other].number, steps[one].number).sum())
                total = len(parts[other].samples) * (len(parts[other].times) - 1)
                # Steps that change only between the points that were looked at are not compared.
                least = "at least " if len(steps[other].number) < total else ""
                return (
                    f"{least}{count:,} of the {total:,} steps of {other} are steps of {one} too: trajectory"
                    f" {sample} from time {time} is trajectory {own} from time {own_time}; scores of what was learned"
                    " are too good, so give each split its own simulations, in folders train, reg and test"
                )
    return None


def _steps(source: Source, part: Part) -> _Steps:
    """Return the steps of a split in which some of the values that are looked at change."""
    found = []
    weights = np.random.default_rng(0).integers(1, 2**63, (2, _LOOKED_AT), dtype=np.uint64)
    for sample in part.samples:
        fields = source.frames(sample, part.slice)
        flat = fields.reshape(len(fields), -1)
        places = np.linspace(0, flat.shape[1] - 1, _LOOKED_AT).round().astype(int)
        bits = (flat[:, places].astype(np.float32) + np.float32(0)).view(np.uint32).astype(np.uint64)  # −0 becomes 0
        before, after = (bits * weight for weight in weights)  # sums of uint64 wrap, as a hash may
        number = before[:-1].sum(axis=1) + after[1:].sum(axis=1)
        changes = np.flatnonzero((bits[1:] != bits[:-1]).any(axis=1))
        found.append((number[changes], np.full(len(changes), sample), np.asarray(part.times)[changes]))
    return _Steps(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _step(source: Source, part: Part, sample: int, time: int) -> Float[np.ndarray, "2 channel *space"]:
    return source.frames(sample, slice(time, time + part.times.step + 1, part.times.step))


def _are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    varies = np.nanmax(one[0], initial=-np.inf) > np.nanmin(one[0], initial=np.inf)
    return bool(varies) and np.array_equal(one, other, equal_nan=True)
