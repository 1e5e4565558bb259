"""What a person sees while models train: a live table on a terminal, plain lines elsewhere."""

import math
import sys
import time
from io import TextIOBase
from typing import Any, TextIO

from crossreg.training.loop import Progress

_PLAIN_SECONDS = 10.0
_HEADINGS = {"train_loss": "train loss", "reg_loss": "reg loss", "reg_nll": "reg NLL", "reg_ece": "reg ECE"}


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def typical_sigmas(line: dict[str, Any]) -> dict[str, float]:
    """The geometric mean of each site's σ: they range over orders of magnitude."""
    return {
        name: math.exp(sum(math.log(value) for value in values) / len(values)) for name, values in line["sigma"].items()
    }


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


class TrainingDisplay:
    """A context that shows one row per model in training.

    `steps` maps each model's name to its number of steps. The display goes to the standard error, so that
    the standard output stays what a command prints.
    """

    def __init__(self, steps: dict[str, int], *, enabled: bool = True, stream: TextIO | TextIOBase | None = None):
        self._steps = steps
        self._enabled = enabled
        self._stream: Any = stream or sys.stderr
        self._reports: dict[str, Progress] = {}
        self._lines: dict[str, dict[str, Any]] = {}
        self._printed: dict[str, float] = {}
        self._live = None

    def __enter__(self) -> "TrainingDisplay":
        if self._enabled and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._console = Console(file=self._stream)
            self._live = Live(self._table(), console=self._console, refresh_per_second=4)
            self._live.start()
        elif self._enabled:
            print("compiling …", file=self._stream, flush=True)
        return self

    def __exit__(self, *_) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, name: str, report: Progress) -> None:
        """Takes in where the model `name` stands."""
        self._reports[name] = report
        if report.record is not None:
            self._lines[name] = report.record.of(0)
        if self._live is not None:
            self._live.update(self._table())
        elif self._enabled and report.record is not None:
            now = time.perf_counter()
            is_last = report.step == self._steps[name]
            if is_last or now - self._printed.get(name, -math.inf) >= _PLAIN_SECONDS:
                self._printed[name] = now
                print(self._plain(name), file=self._stream, flush=True)

    def _seconds_left(self) -> float:
        return sum(report.seconds_left for report in self._reports.values())

    def _plain(self, name: str) -> str:
        line = self._lines[name]
        parts = [
            f"{name:>14} step {line['step']:>6}/{self._steps[name]}",
            f"train loss {_number(line['train_loss'])}",
            f"reg loss {_number(line['reg_loss'])}",
            f"reg NLL {_number(line['reg_nll'])}",
            f"reg ECE {_number(line['reg_ece'])}",
        ]
        if line["sigma"]:
            parts.append("σ " + " ".join(f"{site} {s:.2g}" for site, s in typical_sigmas(line).items()))
        if line["diverged_at"] >= 0:
            parts.append(f"diverged at step {line['diverged_at']}")
        return "  ".join([*parts, f"left {clock(self._seconds_left())}"])

    def _table(self):
        """The live table; a narrow terminal loses the bar, the reg NLL and a digit of the σ's."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        wide = self._console.width >= 105
        keys = ("train_loss", "reg_loss", "reg_nll", "reg_ece") if wide else ("train_loss", "reg_loss", "reg_ece")
        title = f"training, time left {clock(self._seconds_left())}" if self._reports else "compiling …"
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2 if wide else 1, 0, 0))
        headings = ["", "step", *([""] if wide else []), *(_HEADINGS[key] for key in keys), "σ per site"]
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for name, steps in self._steps.items():
            step = self._reports[name].step if name in self._reports else 0
            cells = ["–"] * (len(keys) + 1)
            if name in self._lines:
                line = self._lines[name]
                sigmas = [f"{s:.2g}" if wide else f"{s:.1g}" for s in typical_sigmas(line).values()]
                cells = [*(_number(line[key]) for key in keys), " ".join(sigmas) or "–"]
                if line["diverged_at"] >= 0:
                    cells[-1] = f"diverged at {line['diverged_at']}"
            bar = [ProgressBar(total=steps, completed=step, width=20)] if wide else []
            table.add_row(name, f"{step}/{steps}", *bar, *cells)
        return table


class CountDisplay:
    """A context that shows how many of some things are done, and the time left; nothing below two seconds."""

    def __init__(self, what: str, *, enabled: bool = True, stream: TextIO | TextIOBase | None = None):
        self._what = what
        self._enabled = enabled
        self._stream: Any = stream or sys.stderr
        self._begun = self._printed = time.perf_counter()
        self._live = False

    def __enter__(self) -> "CountDisplay":
        return self

    def __exit__(self, *_) -> None:
        if self._live:
            print(file=self._stream, flush=True)

    def update(self, done: int, total: int) -> None:
        """Takes in that so many of all are done."""
        now = time.perf_counter()
        on_terminal = self._stream.isatty()
        soon = now - self._begun < 2 or now - self._printed < (0.2 if on_terminal else _PLAIN_SECONDS)
        if not self._enabled or (soon and not (self._live and done == total)):
            return
        self._printed, self._live = now, on_terminal
        left = clock((now - self._begun) / done * (total - done)) if done else "–"
        text = f"{self._what} {done}/{total}  left {left}"
        print(f"\r{text}   " if on_terminal else text, end="" if on_terminal else "\n", file=self._stream, flush=True)


class SweepDisplay:
    """A context that shows how far a whole sweep is: what trains now, and the time left for training and scoring.

    `work` and `points` are what there is: the training still to be done, in any unit that time is about proportional
    to, and all rows, `scored` of them before. `seconds_per_work` is a first guess, until something was timed.
    """

    def __init__(
        self,
        work: float,
        programs: int,
        points: int,
        *,
        scored: int = 0,
        seconds_per_work: float | None = None,
        enabled: bool = True,
        stream: TextIO | TextIOBase | None = None,
    ):
        self._total, self._programs, self._points = work, programs, points
        self._guess = seconds_per_work
        self._enabled = enabled
        self._stream: Any = stream or sys.stderr
        self._done = self._base = self._timed = 0.0
        self._number, self._scored, self._before = 0, scored, scored
        self._steps, self._work = 1, 0.0
        self._label, self._step, self._scores = "", "", ""
        self._seconds = {"compile": 0.0, "train": 0.0, "score": 0.0}
        self._compiling, self._compiled = False, 0
        self._now = "score"
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
        if self._live is not None:
            self._live.stop()

    def begin(self, label: str, steps: int, work: float) -> None:
        """A program starts: `label` says what trains in it, and `work` is its part of the whole."""
        self._clock("score")
        self._number += 1
        self._compiling = True
        self._label, self._steps, self._step, self._scores = label, steps, "compiling …", ""
        self._base += self._work
        self._work = work
        self._done = self._base
        self._show(force=True)

    def skip(self, step: int) -> None:
        """An earlier sweep has brought this program to a step."""
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
        self._step = f"step {report.step}/{self._steps}"
        if report.record is not None:
            line = report.record.mean()
            losses = (("train loss", "train_loss"), ("reg NLL", "reg_nll"), ("reg ECE", "reg_ece"))
            self._scores = "  ".join(f"{title} {_number(line[key])}" for title, key in losses)
            if line["diverged"]:
                self._scores += f"  diverged {line['diverged']}"
        self._show()

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
        """The time left, as far as it is known: before the first score, that of training alone."""
        train_left, score_left = self._total - self._done, self._points - self._scored
        rate = self._seconds["train"] / self._timed if self._timed else self._guess
        if train_left > 0 and rate is None:
            return "–"
        seconds = train_left * (rate or 0.0)
        seconds += self._seconds["compile"] / max(self._compiled, 1) * (self._programs - self._number)
        if not score_left:
            return clock(seconds)
        now = self._scored - self._before
        if not now:
            return f"{clock(seconds)} + scoring"
        return clock(seconds + self._seconds["score"] / now * score_left)

    def _text(self) -> str:
        trained = self._done / self._total if self._total else 1.0
        return "  ".join(
            part
            for part in (
                f"trained {trained:4.0%}",
                f"scored {self._scored}/{self._points}",
                f"left {self._left()}",
                f"program {self._number}/{self._programs} {self._label}" if self._label else "",
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

    def _show(self, *, force: bool = False) -> None:
        if self._live is not None:
            self._live.update(self._panel())
        elif self._enabled and (force or time.perf_counter() - self._printed >= _PLAIN_SECONDS):
            self._printed = time.perf_counter()
            print(self._text(), file=self._stream, flush=True)
