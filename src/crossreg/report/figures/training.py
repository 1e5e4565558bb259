"""Losses and σ per site over the steps of training, as means over seeds."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from crossreg.progress.history import mean_log
from crossreg.report.figures.drawing import STYLE, method_looks, save, set_sigma_axis, site_colors, wrapped


def losses(histories: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], path: Path) -> list[Path]:
    """Draw NLL on train batches (solid) and on reg (dashed) over the steps, mean over seeds, one colour per method.

    Args:
        histories: Method → the history of each seed, as `progress.history.read_history` reads it.
        path: The figure without its ending.
    """
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(3.6, 2.8))
        for method, look in method_looks(histories).items():
            for key, style, label in (("train_loss", "-", "train"), ("reg_nll", "--", "reg")):
                steps, mean = _mean_over_seeds(histories[method], lambda line, key=key: line[key])
                axis.plot(
                    steps, mean, style, color=look["color"], lw=1.3, label=f"{wrapped(method)}, {label}", **_few(steps)
                )
        low, high = axis.get_ylim()
        axis.set(xlabel="step", ylabel="NLL per point", ylim=(low, min(high, low + 8)))
        axis.legend(fontsize=7)
        return save(figure, path)


def sigma_over_steps(seeds: Sequence[Sequence[Mapping[str, Any]]], path: Path) -> list[Path]:
    """Draw the geometric mean of each site's σ over the steps, mean over seeds."""
    sites = list(seeds[0][0]["sigma"])
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(3.6, 2.8))
        for color, site in zip(site_colors(len(sites)), sites, strict=True):
            steps, mean = _mean_over_seeds(seeds, lambda line, site=site: mean_log(line["sigma"].get(site, ())))
            axis.plot(steps, np.exp(mean), color=color, lw=1.3, label=site, **_few(steps))
        set_sigma_axis(axis)
        axis.set(xlabel="step", ylabel="σ (geometric mean over channels)")
        axis.legend(fontsize=7)
        return save(figure, path)


def _few(steps: Sequence[int]) -> dict[str, Any]:
    """Return a marker for lines of one or two points, which would not be seen."""
    return {"marker": "o", "ms": 4} if len(steps) < 3 else {}


def _mean_over_seeds(seeds, value) -> tuple[list[int], np.ndarray]:
    steps = [line["step"] for line in seeds[0]]
    table = np.asarray([[np.nan if (v := value(line)) is None else v for line in lines] for lines in seeds], float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a step at which no seed has a value is left blank
        return steps, np.nanmean(table, axis=0)
