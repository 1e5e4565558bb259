"""The paper's figures of a sweep, from its rows and histories: means over seeds with 95% intervals."""

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crossreg.report.figures.drawing import (
    STYLE,
    Drawing,
    calibration_panels,
    columns_for,
    coverage_axis,
    draw_coverage,
    mean_ece,
    method_looks,
    save,
    wrapped,
)
from crossreg.report.figures.forecasts import lead_curves
from crossreg.report.looks import COLORS
from crossreg.report.tables.comparison import (
    Line,
    collect,
    decomposed,
    fair_group,
    leads_of,
    regime_of,
    regimes,
    setting_of,
)
from crossreg.report.tables.curves import curve_groups, fixed_part

_FIELDS = {"observed_fraction": "observed fraction", "train_size": "training trajectories"}
_LABELS = {
    "test_nll": "test NLL",
    "test_ece_mix": "test ECE",
    "test_std_mu": "mean Std$_\\omega[\\mu]$ on test",
    "test_std_mu_final": "mean Std$_\\omega[\\mu]$, last test step",
}
# An NLL in the tens would flatten all other curves: larger ones are marked at the upper edge.
_LARGEST_NLL = 1.5
_LARGEST_ECE = 0.1
# Panels of the paper's calibration triplet: title, observed fraction and method.
_TRIPLET = (
    ("XReg", 0.7, "xreg"),
    ("XReg at the heads", 0.3, "xreg-heads"),
    ("no learned regularization", 0.7, "unregularized"),
)


def _curve(axis: Axes, x: Sequence[float], lines: Sequence[Line], score: str, **look) -> None:
    """Draw means joined by a line, with their 95% intervals as bars."""
    known = [(at, interval) for at, line in zip(x, lines, strict=True) if (interval := line.interval(score))]
    if not known:
        return
    at, intervals = zip(*known, strict=True)
    half = [0.0 if math.isnan(i.half) else i.half for i in intervals]
    axis.errorbar(at, [i.mean for i in intervals], half, ms=4, lw=1.3, capsize=2, **look)


def _cut(axis: Axes, largest: float = _LARGEST_NLL, digits: int = 0) -> None:
    """End the axis at `largest`, with an arrow and the number for every mean above it."""
    curves = [container[0] for container in axis.containers]  # pyright: ignore[reportIndexIssue]
    lowest = min(float(np.min(curve.get_ydata())) for curve in curves)
    axis.set_ylim(lowest - 0.08 * (largest - lowest), largest)
    above: dict[float, int] = {}
    for curve in curves:
        for x, y in zip(*curve.get_data(), strict=True):
            if y > largest:
                above[x] = above.get(x, 0) + 1
                look: dict[str, Any] = {"color": curve.get_color(), "clip_on": False}
                axis.plot(x, largest, marker=r"$\uparrow$", ms=7, ls="none", **look)
                place = (x, largest), (0, 7 * above[x] - 3)
                axis.annotate(f"{y:.{digits}f}", *place, textcoords="offset points", ha="center", fontsize=6, **look)


def _method_curves(axis: Axes, lines: Sequence[Line], field: str, score: str, looks: Mapping[str, Any]) -> None:
    """Draw a score against a field, one line per method; the observed fraction as the mask fraction for Std_ω[μ]."""
    for method, look in looks.items():
        own = sorted((line for line in lines if line.method == method), key=lambda line: line.regime[field])
        x = [float(line.regime[field]) for line in own]
        x = [1 - value for value in x] if field == "observed_fraction" and "std_mu" in score else x
        _curve(axis, x, own, score, label=wrapped(method), **look)


def _is_too_high(axis: Axes, score: str) -> bool:
    """Return whether single large NLLs would flatten all other curves."""
    low, high = axis.get_ylim()
    return bool(score == "test_nll" and high > 2 * _LARGEST_NLL and low < 0)


