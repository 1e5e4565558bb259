"""Figures in one style: calibration curves, and space–time maps of a one-step prediction."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from crossreg.metrics.calibration import LEVELS
from crossreg.metrics.evaluation import Points

# Okabe and Ito's palette: told apart by colour-blind readers too.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "savefig.bbox": "tight",
    "pdf.fonttype": 42,
}


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes a figure as PDF and PNG."""
    # Not `with_suffix`: a name may have dots of its own.
    paths = [path.with_name(f"{path.name}{ending}") for ending in (".pdf", ".png")]
    for target in paths:
        figure.savefig(target)
    plt.close(figure)
    return paths


def calibration_curves(methods: Mapping[str, Mapping[str, Any]], path: Path) -> list[Path]:
    """Nominal against empirical coverage on test and reg, one curve per method."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(6.8, 4.2), sharey=True, layout="constrained")
        for axis, split in zip(axes, ("test", "reg"), strict=True):
            axis.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--", zorder=0)
            for color, (name, scores) in zip(itertools.cycle(COLORS), methods.items(), strict=False):
                label = f"{name} (ECE {scores[split]['ece_mix']:.3f})"
                axis.plot(LEVELS, scores[split]["coverage"], "o-", ms=3, lw=1.4, color=color, label=label)
            axis.set(title=split, xlabel="nominal coverage α", xlim=(0, 1), ylim=(0, 1), aspect="equal")
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7)
        axes[0].set_ylabel("empirical coverage")
        return save(figure, path)


def space_time_maps(points: Points, path: Path, *, title: str = "", times: int = 100) -> list[Path]:
    r"""Truth, |error|, Std_ω[μ] and total standard deviation of one trajectory over space and time.

    `points` are the scored pairs of one trajectory of a 1-D field; its first channel is drawn. The last three
    panels share one range, that of the total standard deviation (its largest 0.5% aside), so that colours compare.
    """
    truth, mean, std_mu, std_total = (
        np.asarray(values)[:times, 0].T for values in (points.truth, points.mean, points.std_mu, points.std_total)
    )
    if truth.ndim != 2:
        raise ValueError("space–time maps are drawn for 1-D fields")
    top = float(np.quantile(std_total, 0.995))
    limit = float(np.abs(truth).max())
    panels = (
        ("truth", truth, "RdBu_r", (-limit, limit)),
        ("|error|", np.abs(mean - truth), "viridis", (0, top)),
        ("Std$_\\omega[\\mu]$", std_mu, "viridis", (0, top)),
        ("total standard deviation", std_total, "viridis", (0, top)),
    )
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 4, figsize=(10.5, 2.6), sharex=True, sharey=True, layout="constrained")
        images = []
        for axis, (name, values, cmap, (low, high)) in zip(axes, panels, strict=True):
            # Targets stand at times 1 … T: pair t predicts the field at t + 1.
            extent = (0.5, values.shape[1] + 0.5, 0, values.shape[0])
            images.append(
                axis.imshow(
                    values,
                    aspect="auto",
                    origin="lower",
                    cmap=cmap,
                    vmin=low,
                    vmax=high,
                    extent=extent,
                    interpolation="nearest",
                    rasterized=True,
                )
            )
            axis.set(title=name, xlabel="time step", xlim=(0, values.shape[1] + 0.5))
        axes[0].set_ylabel("grid point")
        figure.colorbar(images[0], ax=axes[0], pad=0.02)
        figure.colorbar(images[-1], ax=axes[1:], pad=0.01, extend="max")
        if title:
            figure.suptitle(title, fontsize=10)
        return save(figure, path)
