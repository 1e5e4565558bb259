"""Readers of single runs, sweeps and car experiments, while they train and afterwards.

Each kind of folder is read into entries, one for each run that has scores or a curve. Nothing in these files is taken
for granted: they may be of an older version, half written, or something else by that name.
"""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crossreg.files.yaml_files import LONGEST
from crossreg.progress.history import CURVES, TAIL, last_of, number, whole
from crossreg.progress.progress_file import PROGRESS
from crossreg.report.shared.stored import SECONDS_OF_SILENCE, method_of_settings
from crossreg.report.watch.history import GrowingLines
from crossreg.report.watch.inside import Inside, Parts, Stamp
from crossreg.runs.file_names import CONFIG, HISTORIES, HISTORY, METRICS, ROWS, SUMMARY, TRAINED
from crossreg.runs.kinds import sections_in

_SCORES = {"nll": "nll", "ece": "ece_mix", "crps": "crps", "rmse": "rmse", "std_mu": "std_mu"}
Files = Mapping[str, Stamp]


@dataclass(frozen=True)
class Entry:
    """One run, as a line of the list shows it.

    `history` is the file of its curve; `key` names the run inside its folder. That of a row of a sweep leads to the
    trainings of the row.
    """

    folder: Parts
    key: str
    kind: str
    method: str
    regime: Mapping[str, Any]
    state: str
    step: int | None = None
    steps: int | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    diverged_at: int | None = None
    when: float | None = None
    history: Parts | None = None

    @property
    def identity(self) -> str:
        """A name for requests, which tells nothing about files."""
        return hashlib.blake2s("\0".join([*self.folder, "", self.key]).encode(errors="replace")).hexdigest()[:16]


@dataclass(frozen=True)
class Live:
    """A running training: the entry whose curve is drawn, and the newest `progress.json`, `silent` seconds old."""

    entry: Entry
    progress: Mapping[str, Any]
    silent: float

    @property
    def is_silent(self) -> bool:
        return self.silent > SECONDS_OF_SILENCE


def read_progress(inside: Inside, parts: Parts, files: Files) -> tuple[dict[str, Any], float] | None:
    """Return the `progress.json` of a folder as plain numbers, and its age in seconds; None where there is none."""
    if PROGRESS not in files:
        return None
    found = inside.json((*parts, PROGRESS))
    replicas = found.get("replicas")
    numbers = {k: whole(found.get(k)) for k in ("step", "steps", "number", "programs", "scored", "points")}
    words = {k: str(found.get(k, ""))[:200] for k in ("label", "left", "now", "program")}
    kept = [
        {k: number(one.get(k)) for k in CURVES} | {"diverged_at": whole(one.get("diverged_at"))}
        for one in (replicas if isinstance(replicas, list) else [])
        if isinstance(one, dict)
    ]
    state = numbers | words | {"trained": number(found.get("trained")), "replicas": kept}
    return state, max(0.0, time.time() - files[PROGRESS].mtime_ns / 1e9)


def scores_of(entry: Any) -> dict[str, float | None]:
    """Return the scores that the list shows, from an object with the scores of each split."""
    found: dict[str, float | None] = {}
    for split in ("test", "reg"):
        values = entry.get(split) if isinstance(entry, dict) else None
        if isinstance(values, dict):
            found |= {f"{split}_{short}": number(values.get(name)) for short, name in _SCORES.items()}
            if "relative_l2" in values:
                found[f"{split}_relative_l2"] = number(values["relative_l2"])
    return found


def read_settings(inside: Inside, parts: Parts) -> dict[str, dict[str, Any]]:
    """Return the sections of a `config.yaml`; none where it cannot be read."""
    return sections_in(inside.read(parts, 0, LONGEST + 1) or b"")


def _text(value: Any) -> str:
    """Return a short text; empty for anything else."""
    return value[:100] if isinstance(value, str) else ""


def last_line(inside: Inside, parts: Parts, stamp: Stamp) -> dict[str, Any]:
    """Return the last whole line of a history, empty where there is none."""
    return last_of(inside.read(parts, max(0, stamp.size - TAIL), TAIL) or b"") or {}


def _divergence(last: Mapping[str, Any]) -> int | None:
    """Return the step at which a training diverged, from the last line of its history."""
    return last["diverged_at"] if last.get("diverged_at", -1) >= 0 else None


def _state_of(silent: float) -> str:
    return "training" if silent <= SECONDS_OF_SILENCE else "silent"


