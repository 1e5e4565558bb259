"""What has begun and is not complete, or cannot be read whole: why, in a line, and what there is of it.

Its settings and the curves so far are shown beside those of the runs that have ended.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossreg.config import from_dict
from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.progress.history import history_line
from crossreg.progress.progress_file import PROGRESS
from crossreg.report.page.files import read_history, read_json, read_lines
from crossreg.report.page.rows import History
from crossreg.report.watch.folders import SECONDS_OF_SILENCE, method_of_settings
from crossreg.runs.kinds import CONFIG, SUMMARY, read_sections
from crossreg.runs.programs import TRAINED_FOLDER
from crossreg.runs.run_folder import HISTORY, METRICS, MODEL, VERSIONS

_MOST_CURVES = 12  # of the trainings of a sweep


@dataclass(frozen=True)
class Unfinished:
    """A run, a sweep or a car experiment that is not complete. Settings are by section, histories by a name."""

    name: str
    kind: str
    why: str
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    histories: dict[str, History] = field(default_factory=dict)


def unfinished_run(name: str, folder: Path, problem: str = "") -> Unfinished:
    """A run without scores; `problem` is what is wrong with its settings, if anything is."""
    history, broken = read_history(folder / HISTORY)
    settings = read_sections(folder / CONFIG)
    steps = settings.get("train", {}).get("steps")
    why = problem or _why_no_scores(folder, history, steps)
    if broken:
        why += f"; {broken} line{'s' * (broken > 1)} of {HISTORY} could not be read"
    if history and history[-1]["diverged_at"] >= 0:
        why += f"; it diverged at step {history[-1]['diverged_at']:,}"
    # By its method, as one that is complete: it has that colour.
    histories = {f"{method_of_settings(settings)} ({name})" if settings else name: history} if history else {}
    return Unfinished(name, "run", why, settings, read_json(folder / VERSIONS), histories)


def _why_no_scores(folder: Path, history: History, steps: Any) -> str:
    """Why a run has no scores, from the files that are there."""
    last = history[-1]["step"] if history else 0
    place = f"step {last:,} of {steps:,}" if isinstance(steps, int) else f"step {last:,}"
    if (state := _at_work(folder)) is not None:
        now = "it is being scored" if state.get("now") == "scoring" else f"it is still training, {place} when last seen"
        return f"not finished: {now}"
    if (folder / METRICS).exists():
        found = read_json(folder / METRICS)
        return f"{METRICS} has no test scores" if found else f"{METRICS} is damaged: it holds no JSON object"
    if (folder / MODEL).exists():
        return f"not finished: trained, but not scored; the same command scores it ({METRICS} is missing)"
    if history:
        return f"not finished: its training was stopped after {place} ({MODEL} is missing); the same command goes on"
    return f"not finished: it was stopped before its first look at reg ({HISTORY} is missing or empty)"


def _at_work(folder: Path) -> dict[str, Any] | None:
    """What a process that is at work in a folder says of itself."""
    path = folder / PROGRESS
    try:
        is_fresh = time.time() - path.stat().st_mtime <= SECONDS_OF_SILENCE
    except OSError:
        return None
    return read_json(path) if is_fresh else None


def unfinished_sweep(name: str, folder: Path, asked: Mapping[str, Any], rows: int, total: int) -> Unfinished | None:
    """The part of a sweep that is missing; None where nothing is."""
    if rows and rows >= total:
        return None
    histories = _open_trainings(folder)
    state = _at_work(folder)
    if state is not None:
        left = state.get("left")
        now = f"it is at work, time left {left}" if isinstance(left, str) else "it is at work"
    else:
        now = "it was stopped; the same command resumes from here"
    why = f"{total - rows:,} of {total:,} runs are missing: {now}"
    config = asked.get("config")
    sections = {k: v for k, v in config.items() if isinstance(v, dict)} if isinstance(config, dict) else {}
    if isinstance(steps := asked.get("steps"), int):  # --steps is no part of the settings that all runs share
        sections["train"] = sections.get("train", {}) | {"steps": steps}
    return Unfinished(name, "sweep", why, sections, {}, histories)


def _open_trainings(folder: Path) -> dict[str, History]:
    """The curves so far of programs that have not ended, a few of them."""
    found: dict[str, History] = {}
    for path in sorted((folder / TRAINED_FOLDER).glob("*.jsonl")):
        if path.with_suffix(".npz").exists():
            continue
        items = _objects(path.with_suffix(".json"))
        names = {str(item.get("key")): _training(item) for item in items}
        for line in read_lines(path)[0]:
            kept = history_line(line)
            name = names.get(kept["training"]) if kept else None
            if kept and name and (name in found or len(found) < _MOST_CURVES):
                found.setdefault(name, []).append(kept)
    return found


def _objects(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON file that holds a list of them."""
    try:
        value = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return []
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _training(item: Mapping[str, Any]) -> str:
    """A training of a sweep in words."""
    try:
        config = from_dict(item["config"])
        method = method_of_settings(item["config"])
    except (InputError, KeyError, TypeError, AttributeError):
        return str(item.get("key"))[:8]
    data, member = config.data, item.get("member")
    place = f"{data.observed_fraction:g} observed, {data.train_size} trajectories, seed {config.train.seed}"
    return f"{method}, {place}" + (f", member {member}" if member else "")


def unfinished_car(name: str, folder: Path, problem: str) -> Unfinished:
    """A car experiment that cannot be shown."""
    histories = {path.stem: read_history(path)[0] for path in sorted((folder / "history").glob("*.jsonl"))}
    if (folder / SUMMARY).exists():
        why = problem
    elif (state := _at_work(folder)) is not None:
        why = f"not finished: it is at work ({state.get('label', '')})"
    else:
        why = f"not finished: it was stopped before it was scored ({SUMMARY} is missing); the same command goes on"
    settings, versions = read_sections(folder / CONFIG), read_json(folder / VERSIONS)
    if not settings and not any(histories.values()):
        raise InputError(problem)
    return Unfinished(name, "car experiment", why, settings, versions, {k: h for k, h in histories.items() if h})
