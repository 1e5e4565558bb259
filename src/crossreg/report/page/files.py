"""Files of run folders, which may be of an older version, half written, or something else by that name."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crossreg.files.regular import read_regular
from crossreg.progress.display import clock
from crossreg.progress.history import known_lines, parsed

History = list[dict[str, Any]]


def read_text(path: Path) -> bytes:
    """Return the bytes of a file; none where it cannot be read."""
    try:
        return read_regular(path)
    except (OSError, ValueError):
        return b""


def read_json(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file, empty where it holds none."""
    value = parsed(read_text(path))
    return value if isinstance(value, dict) else {}


def readable_lines(path: Path) -> tuple[History, int]:
    """Return the lines of a history and the number of lines that could not be read: a kill may have cut the last."""
    texts = read_text(path).splitlines()
    kept = known_lines(map(parsed, texts))
    return kept, len(texts) - len(kept)


def said_time(begun: Iterable[Path], ended: Path) -> str:
    """Return when something ended and about how long it took, from the times of its files."""
    times = [path.stat().st_mtime for path in begun if path.exists()]
    try:
        last = ended.stat().st_mtime
    except OSError:
        return ""
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(last))
    took = f", about {clock(last - min(times))} after it began" if times and last - min(times) >= 1 else ""
    return f"{day} UTC{took}"
