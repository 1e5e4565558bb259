"""The cost of reg updates: what was measured, and the paper's formula for it."""

import json
from functools import cache
from typing import Any

import numpy as np
from claimed import RESULTS

from crossreg.config import TrainConfig


@cache
def step_times() -> list[dict[str, Any]]:
    """The timings that `benchmarks/speed.py` has written."""
    return json.loads((RESULTS / "speed.json").read_text())


def timed(device: str, group: str, contender: str) -> dict[str, Any]:
    """One of them; `seconds` and `ratio` are the median and the quartiles."""
    [row] = [r for r in step_times() if (r["device"], r["group"], r["contender"]) == (device, group, contender)]
    return row


def overhead(k_reg: int, device: str = "cpu") -> float:
    """The measured cost of a step in units of one without reg updates."""
    return timed(device, "cost of reg", f"crossreg, k_reg {k_reg}")["ratio"][0]


def cost_ratio(device: str = "cpu") -> float:
    """C_reg / C_train, from what was measured with k_reg 5."""
    return (overhead(5, device) - 1) * 5


def reg_updates(train: TrainConfig) -> float:
    """Reg updates for every train update: one in k_reg, and one after every step once the run is to settle."""
    steps = np.arange(1, train.steps + 1)
    return float(np.mean((steps % train.k_reg == 0) | (steps > train.settled_after)))


def by_the_formula(updates: float, device: str = "cpu") -> float:
    """The paper's 1 + (C_reg / C_train) / k_reg, with reg updates for every train update in place of 1 / k_reg."""
    return 1 + updates * cost_ratio(device)
