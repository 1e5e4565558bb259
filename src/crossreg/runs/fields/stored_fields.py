r"""The format of `test_fields.npz`: predictions of some test trajectories, and where in all of them they are worst.

`rollout_fields.npz` has the same format: a time step is then a lead of a forecast.

The file is small. Values are float16 in units of a power of two near the RMS of the channel's truth, less its mean
where that is far larger than its spread: pressures of 10⁵ Pa beside velocities keep their digits. The error is kept
in place of the mean, whose rounding would be larger than a small error. A quantile q is kept as (q − m)/√U_tot, to
1/24.

Where the truth is unknown, truth and error are NaN, and the mean is in an array of its own, `gap_mean`, which is there
only if there are such places. Files of older versions do not have it: their mean is NaN there.
"""

import contextlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from crossreg.errors import InputError, in_one_line
from crossreg.files.arrays import open_npz
from crossreg.files.sealed import check_sealed, write_sealed
from crossreg.runs.fields.regions import Region
from crossreg.runs.safeguards.manifest import entered, read_manifest

# Bands of any level follow from these nearly exactly, by interpolation over their normal scores.
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_FIELDS = ("truth", "error", "std_mu", "std_predictive", "std_generalization")
_GAP_MEAN = "gap_mean"
_AS_THEY_ARE = ("trajectories", "steps", "observed")
_WINDOW, _PLANE = "window_", "plane_"
_OFFSET_STEP = 1 / 24
_FORMAT = 1
# Beyond this many spreads from 0, a mean would take the digits of a float16.
_FAR = 8

Stored = Float[np.ndarray, "trajectory time channel x"]
Plane = Float[np.ndarray, "trajectory plane channel x y"]


def _mean_of(part: "Planes | StoredFields") -> np.ndarray:
    """The mean of the prediction, also where the truth is unknown."""
    mean = part.truth + part.error
    return mean if part.gap_mean is None else np.where(np.isnan(part.truth), part.gap_mean, mean)


def _std_of(part: "Planes | StoredFields") -> np.ndarray:
    """√U_tot, where U_tot = U_pred + U_gen."""
    return np.hypot(part.std_predictive, part.std_generalization)


class Windows(NamedTuple):
    """Windows of some steps of a trajectory, along a line; `lines` are the line's places on the other axes."""

    trajectories: Int[np.ndarray, " window"]
    steps: Int[np.ndarray, "window time"]
    lines: Int[np.ndarray, "window axis"]
    observed: Bool[np.ndarray, "window time x"]
    truth: Float[np.ndarray, "window time channel x"]
    error: Float[np.ndarray, "window time channel x"]
    std_mu: Float[np.ndarray, "window time channel x"]
    std_predictive: Float[np.ndarray, "window time channel x"]
    std_generalization: Float[np.ndarray, "window time channel x"]
    offsets: Float[np.ndarray, "level window time channel x"]
    gap_mean: Float[np.ndarray, "window time channel x"] | None = None


class Planes(NamedTuple):
    """Whole 2-D fields of stored trajectories at a few steps; of 3-D ones the middle of the last axis.

    Of a fine grid every `stride`-th point is kept.
    """

    trajectories: Int[np.ndarray, " trajectory"]
    stride: int
    steps: Int[np.ndarray, " plane"]
    observed: Bool[np.ndarray, "trajectory plane x y"]
    truth: Plane
    error: Plane
    std_mu: Plane
    std_predictive: Plane
    std_generalization: Plane
    gap_mean: Plane | None = None

    mean, std = property(_mean_of), property(_std_of)


class StoredFields(NamedTuple):
    """The content of a file. `steps` are the time steps that were predicted; step 0 is the initial field.

    `trajectories` and those of the regions are numbers in the test split, of which the first `scanned` were looked
    through. `space` is the whole grid; `names` are those of the channels, where data have any.
    """

    trajectories: Int[np.ndarray, " trajectory"]
    steps: Int[np.ndarray, " time"]
    observed: Bool[np.ndarray, "trajectory time x"]
    truth: Stored
    error: Stored
    std_mu: Stored
    std_predictive: Stored
    std_generalization: Stored
    offsets: Float[np.ndarray, "level trajectory time channel x"]
    pit: Float[np.ndarray, " bin"]
    unaware: tuple[Region, ...]
    aware: tuple[Region, ...]
    scanned: int
    space: tuple[int, ...]
    windows: Windows | None = None
    planes: Planes | None = None
    gap_mean: Stored | None = None
    names: tuple[str, ...] = ()

    mean, std = property(_mean_of), property(_std_of)

    @property
    def quantiles(self) -> Float[np.ndarray, "level trajectory time channel x"]:
        """Quantiles of the prediction at `LEVELS`."""
        return self.mean + self.std * self.offsets


