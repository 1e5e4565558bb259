r"""Predictions of some test trajectories at every point, and where in all of them a run is worst.

`test_fields.npz` in a run folder holds, for a few test trajectories, the truth, the error of the mean m, Std_ω[μ],
√U_pred, √U_gen and some quantiles of the prediction; and, over all test trajectories, the histogram of PIT values and
the regions where the run is wrong (`runs/fields/regions.py`).

For a region in another trajectory, or off the line that is kept, the file holds a window: some steps around the region,
along a line through its middle. So every region that is listed can be shown.

Of a field in more than one dimension a line is kept, along the first axis through the middle of the others, and the
whole plane at the first, the middle and the last step; of a long or wide one fewer trajectories, then fewer times. The
noise is that of the scores.

The prediction is kept at every point. Where a target is unknown, truth and error are NaN: where it was not measured,
and, with `score_on="observed"`, where the files' own mask hides it, since any value may stand there. A point that is
hidden otherwise has a truth, whether it is scored or not. `runs/fields/stored_fields.py` has the format of the file.
"""

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from crossreg.data.keys import evaluation_key
from crossreg.data.pairs import GridPairs
from crossreg.errors import InputError
from crossreg.predictive.in_units import Predictive, error_of, standardized
from crossreg.predictors.predictor import Predictor, SurrogatePredictor
from crossreg.progress.display import CountDisplay
from crossreg.runs.fields.regions import Region, join, rank_regions, scan, sums_of
from crossreg.runs.fields.stored_fields import (
    LEVELS,
    Planes,
    StoredFields,
    Windows,
    read_stored_fields,
    write_run_fields,
)
from crossreg.runs.file_names import TEST_FIELDS
from crossreg.runs.final_scores import SCORED_PAIRS
from crossreg.runs.run_folder import channel_names, identity_of, load_run
from crossreg.runs.safeguards.manifest import check_files

_MOST_TRAJECTORIES = 3
_MOST_POINTS = 96_000
_WINDOW_STEPS = 25
_MOST_PER_SIDE = 128  # points of a plane
_MOST_IN_PLANES = 300_000  # points of all planes: 3 MB
_POINTS_PER_CALL = 2**12
# Where the distribution function is evaluated, in standard deviations from the mean.
_GRID = np.linspace(-5, 5, 41)


class _Source(NamedTuple):
    """A predictor, the split that it predicts, the key of the noise, and whether to show progress."""

    predictor: Predictor
    pairs: GridPairs
    key: PRNGKeyArray
    progress: bool


