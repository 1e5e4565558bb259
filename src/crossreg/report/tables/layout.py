"""Cells of a table as aligned columns for a terminal, as a Markdown table, and as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from crossreg.metrics.intervals import Interval

IN_SAMPLE = "†"


class Cell(NamedTuple):
    """The text of a cell, and whether it stands out: the clear winner of its regime, or a clear difference."""

    text: str
    bold: bool = False


Row = Sequence[str | Cell]


def aligned(rows: Sequence[Row]) -> str:
    """Return right-aligned columns. A bold cell has a star, for which all others leave room where there are `Cell`s."""
    room = " " * any(isinstance(cell, Cell) for row in rows for cell in row)

    def marked(cell: str | Cell) -> str:
        text, bold = (cell, False) if isinstance(cell, str) else cell
        return text + ("*" if bold else "" if text.endswith(IN_SAMPLE) else room)

    texts = [[marked(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in texts)


def in_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV; None and NaN are empty."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([["" if v != v else v for v in row] for row in rows])
    return out.getvalue()


def with_ends(found: Interval | None) -> list[float | None]:
    """Return a mean and the ends of its interval as cells of a CSV file."""
    return [None] * 3 if found is None else [found.mean, found.low, found.high]


def piped(rows: Sequence[Row]) -> str:
    """Return a Markdown table, the first row as its head; empty without rows."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    text = ["| " + " | ".join(f"**{c.text}**" if c.bold else c.text for c in row) + " |" for row in cells]
    return "\n".join([*text[:1], *(["|" + "---|" * len(rows[0])] if rows else []), *text[1:]])
