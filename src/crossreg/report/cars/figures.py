r"""The paper's car figures, from the folder of `crossreg car`.

Surfaces are drawn without perspective. The axes of a viewer in direction e, a unit vector, are

$$ \text{right} = \frac{\hat y \times e}{|\hat y \times e|}, \qquad \text{up} = e \times \text{right}, $$

and triangles are painted from the farthest to the nearest. Colours show a value at the vertices, a little darker where
the surface faces away from the light.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import TriMesh
from matplotlib.colors import Normalize
from matplotlib.tri import Triangulation

from crossreg.cars.meshes.surface import Surface
from crossreg.files.whole import make_folder
from crossreg.metrics.calibration import LEVELS
from crossreg.report.cars.run import CarRun, Prediction, read_car_run, roofline, top_of_scale
from crossreg.report.figures.drawing import (
    STYLE,
    coverage_axis,
    draw_all,
    method_looks,
    save,
    set_sigma_axis,
    site_colors,
    wrapped,
)
from crossreg.report.looks import COLORS
from crossreg.runs.file_names import FIGURES

_FRONT, _REAR = (-1.0, 0.55, -1.1), (-1.0, 0.55, 1.1)
_LIGHT = np.array([0.0, 0.6, 0.8])  # right, up and towards the viewer, so that every view is lit alike
_SHADE = 0.4  # how much darker an unlit surface is
ERROR_COLORS = "viridis"
# Half the width of a band in standard deviations.
BAND = 2
# Opaque, so that the legend shows the colours of overlapping bands.
_TOTAL, _PREDICTIVE = "#D3EAF8", "#86C5EC"


def draw_car_figures(folder: Path, out: Path | None = None, *, progress: bool = False) -> list[Path]:
    """Draw all figures of a run as PDF and PNG.

    Args:
        folder: the folder of a car experiment.
        out: where to write them, by default its folder `figures`.
        progress: report progress on stderr.

    Returns:
        The files.
    """
    run = read_car_run(folder)
    target = folder / FIGURES if out is None else out
    make_folder(target, parents=out is not None)
    drawings = []
    for method in run.predictions:
        drawings.append(lambda method=method: surface_figure(run, method, target / f"surface_{method}"))
        if any(line["sigma"] for line in run.histories[method]):
            drawings.append(lambda method=method: sigma_figure(run, method, target / f"sigma_{method}"))
    drawings += [
        lambda: calibration_figure(run, target / "calibration"),
        lambda: methods_figure(run, target / "methods"),
    ]
    return draw_all(drawings, progress=progress)


def view_axes(eye: Sequence[float]) -> Float[np.ndarray, "3 3"]:
    """Return unit vectors to the right, up and towards a viewer in direction `eye`, as rows."""
    toward = np.asarray(eye, float) / np.linalg.norm(eye)
    right = np.cross([0.0, 1.0, 0.0], toward)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(toward, right), toward])


def draw_surface(
    axis: Axes, car: Surface, values: Float[np.ndarray, " vertex"], norm: Normalize, eye: Sequence[float] = _FRONT
) -> None:
    """Draw a value on a car, seen from `eye`; a car without faces is drawn as points."""
    axes = view_axes(eye)
    across, up, near = axes @ car.vertices.T
    shade = 1 - _SHADE * (1 - np.clip(car.normals @ axes.T @ _LIGHT, 0, 1))
    colors = mpl.colormaps[ERROR_COLORS](norm(values))
    colors[:, :3] *= shade[:, None]
    if car.faces is None:
        seen = np.flatnonzero(car.normals @ axes[2] > 0)
        seen = seen[np.argsort(near[seen])]
        axis.scatter(across[seen], up[seen], s=5, c=colors[seen], linewidths=0, rasterized=True)
    else:
        ordered = car.faces[np.argsort(near[car.faces].mean(1))]
        mesh = TriMesh(Triangulation(across, up, ordered), rasterized=True)
        mesh.set_facecolor(colors)  # pyright: ignore[reportArgumentType]
        axis.add_collection(mesh)
    margin = 0.01 * np.ptp(across)
    axis.set(
        xlim=(across.min() - margin, across.max() + margin), ylim=(up.min() - margin, up.max() + margin), aspect="equal"
    )
    axis.set_axis_off()


def draw_roofline(axis: Axes, car: Surface, prediction: Prediction) -> None:
    """Draw truth and mean along the roofline, with bands of the predictive and the total standard deviation."""
    line = roofline(car)
    z, mean = car.vertices[line, 2], prediction.mean[line]
    for part, color, label in (("std", _TOTAL, "total"), ("std_predictive", _PREDICTIVE, "predictive")):
        half = BAND * getattr(prediction, part)[line]
        axis.fill_between(z, mean - half, mean + half, color=color, lw=0, label=f"mean ± {BAND}σ, {label}")
    axis.plot(z, mean, color=COLORS[0], lw=1.4, label="mean")
    axis.plot(z, car.pressure[line], "o", color="k", ms=2.4, label="truth")


def surface_figure(run: CarRun, method: str, path: Path, *, car: int | None = None) -> list[Path]:
    """Draw |error| and total standard deviation on one car with one colour scale, and the roofline.

    By default, `car` is the one in the middle of the ranking, the same for all methods. The upper end of the scale
    follows from the errors of all methods; standard deviations above it have its colour.
    """
    number = run.typical_car() if car is None else car
    surface, prediction = run.cars[number], run.predictions[method][number]
    error = np.abs(prediction.mean - surface.pressure)
    norm = Normalize(0, top_of_scale(*(np.abs(p[number].mean - surface.pressure) for p in run.predictions.values())))
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(7.2, 5.8), layout="constrained")
        grid = figure.add_gridspec(3, 2, height_ratios=(1, 1, 1.15))
        panels = []
        for column, (title, values) in enumerate((("|error|", error), ("total standard deviation", prediction.std))):
            for row, eye in enumerate((_FRONT, _REAR)):
                axis = figure.add_subplot(grid[row, column])
                draw_surface(axis, surface, values, norm, eye)
                panels.append(axis)
            panels[-2].set_title(title)
        scale = ScalarMappable(norm, ERROR_COLORS)
        bar = figure.colorbar(scale, ax=panels, pad=0.02, shrink=0.8, aspect=30, extend="max")
        bar.set_label(run.pressure_label)
        axis = figure.add_subplot(grid[2, :])
        draw_roofline(axis, surface, prediction)
        axis.set(xlabel="z along the car, nose to tail", ylabel=run.pressure_label)
        axis.set_title("roofline", loc="left")
        axis.legend(fontsize=7, ncols=4, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.3)
        share = run.relative_l2(method)[number]
        name = wrapped(surface.name, 80)
        figure.suptitle(f"{method}, test car {name}: relative L2 error {share:.3f}", fontsize=10)
        return save(figure, path)


def sigma_figure(run: CarRun, method: str, path: Path) -> list[Path]:
    r"""Draw σ of every site over the steps and at the end, and $\sqrt{\overline{U}}$ of both parts beside the RMSE.

    Lines are medians over a site's channels, shades their range. Dots are channels, or test cars.
    """
    history = [line for line in run.histories[method] if line["sigma"]]
    steps = [line["step"] for line in history]
    sites = list(history[0]["sigma"])
    colors = site_colors(len(sites))
    with plt.rc_context(STYLE):
        figure, (over_steps, at_end, parts) = plt.subplots(
            1, 3, figsize=(8.6, 2.9), width_ratios=(1.35, 1, 0.8), layout="constrained"
        )
        for place, (site, color) in enumerate(zip(sites, colors, strict=True)):
            sigma = np.array([line["sigma"][site] for line in history])
            over_steps.plot(steps, np.median(sigma, axis=1), color=color, lw=1.4, label=site)
            over_steps.fill_between(steps, sigma.min(1), sigma.max(1), color=color, alpha=0.12, lw=0)
            _dots(at_end, place, sigma[-1], color)
            at_end.plot([place - 0.3, place + 0.3], [np.median(sigma[-1])] * 2, color=color, lw=2)
        for axis in (over_steps, at_end):
            set_sigma_axis(axis)
        over_steps.set(xlabel="step", ylabel="σ", title="σ of each site, median and range")
        at_end.set(title=f"σ after {steps[-1]} steps", ylim=over_steps.get_ylim())
        at_end.set_xticks(range(len(sites)), sites, rotation=40, ha="right", rotation_mode="anchor")
        for label, color in zip(at_end.get_xticklabels(), colors, strict=True):
            label.set_color(color)
        squares = _mean_squares(run, method)
        sizes = [len(car.vertices) for car in run.cars]
        looks = zip((COLORS[5], COLORS[1], "0.55"), squares.values(), strict=True)
        for place, (color, values) in enumerate(looks):
            parts.bar(place, np.sqrt(np.average(values, weights=sizes)), color=color, width=0.65)
            _dots(parts, place, np.sqrt(values), "k")
        parts.set_xticks(range(len(squares)), list(squares))
        parts.set(ylabel=run.pressure_label, title="root mean over test cars")
        figure.suptitle(method, fontsize=10)
        return save(figure, path)


def _dots(axis: Axes, place: int, values: Float[np.ndarray, " value"], color: Any) -> None:
    """Draw single values, spread sideways so that they remain distinguishable."""
    sideways = place + 0.22 * (2 * (np.arange(len(values)) * 0.618 % 1) - 1)
    axis.plot(sideways, values, "o", color=color, ms=2.2, alpha=0.45, mew=0)


def _mean_squares(run: CarRun, method: str) -> dict[str, Float[np.ndarray, " car"]]:
    """Return mean U_pred, mean U_gen and mean squared error of every test car."""
    pairs = list(zip(run.predictions[method], run.cars, strict=True))
    return {
        "$\\sqrt{U_{pred}}$": np.array([np.mean(p.std_predictive**2) for p, _ in pairs]),
        "$\\sqrt{U_{gen}}$": np.array([np.mean(p.std_generalization**2) for p, _ in pairs]),
        "RMSE": np.array([np.mean((p.mean - car.pressure) ** 2) for p, car in pairs]),
    }


def calibration_figure(run: CarRun, path: Path) -> list[Path]:
    """Draw empirical over nominal coverage on the test cars, one curve per method."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(5.8, 3.6), layout="constrained")
        coverage_axis(axis, xlabel="nominal coverage α", ylabel="empirical coverage")
        for method, look in method_looks(run.methods).items():
            covered, ece = run.coverage(method), run.score(method, "ece_mix")
            if covered is not None and ece is not None:
                axis.plot(LEVELS, covered, ms=3.5, lw=1.4, label=f"{method} (ECE {ece.mean:.3f})", **look)
        axis.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=7, handlelength=3.5)
        return save(figure, path)