def write_stored_fields(
    path: Path, stored: StoredFields, *, identity: str = "-", announce: Callable[[Path], None] | None = None
) -> None:
    """Write the file in one move.

    Args:
        path: The file.
        stored: Its content.
        identity: The identity in its seal, which is that of the run.
        announce: As in `replacing`.
    """
    unit = _unit_of(stored.truth)
    header = {
        "format": _FORMAT,
        "unit": [scale for scale, _ in unit],
        "origin": [origin for _, origin in unit],
        "levels": LEVELS,
        "scanned": stored.scanned,
        "space": stored.space,
        "pit": stored.pit.tolist(),
        "unaware": [region._asdict() for region in stored.unaware],
        "aware": [region._asdict() for region in stored.aware],
        "names": stored.names,
    }
    arrays = _packed(stored, unit)
    if stored.windows is not None:
        windows = _packed(stored.windows, unit) | {"lines": stored.windows.lines}
        arrays |= {f"{_WINDOW}{name}": values for name, values in windows.items()}
    if (planes := stored.planes) is not None:
        header |= {"planes": {"trajectories": planes.trajectories.tolist(), "stride": planes.stride}}
        fields = _in_units(planes, unit) | {"steps": planes.steps, "observed": planes.observed}
        arrays |= {f"{_PLANE}{name}": values for name, values in fields.items()}
    arrays["header"] = np.array(json.dumps(header))
    write_sealed(path, arrays, identity=identity, compressed=True, announce=announce)


def write_run_fields(folder: Path, name: str, stored: StoredFields, *, identity: str) -> None:
    """Write a file of a run folder, and list it in the manifest where the folder has one."""
    with contextlib.ExitStack() as held:
        entry = None if read_manifest(folder) is None else held.enter_context(entered(folder, name))
        write_stored_fields(folder / name, stored, identity=identity, announce=entry)


# The scale and the origin of each channel.
_Unit = list[tuple[float, float]]


def _unit_of(truth: Stored) -> _Unit:
    """Return the units of each channel; the origin is 0 unless the mean is many spreads away from it."""
    unit = []
    for channel in np.moveaxis(truth, 2, 0).astype(np.float64):
        values = channel[np.isfinite(channel)]  # NaN was not measured
        if not values.size:
            unit.append((1.0, 0.0))
            continue
        mean, spread = float(values.mean()), float(values.std())
        origin = float(np.float32(mean)) if math.isfinite(mean) and abs(mean) > _FAR * spread > 0 else 0.0
        rms = float(np.sqrt(np.mean(np.square(values - origin))))
        unit.append((2.0 ** round(math.log2(rms)) if 0 < rms < math.inf else 1.0, origin))
    return unit


