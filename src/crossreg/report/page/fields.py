"""Test trajectories as text that the page decodes.

An array of numbers is base64 of little-endian int16: k stands for k/32767 of `top`, from the middle of a field's range
or from 0, and −32768 for no number. Quantiles are base64 of int8, in steps of (q − m)/√U_tot. Where the truth is
unknown, it and the error are no numbers; `gap_mean`, which exists only if there are such places, has the mean there.

A trajectory of 200 times and 160 points takes 0.7 MB, so a page has room for about fifteen: those of the first seed of
each method and regime. If there are more, it keeps fewer of each run: first the trajectory with the worst region, then
windows around the other listed regions, then further trajectories. Whole planes are kept of as many trajectories as fit
into half of the room.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from scipy.stats import norm

from crossreg.errors import InputError
from crossreg.report.offline import base64_text
from crossreg.report.page.folders import Found, Sweep
from crossreg.report.page.lines import Group, method_label, regime_label
from crossreg.report.tables.comparison import regimes
from crossreg.runs.fields.forecast_fields import read_forecast_fields
from crossreg.runs.fields.regions import BLOCK_POINTS, BLOCK_STEPS, KNOWS, Region
from crossreg.runs.fields.stored_fields import LEVELS, Planes, StoredFields, Windows
from crossreg.runs.fields.test_fields import load_run_fields
from crossreg.runs.file_names import TEST_FIELDS
from crossreg.studies.sweep.fields import load_sweep_fields

_MOST_ENTRIES = 12
_MOST_COMPUTED = 3  # runs without stored fields, for which these are computed in seconds each
_OFFSET_STEPS = 24
_NAMES = ("truth", "error", "std_mu", "std_predictive", "std_generalization")


class Entry(NamedTuple):
    """A run whose fields the page may show, or the reason why it cannot."""

    group: str
    label: str
    row: dict[str, Any]
    fields: StoredFields | None
    why: str
    is_forecast: bool = False


def load_entries(found: Found, groups: Sequence[Group], *, progress: bool = False) -> list[Entry]:
    """Load the fields of the first seed of each method and regime.

    Args:
        found: What was found below the folder.
        groups: The runs that are compared: all single runs, and the rows of each sweep.
        progress: Whether to show the progress of fields that are computed.

    Returns:
        A run each, with its fields or the reason why there are none.
    """
    folders = {run.name: run.folder for run in found.runs}
    entries = []
    for group in groups:
        if group.sweep is not None:
            entries += _of_sweep(group, group.sweep, progress)
        else:
            stored = {name for name, folder in folders.items() if (folder / TEST_FIELDS).exists()}
            firsts = [(label, row) for label, row in _firsts(group, stored) if row["key"] in folders]
            entries += _of_runs(group.name, firsts[:_MOST_ENTRIES], folders, progress)
    return entries


def _of_sweep(group: Group, sweep: Sweep, progress: bool) -> list[Entry]:
    try:
        known, missing = load_sweep_fields(sweep.folder, sweep.rows, progress=progress)
    except (InputError, KeyError, ValueError, TypeError, OSError) as error:
        label, row = _firsts(group, set())[0]
        return [Entry(group.name, label, row, None, str(error))]
    chosen = known.keys() | missing.keys()
    return [
        Entry(group.name, label, row, known.get(row["key"]), missing.get(row["key"], ""))
        for label, row in _firsts(group, set(chosen))
        if row["key"] in chosen
    ]


def _firsts(group: Group, stored: set[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the label of each line and its first row, if possible one that went well and whose fields are stored."""
    parts = regimes(group.lines)
    found = []
    for part in parts:
        where = f", {regime_label(part[0], group.lines)}" if len(parts) > 1 else ""
        for line in part:
            row = min(group.rows_of(line), key=lambda row: (row["diverged"], row["key"] not in stored, row["seed"]))
            seed = f", seed {row['seed']}" if line.seeds > 1 else ""
            found.append((f"{method_label(line, part)}{where}{seed}", row))
    return found


