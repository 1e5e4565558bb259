"""The style of all figures; calibration curves, and space–time maps of a one-step prediction."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from crossreg.files.whole import replacing
from crossreg.metrics.calibration import LEVELS
from crossreg.metrics.evaluation import PointScores
from crossreg.progress.display import CountDisplay
from crossreg.report.looks import COLORS, looks_of

Drawing = Callable[[], list[Path]]

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "savefig.bbox": "tight",
    "pdf.fonttype": 42,
}
MAP_LEVEL = 0.995  # fraction of the values inside the range of a map
_MARKERS = "os^Dv<>P"
_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (6, 1.5, 1, 1.5, 1, 1.5)))
_SPLITS = {"train": ("0.55", ":"), "reg": (COLORS[1], "--"), "test": (COLORS[0], "-")}


def method_looks(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return colour, marker and dashes of each method; markers and dashes tell methods of one family apart."""
    return {
        name: {
            "color": COLORS[place],
            "marker": _MARKERS[(place + 3 * number) % len(_MARKERS)],
            "linestyle": _DASHES[number % len(_DASHES)],
        }
        for name, (place, number) in looks_of(methods).items()
    }


def site_colors(count: int) -> list[Any]:
    """Return colours of noise sites in order, from dark at the input to light at the output."""
    return list(mpl.colormaps["viridis"](np.linspace(0, 0.75, count)))


def set_sigma_axis(axis: Axes) -> None:
    """Make the y axis logarithmic over at least a decade, with plain numbers at 1, 2, 5, 10 …"""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    widen = max(1.0, math.sqrt(10 * low / high))
    axis.set_ylim(low / widen, high * widen)
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PDF and PNG, each atomically, and close it; return the files."""
    # Not `with_suffix`: the name may contain dots.
    paths = [path.with_name(f"{path.name}{ending}") for ending in (".pdf", ".png")]
    try:
        for target in paths:
            with replacing(target) as file:
                figure.savefig(file, format=target.suffix[1:])
    finally:
        plt.close(figure)
    return paths


def draw_all(drawings: Sequence[Drawing], *, progress: bool) -> list[Path]:
    """Draw figures one after the other; return the files."""
    written: list[Path] = []
    with CountDisplay("figures drawn", enabled=progress) as display:
        for number, drawing in enumerate(drawings):
            written += drawing()
            display.update(number + 1, len(drawings))
    return written


def coverage_axis(axis: Axes, **labels: str) -> None:
    """Make an axis a unit square with a diagonal, for curves of empirical against nominal coverage."""
    axis.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--", zorder=0)
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", **labels)


def calibration_curves(methods: Mapping[str, Mapping[str, Any]], path: Path) -> list[Path]:
    """Draw empirical against nominal coverage on test and reg, one curve per method.

    Args:
        methods: Method → split → scores, None for a split that was not scored.
        path: The figure without its ending.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(6.8, 4.2), sharey=True)
        for axis, split in zip(axes, ("test", "reg"), strict=True):
            coverage_axis(axis, title=split, xlabel="nominal coverage α")
            for name, look in method_looks(methods).items():
                scores = methods[name][split]
                if scores is not None:
                    label = f"{wrapped(name)} (ECE {_number(scores['ece_mix'])})"
                    axis.plot(LEVELS, np.asarray(scores["coverage"], float), ms=3, lw=1.4, label=label, **look)
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7)
        axes[0].set_ylabel("empirical coverage")
        return save(figure, path)


def draw_coverage(axis: Axes, seeds: Sequence[Mapping[str, Any]], color: str, style: str, label: str) -> None:
    """Draw the coverage of each seed thin, and their mean thick."""
    coverage = np.asarray([scores["coverage"] for scores in seeds], float)
    if len(seeds) > 1:
        axis.plot(LEVELS, coverage.T, color=color, lw=0.4, alpha=0.4)
    axis.plot(LEVELS, coverage.mean(0), style, color=color, lw=1.6, label=label)


def wrapped(name: str, width: int = 28) -> str:
    """Return a name for a figure, on as many lines as it needs, broken after a sign that joins its words.

    Names of users may be long and contain dollar signs, which are escaped: no name is taken for a formula.
    """
    lines = [""]
    for word in re.findall(r"[^-+_,/ ]+[-+_,/ ]*|[-+_,/ ]+", name):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    parts = [line[i : i + width] for line in lines for i in range(0, max(len(line), 1), width)]
    return "\n".join(parts).strip().replace("$", r"\$")


def columns_for(labels: Sequence[str], inches: float) -> int:
    """Return the number of columns of a legend in small letters, for a figure so wide."""
    longest = max((len(line) for label in labels for line in label.split("\n")), default=1)
    return max(1, min(4, len(labels), int(inches / (0.42 + 0.062 * longest))))


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}"


