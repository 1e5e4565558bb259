"""Trainings that outlive a kill: snapshots on disk, and a loop that starts from the newest good one.

snapshots/NAME.STEP.npz   all of a training at a step (`training.replicas.Snapshot`), its history until then, and what
                          its numbers depend on (`runs/versions.py`); the last two are kept until the training has
                          ended

A snapshot is sealed (`sealed.py`). One that was corrupted is said, and the one before it is taken. Batches and noise
follow from the key and the step, so there is no state of a loader to keep.
"""

import contextlib
import errno
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import TrainConfig
from crossreg.data.files.streamed import check_unchanged
from crossreg.errors import InputError
from crossreg.files.sealed import BYTES, seal_or_none
from crossreg.files.whole import make_folder, replacing
from crossreg.machine.hosts import all_or_none, from_writer, tree_from_writer
from crossreg.machine.stopping import saved_on_stop
from crossreg.nn.surrogate import Surrogate
from crossreg.runs.saving import Saving
from crossreg.runs.versions import check_numerics, numerics
from crossreg.training.checkpoint import load_with, save_arrays
from crossreg.training.loop import train_replicas
from crossreg.training.parallel import Layout, over_replicas
from crossreg.training.replicas import Progress, Record, Snapshot, first_snapshot
from crossreg.training.step import Task

SNAPSHOTS = "snapshots"
# Of a run's time, at most, however long a snapshot takes.
_MOST_OF_THE_TIME = 0.01
_KEPT = 2


class SnapshotStore(NamedTuple):
    """Where the snapshots of one training are: in a run's folder, by a name, for settings and data of one identity."""

    folder: Path
    name: str
    identity: str
    saving: Saving

    def path(self, step: int) -> Path:
        return self.folder / SNAPSHOTS / f"{self.name}.{step:09d}.npz"

    def steps(self) -> list[int]:
        """The steps that there are snapshots of, the newest first."""
        form = re.compile(re.escape(self.name) + r"\.(\d{9})\.npz")
        found = (form.fullmatch(path.name) for path in (self.folder / SNAPSHOTS).glob(f"{self.name}.*.npz"))
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def save(self, snapshot: Snapshot, history: bytes, layout: Layout) -> None:
        """Writes a snapshot and forgets the oldest."""
        step, snapshot = int(snapshot.step), layout.collect(snapshot)
        about = json.dumps({"on": numerics(layout)}).encode()
        more = {"about": np.frombuffer(about, np.uint8), "history": np.frombuffer(history, np.uint8)}
        try:
            make_folder(self.path(step).parent)
            save_arrays(self.path(step), snapshot, identity=self.identity, more=more)
        except FileNotFoundError:  # another worker, which has ended, has just cleared the folder away
            make_folder(self.path(step).parent)
            save_arrays(self.path(step), snapshot, identity=self.identity, more=more)
        for old in self.steps()[_KEPT:]:
            self.path(old).unlink(missing_ok=True)

    def check_own(self) -> None:
        """Refuses snapshots of other settings or data, before anything is written beside them."""
        for path in map(self.path, self.steps()):
            if seal_or_none(path) not in (None, self.identity):
                raise InputError(f"{path}: is of other settings or data; choose another folder")

    def newest(self, like: Snapshot, layout: Layout) -> tuple[Snapshot, bytes] | None:
        """The newest snapshot that is good, and the history until then."""
        self.check_own()
        steps = self.steps()
        for step in steps:
            try:
                arrays = {"about": BYTES, "history": BYTES}
                snapshot, more = load_with(self.path(step), like, arrays, identity=self.identity)
            except InputError as error:
                print(f"crossreg: {error}; looks for the one before it", file=sys.stderr)
                continue
            stored = json.loads(more["about"].tobytes())["on"]
            check_numerics(stored, numerics(layout), str(self.folder), force=self.saving.force)
            return snapshot, more["history"].tobytes()
        if steps:
            print(f"crossreg: {self.folder}: no snapshot is good; begins again", file=sys.stderr)
        return None

    def clear(self, *, but: int | None = None) -> None:
        """Forgets all of them, but perhaps one: what they were kept for has ended."""
        for step in self.steps():
            if step != but:
                self.path(step).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others may have theirs there
            (self.folder / SNAPSHOTS).rmdir()


