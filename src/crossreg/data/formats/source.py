"""A source of trajectories, in files or in arrays, which is read as needed, and the format of a path.

Every format ends in the same `Source`: segments (files, or groups in a file) of some samples each, whose variables
stand side by side as channels. `_open_file` chooses the module that reads a file: a new format is added there.
"""

import bisect
import contextlib
import functools
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from crossreg.data.formats.axes import SPACE, Variable, check_axes, read_mask
from crossreg.errors import InputError, in_one_line
from crossreg.files.arrays import most_unpacked, said_in_one_line
from crossreg.files.memory import in_words

NUMPY, HDF5, NETCDF = (".npy", ".npz"), (".h5", ".hdf5", ".he5"), (".nc", ".nc4", ".cdf", ".netcdf")
_SPLIT_FOLDERS = {"train": "train", "valid": "reg", "val": "reg", "reg": "reg", "test": "test"}
# What is read of a source to recognise it, or to find the scale of its numbers: all of it, or so many fields.
SAMPLED_BYTES, _SAMPLED_FIELDS = 2**26, 2048
# Bytes of a sample's number in a list.
_SAMPLE_BYTES = 64
# The files of a Zarr array, besides some of its chunks, by which a change is noticed.
ZARR_METADATA = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")
_STAMPED_CHUNKS = 256
# Files that a process has open besides those of its data.
_OTHER_FILES = 256
# The name, size, time and inode of each file.
Stamps = tuple[tuple[str, int, int, int], ...]


class Segment(NamedTuple):
    """Samples that are stored together: in one file, or in one group of a file."""

    samples: int
    variables: tuple[Variable, ...]
    mask: Variable | None = None


class Wanted(NamedTuple):
    """The arrays that a user names, the letters of their axes, and the shape (channel, *space) that a run has stored.

    The axes of files that are opened again for a stored run follow from the shape of its fields.
    """

    fields: tuple[str, ...] = ()
    axes: str | None = None
    stored: Sequence[int] | None = None


