"""A trained run fed its own output: `crossreg rollout`, on its test trajectories or from fields of a user.

The scores of test trajectories are written to `rollout.json`, the first of them at every point to `rollout_fields.npz`.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from crossreg.data.dataset import Data
from crossreg.data.keys import evaluation_key
from crossreg.errors import InputError
from crossreg.files.memory import check_room
from crossreg.forecasts.rollout import checked_leads, start
from crossreg.metrics.test_times import trained_steps
from crossreg.progress.display import CountDisplay
from crossreg.runs.fields.forecast_fields import compute_forecast_fields, write_forecasts
from crossreg.runs.final_scores import rollout_scores
from crossreg.runs.prediction import check_levels, observe, read_fields, write_arrays
from crossreg.runs.run_folder import Run
from crossreg.runs.safeguards.locks import locked

STEPS = 50
# Values of all particles at the leads that are computed together, and how many arrays of them there are at a time:
# means and two variances, joined from parts, and at one lead what a quantile needs.
_VALUES_PER_CALL, _COPIES = 2**25, 6
_MOMENTS = ("mean", "std", "std_predictive", "std_generalization")


def forecast_test(
    folder: Path,
    run: Run,
    *,
    data: Path | None = None,
    steps: int | None = None,
    leads: Sequence[int] | None = None,
    particles: int = 60,
    progress: bool = False,
) -> tuple[dict[str, Any], str]:
    """Forecast the test trajectories of a run, and write their scores and the first of them to its folder.

    Args:
        folder: The folder of the run.
        run: The run.
        data: Where its data files are now, if they have moved.
        steps: As for `score_rollouts`, like the arguments that follow.

    Returns:
        What `score_rollouts` returns, and a warning where forecasts reach times that train has not; else empty.
    """
    splits = run.load_data(data)
    with locked(folder, "process"):  # two at a time would lose entries of the manifest
        scores = score_rollouts(run, splits, steps=steps, leads=leads, particles=particles, progress=progress)
        stored = compute_forecast_fields(run, splits, scores["steps"], particles=particles, progress=progress)
        write_forecasts(folder, scores, stored)
    return scores, beyond_trained(run, splits, scores["steps"])


def score_rollouts(
    run: Run,
    data: Data,
    *,
    steps: int | None = None,
    leads: Sequence[int] | None = None,
    particles: int = 60,
    progress: bool = False,
) -> dict[str, Any]:
    """Score forecasts of the test trajectories of a run, each from its first field.

    Args:
        run: The run.
        data: Its data.
        steps: How many steps ahead; by default 50, or as many as the test trajectories have.
        leads: The leads to score; by default the more of them the earlier they are, and the last.
        particles: Particles of each forecast.
        progress: Whether to show how many trajectories are forecast.

    Returns:
        The scores of `score_by_lead`, in which a number that is not finite is None, with `steps`, `reg_horizon`, and
        `particles`, the number that each forecast has: 1 for a network without noise inside.

    Raises:
        InputError: If test trajectories have fewer steps.
    """
    length = data.test.pairs_per_row
    steps = min(STEPS, length) if steps is None else steps
    if not 1 <= steps <= length:
        raise InputError(f"steps is {steps}: must be from 1 to the {length} of the test trajectories")
    with CountDisplay("trajectories forecast", enabled=progress) as display:
        how: dict[str, Any] = {"particles": particles, "progress": display.adder(int(data.test.num_rows))}
        if run.limits is not None:
            how["limits"] = run.limits
        scores = rollout_scores(run.model, data, steps, leads=leads, **how)
    own = scores["particles_in_all"] // scores["forecasts"]
    return {"steps": steps, "particles": own, "reg_horizon": run.config.train.reg_horizon} | scores


def forecast_fields(
    run: Run,
    x: Float[np.ndarray, "batch channel *space"],
    mask: Bool[np.ndarray, "*space"],
    *,
    steps: int,
    leads: Sequence[int] | None = None,
    particles: int = 60,
    levels: tuple[float, ...] = (0.05, 0.5, 0.95),
    samples: int = 0,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, np.ndarray]:
    """Forecast fields many steps ahead. One step ahead, it is what `predict_fields` gives of as many samples.

    Args:
        run: The trained run.
        x: The fields to start from; NaN where a value is missing.
        mask: Where the network sees its input, at every step.
        steps: How many steps ahead.
        leads: The leads to keep; by default all of them.
        particles: Particles of each forecast.
        levels: The levels of the quantiles.
        samples: How many joint samples to draw.
        seed: The seed of the particles.
        progress: Whether to show how many fields are forecast.

    Returns:
        `mean`, `std`, `std_predictive` and `std_generalization`, (lead, batch, channel, *space); `quantiles` with a
        leading axis of levels, `samples`, if any, with one of samples; `levels`, `leads`, and for each lead
        `held_share`, the share of the particles' values that are beyond the limits, and `out_of_range`, the number of
        particles that were far beyond them.
    """
    check_levels(levels)
    if samples < 0:
        raise InputError(f"samples is {samples}: must be at least 0")
    leads = checked_leads(leads, steps, particles)
    # Of whole fields at all leads as many as fit; of larger fields, one at a time, at some leads at a time.
    of_lead = x[0].size * particles
    chunk = max(1, min(_VALUES_PER_CALL // (of_lead * len(leads)), x.shape[0]))
    at_once = max(1, min(_VALUES_PER_CALL // of_lead, len(leads)))
    check_room(
        4 * x.size * len(leads) * (4 + len(levels) + samples) + 4 * chunk * of_lead * (_COPIES * at_once + _COPIES),
        f"a forecast of {x.shape[0]} fields of {x[0].size} values with {particles} particles at {len(leads)} leads with"
        f" {len(levels)} levels",
    )
    observed = observe(run, x, mask)[:, : run.channels]
    seen = np.isfinite(x)
    key = evaluation_key(seed)
    shape = (len(leads), *x.shape)
    arrays: dict[str, np.ndarray] = {name: np.empty(shape, np.float32) for name in _MOMENTS}
    arrays["quantiles"] = np.empty((len(levels), *shape), np.float32)
    if samples:
        arrays["samples"] = np.empty((samples, *shape), np.float32)
    held, lost = np.zeros(len(leads)), np.zeros(len(leads), int)
    with CountDisplay("fields forecast", enabled=progress) as display:
        for begin in range(0, x.shape[0], chunk):
            # The last chunk is padded with the last field, so that one program serves all.
            index, size = np.minimum(np.arange(begin, begin + chunk), x.shape[0] - 1), min(chunk, x.shape[0] - begin)
            masks = np.broadcast_to(mask, (len(index), 1, *mask.shape))
            # A missing value is hidden already, in the first input alone; a network that reads the mask has to be told.
            if not seen.all():
                masks = np.broadcast_to(masks, (steps, len(index), run.channels, *mask.shape)).copy()
                masks[0] &= seen[index]
            keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.asarray(index))
            followed = start(run.model, observed[index], steps, particles, key=keys, mask=masks, limits=run.limits)
            for first in range(0, len(leads), at_once):
                part = slice(first, first + at_once)
                forecast = followed.to(leads[part])
                place = (..., part, slice(begin, begin + size), *(slice(None) for _ in x.shape[1:]))
                for name in _MOMENTS:
                    arrays[name][place] = getattr(forecast, name)[:, :size]
                for number, level in enumerate(levels):
                    arrays["quantiles"][number][place] = forecast.quantile(level)[:, :size]
                if samples:
                    drawn = forecast.samples(samples, key=jax.random.fold_in(keys[0], samples + first))
                    arrays["samples"][place] = drawn[:, :, :size]
                own = {"beyond": forecast.beyond[:, :, :size], "lost_at": forecast.lost_at[:, :size]}
                forecast = dataclasses.replace(forecast, **own)
                held[part] += forecast.held_share * size
                lost[part] += forecast.lost
            display.update(begin + size, x.shape[0])
    arrays |= {"held_share": held / x.shape[0], "out_of_range": lost}
    return arrays | {"levels": np.asarray(levels), "leads": np.asarray(leads)}


def forecast_file(
    run: Run,
    source: Path,
    target: Path,
    *,
    steps: int = STEPS,
    particles: int = 60,
    mask_file: Path | None = None,
    no_mask: bool = False,
    **how: Any,
) -> dict[str, np.ndarray]:
    """Forecast the fields of an NPY file, and write an NPZ file.

    Args:
        run: The trained run.
        source: The file of the fields to start from, (batch, channel, *space).
        target: The file to write, which must not exist.
        steps: How many steps ahead.
        particles: Particles of each forecast.
        mask_file: An NPY file that says where inputs are observed, in place of the run's mask.
        no_mask: Whether all points are observed.
        **how: Further arguments of `forecast_fields`.

    Returns:
        Its arrays.

    Raises:
        InputError: If the fields do not fit the run, if most particles left the range of the training data, or if the
            forecast is not finite.
    """
    if target.exists():
        raise InputError(f"output {target}: exists already; name another file, or remove it")
    x, mask, warnings = read_fields(run, source, mask_file, no_mask)
    arrays = forecast_fields(run, x, mask, steps=steps, particles=particles, **how)
    lost, total = arrays["out_of_range"], x.shape[0] * (particles if run.model.is_stochastic else 1)
    is_finite = all(np.isfinite(array).all() for array in arrays.values())
    if not is_finite or 2 * lost[-1] > total:
        leads = arrays["leads"][: np.argmax(lost > 0)]
        until = f"; up to lead {leads[-1]}, none did" if leads.size else ""
        raise InputError(
            f"input {source}: this is no forecast: of {total} particles, {lost[-1]} left the range of the training"
            f" data{until}"
        )
    write_arrays(target, arrays)
    if lost[-1]:
        left = f"particles that left the range of the training data: {lost[-1]} of {total}"
        warnings.append(f"{left} (out_of_range has them by lead)")
    for warning in warnings:
        print(f"crossreg: {warning}", file=sys.stderr)
    return arrays


def of_single_steps(run: Run, steps: int) -> str:
    """Return a warning where error bars that were learned on single steps are used further ahead; empty elsewhere."""
    if steps == 1 or run.config.train.reg_horizon > 1:
        return ""
    return (
        "the error bars of this run were learned on single steps, and are often too small further ahead; train with"
        " `preset=forecasts` for error bars by lead"
    )


def beyond_trained(run: Run, data: Data, steps: int) -> str:
    """Return a warning where forecasts of test trajectories reach times that train has not; empty elsewhere."""
    trained = trained_steps(data, run.config.data)
    if trained is None or steps <= trained:
        return ""
    if not trained:
        return "all times of test are beyond those that the run was trained on"
    return (
        f"the run was trained on {trained} steps of its trajectories: leads above {trained} are at times beyond those"
    )
