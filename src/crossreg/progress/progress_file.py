"""`progress.json`: what trains in a folder now, for `crossreg watch`.

The file exists while something trains or is scored, and is removed at the end, also after Ctrl-C. It is replaced in one
move, at every look at the monitored split and otherwise at most every two seconds. In between, while a program compiles
or a large one is scored, a thread touches it now and then. So a file that has not been touched for two minutes belongs
to a process that was killed.
"""

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.files.whole import replacing
from crossreg.progress.history import CURVES
from crossreg.training.replicas import Record

PROGRESS = "progress.json"
_SECONDS_BETWEEN = 2.0
SECONDS_BETWEEN_BEATS = 15.0


def replicas_of(record: Record) -> list[dict[str, Any]]:
    """Return losses and scores of every replica at its last look, and the step at which it diverged, or −1."""
    columns = [np.asarray(getattr(record, name), float).tolist() for name in CURVES]
    return [
        {k: v if math.isfinite(v) else None for k, v in zip(CURVES, values, strict=True)} | {"diverged_at": int(at)}
        for *values, at in zip(*columns, record.diverged_at, strict=True)
    ]


class ProgressFile:
    """Writes the `progress.json` of one folder. A failed write is ignored: a full disk must not end a training."""

    def __init__(self, folder: Path):
        self._path = folder / PROGRESS
        self._written = -math.inf
        self._replicas: list[dict[str, Any]] = []
        self._ended: threading.Event | None = None

    def write(self, state: Mapping[str, Any], record: Record | None = None, *, force: bool = False) -> None:
        """Write how far the training is; `record` is the look at the monitored split, if there was one just now."""
        if record is not None:
            self._replicas = replicas_of(record)
        now = time.monotonic()
        if record is None and not force and now - self._written < _SECONDS_BETWEEN:
            return
        self._written = now
        with contextlib.suppress(OSError), replacing(self._path, durable=False) as file:
            file.write(json.dumps({**state, "replicas": self._replicas}).encode())
        if self._ended is None:
            self._ended = threading.Event()
            threading.Thread(target=self._beat, args=(self._ended,), daemon=True).start()

    def _beat(self, ended: threading.Event) -> None:
        """Touch the file while the process lives."""
        while not ended.wait(SECONDS_BETWEEN_BEATS):
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def forget_replicas(self) -> None:
        """Forget the scores, since other models train from here on."""
        self._replicas = []

    def remove(self) -> None:
        """Remove the file, since nothing trains here any more."""
        if self._ended is not None:
            self._ended.set()
            self._ended = None
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
