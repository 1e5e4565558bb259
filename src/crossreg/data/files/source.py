"""Trajectories in files, read as needed, and the format that a path is of.

Every format ends in the same `Source`: segments (files, or groups in a file) of some samples each, whose variables
stand side by side as channels.
"""

import bisect
import contextlib
import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from crossreg.array_files import most_unpacked, said_in_one_line
from crossreg.data.files.axes import SPACE, Variable, check_axes, read_mask
from crossreg.errors import InputError, in_one_line
from crossreg.memory import in_words

NUMPY, HDF5, NETCDF = (".npy", ".npz"), (".h5", ".hdf5", ".he5"), (".nc", ".nc4", ".cdf", ".netcdf")
_SPLIT_FOLDERS = {"train": "train", "valid": "reg", "val": "reg", "reg": "reg", "test": "test"}
# What of a file is looked at to know it again, or to know the size of its numbers: all of it, or so many fields.
SAMPLED_BYTES, _SAMPLED_FIELDS = 2**26, 2048

# What the number of a sample takes, in lists of them.
_SAMPLE_BYTES = 64
# Open files of a process besides those of its data.
_OTHER_FILES = 256


class Segment(NamedTuple):
    """Samples that lie together: in one file, or in one group of a file."""

    samples: int
    variables: tuple[Variable, ...]
    mask: Variable | None = None