def read_run(inside: Inside, parts: Parts, files: Files, settings: dict[str, Any]) -> tuple[list[Entry], Live | None]:
    """Return the one entry of a run folder, also as what trains if a process is at work."""
    data, train = settings.get("data", {}), settings.get("train", {})
    regime = {name: number(data.get(name)) for name in ("observed_fraction", "train_size", "reg_size")}
    regime |= {"seed": whole(train.get("seed")), "scenario": _text(data.get("scenario"))}
    method, steps = method_of_settings(settings), whole(train.get("steps"))
    history = (*parts, HISTORY) if HISTORY in files else None
    last = last_line(inside, history, files[HISTORY]) if history else {}
    progress = read_progress(inside, parts, files)
    step, scores = last.get("step"), {}
    state = "trained" if step is not None and step == steps else "unfinished"
    newest = next(files[name] for name in (METRICS, HISTORY, CONFIG) if name in files)
    if METRICS in files:
        state, scores = "finished", scores_of(inside.json((*parts, METRICS)))
    if progress is not None:
        state, step = _state_of(progress[1]), progress[0]["step"]
        if state == "training" and progress[0]["now"] == "scoring":
            state = "scoring"
    when = newest.mtime_ns / 1e9
    entry = Entry(parts, "", "run", method, regime, state, step, steps, scores, _divergence(last), when, history)
    return [entry], Live(entry, *progress) if progress else None


def read_car(inside: Inside, parts: Parts, files: Files, settings: dict[str, Any]) -> tuple[list[Entry], Live | None]:
    """Return an entry for each method of a car experiment, as far as it has trained."""
    summary = inside.json((*parts, SUMMARY)) if SUMMARY in files else {}
    methods = summary.get("methods")
    methods = methods if isinstance(methods, dict) else {}
    histories, _ = inside.files((*parts, HISTORIES))
    progress = read_progress(inside, parts, files)
    now = progress[0]["label"].split(" × ")[0] if progress else ""
    cars = settings.get("cars", {})
    regime = {name: whole(cars.get(name)) for name in ("train_size", "reg_size")} | {"scenario": "cars"}
    steps = whole(settings.get("train", {}).get("steps"))
    names = dict.fromkeys([*methods, *(name.removesuffix(".jsonl") for name in histories if name.endswith(".jsonl"))])
    if now:
        names[now] = None
    entries, live = [], None
    for name in names:
        stamp = histories.get(f"{name}.jsonl")
        history = (*parts, HISTORIES, f"{name}.jsonl") if stamp else None
        last = last_line(inside, history, stamp) if history and stamp else {}
        state = "finished" if name in methods else "trained" if last.get("step") == steps else "unfinished"
        if name == now and progress:
            state = _state_of(progress[1])
        written = files.get(SUMMARY) if name in methods else stamp
        when = written.mtime_ns / 1e9 if written else None
        scores = scores_of(methods.get(name))
        entry = Entry(
            parts, name, "car", name, regime, state, last.get("step"), steps, scores, _divergence(last), when, history
        )
        entries.append(entry)
        if name == now and progress:
            live = Live(entry, *progress)
    return entries, live


class SweepReader:
    """Reads a sweep folder again and again: an entry for each row that is scored, and one for the running program."""

    def __init__(self):
        self._rows = GrowingLines(_row)

    def read(self, inside: Inside, parts: Parts, files: Files) -> tuple[list[Entry], Live | None]:
        if ROWS in files:
            self._rows.update(inside, (*parts, ROWS), files[ROWS])
        # After a restart a trial may have two rows: the last one counts.
        rows = {row["key"]: row for row in self._rows.items}
        when = files[ROWS].mtime_ns / 1e9 if ROWS in files else None
        entries = [_entry_of_row(parts, row, when) for row in rows.values()]
        progress = read_progress(inside, parts, files)
        if progress is None:
            return entries, None
        state, silent = progress
        histories, _ = inside.files((*parts, TRAINED))
        file = f"{state['program']}.jsonl"
        entry = Entry(
            parts, f"program {state['program']}", "program", state["label"] or "sweep", {},
            _state_of(silent), state["step"], state["steps"],
            # The time of a running program would be another one at every look.
            when=files[PROGRESS].mtime_ns / 1e9 if silent > SECONDS_OF_SILENCE else None,
            history=(*parts, TRAINED, file) if file in histories else None,
        )  # fmt: skip
        return [*entries, entry], Live(entry, state, silent)


def _entry_of_row(parts: Parts, row: dict[str, Any], when: float | None) -> Entry:
    state = "diverged" if row["diverged"] else "finished"
    steps = row["steps"]
    return Entry(
        parts, row["key"], "sweep", row["method"], row["regime"], state, steps, steps, row["scores"], None, when
    )


def _row(row: dict[str, Any]) -> dict[str, Any] | None:
    if not isinstance(row.get("key"), str):
        return None
    settings = row.get("settings")
    changes = [f"{k}={v}" for k, v in settings.items()] if isinstance(settings, dict) else []
    regime = {name: number(row.get(name)) for name in ("observed_fraction", "train_size", "reg_size", "seed")}
    return {
        "key": row["key"],
        "method": _text(row.get("method")),
        "regime": regime | {"scenario": _text(row.get("scenario")), "settings": " ".join(changes)[:200]},
        "steps": whole(row.get("steps")),
        "diverged": row.get("diverged") is True,
        "scores": scores_of(row),
    }
