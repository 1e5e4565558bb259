"""Checks of trajectories and masks before anything learns from them.

Each is one or two passes over the data, without a copy if they are float32 already.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from crossreg.data.split import Split
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError

_AXES = "(trajectory, time, channel, x), with y and z where there are more dimensions"
# A spread below the rounding of float32 is no variation.
_LEAST_SPREAD = 4 * np.finfo(np.float32).eps
# Values of each field that are compared to find equal fields, before these are compared in full.
_LOOKED_AT = 24


def check_trajectories(trajectories: Trajectories, split: Split, where: str = "trajectories") -> Trajectories:
    """Return the trajectories in float32.

    Args:
        trajectories: two sets of fields on one grid.
        split: the rows of each split.
        where: what errors call the trajectories.

    Raises:
        InputError: if shapes do not agree, a value is not finite, a channel does not vary, or a field that starts a
            trajectory is in two splits.
    """
    given = {"train": np.asarray(trajectories.train), "test": np.asarray(trajectories.test)}
    for name, array in given.items():
        if not 4 <= array.ndim <= 6:
            raise InputError(f"{where}: {name} has shape {array.shape}; expected {_AXES}")
        if 0 in array.shape or array.shape[1] < 2:
            raise InputError(f"{where}: {name} has shape {array.shape}; expected at least one trajectory and two times")
    if given["train"].shape[2:] != given["test"].shape[2:]:
        shapes = " and ".join(f"{array.shape[2:]} in {name}" for name, array in given.items())
        raise InputError(f"{where}: fields have shape {shapes}; expected one (channel, *space) for both")
    train, test = (finite(array, f"{where}: {name}", _place) for name, array in given.items())
    check_variation(train, f"{where}: train")
    rows = {"train": (train, split.train), "reg": (train, split.reg), "test": (test, split.test)}
    check_apart({name: array[own.start : own.stop] for name, (array, own) in rows.items()}, where)
    return trajectories._replace(train=train, test=test)


def _place(index: tuple[int, ...]) -> str:
    sample, time, channel, *point = index
    return f"trajectory {sample}, time {time}, channel {channel}, point {tuple(point)}"


def finite(
    array: Any, where: str, place=lambda index: f"index {index}", *, gaps: bool = False
) -> Float[np.ndarray, "..."]:
    """Return an array in float32.

    Args:
        array: real numbers.
        where: what errors call the array.
        place: a function that describes an index in errors.
        gaps: whether NaN is allowed, as the mark of a value that was not measured.

    Raises:
        InputError: if a number is not finite.
    """
    array = np.asarray(array)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{where} has type {array.dtype}; expected real numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        array = array.astype(np.float32, copy=False)
        # A float64 sum of float32 does not overflow: it is finite if all values are. Good data need no mask.
        if math.isfinite(np.sum(array, dtype=np.float64)):
            return array
        wrong = np.isinf(array) if gaps else ~np.isfinite(array)
        if not wrong.any():
            return array
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    others = f" and in {np.sum(wrong) - 1} other places" if np.sum(wrong) > 1 else ""
    raise InputError(f"{where} is not finite, as float32, at {place(first)}{others}; expected finite numbers")


def check_variation(fields: Float[np.ndarray, "sample time channel *space"], where: str) -> None:
    """Raise InputError if a channel is constant: there is nothing to learn from it, and it has no scale."""
    others = (0, 1, *range(3, fields.ndim))
    low, high = fields.min(axis=others), fields.max(axis=others)
    still = high.astype(np.float64) - low <= _LEAST_SPREAD * np.maximum(np.abs(low), np.abs(high))
    if still.all():
        raise InputError(f"{where} has no variance, it is {_listed(low)} everywhere; expected fields that vary")
    if still.any():
        channel = int(np.argmax(still))
        raise InputError(f"{where} has no variance in channel {channel}, {low[channel]:g} everywhere; leave it out")


def _listed(values: np.ndarray) -> str:
    return ", ".join(f"{value:g}" for value in values[:4]) + (", …" if len(values) > 4 else "")


def check_apart(splits: Mapping[str, Float[np.ndarray, "sample time channel *space"]], where: str) -> None:
    """Raise InputError if a trajectory starts with a field of another split: what is scored must not be learned.

    This finds repeated trajectories, also longer or shorter ones, and one that continues another. Uniform fields, as of
    a flow that has come to rest, do not count.
    """
    looked = {name: _looks(fields) for name, fields in splits.items()}
    for name, starts in looked.items():
        known = {look: sample for sample, look in reversed([*enumerate(starts[:, 0].tolist())])}
        for other, fields in looked.items():
            if other == name:
                continue
            for place in np.flatnonzero(np.isin(fields.ravel(), starts[:, 0])).tolist():
                sample, time = divmod(place, fields.shape[1])
                own = known[fields[sample, time].item()]
                one, two = splits[name][own, 0], splits[other][sample, time]
                if np.array_equal(one, two) and np.ptp(one) > 0:
                    raise InputError(
                        f"{where}: trajectory {own} of {name} starts with the field that trajectory {sample} of {other}"
                        f" has at time {time}; expected splits without a field in common"
                    )


def _looks(fields: Float[np.ndarray, "sample time channel *space"]) -> np.ndarray:
    """Return some values of every field as one opaque number, (sample, time)."""
    flat = fields.reshape(*fields.shape[:2], math.prod(fields.shape[2:]))  # of an empty split, −1 would be ambiguous
    places = np.unique(np.linspace(0, flat.shape[2] - 1, _LOOKED_AT).round().astype(int))
    some = np.ascontiguousarray(flat[:, :, places]) + np.float32(0)  # −0 becomes 0
    return some.view(np.dtype((np.void, some.itemsize * len(places))))[..., 0]


def check_mask(mask: Any, space: tuple[int, ...], where: str, whose: str = "the fields") -> Bool[np.ndarray, "*space"]:
    """Return a mask as booleans.

    Args:
        mask: 1 where a point is observed, 0 where it is hidden.
        space: the shape that it must have.
        where: what errors call the mask.
        whose: what errors call the fields.

    Raises:
        InputError: if the mask has another shape or other values, or hides every point.
    """
    mask = np.asarray(mask)
    if mask.shape != space:
        raise InputError(f"{where}: has shape {mask.shape}; {whose} have {space}")
    if mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
        raise InputError(f"{where}: expected only 0 (hidden) and 1 (observed)")
    if not mask.any():
        raise InputError(f"{where}: hides every point; expected at least one 1 (observed)")
    return mask.astype(bool)
