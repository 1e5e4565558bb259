"""A source of trajectories, in files or in arrays, which is read as needed.

Every format ends in the same `Source`: segments (files, or groups in a file) of some samples each, whose variables
stand side by side as channels.
"""

import bisect
import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from crossreg.data.formats.axes import SPACE, Variable, read_mask
from crossreg.errors import InputError, in_one_line
from crossreg.files.arrays import most_unpacked, said_in_one_line
from crossreg.files.memory import in_words

NUMPY, HDF5, NETCDF = (".npy", ".npz"), (".h5", ".hdf5", ".he5"), (".nc", ".nc4", ".cdf", ".netcdf")
# What is read of a source to recognise it, or to find the scale of its numbers: all of it, or so many fields.
SAMPLED_BYTES, _SAMPLED_FIELDS = 2**26, 2048
# Bytes of a sample's number in a list.
_SAMPLE_BYTES = 64
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
        if stamps_at(Path(name) for name, *_ in self.stamps) != self.stamps:
            raise InputError(f"data {self.path}: has changed since it was first read; train on it from the start")


def sampled_frames(source: Source, samples: Sequence[int], times: slice, most_bytes: int) -> list[tuple[int, slice]]:
    """Return evenly spaced times of evenly spaced samples, of at most `most_bytes`; all of them where they fit."""
    along = range(*times.indices(source.times))
    most = max(2, most_bytes // source.frame_bytes)
    if len(samples) * len(along) <= most:
        return [(sample, times) for sample in samples]
    most = min(most, _SAMPLED_FIELDS)
    places = evenly_spaced(len(samples) * len(along), most)
    chosen = [(samples[place // len(along)], along[place % len(along)]) for place in places]
    return [(sample, slice(time, time + 1)) for sample, time in chosen]


def evenly_spaced(count: int, most: int) -> list[int]:
    """Return at most `most` numbers from 0 … count − 1, among them the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def stamps_at(files: Iterable[Path]) -> Stamps:
    """Return the stamp of each file that exists."""
    found = [(str(p), p.stat()) for p in files if p.exists()]
    return tuple((name, status.st_size, status.st_mtime_ns, status.st_ino) for name, status in found)


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
