"""Forecasts of a few test trajectories, in the format of test fields, for figures and pages: a time step is a lead."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from crossreg.data.dataset import Data
from crossreg.data.keys import evaluation_key
from crossreg.data.pairs import GridPairs
from crossreg.files.whole import write_json
from crossreg.forecasts.windows import forecasts_of
from crossreg.predictive.in_units import error_of
from crossreg.progress.display import CountDisplay
from crossreg.runs.fields.stored_fields import Planes, StoredFields, read_stored_fields, write_run_fields
from crossreg.runs.fields.test_fields import quantile_offsets
from crossreg.runs.file_names import ROLLOUT, ROLLOUT_FIELDS
from crossreg.runs.run_folder import Run, identity_of
from crossreg.runs.safeguards.manifest import check_files, read_manifest, record_json

_MOST_TRAJECTORIES = 3
_MOST_POINTS = 48_000  # of one trajectory, over its leads
_MOST_PER_SIDE = 128  # points of a plane
_BINS = 20


def compute_forecast_fields(
    run: Run, data: Data, steps: int, *, particles: int = 60, progress: bool = False
) -> StoredFields:
    """Forecast the first test trajectories from their first fields, with the particles that `rollout_scores` has.

    Args:
        run: The run.
        data: Its data.
        steps: Steps of each forecast.
        particles: Particles of each forecast.
        progress: Whether to show how many are done.

    Returns:
        The fields at every lead, or at evenly spaced ones of a long forecast, along the line through the middle. Of 2-D
        and 3-D fields, whole planes of the first trajectory at its first, middle and last lead.
    """
    pairs = data.test
    channels, *space = pairs.field_shape
    every = math.ceil(steps * channels * space[0] / _MOST_POINTS)
    leads = sorted({*range(1, steps + 1, every), steps})
    rows = range(min(_MOST_TRAJECTORIES, int(pairs.num_rows)))
    lines, planes = [], None
    with CountDisplay("forecasts stored", enabled=progress) as display:
        for row in rows:
            whole = _of_leads(run, pairs, row, leads, steps, particles)
            line, plane = _cuts(space)
            wanted = {leads[0], leads[len(leads) // 2], leads[-1]} if row == 0 and len(space) > 1 else ()
            along, planes_at = [], []
            for lead, fields in zip(leads, whole, strict=True):
                # Copies, since a view would keep the whole field.
                along.append({name: values[line].copy() for name, values in fields.items()})
                if lead in wanted:
                    planes_at.append({name: values[plane].copy() for name, values in fields.items()})
            lines.append(_stacked(along))
            if planes_at:
                planes = _planes(_stacked(planes_at), sorted(wanted), space)
            display.update(row + 1, len(rows))
    cut: dict[str, Any] = _without_gaps(_stacked(lines))
    pit = np.histogram(cut.pop("pit"), bins=_BINS, range=(0, 1))[0]
    return StoredFields(
        trajectories=np.asarray(rows),
        steps=np.asarray(leads),
        offsets=np.moveaxis(cut.pop("offsets"), 2, 0),
        **cut,
        pit=pit.astype(float),
        unaware=(),
        aware=(),
        scanned=len(rows),
        space=tuple(space),
        planes=planes,
        names=data.names,
    )


def _of_leads(
    run: Run, pairs: GridPairs, row: int, leads, steps: int, particles: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the arrays of one forecast at each lead, (channel, *space): those of all leads may be large."""
    limits: dict[str, Any] = {} if run.limits is None else {"limits": run.limits}
    first = row * pairs.pairs_per_row
    how = {"first": np.asarray([first]), "particles": particles, "key": evaluation_key(0), "in_parts": True} | limits
    for window in forecasts_of(run.model, pairs, leads, steps, **how):
        for place, lead in enumerate(window.forecast.leads):
            index = np.asarray([first + lead - 1])
            known = pairs.hold(index).known(jax.numpy.asarray(index))
            truth = jax.numpy.where(known, window.truth[place], np.nan)
            fields = jax.device_get(_at(window.forecast.at(lead), truth))
            seen = np.asarray(pairs[index].mask)[0, 0]
            yield {name: values[0] for name, values in fields.items()} | {"observed": seen}


def _cuts(space: list[int]) -> tuple[tuple, tuple]:
    """Return the line through the middle of a field, and the plane, with fewer points."""
    stride = slice(None, None, _stride(space))
    return (..., *(size // 2 for size in space[1:])), (..., stride, stride, *(size // 2 for size in space[2:]))


def _stride(space: list[int]) -> int:
    return math.ceil(max(space[:2]) / _MOST_PER_SIDE)


def _stacked(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def _without_gaps(fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return fields without the mean in gaps where there are none."""
    gaps = np.isnan(fields["truth"]).any()
    return {name: values for name, values in fields.items() if gaps or name != "gap_mean"}


@eqx.filter_jit
def _at(predictive, truth) -> dict[str, jax.Array]:
    unknown = jax.numpy.isnan(truth)
    return {
        "truth": truth,
        "error": error_of(predictive, truth),
        "gap_mean": jax.numpy.where(unknown, predictive.mean, np.nan),
        "std_mu": predictive.std_of_means,
        "std_predictive": predictive.std_predictive,
        "std_generalization": predictive.std_generalization,
        "offsets": jax.numpy.moveaxis(quantile_offsets(predictive), 0, 1),
        "pit": jax.numpy.where(unknown, np.nan, predictive.cdf(truth)),
    }


def _planes(fields: dict[str, np.ndarray], leads: list[int], space: list[int]) -> Planes:
    """Return planes of the first trajectory at some leads."""
    kept = {name: values[None] for name, values in _without_gaps(fields).items() if name not in ("offsets", "pit")}
    return Planes(np.asarray([0]), _stride(space), np.asarray(leads), **kept)


def write_forecasts(folder: Path, scores: dict[str, Any], stored: StoredFields) -> None:
    """Write the scores and the fields of a run's forecasts, and list both in the run's manifest."""
    if read_manifest(folder) is None:
        write_json(folder / ROLLOUT, scores)
    else:
        record_json(folder, ROLLOUT, scores)
    write_run_fields(folder, ROLLOUT_FIELDS, stored, identity=identity_of(folder) or "-")


def read_forecast_fields(folder: Path) -> StoredFields | None:
    """Read the file of a run, or return None where there is none.

    Raises:
        InputError: If the file is corrupted, or that of another run.
    """
    if not (folder / ROLLOUT_FIELDS).exists():
        return None
    check_files(folder, [ROLLOUT_FIELDS])
    return read_stored_fields(folder / ROLLOUT_FIELDS, identity=identity_of(folder))
