"""The figures of run folders: calibration, losses, σ per site and maps, of one run or of several side by side."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.errors import InputError, say
from crossreg.files.regular import read_regular
from crossreg.metrics.calibration import LEVELS
from crossreg.progress.history import read_history
from crossreg.report.figures.drawing import (
    Drawing,
    Fields,
    Plane,
    calibration_curves,
    calibration_panels,
    plane_maps,
    space_time_maps,
)
from crossreg.report.figures.forecasts import fan
from crossreg.report.figures.training import losses, sigma_over_steps
from crossreg.report.looks import in_order
from crossreg.runs.fields.forecast_fields import read_forecast_fields
from crossreg.runs.fields.stored_fields import Planes, StoredFields
from crossreg.runs.fields.test_fields import load_run_fields
from crossreg.runs.file_names import HISTORY, METRICS, MODEL, SUMMARY, TEST_FIELDS
from crossreg.runs.kinds import kind_of
from crossreg.runs.run_folder import check_scored, read_metrics
from crossreg.runs.safeguards.manifest import check_files

# Readers cannot tell more curves apart.
MOST_SIDE_BY_SIDE = 6


def of_run(
    folder: Path, out: Path, ending: str, *, progress: bool, alone: bool = True, trajectory: int | None = None
) -> list[Drawing]:
    """Return the drawings of one run, as far as its files allow.

    Args:
        folder: The run folder.
        out: The folder for the figures.
        ending: The end of their names.
        progress: Whether predictions that have to be computed first show progress.
        alone: Whether the run is drawn by itself; losses and calibration of several runs are drawn side by side.
        trajectory: The test trajectory of the maps, by default the first that is stored.

    Raises:
        InputError: The folder has nothing to draw, or a file that cannot be read.
    """
    check_scored(folder)
    history = _history(folder)
    name = folder.resolve().name
    drawings: list[Drawing] = []
    if alone and history:
        drawings.append(functools.partial(losses, {name: [history]}, out / "losses"))
    if history and history[0]["sigma"]:
        drawings.append(functools.partial(sigma_over_steps, [history], out / f"sigma{ending}"))
    if alone and (scores := _scores(folder)):
        drawings.append(functools.partial(calibration_panels, {name: [scores]}, out / "calibration"))
    if (folder / TEST_FIELDS).exists() or (folder / MODEL).exists():
        try:
            stored = load_run_fields(folder, progress=progress)
        except InputError as error:
            say(f"maps are left out: {error}")
        else:
            drawings += of_fields(stored, out, ending, name, trajectory)
    drawings += _of_forecasts(folder, out, ending, name)
    if alone and not drawings:
        raise InputError(f"{folder}: has nothing to draw yet; {HISTORY}, {METRICS} and {MODEL} are missing")
    return drawings


def _of_forecasts(folder: Path, out: Path, ending: str, name: str) -> list[Drawing]:
    """Return drawings of the forecasts that `crossreg rollout` has stored: maps and fans of the first trajectory."""
    try:
        stored = read_forecast_fields(folder)
    except InputError as error:
        say(f"forecasts are left out: {error}")
        return []
    if stored is None:
        return []
    number, channels = int(stored.trajectories.min()), stored.truth.shape[2]
    drawings = of_fields(stored, out, f"_forecast{ending}", f"{name}, forecast", number)
    fans = _targets(out / f"fan{ending}", channels)
    return drawings + [functools.partial(fan, stored, path, name, number, channel) for channel, path in enumerate(fans)]


def of_runs(
    folders: Sequence[Path], out: Path, skipped: dict[str, str], *, progress: bool, trajectory: int | None = None
) -> list[Drawing]:
    """Return the drawings of several runs, side by side and each on its own.

    Arguments are as for `of_run`; runs that cannot be read are added to `skipped`, with the reason.
    """
    by_name = {folder.name: folder for folder in folders}
    folders = [by_name[name] for name in in_order(by_name)]
    scores, histories = {}, {}
    for folder in folders:
        try:
            check_scored(folder)
            found, history = _scores(folder), _history(folder)
        except InputError as error:
            skipped[folder.name] = str(error)
            continue
        scores |= {folder.name: found} if found else {}
        histories |= {folder.name: [history]} if history else {}
        if not found and not history:
            skipped[folder.name] = f"has nothing to draw yet; {HISTORY}, {METRICS} and {MODEL} are missing"
    folders = [folder for folder in folders if folder.name not in skipped]
    drawings: list[Drawing] = []
    if scores:
        every = scores | {n: s for n, s in _references(next(iter(by_name.values())).parent).items() if n not in scores}
        few = dict(list(every.items())[:MOST_SIDE_BY_SIDE])
        drawings.append(functools.partial(calibration_curves, few, out / "calibration"))
        for start in range(0, len(scores), 3):
            panels = {name: [scores[name]] for name in list(scores)[start : start + 3]}
            number = f"_{start // 3 + 1}" if len(scores) > 3 else ""
            drawings.append(functools.partial(calibration_panels, panels, out / f"calibration_splits{number}"))
    # The paper's pair by itself where both are there: more lines would obscure it.
    pair = {name: histories[name] for name in ("xreg", "unregularized") if name in histories}
    shown = pair if len(pair) == 2 else dict(list(histories.items())[:MOST_SIDE_BY_SIDE])
    if shown:
        drawings.append(functools.partial(losses, shown, out / "losses"))
    for folder in folders:
        drawings += of_run(folder, out, f"_{folder.name}", progress=progress, alone=False, trajectory=trajectory)
    if not drawings:
        name, why = next(iter(skipped.items()))
        raise InputError(f"{next(iter(by_name.values())).parent}: none of its runs can be drawn; {name}: {why}")
    return drawings


def of_fields(stored: StoredFields, out: Path, ending: str, name: str, trajectory: int | None = None) -> list[Drawing]:
    """Return drawings of a stored test trajectory, the first or the one asked for: maps over time, and of planes."""
    number = int(stored.trajectories.min()) if trajectory is None else trajectory
    if number not in stored.trajectories:
        known = ", ".join(map(str, np.sort(stored.trajectories).tolist()))
        raise InputError(f"trajectory is {number}: {name} stores the test trajectories {known}")
    drawings: list[Drawing] = [functools.partial(maps_of, stored, out / f"maps{ending}", name, number)]
    if stored.planes is not None:
        drawings.append(functools.partial(planes_of, stored, stored.planes, out / f"planes{ending}", name, number))
    return drawings


def maps_of(stored: StoredFields, path: Path, name: str, number: int) -> list[Path]:
    """Draw space–time maps of a stored test trajectory, one figure per channel; of 2-D and 3-D fields along a line."""
    place = stored.trajectories.tolist().index(number)
    fields = Fields(stored.steps, *(getattr(stored, part)[place] for part in Fields._fields[1:]))
    line = ", along x through the middle" if len(stored.space) > 1 else ""
    written = []
    for channel, target in enumerate(_targets(path, stored.truth.shape[2])):
        title = f"{name}, test trajectory {number}{_channel(stored, channel)}{line}"
        written += space_time_maps(fields, target, title=title, channel=channel)
    return written


def _targets(path: Path, channels: int) -> list[Path]:
    """Return the path of each channel's figure."""
    return [path.with_name(f"{path.name}_channel{i}") for i in range(channels)] if channels > 1 else [path]