def _legend_below(figure: Figure, axis: Axes, inches: float) -> None:
    """Put the legend of one panel below a figure so wide."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns_for(labels, inches), fontsize=7)


def sweep_curves(
    lines: Sequence[Line], field: str, title: str, scores: Sequence[str], path: Path, *, where: str = ""
) -> list[Path]:
    """Draw scores against a field of the data, one line per method; `where` names the values of the other fields."""
    looks = method_looks(line.method for line in lines)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(scores), figsize=(3.3 * len(scores), 3.0), squeeze=False)
        for axis, score in zip(axes[0], scores, strict=True):
            _method_curves(axis, lines, field, score, looks)
            axis.set(xlabel=title, ylabel=_LABELS[score])
            if score != "test_nll":
                axis.set_ylim(bottom=0)
            elif _is_too_high(axis, score):
                _cut(axis)
        if len(axes[0][0].containers) > 1:
            _legend_below(figure, axes[0][0], 3.3 * len(scores))
        if where:
            figure.suptitle(wrapped(where, 80), fontsize=9)
        return save(figure, path)


def equal_data_curves(lines: Sequence[Line], path: Path) -> list[Path]:
    """Draw NLL and ECE against the total of trajectories, one column for each observed fraction.

    Of a method that divides the total in several ways, the division that holds out about a fifth is drawn.
    """
    lines = [line for group in regimes(lines) for line in fair_group(group)]
    looks = method_looks(line.method for line in lines)
    fractions = sorted({line.regime["observed_fraction"] for line in lines})
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, len(fractions), figsize=(2.9 * len(fractions), 4.6), squeeze=False, sharex=True)
        for column, fraction in zip(axes.T, fractions, strict=True):
            for axis, score in zip(column, ("test_nll", "test_ece_mix"), strict=True):
                own = [line for line in lines if line.regime["observed_fraction"] == fraction]
                _method_curves(axis, own, "total", score, looks)
                if _is_too_high(axis, score):
                    _cut(axis)
                elif score != "test_nll":
                    if axis.get_ylim()[1] > 1.5 * _LARGEST_ECE:
                        _cut(axis, _LARGEST_ECE, 2)
                    axis.set_ylim(bottom=0)
            column[0].set_title(f"{fraction} observed", fontsize=8, pad=18)
            column[1].set(xlabel="trajectories in all", xticks=sorted({line.regime["total"] for line in lines}))
        axes[0][0].set_ylabel(_LABELS["test_nll"])
        axes[1][0].set_ylabel(_LABELS["test_ece_mix"])
        _legend_below(figure, axes[0][0], 2.9 * len(fractions))
        return save(figure, path)


def std_mu_curves(
    parts: Mapping[str, Sequence[Line]], path: Path, where: Mapping[str, str], *, score: str = "test_std_mu"
) -> list[Path]:
    """Draw mean Std_ω[μ] against the mask fraction and against the train size, side by side on one axis.

    Args:
        parts: The lines to draw, for each field (`observed_fraction`, `train_size`).
        path: The figure without its ending.
        where: The values of the other fields in words, for each field.
        score: `test_std_mu`, the mean over all steps of test, or `test_std_mu_final`, over the last step.
    """
    titles = {"observed_fraction": "mask fraction", "train_size": "training trajectories"}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(parts), figsize=(3.3 * len(parts), 2.8), sharey=True, squeeze=False)
        for axis, (field, lines) in zip(axes[0], parts.items(), strict=True):
            _method_curves(axis, lines, field, score, method_looks(line.method for line in lines))
            axis.set(xlabel=titles[field], title=where.get(field, ""))
        # Limits follow the curves only until they are set: hence last.
        axes[0][0].set(ylabel=_LABELS[score], ylim=(0, None))
        if len(axes[0][0].containers) > 1:
            _legend_below(figure, axes[0][0], 3.3 * len(parts))
        return save(figure, path)


def calibration_of_regimes(rows: Sequence[Mapping[str, Any]], path: Path) -> list[Path]:
    """Draw the paper's triplet: XReg, heads alone where little is observed, and no learned regularization.

    All three have the same numbers of trajectories and steps: those with the most runs where there are several.
    """
    sizes: dict[tuple[int, ...], dict[str, list[Mapping[str, Any]]]] = {}
    for title, fraction, method in _TRIPLET:
        for row in rows:
            if (row["observed_fraction"], row["method"]) == (fraction, method) and not row["diverged"]:
                panels = sizes.setdefault((row["train_size"], row["reg_size"], row["steps"]), {})
                where = f"{fraction:g} observed, {row['train_size']} traj."
                panels.setdefault(f"{title}\n{where}", []).append(row)
    whole = [panels for panels in sizes.values() if len(panels) == len(_TRIPLET)]
    return calibration_panels(max(whole, key=lambda panels: sum(map(len, panels.values()))), path) if whole else []


def calibration_montage(rows: Sequence[Mapping[str, Any]], method: str, path: Path) -> list[Path]:
    """Draw test and reg coverage of one method in every regime: each seed thin, their mean thick."""
    own = [row for row in rows if row["method"] == method and not row["diverged"]]
    if not own:
        return []
    groups: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in own:
        key = (row["observed_fraction"], row["train_size"], row["reg_size"], row["steps"])
        groups.setdefault(key, []).append(row)
    several = len({steps for *_, steps in groups}) > 1
    columns = min(4, len(groups))
    depth = math.ceil(len(groups) / columns)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            depth, columns, figsize=(1.9 * columns, 2.05 * depth), sharex=True, sharey=True, squeeze=False
        )
        for place in range(len(groups), axes.size):
            axes.flat[place].set_visible(False)
            axes.flat[place - columns].tick_params(labelbottom=True)
        for axis, ((fraction, size, _, steps), seeds) in zip(axes.flat, groups.items(), strict=False):
            coverage_axis(axis)
            for color, style, split in ((COLORS[1], "--", "reg"), (COLORS[0], "-", "test")):
                if there := [row[split] for row in seeds if row[split] is not None]:
                    draw_coverage(axis, there, color, style, split)
            where = f"{fraction:g} observed, {size} traj." + (f"\n{steps:,} steps" if several else "")
            axis.set_title(f"{where}\ntest ECE {mean_ece(row['test'] for row in seeds)}", fontsize=7)
        axes[0][0].legend(fontsize=7, loc="upper left")
        figure.supxlabel("nominal coverage α", fontsize=8)
        figure.supylabel("empirical coverage", fontsize=8)
        seeds = max(map(len, groups.values()))
        figure.suptitle(wrapped(f"{method}, {seeds} seed{'s' if seeds > 1 else ''}", 26 * columns), fontsize=9)
        return save(figure, path)


def decomposition(lines: Sequence[Line], path: Path) -> list[Path]:
    r"""Draw mean U_pred and U_gen stacked, and the mean squared error $r^2$, by split: medians over seeds.

    Dashed: the fixed point of both objectives, $U_{pred} = (r_{reg}^2 + r_{train}^2)/2$ and
    $U_{pred} + U_{gen} = r_{reg}^2$.
    """
    splits = ("train", "reg", "test")

    def mean_square(line: Line, score: str) -> list[float]:
        # One seed of many with a σ far too large at a few points would be all that a mean shows.
        return [float(np.median(np.square(line.values(f"{split}_{score}")))) for split in splits]

    columns = min(4, len(lines))
    depth = math.ceil(len(lines) / columns)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(depth, columns, figsize=(2.4 * columns, 2.3 * depth + 0.4), squeeze=False)
        for axis in axes.flat[len(lines) :]:
            axis.set_visible(False)
        for axis, line in zip(axes.flat, lines, strict=False):
            pred, gen = (mean_square(line, f"rms_{part}") for part in ("predictive", "generalization"))
            error = mean_square(line, "rmse")
            axis.bar(splits, pred, color=COLORS[5], width=0.6, label="U$_{pred}$")
            axis.bar(splits, gen, bottom=pred, color=COLORS[1], width=0.6, label="U$_{gen}$")
            axis.plot(splits, error, "kD", ms=4, label="squared error")
            if any(gen):
                for height in ((error[0] + error[1]) / 2, error[1]):
                    axis.axhline(height, color="0.3", lw=0.9, ls="--", label="fixed point of the objectives")
            axis.set_title(wrapped(f"{line.method}, {line.regime['observed_fraction']} observed", 34), fontsize=8)
            axis.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        axes[0][0].set_ylabel("mean over points, median over seeds")
        handles, labels = axes[0][0].get_legend_handles_labels()
        first = {label: handle for handle, label in zip(handles, labels, strict=True)}
        figure.legend(first.values(), first, loc="outside lower center", ncols=4, fontsize=7)
        return save(figure, path)


def drawings_of_rows(rows: Sequence[Mapping[str, Any]], folder: Path) -> list[Drawing]:
    """Return functions that draw the figures that the rows of a sweep allow, each returning its files, maybe none.

    Where the sweep varies further settings, the rows with the default ones are drawn. It has one scenario.
    """
    settings = [setting_of({k: v for k, v in regime_of(row).items() if k != "scenario"}) for row in rows]
    drawn = settings[0] if len(set(settings)) == 1 else ""
    rows = [row for row, setting in zip(rows, settings, strict=True) if setting == drawn]
    drawings: list[Drawing] = []
    divided = collect(row for row in rows if "total" in regime_of(row))
    if len({line.regime["total"] for line in divided}) > 1:
        drawings.append(functools.partial(equal_data_curves, divided, folder / "equal_data"))
    rows = [row for row in rows if "total" not in regime_of(row)]
    lines = collect(rows)
    drawings += _curves(lines, folder)
    drawings += _forecasts(lines, folder)
    drawings.append(functools.partial(calibration_of_regimes, rows, folder / "calibration_regimes"))
    if parts := [line for line in decomposed(lines) if line.values("train_rmse")]:
        drawings.append(functools.partial(decomposition, parts, folder / "decomposition"))
    methods = dict.fromkeys(line.method for line in lines)
    return drawings + [functools.partial(calibration_montage, rows, m, folder / f"calibration_{m}") for m in methods]


def _forecasts(lines: Sequence[Line], folder: Path) -> list[Drawing]:
    """Return a drawing of the scores of forecasts for each regime that has them."""
    groups = regimes([line for line in lines if leads_of([line])])
    drawings: list[Drawing] = []
    for number, group in enumerate(groups):
        regime = group[0].regime
        where = f"{regime.get('scenario', 'diff_ks')}, {regime['observed_fraction']:g} observed"
        path = folder / f"forecasts{f'_{number + 1}' if number else ''}"
        drawings.append(functools.partial(lead_curves, group, path, where=where))
    return drawings


def _curves(lines: Sequence[Line], folder: Path) -> list[Drawing]:
    """Return drawings of NLL and ECE over each field that varies, one per value of the rest; of XReg its Std_ω[μ]."""
    drawings: list[Drawing] = []
    std_mu: dict[str, list[Line]] = {}
    places: dict[str, str] = {}
    for field, title in _FIELDS.items():
        groups = curve_groups(lines, field)
        for number, part in enumerate(groups):
            where = fixed_part(part[0], field, lines) if len(groups) > 1 else ""
            path = folder / f"{field}_curves{f'_{number + 1}' if number else ''}"
            both = ("test_nll", "test_ece_mix")
            drawings.append(functools.partial(sweep_curves, part, field, title, both, path, where=where))
            ours = [line for line in part if line.method == "xreg"]
            if ours and field not in std_mu:
                std_mu[field], places[field] = ours, where
    if std_mu:
        drawings.append(functools.partial(std_mu_curves, std_mu, folder / "std_mu", places))
    return drawings