def methods_figure(run: CarRun, path: Path) -> list[Path]:
    """Draw relative L2 error, ECE and Spearman correlation of every method.

    Bars with caps are 95% intervals over seeds; broad pale bars are 95% intervals over test cars.
    """
    scores = {
        "relative_l2": "relative L2 error, lower is better",
        "ece_mix": "ECE, lower is better",
        "spearman": "Spearman of |error| and σ, higher is better",
    }
    looks = method_looks(run.methods)
    with plt.rc_context(STYLE):
        size = (9.0, 0.9 + 0.3 * len(looks))
        figure, axes = plt.subplots(1, len(scores), figsize=size, sharey=True, layout="constrained")
        for axis, (score, label) in zip(axes, scores.items(), strict=True):
            for place, (method, look) in enumerate(looks.items()):
                if (interval := run.score(method, score)) is not None:
                    if (limits := run.over_cars(method, score)) is not None:
                        axis.plot(limits, [place] * 2, color=look["color"], alpha=0.25, lw=6, solid_capstyle="butt")
                    axis.errorbar(
                        interval.mean, place, xerr=np.nan_to_num(interval.half), ms=5, capsize=3, lw=1.4, **look
                    )
                    axis.annotate(
                        f"{interval.mean:.3f}", (interval.mean, place), (0, 6), textcoords="offset points", ha="center",
                        fontsize=7, color=look["color"],
                    )  # fmt: skip
            axis.set_xlabel(label)
            axis.grid(axis="y", color="0.9", lw=0.8)
            axis.axvline(0, color="0.8", lw=0.8, zorder=0)
            axis.set_xlim(*_with_room(*axis.dataLim.intervalx))
        if any(run.over_cars(method, "relative_l2") for method in looks):
            figure.supxlabel("95% intervals: capped bars over seeds, pale bars over test cars", fontsize=7, color="0.3")
        axes[0].set_yticks(range(len(looks)), list(looks))
        axes[0].set_ylim(len(looks) - 0.5, -0.7)
        return save(figure, path)


def _with_room(low: float, high: float) -> tuple[float, float]:
    """Return limits that include zero, to compare lengths, and leave room for numbers beside the outermost values."""
    low, high = min(low, 0.0), max(high, 0.0)
    return low - 0.08 * (high - low), high + 0.08 * (high - low)
