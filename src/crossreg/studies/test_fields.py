r"""What a run says of some test trajectories at every point, and where in all of them it is worst.

`test_fields.npz` in a run folder holds, for a few test trajectories, the truth, the error of the mean m, Std_ω[μ],
√U_pred, √U_gen and some quantiles of the prediction; and, over all test trajectories, the histogram of PIT values and
the regions where the run is wrong (`studies/regions.py`).

The file is small. Values are float16 in units of a power of two near the truth's RMS; the error and not the mean, whose
rounding would be larger than a small error. A quantile q is kept as (q − m)/√U_tot, to 1/24. Of a field in more than
one dimension a line is kept, along the first axis through the middle of the others; of a long or wide one fewer
trajectories, then fewer times. The noise is that of the scores.
"""

import contextlib
import json
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from crossreg.data.files.streamed import StreamedPairs, hold
from crossreg.data.pairs import AbstractPairs, Pairs
from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.metrics.evaluation import Predictor, SurrogatePredictor, evaluation_key
from crossreg.predictive import Predictive
from crossreg.report.progress import CountDisplay
from crossreg.studies.regions import Region, join, rank_regions, scan, sums_of
from crossreg.studies.run_folder import SCORED_PAIRS, load_run

TEST_FIELDS = "test_fields.npz"
# Bands of any level follow from these, nearly exactly, by interpolation over their normal scores.
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_MOST_TRAJECTORIES = 3
_MOST_POINTS = 96_000
_POINTS_PER_CALL = 2**12
_FIELDS = ("truth", "error", "std_mu", "std_predictive", "std_generalization")
_OFFSET_STEP = 1 / 24
# Where the distribution function is evaluated, in standard deviations from the mean.
_GRID = np.linspace(-5, 5, 41)
_FORMAT = 1
# What NumPy, zipfile and zlib make of bytes that are no such file.
_UNREADABLE = (
    OSError, KeyError, ValueError, TypeError, EOFError, BadZipFile, zlib.error, NotImplementedError, RuntimeError,
    SyntaxError, OverflowError, MemoryError,
)  # fmt: skip

Stored = Float[np.ndarray, "trajectory time channel x"]


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


