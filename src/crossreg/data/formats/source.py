"""Trajectories in files, read as needed, and the format that a path is of.

Every format ends in the same `Source`: segments (files, or groups in a file) of some samples each, whose variables
stand side by side as channels.
"""

import bisect
import contextlib
import functools
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
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
# What of a file is looked at to know it again, or to know the size of its numbers: all of it, or so many fields.
SAMPLED_BYTES, _SAMPLED_FIELDS = 2**26, 2048

# What the number of a sample takes, in lists of them.
_SAMPLE_BYTES = 64
# Of an array of a Zarr store, what is looked at besides its metadata to notice that it has changed.
ZARR_METADATA = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")
_STAMPED_CHUNKS = 256
# Open files of a process besides those of its data.
_OTHER_FILES = 256
# Of each file its name, size, time and number.
Stamps = tuple[tuple[str, int, int, int], ...]


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
    stamps: Stamps = ()

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

    @property
    def num_bytes(self) -> int:
        """Bytes of all fields, as float32."""
        return self.samples * self.times * self.frame_bytes

    @functools.cached_property
    def known_parts(self) -> dict[tuple, str]:
        """The digests of splits that were hashed already (`load.digest_of`)."""
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
        """SHA-256 of the shape and of the numbers at some times of samples; `start` is what is hashed before them."""
        sha = hashlib.sha256(f"{start}{self.names}{self.shape}{self.has_mask}".encode())
        for sample, times in places:
            sha.update(np.ascontiguousarray(self.frames(sample, times)).data)
            if self.has_mask:
                sha.update(np.packbits(self.observed(sample, times)).data)
        return sha.hexdigest()

    def check_unchanged(self) -> None:
        """Refuses files that somebody has written to, or replaced, since they were opened.

        Others may come and go beside them: a run may be stored in the folder of its data.
        """
        if _stamps(Path(name) for name, *_ in self.stamps) != self.stamps:
            raise InputError(f"--data {self.path}: has changed since it was first read; train on it from the start")


def sampled_frames(source: Source, samples: Sequence[int], times: slice, most_bytes: int) -> list[tuple[int, slice]]:
    """Evenly spaced times of evenly spaced samples, no more bytes than asked for; all of them where they fit."""
    along = range(*times.indices(source.times))
    most = max(2, most_bytes // source.frame_bytes)
    if len(samples) * len(along) <= most:
        return [(sample, times) for sample in samples]
    most = min(most, _SAMPLED_FIELDS)
    places = _evenly_spaced(len(samples) * len(along), most)
    chosen = [(samples[place // len(along)], along[place % len(along)]) for place in places]
    return [(sample, slice(time, time + 1)) for sample, time in chosen]


def _evenly_spaced(count: int, most: int) -> list[int]:
    """Numbers from 0 … count − 1, the first and the last among them; all of these where there are no more."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def stamps_of(path: Path) -> Stamps:
    """Return, for each file that is read of a path, its name and what changes when it is written to or replaced.

    They are compared at every look of a training, so that they must be few. A file is one stamp. A Zarr store may have
    a file for every chunk: of each of its arrays the metadata count, and so many of the chunks and of the folders that
    they lie in, evenly spaced, or all where there are no more. A folder's time changes when a chunk in it is new or was
    replaced, as Zarr writes them, so that most changes of large stores are noticed too.
    """
    groups, _ = _files_of(path)
    return _stamps(one for files in groups.values() for file in files for one in _stamped(file))


def _stamps(files: Iterable[Path]) -> Stamps:
    found = [(str(p), p.stat()) for p in files if p.exists()]
    return tuple((name, status.st_size, status.st_mtime_ns, status.st_ino) for name, status in found)


def _stamped(path: Path) -> Iterator[Path]:
    """A file, or what is looked at of a store: nothing else that may lie in its folder."""
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
    """The trajectories at a path: a file, a Zarr store, or a folder of files, with or without folders for splits.

    `stored` are channels and grid of the run that they are read for, where there is one already: its axes are known.
    """
    if axes is not None:
        check_axes(axes)
    if not path.exists():
        raise InputError(f"--data {path}: no such file or folder")
    stamps = stamps_of(path)
    fields = tuple(name.strip() for name in field.split(",")) if field else ()
    groups, splits = _files_of(path)
    _allow_open_files(sum(map(len, groups.values())))
    opened = [_open_checked(file, fields, axes, stored) for files in groups.values() for file in files]
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
    size = sum(_stored_bytes(file) for files in groups.values() for file in files)
    source = Source(path, kinds, segments, notes, tuple(map(in_one_line, names)), times, space, size, ranges, stamps)
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


def _open_checked(path: Path, fields: tuple[str, ...], axes: str | None, stored: Sequence[int] | None) -> Opened:
    if not (path.is_file() or _is_zarr(path)):
        raise InputError(f"--data {path}: neither a file nor a folder, as a pipe is; write the data to a file first")
    with said_in_one_line(f"--data {path}"):
        return _open_file(path, fields, axes, stored)


def _open_file(path: Path, fields: tuple[str, ...], axes: str | None, stored: Sequence[int] | None) -> Opened:
    """Reads what a file holds, by the reader for its kind."""
    suffix = path.suffix.lower()
    if suffix in NUMPY:
        from crossreg.data.formats.numpy_files import open_numpy

        return open_numpy(path, fields, axes, stored)
    if suffix in HDF5:
        from crossreg.data.formats.hdf5_files import open_hdf5

        return open_hdf5(path, fields, axes, stored)
    if suffix in NETCDF or _is_zarr(path):
        from crossreg.data.formats.xarray_files import open_xarray

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
