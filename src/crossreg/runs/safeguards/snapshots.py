"""Snapshots on disk, and trainings that resume from the newest good one.

snapshots/NAME.STEP.npz   the state of a training at a step (`training.replicas.Snapshot`), its history until then, and
                          what its numbers depend on (`runs/safeguards/versions.py`)

`SnapshotStore.save` writes a snapshot; the last two are kept until the training has ended. A snapshot is sealed
(`files/sealed.py`). A corrupted one is reported, and the one before it is used. Batches and noise follow from the key
and the step, so there is no state of a loader to keep.
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
from crossreg.runs.file_names import SNAPSHOTS
from crossreg.runs.safeguards.saving import Saving
from crossreg.runs.safeguards.versions import check_numerics, numerics
from crossreg.training.checkpoint import load_with, save_arrays
from crossreg.training.loop import train_replicas
from crossreg.training.parallel import Layout, over_replicas
from crossreg.training.replicas import Progress, Record, Snapshot, first_snapshot
from crossreg.training.step import Task

# The largest share of a run's time that snapshots may take.
_MOST_OF_THE_TIME = 0.01
_KEPT = 2


class SnapshotStore(NamedTuple):
    """The snapshots of one training.

    Attributes:
        folder: The folder of the run, sweep or car experiment.
        name: The name of the training in the names of the files.
        identity: The identity in their seals, which follows from settings and data.
        saving: How often they are written, and whether they may come from another machine.
    """

    folder: Path
    name: str
    identity: str
    saving: Saving

    def path(self, step: int) -> Path:
        """Return the file of a step."""
        return self.folder / SNAPSHOTS / f"{self.name}.{step:09d}.npz"

    def steps(self) -> list[int]:
        """Return the steps of the stored snapshots, the newest first."""
        form = re.compile(re.escape(self.name) + r"\.(\d{9})\.npz")
        found = (form.fullmatch(path.name) for path in (self.folder / SNAPSHOTS).glob(f"{self.name}.*.npz"))
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def save(self, snapshot: Snapshot, history: bytes, layout: Layout) -> None:
        """Write a snapshot with the history until then, and remove the oldest."""
        path, snapshot = self.path(int(snapshot.step)), layout.collect(snapshot)
        about = json.dumps({"on": numerics(layout)}).encode()
        more = {"about": np.frombuffer(about, np.uint8), "history": np.frombuffer(history, np.uint8)}

        def write() -> None:
            make_folder(path.parent)
            save_arrays(path, snapshot, identity=self.identity, more=more)

        try:
            write()
        except FileNotFoundError:  # another worker has just ended and removed the folder
            write()
        for old in self.steps()[_KEPT:]:
            self.path(old).unlink(missing_ok=True)

    def check_own(self) -> None:
        """Raise InputError if there are snapshots of other settings or data, before anything is written beside them."""
        for path in map(self.path, self.steps()):
            if seal_or_none(path) not in (None, self.identity):
                raise InputError(f"{path}: is of other settings or data; choose another folder")

    def newest(self, like: Snapshot, layout: Layout) -> tuple[Snapshot, bytes] | None:
        """Load the newest good snapshot.

        Args:
            like: A snapshot of the shapes that are expected.
            layout: How the training is spread over devices.

        Returns:
            The snapshot and the history until then; None where there is none.

        Raises:
            InputError: If there are snapshots of other settings or data, or of another kind of machine.
        """
        self.check_own()
        steps = self.steps()
        for step in steps:
            try:
                arrays = {"about": BYTES, "history": BYTES}
                snapshot, more = load_with(self.path(step), like, arrays, identity=self.identity)
            except InputError as error:
                print(f"crossreg: {error}; trying the one before it", file=sys.stderr)
                continue
            stored = json.loads(more["about"].tobytes())["on"]
            check_numerics(stored, numerics(layout), str(self.folder), force=self.saving.force)
            return snapshot, more["history"].tobytes()
        if steps:
            print(
                f"crossreg: {self.folder}: no snapshot can be used; training starts from the beginning", file=sys.stderr
            )
        return None

    def clear(self, *, but: int | None = None) -> None:
        """Remove all snapshots, except that of step `but`: the training has ended."""
        for step in self.steps():
            if step != but:
                self.path(step).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other trainings may have snapshots there
            (self.folder / SNAPSHOTS).rmdir()


class HistoryLines(NamedTuple):
    """The history of a training: its file, if it has one, and the lines `of` a record."""

    file: Path | None
    of: Callable[[Record], Sequence[dict[str, Any]]]


class Resumable:
    """A training that resumes where an earlier process left it, and can be stopped at any time.

    Of several processes that train together, process 0 has the snapshots, and the others begin where it does.

    Args:
        models: The untrained models, stacked over replicas.
        tasks: Their data and keys.
        config: The settings of the training.
        lines: Its history.
        kept: Its snapshots; with None it has none.
        layout: How it is spread over devices.

    Example:
        ```python
        training = Resumable(models, tasks, config, lines, store)
        with training.saved_on_stop():
            for report in training.reports():
                ...
        training.forget()
        ```
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
        # Snapshot and history belong together: one assignment changes both, so that a stop finds a consistent pair.
        self._now: tuple[Snapshot | None, bytes] = found or (None, b"")
        self._saved = self.begun_at = self.step  # the step that an earlier process had reached
        self._lock = threading.RLock()
        self._saved_at, self._pause = time.perf_counter(), 0.0 if kept is None else kept.saving.every
        if lines.file is not None:  # what follows the snapshot is trained again
            with replacing(lines.file) as file:
                file.write(self.history)

    @property
    def snapshot(self) -> Snapshot:
        """The current state."""
        snapshot = self._now[0]
        return first_snapshot(self._arguments[0]) if snapshot is None else self._layout.collect(snapshot)

    @property
    def step(self) -> int:
        """The number of steps so far."""
        return 0 if self._now[0] is None else int(self._now[0].step)

    @property
    def history(self) -> bytes:
        """The history so far, as JSON lines."""
        return self._now[1]

    def reports(self) -> Iterator[Progress]:
        """Train to the end, and yield a report at every look."""
        models, tasks, config = self._arguments
        for report in train_replicas(models, tasks, config, start=self._now[0], layout=self._layout):
            # Before anything of this step is stored, which would pass for a result of the unchanged data.
            check_unchanged(tasks.train, tasks.reg)
            more = b""
            if report.record is not None:
                more = "".join(json.dumps(line) + "\n" for line in self._lines.of(report.record)).encode()
            self._now = (report.snapshot, self._now[1] + more)
            if more and (path := self._lines.file) is not None:
                with _reported(path, path.parent), path.open("ab") as file:
                    file.write(more)
            if self._kept is not None and time.perf_counter() - self._saved_at > self._pause:
                self.save()
            yield report

    def save(self) -> None:
        """Write a snapshot of the last look, unless there is one. A full disk does not end a training."""
        with self._lock:
            snapshot, history = self._now
            if self._kept is None or snapshot is None or int(snapshot.step) == self._saved:
                return
            before = time.perf_counter()
            with _reported(self._kept.path(int(snapshot.step)), self._kept.folder):
                self._kept.save(snapshot, history, self._layout)
                self._saved = int(snapshot.step)
            self._saved_at = time.perf_counter()
            self._pause = max(self._kept.saving.every, (self._saved_at - before) / _MOST_OF_THE_TIME)

    def saved_on_stop(self) -> contextlib.AbstractContextManager[None]:
        """Return a block in which Ctrl-C and SIGTERM save first."""
        return saved_on_stop(self.save)

    def forget(self, *, but_the_last: bool = False) -> None:
        """Remove the snapshots, once the result is stored."""
        if self._kept is not None:
            self._kept.clear(but=self._saved if but_the_last else None)


@contextlib.contextmanager
def _reported(path: Path, folder: Path) -> Iterator[None]:
    """Report what cannot be written now, and is tried again later; without its folder, a training ends."""
    try:
        yield
    except OSError as error:
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "the folder has vanished", str(folder)) from error
        print(f"crossreg: {path}: not written ({error.strerror}); training continues", file=sys.stderr, flush=True)
