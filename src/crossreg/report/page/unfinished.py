"""Runs, sweeps and car experiments that have begun and are incomplete or cannot be read whole.

The page gives the reason in a line, and shows their settings and curves so far beside those of finished runs.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossreg.errors import InputError
from crossreg.progress.progress_file import PROGRESS
from crossreg.report.page.files import History, read_json, read_text, readable_lines
from crossreg.report.shared.stored import (
    SECONDS_OF_SILENCE,
    method_of_settings,
    training_name,
    trainings_in,
)
from crossreg.runs.file_names import CONFIG, HISTORIES, HISTORY, METRICS, MODEL, SUMMARY, TRAINED, VERSIONS
from crossreg.runs.kinds import read_sections, sections_of

_MOST_CURVES = 12  # of the trainings of a sweep


@dataclass(frozen=True)
class Unfinished:
    """A run, a sweep or a car experiment that is incomplete: settings by section, histories by name."""

    name: str
    kind: str
    why: str
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    histories: dict[str, History] = field(default_factory=dict)


def unfinished_run(name: str, folder: Path, problem: str = "") -> Unfinished:
    """Read a run without scores; `problem` is what is wrong with its settings, if anything is."""
    history, broken = readable_lines(folder / HISTORY)
    settings = read_sections(folder / CONFIG)
    why = (problem or _why_no_scores(folder, history, settings)) + unread(broken)
    if history and history[-1]["diverged_at"] >= 0:
        why += f"; it diverged at step {history[-1]['diverged_at']:,}"
    # By its method, as a finished run is: it has that colour.
    histories = {f"{method_of_settings(settings)} ({name})" if settings else name: history} if history else {}
    return Unfinished(name, "run", why, settings, read_json(folder / VERSIONS), histories)


def unread(broken: int) -> str:
    """Return a clause about lines of a history that could not be read; empty where there are none."""
    return f"; {broken} line{'s' * (broken > 1)} of {HISTORY} could not be read" if broken else ""


def _why_no_scores(folder: Path, history: History, settings: Mapping[str, Any]) -> str:
    """Return why a run has no scores, from the files that are there."""
    steps = settings.get("train", {}).get("steps")
    last = history[-1]["step"] if history else 0
    place = f"step {last:,} of {steps:,}" if isinstance(steps, int) else f"step {last:,}"
    if (state := _at_work(folder)) is not None:
        now = "it is being scored" if state.get("now") == "scoring" else f"it is still training, {place} when last seen"
        return f"not finished: {now}"
    if (folder / METRICS).exists():
        found = read_json(folder / METRICS)
        return f"{METRICS} has no test scores" if found else f"{METRICS} is corrupted: it holds no JSON object"
    if (folder / MODEL).exists():
        return f"not finished: trained, but not scored ({METRICS} is missing); the same command scores it"
    if history:
        return f"not finished: its training was stopped after {place} ({MODEL} is missing); the same command resumes it"
    return f"not finished: it was stopped before its first evaluation on reg ({HISTORY} is missing or empty)"


def _at_work(folder: Path) -> dict[str, Any] | None:
    """Return the `progress.json` of a process that is at work in a folder, or None."""
    path = folder / PROGRESS
    try:
        is_fresh = time.time() - path.stat().st_mtime <= SECONDS_OF_SILENCE
    except OSError:
        return None
    return read_json(path) if is_fresh else None


def unfinished_sweep(name: str, folder: Path, asked: Mapping[str, Any], rows: int, total: int) -> Unfinished | None:
    """Read the missing part of a sweep; None where nothing is missing."""
    if rows and rows >= total:
        return None
    state = _at_work(folder)
    now = "it was stopped; the same command resumes it"
    if state is not None:
        left = state.get("left")
        now = f"it is at work, time left {left}" if isinstance(left, str) else "it is at work"
    why = f"{total - rows:,} of {total:,} runs are missing: {now}"
    settings = sections_of(asked.get("config"))
    if isinstance(steps := asked.get("steps"), int):  # --steps is no part of the settings that all runs share
        settings["train"] = settings.get("train", {}) | {"steps": steps}
    return Unfinished(name, "sweep", why, settings, {}, _open_trainings(folder))


def _open_trainings(folder: Path) -> dict[str, History]:
    """Return the curves so far of programs that have not ended, a few of them."""
    found: dict[str, History] = {}
    for path in sorted((folder / TRAINED).glob("*.jsonl")):
        if path.with_suffix(".npz").exists():
            continue
        trainings = trainings_in(read_text(path.with_suffix(".json")))
        names = {
            key: f"{method_of_settings(sections_of(one.get('config')))}, {training_name(one)}"
            for key, one in trainings.items()
        }
        for line in readable_lines(path)[0]:
            name = names.get(line["training"])
            if name and (name in found or len(found) < _MOST_CURVES):
                found.setdefault(name, []).append(line)
    return found


def unfinished_car(name: str, folder: Path, problem: str) -> Unfinished:
    """Read a car experiment that cannot be shown."""
    histories = {path.stem: readable_lines(path)[0] for path in sorted((folder / HISTORIES).glob("*.jsonl"))}
    if (folder / SUMMARY).exists():
        why = problem
    elif (state := _at_work(folder)) is not None:
        why = f"not finished: it is at work ({state.get('label', '')})"
    else:
        why = f"not finished: it was stopped before it was scored ({SUMMARY} is missing); the same command resumes it"
    settings, versions = read_sections(folder / CONFIG), read_json(folder / VERSIONS)
    if not settings and not any(histories.values()):
        raise InputError(problem)
    return Unfinished(name, "car experiment", why, settings, versions, {k: h for k, h in histories.items() if h})
