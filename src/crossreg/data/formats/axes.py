"""Axes as letters, b trajectory, t time, c channel, x y z space, and arrays read by them as (time, channel, *space)."""

import contextlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from crossreg.errors import InputError, warn

SPACE = "xyz"
# An array of this name in a file is the observation mask.
MASK = "mask"
# By the number of axes: trajectory, time, channel, space.
DEFAULT_AXES = {4: "btcx", 5: "btcxy", 6: "btcxyz"}
# A channel axis without a name is always plausible up to the first number, and never beyond the second.
_FEW_CHANNELS, _MOST_CHANNELS = 4, 16
# Times are evenly spaced if their steps differ by at most this share.
_EVENLY = 1e-2
_KNOWN = {
    "t": ("time", "t", "step", "valid_time", "lead_time"),
    "b": ("sample", "batch", "b", "trajectory", "trajectories", "member", "ensemble", "realization", "run", "case",
          "number", "simulation", "sim"),
    "c": ("channel", "c", "variable", "component", "feature", "band"),
}  # fmt: skip
_LETTER = {name: letter for letter, names in _KNOWN.items() for name in names}
_ALLOWED = "b trajectory, t time, c channel, x y z space, each at most once, with t and at least x"


def check_axes(axes: str) -> None:
    """Raise InputError if letters do not describe axes."""
    space = "".join(sorted(letter for letter in axes if letter in SPACE))
    known = set(axes) <= set("btc" + SPACE) and len(set(axes)) == len(axes)
    if not known or "t" not in axes or space not in ("x", "xy", "xyz"):
        raise InputError(f"axes is {axes}: expected one letter per axis: {_ALLOWED}")


def axes_of(
    shape: Sequence[int],
    axes: str | None,
    where: str,
    *,
    names: Sequence[str] | None = None,
    coordinates: Collection[str] = (),
    stored: Sequence[int] | None = None,
) -> str:
    """Return a letter for each axis of an array.

    Args:
        shape: the array's shape.
        axes: the user's letters, which win over everything else.
        where: the array's file and name, for errors.
        names: the file's names of the axes, where it has them.
        coordinates: those of x, y and z for which the file has coordinates.
        stored: shape (channel, *space) of a stored run's fields, if the file is read for one.

    Returns:
        The letters in `axes`; those that the file's names mean; or trajectory, time, channel and space, if the third
        axis is short enough for channels. For a stored run, the letters that give its grid, if any do.
    """
    ndim = len(shape)
    if axes is not None:
        check_axes(axes)
        if len(axes) != ndim:
            raise InputError(f"{where}: has {ndim} axes, but `axes='{axes}'` names {len(axes)}")
        return axes
    if stored is not None and (found := _as_stored(shape, names, stored)) is not None:
        return found
    if names is not None:
        return named_axes(names, where)
    if ndim not in DEFAULT_AXES:
        raise InputError(
            f"{where}: has {ndim} axes; expected trajectory, time, channel and one to three of space;"
            f" name them with `axes`, as in `axes='btx'` ({_ALLOWED})"
        )
    check_channels(shape, DEFAULT_AXES[ndim], where, coordinates=coordinates)
    return DEFAULT_AXES[ndim]


def _as_stored(shape: Sequence[int], names: Sequence[str] | None, stored: Sequence[int]) -> str | None:
    """Return the letters, by the file's names or by default, with which an array has the grid of a stored run."""
    candidates = [DEFAULT_AXES[len(shape)]] if len(shape) in DEFAULT_AXES else []
    if names is not None:
        with contextlib.suppress(InputError):  # earlier versions did not read names
            candidates.insert(0, named_axes(names, ""))
    return next((axes for axes in candidates if gives(axes, shape, stored)), None)


def gives(axes: str, shape: Sequence[int], stored: Sequence[int]) -> bool:
    """Return whether an array has the grid of fields (channel, *space), and no more channels than they."""
    sizes = dict(zip(axes, shape, strict=True))
    space = [sizes[letter] for letter in SPACE if letter in sizes]
    return space == list(stored[1:]) and sizes.get("c", 1) <= stored[0]


