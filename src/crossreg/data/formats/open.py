"""From a path to a source: the files of a path, and the module that reads each.

`_open_file` chooses that module: a new format is added there.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crossreg.data.formats.axes import check_axes
from crossreg.data.formats.source import (
    HDF5,
    NETCDF,
    NUMPY,
    Opened,
    Source,
    Stamps,
    Wanted,
    evenly_spaced,
    make_source,
    stamps_at,
)
from crossreg.errors import InputError
from crossreg.files.arrays import said_in_one_line

_SPLIT_FOLDERS = {"train": "train", "valid": "reg", "val": "reg", "reg": "reg", "test": "test"}
# The files of a Zarr array, besides some of its chunks, by which a change is noticed.
_ZARR_METADATA = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")
_STAMPED_CHUNKS = 256
# Files that a process has open besides those of its data.
_OTHER_FILES = 256


def open_source(
    path: Path, *, field: str | None = None, axes: str | None = None, stored: Sequence[int] | None = None
) -> Source:
    """Open the trajectories in a file, a Zarr store, or a folder of files, with or without folders for the splits.

    `field` is the array to take, or several, as in "u,v"; `axes` has a letter for each axis, which follow by default
    from the format, names in the file, or the shape. `stored` is the shape (channel, *space) of a stored run's fields.
    """
    wanted = _wanted(field, axes, stored)
    if not path.exists():
        raise InputError(f"data {path}: no such file or folder")
    return _open_groups(path, *_files_of(path), stamps_of(path), wanted)


def open_files(paths: Sequence[Path], *, field: str | None = None, axes: str | None = None) -> Source:
    """Open the trajectories of several files, in this order, as `open_source` opens those of a folder."""
    wanted = _wanted(field, axes)
    if missing := [path for path in paths if not path.exists()]:
        raise InputError(f"data {missing[0]}: no such file")
    stamps = stamps_at(one for path in paths for one in _stamped(path))
    return _open_groups(paths[0].parent, {"all": list(paths)}, False, stamps, wanted)


def _wanted(field: str | None, axes: str | None, stored: Sequence[int] | None = None) -> Wanted:
    if axes is not None:
        check_axes(axes)
    return Wanted(tuple(name.strip() for name in field.split(",")) if field else (), axes, stored)


def _open_groups(
    path: Path, groups: Mapping[str, Sequence[Path]], are_splits: bool, stamps: Stamps, wanted: Wanted
) -> Source:
    _allow_open_files(sum(map(len, groups.values())))
    opened = {name: [_open_file(file, wanted) for file in files] for name, files in groups.items()}
    size = sum(_stored_bytes(file) for files in groups.values() for file in files)
    return make_source(path, opened, size, are_splits=are_splits, stamps=stamps)


def _stored_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def stamps_of(path: Path) -> Stamps:
    """Return a stamp of each file of a path: its name, and what changes when it is written to or replaced.

    Stamps are compared often during a training, so that they must be few. A Zarr store may have a file for every chunk:
    of each of its arrays, the metadata count, and at most 256 of the chunks and of their folders, evenly spaced. Zarr
    replaces chunks, which changes their folder's time, so that most changes of large stores are noticed too.
    """
    groups, _ = _files_of(path)
    return stamps_at(one for files in groups.values() for file in files for one in _stamped(file))


def _stamped(path: Path) -> Iterator[Path]:
    """Yield a file itself; of a store, the files and folders that are stamped, and no others in its folder."""
    if not path.is_dir():
        yield path
        return
    yield from (path / name for name in _ZARR_METADATA)
    for array in sorted(p for p in path.iterdir() if any((p / name).is_file() for name in (".zarray", "zarr.json"))):
        yield from (array / name for name in _ZARR_METADATA)
        inside = sorted(p for p in array.rglob("*") if p.name not in _ZARR_METADATA)
        folders = {array} | {p.parent for p in inside}
        for entries in (sorted(folders), [p for p in inside if p not in folders]):
            yield from (entries[i] for i in evenly_spaced(len(entries), _STAMPED_CHUNKS))


def _is_zarr(path: Path) -> bool:
    return path.is_dir() and (path.suffix == ".zarr" or any((path / n).exists() for n in ("zarr.json", ".zgroup")))


def _files_of(path: Path) -> tuple[dict[str, list[Path]], bool]:
    """Return the files of each split, or all files under one name, and whether they are divided into splits."""
    if not path.is_dir() or _is_zarr(path):
        return {"all": [path]}, False
    known = (*NUMPY, *HDF5, *NETCDF)

    def files(folder: Path) -> list[Path]:
        return sorted(p for p in folder.iterdir() if p.suffix.lower() in known or _is_zarr(p))

    for root in (path, path / "data"):
        inside = sorted(p for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
        folders = {_SPLIT_FOLDERS[p.name]: files(p) for p in inside if p.name in _SPLIT_FOLDERS}
        if folders.get("train"):
            empty = [name for name in ("reg", "test") if not folders.get(name)]
            if empty:
                raise InputError(f"data {path}: has files for train, but none for {' and '.join(empty)}")
            return {name: folders[name] for name in ("train", "reg", "test")}, True
    if not (found := files(path)):
        raise InputError(f"data {path}: a folder with no file that ends in {', '.join(known)}")
    return {"all": found}, False


def _allow_open_files(count: int) -> None:
    """Raise the limit on open files, as far as the system allows: files stay open to be read from."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _open_file(path: Path, wanted: Wanted) -> Opened:
    """Open a file with the reader of its format; a new format is added here."""
    if not (path.is_file() or _is_zarr(path)):
        raise InputError(
            f"data {path}: neither a file nor a folder, but perhaps a pipe; write the data to a file first"
        )
    suffix = path.suffix.lower()
    with said_in_one_line(f"data {path}"):
        if suffix in NUMPY:
            from crossreg.data.formats.numpy_files import open_numpy

            return open_numpy(path, wanted)
        if suffix in HDF5:
            from crossreg.data.formats.hdf5_files import open_hdf5

            return open_hdf5(path, wanted)
        if suffix in NETCDF or _is_zarr(path):
            from crossreg.data.formats.xarray_files import open_xarray

            return open_xarray(path, wanted)
    known = ", ".join((*NUMPY, *HDF5, *NETCDF, ".zarr"))
    raise InputError(f"data {path}: unknown kind of file; expected {known}, or a folder of such files")