def _of_runs(
    group: str, firsts: Sequence[tuple[str, dict[str, Any]]], folders: dict[str, Path], progress: bool
) -> list[Entry]:
    entries, computed = [], 0
    for label, row in firsts:
        folder = folders[row["key"]]
        is_there = (folder / TEST_FIELDS).exists()
        computed += not is_there
        try:
            if computed > _MOST_COMPUTED and not is_there:
                raise InputError(
                    f"{folder.name} has no {TEST_FIELDS}; run `crossreg report` on its own folder to make it"
                )
            entries.append(Entry(group, label, row, load_run_fields(folder, progress=progress), ""))
        except InputError as error:
            entries.append(Entry(group, label, row, None, str(error)))
        entries += _forecast(group, label, row, folder)
    return entries


def _forecast(group: str, label: str, row: dict[str, Any], folder: Path) -> list[Entry]:
    """Return the forecasts of a run that `crossreg rollout` has stored, if there are any."""
    said = f"{label}, forecast"
    try:
        stored = read_forecast_fields(folder)
    except InputError as error:
        return [Entry(group, said, row, None, str(error), is_forecast=True)]
    return [] if stored is None else [Entry(group, said, row, stored, "", is_forecast=True)]


def embed(entries: Sequence[Entry], room: int) -> list[dict[str, Any]]:
    """Return entries for the page's script, in at most `room` bytes: with less of each, then with fewer entries."""
    stored = [entry.fields for entry in entries if entry.fields is not None]
    most = max((len(fields.trajectories) for fields in stored), default=1)
    whole = sum(_size(fields) for fields in stored)
    around = sum(_size(fields.windows) * len(fields.windows.trajectories) for fields in stored if fields.windows)
    in_planes = sum(_planes_size(fields.planes) for fields in stored if fields.planes)
    # The number of trajectories with whole planes: these take at most half of the room, unless the rest needs less.
    planes = next((n for n in range(most, 0, -1) if n * in_planes <= max(room / 2, room - most * whole)), 0)
    planes = planes or int(whole + in_planes <= room)
    # The number of trajectories of each run, and whether windows are kept.
    kept = [*((count, True) for count in range(most, 0, -1)), (1, False)]
    left = room - planes * in_planes
    count, windows = next((k for k in kept if k[0] * whole + k[1] * around <= left), (1, False))
    out, used = [], 0
    for entry in entries:
        shown = _about(entry) | {"why": entry.why, "trajectories": []}
        if entry.fields is not None:
            shown |= _embedded(entry.fields, count, windows, planes)
            size = len(json.dumps(shown))
            if used + size > room:
                why = "left out to keep this file small; a report of its folder alone shows them"
                shown, size = _about(entry) | {"why": why, "trajectories": []}, 0
            used += size
        out.append(shown)
    return out


def _size(part: StoredFields | Windows) -> int:
    """Return about how many bytes one trajectory, or one window, takes in the page."""
    numbers = 2 * len(_arrays(part)) + len(LEVELS)
    return int((part.truth[0].size * numbers + part.observed[0].size) * 4 / 3) + 2_000


def _planes_size(planes: Planes) -> int:
    """Return about how many bytes the planes of one trajectory take in the page."""
    return int((planes.truth[0].size * 2 * len(_arrays(planes)) + planes.observed[0].size) * 4 / 3) + 1_000


def _arrays(part: StoredFields | Windows | Planes) -> tuple[str, ...]:
    """Return the names of the stored arrays."""
    return _NAMES if part.gap_mean is None else (*_NAMES, "gap_mean")


def _about(entry: Entry) -> dict[str, Any]:
    row = entry.row
    coverage = {split: row[split]["coverage"] for split in ("test", "reg", "train") if row[split]}
    about = {"group": entry.group, "label": entry.label, "forecast": entry.is_forecast}
    return about | {"sigma": row["sigma"], "coverage": {} if entry.is_forecast else coverage}