def compute_test_fields(
    predictor: Predictor,
    pairs: Pairs | StreamedPairs,
    *,
    trajectories: int = _MOST_TRAJECTORIES,
    scanned: int | None = None,
    progress: bool = False,
) -> StoredFields:
    """Looks through the first `scanned` trajectories of a split (all), and keeps the fields of a few `trajectories`.

    These are the first ones, and in place of the last of them the one with the region that is furthest off.
    """
    num_rows, key = int(pairs.num_rows), evaluation_key(0)
    if isinstance(pairs, StreamedPairs):  # not all of a file that is too large for memory
        scanned = min(scanned or num_rows, max(1, SCORED_PAIRS // pairs.horizon))
    scanned = min(scanned or num_rows, num_rows)
    points = pairs.horizon * math.prod(pairs.field_shape[:2])
    rows = list(range(int(np.clip(_MOST_POINTS // points, 1, min(trajectories, num_rows)))))
    times = np.arange(0, pairs.horizon, math.ceil(points / _MOST_POINTS))
    if scanned <= len(rows) and len(times) == pairs.horizon:  # one program for both: what takes long is to compile it
        fields, sums = _fields(predictor, pairs, key, rows, times, progress)
        found = join([part[: scanned * pairs.horizon] for part in sums], pairs.horizon)
    else:
        found = scan(predictor, pairs.of(range(scanned)), key=key, progress=progress)
        fields = None
    unaware, aware = rank_regions(found, pairs.horizon, pairs.field_shape[1:])
    if fields is None:
        if unaware and unaware[0].trajectory not in rows and len(rows) > 1:
            rows[-1] = unaware[0].trajectory
        fields, _ = _fields(predictor, pairs, key, rows, times, progress)
    return StoredFields(
        trajectories=np.asarray(rows),
        steps=times + 1,
        **fields,
        pit=found.pit,
        unaware=unaware,
        aware=aware,
        scanned=scanned,
        space=pairs.field_shape[1:],
    )


def _fields(
    predictor: Predictor,
    pairs: Pairs | StreamedPairs,
    key: PRNGKeyArray,
    rows: Sequence[int],
    times: Int[np.ndarray, " time"],
    progress: bool,
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Fields, offsets of quantiles and masks along a line, for some trajectories and times; and the pairs' sums."""
    index = (np.asarray(rows)[:, None] * pairs.horizon + times).ravel()
    chunk = int(np.clip(_POINTS_PER_CALL // math.prod(pairs.field_shape), 1, len(index)))
    parts, sums = [], []
    with CountDisplay("predicting test fields", enabled=progress) as display:
        for start in range(0, len(index), chunk):
            # Filled up with the last pair: one program serves all chunks.
            numbers = index[np.minimum(np.arange(start, start + chunk), len(index) - 1)]
            ready = hold(pairs, numbers, chunk)
            fields, own = jax.device_get(_fields_of(predictor, ready, key, jnp.asarray(numbers)))
            parts.append({name: values[: len(index) - start] for name, values in fields.items()})
            sums.append([values[: len(index) - start] for values in own])
            display.update(min(start + chunk, len(index)), len(index))
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    cut = {name: values.reshape(len(rows), len(times), *values.shape[1:]) for name, values in whole.items()}
    joined = [np.concatenate(values) for values in zip(*sums, strict=True)]
    return cut | {"offsets": np.moveaxis(cut["offsets"], 2, 0)}, joined


@eqx.filter_jit
def _fields_of(
    predictor: Predictor, pairs: AbstractPairs, key: PRNGKeyArray, index: Int[Array, " batch"]
) -> tuple[dict[str, Float[Array, "batch ..."] | Bool[Array, "batch ..."]], tuple[Float[Array, "batch ..."], ...]]:
    batch = pairs.gather(index)
    mixture = predictor(batch, jax.vmap(lambda i: jax.random.fold_in(key, i))(index))
    fields = {
        "truth": batch.y,
        "error": mixture.mean - batch.y,
        "std_mu": jnp.sqrt(mixture.var_of_means),
        "std_predictive": mixture.std_predictive,
        "std_generalization": mixture.std_generalization,
        "offsets": jnp.moveaxis(quantile_offsets(mixture), 0, 1),
        "observed": batch.mask[:, 0],
    }
    line = (..., *(size // 2 for size in batch.y.shape[3:]))
    return {name: values[line] for name, values in fields.items()}, sums_of(mixture, batch)


def quantile_offsets(mixture: Predictive) -> Float[Array, "level *shape"]:
    r"""$(q - m)/\sqrt{U_{tot}}$ for the quantiles at `LEVELS`.

    The normal score of the distribution function, $\Phi^{-1}(F(m + g\sqrt{U_{tot}}))$, is nearly linear in g, so that
    it is inverted by interpolation on a grid. A search for each level would take ten times as long.
    """
    mean, std = mixture.mean, mixture.std
    grid = jnp.asarray(_GRID, mean.dtype)
    # float32 comes no nearer to 1.
    cdf = jax.lax.map(lambda g: jnp.clip(mixture.cdf(mean + g * std), 1e-7, 1 - 1e-7), grid)
    scores = jnp.reshape(ndtri(cdf), (len(_GRID), -1))
    wanted = ndtri(jnp.asarray(LEVELS, mean.dtype))
    offsets = jax.vmap(lambda score: jnp.interp(wanted, score, grid), in_axes=1, out_axes=1)(scores)
    return offsets.reshape(len(LEVELS), *mean.shape)


def write_test_fields(path: Path, stored: StoredFields) -> None:
    """Writes the file in one move."""
    rms = float(np.sqrt(np.mean(np.square(stored.truth, dtype=np.float64))))
    unit = 2.0 ** round(math.log2(rms)) if 0 < rms < math.inf else 1.0
    header = {
        "format": _FORMAT,
        "unit": unit,
        "levels": LEVELS,
        "scanned": stored.scanned,
        "space": stored.space,
        "pit": stored.pit.tolist(),
        "unaware": [region._asdict() for region in stored.unaware],
        "aware": [region._asdict() for region in stored.aware],
    }
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverged has anything
        arrays: dict[str, Any] = {name: (getattr(stored, name) / unit).astype(np.float16) for name in _FIELDS}
    offsets = np.clip(np.rint(np.nan_to_num(stored.offsets) / _OFFSET_STEP), -127, 127).astype(np.int8)
    arrays |= {name: getattr(stored, name) for name in ("trajectories", "steps", "observed")} | {"offsets": offsets}
    with replacing(path) as file:
        np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)


def read_test_fields(path: Path) -> StoredFields:
    """Reads a file that `write_test_fields` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            if header["format"] != _FORMAT or tuple(header["levels"]) != LEVELS:
                raise ValueError("of another version")
            fields = {name: file[name].astype(np.float32) * np.float32(header["unit"]) for name in _FIELDS}
            fields["offsets"] = file["offsets"].astype(np.float32) * np.float32(_OFFSET_STEP)
            fields |= {name: file[name] for name in ("trajectories", "steps", "observed")}
        count, times, _, points = fields["truth"].shape
        shapes = dict.fromkeys(_FIELDS, fields["truth"].shape) | {
            "offsets": (len(LEVELS), *fields["truth"].shape),
            "trajectories": (count,),
            "steps": (times,),
            "observed": (count, times, points),
        }
        if any(fields[name].shape != shape for name, shape in shapes.items()):
            raise ValueError("its arrays do not fit each other")
        if not fields["truth"].size or any(fields[name].dtype.kind not in "iu" for name in ("trajectories", "steps")):
            raise ValueError("it has no trajectories, or no whole numbers for them and their steps")
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
        )
    except _UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"not readable ({error})"
        raise InputError(f"{path}: {reason}; expected what `crossreg train` writes") from error


def _region(stored: dict[str, Any], dimensions: int) -> Region:
    (first, last), points = stored["steps"], tuple((int(a), int(b)) for a, b in stored["points"])
    steps = (int(first), int(last))
    error, std = float(stored["error"]), float(stored["std"])
    if not (0 <= error < math.inf and 0 <= std < math.inf) or not points or len(points) != dimensions:
        raise ValueError("a region has no finite error and standard deviation, or other axes than the field")
    return Region(int(stored["trajectory"]), int(stored["channel"]), steps, points, error, std)


def load_run_fields(folder: Path, *, compute: bool = True, progress: bool = False) -> StoredFields:
    """The fields of a run. A folder without the file gets it now, where its model and its data are at hand."""
    path = folder / TEST_FIELDS
    if path.exists() or not compute:
        return read_test_fields(path)
    run = load_run(folder)
    predictor = SurrogatePredictor(run.model, run.config.train.evaluation_samples)
    stored = compute_test_fields(predictor, run.load_data().test, progress=progress)
    with contextlib.suppress(OSError):  # a folder that may only be read: the fields are used all the same
        write_test_fields(path, stored)
    return stored
