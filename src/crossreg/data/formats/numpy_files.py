"""NPY and NPZ files, and arrays in memory: (trajectory, time, channel, *space), unless `axes` says otherwise.

Of an NPZ file with several arrays, `field` names those to take, which stand side by side as channels. An array called
`mask` is the observation mask.
"""

import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.data.formats.axes import (
    MASK,
    SPACE,
    Variable,
    axes_as_in,
    axes_of,
    channel_names,
    check_axes,
    check_numeric,
    check_there,
    listed,
    mask_variable,
    notes_on_times,
)
from crossreg.data.formats.source import Opened, Segment, Source, Wanted, make_source
from crossreg.errors import InputError
from crossreg.files.arrays import map_npy, open_npz

_SPLITS = ("train", "reg", "test")
# Returns the names that a file gives the axes of an array, or None.
NamesOf = Callable[[Any], Sequence[str] | None]


class Member:
    """An array of an NPZ file, read as a whole when it is first needed: a ZIP file allows nothing else."""

    def __init__(self, path: Path, name: str):
        self._path, self._name, self._values = path, name, None
        with open_npz(path) as archive:
            self.shape, self.dtype, _ = archive.header(name)

    def __getitem__(self, index: Any) -> np.ndarray:
        if self._values is None:
            with open_npz(self._path) as archive:
                self._values = archive.read(self._name)
        return self._values[index]


def open_numpy(path: Path, wanted: Wanted) -> Opened:
    """Open the trajectories of one file."""
    arrays, mask = _arrays(path, f"data {path}"), None
    if isinstance(arrays, dict):
        mask = arrays.get(MASK)
        chosen, notes = choose_fields(path, {k: v for k, v in arrays.items() if k != MASK}, wanted)
    else:
        if wanted.fields:
            raise InputError(f"field is {','.join(wanted.fields)}: {path} is a single array without a name")
        chosen, notes = {"field": arrays}, ()
        arrays = {}
    segment = make_segment(path, chosen, wanted, mask, coordinates=coordinates_in(arrays))
    notes += times_of(arrays, segment.variables[0])
    return Opened(path.suffix[1:].upper(), (segment,), notes)


def open_arrays(arrays: Any, axes: str | None = None) -> Source:
    """Return the trajectories of an array, or of a dictionary with an array each for train, reg and test.

    Args:
        arrays: NumPy or JAX arrays of shape (trajectory, time, channel, *space), or as `axes` says. They
            are not copied. What a masked array of NumPy masks is missing.
        axes: a letter for each axis.
    """
    are_splits = isinstance(arrays, Mapping)
    if are_splits and set(arrays) != set(_SPLITS):
        raise InputError(
            f"data: has arrays for {', '.join(map(str, arrays)) or 'nothing'}; expected train, reg and test"
        )
    if axes is not None:
        check_axes(axes)
    given = {name: arrays[name] for name in _SPLITS} if are_splits else {"array": arrays}
    given = {name: _with_gaps(array) for name, array in given.items()}
    opened = {
        name: [Opened("arrays", (make_segment(Path(name), {"field": array}, Wanted(axes=axes), None),))]
        for name, array in given.items()
    }
    size = sum(array.nbytes for array in given.values())
    return make_source(Path("arrays" if are_splits else "array"), opened, size, are_splits=are_splits)


