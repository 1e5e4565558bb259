"""The figure of `crossreg plan`: time and efficiency against the number of devices."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, NullLocator

from crossreg.errors import InputError
from crossreg.files.whole import replacing
from crossreg.progress.display import clock
from crossreg.report.figures.drawing import STYLE
from crossreg.report.looks import COLORS

_TICKS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 36000, 86400, 172800, 432000, 864000, 2592000)


def draw_plan(plan: dict[str, Any], path: Path) -> None:
    """Draw time and efficiency of a plan against the number of devices, as a PNG file.

    Raises:
        InputError: The path does not end in .png.
    """
    if path.suffix.lower() != ".png":
        raise InputError(f"figure {path}: expected a name that ends in .png")
    rows = plan["by_devices"]
    devices = np.asarray([row["devices"] for row in rows])
    seconds = np.asarray([row["seconds"] for row in rows])
    low, high = np.asarray([row["band"] for row in rows]).T
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.8))
        if plan["runs"]:
            left.fill_between(devices, low, high, color=COLORS[0], alpha=0.2, lw=0, label="95% of simulated runs")
        left.plot(devices, seconds, "o-", ms=3.5, lw=1.2, color=COLORS[0], label="time")
        ideal = seconds[0] * devices[0] * rows[0]["efficiency"] / devices
        left.plot(devices, ideal, ":", color="0.5", lw=1, label="useful work, shared evenly")
        left.set_ylabel("time (h:mm:ss)" if seconds.max() >= 3600 else "time (m:ss)")
        right.plot(devices, [100 * row["efficiency"] for row in rows], "o-", ms=3.5, lw=1.2, color=COLORS[1])
        right.set_ylabel("efficiency (%)")
        right.set_ylim(0, 100)
        left.set_yscale("log")
        bottom, top = left.get_ylim()
        ticks = [tick for tick in _TICKS if bottom <= tick <= top]
        left.set_yticks(ticks[:: 1 + len(ticks) // 9])
        left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(float(value))))
        for axis in (left, right):
            axis.axvline(plan["devices"], color="0.8", lw=0.8, zorder=0)
            axis.set_xscale("log")
            axis.set_xlabel(f"devices ({plan['device']})")
            axis.set_xticks(_rounded(devices), [f"{tick:,}" for tick in _rounded(devices)])
            axis.xaxis.set_minor_locator(NullLocator())
            axis.yaxis.set_minor_locator(NullLocator())
        left.legend(fontsize=7)
        figure.suptitle(f"{plan['what']}: {plan['replicas']:,} replicas", fontsize=9)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                figure.savefig(file, format="png")
        finally:
            plt.close(figure)


def _rounded(devices: np.ndarray) -> list[int]:
    """Return ticks for numbers of devices: powers of two, or of ten where there are many."""
    base = 2 if devices.max() <= 256 else 10
    return [base**k for k in range(20) if devices.min() <= base**k <= devices.max()]
