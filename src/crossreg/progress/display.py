"""Displays of what trains or is scored: live on a terminal, plain lines elsewhere.

They write to the standard error, so that the standard output has only what a command prints. The displays also keep the
`progress.json` of the folders that they are given, for `crossreg watch`.
"""

import math
import sys
import time
from collections.abc import Callable, Mapping
from io import TextIOBase
from pathlib import Path
from typing import Any, TextIO

from crossreg.progress.history import geometric_mean
from crossreg.progress.progress_file import ProgressFile
from crossreg.training.replicas import Progress

PLAIN_SECONDS = 10.0
_HEADINGS = {"train_loss": "train loss", "reg_loss": "reg loss", "reg_nll": "reg NLL", "reg_ece": "reg ECE"}


def clock(seconds: float) -> str:
    """Return seconds as m:ss or h:mm:ss."""
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def typical_sigmas(line: dict[str, Any]) -> dict[str, float]:
    """Return the geometric mean of each site's σ, which range over orders of magnitude; 0 where all are 0."""
    return {name: geometric_mean(values) or 0.0 for name, values in line["sigma"].items()}


def shown(value: float | None) -> str:
    """Return a number as the displays show it."""
    return "–" if value is None else f"{value:.3f}"


class LiveDisplay:
    """The base of displays that redraw a panel, made by `_panel`, on a terminal.

    Args:
        enabled: Whether anything is shown.
        stream: Where to show it, by default the standard error.
    """

    def __init__(self, *, enabled: bool = True, stream: TextIO | TextIOBase | None = None):
        self._enabled = enabled
        self._stream: Any = stream or sys.stderr
        self._live = None

    def _start(self) -> bool:
        """Start to draw, where there is a terminal; returns whether lines are to be printed instead."""
        if not self._enabled or not self._stream.isatty():
            return self._enabled
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=self._stream)
        self._live = Live(self._panel(), console=self._console, refresh_per_second=4)
        self._live.start()
        return False

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _redraw(self) -> bool:
        """Draw again, where there is a terminal; returns whether lines are to be printed instead."""
        if self._live is None:
            return self._enabled
        self._live.update(self._panel())
        return False

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def _panel(self) -> Any:
        raise NotImplementedError