def _with_gaps(array: Any) -> np.ndarray:
    """Return an array as it is, and a masked one with NaN where it is masked."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        check_numeric(array.dtype, "array")
        return np.ma.filled(array.astype(np.result_type(array.dtype, np.float32)), np.nan)
    return np.asarray(array)


def _arrays(path: Path, where: str) -> Any:
    """Return the array of an NPY file, mapped but not read, or the arrays of an NPZ file by their names."""
    if not zipfile.is_zipfile(path):
        return map_npy(path, where)
    with open_npz(path, where) as archive:
        return {name: Member(path, name) for name in archive.names}


def choose_fields(
    path: Path, arrays: dict[str, Any], wanted: Wanted, names: NamesOf = lambda array: None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arrays that `fields` names, or the only one that fits, and notes on the choice."""

    def fits(array: Any) -> bool:
        if wanted.axes is not None:
            return len(array.shape) == len(wanted.axes)
        return 4 <= len(array.shape) <= 6 or names(array) is not None

    shapes = {name: array.shape for name, array in arrays.items() if array.dtype.kind in "fiub"}
    if wanted.fields:
        check_there(wanted.fields, arrays, path, listed(shapes))
        return {name: arrays[name] for name in wanted.fields}, ()
    fitting = [name for name in shapes if fits(arrays[name])]
    if len(fitting) == 1:
        return {fitting[0]: arrays[fitting[0]]}, (f"the field is {fitting[0]}",) if len(arrays) > 1 else ()
    if len(shapes) == 1:
        return {name: arrays[name] for name in shapes}, ()
    why = "several arrays fit" if fitting else f"none has the axes {wanted.axes or 'trajectory, time, channel, space'}"
    raise InputError(f"data {path}: {why}; give `field=NAME` (or A,B), and `axes`; {listed(shapes)}")


def coordinates_in(arrays: dict[str, Any]) -> set[str]:
    """Return those of x, y and z for which a file has coordinates, as in `x`, `grid/y` or `z-coordinate`."""
    plain = {name.rsplit("/", 1)[-1].lower() for name, array in arrays.items() if len(array.shape) == 1}
    return {letter for letter in SPACE if plain & {letter, f"{letter}-coordinate", f"{letter}_coordinate"}}


def times_of(coordinates: Mapping[Any, Any], like: Variable, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return notes on the times of a field, given by the coordinate of their axis' name, or else by `time` or `t`."""
    place = like.axes.find("t")
    wanted = ("time", "t") if names is None else (names[place],)
    for name in wanted:
        times = coordinates.get(name)
        if place >= 0 and times is not None and times.shape == (like.size("t"),) and times.dtype.kind in "fiu":
            return notes_on_times(times[:])
    return ()


def make_segment(
    path: Path,
    arrays: dict[str, Any],
    wanted: Wanted,
    mask: Any,
    *,
    stored_as: Callable[[Any], dict[str, Any]] = lambda array: {},
    names: NamesOf = lambda array: None,
    coordinates: Collection[str] = (),
) -> Segment:
    """Return arrays of one file side by side as channels.

    Args:
        path: what errors call the file.
        arrays: the arrays by their names.
        wanted: the letters of the axes, where the user gave them or a stored run has them.
        mask: the observation mask, if any.
        stored_as: a function that returns how an array marks missing values and packs numbers.
        names: a function that returns the names of an array's axes.
        coordinates: those of x, y and z for which the file has coordinates.
    """
    made: dict[str, Variable] = {}
    widest = max(arrays, key=lambda name: len(arrays[name].shape))
    for name in dict.fromkeys((widest, *arrays)):
        array, where = arrays[name], str(path) if name == "field" else f"{path}: {name}"
        check_numeric(array.dtype, where)
        letters = axes_of(
            array.shape, wanted.axes, where, names=names(array), coordinates=coordinates, stored=wanted.stored
        )
        if made:
            letters = axes_as_in(made[widest], names(arrays[widest]), names(array)) or letters
        channels = dict(zip(letters, array.shape, strict=True)).get("c")
        made[name] = Variable(array, letters, channel_names(name, channels), where, **stored_as(array))
    variables = [made[name] for name in arrays]
    # A field without an axis of trajectories is the same in all of them.
    samples = {size for variable in variables if (size := variable.size("b")) is not None} or {1}
    if len(samples) > 1:
        shapes = ", ".join(f"{v.where} {tuple(v.array.shape)}" for v in variables)
        raise InputError(f"data {path}: its fields differ in shape: {shapes}")
    first = variables[0]
    space = sum(letter in SPACE for letter in first.axes)
    observed = None
    if mask is not None:
        named = axes_as_in(first, names(next(iter(arrays.values()))), names(mask))
        observed = mask_variable(mask, first, space, f"{path}: {MASK}", named)
    return Segment(samples.pop(), tuple(variables), observed)
