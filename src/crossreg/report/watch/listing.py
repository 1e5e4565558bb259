"""Lists all run folders below one, and reads again only those that have changed.

The server makes the listing itself; requests name runs by its entries. A finished folder is known by the time at which
it last changed, so that a look at thousands of them takes milliseconds.
"""

import itertools
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from crossreg.progress.history import history_line
from crossreg.report.looks import family_of
from crossreg.report.shared.stored import DEPTH
from crossreg.report.watch.folders import Entry, Live, SweepReader, read_car, read_run, read_settings
from crossreg.report.watch.history import GrowingHistory, curves
from crossreg.report.watch.inside import Inside, Parts, Stamp
from crossreg.report.watch.trainings import ProgramFile, SweepPlan, read_plan, read_program
from crossreg.runs.file_names import CONFIG, PLAN, TRAINED
from crossreg.runs.kinds import kind_by

_SECONDS_BETWEEN_LOOKS = 1.0
_MOST_FOLDERS = 20_000
_MOST_HISTORIES = 64


@dataclass
class _Folder:
    """A folder that holds runs, in the state in which it was last read."""

    stamps: Mapping[str, Stamp]
    changed_ns: int
    entries: list[Entry]
    live: Live | None
    settings: dict[str, Any]
    reader: SweepReader | None

    @property
    def is_settled(self) -> bool:
        """Whether it can change only by files that come or go, which its own time tells."""
        return self.reader is None and self.live is None and all(e.state == "finished" for e in self.entries)