def _embedded(fields: StoredFields, count: int, windows: bool, planes: int) -> dict[str, Any]:
    worst = fields.unaware[0].trajectory if fields.unaware else None
    order = sorted(range(len(fields.trajectories)), key=lambda i: int(fields.trajectories[i]) != worst)
    middle = [size // 2 for size in fields.space[1:]]
    stored = [_piece(fields, i, fields.steps, middle) for i in order[:count]]
    if windows and (parts := fields.windows) is not None:
        stored += [
            _piece(parts, i, parts.steps[i], parts.lines[i].tolist()) | {"window": True}
            for i in range(len(parts.trajectories))
        ]
    _, _, channels, points = fields.truth.shape
    shown = [piece["number"] for piece in stored]
    return {
        "trajectories": stored,
        "planes": [] if fields.planes is None else _planes(fields.planes, shown, planes),
        "channels": channels,
        "names": list(fields.names),
        "points": points,
        "space": list(fields.space),
        "scanned": fields.scanned,
        "pit": fields.pit.tolist(),
        "unaware": [_region(region) for region in fields.unaware],
        "aware": [_region(region) for region in fields.aware],
    }


def _piece(part: StoredFields | Windows, i: int, steps: Int[np.ndarray, " time"], line: list[int]) -> dict[str, Any]:
    """Return one trajectory, or a window of one, along a line."""
    return {
        "number": int(part.trajectories[i]),
        "steps": steps.tolist(),
        "line": line,
        "observed": base64_text(part.observed[i].astype("u1")),
        "offsets": base64_text(np.rint(part.offsets[:, i] * _OFFSET_STEPS).astype("i1")),
        **{name: _encoded(name, getattr(part, name)[i]) for name in _arrays(part)},
    }


def _planes(planes: Planes, shown: Sequence[int], count: int) -> list[dict[str, Any]]:
    """Return whole fields at a few steps of `count` trajectories: first of those that are shown, in their order."""
    numbers = planes.trajectories.tolist()
    chosen = [number for number in dict.fromkeys([*shown, *numbers]) if number in numbers][:count]
    return [
        {
            "number": number,
            "stride": planes.stride,
            "steps": planes.steps.tolist(),
            "sides": list(planes.truth.shape[3:]),
            "observed": base64_text(planes.observed[i].astype("u1")),
            **{name: _encoded(name, getattr(planes, name)[i]) for name in _arrays(planes)},
        }
        for number in chosen
        for i in [numbers.index(number)]
    ]


def _region(region: Region) -> dict[str, Any]:
    return region._asdict() | {"ratio": region.ratio if math.isfinite(region.ratio) else None}


def encode(values: Float[np.ndarray, "time channel *space"], *, centred: bool = False) -> dict[str, Any]:
    """Return an array as text, each channel in units of its largest value.

    With `centred`, the unit is the largest distance from the middle of the range: a pressure of 10⁵ ± 20 Pa keeps the
    digits of its spread. Values that are not finite are stored as no number.
    """
    finite = np.isfinite(values)
    others = tuple(axis for axis in range(values.ndim) if axis != 1)
    whole = values.astype(np.float64)
    low = np.where(finite, whole, np.inf).min(axis=others, keepdims=True)
    high = np.where(finite, whole, -np.inf).max(axis=others, keepdims=True)
    origin = np.zeros_like(low)
    np.add(low / 2, high / 2, out=origin, where=(low <= high) & centred)
    known = np.where(finite, whole - origin, 0.0)
    top = np.abs(known).max(axis=others, keepdims=True, initial=0.0)
    top[top == 0] = 1.0
    scaled = np.where(finite, np.rint(known * (32767 / top)), -32768)
    text = {"tops": top.ravel().tolist(), "data": base64_text(scaled.astype("<i2"))}
    return text | ({"origins": origin.ravel().tolist()} if centred else {})


def _encoded(name: str, values: np.ndarray) -> dict[str, Any]:
    return encode(values, centred=name in ("truth", "gap_mean"))


def constants() -> dict[str, Any]:
    """Return colours, and the normal scores of the stored quantiles and of every level in percent, for the script."""
    colors = {
        name: base64_text((mpl.colormaps[name](np.arange(256))[:, :3] * 255).round().astype("u1"))
        for name in ("viridis", "RdBu_r")
    }
    return {
        "colors": colors,
        "scores": norm.ppf(LEVELS).tolist(),
        "levels": [0.0, *norm.ppf(0.5 + np.arange(1, 99) / 200).tolist()],
        "offset_steps": _OFFSET_STEPS,
        "block": [BLOCK_STEPS, BLOCK_POINTS],
        "knows": KNOWS,
    }
