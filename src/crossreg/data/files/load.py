"""From files to the three splits: read into memory, or, if they are too large, as pairs that are read when needed."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from crossreg.config import OWN_DATA, DataConfig
from crossreg.data.dataset import Data, unmeasured
from crossreg.data.files.likeness import likeness_warning
from crossreg.data.files.overlap import overlap_warning
from crossreg.data.files.split import NAMES, Part, check_repeated, split_source
from crossreg.data.files.streamed import Reader, stream
from crossreg.data.formats.open import open_source
from crossreg.data.formats.source import SAMPLED_BYTES, Source, sampled_frames
from crossreg.data.pairs import GridPairs, Pairs, make_pairs
from crossreg.data.units import Units
from crossreg.errors import InputError, warn
from crossreg.files.memory import check_room

# A smaller scale would be 0 in a program, and fields divided by it not finite.
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
# If float32's resolution is a larger share of a field's spread, its smallest errors are rounding.
COARSE = 1e-3


def load_file(path: Path | str, **fields: Any) -> Data:
    """Deprecated: use [`load`][], which takes paths too. Its old name, `crossreg.load_file`, warns."""
    return load_files(own_config(str(path), fields))


def own_config(name: str, fields: Mapping[str, Any]) -> DataConfig:
    """Return the settings of your data, called `name`: all that `fields` leave open is as the data have it."""
    settings: dict[str, Any] = OWN_DATA | {"data": name} | dict(fields)
    config = DataConfig(**settings)
    check_acts(config)
    return config


def check_acts(config: DataConfig) -> None:
    """Raise InputError if a setting would change nothing: one of your data for a scenario, or the other way round."""
    names, why = ("num_spatial_dims", "num_points"), "is for scenarios; your data stay as they are"
    if config.data is None:
        names, why = ("split", "split_seed", "time_stride"), "is for your data; a scenario has its own splits and steps"
    for name in names:
        if (value := getattr(config, name)) != getattr(DataConfig, name):
            raise InputError(f"{name} is {value}: {why}")


def resolved(config: DataConfig) -> DataConfig:
    """Return the config with the sizes that follow from its files, and their absolute path, for a run to store.

    Raises:
        InputError: if the files cannot be divided as the config says, or a setting does not act on such data.
    """
    check_acts(config)
    if config.data is None:
        return config
    path = Path(config.data).resolve()
    parts = split_source(_open(config), config)
    found = {"data": str(path), "scenario": path.name}
    if config.split == "time":
        steps = {name: len(part.times) - 1 if part.samples else 0 for name, part in parts.items()}
        return dataclasses.replace(config, **found, **{f"{name}_size": size for name, size in steps.items()})
    found |= {f"{name}_size": len(part.samples) for name, part in parts.items()}
    found |= {f"{name}_horizon": len(parts[name].times) - 1 for name in ("train", "test")}
    return dataclasses.replace(config, **found)


def _open(config: DataConfig, stored: Sequence[int] | None = None) -> Source:
    return open_source(Path(str(config.data)), field=config.field, axes=config.axes, stored=stored)


def load_files(config: DataConfig, stored: Sequence[int] | None = None) -> Data:
    """Return the pairs of a config's files; `stored` is the shape (channel, *space) of a stored run's fields."""
    return load_source(_open(config, stored), config)


def load_source(source: Source, config: DataConfig) -> Data:
    """Return the pairs of a source: in memory, or, where they take too much of it, read when they are needed.

    Raises:
        InputError: if the source cannot be divided as the config says, a trajectory is in two splits, nothing of a
            split was measured, or float32 cannot hold what varies.
    """
    parts = split_source(source, config)
    warn_of_likeness(source, config)
    units = units_of(source, parts["train"], observed_only=config.score_on == "observed")
    if used_bytes(source, parts) <= min(config.in_memory_gib * 2**30, source.most_held):
        check_splits(source, parts, config)
        return in_memory(source, parts, config, units)

    def pairs(number: int, name: str) -> GridPairs:
        part = parts[name]
        if part.samples:
            return stream(Reader(source, part, number, config, units))
        return _pairs(read_part(source, part), part, number, config, units)

    splits = [pairs(number, name) for number, name in enumerate(NAMES)]
    return _made(splits, digest_of(source, config), source)


def warn_of_likeness(source: Source, config: DataConfig) -> None:
    """Print a warning on the standard error if channels are alike and `axes` are not given."""
    if said := likeness_warning(source, config.axes):
        warn(f"data {source.path}: {said}")


def check_splits(source: Source, parts: dict[str, Part], config: DataConfig) -> None:
    """Raise InputError if a trajectory is in two splits; warn if only some of its steps are."""
    if config.split == "trajectory":
        check_repeated(source, parts)
    if said := overlap_warning(source, parts):
        warn(f"data {source.path}: {said}")


def _made(splits: Sequence[Any], digest: str, source: Source) -> Data:
    """Return the splits as data, unless one has no measured target, no observed input, or no pair with both."""
    for name, pairs in zip(NAMES, splits, strict=True):
        if missing := unmeasured(pairs):
            why = "every value is missing or hidden by the file's mask"
            if missing == ["pair"]:
                why = "where something of an input is there, all of its target is missing"
            raise InputError(
                f"data {source.path}: no {' and no '.join(missing)} of {name} was measured: {why}; give other data, or"
                " split them in another way"
            )
    train, reg, test = splits
    return Data(train, reg, test, digest, names=source.names, axes=source.axes)


def digest_of(source: Source, config: DataConfig, held: dict[str, Part] | None = None) -> str:
    """Return the SHA-256 that data are recognised by: of all numbers if they are within `in_memory_gib`.

    Larger files are recognised by evenly spaced fields, and by every field of the splits that are `held` in memory.
    """
    if source.num_bytes <= config.in_memory_gib * 2**30:
        return source.whole_digest
    if held is None:
        return source.digest
    if (parts := tuple(held.values())) not in source.known_parts:
        places = ((sample, part.slice) for part in parts for sample in part.samples)
        source.known_parts[parts] = source.digest_of(places, start=source.digest)
    return source.known_parts[parts]


def is_known_by_sample(config: DataConfig, digest: str, stored: Sequence[int] | None = None) -> bool:
    """Return whether a digest is that of evenly spaced fields, by which earlier versions knew files beyond 64 MiB."""
    source = _open(config, stored)
    return source.num_bytes > SAMPLED_BYTES and source.digest == digest


def used_bytes(source: Source, parts: dict[str, Part]) -> int:
    """Return the bytes of all fields of the splits."""
    return sum(len(part.samples) * len(part.times) for part in parts.values()) * source.frame_bytes


class Fields(NamedTuple):
    """The fields of a split on the device, and where a mask in the files observes them."""

    array: Float[Array, "sample time channel *space"]
    observed: Bool[Array, "sample time *space"] | None
    has_gaps: bool


Read = Callable[[Source, Part], Fields]


def read_part(source: Source, part: Part) -> Fields:
    """Read a split. An empty one is read as one trajectory of one step, which will not count."""
    samples, times = (part.samples, part.times) if part.samples else ((0,), part.times[:2])
    along = slice(times.start, times.stop, times.step)
    size = len(samples) * len(times) * source.frame_bytes
    check_room(2 * size, f"data {source.path} in memory, by `in_memory_gib`: a split of {len(samples)} trajectories")
    array = np.empty((len(samples), len(times), *source.shape[2:]), np.float32)
    observed = np.ones((len(samples), len(times), *source.space), bool) if source.has_mask else None
    for row, sample in enumerate(samples):
        array[row] = source.frames(sample, along)
        if observed is not None:
            observed[row] = source.observed(sample, along)
    seen = None if observed is None else jnp.asarray(observed)
    return Fields(jnp.asarray(array), seen, bool(np.isnan(array).any()))


def in_memory(
    source: Source, parts: dict[str, Part], config: DataConfig, units: Units, read: Read = read_part
) -> Data[Pairs]:
    """Return the three splits with all of their fields on the device."""
    splits = [
        _pairs(read(source, parts[name]), parts[name], number, config, units) for number, name in enumerate(NAMES)
    ]
    digest = digest_of(source, config, parts)
    source.check_unchanged()  # what was read is then what was hashed
    return _made(splits, digest, source)


def _pairs(fields: Fields, part: Part, number: int, config: DataConfig, units: Units) -> Pairs:
    own = {"observed": fields.observed, "has_gaps": fields.has_gaps, "units": units}
    return make_pairs(fields.array, range(len(part.samples)), number, config, **own)


def coarse_warning(name: str, size: float, std: float) -> str:
    """Return a warning of a channel of values of some size, if float32 has too few steps for how it varies."""
    step = float(np.spacing(np.float32(size)))
    if step <= COARSE * std or not std:
        return ""
    return (
        f"{name} varies by {std:.3g} around values of {size:.6g}, where float32 has steps of {step:.1g}: subtract an"
        " offset in double precision before the fields are stored"
    )


def units_of(source: Source, train: Part, *, observed_only: bool = False) -> Units:
    """Return the mean and standard deviation of each channel over the train split.

    Of a large split, evenly spaced fields are read. With `observed_only`, points that the files' mask hides do not
    count: they may hold anything.
    """
    channels = len(source.names)
    count, total, squares = (np.zeros(channels) for _ in range(3))
    offset: Float[np.ndarray, " channel"] | None = None
    looked_at = sampled_frames(source, train.samples, train.slice, SAMPLED_BYTES)
    for sample, times in looked_at:
        frames = source.frames(sample, times)
        if observed_only and source.has_mask:
            frames = np.where(source.observed(sample, times)[:, None], frames, np.float32(np.nan))
        values = np.moveaxis(frames, 1, 0).reshape(channels, -1).astype(np.float64)
        if offset is None:
            # Without a large offset, the squares keep their digits.
            offset = np.nan_to_num([np.nanmean(v) if np.isfinite(v).any() else 0.0 for v in values])
        values -= offset[:, None]
        count += np.isfinite(values).sum(1)
        total += np.nansum(values, 1)
        squares += np.nansum(values**2, 1)
    if offset is None or not count.all():
        empty = [name for name, n in zip(source.names, count, strict=True) if not n]
        is_whole = all(times == train.slice for _, times in looked_at)
        where = "at all" if is_whole else f"in the {len(looked_at):,} fields of train that were looked at"
        raise InputError(f"data {source.path}: {', '.join(empty) or 'the train split'} has no value {where}")
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    if (tiny := (std > 0) & (std < _SMALLEST_NORMAL)).any():
        raise InputError(
            f"data {source.path}: {source.names[int(np.argmax(tiny))]} varies by {std[tiny][0]:.3g}, and float32 holds"
            f" nothing below {_SMALLEST_NORMAL:.2g}; store it in another unit"
        )
    for name, around, own in zip(source.names, offset + mean, std, strict=True):
        if said := coarse_warning(name, float(abs(around)), float(own)):
            warn(f"data {source.path}: {said}")
    # Rounded to float32, in which they are used: a run reads them back from a file.
    offsets, scales = ((offset + mean).astype(np.float32), np.where(std > 0, std, 1).astype(np.float32))
    return Units(tuple(map(float, offsets)), tuple(map(float, scales)))
