"""A summary of a user's files before anything is trained on them, for `crossreg data check`.

Of large files, evenly spaced steps are read.
"""

import dataclasses
import math
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from crossreg.config import OWN_DATA, DataConfig, ModelConfig
from crossreg.data.files.likeness import likeness_warning
from crossreg.data.files.load import COARSE, coarse_warning
from crossreg.data.files.overlap import overlap_warning
from crossreg.data.files.split import split_source, suggested_sizes
from crossreg.data.formats.open import open_source
from crossreg.data.formats.source import SAMPLED_BYTES, Source
from crossreg.errors import InputError

# If a step changes a field by less than this share of its spread, it is better to predict the change.
_SMALL_STEP = 0.3
_TINY_STEP = 0.003
# If the ends of an axis differ by more than this many times the change between neighbours, it is not periodic.
_NOT_PERIODIC = 4.0
# With fewer trajectories in reg, ρ is learned from a small sample.
_FEW_IN_REG = 5
# Common fill values, 1e20 and NetCDF's 9.97e36, are at least as large; files do not always name them.
_LIKE_A_FILL_VALUE = 0.99e20
_MOST_STEPS = 2048
# If a step changes a field by more than this share of its spread, the two fields are unrelated (√2 if independent).
_UNRELATED = 1.3
# Values further from the mean than this, in standard deviations, mark missing values in most files, and so do the
# numbers below if they are far from the others.
_FAR_OFF, _AMONG_OTHERS = 50.0, 5.0
_STAND_FOR_MISSING = {-32768.0, -32767.0, *(sign * nines for sign in (-1.0, 1.0) for nines in (999, 9999, 99999))}
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


class Found(NamedTuple):
    """The summary, as plain values, and a trajectory to draw: its fields at some times."""

    summary: dict[str, Any]
    fields: Float[np.ndarray, "time channel *space"]
    times: list[int]


class _Sums(NamedTuple):
    """Statistics of each channel, over the steps that were read."""

    missing: np.ndarray  # a share
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    change: np.ndarray
    jump: np.ndarray  # (channel, axis): change from the last point to the first, over that between neighbours


