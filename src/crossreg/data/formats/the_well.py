"""The layout of The Well (Ohana et al. 2024): HDF5 files with fields by the order of their tensors.

t0_fields, t1_fields and t2_fields hold scalars, vectors and matrices, with axes (b, t, *space) and then those of their
components. `sample_varying`, `time_varying` and `dim_varying` say which of these axes a field has. A field that does
not vary in time is not part of the state: it is left out unless `field` names it, and is then repeated at every time
and sample. The folders train, valid and test are the splits.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crossreg.data.formats.axes import SPACE, Variable, check_numeric, check_there
from crossreg.data.formats.source import Opened, Segment
from crossreg.errors import InputError

_GROUPS = ("t0_fields", "t1_fields", "t2_fields")


def is_the_well(file: h5py.File) -> bool:
    """Return whether a file has this layout."""
    return "dimensions" in file and any(name in file for name in _GROUPS)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def open_the_well(path: Path, file: h5py.File, fields: tuple[str, ...]) -> Opened:
    """Open the trajectories of one file."""
    dimensions: Any = file["dimensions"]
    axes = [_text(name) for name in np.ravel(dimensions.attrs.get("spatial_dims", []))]
    if not 1 <= len(axes) <= 3:
        raise InputError(f"data {path}: dimensions has the spatial_dims {axes}; expected one to three names")
    there, constant = {}, []
    for order, group_name in enumerate(_GROUPS):
        group: Any = file.get(group_name, {})
        names = np.ravel(group.attrs["field_names"]) if group and "field_names" in group.attrs else list(group)
        for name in map(_text, names):
            there[name] = _variable(path, group, group_name, name, order, axes)
            if "t" not in there[name].axes:
                constant.append(name)
    check_there(fields, there, path, f"it has {', '.join(there)}")
    chosen = [there[name] for name in fields] or [v for name, v in there.items() if name not in constant]
    if not any("t" in variable.axes for variable in chosen):
        raise InputError(f"data {path}: none of {', '.join(fields or there)} varies in time")
    samples = {n for variable in there.values() if (n := variable.size("b")) is not None} or {1}
    count = int(file.attrs.get("n_trajectories", max(samples)))  # pyright: ignore[reportArgumentType]
    if samples != {count}:
        raise InputError(f"data {path}: promises {count} trajectories, but its fields have {sorted(samples)}")
    notes = list(_boundaries(file))
    if constant and not fields:
        notes.append(f"left out, since nothing of it changes in time: {', '.join(constant)}")
    name = _text(file.attrs.get("dataset_name", ""))
    return Opened(f"The Well{f' ({name})' if name else ''}", (Segment(count, tuple(chosen)),), tuple(notes))


def _variable(path: Path, group: Any, group_name: str, name: str, order: int, axes: list[str]) -> Variable:
    """Return a field with the axes that its attributes give it."""
    where = f"{path}: {group_name}/{name}"
    if name not in group:
        raise InputError(f"data {where}: is named in field_names, but missing")
    dataset = group[name]
    check_numeric(dataset.dtype, where)
    varies = [bool(v) for v in np.ravel(dataset.attrs.get("dim_varying", np.ones(len(axes), bool)))]
    before = "b" * bool(dataset.attrs.get("sample_varying", True)) + "t" * bool(dataset.attrs.get("time_varying", True))
    own = "".join(letter for letter, is_own in zip(SPACE, varies, strict=False) if is_own)
    letters = before + own + "c" * order
    components = list(itertools.product(range(len(axes)), repeat=order))
    # An axis along which nothing varies is left out, or has length 1; a matrix may have one axis of components.
    for space, last in itertools.product((own, SPACE[: len(axes)]), {order, min(order, 1)}):
        found = Variable(dataset, before + space + "c" * last, (), where)
        if len(found.axes) == len(dataset.shape) and all(found.size(a) == 1 for a in set(space) - set(own)):
            letters = found.axes
    if len(varies) != len(axes) or len(letters) != len(dataset.shape):
        raise InputError(
            f"data {where}: has shape {dataset.shape}, but its attributes give the axes {letters or 'none'}"
        )
    if order and math.prod(dataset.shape[len(letters.rstrip("c")) :]) != len(components):
        raise InputError(
            f"data {where}: has shape {dataset.shape}; expected {len(components)} components in {len(axes)}-D"
        )
    keep = range(len(components))
    if order == 2 and dataset.attrs.get("symmetric", False):
        keep = [i for i, (row, column) in enumerate(components) if row <= column]
    elif order == 2 and dataset.attrs.get("antisymmetric", False):
        keep = [i for i, (row, column) in enumerate(components) if row < column]
    names = tuple("_".join([name, *(axes[part] for part in components[i])]) for i in keep)
    return Variable(dataset, letters, names, where, keep=tuple(keep) if order == 2 else None)


def _boundaries(file: h5py.File) -> list[str]:
    """Return a note on boundaries that are not periodic."""
    group: Any = file.get("boundary_conditions", {})
    kinds = [_text(item.attrs.get("bc_type", "")).upper() for item in group.values()]
    others = sorted({kind for kind in kinds if kind and kind != "PERIODIC"})
    return [f"boundaries that are not periodic: {', '.join(others)}"] if others else []
