"""Lists of names and values as HTML, with all text escaped."""

import html
from collections.abc import Mapping
from typing import Any


def listed(values: Mapping[str, Any]) -> str:
    """Return a list of names and values."""
    pairs = ((html.escape(str(name).replace("_", " ")), html.escape(word(value))) for name, value in values.items())
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in pairs) + "</dl>"


def folded(title: str, inside: str) -> str:
    """Return HTML that a reader can unfold; nothing where it is empty."""
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>" if inside else ""


def word(value: Any) -> str:
    """Return a value as a reader would write it."""
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(word, value)) or "–"
    return str(value)
