"""NPY and NPZ files: (sample, time, channel, *space), or as --axes says.

Of an NPZ file with several arrays, --field names the ones to take, which stand side by side as channels. One called
`mask` is the observation mask.
"""

import zipfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.data.formats.axes import (
    MASK,
    SPACE,
    Variable,
    axes_of,
    channel_names,
    check_numeric,
    listed,
    mask_variable,
)
from crossreg.data.formats.source import Opened, Segment
from crossreg.errors import InputError
from crossreg.files.arrays import map_npy, open_npz

# What a file calls the axes of an array, or None.
NamesOf = Callable[[Any], Sequence[str] | None]


class Member:
    """An array of an NPZ file, read as a whole when it is first needed: a ZIP file has no other way."""

    def __init__(self, path: Path, name: str):
        self._path, self._name, self._values = path, name, None
        with open_npz(path) as archive:
            self.shape, self.dtype, _ = archive.header(name)

    def __getitem__(self, index: Any) -> np.ndarray:
        if self._values is None:
            with open_npz(self._path) as archive:
                self._values = archive.read(self._name)
        return self._values[index]


def open_numpy(path: Path, fields: tuple[str, ...], axes: str | None, stored: Sequence[int] | None = None) -> Opened:
    """The trajectories of one file; `stored` are channels and grid of the run that it is read for, if there is one."""
    arrays, mask = _arrays(path, f"--data {path}"), None
    if isinstance(arrays, dict):
        mask = arrays.get(MASK)
        chosen, notes = choose_fields(path, {k: v for k, v in arrays.items() if k != MASK}, fields, axes)
    else:
        if fields:
            raise InputError(f"--field {','.join(fields)}: {path} is a single array without a name")
        chosen, notes = {"field": arrays}, ()
        arrays = {}
    segment = make_segment(path, chosen, axes, mask, coordinates=coordinates_in(arrays), stored=stored)
    return Opened(path.suffix[1:].upper(), (segment,), notes)


def _arrays(path: Path, where: str) -> Any:
    """The array of an NPY file, not read into memory, or those of an NPZ file by their names."""
    if not zipfile.is_zipfile(path):
        return map_npy(path, where)
    with open_npz(path, where) as archive:
        return {name: Member(path, name) for name in archive.names}


def choose_fields(
    path: Path, arrays: dict[str, Any], fields: tuple[str, ...], axes: str | None, names: NamesOf = lambda array: None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arrays that were asked for, or the only one that fits; and what to say of the choice."""

    def fits(array: Any) -> bool:
        if axes is not None:
            return len(array.shape) == len(axes)
        return 4 <= len(array.shape) <= 6 or names(array) is not None

    shapes = {name: array.shape for name, array in arrays.items() if array.dtype.kind in "fiub"}
    if fields:
        unknown = [name for name in fields if name not in arrays]
        if unknown:
            raise InputError(f"--field {','.join(unknown)}: not in {path}; {listed(shapes)}")
        return {name: arrays[name] for name in fields}, ()
    fitting = [name for name in shapes if fits(arrays[name])]
    if len(fitting) == 1:
        return {fitting[0]: arrays[fitting[0]]}, (f"the field is {fitting[0]}",) if len(arrays) > 1 else ()
    if len(shapes) == 1:
        return {name: arrays[name] for name in shapes}, ()
    why = "several arrays fit" if fitting else f"none has the axes {axes or 'sample, time, channel, space'}"
    raise InputError(f"--data {path}: {why}; say --field NAME (or A,B), and --axes; {listed(shapes)}")


def coordinates_in(arrays: dict[str, Any]) -> set[str]:
    """Those of x, y and z for which a file has an array of coordinates: `x`, `grid/y`, `z-coordinate`."""
    plain = {name.rsplit("/", 1)[-1].lower() for name, array in arrays.items() if len(array.shape) == 1}
    return {letter for letter in SPACE if plain & {letter, f"{letter}-coordinate", f"{letter}_coordinate"}}


def make_segment(
    path: Path,
    arrays: dict[str, Any],
    axes: str | None,
    mask: Any,
    missing: Any = None,
    *,
    names: NamesOf = lambda array: None,
    coordinates: Collection[str] = (),
    stored: Sequence[int] | None = None,
) -> Segment:
    """Arrays of one file side by side as channels.

    `missing` and `names` give, of an array, the number that stands for a missing value and what the file calls its
    axes; `coordinates` are those of x, y and z that the file has coordinates for, `stored` the channels and the grid of
    the run that it is read for.
    """
    variables = []
    for name, array in arrays.items():
        where = str(path) if name == "field" else f"{path}: {name}"
        check_numeric(array.dtype, where)
        letters = axes_of(array.shape, axes, where, names=names(array), coordinates=coordinates, stored=stored)
        channels = dict(zip(letters, array.shape, strict=True)).get("c")
        gap = None if missing is None else missing(array)
        variables.append(Variable(array, letters, channel_names(name, channels), where, missing=gap))
    samples = {variable.size("b") or 1 for variable in variables}
    if len(samples) > 1:
        shapes = ", ".join(f"{v.where} {tuple(v.array.shape)}" for v in variables)
        raise InputError(f"--data {path}: its fields differ in shape: {shapes}")
    first = variables[0]
    space = sum(letter in SPACE for letter in first.axes)
    observed = None if mask is None else mask_variable(mask, first, space, f"{path}: {MASK}")
    return Segment(samples.pop(), tuple(variables), observed)
