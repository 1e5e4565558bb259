"""Histories that grow while they are read, and what is drawn of them: curves over replicas."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from crossreg.report.history import CURVES, geometric_mean, number
from crossreg.report.watch.inside import Inside, Parts, Stamp, parsed

_CHUNK = 8 * 2**20  # bytes that are taken in at a time
Line = dict[str, Any]


class GrowingLines:
    """The JSON lines of a file that is appended to: only what is new is read, and a line that is not whole yet waits.

    `keep` makes of a line what is to be kept of it, or None.
    """

    def __init__(self, keep: Callable[[Line], Any]):
        self._keep = keep
        self._stamp: Stamp | None = None
        self._read = 0
        self._first = b""
        self.items: list[Any] = []

    def update(self, inside: Inside, parts: Parts, stamp: Stamp) -> bool:
        """Takes in what has come since; says whether anything has."""
        if stamp == self._stamp:
            return False
        before = self._stamp
        self._stamp = stamp
        # Replaced in one move, or cut: from the beginning, unless it begins as before and is longer.
        replaced = before is not None and (stamp.inode != before.inode or stamp.size < self._read)
        if replaced or (self._read and (inside.read(parts, 0, len(self._first)) or b"") != self._first):
            self._read, self._first, self.items = 0, b"", []
        while text := inside.read(parts, self._read, _CHUNK):
            end = text.rfind(b"\n") + 1
            if not end:
                break
            self._first = self._first or text[: min(end, 256)]
            self._read += end
            for line in text[:end].splitlines():
                value = parsed(line)
                if isinstance(value, dict) and (kept := self._keep(value)) is not None:
                    self.items.append(kept)
        return True


def curves(lines: Iterable[Line], trainings: Collection[str] | None = None) -> dict[str, Any]:
    """Means over replicas at every step, and the least and the largest; σ as geometric means.

    A replica counts until the step at which it diverged. `trainings` are those that are looked at, by default all.
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
