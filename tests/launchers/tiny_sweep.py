"""A tiny sweep, the engines that can make it, what it must end in, and one who kills workers."""

import importlib.util
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crossreg.runs.safeguards.saving import Saving
from crossreg.runs.sweep_folder import read_rows
from crossreg.studies.launchers.settings import Workers

OFTEN = Saving(every=0.0)
# Three programs of two replicas hold the members of two ensembles of three, so that each of these needs two programs;
# the first member alone is `unregularized`, and persistence needs no program.
METHODS, STEPS, MOST = "unregularized,ensemble,persistence", 400, 2
ENGINES: dict[str, dict[str, Any]] = {
    "local": {"workers": 2},
    "ray": {"launcher": "ray", "workers": 2},
    "slurm": {"launcher": "slurm", "workers": 2, "worker_memory": 1.0, "slurm_options": "cluster=local"},
}
PACKAGES = {"ray": "ray", "slurm": "submitit"}


def engine(name: str, *marks: pytest.MarkDecorator):
    """A parameter: an engine that is skipped where its package is missing."""
    there = importlib.util.find_spec(PACKAGES.get(name, "crossreg")) is not None
    return pytest.param(name, marks=[pytest.mark.skipif(not there, reason=f"{name} is not installed"), *marks])


def workers(name: str, **more: Any) -> Workers:
    return Workers(most_replicas=MOST, **(ENGINES[name] | more)).checked()


class Made(NamedTuple):
    """A finished sweep: its rows as lines, in any order, and its trained files."""

    rows: list[str]
    files: dict[str, bytes]


def made(folder: Path) -> Made:
    files = {path.name: path.read_bytes() for path in (folder / "trained").iterdir()}
    return Made(sorted((folder / "rows.jsonl").read_text().splitlines()), files)


def check_whole(folder: Path, wanted: Made) -> None:
    """The folder is what one process makes: the same bytes, no row twice, nothing left over."""
    got = made(folder)
    assert got.rows == wanted.rows
    assert got.files == wanted.files
    assert len({row["key"] for row in read_rows(folder)}) == len(got.rows)
    assert not (folder / "jobs").exists()
    assert not (folder / "snapshots").exists()
    assert not list(folder.rglob("*.tmp"))


class Killer:
    """Kills workers that are in the middle of a training, or ends them otherwise: such that have saved a snapshot."""

    def __init__(self, folder: Path, kills: int = 1, by: signal.Signals | Callable[[int], None] = signal.SIGKILL):
        self._folder, self._kills, self._by = folder, kills, by
        self.killed: list[tuple[str, int]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._kills = 0
        self._thread.join()

    def _watch(self) -> None:
        while len(self.killed) < self._kills:
            for lock in (self._folder / "jobs").glob("*.lock"):
                saved = list((self._folder / "snapshots").glob(f"{lock.stem}.*.npz"))
                said = lock.read_text().split()
                if saved and said and int(said[1]) not in {pid for _, pid in self.killed}:
                    self._end(int(said[1]))
                    self.killed.append((lock.stem, int(said[1])))
                    break
            time.sleep(0.002)

    def _end(self, pid: int) -> None:
        if isinstance(self._by, signal.Signals):
            os.kill(pid, self._by)
        else:
            self._by(pid)
