"""Claims: sentences of a page whose numbers and words are computed from the published rows.

A claim is a function that computes what a sentence says and returns the sentence as the page should have it. A page
that says anything else fails, and so does a page with a number that no claim accounts for.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.metrics.intervals import Interval
from crossreg.report.tables.comparison import Line, collect, difference, fair_group, regimes, signed

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
Claim = Callable[[], str]
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
# Tables that a script writes have tests of their own; code and the targets of links say nothing of results.
_NO_PROSE = r"```.*?```|<!-- .*?written by.*?-->.*?<!-- end.*?-->|<!--.*?-->|`[^`\n]*`|\]\([^)\s]*\)"
_NUMBER = re.compile(rf"[^\s(]*(?<![\w.])\.?\d[^\s)]*|\b(?:{'|'.join(WORDS[2:])})\b", re.IGNORECASE)


def flat(text: str) -> str:
    """A text with every run of blanks as one space."""
    return " ".join(text.split())


@cache
def page(name: str) -> str:
    """The text of a page of the repository, with every run of blanks as one space."""
    return flat((ROOT / name).read_text())


def part_of(name: str, begin: str, end: str) -> str:
    """The text of a page from one piece of its text to the next place of another."""
    text = (ROOT / name).read_text()
    start = text.index(begin)
    return text[start : text.index(end, start + len(begin))]


def unclaimed_numbers(text: str, claims: Iterable[str], named: Sequence[str] = ()) -> list[str]:
    """The numbers, in digits or in words, that stand in the prose of a text outside of all claims.

    `named` are phrases with a number in it that says nothing of any result, such as "three groups of parameters".
    """
    left = flat(text)
    for sentence in (*map(flat, claims), *map(flat, named)):
        left = left.replace(sentence, " ")
    return [found.group() for found in _NUMBER.finditer(re.sub(_NO_PROSE, " ", left, flags=re.DOTALL))]


@cache
def rows(name: str) -> list[dict[str, Any]]:
    """The published rows of a set."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


@cache
def groups(name: str, steps: int = 10_000) -> dict[tuple[float, int], dict[str, Line]]:
    """The lines that are compared, by (observed fraction, trajectories) and by method."""
    lines = collect(row for row in rows(name) if row["steps"] == steps)
    found = {}
    for group in map(fair_group, regimes(lines)):
        first = group[0]
        at = (first.regime["observed_fraction"], first.regime.get("total", first.split[0]))
        found[at] = {line.method: line for line in group}
    return found


def mean(line: Line, score: str) -> float:
    """The mean of a score over all runs of a line."""
    return float(np.mean(line.values(score)))


def gap(group: dict[str, Line], ours: str, other: str, score: str) -> Interval:
    """The mean of one method less that of another, with its 95% interval."""
    found = difference(group[ours], group[other], score)
    assert found is not None
    return found


def ahead(group: dict[str, Line], ours: str, other: str, score: str) -> bool:
    """Whether one method has a lower score than another, beyond the 95% interval of their difference."""
    return gap(group, ours, other, score).high < 0


def level(group: dict[str, Line], ours: str, other: str, score: str) -> bool:
    """Whether the 95% interval of the difference of two methods holds 0."""
    found = gap(group, ours, other, score)
    return found.low <= 0 <= found.high


def where(name: str, holds: Callable[[dict[str, Line]], bool], steps: int = 10_000) -> set[tuple[float, int]]:
    """The regimes in which something holds."""
    return {at for at, group in groups(name, steps).items() if holds(group)}


def short(value: float, digits: int) -> str:
    """A number without the zero before the point, as in .017."""
    return re.sub(r"^(−?)0\.", r"\1.", signed(value, digits))


def spread(values: Iterable[float], digits: int) -> str:
    """The least and the largest of some numbers, as in ".007 to .017"."""
    listed = list(values)
    return f"{short(min(listed), digits)} to {short(max(listed), digits)}"


def of(count: int, total: int) -> str:
    """How many of all, in words: "all eight", or "six"."""
    return f"all {WORDS[total]}" if count == total else WORDS[count]