class Listing:
    """The runs below a root. All methods may be called from several threads."""

    def __init__(self, inside: Inside):
        self._inside = inside
        self._lock = threading.Lock()
        self._looked = -float("inf")
        self._folders: dict[Parts, _Folder] = {}
        self._entries: dict[str, Entry] = {}
        self._plans: dict[Parts, SweepPlan] = {}
        self._trained: dict[Parts, dict[str, ProgramFile]] = {}
        self._histories: dict[Parts, GrowingHistory] = {}
        self._unseen: list[str] = []
        self._version = 0

    def runs(self) -> dict[str, Any]:
        """Return every run, and a version that changes whenever one of them does."""
        with self._lock:
            self._look()
            runs = [_described(identity, entry) for identity, entry in self._entries.items()]
            return {"root": self._inside.root.name, "version": self._version, "runs": runs, "unseen": self._unseen}

    def live(self) -> dict[str, Any]:
        """Return what is training, what has fallen silent, and the version of the list."""
        with self._lock:
            self._look()
            found = [folder.live for folder in self._folders.values() if folder.live is not None]
            live = [self._described_live(one) for one in found if not one.is_silent]
            silent = [self._described_live(one) for one in found if one.is_silent]
            return {"version": self._version, "live": live, "silent": silent}

    def curve(self, identity: str) -> dict[str, Any] | None:
        """Return the curves of one run, or None where there is no such run."""
        with self._lock:
            self._look()
            entry = self._entries.get(identity)
            if entry is None:
                return None
            plan = self._plan(entry.folder) if entry.kind == "sweep" else None
        # A plan of thousands of trials takes seconds: other requests are answered meanwhile.
        keys = [] if plan is None else plan.trainings(entry)
        with self._lock:
            if entry.kind in ("run", "car"):
                return curves(self._lines(entry.history))
            programs = self._programs(entry.folder)
            if entry.kind == "program":
                found = curves(self._lines(entry.history))
            else:
                files = [f"{name}.jsonl" for name, p in programs.items() if any(key in p.names for key in keys)]
                lines = (line for file in files for line in self._lines((*entry.folder, TRAINED, file)))
                found = curves(lines, keys)
            names = {key: name for program in programs.values() for key, name in program.names.items()}
            return found | {"diverged": {names.get(key, key): step for key, step in found["diverged"].items()}}

    def _lines(self, parts: Parts | None) -> list[Any]:
        """Return the lines of a history, of which only new ones are read."""
        if parts is None:
            return []
        stamp = self._inside.files(parts[:-1])[0].get(parts[-1])
        history = self._histories.pop(parts, None) or GrowingHistory(history_line)
        if stamp is None:
            return []
        history.update(self._inside, parts, stamp)
        self._histories[parts] = history  # the newest last
        while len(self._histories) > _MOST_HISTORIES:
            del self._histories[next(iter(self._histories))]
        return history.items

    def _described_live(self, live: Live) -> dict[str, Any]:
        progress = dict(live.progress)
        replicas = progress["replicas"]
        names = self._names_of_replicas(live)
        if not names and len(replicas) > 1:
            names = [f"replica {number}" for number in range(len(replicas))]
        for replica, name in zip(replicas, itertools.chain(names, itertools.repeat("")), strict=False):
            replica["name"] = name
        return _described(live.entry.identity, live.entry) | progress | {"silent": live.silent}

    def _names_of_replicas(self, live: Live) -> list[str]:
        if live.entry.kind != "program":
            return []
        program = self._programs(live.entry.folder).get(live.progress["program"])
        return list(program.names.values()) if program is not None else []

    def _look(self) -> None:
        """Read the folders that have changed since the last look."""
        now = time.monotonic()
        if now - self._looked < _SECONDS_BETWEEN_LOOKS:
            return
        found: dict[Parts, _Folder] = {}
        unseen: dict[str, list[Parts]] = {}
        self._walk((), found, [_MOST_FOLDERS], unseen)
        self._folders = found
        entries = {entry.identity: entry for folder in found.values() for entry in folder.entries}
        said = [f"{why}, such as {_name_of(parts[0])}" for why, parts in unseen.items()]
        if _lasting(entries) != _lasting(self._entries) or said != self._unseen:
            self._version += 1
        self._entries, self._unseen = entries, said
        self._looked = time.monotonic()

    def _walk(self, parts: Parts, found: dict[Parts, _Folder], left: list[int], unseen: dict[str, list[Parts]]) -> None:
        """Find all folders that hold runs; `unseen` takes those that were not looked into, by the reason."""
        left[0] -= 1
        if left[0] < 0:
            unseen.setdefault(f"folders beyond the first {_MOST_FOLDERS:,}", []).append(parts)
            return
        known, changed_ns = self._folders.get(parts), self._changed_ns(parts)
        if known is not None and known.is_settled and known.changed_ns == changed_ns:
            found[parts] = known
            return
        files, folders = self._inside.files(parts)
        if folder := self._read(parts, files, changed_ns, known):
            found[parts] = folder
            return
        below = [(*parts, name) for name in folders if not name.startswith(".")]
        if len(parts) < DEPTH:
            for one in below:
                self._walk(one, found, left, unseen)
        elif below:
            unseen.setdefault(f"folders more than {DEPTH} below this one", []).append(below[0])

    def _changed_ns(self, parts: Parts) -> int:
        try:
            return os.lstat(self._inside.root.joinpath(*parts)).st_mtime_ns
        except OSError:
            return -1

    def _read(self, parts: Parts, files: Mapping[str, Stamp], changed_ns: int, known: _Folder | None) -> _Folder | None:
        if kind_by(files, {}) == "sweep":
            if known is not None and known.live is None and known.reader is not None and known.stamps == files:
                return known
            reader = known.reader if known is not None and known.reader is not None else SweepReader()
            return _Folder(files, changed_ns, *reader.read(self._inside, parts, files), {}, reader)
        if CONFIG not in files:
            return None
        if known is not None and known.stamps.get(CONFIG) == files[CONFIG]:
            settings = known.settings
        else:
            settings = read_settings(self._inside, (*parts, CONFIG))
        if kind_by(files, settings) == "cars":
            return _Folder(files, changed_ns, *read_car(self._inside, parts, files, settings), settings, None)
        if {"data", "model", "train"} & settings.keys():
            return _Folder(files, changed_ns, *read_run(self._inside, parts, files, settings), settings, None)
        return None

    def _plan(self, parts: Parts) -> SweepPlan | None:
        """What a sweep was asked for, read anew where that has changed."""
        stamp = self._inside.files(parts)[0].get(PLAN)
        known = self._plans.get(parts)
        if stamp is not None and (known is None or known.stamp != stamp):
            known = self._plans[parts] = read_plan(self._inside, (*parts, PLAN), stamp)
        return known

    def _programs(self, parts: Parts) -> dict[str, ProgramFile]:
        """Return the trained programs of a sweep by name; only new ones are read."""
        files, _ = self._inside.files((*parts, TRAINED))
        known, found = self._trained.get(parts, {}), {}
        for file, stamp in sorted(files.items()):
            if file.endswith(".json"):
                name = file.removesuffix(".json")
                program = known.get(name)
                if program is None or program.stamp != stamp:
                    program = read_program(self._inside, (*parts, TRAINED, file), stamp)
                found[name] = program
        self._trained[parts] = found
        return found


def _lasting(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return entries without the steps of running ones: those come with what is live."""
    return {k: replace(entry, step=None) if entry.state == "training" else entry for k, entry in entries.items()}


def _name_of(parts: Parts) -> str:
    """Return the name of a folder on the page."""
    return "/".join(parts).encode(errors="replace").decode() or "."


def _described(identity: str, entry: Entry) -> dict[str, Any]:
    """Return an entry as plain values, without its files."""
    shown = {name: value for name, value in vars(entry).items() if name not in ("folder", "key", "history")}
    return shown | {"id": identity, "name": _name_of(entry.folder), "color": family_of(entry.method)}