def check_channels(shape: Sequence[int], axes: str, where: str, *, coordinates: Collection[str] = ()) -> None:
    """Raise InputError if a layout that was only guessed may take an axis of space for the channels.

    More than 16 channels are as likely to be points, and so are more than 4 if the shortest axis of space has fewer
    than twice as many points. A file with coordinates along more axes of space than the layout has contradicts it too.
    Users can confirm the layout with `axes`.
    """
    sizes = dict(zip(axes, shape, strict=True))
    space = [size for letter, size in sizes.items() if letter in SPACE]
    if _can_be_channels(sizes["c"], space) and len(coordinates) <= len(space):
        return
    inner = [size for letter, size in sizes.items() if letter not in "bt"]
    before = axes[: len(axes) - len(inner)]
    has_channels = len(inner) > 3 or (len(coordinates) < len(inner) and _can_be_channels(inner[-1], inner[:-1]))
    meant = before + (SPACE[: len(inner) - 1] + "c" if has_channels else SPACE[: len(inner)])
    points = " × ".join(str(size) for letter, size in zip(meant, shape, strict=True) if letter in SPACE)
    raise InputError(
        f"data {where}: has shape {tuple(shape)}, which would be {sizes['c']} channels on"
        f" {' × '.join(map(str, space))} points; write `axes='{meant}'` if the grid has {points} points, or"
        f" `axes='{axes}'` if they are channels ({_ALLOWED})"
    )


def _can_be_channels(count: int, space: Sequence[int]) -> bool:
    return count <= _FEW_CHANNELS or (count <= _MOST_CHANNELS and 2 * count <= min(space))


def named_axes(names: Sequence[str], where: str) -> str:
    """Return a letter for each axis by the names in a file.

    Time, sample and channel are recognised by name, singular or plural. The others are space: x, y and z in any order,
    or other names in the order of the file.
    """
    plain = [name.lower() for name in names]
    letters = [_LETTER.get(name) or _LETTER.get(name.removesuffix("s")) or "" for name in plain]
    others = [name for name, letter in zip(plain, letters, strict=True) if not letter]
    in_order = {name: name for name in others} if set(others) <= set(SPACE) else dict(zip(others, SPACE, strict=False))
    said = "".join(letter or in_order.get(name, "?") for name, letter in zip(plain, letters, strict=True))
    space = "".join(sorted(letter for letter in said if letter in SPACE))
    before, _, after = said.partition("t")
    # An unknown name that time separates from the rest of space is more likely a kind of trajectory.
    is_divided = bool(set(before) & set(SPACE) and set(after) & set(SPACE)) and not set(others) <= set(SPACE)
    if "?" in said or len(set(said)) < len(said) or "t" not in said or space not in ("x", "xy", "xyz") or is_divided:
        raise InputError(
            f"data {where}: has the dimensions {', '.join(names)}; expected time, one to three of"
            " space and, optionally, trajectory and channel; name them with `axes`, as in `axes='btx'`"
        )
    return said


def axes_as_in(like: "Variable", like_names: Sequence[str] | None, names: Sequence[str] | None) -> str | None:
    """Return the letters that the names of an array's axes have in another array of the file.

    Without this, arrays of which one has the axes lat, lon and the other lon, lat would stand side by side transposed.

    Args:
        like: the other array.
        like_names: the names of its axes, where the file has them.
        names: the names of the array's axes.

    Returns:
        The letters, or None where a name is not among those of the other array.
    """
    letter = dict(zip(like_names or (), like.axes, strict=False))
    if not names or not set(names) <= set(letter) or len(set(names)) < len(names) or len(letter) < len(like.axes):
        return None
    return "".join(letter[name] for name in names)


def check_numeric(dtype: np.dtype, where: str) -> None:
    """Raise InputError if an array does not hold real numbers."""
    if dtype.kind not in "fiub":
        raise InputError(f"{where}: has type {dtype}; expected real numbers")


def check_there(fields: Sequence[str], there: Collection[str], path: Path, has: str) -> None:
    """Raise InputError if a file has no array of a name that the user gave; `has` lists those that it has."""
    if unknown := [name for name in fields if name not in there]:
        raise InputError(f"field is {','.join(unknown)}: not in {path}; {has}")


