"""Axes by letters: b sample, t time, c channel, x y z space. An array in a file is read as (time, channel, *space)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from crossreg.errors import InputError

SPACE = "xyz"
# An array of this name in a file is the observation mask.
MASK = "mask"
# By the number of axes: sample, time, channel, space.
DEFAULT_AXES = {4: "btcx", 5: "btcxy", 6: "btcxyz"}
_ALLOWED = "b sample, t time, c channel, x y z space, each at most once, with t and at least x"


def check_axes(axes: str) -> None:
    """Refuses letters that say nothing of axes."""
    space = "".join(sorted(letter for letter in axes if letter in SPACE))
    known = set(axes) <= set("btc" + SPACE) and len(set(axes)) == len(axes)
    if not known or "t" not in axes or space not in ("x", "xy", "xyz"):
        raise InputError(f"--axes {axes}: expected one letter per axis: {_ALLOWED}")


def axes_of(ndim: int, axes: str | None, where: str) -> str:
    """The letters of an array with so many axes: those that were asked for, or the default ones."""
    if axes is None:
        if ndim not in DEFAULT_AXES:
            raise InputError(
                f"{where}: has {ndim} axes, not sample, time, channel and one to three of space;"
                f" name them with --axes, as in --axes btx ({_ALLOWED})"
            )
        return DEFAULT_AXES[ndim]
    check_axes(axes)
    if len(axes) != ndim:
        raise InputError(f"{where}: has {ndim} axes, --axes {axes} names {len(axes)}")
    return axes


def check_numeric(dtype: np.dtype, where: str) -> None:
    """Refuses an array that does not hold real numbers."""
    if dtype.kind not in "fiub":
        raise InputError(f"{where}: has type {dtype}; expected real numbers")


@dataclass(frozen=True, eq=False)
class Variable:
    """An array in a file, read when it is indexed, with a letter for each axis.

    A letter that is missing is an axis along which nothing varies. c may stand there twice (a tensor's components);
    `keep` are the channels in use, all by default. `missing` is a number that stands for a value that is not there.
    """

    array: Any
    axes: str
    names: tuple[str, ...]
    where: str
    keep: tuple[int, ...] | None = None
    missing: float | None = None

    def size(self, letter: str) -> int | None:
        """How long an axis is, or None where nothing varies along it."""
        sizes = [n for n, own in zip(self.array.shape, self.axes, strict=True) if own == letter]
        return math.prod(sizes) if sizes else None

    def read(self, sample: int, times: slice, count: int, space: tuple[int, ...]) -> Float[np.ndarray, "t c *space"]:
        """The values of one sample at some times, `count` in number, as float32; what is missing is NaN."""
        # The only sample, time or point of an axis of length 1 is that of all.
        index = {"b": 0 if self.size("b") == 1 else sample, "t": slice(None) if self.size("t") == 1 else times}
        values = np.asarray(self.array[tuple(index.get(letter, slice(None)) for letter in self.axes)])
        letters = self.axes.replace("b", "")
        order = [i for wanted in "tc" + SPACE for i, letter in enumerate(letters) if letter == wanted]
        values = np.transpose(values, order)
        shape = [len(values) if "t" in letters else 1, -1]
        shape += [self.size(letter) or 1 for letter in SPACE[: len(space)]]
        values = np.reshape(values, shape)
        if self.keep is not None:
            values = np.take(values, self.keep, axis=1)
        gaps = None if self.missing is None else values == self.missing
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
        values = values if gaps is None else np.where(gaps, np.float32(np.nan), values)
        return np.broadcast_to(values, (count, np.shape(values)[1], *space))


def mask_variable(array: Any, like: Variable, space: int, where: str) -> Variable:
    """A mask in a file, for fields with the axes of `like`: of their shape, or of it without the channels.

    Leading axes may be left out, and axes of length 1 stand for all: a mask over space alone is that of every time.
    """
    check_numeric(array.dtype, where)
    without = like.axes.replace("c", "")
    ndim = len(array.shape)
    axes = like.axes if ndim == len(like.axes) else without[-ndim:] if ndim else ""
    mask = Variable(array, axes, (), where)
    fits = space <= ndim <= len(like.axes) and all(mask.size(a) in (None, 1, like.size(a)) for a in set(like.axes))
    if not fits:
        shape = tuple(n for n, letter in zip(like.array.shape, like.axes, strict=True) if letter != "c")
        raise InputError(
            f"{where}: has shape {tuple(array.shape)}; expected {shape}, the fields' without their channels,"
            " or its last axes"
        )
    return mask


def read_mask(
    mask: Variable, sample: int, times: slice, count: int, space: tuple[int, ...]
) -> Bool[np.ndarray, "time *space"]:
    """Where the fields of one sample are observed; a mask for each channel observes a point where all do."""
    values = mask.read(sample, times, count, space)
    if not np.isin(values, (0, 1)).all():
        raise InputError(f"{mask.where}: expected only 0 (hidden) and 1 (observed)")
    return np.asarray(values.astype(bool).all(axis=1))


def missing_value(dataset: Any) -> float | None:
    """The number that stands for a missing value, where an HDF5 dataset names one."""
    for name in ("_FillValue", "missing_value"):
        if name in dataset.attrs:
            return float(np.ravel(np.asarray(dataset.attrs[name]))[0])
    return None


def channel_names(name: str, channels: int | None) -> tuple[str, ...]:
    """The names of a field's channels."""
    return (name,) if channels in (None, 1) else tuple(f"{name}[{i}]" for i in range(channels))


def listed(shapes: dict[str, Sequence[int]]) -> str:
    """Arrays with their shapes, in words."""
    if not shapes:
        return "it has no array of numbers"
    shown = [f"{name} {tuple(shape)}" for name, shape in list(shapes.items())[:12]]
    return "it has " + ", ".join(shown) + (", …" if len(shapes) > 12 else "")