def check_data(path: Path, *, field: str | None = None, axes: str | None = None) -> Found:
    """Summarise the trajectories at a path; `field` and `axes` are those of [`DataConfig`][].

    Raises:
        InputError: if the files cannot be read as trajectories.
    """
    source = open_source(path, field=field, axes=axes)
    steps = _steps(source)
    sums = _look(source, steps)
    config = DataConfig(**(OWN_DATA | {"data": str(path), "field": field, "axes": axes}))
    size = math.prod(source.shape) * 4
    channels = [
        {
            "name": name,
            "missing": round(sums.missing[i] * math.prod(source.shape) / len(source.names)),
            "missing_share": float(sums.missing[i]),
            "min": _number(sums.low[i]),
            "max": _number(sums.high[i]),
            "mean": _number(sums.mean[i]),
            "std": _number(sums.std[i]),
            "one_step_change": _number(sums.change[i] / sums.std[i]) if sums.std[i] > 0 else None,
            "jump_at_the_ends": [_number(value) for value in sums.jump[i]],
        }
        for i, name in enumerate(source.names)
    ]
    seen = [source.observed(sample, slice(time, time + 1)).mean() for sample, time in steps] if source.has_mask else [1]
    observed = float(np.mean(seen))
    split, options = _suggest(source, config, channels)
    warnings = [] if observed else ["the mask hides every point: 1 is observed, 0 hidden; nothing can be learned"]
    warnings += [said] if (said := likeness_warning(source, axes)) else []
    warnings += _warnings(source, channels, split)
    if split and size <= config.in_memory_gib * 2**30:
        parts = split_source(source, dataclasses.replace(config, split="time") if split["by"] == "time" else config)
        warnings += [said] if (said := overlap_warning(source, parts)) else []
    command = ["crossreg", "train", "--data", str(path)]
    command += ["--field", field] if field else []
    command += ["--axes", axes] if axes else []
    summary = {
        "path": str(path),
        "kind": source.kind,
        "trajectories": source.samples,
        "times": source.times,
        "channels": channels,
        "space": list(source.space),
        "gib": size / 2**30,
        "in_memory": size <= min(config.in_memory_gib * 2**30, source.most_held),
        "looked_at_steps": len(steps),
        "all_steps": source.samples * (source.times - 1),
        "mask": source.has_mask,
        "observed_share": observed,
        "split": split,
        # `train` does not accept a channel that never changes or has no value, nor fields that are hidden whole.
        "command": shlex.join([*command, *options, "--out", "runs/own"]) if observed and all(sums.std > 0) else None,
        "notes": [*source.notes, *_notes(source, channels)],
        "warnings": warnings,
    }
    shown = np.unique(np.linspace(0, source.times - 1, min(source.times, 128)).round().astype(int)).tolist()
    if len(source.space) > 1:
        shown = [shown[0], shown[len(shown) // 2], shown[-1]]
    fields = np.concatenate([source.frames(0, slice(time, time + 1)) for time in shown])
    return Found(summary, fields, shown)


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _steps(source: Source) -> list[tuple[int, int]]:
    """Return the steps to read, as sample and first time."""
    total, most = source.samples * (source.times - 1), max(2, SAMPLED_BYTES // (2 * source.frame_bytes))
    if not total:
        raise InputError(f"data {source.path}: has no trajectory")
    most = total if total <= most else min(most, _MOST_STEPS)
    numbers = np.unique(np.linspace(0, total - 1, most).round().astype(int)).tolist()
    return [(number // (source.times - 1), number % (source.times - 1)) for number in numbers]


def _look(source: Source, steps: list[tuple[int, int]]) -> _Sums:
    """Read the steps once, a whole trajectory at a time where all of its steps are wanted."""
    wanted: dict[int, list[int]] = {}
    for sample, time in steps:
        wanted.setdefault(sample, []).append(time)
    channels, dims = len(source.names), len(source.space)
    count, values, total, squares, change, pairs = (np.zeros(channels) for _ in range(6))
    low, high = np.full(channels, np.inf), np.full(channels, -np.inf)
    between, ends = np.zeros((channels, dims)), np.zeros((channels, dims))
    offset = None
    for sample, times in wanted.items():
        whole = source.frames(sample, slice(0, source.times)) if len(times) == source.times - 1 else None
        for block in [whole] if whole is not None else (source.frames(sample, slice(t, t + 2)) for t in times):
            u = np.moveaxis(block, 1, 0).astype(np.float64)
            flat = u.reshape(channels, -1)
            there = np.isfinite(flat)
            if offset is None:
                offset = np.array([v[k].mean() if k.any() else 0.0 for v, k in zip(flat, there, strict=True)])
            centred = np.where(there, flat - offset[:, None], 0.0)
            values += flat.shape[1]
            count += there.sum(1)
            total += centred.sum(1)
            squares += (centred**2).sum(1)
            low = np.minimum(low, np.where(there, flat, np.inf).min(1))
            high = np.maximum(high, np.where(there, flat, -np.inf).max(1))
            step = np.diff(u, axis=1).reshape(channels, -1)
            change += np.nansum(step**2, 1)
            pairs += np.isfinite(step).sum(1)
            for axis in range(dims):
                inner = np.diff(u, axis=2 + axis)
                outer = np.asarray(u.take(0, 2 + axis) - u.take(-1, 2 + axis))
                between[:, axis] += [_mean_square(v) for v in inner]
                ends[:, axis] += [_mean_square(v) for v in outer]
    assert offset is not None  # there is at least one step
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
        std = np.sqrt(np.maximum(squares / count - mean**2, 0))
        jump = np.sqrt(ends / between)
        return _Sums(1 - count / values, low, high, offset + mean, std, np.sqrt(change / pairs), jump)


def _mean_square(values: np.ndarray) -> float:
    there = values[np.isfinite(values)]
    return float(np.mean(there**2)) if there.size else 0.0


def _suggest(source: Source, config: DataConfig, channels: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Suggest a split that can be trained on, and flags that suit the data."""
    options = []
    modes = ModelConfig().num_modes
    if min(source.space) < 2 * modes - 1:
        options += ["--num-modes", str(max(1, min(source.space) // 2))]
    changes = [channel["one_step_change"] for channel in channels if channel["one_step_change"] is not None]
    if changes and max(changes) < _SMALL_STEP:
        options.append("--predict-increment")
    if any(channel["missing"] for channel in channels) or source.has_mask:
        options.append("--mask-channel")
    if source.samples < 3 and source.splits is None:
        if source.times < 6:
            return {}, options
        train, reg, test = suggested_sizes(source.times - 3)
        return {"by": "time", "train": train, "reg": reg, "test": test}, ["--split", "time", *options]
    parts = split_source(source, config)
    by = "trajectory" if source.splits is None else "folder"
    return {"by": by} | {name: len(part.samples) for name, part in parts.items()}, options


def _warnings(source: Source, channels: list[dict[str, Any]], split: dict[str, Any]) -> list[str]:
    """Return warnings of what would make results doubtful."""
    warnings = []
    changes = [channel["one_step_change"] for channel in channels if channel["one_step_change"] is not None]
    if changes and min(changes) > _UNRELATED:
        warnings.append(
            f"successive fields seem unrelated (a step changes a field by {min(changes):.2g} of its spread); if"
            " the axes of trajectories and times are exchanged, say so with `axes`"
        )
    for channel in channels:
        largest = max(abs(channel["min"] or 0), abs(channel["max"] or 0))
        if largest >= _LIKE_A_FILL_VALUE:
            warnings.append(
                f"{channel['name']} has values as large as {largest:.3g}: if they stand for missing ones, make them"
                " NaN, or name them in the file (_FillValue)"
            )
        if not (std := channel["std"]):
            continue
        far = max(channel["min"], channel["max"], key=lambda end: abs(end - channel["mean"]))
        most = _AMONG_OTHERS if far in _STAND_FOR_MISSING else _FAR_OFF
        if largest < _LIKE_A_FILL_VALUE and abs(far - channel["mean"]) > most * std:
            warnings.append(
                f"{channel['name']} has a value of {far:.6g}, where the others vary by {std:.3g} around"
                f" {channel['mean']:.3g}: if it stands for a missing one, make it NaN"
            )
        if said := coarse_warning(channel["name"], largest, std):
            warnings.append(said)
        elif std < _SMALLEST_NORMAL / COARSE:
            warnings.append(
                f"{channel['name']} varies by {std:.3g}, and float32 loses digits below {_SMALLEST_NORMAL:.2g}: store"
                " it in another unit"
            )
    # A division in time gives reg some steps of every trajectory.
    by, count = split.get("by"), source.samples if split.get("by") == "time" else split.get("reg", _FEW_IN_REG)
    if count < _FEW_IN_REG:
        few = f"{'steps of ' * (by == 'time')}{count} trajector{'y' if count == 1 else 'ies'}"
        more = f"; `reg_size={_FEW_IN_REG}` or more helps" if by == "trajectory" and source.samples > 20 else ""
        warnings.append(
            f"reg has {few}: the generalization noise ρ learns from reg alone, and is uncertain with fewer than"
            f" {_FEW_IN_REG}{more}"
        )
    return warnings


def _notes(source: Source, channels: list[dict[str, Any]]) -> list[str]:
    """Return notes on what a user should know before training."""
    notes = []
    for channel in channels:
        name, std = channel["name"], channel["std"]
        if std is None:
            notes.append(f"{name} has no value at all")
        elif std == 0:
            notes.append(
                f"{name} never changes: leave it out; if it does in the file, float32 is too coarse for it: subtract an"
                " offset in double precision, or store it in another unit"
            )
        change = channel["one_step_change"]
        if change is not None and change < _TINY_STEP:
            notes.append(
                f"{name} hardly changes in a step ({change:.1g} of its spread): take larger steps with `time_stride`"
            )
        open_axes = [
            a for a, jump in zip("xyz", channel["jump_at_the_ends"], strict=False) if (jump or 0) > _NOT_PERIODIC
        ]
        if open_axes:
            notes.append(
                f"{name} is not periodic along {', '.join(open_axes)}: the network's Fourier layers assume that it is,"
                " and are less certain near the ends"
            )
    if source.samples < 3 and source.splits is None:
        few = "1 trajectory" if source.samples == 1 else f"{source.samples} trajectories"
        how = "too short to be divided in time"
        if source.times >= 6:
            how = "its times can be divided instead; test is then later than anything that is learned from"
        notes.append(f"{few}, where train, reg and test need one each: {how}")
    return notes
