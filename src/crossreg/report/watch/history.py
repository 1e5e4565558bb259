"""Histories that grow while they are read, and their curves: means over replicas."""

import itertools
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from crossreg.progress.history import CURVES, geometric_mean, number, parsed
from crossreg.report.watch.inside import Inside, Parts, Stamp

_CHUNK = 8 * 2**20  # bytes that are read at a time
_FEWEST_STEPS = 1024  # the fewest that are kept of a history with more steps
_STEP = re.compile(rb'"step": ?(\d+)')
Line = dict[str, Any]


class GrowingLines:
    """The JSON lines of a file that is appended to: only new lines are read, and an incomplete one waits.

    `keep` turns a line into the value to keep, or None.
    """

    def __init__(self, keep: Callable[[Line], Any]):
        self._keep = keep
        self._stamp: Stamp | None = None
        self._read = 0
        self._first = b""
        self._forget()

    def _forget(self) -> None:
        self._items: list[Any] = []

    @property
    def items(self) -> list[Any]:
        """The values that were kept, in the order of the lines."""
        return self._items

    def update(self, inside: Inside, parts: Parts, stamp: Stamp) -> bool:
        """Read the lines that have come since; return whether the file has changed."""
        if stamp == self._stamp:
            return False
        before = self._stamp
        self._stamp = stamp
        # A file that was replaced or cut is read from the beginning, unless it begins as before and is longer.
        replaced = before is not None and (stamp.inode != before.inode or stamp.size < self._read)
        if replaced or (self._read and (inside.read(parts, 0, len(self._first)) or b"") != self._first):
            self._read, self._first = 0, b""
            self._forget()
        while text := inside.read(parts, self._read, _CHUNK):
            end = text.rfind(b"\n") + 1
            if not end:
                break
            self._first = self._first or text[: min(end, 256)]
            self._read += end
            for line in text[:end].splitlines():
                self._take(line)
        return True

    def _take(self, line: bytes) -> None:
        self._items += self._kept(line)

    def _kept(self, line: bytes) -> list[Any]:
        value = parsed(line)
        kept = self._keep(value) if isinstance(value, dict) else None
        return [] if kept is None else [kept]


class GrowingHistory(GrowingLines):
    """A history that grows: at most `2 * _FEWEST_STEPS` of its steps, evenly spaced, and the newest.

    A screen shows no more, and parsing a line as JSON takes a hundred times as long as finding it.
    """

    def _forget(self) -> None:
        super()._forget()
        self._step: bytes | None = None
        self._last, self._stride = -1, 1  # the place of the newest step among all, and how far apart kept ones are
        self._places: list[int] = []
        self._newest: list[bytes] = []  # lines of the newest step, where that is not kept

    @property
    def items(self) -> list[Any]:
        return self._items + [kept for line in self._newest for kept in self._kept(line)]

    def _take(self, line: bytes) -> None:
        step = match[1] if (match := _STEP.search(line)) else None
        if step is None or step != self._step:
            self._step, self._last, self._newest = step, self._last + 1, []
            if self._last == 2 * _FEWEST_STEPS * self._stride:
                self._stride *= 2
                even = [place % self._stride == 0 for place in self._places]
                self._items = list(itertools.compress(self._items, even))
                self._places = list(itertools.compress(self._places, even))
        if self._last % self._stride:
            self._newest.append(line)
            return
        kept = self._kept(line)
        self._items += kept
        self._places += [self._last] * len(kept)


def curves(lines: Iterable[Line], trainings: Collection[str] | None = None) -> dict[str, Any]:
    """Return means over replicas at every step, with the smallest and the largest value; σ as geometric means.

    A replica counts until the step at which it diverged.

    Args:
        lines: Lines of histories, as `history_line` returns them.
        trainings: The keys of the trainings to include, by default all.
    """
    by_step: dict[int, list[Line]] = {}
    diverged: dict[str, int] = {}
    for line in lines:
        if trainings is None or line["training"] in trainings:
            going = by_step.setdefault(line["step"], [])
            if line["diverged_at"] >= 0:
                diverged[line["training"]] = line["diverged_at"]
            else:
                going.append(line)
    steps = sorted(by_step)
    sites = list(dict.fromkeys(site for step in steps for line in by_step[step] for site in line["sigma"]))
    found: dict[str, Any] = {"step": steps, "diverged": diverged}
    for name in CURVES:
        columns = [[line[name] for line in by_step[step] if line[name] is not None] for step in steps]
        found[name] = {
            "mean": [_mean(column) for column in columns],
            "low": [min(column, default=None) for column in columns],
            "high": [max(column, default=None) for column in columns],
        }
    found["sigma"] = {
        site: [geometric_mean(line["sigma"].get(site) for line in by_step[step]) for step in steps] for site in sites
    }
    return found


def _mean(values: list[float]) -> float | None:
    return number(sum(values) / len(values)) if values else None