def compute_test_fields(
    predictor: Predictor,
    pairs: GridPairs,
    *,
    trajectories: int = _MOST_TRAJECTORIES,
    scanned: int | None = None,
    names: tuple[str, ...] = (),
    progress: bool = False,
) -> StoredFields:
    """Predict a few trajectories of a split, and find where in all of them the predictor is wrong.

    Args:
        predictor: The predictor.
        pairs: The split.
        trajectories: How many trajectories to keep at most: the first ones, the last of them replaced by the one with
            the worst region.
        scanned: How many trajectories to search for regions, by default all.
        names: The names of the channels.
        progress: Whether to show how far it is.
    """
    source = _Source(predictor, pairs, evaluation_key(0), progress)
    num_rows = int(pairs.num_rows)
    if pairs.in_files:  # not all of a file that is too large for memory
        scanned = min(scanned or num_rows, max(1, SCORED_PAIRS // pairs.horizon))
    scanned = min(scanned or num_rows, num_rows)
    points = pairs.horizon * math.prod(pairs.field_shape[:2])
    rows = list(range(int(np.clip(_MOST_POINTS // points, 1, min(trajectories, num_rows)))))
    times = np.arange(0, pairs.horizon, math.ceil(points / _MOST_POINTS))
    if scanned <= len(rows) and len(times) == pairs.horizon:  # one program for both, since compiling takes longest
        fields, sums = _whole_fields(source, rows, times)
        found = join([part[: scanned * pairs.horizon] for part in sums], pairs.horizon)
    else:
        found = scan(predictor, pairs.of(range(scanned)), key=source.key, progress=progress)
        fields = None
    unaware, aware = rank_regions(found, pairs.horizon, pairs.field_shape[1:])
    if fields is None:
        if unaware and unaware[0].trajectory not in rows and len(rows) > 1:
            rows[-1] = unaware[0].trajectory
        fields, _ = _whole_fields(source, rows, times)
    return StoredFields(
        trajectories=np.asarray(rows),
        steps=times + 1,
        **fields,
        pit=found.pit,
        unaware=unaware,
        aware=aware,
        scanned=scanned,
        space=pairs.field_shape[1:],
        windows=_windows(source, [*unaware, *aware], rows),
        planes=_planes(source, rows) if len(pairs.field_shape) > 2 else None,
        names=names,
    )


def _whole_fields(
    source: _Source, rows: Sequence[int], times: Int[np.ndarray, " time"]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Return fields of some trajectories and times along the line through the middle, and the pairs' sums."""
    index = np.asarray(rows)[:, None] * source.pairs.horizon + times
    middle = _middle(source.pairs.field_shape[1:])
    return _fields(source, index, np.broadcast_to(middle, (*index.shape, len(middle))))


def _middle(space: tuple[int, ...]) -> Int[np.ndarray, " axis"]:
    """Return the place of the line that is kept, on all axes but the first."""
    return np.asarray([size // 2 for size in space[1:]], int)


def _windows(source: _Source, regions: Sequence[Region], rows: Sequence[int]) -> Windows | None:
    """Return windows for regions that the stored trajectories do not show, in the order of the list, or None."""
    pairs = source.pairs
    middle, length = _middle(pairs.field_shape[1:]), min(_WINDOW_STEPS, pairs.horizon)
    chosen: list[tuple[int, int, tuple[int, ...]]] = []  # a trajectory, the first time, a line

    def shows(trajectory: int, first: int, line: Sequence[int], region: Region) -> bool:
        inside = first < region.steps[0] and region.steps[1] <= first + length
        on_line = all(a <= at <= b for at, (a, b) in zip(line, region.points[1:], strict=True))
        return trajectory == region.trajectory and inside and on_line

    for region in regions:
        is_stored = region.trajectory in rows and shows(region.trajectory, region.steps[0] - 1, middle.tolist(), region)
        if not is_stored and not any(shows(*window, region) for window in chosen):
            first = int(np.clip(sum(region.steps) // 2 - length // 2 - 1, 0, pairs.horizon - length))
            chosen.append((region.trajectory, first, tuple((a + b) // 2 for a, b in region.points[1:])))
    chosen = chosen[: max(1, _MOST_POINTS // (length * math.prod(pairs.field_shape[:2])))]
    if not chosen:
        return None
    trajectories, firsts, lines = (np.asarray(part, int) for part in zip(*chosen, strict=True))
    times = firsts[:, None] + np.arange(length)
    line = np.broadcast_to(lines.reshape(len(chosen), 1, -1), (*times.shape, len(middle)))
    fields, _ = _fields(source, trajectories[:, None] * pairs.horizon + times, line)
    return Windows(trajectories, times + 1, lines.reshape(len(chosen), -1), **fields)


def _planes(source: _Source, rows: Sequence[int]) -> Planes:
    """Return the first, the middle and the last step of trajectories in a plane, one by one: they may be large."""
    predictor, pairs, key, _ = source
    times = np.unique([0, pairs.horizon // 2, pairs.horizon - 1])
    channels, *space = pairs.field_shape
    stride = math.ceil(max(space[:2]) / _MOST_PER_SIDE)
    cut = (..., slice(None, None, stride), slice(None, None, stride), *(size // 2 for size in space[2:]))
    points = len(times) * channels * math.prod(math.ceil(size / stride) for size in space[:2])
    count = int(np.clip(_MOST_IN_PLANES // points, 1, len(rows)))
    # The last may be the one with the worst region.
    kept = np.asarray([*rows[: count - 1], rows[-1]] if count > 1 else rows[:1])
    parts = []
    for number in (kept[:, None] * pairs.horizon + times).ravel():
        index = np.asarray([number])
        fields = _values_of(predictor, pairs.hold(index, 1), key, jnp.asarray(index))
        parts.append({name: np.asarray(values[cut][0]) for name, values in fields.items()})
    whole = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    shaped = {name: values.reshape(len(kept), len(times), *values.shape[1:]) for name, values in whole.items()}
    return Planes(kept, stride, times + 1, **_only_gaps(shaped))


def _only_gaps(fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return fields without the mean at gaps where there are no gaps."""
    return fields if np.isnan(fields["truth"]).any() else {k: v for k, v in fields.items() if k != "gap_mean"}


def _fields(
    source: _Source, index: Int[np.ndarray, "row time"], line: Int[np.ndarray, "row time axis"]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Return fields, offsets of quantiles and masks of some pairs along a line each, and the pairs' sums."""
    predictor, pairs, key, progress = source
    shape, index, line = index.shape, index.ravel(), line.reshape(index.size, -1)
    # The same size for windows and for whole trajectories, so that one program serves both.
    chunk = int(np.clip(_POINTS_PER_CALL // math.prod(pairs.field_shape), 1, pairs.horizon))
    parts, sums = [], []
    with CountDisplay("predicting test fields", enabled=progress) as display:
        for start in range(0, len(index), chunk):
            # Padded with the last pair, so that one program serves all chunks.
            numbers = np.minimum(np.arange(start, start + chunk), len(index) - 1)
            arguments = (jnp.asarray(index[numbers]), jnp.asarray(line[numbers]))
            ready = pairs.hold(index[numbers], chunk)
            fields, own = jax.device_get(_fields_of(predictor, ready, key, *arguments))
            parts.append({name: values[: len(index) - start] for name, values in fields.items()})
            sums.append([values[: len(index) - start] for values in own])
            display.update(min(start + chunk, len(index)), len(index))
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    cut = {name: values.reshape(*shape, *values.shape[1:]) for name, values in whole.items()}
    joined = [np.concatenate(values) for values in zip(*sums, strict=True)]
    return _only_gaps(cut) | {"offsets": np.moveaxis(cut["offsets"], 2, 0)}, joined


@eqx.filter_jit
def _fields_of(
    predictor: Predictor,
    pairs: GridPairs,
    key: PRNGKeyArray,
    index: Int[Array, " batch"],
    line: Int[Array, "batch axis"],
) -> tuple[dict[str, Float[Array, "batch ..."] | Bool[Array, "batch ..."]], tuple[Float[Array, "batch ..."], ...]]:
    fields, mixture, batch = _predicted(predictor, pairs, key, index)
    fields |= {"offsets": jnp.moveaxis(quantile_offsets(mixture), 0, 1)}
    along = jax.vmap(lambda values, at: values[(..., *(at[axis] for axis in range(line.shape[1])))])
    return {name: along(values, line) for name, values in fields.items()}, sums_of(mixture, batch)


@eqx.filter_jit
def _values_of(
    predictor: Predictor, pairs: GridPairs, key: PRNGKeyArray, index: Int[Array, " batch"]
) -> dict[str, Float[Array, "batch ..."] | Bool[Array, "batch ..."]]:
    return _predicted(predictor, pairs, key, index)[0]


def _predicted(predictor: Predictor, pairs: GridPairs, key: PRNGKeyArray, index: Int[Array, " batch"]):
    """Return fields of some pairs, with the prediction and the pairs themselves."""
    batch = pairs.gather(index)
    mixture = predictor(batch, jax.vmap(lambda i: jax.random.fold_in(key, i))(index))
    known = pairs.known(index)
    # A value that was not measured is no truth: shown as 0 it would look like an error.
    truth = jnp.where(known, batch.y, jnp.nan)
    fields = {
        "truth": truth,
        "error": error_of(mixture, truth),
        "gap_mean": jnp.where(known, jnp.nan, mixture.mean),
        "std_mu": mixture.std_of_means,
        "std_predictive": mixture.std_predictive,
        "std_generalization": mixture.std_generalization,
        "observed": batch.mask[:, 0],
    }
    return fields, mixture, batch


def quantile_offsets(mixture: Predictive) -> Float[Array, "level *shape"]:
    r"""$(q - m)/\sqrt{U_{tot}}$ for the quantiles at `LEVELS`.

    The normal score of the distribution function, $\Phi^{-1}(F(m + g\sqrt{U_{tot}}))$, is nearly linear in g, so that
    it is inverted by interpolation on a grid. A search for each level would take ten times as long.
    """
    mixture, mean = standardized(mixture, mixture.mean)
    std = mixture.std
    grid = jnp.asarray(_GRID, mean.dtype)
    # float32 comes no nearer to 1.
    cdf = jax.lax.map(lambda g: jnp.clip(mixture.cdf(mean + g * std), 1e-7, 1 - 1e-7), grid)
    scores = jnp.reshape(ndtri(cdf), (len(_GRID), -1))
    wanted = ndtri(jnp.asarray(LEVELS, mean.dtype))
    offsets = jax.vmap(lambda score: jnp.interp(wanted, score, grid), in_axes=1, out_axes=1)(scores)
    return offsets.reshape(len(LEVELS), *mean.shape)


def load_run_fields(folder: Path, *, compute: bool = True, progress: bool = False) -> StoredFields:
    """Load the fields of a run.

    Args:
        folder: The folder of the run.
        compute: Whether to compute and store them where the file is missing, which needs the model and the data.
        progress: Whether to show how far it is.

    Raises:
        InputError: If the file is corrupted, or can neither be read nor made.
    """
    path = folder / TEST_FIELDS
    own = None
    with contextlib.suppress(InputError):  # of an older version, which stored no identity
        own = identity_of(folder)
    if path.exists() or not compute:
        check_files(folder, [TEST_FIELDS])
        stored = read_stored_fields(path, identity=own)
        return stored if stored.names else _named(stored, folder)
    run = load_run(folder)
    predictor = SurrogatePredictor(run.model, run.config.train.evaluation_samples)
    data = run.load_data()
    stored = compute_test_fields(predictor, data.test, names=data.names, progress=progress)
    with contextlib.suppress(OSError):  # a read-only folder gets no file
        write_run_fields(folder, TEST_FIELDS, stored, identity=own or "-")
    return stored


def _named(stored: StoredFields, folder: Path) -> StoredFields:
    """Return fields of an older version with the channel names of the run folder."""
    with contextlib.suppress(InputError):
        names = channel_names(folder)
        return stored._replace(names=names if len(names) == stored.truth.shape[2] else ())
    return stored
