"""Figures of forecasts: scores by lead, one line per method, and the forecast at single points over its leads."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from crossreg.metrics.intervals import Interval
from crossreg.report.figures.drawing import STYLE, columns_for, method_looks, save, wrapped
from crossreg.report.looks import COLORS
from crossreg.report.tables.comparison import Line, at_lead, leads_of, mean_at, paired_difference
from crossreg.runs.fields.stored_fields import LEVELS, StoredFields

# Score → title, and the value that is right, where there is one.
_PANELS = {"spread_skill": ("spread / skill", 1.0), "ece_mix": ("ECE", 0.0), "crps": ("CRPS", None)}
# A spread that is far too large or small would flatten all other curves.
_SPREADS = (0.2, 3.0)
# So would methods that are far worse than the one they stand beside.
_RATIOS = (0.4, 2.0)


def lead_curves(lines: Sequence[Line], path: Path, *, where: str = "", beside: str | None = None) -> list[Path]:
    """Draw spread over skill, ECE and CRPS against the lead: means over seeds, and their 95% intervals as bands.

    A curve has no point at a lead where a seed has no score, as its particles grew too large.

    Args:
        lines: The lines of one regime, with scores of forecasts.
        path: The figure without its ending.
        where: The regime in words.
        beside: A method among the lines. A further panel has each CRPS over that of this method, with the interval of
            the difference seed by seed.

    Returns:
        The files.
    """
    looks = method_looks(line.method for line in lines)
    with plt.rc_context(STYLE):
        reference = next((line for line in lines if line.method == beside), None)
        shape, size = ((1, len(_PANELS)), (3.2, 3.2)) if reference is None else ((2, 2), (4.2, 2.8))
        width = size[0] * shape[1]
        figure, grid = plt.subplots(*shape, figsize=(width, size[1] * shape[0]))
        axes = list(grid.flat)
        for axis, (score, (title, right)) in zip(axes, _PANELS.items(), strict=False):
            if right is not None:
                axis.axhline(right, color="0.6", lw=1, ls="--", zorder=0)
            for line in lines:
                known = {lead: mean_at(line, score, lead) for lead in leads_of([line])}
                _band(axis, known, line.method, looks[line.method])
            _set_leads(axis, title)
            if score == "spread_skill":
                low, high = axis.get_ylim()
                axis.set_ylim(max(low, _SPREADS[0]), min(high, _SPREADS[1]))
            elif score == "ece_mix":
                axis.set_ylim(0, min(axis.get_ylim()[1], 0.5))
            else:
                axis.set_yscale("log")
        if reference is not None:
            _draw_beside(axes[-1], lines, reference, looks)
        handles, labels = axes[0].get_legend_handles_labels()
        columns = columns_for(labels, width)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=7)
        if where:
            figure.suptitle(wrapped(where, 80), fontsize=9)
        return save(figure, path)


def _band(axis: Axes, by_lead: Mapping[int, Interval | None], method: str, look: Mapping[str, Any]) -> None:
    """Draw means joined by a line, and their intervals as a band, at the leads that have one."""
    there = {lead: found for lead, found in by_lead.items() if found is not None}
    leads, means = list(there), np.asarray([found.mean for found in there.values()])
    half = np.asarray([0.0 if math.isnan(found.half) else found.half for found in there.values()])
    axis.plot(leads, means, ms=3, lw=1.3, label=wrapped(method), **look)
    axis.fill_between(leads, means - half, means + half, color=look["color"], alpha=0.15, lw=0)


def _set_leads(axis: Axes, title: str) -> None:
    axis.set(xscale="log", xlabel="lead time in steps", ylabel=title)
    axis.xaxis.set_major_formatter("{x:g}")


def _draw_beside(axis: Axes, lines: Sequence[Line], reference: Line, looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw each CRPS over that of a method; the axis ends where the last means within some factors do."""
    axis.axhline(1.0, lw=1.3, **{**looks[reference.method], "marker": None})
    means = [1.0]
    for line in (line for line in lines if line is not reference):
        ratios: dict[int, Interval] = {}
        for lead in leads_of([line]):
            gap, own = paired_difference(line, reference, at_lead("crps", lead)), mean_at(reference, "crps", lead)
            if gap is not None and own is not None and mean_at(line, "crps", lead) is not None:
                ratios[lead] = Interval(1 + gap.mean / own.mean, gap.half / own.mean)
                means.append(ratios[lead].mean)
        _band(axis, ratios, line.method, looks[line.method])
    _set_leads(axis, f"CRPS over that of\n{wrapped(reference.method)}")
    near = [mean for mean in means if _RATIOS[0] <= mean <= _RATIOS[1]]
    axis.set_ylim(0.95 * min(near), 1.05 * max(near))


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
