"""The layouts of files of PDEBench (Takamoto et al. 2022).

scalar, 1-D          tensor (b, t, x), x-coordinate, t-coordinate with one time more than the fields
compressible flow    density, pressure, Vx, Vy, Vz, each (b, t, *space)
one group per seed   0000/data (t, *space, c), 0000/grid/x, …: diffusion-sorption, shallow water, diffusion-reaction
incompressible flow  velocity (b, t, x, y, 2), particles (b, t, x, y, 1), t (b, t), and a force that does not change
"""

from pathlib import Path
from typing import Any

import h5py

from crossreg.data.formats.axes import (
    MASK,
    SPACE,
    Variable,
    channel_names,
    check_channels,
    check_numeric,
    check_there,
    gives,
    listed,
    mask_variable,
    notes_on_times,
    stored_as,
)
from crossreg.data.formats.source import Opened, Segment, Wanted
from crossreg.errors import InputError

_FLOW = ("density", "pressure", "Vx", "Vy", "Vz")
_INCOMPRESSIBLE = ("velocity", "particles")


def _seeds(file: h5py.File) -> list[str]:
    """Return the groups of a file that has one for each seed."""
    return [name for name, item in file.items() if name.isdigit() and isinstance(item, h5py.Group) and "data" in item]


def is_pdebench(file: h5py.File) -> bool:
    """Return whether a file has one of these layouts."""
    has_grid = any(str(name).endswith("-coordinate") for name in file)
    flow = {"density", "pressure", "Vx"} <= set(file)
    return ("tensor" in file and has_grid) or flow or {*_INCOMPRESSIBLE, "t"} <= set(file) or bool(_seeds(file))


def open_pdebench(path: Path, file: h5py.File, wanted: Wanted) -> Opened:
    """Open the trajectories of one file."""
    if seeds := _seeds(file):
        return _open_seeds(path, file, seeds, wanted)
    times = file.get("t-coordinate")
    if "tensor" in file:
        names, trailing = ("tensor",), ""
    elif "density" in file:
        names, trailing = tuple(name for name in _FLOW if name in file), ""
    else:
        names, trailing = _INCOMPRESSIBLE, "c"
        times = file["t"]
    variables = []
    shapes = {name: item.shape for name, item in file.items() if isinstance(item, h5py.Dataset)}
    check_there(wanted.fields, file, path, listed(shapes))
    for name in wanted.fields or names:
        variables.append(_variable(f"{path}: {name}", name, file[name], "bt", trailing, wanted))
    samples = {variable.size("b") for variable in variables}
    if len(samples) > 1:
        raise InputError(f"data {path}: its fields differ in their number of trajectories")
    first = variables[0]
    notes = _notes_on_times(times, first.array.shape[1])
    mask: Any = file.get(MASK)
    if mask is not None:  # PDEBench has none, but a file with its layout may
        mask = mask_variable(mask, first, sum(letter in SPACE for letter in first.axes), f"{path}: {MASK}")
    return Opened("PDEBench", (Segment(first.array.shape[0], tuple(variables), mask),), notes)


def _variable(where: str, name: str, dataset: Any, before: str, trailing: str, wanted: Wanted) -> Variable:
    """Return an array with the axes `before`, those of space, and `trailing`."""
    check_numeric(dataset.dtype, where)
    space = len(dataset.shape) - len(before) - len(trailing)
    if not 1 <= space <= 3:
        expected = ", ".join([*before, "*space", *trailing])
        raise InputError(f"data {where}: has shape {dataset.shape}; expected ({expected}); give `axes`")
    axes = before + SPACE[:space] + trailing
    if trailing and not (wanted.stored and gives(axes, dataset.shape, wanted.stored)):
        check_channels(dataset.shape, axes, where)
    names = channel_names(name, dataset.shape[-1] if trailing else 1)
    return Variable(dataset, axes, names, where, **stored_as(dataset))


def _open_seeds(path: Path, file: h5py.File, seeds: list[str], wanted: Wanted) -> Opened:
    """Open the trajectories of a file with one group for each."""
    if len(wanted.fields) > 1:
        raise InputError(f"field is {','.join(wanted.fields)}: the groups of {path} have one array each")
    name = wanted.fields[0] if wanted.fields else "data"
    segments = []
    for seed in seeds:
        group: Any = file[seed]
        dataset = group.get(name)
        where = f"{path}: {seed}/{name}"
        if not isinstance(dataset, h5py.Dataset):
            raise InputError(f"data {where}: no such array; there are {', '.join(group)}")
        segments.append(Segment(1, (_variable(where, name, dataset, "t", "c", wanted),)))
    notes = _notes_on_times(file.get(f"{seeds[0]}/grid/t"), segments[0].variables[0].array.shape[0])
    return Opened("PDEBench, one group per seed", tuple(segments), notes)


def _notes_on_times(times: Any, count: int) -> tuple[str, ...]:
    """Return notes on the times, of which there may be one more than fields."""
    if not isinstance(times, h5py.Dataset) or times.ndim not in (1, 2):
        return ()
    return notes_on_times(times[:count] if times.ndim == 1 else times[0, :count])
