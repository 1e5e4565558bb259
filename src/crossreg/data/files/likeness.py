"""A warning of channels that may be points of a grid, where nobody said what the axes are."""

import numpy as np

from crossreg.data.formats.source import Source, sampled_frames

# If "channels" change from one to the next by less than this share of the spread, they may be points of a grid.
_ALIKE, _LEAST_ALIKE = 0.6, 5
# What is read of large files.
_READ_BYTES = 2**22


def likeness_warning(source: Source, axes: str | None) -> str | None:
    """Return a warning if channels differ as little from one to the next as neighbouring points, or None.

    The root mean square change from one channel to the next is compared with the spread, the root mean square of the
    channels' standard deviations. Where the user gave the axes, they hold.
    """
    if axes is not None or len(source.names) < _LEAST_ALIKE:
        return None
    looked_at = sampled_frames(source, range(source.samples), slice(0, source.times), _READ_BYTES)
    fields = np.concatenate([source.frames(sample, times) for sample, times in looked_at]).astype(np.float64)
    known = np.ma.masked_invalid(fields)
    change = np.ma.sqrt((np.diff(known, axis=1) ** 2).mean())
    spread = np.ma.sqrt(known.var(axis=(0, *range(2, fields.ndim))).mean())
    if not change < _ALIKE * spread:
        return None
    return (
        f"the {len(source.names)} channels differ as little from one to the next as points of a grid do"
        f" ({change / spread:.2g} of their spread); if they are an axis of space, say so with `axes`"
    )