class HistoryLines(NamedTuple):
    """The history of a training: its file, and what it says of a record; without a file, snapshots alone have it."""

    file: Path | None
    of: Callable[[Record], Sequence[dict[str, Any]]]


class Resumable:
    """A training that goes on where an earlier process left it, and can be stopped at any time.

    Its snapshots are in `kept`; with None it has none. `snapshot` and `history` are where it stands. Of several
    processes that train together, process 0 has the snapshots, and the others begin where it does.
    """

    def __init__(
        self,
        models: Surrogate,
        tasks: Task,
        config: TrainConfig,
        lines: HistoryLines,
        kept: SnapshotStore | None = None,
        layout: Layout | None = None,
    ):
        self._arguments, self._lines, self._kept = (models, tasks, config), lines, kept
        self._layout = over_replicas(tasks.key.shape[0]) if layout is None else layout
        with all_or_none():
            found = kept.newest(eqx.filter_eval_shape(first_snapshot, models), self._layout) if kept else None
        if self._layout.spans_processes and from_writer(found is not None):
            snapshot, history = found or (first_snapshot(models), b"")
            found = jax.tree.map(jnp.asarray, tree_from_writer(snapshot)), history
        # The two belong together: one assignment changes both, so that a stop finds them so.
        self._now: tuple[Snapshot | None, bytes] = found or (None, b"")
        self._saved = self._begun_at = self.step
        self._lock = threading.RLock()
        self._saved_at, self._pause = time.perf_counter(), 0.0 if kept is None else kept.saving.every
        if lines.file is not None:  # what a kill has left behind the snapshot comes again
            with replacing(lines.file) as file:
                file.write(self.history)

    @property
    def snapshot(self) -> Snapshot:
        snapshot = self._now[0]
        return first_snapshot(self._arguments[0]) if snapshot is None else self._layout.collect(snapshot)

    @property
    def step(self) -> int:
        return 0 if self._now[0] is None else int(self._now[0].step)

    @property
    def begun_at(self) -> int:
        """The step that an earlier process had come to."""
        return self._begun_at

    @property
    def history(self) -> bytes:
        return self._now[1]

    def reports(self) -> Iterator[Progress]:
        """Trains to the end, from where it stands."""
        models, tasks, config = self._arguments
        for report in train_replicas(models, tasks, config, start=self._now[0], layout=self._layout):
            # Before anything of this step is stored: it would pass for a result of the data as they were.
            check_unchanged(tasks.train, tasks.reg)
            more = b""
            if report.record is not None:
                more = "".join(json.dumps(line) + "\n" for line in self._lines.of(report.record)).encode()
            self._now = (report.snapshot, self._now[1] + more)
            if more and (path := self._lines.file) is not None:
                with _said(path, path.parent), path.open("ab") as file:
                    file.write(more)
            if self._kept is not None and time.perf_counter() - self._saved_at > self._pause:
                self.save()
            yield report

    def save(self) -> None:
        """Writes a snapshot of the last look, if there is none yet. A disk that is full does not end a training."""
        with self._lock:
            snapshot, history = self._now
            if self._kept is None or snapshot is None or int(snapshot.step) == self._saved:
                return
            before = time.perf_counter()
            with _said(self._kept.path(int(snapshot.step)), self._kept.folder):
                self._kept.save(snapshot, history, self._layout)
                self._saved = int(snapshot.step)
            self._saved_at = time.perf_counter()
            self._pause = max(self._kept.saving.every, (self._saved_at - before) / _MOST_OF_THE_TIME)

    def saved_on_stop(self) -> contextlib.AbstractContextManager[None]:
        """A block in which Ctrl-C and SIGTERM save first."""
        return saved_on_stop(self.save)

    def forget(self, *, but_the_last: bool = False) -> None:
        """Its result is stored: the snapshots may go."""
        if self._kept is not None:
            self._kept.clear(but=self._saved if but_the_last else None)


@contextlib.contextmanager
def _said(path: Path, folder: Path) -> Iterator[None]:
    """What cannot be written now is said, and tried again later; but without its folder a training has no end."""
    try:
        yield
    except OSError as error:
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "the folder has vanished", str(folder)) from error
        print(f"crossreg: {path}: not written ({error.strerror}); training goes on", file=sys.stderr, flush=True)
