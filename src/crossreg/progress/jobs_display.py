"""The display of a sweep whose jobs run elsewhere: how much of it is trained and scored, and the time left."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from crossreg.progress.display import clock
from crossreg.progress.history import last_line
from crossreg.progress.sweep_display import SweepDisplay

_SECONDS_BETWEEN_LOOKS = 5.0


class Part(NamedTuple):
    """A program among several in training: its label, its steps, its part of the whole work, and its history."""

    label: str
    steps: int
    work: float
    history: Path


class JobsDisplay(SweepDisplay):
    """A context that shows the progress of programs that train side by side, read from their histories."""

    def __init__(self, parts: Mapping[str, Part], **extent):
        super().__init__(**extent)
        self._parts = dict(parts)
        self._at_step = dict.fromkeys(parts, 0)
        self._ended: set[str] = set()
        self._begun, self._looked, self._done_before = time.perf_counter(), float("-inf"), 0.0
        self._waiting = 0

    def stored(self, names: set[str]) -> None:
        """Count programs that were trained before."""
        self._ended |= names & self._parts.keys()
        self._done_before = self._done = self._sum()

    def ended(self, name: str) -> None:
        """Show that a program is trained."""
        self._ended.add(name)
        self._done = self._sum()
        self._show(force=True)

    def look(self, waiting: int) -> None:
        """Read now and then how far the programs are; `waiting` jobs have not ended yet."""
        self._waiting = waiting
        if (now := time.perf_counter()) - self._looked < _SECONDS_BETWEEN_LOOKS:
            return
        first, self._looked = self._looked < 0, now
        for name, part in self._parts.items():
            if name in self._ended:
                continue
            last = last_line(part.history)
            step = min(last["step"] if last else 0, part.steps)
            if step != self._at_step[name]:
                self._at_step[name] = self._at = step
                self._label, self._program, self._steps = part.label, name, part.steps
        self._done = self._sum()
        if first:  # what an earlier sweep has begun was not trained in the time since
            self._done_before = self._done
        self._show()

    def _sum(self) -> float:
        self._number = len(self._ended)
        shares = {n: 1.0 if n in self._ended else at / self._parts[n].steps for n, at in self._at_step.items()}
        return sum((self._parts[name].work * share for name, share in shares.items()), 0.0)

    def _left(self) -> str:
        """Return the time left at the pace of all workers together; the jobs include the scoring."""
        trained = self._done - self._done_before
        if self._done >= self._total:
            return f"{clock(0.0)}{' + scoring' * (self._scored < self._trials)}"
        if trained <= 0:
            return "–"
        return f"about {clock((time.perf_counter() - self._begun) / trained * (self._total - self._done))}"

    def _now(self) -> str:
        """Return the activity that is furthest, in one word."""
        if len(self._ended) == len(self._parts):
            return "scoring"
        return "step" if any(self._at_step.values()) else "compiling"

    def _text(self) -> str:
        return "  ".join(
            (
                f"trained {self._trained():4.0%}",
                f"scored {self._scored}/{self._trials}",
                f"left {self._left()}",
                f"programs {len(self._ended)}/{self._programs}",
                f"jobs open {self._waiting}",
            )
        )
