"""Cells of a table as aligned columns for a terminal and as a Markdown table."""

from collections.abc import Sequence
from typing import NamedTuple

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


def piped(rows: Sequence[Row]) -> str:
    """Return a Markdown table, the first row as its head; empty without rows."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    text = ["| " + " | ".join(f"**{c.text}**" if c.bold else c.text for c in row) + " |" for row in cells]
    return "\n".join([*text[:1], *(["|" + "---|" * len(rows[0])] if rows else []), *text[1:]])
