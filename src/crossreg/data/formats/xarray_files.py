"""NetCDF files and Zarr stores, by xarray: dimensions are recognised by name.

A dimension is time, sample or channel if its name says so; up to three others are space, in the order of the file.
`axes` names them instead. Nothing is read before it is needed.

Values that the file marks as missing are NaN. In two cases the formats' own rules hold rather than xarray's: a NetCDF
variable without a fill value has the default one of its type, which stands where nothing was written; and the fill
value 0 of a Zarr array of version 2 is Zarr's default unless an attribute says otherwise, so that zeros are values, not
gaps.
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crossreg.data.formats.axes import MASK, check_there, listed
from crossreg.data.formats.numpy_files import make_segment, times_of
from crossreg.data.formats.source import NETCDF, Opened, Wanted
from crossreg.data.formats.zarr_stores import check_store
from crossreg.errors import InputError
from crossreg.files.hdf5 import open_own

# NC_FILL_FLOAT and its kin, by type. Single bytes have none: any number may be a value.
_DEFAULT_FILLS = {
    "f4": 9.969209968386869e36, "f8": 9.969209968386869e36, "i2": -32767, "u2": 65535, "i4": -2147483647,
    "u4": 4294967295, "i8": -9223372036854775806, "u8": 18446744073709551614,
}  # fmt: skip


class Lazy:
    """A variable of a dataset that reads what it is indexed with."""

    def __init__(self, array: Any):
        self._array, self.shape, self.dtype = array, array.shape, array.dtype
        self.names = [str(name) for name in array.dims]

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.asarray(self._array[index].values)


def open_xarray(path: Path, wanted: Wanted) -> Opened:
    """Open the trajectories of one file or store."""
    try:
        import xarray
    except ImportError as error:
        raise InputError(f"data {path}: NetCDF and Zarr need the extra: pip install 'crossreg[xarray]'") from error
    is_netcdf = path.suffix.lower() in NETCDF
    if not is_netcdf:
        check_store(path)
    elif h5py.is_hdf5(path):
        open_own(path, f"data {path}").close()
    try:
        # Times are not decoded: only their order counts, and calendars need a further package.
        options: dict[str, Any] = {"decode_times": False, "mask_and_scale": False}
        if is_netcdf:
            stored = xarray.open_dataset(path, **options)
            _add_default_fills(stored)
            zeros = ()
        else:
            stored = xarray.open_dataset(path, engine="zarr", chunks=None, consolidated=False, **options)
            zeros = _drop_default_zeros(path, stored)
        _widen(stored)
        dataset = xarray.decode_cf(stored, decode_times=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"data {path}: not readable by xarray ({reason})") from error
    arrays = {str(name): array for name, array in dataset.data_vars.items() if str(name) != MASK}
    names, notes = _chosen(path, arrays, wanted.fields)
    notes += tuple(
        f"{name}: 0 is its array's fill value, Zarr's default, and taken for a value; an attribute _FillValue of 0"
        " would make it a gap"
        for name in names
        if name in zeros
    )
    chosen = {name: Lazy(arrays[name]) for name in names}
    mask = Lazy(dataset[MASK]) if MASK in dataset.data_vars else None
    segment = make_segment(path, chosen, wanted._replace(stored=None), mask, names=lambda array: array.names)
    notes += times_of(dataset.coords, segment.variables[0], chosen[names[0]].names)
    return Opened("NetCDF" if is_netcdf else "Zarr", (segment,), notes)


def _add_default_fills(dataset: Any) -> None:
    """Give variables of a NetCDF file that have no fill value the default one of their type."""
    for name, array in dataset.data_vars.items():
        default = _DEFAULT_FILLS.get(array.dtype.str[1:])
        if (
            default is not None
            and str(name) != MASK
            and not {"_FillValue", "missing_value", "_Unsigned"} & set(array.attrs)
        ):
            array.attrs["_FillValue"] = array.dtype.type(default)


def _widen(dataset: Any) -> None:
    """Scale integers of four bytes and more in float64: in float32, a fill value may equal other values."""
    for array in dataset.data_vars.values():
        if array.dtype.kind in "iu" and array.dtype.itemsize >= 4 and "scale_factor" in array.attrs:
            array.attrs["scale_factor"] = np.float64(array.attrs["scale_factor"])


def _drop_default_zeros(path: Path, dataset: Any) -> tuple[str, ...]:
    """Remove the fill value 0 where no attribute of a store's array names it, and return the names of these arrays.

    In a store of version 2, xarray's `_FillValue` is the fill value of the array; an attribute is somebody's choice.
    """
    import zarr

    zeros = [array for array in dataset.data_vars.values() if np.any(array.attrs.get("_FillValue", 1) == 0)]
    group = zarr.open_group(path, mode="r", use_consolidated=False) if zeros else {}
    dropped = [array for array in zeros if "_FillValue" not in group[str(array.name)].attrs]
    for array in dropped:
        del array.attrs["_FillValue"]
    return tuple(str(array.name) for array in dropped)


def _chosen(path: Path, arrays: dict[str, Any], fields: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Return the variables that `fields` names, or all that have the dimensions of the largest, and notes."""
    shapes = {name: array.shape for name, array in arrays.items()}
    if not arrays:
        raise InputError(f"data {path}: has no variable at its root; groups inside it are not read")
    check_there(fields, arrays, path, listed(shapes))
    if fields:
        return list(fields), ()
    largest = max(arrays.values(), key=lambda array: array.size)
    # Sorted: a store lists them in any order.
    names = sorted(name for name, array in arrays.items() if set(array.dims) == set(largest.dims))
    return names, (f"the fields are {', '.join(names)}",) if len(arrays) > 1 else ()
