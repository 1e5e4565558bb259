"""The text and the picture of `crossreg data check`."""

from pathlib import Path
from typing import Any

import numpy as np

from crossreg.data.files.check import Found
from crossreg.errors import InputError
from crossreg.files.whole import check_replaceable, replacing

_MOST_CHANNELS = 6
# Metadata by which a picture is recognised: no other file is overwritten.
_SOFTWARE = {"Software": "crossreg"}


def check_picture(path: Path) -> None:
    """Raise InputError, before any data are read, if a picture cannot be written to this path."""
    if path.suffix.lower() != ".png":
        raise InputError(f"picture {path}: expected a name that ends in .png")
    check_replaceable(path, b"Software\0crossreg", "picture")


def check_text(summary: dict[str, Any], picture: Path) -> str:
    """Return the summary of a data check as text.

    Args:
        summary: The summary, `Found.summary`.
        picture: The path of the picture.
    """
    space = " × ".join(map(str, summary["space"]))
    size = f"{summary['gib']:.2g} GiB as float32, {'in memory' if summary['in_memory'] else 'read as needed'}"
    channels = len(summary["channels"])
    lines = [
        f"{summary['path']}: {summary['kind']}, {summary['trajectories']:,} trajectories of {summary['times']:,} times,"
        f" {channels} channel{'s' * (channels != 1)} on {space} points; {size}",
        "",
        f"{'channel':<16}{'min':>12}{'max':>12}{'mean':>12}{'std':>12}{'missing':>20}{'step/std':>12}",
    ]
    for channel in summary["channels"]:
        shown = ["–" if (n := channel[name]) is None else f"{n:.4g}" for name in ("min", "max", "mean", "std")]
        change = channel["one_step_change"]
        shown += [_missing(channel), "–" if change is None else f"{change:.4g}"]
        widths = (12, 12, 12, 12, 20, 12)
        lines.append(f"{channel['name']:<16}" + "".join(f"{t:>{w}}" for t, w in zip(shown, widths, strict=True)))
    if summary["looked_at_steps"] < summary["all_steps"]:
        lines.append(f"from {summary['looked_at_steps']:,} evenly spaced steps of {summary['all_steps']:,}")
    if summary["mask"]:
        lines.append(f"observation mask: in the file; {summary['observed_share']:.1%} of the points are observed")
    lines += [f"note: {note}" for note in summary["notes"]]
    lines += [f"warning: {warning}" for warning in summary["warnings"]]
    if split := summary["split"]:
        unit = {"time": "steps of every trajectory", "folder": "trajectories, as the folders have them"}
        sizes = ", ".join(f"{name} {split[name]:,}" for name in ("train", "reg", "test"))
        lines += ["", f"split: {sizes} {unit.get(split['by'], 'trajectories')}"]
        lines += [f"train: {summary['command']}"] if summary["command"] else []
    return "\n".join([*lines, f"picture: {picture}"])


def _missing(channel: dict[str, Any]) -> str:
    """Return the number of missing values and their share."""
    if not (share := channel["missing_share"]):
        return "0"
    return f"{channel['missing']:,} ({'<0.1%' if share < 0.0005 else f'{share:.1%}'})"


def draw_check(found: Found, path: Path) -> None:
    """Draw the first trajectory: over space and time, or its first, middle and last field. Missing values are grey."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    colors = mpl.colormaps["viridis"].with_extremes(bad="0.5")

    names = [channel["name"] for channel in found.summary["channels"]][:_MOST_CHANNELS]
    fields = found.fields
    # 3-D fields: a slice through the middle.
    while fields.ndim > 4:
        fields = fields[..., fields.shape[-1] // 2]
    is_line = fields.ndim == 3
    columns = 1 if is_line else len(found.times)
    figure = Figure(figsize=(4.0 * max(columns, 1.6), 2.6 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), columns, squeeze=False)
    for row, name in enumerate(names):
        values = fields[:, row]
        there = values[np.isfinite(values)]
        low, high = (there.min(), there.max()) if there.size else (0, 1)
        for column, panel in enumerate(axes[row]):
            shown = values if is_line else values[column].T
            extent = (0, values.shape[-1], found.times[0], found.times[-1] + 1) if is_line else None
            panel.imshow(
                shown, origin="lower", aspect="auto" if is_line else "equal", vmin=low, vmax=high, extent=extent,
                cmap=colors,
            )  # fmt: skip
            # Names from files may contain any character and are no formulas.
            title = name if is_line else f"{name}, time {found.times[column]}"
            panel.set_title(title + " (grey: missing)" * bool(np.isnan(shown).any()), parse_math=False)
            panel.set_xlabel("x")
            panel.set_ylabel("time" if is_line else "y")
        figure.colorbar(axes[row, 0].images[0], ax=axes[row].tolist())
    try:
        with replacing(path) as file:
            figure.savefig(file, format="png", dpi=110, metadata=_SOFTWARE)
    except OSError as error:
        raise InputError(f"picture {path}: cannot write here ({error.strerror})") from error