class Opened(NamedTuple):
    """The content of one file. `notes` tell the user what was chosen and what was left out."""

    kind: str
    segments: tuple[Segment, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Source:
    """Trajectories of one shape, which take `stored` bytes in their files.

    `splits` are the samples of each split, where the files themselves are divided.
    """

    path: Path
    kind: str
    segments: tuple[Segment, ...]
    notes: tuple[str, ...]
    names: tuple[str, ...]
    times: int
    space: tuple[int, ...]
    stored: int
    splits: dict[str, range] | None = None
    stamps: Stamps = ()

    @functools.cached_property
    def _starts(self) -> list[int]:
        return np.cumsum([0] + [segment.samples for segment in self.segments]).tolist()

    @property
    def samples(self) -> int:
        """Number of trajectories."""
        return self._starts[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """(trajectory, time, channel, *space)."""
        return (self.samples, self.times, len(self.names), *self.space)

    @property
    def most_held(self) -> int:
        """Bytes that memory may hold at most: compressed files can claim any size."""
        return most_unpacked(self.stored)

    @property
    def axes(self) -> str:
        """Letters of the axes in the file, those of its first field."""
        return self.segments[0].variables[0].axes

    @property
    def frame_bytes(self) -> int:
        """Bytes of the field at one time, as float32."""
        return 4 * math.prod(self.shape[2:])

    @property
    def has_mask(self) -> bool:
        """Whether the files have a mask array."""
        return any(segment.mask is not None for segment in self.segments)

    def _place(self, sample: int) -> tuple[Segment, int]:
        number = bisect.bisect_right(self._starts, sample) - 1
        return self.segments[number], sample - self._starts[number]

    def frames(self, sample: int, times: slice) -> Float[np.ndarray, "time channel *space"]:
        """Read a sample at some times. Missing values, infinite ones among them, are NaN."""
        segment, own = self._place(sample)
        count = len(range(*times.indices(self.times)))
        with said_in_one_line(str(self.path)):
            parts = [variable.read(own, times, count, self.space) for variable in segment.variables]
        values = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        return np.where(np.isfinite(values), values, np.float32(np.nan))

    def observed(self, sample: int, times: slice) -> Bool[np.ndarray, "time *space"]:
        """Read where a sample is observed: everywhere, unless the files have a mask."""
        segment, own = self._place(sample)
        count = len(range(*times.indices(self.times)))
        if segment.mask is None:
            return np.ones((count, *self.space), bool)
        with said_in_one_line(str(self.path)):
            return read_mask(segment.mask, own, times, count, self.space)

    @property
    def num_bytes(self) -> int:
        """Bytes of all fields, as float32."""
        return self.samples * self.times * self.frame_bytes

    @functools.cached_property
    def known_parts(self) -> dict[tuple, str]:
        """Digests of splits that were hashed before (`digest_of` in `files/load.py`)."""
        return {}

    @functools.cached_property
    def whole_digest(self) -> str:
        """SHA-256 of the shape and of all numbers."""
        return self.digest_of((sample, slice(0, self.times)) for sample in range(self.samples))

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the shape and of the numbers; of large files, of evenly spaced fields."""
        return self.digest_of(sampled_frames(self, range(self.samples), slice(0, self.times), SAMPLED_BYTES))

    def digest_of(self, places: Iterable[tuple[int, slice]], start: str = "") -> str:
        """Return the SHA-256 of the shape and of the numbers at some times of samples, preceded by `start`."""
        sha = hashlib.sha256(f"{start}{self.names}{self.shape}{self.has_mask}".encode())
        for sample, times in places:
            sha.update(np.ascontiguousarray(self.frames(sample, times)).data)
            if self.has_mask:
                sha.update(np.packbits(self.observed(sample, times)).data)
        return sha.hexdigest()

    def check_unchanged(self) -> None:
        """Raise InputError if files have been written to, or replaced, since they were opened.

        Other files may appear beside them: a run may be stored in the folder of its data.
        """
        if _stamps(Path(name) for name, *_ in self.stamps) != self.stamps:
            raise InputError(f"data {self.path}: has changed since it was first read; train on it from the start")


def sampled_frames(source: Source, samples: Sequence[int], times: slice, most_bytes: int) -> list[tuple[int, slice]]:
    """Return evenly spaced times of evenly spaced samples, of at most `most_bytes`; all of them where they fit."""
    along = range(*times.indices(source.times))
    most = max(2, most_bytes // source.frame_bytes)
    if len(samples) * len(along) <= most:
        return [(sample, times) for sample in samples]
    most = min(most, _SAMPLED_FIELDS)
    places = _evenly_spaced(len(samples) * len(along), most)
    chosen = [(samples[place // len(along)], along[place % len(along)]) for place in places]
    return [(sample, slice(time, time + 1)) for sample, time in chosen]


def _evenly_spaced(count: int, most: int) -> list[int]:
    """Return at most `most` numbers from 0 … count − 1, among them the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def stamps_of(path: Path) -> Stamps:
    """Return a stamp of each file of a path: its name, and what changes when it is written to or replaced.

    Stamps are compared often during a training, so that they must be few. A Zarr store may have a file for every chunk:
    of each of its arrays, the metadata count, and at most 256 of the chunks and of their folders, evenly spaced. Zarr
    replaces chunks, which changes their folder's time, so that most changes of large stores are noticed too.
    """
    groups, _ = _files_of(path)
    return _stamps(one for files in groups.values() for file in files for one in _stamped(file))


def _stamps(files: Iterable[Path]) -> Stamps:
    found = [(str(p), p.stat()) for p in files if p.exists()]
    return tuple((name, status.st_size, status.st_mtime_ns, status.st_ino) for name, status in found)


def _stamped(path: Path) -> Iterator[Path]:
    """Yield a file itself; of a store, the files and folders that are stamped, and no others in its folder."""
    if not path.is_dir():
        yield path
        return
    yield from (path / name for name in ZARR_METADATA)
    for array in sorted(p for p in path.iterdir() if any((p / name).is_file() for name in (".zarray", "zarr.json"))):
        yield from (array / name for name in ZARR_METADATA)
        inside = sorted(p for p in array.rglob("*") if p.name not in ZARR_METADATA)
        folders = {array} | {p.parent for p in inside}
        for entries in (sorted(folders), [p for p in inside if p not in folders]):
            yield from (entries[i] for i in _evenly_spaced(len(entries), _STAMPED_CHUNKS))


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
    stamps = _stamps(one for path in paths for one in _stamped(path))
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


def make_source(
    path: Path, opened: Mapping[str, Sequence[Opened]], size: int, *, are_splits: bool, stamps: Stamps = ()
) -> Source:
    """Join what was opened into one source.

    Args:
        path: what errors call the source.
        opened: the files, or arrays, of each split, or all of them under one name.
        size: bytes that they take where they are stored.
        are_splits: whether the names in `opened` are splits.
    """
    every = [one for files in opened.values() for one in files]
    segments = tuple(segment for one in every for segment in one.segments)
    names, times, space = _one_shape(segments, path)
    ranges = None
    if are_splits:
        start, ranges = 0, {}
        for split, files in opened.items():
            count = sum(segment.samples for one in files for segment in one.segments)
            ranges[split] = range(start, start + count)
            start += count
    # Texts in files may hold anything, and these are shown to users.
    notes = tuple(dict.fromkeys(in_one_line(note) for one in every for note in one.notes))
    kinds = in_one_line("; ".join(dict.fromkeys(one.kind for one in every)))
    source = Source(path, kinds, segments, notes, tuple(map(in_one_line, names)), times, space, size, ranges, stamps)
    _check_proportion(source)
    return source


def _stored_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _check_proportion(source: Source) -> None:
    """Raise InputError if files claim so much more than they hold that one step, or a list of samples, fills memory."""
    for size, what in (
        (_SAMPLE_BYTES * source.samples, f"the list of its {source.samples:,} trajectories"),
        (2 * source.frame_bytes, f"a step of its fields, {len(source.names)} channels on {source.space} points,"),
    ):
        if size > source.most_held:
            raise InputError(
                f"data {source.path}: {what} would take {in_words(size)}, and files of {in_words(source.stored)} may"
                f" take at most {in_words(source.most_held)}"
            )


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


def _size_of(variables: Sequence[Variable], letter: str, path: Path) -> int | None:
    """Return the length of an axis, which all variables that have it share; 1 stands for any length."""
    sizes = {size for variable in variables if (size := variable.size(letter)) is not None}
    if len(sizes) > 1:
        sizes.discard(1)
    if len(sizes) > 1:
        shapes = ", ".join(f"{variable.where} {tuple(variable.array.shape)}" for variable in variables)
        raise InputError(f"data {path}: its fields differ in shape: {shapes}")
    return sizes.pop() if sizes else None


def _one_shape(segments: Sequence[Segment], path: Path) -> tuple[tuple[str, ...], int, tuple[int, ...]]:
    """Return the channels, the number of times and the grid, which all segments must have in common."""
    found: dict[tuple, str] = {}
    for segment in segments:
        variables = segment.variables
        names = tuple(name for variable in variables for name in variable.names)
        times, *grid = (_size_of(variables, letter, path) for letter in ("t", *SPACE))
        found.setdefault((names, times or 1, tuple(n for n in grid if n is not None)), variables[0].where)
    if len(found) > 1:
        shapes = "; ".join(f"{where}: {key[1]} times of {key[0]} on {key[2]}" for key, where in list(found.items())[:2])
        raise InputError(f"data {path}: trajectories must have one shape, but there are {shapes}")
    (names, times, space), where = next(iter(found.items()))
    if times < 2:
        raise InputError(f"data {where}: has {times} time; expected at least two, for one step")
    if min(space) < 4:
        raise InputError(f"data {where}: its grid is {space}; expected at least 4 points along each axis")
    return names, times, space