class Opened(NamedTuple):
    """What a reader makes of one file. `notes` are for the user: what was chosen, what was left out."""

    kind: str
    segments: tuple[Segment, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Source:
    """Trajectories of one shape, of `stored` bytes in their files.

    `splits` are the samples of each split, where the files themselves say so.
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

    @functools.cached_property
    def _starts(self) -> list[int]:
        return np.cumsum([0] + [segment.samples for segment in self.segments]).tolist()

    @property
    def samples(self) -> int:
        """How many trajectories there are."""
        return self._starts[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """(sample, time, channel, *space)."""
        return (self.samples, self.times, len(self.names), *self.space)

    @property
    def most_held(self) -> int:
        """The most bytes of it that memory may hold: packed files can promise any number."""
        return most_unpacked(self.stored)

    @property
    def axes(self) -> str:
        """The letters of the axes in the file, those of its first field."""
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
        """A sample at some times. What is missing is NaN; an infinite number is missing too."""
        segment, own = self._place(sample)
        count = len(range(*times.indices(self.times)))
        with said_in_one_line(str(self.path)):
            parts = [variable.read(own, times, count, self.space) for variable in segment.variables]
        values = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        return np.where(np.isfinite(values), values, np.float32(np.nan))

    def observed(self, sample: int, times: slice) -> Bool[np.ndarray, "time *space"]:
        """Where the mask array of the files, if there is one, has a sample observed."""
        segment, own = self._place(sample)
        count = len(range(*times.indices(self.times)))
        if segment.mask is None:
            return np.ones((count, *self.space), bool)
        with said_in_one_line(str(self.path)):
            return read_mask(segment.mask, own, times, count, self.space)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the shape and of the numbers; of large files, of evenly spaced fields."""
        sha = hashlib.sha256(f"{self.names}{self.shape}{self.has_mask}".encode())
        for sample, times in sampled_frames(self, range(self.samples), slice(0, self.times), SAMPLED_BYTES):
            sha.update(np.ascontiguousarray(self.frames(sample, times)).data)
            if self.has_mask:
                sha.update(np.packbits(self.observed(sample, times)).data)
        return sha.hexdigest()


def sampled_frames(source: Source, samples: Sequence[int], times: slice, most_bytes: int) -> list[tuple[int, slice]]:
    """Evenly spaced times of evenly spaced samples, no more bytes than asked for; all of them where they fit."""
    along = range(*times.indices(source.times))
    most = max(2, most_bytes // source.frame_bytes)
    if len(samples) * len(along) <= most:
        return [(sample, times) for sample in samples]
    most = min(most, _SAMPLED_FIELDS)
    places = np.unique(np.linspace(0, len(samples) * len(along) - 1, most).round().astype(int))
    chosen = [(samples[place // len(along)], along[place % len(along)]) for place in places.tolist()]
    return [(sample, slice(time, time + 1)) for sample, time in chosen]


def open_source(path: Path, *, field: str | None = None, axes: str | None = None) -> Source:
    """The trajectories at a path: a file, a Zarr store, or a folder of files, with or without folders for splits."""
    if axes is not None:
        check_axes(axes)
    if not path.exists():
        raise InputError(f"--data {path}: no such file or folder")
    fields = tuple(name.strip() for name in field.split(",")) if field else ()
    groups, splits = _files_of(path)
    _allow_open_files(sum(map(len, groups.values())))
    opened = [_open_checked(file, fields, axes) for files in groups.values() for file in files]
    segments = tuple(segment for one in opened for segment in one.segments)
    names, times, space = _one_shape(segments, path)
    ranges = None
    if splits:
        start, ranges = 0, {}
        numbers = iter(opened)
        for split, files in groups.items():
            count = sum(segment.samples for _ in files for segment in next(numbers).segments)
            ranges[split] = range(start, start + count)
            start += count
    # Texts in files may hold anything; these are shown on terminals and pages.
    notes = tuple(dict.fromkeys(in_one_line(note) for one in opened for note in one.notes))
    kinds = in_one_line("; ".join(dict.fromkeys(one.kind for one in opened)))
    stored = sum(_stored_bytes(file) for files in groups.values() for file in files)
    source = Source(path, kinds, segments, notes, tuple(map(in_one_line, names)), times, space, stored, ranges)
    _check_proportion(source)
    return source


def _stored_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _check_proportion(source: Source) -> None:
    """Refuse files that promise so much more than they hold that a step of it, or the list of samples, fills memory."""
    for size, what in (
        (_SAMPLE_BYTES * source.samples, f"the list of its {source.samples:,} trajectories"),
        (2 * source.frame_bytes, f"a step of its fields, {len(source.names)} channels on {source.space} points,"),
    ):
        if size > source.most_held:
            raise InputError(
                f"--data {source.path}: {what} would take {in_words(size)}, and files of {in_words(source.stored)} may"
                f" take at most {in_words(source.most_held)}"
            )


def _is_zarr(path: Path) -> bool:
    return path.is_dir() and (path.suffix == ".zarr" or any((path / n).exists() for n in ("zarr.json", ".zgroup")))


def _files_of(path: Path) -> tuple[dict[str, list[Path]], bool]:
    """The files of each split, or all of them; and whether they come in splits."""
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
                raise InputError(f"--data {path}: has files for train, but none for {' and '.join(empty)}")
            return {name: folders[name] for name in ("train", "reg", "test")}, True
    if not (found := files(path)):
        raise InputError(f"--data {path}: a folder with no file that ends in {', '.join(known)}")
    return {"all": found}, False


def _allow_open_files(count: int) -> None:
    """Raises what the system lets a process have open, as far as it may be raised: files stay open to be read from."""
    try:
        import resource
    except ImportError:  # not on Windows, which has no such bound
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _open_checked(path: Path, fields: tuple[str, ...], axes: str | None) -> Opened:
    if not (path.is_file() or _is_zarr(path)):
        raise InputError(f"--data {path}: neither a file nor a folder, as a pipe is; write the data to a file first")
    with said_in_one_line(f"--data {path}"):
        return _open_file(path, fields, axes)


def _open_file(path: Path, fields: tuple[str, ...], axes: str | None) -> Opened:
    """Reads what a file holds, by the reader for its kind."""
    suffix = path.suffix.lower()
    if suffix in NUMPY:
        from crossreg.data.files.numpy_files import open_numpy

        return open_numpy(path, fields, axes)
    if suffix in HDF5:
        from crossreg.data.files.hdf5_files import open_hdf5

        return open_hdf5(path, fields, axes)
    if suffix in NETCDF or _is_zarr(path):
        from crossreg.data.files.xarray_files import open_xarray

        return open_xarray(path, fields, axes)
    known = ", ".join((*NUMPY, *HDF5, *NETCDF, ".zarr"))
    raise InputError(f"--data {path}: of an unknown kind; known are {known}, and folders of such files")


def _one_shape(segments: Sequence[Segment], path: Path) -> tuple[tuple[str, ...], int, tuple[int, ...]]:
    """The channels, the number of times and the grid that all segments have."""
    found: dict[tuple, str] = {}
    for segment in segments:
        variables = segment.variables
        names = tuple(name for variable in variables for name in variable.names)

        def size(letter: str, variables=variables) -> int | None:
            sizes = {n for v in variables if (n := v.size(letter)) is not None}
            if len(sizes) > 1:
                sizes.discard(1)  # one value stands for all
            if len(sizes) > 1:
                shapes = ", ".join(f"{v.where} {tuple(v.array.shape)}" for v in variables)
                raise InputError(f"--data {path}: its fields differ in shape: {shapes}")
            return sizes.pop() if sizes else None

        space = tuple(n for letter in SPACE if (n := size(letter)) is not None)
        found.setdefault((names, size("t") or 1, space), variables[0].where)
    if len(found) > 1:
        shapes = "; ".join(f"{where}: {key[1]} times of {key[0]} on {key[2]}" for key, where in list(found.items())[:2])
        raise InputError(f"--data {path}: trajectories must have one shape, but there are {shapes}")
    (names, times, space), where = next(iter(found.items()))
    if times < 2:
        raise InputError(f"--data {where}: has {times} time; a step needs two")
    if min(space) < 4:
        raise InputError(f"--data {where}: its grid is {space}; expected at least 4 points along each axis")
    return names, times, space
