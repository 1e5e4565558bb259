"""Figures of forecasts: scores by lead, one line per method, and the forecast at single points over its leads."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from crossreg.report.figures.drawing import STYLE, columns_for, method_looks, save, wrapped
from crossreg.report.looks import COLORS
from crossreg.report.tables.comparison import Line, at_lead, leads_of
from crossreg.runs.fields.stored_fields import LEVELS, StoredFields

# Score → title, and the value that is right, where there is one.
_PANELS = {"spread_skill": ("spread / skill", 1.0), "ece_mix": ("ECE", 0.0), "crps": ("CRPS", None)}
# A spread that is far too large or small would flatten all other curves.
_SPREADS = (0.2, 3.0)


def lead_curves(lines: Sequence[Line], path: Path, *, where: str = "") -> list[Path]:
    """Draw spread over skill, ECE and CRPS against the lead: means over seeds, and their 95% intervals as bands.

    Args:
        lines: The lines of one regime, with scores of forecasts.
        path: The figure without its ending.
        where: The regime in words.

    Returns:
        The files.
    """
    looks = method_looks(line.method for line in lines)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(_PANELS), figsize=(3.2 * len(_PANELS), 3.2))
        for axis, (score, (title, right)) in zip(axes, _PANELS.items(), strict=True):
            if right is not None:
                axis.axhline(right, color="0.6", lw=1, ls="--", zorder=0)
            for line in lines:
                known = {lead: line.interval(at_lead(score, lead)) for lead in leads_of([line])}
                there = {lead: found for lead, found in known.items() if found is not None}
                leads, means = list(there), np.asarray([found.mean for found in there.values()])
                half = np.asarray([0.0 if math.isnan(found.half) else found.half for found in there.values()])
                look = looks[line.method]
                axis.plot(leads, means, ms=3, lw=1.3, label=wrapped(line.method), **look)
                axis.fill_between(leads, means - half, means + half, color=look["color"], alpha=0.15, lw=0)
            axis.set(xscale="log", xlabel="lead time in steps", ylabel=title)
            axis.xaxis.set_major_formatter("{x:g}")
            if score == "spread_skill":
                low, high = axis.get_ylim()
                axis.set_ylim(max(low, _SPREADS[0]), min(high, _SPREADS[1]))
            elif score == "ece_mix":
                axis.set_ylim(0, min(axis.get_ylim()[1], 0.5))
            else:
                axis.set_yscale("log")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=columns_for(labels, 9.6), fontsize=7)
        if where:
            figure.suptitle(wrapped(where, 80), fontsize=9)
        return save(figure, path)


def fan(stored: StoredFields, path: Path, name: str, number: int, channel: int = 0) -> list[Path]:
    """Draw the forecast of a trajectory at three points, a quarter, half and three quarters along the line, by lead.

    Bands are the central 50%, 90% and 98% of the distribution.
    """
    place = stored.trajectories.tolist().index(number)
    points = [round(share * (stored.truth.shape[3] - 1)) for share in (0.25, 0.5, 0.75)]
    quantiles = (stored.mean + stored.std * stored.offsets)[:, place, :, channel]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(points), figsize=(3.2 * len(points), 2.7), sharey=True)
        for axis, point in zip(axes, points, strict=True):
            for low in range(len(LEVELS) // 2):
                high = len(LEVELS) - 1 - low
                share = f"{100 * (LEVELS[high] - LEVELS[low]):.0f}%"
                ends = (quantiles[low, :, point], quantiles[high, :, point])
                axis.fill_between(stored.steps, *ends, color=COLORS[0], alpha=0.18, lw=0, label=share)
            axis.plot(stored.steps, stored.mean[place, :, channel, point], color=COLORS[0], lw=1.3, label="mean")
            axis.plot(stored.steps, stored.truth[place, :, channel, point], color="k", lw=1, ls=":", label="truth")
            axis.set(xlabel="lead time in steps", title=f"grid point {point}")
        axes[0].set_ylabel("field")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=7)
        figure.suptitle(wrapped(f"{name}, forecast of test trajectory {number}", 80), fontsize=9)
        return save(figure, path)
