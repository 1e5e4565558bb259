"""Histories: JSON lines with losses, scores and σ over the steps, in `metrics.jsonl` of a run and `*.jsonl` elsewhere.

A history may still be growing, and a kill may have cut its last line short. Of a site's σ the geometric mean is kept,

    exp(mean over channels of log σ),

since they range over orders of magnitude. A σ that has underflowed to 0 has no logarithm and is left out.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crossreg.errors import InputError
from crossreg.files.regular import open_regular
from crossreg.files.whole import read_stored

CURVES = ("train_loss", "reg_loss", "reg_nll", "reg_ece")
_NUMBERS = (*CURVES, "reg_std_mu")
TAIL = 2**16  # bytes at the end of a history that hold its last line


def number(value: Any) -> float | None:
    """Return a finite number, or None: a file may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def whole(value: Any) -> int | None:
    """Return a whole number of a size that counts steps, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else None


def mean_log(values: Iterable[Any]) -> float | None:
    """Return the mean logarithm of the positive numbers among some values; None where there is none."""
    logs = [math.log(known) for value in values if (known := number(value)) is not None and known > 0]
    return math.fsum(logs) / len(logs) if logs else None


def geometric_mean(values: Iterable[Any]) -> float | None:
    """Return the geometric mean of the positive numbers among some values; None where there is none."""
    mean = mean_log(values)
    return None if mean is None else math.exp(mean)


def history_line(line: Any) -> dict[str, Any] | None:
    """Return the numbers of a line of a history, with one σ per site; None where it is no such line.

    `diverged_at` is −1 unless the training has diverged.
    """
    step = whole(line.get("step")) if isinstance(line, dict) else None
    if step is None:
        return None
    sigma, diverged_at = line.get("sigma"), whole(line.get("diverged_at"))
    sites = sigma.items() if isinstance(sigma, dict) else ()
    return {name: number(line.get(name)) for name in _NUMBERS} | {
        "training": str(line.get("training", "")),
        "step": step,
        "diverged_at": -1 if diverged_at is None else diverged_at,
        "sigma": {str(site): geometric_mean(v) if isinstance(v, list) else None for site, v in sites},
    }


def parsed(text: bytes | str) -> Any:
    """Return the value of a JSON text, or None where it has none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def known_lines(lines: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the numbers of those lines of a history that can be read."""
    return [line for line in map(history_line, lines) if line]


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a history, unchanged.

    Args:
        path: The file; a training that has none yet has no lines.

    Returns:
        The lines, without a last one that is not complete.

    Raises:
        InputError: If a line is no JSON object.
    """
    text = read_stored(path) if path.exists() else b""
    lines = [parsed(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]
    if not all(isinstance(line, dict) for line in lines):
        raise InputError(f"{path}: not readable; expected one JSON object per line")
    return lines


def last_of(tail: bytes) -> dict[str, Any] | None:
    """Return the numbers of the last complete line of a history, given the end of its file."""
    lines = reversed(tail[: tail.rfind(b"\n") + 1].splitlines())
    return next(filter(None, (history_line(parsed(line)) for line in lines)), None)


def last_line(path: Path) -> dict[str, Any] | None:
    """Return the numbers of the last complete line of a history; None where there is none."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            return last_of(file.read())
    except OSError:
        return None
