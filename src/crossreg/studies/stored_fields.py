r"""`test_fields.npz`: what a run says of some test trajectories at every point, and where in all of them it is worst.

The file is small. Values are float16 in units of a power of two near the truth's RMS, for each channel; the error and
not the mean, whose rounding would be larger than a small error. A quantile q is kept as (q − m)/√U_tot, to 1/24.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from crossreg.array_files import open_npz
from crossreg.errors import InputError
from crossreg.sealed import check_sealed, write_sealed
from crossreg.studies.regions import Region

TEST_FIELDS = "test_fields.npz"
# Bands of any level follow from these, nearly exactly, by interpolation over their normal scores.
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_FIELDS = ("truth", "error", "std_mu", "std_predictive", "std_generalization")
_AS_THEY_ARE = ("trajectories", "steps", "observed")
_WINDOW, _PLANE = "window_", "plane_"
_OFFSET_STEP = 1 / 24
_FORMAT = 1

Stored = Float[np.ndarray, "trajectory time channel x"]
Unit = Float[np.ndarray, "channel ..."]


class Windows(NamedTuple):
    """Some steps of a trajectory each, along a line: `lines` are its places on the other axes."""

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


class Planes(NamedTuple):
    """Whole 2-D fields of the first stored trajectory at a few steps; of 3-D ones the middle of the last axis.

    Of a fine grid every `stride`-th point is kept.
    """

    trajectory: int
    stride: int
    steps: Int[np.ndarray, " plane"]
    observed: Bool[np.ndarray, "plane x y"]
    truth: Float[np.ndarray, "plane channel x y"]
    error: Float[np.ndarray, "plane channel x y"]
    std_mu: Float[np.ndarray, "plane channel x y"]
    std_predictive: Float[np.ndarray, "plane channel x y"]
    std_generalization: Float[np.ndarray, "plane channel x y"]

    @property
    def std_total(self) -> Float[np.ndarray, "plane channel x y"]:
        """√U_tot, where U_tot = U_pred + U_gen."""
        return np.hypot(self.std_predictive, self.std_generalization)


class StoredFields(NamedTuple):
    """The content of a file. `steps` are the time steps that were predicted; step 0 is the initial field.

    `trajectories` and those of the regions are numbers in the test split, of which the first `scanned` were looked
    through. `space` is the whole grid.
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

    @property
    def mean(self) -> Stored:
        """The mean of the prediction, the truth and its error."""
        return self.truth + self.error

    @property
    def std_total(self) -> Stored:
        """√U_tot, where U_tot = U_pred + U_gen."""
        return np.hypot(self.std_predictive, self.std_generalization)

    @property
    def quantiles(self) -> Float[np.ndarray, "level trajectory time channel x"]:
        """Quantiles of the prediction at `LEVELS`."""
        return self.mean + self.std_total * self.offsets


def write_test_fields(path: Path, stored: StoredFields, *, announce: Callable[[Path], None] | None = None) -> None:
    """Writes the file in one move; `announce` as in `replacing`."""
    rms = np.sqrt(np.mean(np.square(stored.truth, dtype=np.float64), axis=(0, 1, 3)))
    # One for each channel: beside a pressure of 1e5 a velocity of 1 would have no digits left.
    units = [2.0 ** round(math.log2(size)) if 0 < size < math.inf else 1.0 for size in rms.tolist()]
    unit = np.asarray(units)[:, None]
    header = {
        "format": _FORMAT,
        "unit": units,
        "levels": LEVELS,
        "scanned": stored.scanned,
        "space": stored.space,
        "pit": stored.pit.tolist(),
        "unaware": [region._asdict() for region in stored.unaware],
        "aware": [region._asdict() for region in stored.aware],
    }
    arrays = _packed(stored, unit)
    if stored.windows is not None:
        windows = _packed(stored.windows, unit) | {"lines": stored.windows.lines}
        arrays |= {f"{_WINDOW}{name}": values for name, values in windows.items()}
    if (planes := stored.planes) is not None:
        header |= {"plane": [planes.trajectory, planes.stride]}
        fields = _in_units(planes, unit[..., None]) | {"steps": planes.steps, "observed": planes.observed}
        arrays |= {f"{_PLANE}{name}": values for name, values in fields.items()}
    write_sealed(path, arrays | {"header": np.array(json.dumps(header))}, compressed=True, announce=announce)


