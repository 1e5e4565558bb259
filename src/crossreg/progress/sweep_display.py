"""The display of a sweep: how much of it is trained and scored, and the time left."""

import math
import time
from io import TextIOBase
from pathlib import Path
from typing import Any, TextIO

from crossreg.progress.display import PLAIN_SECONDS, LiveDisplay, clock, shown
from crossreg.progress.progress_file import ProgressFile
from crossreg.training.replicas import Progress


class SweepDisplay(LiveDisplay):
    """A context that shows the progress of a sweep: what trains now, and the time left for training and scoring.

    Args:
        work: The training still to be done, in any unit to which time is about proportional.
        programs: The number of programs.
        trials: The number of trials, finished or not.
        scored: The number of trials that were scored before.
        seconds_per_work: A first guess of the pace, until something was timed.
        scoring_work: A first guess of the work of scoring a row, until one was scored.
        folder: Where `progress.json` is kept.
        enabled: Whether anything is shown.
        stream: Where to show it, by default the standard error.
    """

    def __init__(
        self,
        work: float,
        programs: int,
        trials: int,
        *,
        scored: int = 0,
        seconds_per_work: float | None = None,
        scoring_work: float | None = None,
        folder: Path | None = None,
        enabled: bool = True,
        stream: TextIO | TextIOBase | None = None,
    ):
        super().__init__(enabled=enabled, stream=stream)
        self._file = None if folder is None else ProgressFile(folder)
        self._program = ""
        self._total, self._programs, self._trials = work, programs, trials
        self._guess, self._scoring_work = seconds_per_work, scoring_work
        self._done = self._base = self._timed = 0.0
        self._number, self._scored, self._before = 0, scored, scored
        self._steps, self._work = 1, 0.0
        self._label, self._step, self._scores = "", "", ""
        self._seconds = {"compile": 0.0, "train": 0.0, "score": 0.0}
        self._compiling, self._compiled = False, 0
        self._at = 0
        self._since = time.perf_counter()
        self._printed = -math.inf

    def __enter__(self) -> "SweepDisplay":
        self._start()
        return self

    def __exit__(self, *_) -> None:
        self._show(force=True)
        if self._file is not None:
            self._file.remove()
        self._stop()

    def begin(self, label: str, steps: int, work: float, *, program: str = "") -> None:
        """Show that a program starts.

        Args:
            label: The methods that train in it.
            steps: Its number of steps.
            work: Its part of the whole.
            program: The name of its files.
        """
        self._clock("score")
        self._program, self._at = program, 0
        if self._file is not None:
            self._file.forget_replicas()
        self._number += 1
        self._compiling = True
        self._label, self._steps, self._step, self._scores = label, steps, "compiling …", ""
        self._base += self._work
        self._work = work
        self._done = self._base
        self._show(force=True)

    @property
    def label(self) -> str:
        """The program in training, by its number and in words; empty before the first."""
        return f"program {self._number}/{self._programs} {self._label}" if self._label else ""

    def skip(self, step: int) -> None:
        """Show that an earlier sweep has trained this program up to a step."""
        self._at = step
        self._done = self._base + self._work * step / self._steps
        if step == self._steps:
            self._step = "trained before"

    def update(self, report: Progress) -> None:
        """Show the newest report of the program."""
        # The first report of a program comes after its compilation, which says nothing of the steps to come.
        self._clock("compile" if self._compiling else "train")
        before, self._done = self._done, self._base + self._work * report.step / self._steps
        self._timed += 0 if self._compiling else self._done - before
        self._compiled += self._compiling
        self._compiling = False
        self._at, self._step = report.step, f"step {report.step}/{self._steps}"
        if report.record is not None:
            line = report.record.mean()
            losses = (("train loss", "train_loss"), ("reg NLL", "reg_nll"), ("reg ECE", "reg_ece"))
            self._scores = "  ".join(f"{title} {shown(line[key])}" for title, key in losses)
            if line["diverged"]:
                self._scores += f"  diverged {line['diverged']}"
        self._show(report=report)

    def scored(self, count: int = 1) -> None:
        """Show that `count` more rows are scored."""
        self._clock("score")
        self._scored += count
        self._step, self._scores = "scoring", ""
        self._show()

    def _clock(self, now: str) -> None:
        """Add the time since the last call to that of an activity."""
        moment = time.perf_counter()
        self._seconds[now] += moment - self._since
        self._since = moment

    def _left(self) -> str:
        """Return the time left, as far as it is known; before the first score, the time of scoring is a guess."""
        train_left, score_left = self._total - self._done, self._trials - self._scored
        rate = self._seconds["train"] / self._timed if self._timed else self._guess
        if train_left > 0 and rate is None:
            return "–"
        seconds = train_left * (rate or 0.0)
        seconds += self._seconds["compile"] / max(self._compiled, 1) * (self._programs - self._number)
        if not score_left:
            return clock(seconds)
        now = self._scored - self._before
        if not now and self._scoring_work is not None and rate is not None:
            return f"about {clock(seconds + rate * self._scoring_work * score_left)}"
        if not now:
            return f"{clock(seconds)} + scoring"
        return clock(seconds + self._seconds["score"] / now * score_left)

    def _now(self) -> str:
        """Return the current activity in one word."""
        return self._step.split()[0] if self._step else "scoring"

    def _trained(self) -> float:
        return self._done / self._total if self._total else 1.0

    def _text(self) -> str:
        shares = f"trained {self._trained():4.0%}", f"scored {self._scored}/{self._trials}", f"left {self._left()}"
        return "  ".join(filter(None, (*shares, self.label, self._step, self._scores)))

    def _panel(self):
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        return Group(Text(self._text()), ProgressBar(total=max(self._total, 1), completed=self._done))

    def _state(self) -> dict[str, Any]:
        """Return what `progress.json` says."""
        return {
            "label": self._label,
            "program": self._program,
            "number": self._number,
            "programs": self._programs,
            "step": self._at,
            "steps": self._steps,
            "trained": self._trained(),
            "scored": self._scored,
            "points": self._trials,
            "left": self._left(),
            "now": self._now(),
        }

    def _show(self, *, force: bool = False, report: Progress | None = None) -> None:
        if self._file is not None:
            self._file.write(self._state(), report.record if report else None, force=force)
        if self._redraw() and (force or time.perf_counter() - self._printed >= PLAIN_SECONDS):
            self._printed = time.perf_counter()
            self._print(self._text())