def _channel(stored: StoredFields, number: int) -> str:
    """Return the name of a channel for a title; its number where there are several without names."""
    if stored.names:
        return f", {stored.names[number]}"
    return f", channel {number}" if stored.truth.shape[2] > 1 else ""


def planes_of(stored: StoredFields, planes: Planes, path: Path, name: str, number: int) -> list[Path]:
    """Draw whole 2-D fields, one row for each step and one figure per channel.

    Of large fields, planes of some trajectories only are stored: the first of these is drawn where the one asked for is
    not among them.
    """
    numbers, written = planes.trajectories.tolist(), []
    number = number if number in numbers else numbers[0]
    parts = {part: getattr(planes, part)[numbers.index(number)] for part in Plane._fields[1:]}
    for channel, target in enumerate(_targets(path, planes.truth.shape[2])):
        rows = [
            Plane(f"step {step}", **{part: values[place, channel] for part, values in parts.items()})
            for place, step in enumerate(planes.steps.tolist())
        ]
        title = f"{name}, test trajectory {number}{_channel(stored, channel)}"
        written += plane_maps(rows, target, title=title)
    return written


def _history(folder: Path) -> list[dict[str, Any]]:
    """Read the history of a run, whose lines have what is drawn."""
    lines = read_history(folder / HISTORY)
    if all({"step", "train_loss", "reg_nll", "sigma"} <= line.keys() for line in lines):
        return lines
    raise InputError(
        f"{folder / HISTORY}: a line has no step, train_loss, reg_nll or sigma; expected the history of a run"
    )


def _scores(folder: Path) -> dict[str, Any] | None:
    """Return the scores in `metrics.json`, or None before the run has been scored."""
    path = folder / METRICS
    if not path.exists():
        return None
    metrics = read_metrics(folder)
    try:
        return checked_scores(metrics)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error!r}); expected the scores of a run") from error


def _references(folder: Path) -> dict[str, Any]:
    """Return the scores of a quickstart's summary, among them those of methods without a run folder."""
    path = folder / SUMMARY
    if kind_of(folder) != "quickstart":
        return {}
    check_files(folder, [SUMMARY])
    try:
        summary = json.loads(read_regular(path))
        return {name: checked_scores(scores) for name, scores in (summary["methods"] | summary["references"]).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error!r}); expected the summary of a quickstart") from error


def checked_scores(scores: dict[str, Any]) -> dict[str, Any]:
    """Return scores after checking that their coverage can be drawn on every split that was scored."""
    for split in ("test", "reg", "train"):
        if scores[split] is not None:
            coverage = np.asarray(scores[split]["coverage"], float)
            if coverage.shape != (len(LEVELS),):
                raise ValueError(f"{split} has coverage at {coverage.size} levels, not {len(LEVELS)}")
            if scores[split]["ece_mix"] is not None:
                float(scores[split]["ece_mix"])
    return scores