def _along(unit: _Unit, name: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scale and origin of each channel, along the third axis; differences of fields have no origin."""
    if values.ndim < 3 or len(unit) not in (1, values.shape[2]):
        raise ValueError("its units are those of other channels")
    scale, origin = (
        np.asarray(part, np.float32).reshape(-1, *(1,) * (values.ndim - 3)) for part in zip(*unit, strict=True)
    )
    return scale, origin if name in ("truth", _GAP_MEAN) else 0 * origin


def _in_units(part: StoredFields | Windows | Planes, unit: _Unit) -> dict[str, Any]:
    fields = {}
    for name in (*_FIELDS, *([] if part.gap_mean is None else [_GAP_MEAN])):
        scale, origin = _along(unit, name, values := getattr(part, name))
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverged may hold any number
            fields[name] = ((values - origin) / scale).astype(np.float16)
    return fields


def _from_units(file: Mapping[str, np.ndarray], unit: _Unit, prefix: str) -> dict[str, np.ndarray]:
    fields = {}
    for name in (*_FIELDS, *([_GAP_MEAN] if prefix + _GAP_MEAN in file else [])):
        scale, origin = _along(unit, name, values := file[prefix + name].astype(np.float32))
        fields[name] = values * scale + origin
    return fields


def _packed(part: StoredFields | Windows, unit: _Unit) -> dict[str, Any]:
    """Return arrays as the file has them."""
    arrays = _in_units(part, unit)
    offsets = np.clip(np.rint(np.nan_to_num(part.offsets) / _OFFSET_STEP), -127, 127).astype(np.int8)
    return arrays | {name: getattr(part, name) for name in _AS_THEY_ARE} | {"offsets": offsets}


def _unpacked(file: Mapping[str, np.ndarray], unit: _Unit, prefix: str = "") -> dict[str, np.ndarray]:
    """Return the arrays of the file if they fit each other; steps are those of all rows, or of each window."""
    fields = _from_units(file, unit, prefix)
    fields["offsets"] = file[f"{prefix}offsets"].astype(np.float32) * np.float32(_OFFSET_STEP)
    fields |= {name: file[prefix + name] for name in _AS_THEY_ARE}
    count, times, _, points = fields["truth"].shape
    shapes = {name: fields["truth"].shape for name in (*_FIELDS, _GAP_MEAN) if name in fields} | {
        "offsets": (len(LEVELS), *fields["truth"].shape),
        "trajectories": (count,),
        "steps": (count, times) if prefix else (times,),
        "observed": (count, times, points),
    }
    if any(fields[name].shape != shape for name, shape in shapes.items()):
        raise ValueError("its arrays do not fit each other")
    if not fields["truth"].size or any(fields[name].dtype.kind not in "iu" for name in ("trajectories", "steps")):
        raise ValueError("it has no trajectories, or no whole numbers for them and their steps")
    return fields


def _planes(file: Mapping[str, np.ndarray], unit: _Unit, header: Mapping[str, Any]) -> Planes | None:
    """Return the planes of the file if its arrays fit each other."""
    if "plane" in header:  # of older versions: one trajectory, without an axis for it
        number, stride = header["plane"]
        numbers = [number]
        file = {name: values[None] if name != f"{_PLANE}steps" else values for name, values in file.items()}
    elif "planes" in header:
        numbers, stride = header["planes"]["trajectories"], header["planes"]["stride"]
    else:
        return None
    fields = _from_units(file, unit, _PLANE)
    trajectories, steps, observed = np.asarray(numbers), file[f"{_PLANE}steps"], file[f"{_PLANE}observed"]
    count, times, _, *sides = fields["truth"].shape
    fit = all(values.shape == fields["truth"].shape for values in fields.values()) and trajectories.shape == (count,)
    if not fit or len(sides) != 2 or observed.shape != (count, times, *sides) or steps.shape != (times,):
        raise ValueError("its planes do not fit each other")
    if not fields["truth"].size or any(numbers.dtype.kind not in "iu" for numbers in (trajectories, steps)):
        raise ValueError("its planes are empty, or have no trajectories or steps")
    return Planes(trajectories, int(stride), steps, observed, **fields)


def read_stored_fields(path: Path, *, identity: str | None = None) -> StoredFields:
    """Read a file that `write_stored_fields` wrote.

    Args:
        path: The file.
        identity: The identity that its seal must have, if known.

    Raises:
        InputError: If the file is corrupted, or holds the predictions of another run.
    """
    own = check_sealed(path, "file of test fields")
    if identity is not None and own not in (None, "-", identity):  # older versions did not store an identity
        raise InputError(f"{path}: holds the predictions of another model ({own}, not {identity})")
    with open_npz(path, follow_links=False) as archive:
        file = {name: archive.read(name) for name in archive.names}
    try:
        header = json.loads(str(file["header"]))
        if header["format"] != _FORMAT or tuple(header["levels"]) != LEVELS:
            raise ValueError("it is of another version")
        # Files of older versions have one unit for all channels.
        scales = np.atleast_1d(header["unit"]).astype(float).tolist()
        unit = list(zip(scales, header.get("origin", [0.0] * len(scales)), strict=True))
        fields = _unpacked(file, unit)
        windows = None
        if f"{_WINDOW}truth" in file:
            lines = file[f"{_WINDOW}lines"]
            windows = Windows(**_unpacked(file, unit, _WINDOW), lines=lines)
            if lines.shape != (len(windows.trajectories), len(header["space"]) - 1) or lines.dtype.kind not in "iu":
                raise ValueError("its windows have no lines")
        planes = _planes(file, unit, header)
        pit, space = np.asarray(header["pit"], float), tuple(map(int, header["space"]))
        if pit.ndim != 1 or not (np.isfinite(pit) & (pit >= 0)).all():
            raise ValueError("its PIT values are not counts")
        names = tuple(in_one_line(str(name)) for name in header.get("names", ()))
        if len(names) not in (0, fields["truth"].shape[2]):
            raise ValueError("its names are those of other channels")
        return StoredFields(
            **fields,
            pit=pit,
            unaware=tuple(_region(stored, len(space)) for stored in header["unaware"]),
            aware=tuple(_region(stored, len(space)) for stored in header["aware"]),
            scanned=int(header["scanned"]),
            space=space,
            windows=windows,
            planes=planes,
            names=names,
        )
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error}); expected what `crossreg train` writes") from error


def _region(stored: dict[str, Any], dimensions: int) -> Region:
    (first, last), points = stored["steps"], tuple((int(a), int(b)) for a, b in stored["points"])
    steps = (int(first), int(last))
    error, std = float(stored["error"]), float(stored["std"])
    if not (0 <= error < math.inf and 0 <= std < math.inf) or not points or len(points) != dimensions:
        raise ValueError("a region has no finite error and standard deviation, or other axes than the field")
    return Region(int(stored["trajectory"]), int(stored["channel"]), steps, points, error, std)