class TrainingDisplay(LiveDisplay):
    """A context that shows one row per model in training.

    Args:
        steps: The number of steps of each model, by its name.
        folders: Where the `progress.json` of each model is kept.
        enabled: Whether anything is shown.
        stream: Where to show it, by default the standard error.

    Example:
        ```python
        with TrainingDisplay({"xreg": 5000}) as display:
            for report in training.reports():
                display.update("xreg", report)
        ```
    """

    def __init__(
        self,
        steps: dict[str, int],
        *,
        folders: Mapping[str, Path] | None = None,
        enabled: bool = True,
        stream: TextIO | TextIOBase | None = None,
    ):
        super().__init__(enabled=enabled, stream=stream)
        self._steps = steps
        self._files = {name: ProgressFile(folder) for name, folder in (folders or {}).items()}
        self._reports: dict[str, Progress] = {}
        self._lines: dict[str, dict[str, Any]] = {}
        self._printed: dict[str, float] = {}

    def __enter__(self) -> "TrainingDisplay":
        for name, file in self._files.items():
            file.write({"label": name, "step": 0, "steps": self._steps[name], "left": "–"})
        if self._start():
            self._print("compiling …")
        return self

    def __exit__(self, *_) -> None:
        for file in self._files.values():
            file.remove()
        self._stop()

    def update(self, name: str, report: Progress) -> None:
        """Show the newest report of a model."""
        self._reports[name] = report
        if name in self._files:
            state = {"label": name, "step": report.step, "steps": self._steps[name]}
            self._files[name].write(state | {"left": clock(self._seconds_left())}, report.record)
        if report.record is not None:
            self._lines[name] = report.record.of(0)
        if self._redraw() and report.record is not None:
            now = time.perf_counter()
            is_last = report.step == self._steps[name]
            if is_last or now - self._printed.get(name, -math.inf) >= PLAIN_SECONDS:
                self._printed[name] = now
                self._print(self._plain(name))

    def _seconds_left(self) -> float:
        return sum(report.seconds_left for report in self._reports.values())

    def _plain(self, name: str) -> str:
        line = self._lines[name]
        parts = [f"{name:>14} step {line['step']:>6}/{self._steps[name]}"]
        parts += [f"{heading} {shown(line[key])}" for key, heading in _HEADINGS.items()]
        if line["sigma"]:
            parts.append("σ " + " ".join(f"{site} {s:.2g}" for site, s in typical_sigmas(line).items()))
        if line["diverged_at"] >= 0:
            parts.append(f"diverged at step {line['diverged_at']}")
        return "  ".join([*parts, f"left {clock(self._seconds_left())}"])

    def _panel(self):
        """Return the live table; on a narrow terminal without the bar, the reg NLL and a digit of each σ."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        wide = self._console.width >= 105
        keys = [key for key in _HEADINGS if wide or key != "reg_nll"]
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
                cells = [*(shown(line[key]) for key in keys), " ".join(sigmas) or "–"]
                if line["diverged_at"] >= 0:
                    cells[-1] = f"diverged at {line['diverged_at']}"
            bar = [ProgressBar(total=steps, completed=step, width=20)] if wide else []
            table.add_row(name, f"{step}/{steps}", *bar, *cells)
        return table


class CountDisplay:
    """A context that counts what is done and shows the time left; work of less than two seconds shows nothing.

    Args:
        what: The things that are counted, as "pairs scored".
        enabled: Whether anything is shown.
        stream: Where to show it, by default the standard error.
        folder: The folder of a run that is scored, whose `progress.json` is kept.
        steps: The number of steps of that run.

    Example:
        ```python
        with CountDisplay("fields predicted") as display:
            for done, field in enumerate(fields, start=1):
                ...
                display.update(done, len(fields))
        ```
    """

    def __init__(
        self,
        what: str,
        *,
        enabled: bool = True,
        stream: TextIO | TextIOBase | None = None,
        folder: Path | None = None,
        steps: int = 0,
    ):
        self._what = what
        self._file = None if folder is None else ProgressFile(folder)
        self._state = {"label": folder.name if folder else "", "step": steps, "steps": steps, "now": "scoring"}
        self._enabled = enabled
        self._stream: Any = stream or sys.stderr
        self._begun = self._printed = time.perf_counter()
        self._first: tuple[float, int] | None = None
        self._live = False

    def __enter__(self) -> "CountDisplay":
        if self._file is not None:
            self._file.write(self._state | {"left": "–"})
        return self

    def __exit__(self, *_) -> None:
        if self._file is not None:
            self._file.remove()
        if self._live:
            print(file=self._stream, flush=True)

    def adder(self, total: int) -> Callable[[int], None]:
        """Return a function that counts that many more of `total` as done."""
        done = 0

        def add(more: int) -> None:
            nonlocal done
            done += more
            self.update(done, total)

        return add

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done."""
        now = time.perf_counter()
        if self._first is None and done:
            self._first = (now, done)
        # Compilation came before the first of them.
        since, before = self._first or (now, done)
        left = clock((now - since) / (done - before) * (total - done)) if done > before else "–"
        if self._file is not None:
            self._file.write(self._state | {"scored": done, "points": total, "left": left})
        on_terminal = self._stream.isatty()
        soon = now - self._begun < 2 or now - self._printed < (0.2 if on_terminal else PLAIN_SECONDS)
        if not self._enabled or (soon and not (self._live and done == total)):
            return
        self._printed, self._live = now, on_terminal
        text = f"{self._what} {done}/{total}  left {left}"
        print(f"\r{text}   " if on_terminal else text, end="" if on_terminal else "\n", file=self._stream, flush=True)