def mean_ece(scores: Iterable[Mapping[str, Any]]) -> str:
    """Return the mean ECE of the scores that have one, as text."""
    known = [one["ece_mix"] for one in scores if one["ece_mix"] is not None]
    return _number(np.mean(known) if known else None)


def calibration_panels(panels: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> list[Path]:
    """Draw empirical against nominal coverage on train, reg and test, one panel for each regime or run.

    Args:
        panels: Title → the scores by split of each seed. Each seed is drawn thin, their mean thick.
        path: The figure without its ending.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(panels), figsize=(2.3 * len(panels) + 0.3, 3.3), sharey=True, squeeze=False)
        for axis, (title, seeds) in zip(axes[0], panels.items(), strict=True):
            named = "\n".join(wrapped(line, 24) for line in title.split("\n"))
            coverage_axis(axis, title=named, xlabel="nominal coverage α")
            for split, (color, style) in _SPLITS.items():
                if there := [scores[split] for scores in seeds if scores.get(split) is not None]:
                    draw_coverage(axis, there, color, style, f"{split} (ECE {mean_ece(there)})")
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), fontsize=7)
        axes[0][0].set_ylabel("empirical coverage")
        return save(figure, path)


class Fields(NamedTuple):
    """A prediction of one trajectory at evenly spaced time steps, for maps. An unknown truth is NaN."""

    steps: Int[np.ndarray, " time"]
    truth: Float[np.ndarray, "time channel x"]
    mean: Float[np.ndarray, "time channel x"]
    std_mu: Float[np.ndarray, "time channel x"]
    std: Float[np.ndarray, "time channel x"]


def space_time_maps(
    points: PointScores | Fields, path: Path, *, title: str = "", times: int = 100, channel: int = 0
) -> list[Path]:
    r"""Draw truth, |error|, Std_ω[μ] and total standard deviation of one trajectory over space and time.

    The last three panels share one range, so that colours compare: it covers all but the largest 0.5% of |error| and of
    the total standard deviation, as the colour bar says. Where the truth is unknown, it and the error are grey, and the
    mean of the prediction has a panel too.

    Args:
        points: Scored pairs of one trajectory of a 1-D field, or some of them.
        path: The figure without its ending.
        title: The title, if any.
        times: The last time step that is drawn.
        channel: The channel that is drawn.

    Raises:
        ValueError: The field is not 1-D.
    """
    # Targets stand at times 1 … T: pair t predicts the field at t + 1.
    steps = points.steps if isinstance(points, Fields) else np.arange(1, len(points.truth) + 1)
    shown = steps <= max(times, steps[0])
    truth, mean, std_mu, std = (
        np.asarray(values)[shown, channel].T for values in (points.truth, points.mean, points.std_mu, points.std)
    )
    if truth.ndim != 2:
        raise ValueError("space–time maps are drawn for 1-D fields")
    first, last = steps[shown][[0, -1]].tolist()
    half = (last - first) / (truth.shape[1] - 1) / 2 if truth.shape[1] > 1 else 0.5
    panels = _panels(truth, mean, np.abs(mean - truth), std_mu, std)
    fields = len(panels) - 3  # the truth and maybe the mean, which share a range too
    with plt.rc_context(STYLE):
        size = (10.5 + 2.3 * (fields - 1), 2.6)
        figure, axes = plt.subplots(1, len(panels), figsize=size, sharex=True, sharey=True)
        images = []
        for axis, (name, values, cmap, (low, high)) in zip(axes, panels, strict=True):
            extent = (first - half, last + half, 0, values.shape[0])
            look = {"cmap": _colors(cmap), "vmin": low, "vmax": high, "extent": extent, "aspect": "auto"}
            images.append(axis.imshow(values, origin="lower", interpolation="nearest", rasterized=True, **look))
            axis.set(title=name, xlabel="time step", xlim=(min(0, first - half), last + half))
        axes[0].set_ylabel("grid point")
        figure.colorbar(images[0], ax=axes[:fields], pad=0.02 / fields)
        bar = figure.colorbar(images[-1], ax=axes[fields:], pad=0.01, extend="max")
        bar.set_label(_RANGE, fontsize=7)
        _entitle(figure, title, has_gaps=fields > 1)
        return save(figure, path)


_GREY = "0.5"
_SAID = "grey: the truth is not known"


def _colors(name: str) -> Colormap:
    """Return a palette in which NaN is grey."""
    return mpl.colormaps[name].with_extremes(bad=_GREY)


def _entitle(figure: Figure, title: str, *, has_gaps: bool) -> None:
    """Put a title over a figure, and the meaning of grey where there is any."""
    said = wrapped("; ".join([*([title] if title else []), *([_SAID] if has_gaps else [])]), 110)
    if said:
        figure.suptitle(said, fontsize=10)


_RANGE = f"range: {MAP_LEVEL:.1%} of |error| and of std"


def _panels(
    truth: np.ndarray, mean: np.ndarray, error: np.ndarray, std_mu: np.ndarray, std: np.ndarray
) -> list[tuple[str, np.ndarray, str, tuple[float, float]]]:
    """Return title, values, colours and range of each map; errors and standard deviations share one range.

    The mean is among the maps where the truth has gaps, which hide the field otherwise.
    """
    # Values of a diverged run need not be finite.
    finite = [values[np.isfinite(values)] for values in (error, std)]
    top = max((float(np.quantile(values, MAP_LEVEL)) for values in finite if values.size), default=0.0) or 1.0
    of_truth = _truth_range(truth[np.isfinite(truth)])
    return [
        ("truth", truth, "RdBu_r", of_truth),
        *([("mean", mean, "RdBu_r", of_truth)] if np.isnan(truth).any() else []),
        ("|error|", error, "viridis", (0.0, top)),
        ("Std$_\\omega[\\mu]$", std_mu, "viridis", (0.0, top)),
        ("total standard deviation", std, "viridis", (0.0, top)),
    ]


def _truth_range(truth: np.ndarray) -> tuple[float, float]:
    """Return a range symmetric about 0, or from end to end for fields of one sign, such as a pressure or a density."""
    low, high = (float(truth.min()), float(truth.max())) if truth.size else (0.0, 0.0)
    if low < high and low * high > 0:
        return low, high
    limit = max(-low, high) or 1.0
    return -limit, limit


class Plane(NamedTuple):
    """A prediction of a 2-D field and the label of its row of maps. The mean is drawn where the truth has gaps."""

    name: str
    truth: Float[np.ndarray, "x y"]
    error: Float[np.ndarray, "x y"]
    std_mu: Float[np.ndarray, "x y"]
    std: Float[np.ndarray, "x y"]
    mean: Float[np.ndarray, "x y"] | None = None


def plane_maps(rows: Sequence[Plane], path: Path, *, title: str = "", shared: bool = True) -> list[Path]:
    r"""Draw truth, |error|, Std_ω[μ] and total standard deviation of 2-D fields, one row for each. NaN is grey.

    Args:
        rows: The fields.
        path: The figure without its ending.
        title: The title, if any.
        shared: Whether all rows have one range, so that colours compare between rows. Otherwise they compare within a
            row only, as suits methods with errors of very different size.
    """

    def of(part: Sequence[Plane]):
        truth, error, std_mu, std = (np.stack([getattr(row, name) for row in part]) for name in Plane._fields[1:5])
        mean = np.stack([row.truth + row.error if row.mean is None else row.mean for row in part])
        return _panels(truth, mean, np.abs(error), std_mu, std)

    together = of(rows)
    fields = len(together) - 3
    with plt.rc_context(STYLE):
        across, up = rows[0].truth.shape
        # A panel is 1.9 inches wide.
        size = (9.6 + 2.1 * (fields - 1), 0.6 + (0.2 + min(1.9 * up / across, 6.0)) * len(rows))
        figure, axes = plt.subplots(len(rows), len(together), figsize=size, squeeze=False)
        images = np.empty(axes.shape, object)
        for number, row in enumerate(rows):
            own = together if shared else [*together[:fields], *of([row])[-3:]]
            for column, (name, values, cmap, (low, high)) in enumerate(own):
                axis, look = axes[number, column], {"cmap": _colors(cmap), "vmin": low, "vmax": high, "origin": "lower"}
                field = values[number if len(values) > 1 else 0].T
                images[number, column] = axis.imshow(field, interpolation="nearest", rasterized=True, **look)
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set_visible(False)
                if number == 0:
                    axis.set_title(name)
            axes[number, 0].set_ylabel(row.name)
        axes[-1, 0].set_xlabel("x to the right, y upwards", fontsize=7)
        figure.colorbar(images[0, 0], ax=axes[:, :fields], pad=0.02, aspect=12 * len(rows), location="left")
        for part in [slice(None)] if shared else [slice(number, number + 1) for number in range(len(rows))]:
            count = len(axes[part])
            bar = figure.colorbar(
                images[part, -1][0], ax=axes[part, fields:], pad=0.01, extend="max", aspect=12 * count
            )
            if count == len(rows) or part.start == len(rows) // 2:
                bar.set_label(_RANGE + ("" if shared else ", by row"), fontsize=7)
        _entitle(figure, title, has_gaps=fields > 1)
        return save(figure, path)
