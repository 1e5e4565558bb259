"""Files of run folders, which may be of an older version, half written, or of something else by that name."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crossreg.files.regular import read_regular
from crossreg.progress.display import clock
from crossreg.progress.history import history_line, parse_lines
from crossreg.report.page.rows import History


def read_json(path: Path) -> dict[str, Any]:
    """An object from a JSON file; empty where there is none."""
    try:
        value = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_lines(path: Path) -> tuple[list[Any], int]:
    """The lines of a JSON lines file, and how many could not be read: a kill may have cut the last one short."""
    try:
        return parse_lines(read_regular(path))
    except OSError:
        return [], 0


def read_history(path: Path) -> tuple[History, int]:
    """The lines of a history, and how many lines of the file are none."""
    lines, broken = read_lines(path)
    kept = [line for line in map(history_line, lines) if line]
    return kept, broken + len(lines) - len(kept)


def said_time(begun: Iterable[Path], ended: Path) -> str:
    """When something ended, and about how long it took, by the times of its files."""
    times = [path.stat().st_mtime for path in begun if path.exists()]
    try:
        last = ended.stat().st_mtime
    except OSError:
        return ""
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(last))
    took = f", about {clock(last - min(times))} after it began" if times and last - min(times) >= 1 else ""
    return f"{day} UTC{took}"
