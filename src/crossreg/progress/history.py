"""Lines of a history as numbers, whoever wrote them: `metrics.jsonl` of a run, `trained/*.jsonl` of a sweep.

Of a site's σ its geometric mean is kept,

    exp(mean over channels of log σ),

since they range over orders of magnitude. A σ that has underflowed to 0 has no logarithm and is left out.
"""

import math
from collections.abc import Iterable
from typing import Any

CURVES = ("train_loss", "reg_loss", "reg_nll", "reg_ece")
_NUMBERS = (*CURVES, "reg_std_mu")


def number(value: Any) -> float | None:
    """A finite number, or None: a file may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def whole(value: Any) -> int | None:
    """A whole number of a size that counts steps, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else None


def mean_log(values: Iterable[Any]) -> float | None:
    """The mean logarithm of those values that have one; None where none has."""
    logs = [math.log(known) for value in values if (known := number(value)) is not None and known > 0]
    return math.fsum(logs) / len(logs) if logs else None


def geometric_mean(values: Iterable[Any]) -> float | None:
    """The geometric mean of those values that are positive; None where none is."""
    mean = mean_log(values)
    return None if mean is None else math.exp(mean)


def history_line(line: Any) -> dict[str, Any] | None:
    """What is kept of a line of a history, with one σ for each site; None where it is no such line.

    `diverged_at` is −1 where the training goes on.
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
