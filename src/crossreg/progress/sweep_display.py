"""What a person sees while a sweep trains: how far all of it is, and the time left."""

import math
import sys
import time
from io import TextIOBase
from pathlib import Path
from typing import Any, TextIO

from crossreg.progress.display import PLAIN_SECONDS, clock, shown
from crossreg.progress.progress_file import ProgressFile
from crossreg.training.replicas import Progress


class SweepDisplay:
    """A context that shows how far a whole sweep is: what trains now, and the time left for training and scoring.

    `work` and `trials` are what there is: the training still to be done, in any unit that time is about proportional
    to, and all rows, `scored` of them before. `seconds_per_work` is a first guess, until something was timed, and
    `scoring_work` one of what scoring a row takes in the same unit, until one was scored.
    `progress.json` is kept in `folder`.
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
        self._file = None if folder is None else ProgressFile(folder)
        self._program = ""
        self._total, self._programs, self._points = work, programs, trials
        self._guess, self._scoring_work = seconds_per_work, scoring_work
        self._enabled = enabled
        self._stream: Any = stream or sys.stderr
        self._done = self._base = self._timed = 0.0
        self._number, self._scored, self._before = 0, scored, scored
        self._steps, self._work = 1, 0.0
        self._label, self._step, self._scores = "", "", ""
        self._seconds = {"compile": 0.0, "train": 0.0, "score": 0.0}
        self._compiling, self._compiled = False, 0
        self._at = 0
        self._since = time.perf_counter()
        self._printed = -math.inf
        self._live = None

    def __enter__(self) -> "SweepDisplay":
        if self._enabled and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._console = Console(file=self._stream)
            self._live = Live(self._panel(), console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_) -> None:
        self._show(force=True)
        if self._file is not None:
            self._file.remove()
        if self._live is not None:
            self._live.stop()

    def begin(self, label: str, steps: int, work: float, *, program: str = "") -> None:
        """A program starts: `label` says what trains in it, `work` is its part of the whole, `program` its file."""
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
        """The program that trains, by its number and in words; empty before the first."""
        return f"program {self._number}/{self._programs} {self._label}" if self._label else ""

    def skip(self, step: int) -> None:
        """An earlier sweep has brought this program to a step."""
        self._at = step
        self._done = self._base + self._work * step / self._steps
        if step == self._steps:
            self._step = "trained before"

    def update(self, report: Progress) -> None:
        """Takes in where the program stands."""
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
        """Points are scored."""
        self._clock("score")
        self._scored += count
        self._step, self._scores = "scoring", ""
        self._show()

    def _clock(self, now: str) -> None:
        """Books the time since the last call under what was going on."""
        moment = time.perf_counter()
        self._seconds[now] += moment - self._since
        self._since = moment

    def _left(self) -> str:
        """The time left, as far as it is known: before the first score, what scoring takes is a guess."""
        train_left, score_left = self._total - self._done, self._points - self._scored
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
        """What goes on, in a word."""
        return self._step.split()[0] if self._step else "scoring"

    def _trained(self) -> float:
        return self._done / self._total if self._total else 1.0

    def _text(self) -> str:
        return "  ".join(
            part
            for part in (
                f"trained {self._trained():4.0%}",
                f"scored {self._scored}/{self._points}",
                f"left {self._left()}",
                self.label,
                self._step,
                self._scores,
            )
            if part
        )

    def _panel(self):
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        return Group(Text(self._text()), ProgressBar(total=max(self._total, 1), completed=self._done))

    def _state(self) -> dict[str, Any]:
        """The same for a program to read."""
        return {
            "label": self._label,
            "program": self._program,
            "number": self._number,
            "programs": self._programs,
            "step": self._at,
            "steps": self._steps,
            "trained": self._trained(),
            "scored": self._scored,
            "points": self._points,
            "left": self._left(),
            "now": self._now(),
        }

    def _show(self, *, force: bool = False, report: Progress | None = None) -> None:
        if self._file is not None:
            self._file.write(self._state(), report.record if report else None, force=force)
        if self._live is not None:
            self._live.update(self._panel())
        elif self._enabled and (force or time.perf_counter() - self._printed >= PLAIN_SECONDS):
            self._printed = time.perf_counter()
            print(self._text(), file=self._stream, flush=True)