def _in_units(part: StoredFields | Windows | Planes, unit: Unit) -> dict[str, Any]:
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverged has anything
        return {name: (getattr(part, name) / unit).astype(np.float16) for name in _FIELDS}


def _packed(part: StoredFields | Windows, unit: Unit) -> dict[str, Any]:
    """Arrays as the file has them."""
    arrays = _in_units(part, unit)
    offsets = np.clip(np.rint(np.nan_to_num(part.offsets) / _OFFSET_STEP), -127, 127).astype(np.int8)
    return arrays | {name: getattr(part, name) for name in _AS_THEY_ARE} | {"offsets": offsets}


def _unpacked(file: Mapping[str, np.ndarray], unit: Unit, prefix: str = "") -> dict[str, np.ndarray]:
    """Arrays that fit each other, from those of the file; steps are those of all rows, or of each."""
    fields = {name: file[prefix + name].astype(np.float32) * unit for name in _FIELDS}
    fields["offsets"] = file[f"{prefix}offsets"].astype(np.float32) * np.float32(_OFFSET_STEP)
    fields |= {name: file[prefix + name] for name in _AS_THEY_ARE}
    count, times, _, points = fields["truth"].shape
    shapes = dict.fromkeys(_FIELDS, fields["truth"].shape) | {
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


def _planes(file: Mapping[str, np.ndarray], unit: Unit, trajectory: int, stride: int) -> Planes:
    """Planes that fit each other, from the arrays of the file."""
    fields = {name: file[_PLANE + name].astype(np.float32) * unit for name in _FIELDS}
    steps, observed = file[f"{_PLANE}steps"], file[f"{_PLANE}observed"]
    count, _, *sides = fields["truth"].shape
    fit = all(values.shape == fields["truth"].shape for values in fields.values())
    if not fit or len(sides) != 2 or observed.shape != (count, *sides) or steps.shape != (count,):
        raise ValueError("its planes do not fit each other")
    if not fields["truth"].size or steps.dtype.kind not in "iu":
        raise ValueError("its planes are empty, or have no steps")
    return Planes(int(trajectory), int(stride), steps, observed, **fields)


def read_test_fields(path: Path) -> StoredFields:
    """Reads a file that `write_test_fields` wrote."""
    check_sealed(path, "file of test fields")
    with open_npz(path) as archive:
        file = {name: archive.read(name) for name in archive.names}
    try:
        header = json.loads(str(file["header"]))
        if header["format"] != _FORMAT or tuple(header["levels"]) != LEVELS:
            raise ValueError("of another version")
        unit = np.asarray(header["unit"], np.float32).reshape(-1, 1)  # of older files one for all channels
        if len(unit) not in (1, file["truth"].shape[2]):
            raise ValueError("its channels have other units")
        fields = _unpacked(file, unit)
        windows = None
        if f"{_WINDOW}truth" in file:
            lines = file[f"{_WINDOW}lines"]
            windows = Windows(**_unpacked(file, unit, _WINDOW), lines=lines)
            if lines.shape != (len(windows.trajectories), len(header["space"]) - 1) or lines.dtype.kind not in "iu":
                raise ValueError("its windows have no lines")
        planes = _planes(file, unit[..., None], *header["plane"]) if "plane" in header else None
        pit, space = np.asarray(header["pit"], float), tuple(map(int, header["space"]))
        if pit.ndim != 1 or not (np.isfinite(pit) & (pit >= 0)).all():
            raise ValueError("its PIT values are no counts")
        return StoredFields(
            **fields,
            pit=pit,
            unaware=tuple(_region(stored, len(space)) for stored in header["unaware"]),
            aware=tuple(_region(stored, len(space)) for stored in header["aware"]),
            scanned=int(header["scanned"]),
            space=space,
            windows=windows,
            planes=planes,
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