@dataclass(frozen=True, eq=False)
class Variable:
    """An array in a file, read when it is indexed, with a letter for each axis.

    Along an axis whose letter is missing, nothing varies. c may occur twice (components of a tensor). `keep` are the
    channels in use, all by default. `missing` are the numbers by which the array marks missing values. Where numbers
    are packed, they are multiplied by `scale`, and `offset` is added.
    """

    array: Any
    axes: str
    names: tuple[str, ...]
    where: str
    keep: tuple[int, ...] | None = None
    missing: tuple[float, ...] = ()
    scale: float = 1.0
    offset: float = 0.0

    def size(self, letter: str) -> int | None:
        """Return the length of an axis, or None where nothing varies along it."""
        sizes = [n for n, own in zip(self.array.shape, self.axes, strict=True) if own == letter]
        return math.prod(sizes) if sizes else None

    def read(self, sample: int, times: slice, count: int, space: tuple[int, ...]) -> Float[np.ndarray, "t c *space"]:
        """Read one sample at some times, `count` in number, as float32; missing values are NaN."""
        # An axis of length 1 stands for all samples, times or points.
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
        gaps = [values == number for number in self.missing]
        if (self.scale, self.offset) != (1, 0):
            values = values * np.float64(self.scale) + self.offset
        with np.errstate(over="ignore"):
            short = values.astype(np.float32)
        short = np.where(np.any(gaps, axis=0), np.float32(np.nan), short) if gaps else short
        beyond = np.isinf(short)
        if beyond.any() and np.isfinite(values[beyond]).any():
            warn(
                f"data {self.where}: has values beyond {np.finfo(np.float32).max:.2g}, which float32 does not hold:"
                " they count as missing; if they were measured, store the field in another unit"
            )
        return np.broadcast_to(short, (count, np.shape(short)[1], *space))


def mask_variable(array: Any, like: Variable, space: int, where: str, named: str | None = None) -> Variable:
    """Return a mask in a file, for fields with the axes of `like`: of their shape, with or without the channels.

    Leading axes may be left out, and axes of length 1 stand for all: a mask over space alone holds at every time. Where
    the names in the file give the mask's axes, these are `named`, in any order.
    """
    check_numeric(array.dtype, where)
    without = like.axes.replace("c", "")
    ndim = len(array.shape)
    axes = named or (like.axes if ndim == len(like.axes) else without[-ndim:] if ndim else "")
    mask = Variable(array, axes, (), where)
    sizes_fit = all(mask.size(a) in (None, 1, like.size(a)) for a in set(like.axes))
    if not sizes_fit or not (named or space <= ndim <= len(like.axes)):
        shape = tuple(n for n, letter in zip(like.array.shape, like.axes, strict=True) if letter != "c")
        raise InputError(
            f"{where}: has shape {tuple(array.shape)}; expected {shape}, that of the fields without"
            " channels, or its last axes"
        )
    return mask


def read_mask(
    mask: Variable, sample: int, times: slice, count: int, space: tuple[int, ...]
) -> Bool[np.ndarray, "time *space"]:
    """Read where one sample is observed; of masks for each channel, a point is observed where all observe it."""
    values = mask.read(sample, times, count, space)
    if not np.isin(values, (0, 1)).all():
        raise InputError(f"{mask.where}: expected only 0 (hidden) and 1 (observed)")
    return np.asarray(values.astype(bool).all(axis=1))


def stored_as(dataset: Any) -> dict[str, Any]:
    """Return what the attributes of an HDF5 dataset say of its numbers, as fields of `Variable`.

    `_FillValue` and `missing_value` mark missing values, and numbers are packed by `scale_factor` and `add_offset`.
    """

    def numbers(name: str) -> list[float]:
        return [float(number) for number in np.ravel(np.asarray(dataset.attrs.get(name, ())))]

    missing = dict.fromkeys(numbers("_FillValue") + numbers("missing_value"))
    scale, offset = ([*numbers(name), default][0] for name, default in (("scale_factor", 1.0), ("add_offset", 0.0)))
    return {"missing": tuple(missing), "scale": scale, "offset": offset}


def notes_on_times(times: Any) -> tuple[str, ...]:
    """Return a note if the times of a file, one for each of its fields, run backwards or are not evenly spaced."""
    steps = np.diff(np.asarray(times, np.float64))
    if not steps.size or not np.isfinite(steps).all():
        return ()
    if np.ptp(steps) > _EVENLY * abs(steps.mean()):
        return ("its times are not evenly spaced: the network knows of one step size",)
    return ("its times run backwards: what is learned is the step to the field before",) if steps[0] < 0 else ()


def channel_names(name: str, channels: int | None) -> tuple[str, ...]:
    """Return the names of a field's channels."""
    return (name,) if channels in (None, 1) else tuple(f"{name}[{i}]" for i in range(channels))


def listed(shapes: dict[str, Sequence[int]]) -> str:
    """Return arrays and their shapes as text, for errors."""
    if not shapes:
        return "it has no array of numbers"
    shown = [f"{name} {tuple(shape)}" for name, shape in list(shapes.items())[:12]]
    return "it has " + ", ".join(shown) + (", …" if len(shapes) > 12 else "")
