"""All run folders below one, looked at again only where something has changed.

A listing is made by the server itself; requests name runs by what it has listed. Folders that are finished are known by
the time at which they last changed, so that a look at thousands of them takes milliseconds.
"""

import functools
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from crossreg.config import from_dict
from crossreg.errors import InputError
from crossreg.report.watch.folders import Entry, Live, SweepReader, read_car, read_run, read_settings
from crossreg.report.watch.history import GrowingLines, curves, history_line, whole
from crossreg.report.watch.inside import Inside, Parts, Stamp, parsed

_SECONDS_BETWEEN_LOOKS = 1.0
_DEPTH = 6
_MOST_FOLDERS = 20_000
_MOST_HISTORIES = 64
_MOST_SEEDS = 1000


@dataclass
class _Folder:
    """A folder that holds runs, as it was when last read."""

    stamps: Mapping[str, Stamp]
    changed_ns: int
    entries: list[Entry]
    live: Live | None
    settings: dict[str, Any]
    reader: SweepReader | None

    @property
    def is_settled(self) -> bool:
        """Whether it changes only by files that come or go, which its own time tells."""
        return self.reader is None and self.live is None and all(e.state == "finished" for e in self.entries)


@dataclass
class _Sweep:
    """Which trainings the rows of a sweep were made of, and which file holds the history of each."""

    stamps: Mapping[str, Stamp]
    asked: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    @functools.cached_property
    def trainings(self) -> dict[str, list[str]]:
        """The keys of a row's trainings, by its own. For thousands of rows it takes seconds, when first asked for."""
        return trainings_of_rows(self.asked)


class Listing:
    """The runs below a root. All methods may be called from several threads."""

    def __init__(self, inside: Inside):
        self._inside = inside
        self._lock = threading.Lock()
        self._looked = -float("inf")
        self._folders: dict[Parts, _Folder] = {}
        self._entries: dict[str, Entry] = {}
        self._sweeps: dict[Parts, _Sweep] = {}
        self._histories: dict[Parts, GrowingLines] = {}
        self._version = 0

    def runs(self) -> dict[str, Any]:
        """Every run that is there, and a number that changes when one of them does."""
        with self._lock:
            self._look()
            runs = [_described(identity, entry) for identity, entry in self._entries.items()]
            return {"root": self._inside.root.name, "version": self._version, "runs": runs}

    def live(self) -> dict[str, Any]:
        """What trains now, and the number of the list."""
        with self._lock:
            self._look()
            live = [folder.live for folder in self._folders.values() if folder.live is not None]
            return {"version": self._version, "live": [self._described_live(one) for one in live]}

    def curve(self, identity: str) -> dict[str, Any] | None:
        """The curves of one run, or None where there is no such run."""
        with self._lock:
            self._look()
            entry = self._entries.get(identity)
            if entry is None:
                return None
            if entry.kind in ("run", "car"):
                return curves(self._lines(entry.history)) if entry.history else curves(())
            sweep = self._sweep(entry.folder)
            if entry.kind == "program":
                found = curves(self._lines(entry.history)) if entry.history else curves(())
            else:
                keys = sweep.trainings.get(entry.key, [])
                files = dict.fromkeys(sweep.files[key] for key in keys if key in sweep.files)
                lines = (line for file in files for line in self._lines((*entry.folder, "trained", file)))
                found = curves(lines, keys)
            return found | {"diverged": {sweep.names.get(key, key): step for key, step in found["diverged"].items()}}

    def _lines(self, parts: Parts) -> list[Any]:
        """The lines of a history, of which only what is new is read."""
        stamp = self._inside.files(parts[:-1])[0].get(parts[-1])
        history = self._histories.pop(parts, None) or GrowingLines(history_line)
        if stamp is None:
            return []
        history.update(self._inside, parts, stamp)
        self._histories[parts] = history  # the newest last
        while len(self._histories) > _MOST_HISTORIES:
            del self._histories[next(iter(self._histories))]
        return history.items

    def _described_live(self, live: Live) -> dict[str, Any]:
        progress = dict(live.progress)
        names = list(self._names_of_replicas(live))
        if not names and len(progress["replicas"]) > 1:
            names = [f"replica {number}" for number in range(len(progress["replicas"]))]
        for number, replica in enumerate(progress["replicas"]):
            replica["name"] = names[number] if number < len(names) else ""
        return _described(live.entry.identity, live.entry) | progress | {"silent": live.silent if live.is_silent else 0}

    def _names_of_replicas(self, live: Live) -> list[str]:
        if live.entry.kind != "program":
            return []
        sweep = self._sweep(live.entry.folder)
        own = f"{live.progress['program']}.jsonl"
        return [sweep.names[key] for key, file in sweep.files.items() if file == own]

    def _look(self) -> None:
        """Reads what has changed since the last look."""
        now = time.monotonic()
        if now - self._looked < _SECONDS_BETWEEN_LOOKS:
            return
        found: dict[Parts, _Folder] = {}
        self._walk((), found, [_MOST_FOLDERS])
        self._folders = found
        entries = {entry.identity: entry for folder in found.values() for entry in folder.entries}
        if _lasting(entries) != _lasting(self._entries):
            self._version += 1
        self._entries = entries
        self._looked = time.monotonic()

    def _walk(self, parts: Parts, found: dict[Parts, _Folder], left: list[int]) -> None:
        left[0] -= 1
        if left[0] < 0:
            return
        known = self._folders.get(parts)
        if known is not None and known.is_settled and known.changed_ns == self._changed_ns(parts):
            found[parts] = known
            return
        changed_ns = self._changed_ns(parts)
        files, folders = self._inside.files(parts)
        if folder := self._read(parts, files, changed_ns, known):
            found[parts] = folder
        elif len(parts) < _DEPTH:
            for name in folders:
                if not name.startswith("."):
                    self._walk((*parts, name), found, left)

    def _changed_ns(self, parts: Parts) -> int:
        try:
            return os.lstat(self._inside.root.joinpath(*parts)).st_mtime_ns
        except OSError:
            return -1

    def _read(self, parts: Parts, files: Mapping[str, Stamp], changed_ns: int, known: _Folder | None) -> _Folder | None:
        if "sweep.json" in files:
            if known is not None and known.live is None and known.reader is not None and known.stamps == files:
                return known
            reader = known.reader if known is not None and known.reader is not None else SweepReader()
            return _Folder(files, changed_ns, *reader.read(self._inside, parts, files), {}, reader)
        if "config.yaml" not in files:
            return None
        if known is not None and known.stamps.get("config.yaml") == files["config.yaml"]:
            settings = known.settings
        else:
            settings = read_settings(self._inside, (*parts, "config.yaml"))
        if "cars" in settings:
            return _Folder(files, changed_ns, *read_car(self._inside, parts, files, settings), settings, None)
        if {"data", "model", "train"} & settings.keys():
            return _Folder(files, changed_ns, *read_run(self._inside, parts, files, settings), settings, None)
        return None

    def _sweep(self, parts: Parts) -> _Sweep:
        """The trainings of a sweep, read anew where its plan or its programs have changed."""
        files, _ = self._inside.files(parts)
        programs, _ = self._inside.files((*parts, "trained"))
        stamps = {name: stamp for name, stamp in (files | programs).items() if name.endswith(".json")}
        stamps.pop("progress.json", None)
        known = self._sweeps.get(parts)
        if known is not None and known.stamps == stamps:
            return known
        sweep = _Sweep(stamps, self._inside.json((*parts, "sweep.json")))
        for name in sorted(name for name in programs if name.endswith(".json")):
            self._read_program((*parts, "trained", name), sweep)
        self._sweeps[parts] = sweep
        return sweep

    def _read_program(self, parts: Parts, sweep: _Sweep) -> None:
        described = parsed(self._inside.read(parts) or b"")
        for item in described if isinstance(described, list) else []:
            if isinstance(item, dict) and isinstance(item.get("key"), str):
                sweep.files[item["key"]] = parts[-1].removesuffix(".json") + ".jsonl"
                sweep.names[item["key"]] = _name_of_training(item)


