"""What single runs, sweeps and car experiments say of themselves, while they train and afterwards.

Each kind of folder is read into entries, one for each run that has scores or a curve. Nothing in these files is taken
for granted: they may be of an older version, half written, or of something else by that name.
"""

import ast
import functools
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crossreg.config import Config, from_dict
from crossreg.errors import InputError
from crossreg.files.yaml_files import LONGEST, parse_settings
from crossreg.methods.names import parse_method
from crossreg.methods.xreg import VARIANTS
from crossreg.progress.history import CURVES, TAIL, last_of, number, whole
from crossreg.progress.progress_file import PROGRESS
from crossreg.report.watch.history import GrowingLines
from crossreg.report.watch.inside import Inside, Parts, Stamp

OWN_SETTINGS = "own settings"
SECONDS_OF_SILENCE = 120.0
_SCORES = {"nll": "nll", "ece": "ece_mix", "crps": "crps", "rmse": "rmse", "std_mu": "std_mu"}
_KNOWN = ("xreg", *(f"xreg-{word}" for word in VARIANTS), "xreg-internal-mm", "unregularized", "fixed-noise")
Files = Mapping[str, Stamp]


@dataclass(frozen=True)
class Entry:
    """One run: what a line of the list shows, and where its curve is.

    `history` is the file of the curve; `key` names the run inside its folder, and for a row of a sweep stands for the
    trainings that it was made of.
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
        """A name for requests, which says nothing of files."""
        return hashlib.blake2s("\0".join([*self.folder, "", self.key]).encode(errors="replace")).hexdigest()[:16]


@dataclass(frozen=True)
class Live:
    """What trains now: the entry whose curve is drawn, and the newest `progress.json`."""

    entry: Entry
    progress: Mapping[str, Any]
    silent: float

    @property
    def is_silent(self) -> bool:
        return self.silent > SECONDS_OF_SILENCE


def read_progress(inside: Inside, parts: Parts, files: Files) -> tuple[dict[str, Any], float] | None:
    """The `progress.json` of a folder as plain numbers, and how many seconds ago it was written."""
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
    """The scores that are listed, from an object with those of each split."""
    found: dict[str, float | None] = {}
    for split in ("test", "reg"):
        values = entry.get(split) if isinstance(entry, dict) else None
        if isinstance(values, dict):
            found |= {f"{split}_{short}": number(values.get(name)) for short, name in _SCORES.items()}
            if "relative_l2" in values:
                found[f"{split}_relative_l2"] = number(values["relative_l2"])
    return found


def method_of(config: Config) -> str:
    """The method that has these settings, by the name that a sweep would call it; `own settings` where none has."""
    if config.model.feature_noise == "dropout":
        return f"dropout-{config.model.dropout_rate:g}" if config.model.dropout_rate != 0.1 else "dropout"
    for name in _KNOWN:
        if parse_method(name).configs(config)[0] == config:
            return name
    return OWN_SETTINGS


def read_settings(inside: Inside, parts: Parts) -> dict[str, Any]:
    """A YAML file of settings; empty where it cannot be read."""
    text = inside.read(parts, 0, LONGEST) or b""
    try:
        found = parse_settings(text, "settings")
    except InputError:
        return {}
    return found if isinstance(found, dict) else {}


def section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """A section of settings; empty where there is none."""
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    """A short text; empty where it is none."""
    return value[:100] if isinstance(value, str) else ""


def method_of_settings(settings: dict[str, Any]) -> str:
    """The method of a `config.yaml`, from the settings that methods differ in."""
    train = {k: v for k, v in section(settings, "train").items() if k in ("train_samples", "reg_objective")}
    try:
        return _method_of_text(repr(section(settings, "model")), repr(train))
    except ValueError:
        return OWN_SETTINGS  # a whole number of thousands of digits


# Thousands of runs have few methods, and settings are checked with care.
@functools.lru_cache(maxsize=512)
def _method_of_text(model: str, train: str) -> str:
    try:
        return method_of(from_dict({"model": ast.literal_eval(model), "train": ast.literal_eval(train)}))
    except (InputError, ValueError, SyntaxError, RecursionError, MemoryError):
        return OWN_SETTINGS  # of another version: the curve and the scores may still be read


def last_line(inside: Inside, parts: Parts, stamp: Stamp) -> dict[str, Any]:
    """Return the last complete line of a history; empty where there is none."""
    return last_of(inside.read(parts, max(0, stamp.size - TAIL), TAIL) or b"") or {}


def read_run(inside: Inside, parts: Parts, files: Files, settings: dict[str, Any]) -> tuple[list[Entry], Live | None]:
    """The one entry of a run folder."""
    data, train = section(settings, "data"), section(settings, "train")
    regime = {name: number(data.get(name)) for name in ("observed_fraction", "train_size", "reg_size")}
    regime |= {"seed": whole(train.get("seed")), "scenario": _text(data.get("scenario"))}
    method, steps = method_of_settings(settings), whole(train.get("steps"))
    history = (*parts, "metrics.jsonl") if "metrics.jsonl" in files else None
    last = last_line(inside, history, files["metrics.jsonl"]) if history else {}
    diverged_at = last.get("diverged_at", -1)
    progress = read_progress(inside, parts, files)
    step, scores = last.get("step"), {}
    state = "trained" if step is not None and step == steps else "unfinished"
    newest = [files[name].mtime_ns / 1e9 for name in ("metrics.json", "metrics.jsonl", "config.yaml") if name in files]
    when = newest[0] if newest else None
    if "metrics.json" in files:
        state, scores = "finished", scores_of(inside.json((*parts, "metrics.json")))
    if progress is not None:
        at_work = "scoring" if progress[0]["now"] == "scoring" else "training"
        state = at_work if progress[1] <= SECONDS_OF_SILENCE else "silent"
        step = progress[0]["step"]
    entry = Entry(
        parts, "", "run", method, regime, state, step, steps, scores, diverged_at if diverged_at >= 0 else None, when,
        history,
    )  # fmt: skip
    return [entry], Live(entry, *progress) if progress else None


def read_car(inside: Inside, parts: Parts, files: Files, settings: dict[str, Any]) -> tuple[list[Entry], Live | None]:
    """An entry for each method of a car experiment, as far as it has trained."""
    summary = inside.json((*parts, "summary.json")) if "summary.json" in files else {}
    methods = summary.get("methods")
    methods = methods if isinstance(methods, dict) else {}
    histories, _ = inside.files((*parts, "history"))
    progress = read_progress(inside, parts, files)
    now = progress[0]["label"].split(" × ")[0] if progress else ""
    cars = section(settings, "cars")
    regime = {name: whole(cars.get(name)) for name in ("train_size", "reg_size")} | {"scenario": "cars"}
    steps = whole(section(settings, "train").get("steps"))
    names = dict.fromkeys([*methods, *(name.removesuffix(".jsonl") for name in histories if name.endswith(".jsonl"))])
    if now:
        names[now] = None
    entries, live = [], None
    for name in names:
        stamp = histories.get(f"{name}.jsonl")
        history = (*parts, "history", f"{name}.jsonl") if stamp else None
        last = last_line(inside, history, stamp) if history and stamp else {}
        diverged_at = last.get("diverged_at", -1)
        state = "finished" if name in methods else "trained" if last.get("step") == steps else "unfinished"
        if name == now and progress:
            state = "training" if progress[1] <= SECONDS_OF_SILENCE else "silent"
        written = files.get("summary.json") if name in methods else stamp
        entry = Entry(
            parts, name, "car", name, regime, state, last.get("step"), steps, scores_of(methods.get(name)),
            diverged_at if diverged_at >= 0 else None, written.mtime_ns / 1e9 if written else None, history,
        )  # fmt: skip
        entries.append(entry)
        if name == now and progress:
            live = Live(entry, *progress)
    return entries, live


class SweepReader:
    """A sweep folder: an entry for each row as it is scored, and one for the program that trains."""

    def __init__(self):
        self._rows = GrowingLines(_row)

    def read(self, inside: Inside, parts: Parts, files: Files) -> tuple[list[Entry], Live | None]:
        if "rows.jsonl" in files:
            self._rows.update(inside, (*parts, "rows.jsonl"), files["rows.jsonl"])
        # The same point may stand there twice after a restart: the last counts.
        rows = {row["key"]: row for row in self._rows.items}
        when = files["rows.jsonl"].mtime_ns / 1e9 if "rows.jsonl" in files else None
        entries = [_entry_of_row(parts, row, when) for row in rows.values()]
        progress = read_progress(inside, parts, files)
        if progress is None:
            return entries, None
        state, silent = progress
        histories, _ = inside.files((*parts, "trained"))
        file = f"{state['program']}.jsonl"
        entry = Entry(
            parts, f"program {state['program']}", "program", state["label"] or "sweep", {},
            "training" if silent <= SECONDS_OF_SILENCE else "silent", state["step"], state["steps"],
            # Of what trains now it would be another time at every look.
            when=files[PROGRESS].mtime_ns / 1e9 if silent > SECONDS_OF_SILENCE else None,
            history=(*parts, "trained", file) if file in histories else None,
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