def _lasting(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Entries without the step of those that train, which is told with what is live."""
    return {k: replace(entry, step=None) if entry.state == "training" else entry for k, entry in entries.items()}


def trainings_of_rows(asked: dict[str, Any]) -> dict[str, list[str]]:
    """For each row that a sweep was asked for, the keys of its trainings."""
    from crossreg.studies.sweep import point_key, points_of, trainings_of

    digest = asked.get("data")
    seeds = whole(asked.get("seeds"))
    if seeds is None or seeds > _MOST_SEEDS:
        return {}
    try:
        points = points_of(asked, "sweep.json")
    except (InputError, AttributeError, ValueError, TypeError):
        return {}  # no plan of this version: its rows have scores and no curves
    return {
        point_key(point, str(digest)): [t.key(str(digest)) for members in trainings_of(point) for t in members]
        for point in points
    }


def _name_of_training(item: dict[str, Any]) -> str:
    """A replica in words: its regime, its seed, and which member of an ensemble it is."""
    try:
        config = from_dict(item.get("config"))
    except InputError:
        return str(item["key"])[:8]
    data = config.data
    said = f"{data.observed_fraction:g} observed, {data.train_size} trajectories, seed {config.train.seed}"
    return said + (f", member {item['member']}" if item.get("member") else "")


def _described(identity: str, entry: Entry) -> dict[str, Any]:
    """An entry as JSON."""
    return {
        "id": identity,
        "name": "/".join(entry.folder).encode(errors="replace").decode() or ".",
        "kind": entry.kind,
        "method": entry.method,
        "regime": dict(entry.regime),
        "state": entry.state,
        "step": entry.step,
        "steps": entry.steps,
        "scores": dict(entry.scores),
        "diverged_at": entry.diverged_at,
        "when": entry.when,
    }
