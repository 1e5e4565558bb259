"""The range of the inputs that a run was trained on, and what is said of fields far outside of it.

A network answers anything, with error bars of the size that it has learned: of fields in other units, or of none at
all, they mean nothing.
"""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from crossreg.data.files.streamed import hold
from crossreg.data.pairs import AbstractPairs
from crossreg.errors import InputError
from crossreg.nn.build import scale_pairs
from crossreg.nn.units import Units

# How far beyond the range, in units of its width, a value may lie before it is warned of, and before it is refused.
_WARNED, _REFUSED = 1.0, 10.0
# Fields that vary by less than this share of the range are warned of: they may be in other units.
_SMALL = 0.01
# Where only mean and standard deviation are known, as of runs of older versions: values lie within so many of these.
_USUAL = 4.0


class InputRange(NamedTuple):
    """The smallest and the largest value of each channel."""

    low: tuple[float, ...]
    high: tuple[float, ...]


def input_range(pairs: AbstractPairs) -> InputRange:
    """Return the range of the inputs of a split, as a model sees them; of a large split, of evenly spaced pairs."""
    numbers = scale_pairs(pairs)
    x = np.asarray(_inputs(hold(pairs, np.asarray(numbers)), numbers))
    axes = (0, *range(2, x.ndim))
    return InputRange(tuple(x.min(axes).tolist()), tuple(x.max(axes).tolist()))


@eqx.filter_jit
def _inputs(pairs: AbstractPairs, numbers):
    return pairs.gather(numbers).x[:, : pairs.field_shape[0]]


def stored_range(fields: dict[str, Any], channels: int, units: Units | None) -> InputRange | None:
    """The range in a description of a run's fields; of an older one, what its units say, or None.

    What cannot be a range is a `ValueError`.
    """
    if "input_low" not in fields:
        if units is None:
            return None
        ends = ([o + sign * _USUAL * s for o, s in zip(*units, strict=True)] for sign in (-1, 1))
        return InputRange(*map(tuple, ends))
    low, high = (tuple(map(float, fields[name])) for name in ("input_low", "input_high"))
    fits = len(low) == len(high) == channels and np.isfinite([low, high]).all()
    if not fits or any(a > b for a, b in zip(low, high, strict=True)):
        raise ValueError("input_low and input_high need a finite number for each channel, the lower one first")
    return InputRange(low, high)


def check_seen(x: Float[np.ndarray, "batch channel *space"], mask: Bool[np.ndarray, "*space"], where: str) -> None:
    """Refuse fields of which nothing is seen: every value is NaN or hidden by the mask."""
    seen = (np.isfinite(x) & mask).reshape(len(x), -1).any(axis=1)
    if not seen.all():
        raise InputError(
            f"{where}: nothing of field {int(np.argmin(seen))} is seen, since every value is NaN or hidden by the mask;"
            " expected at least one"
        )


def check_range(
    x: Float[np.ndarray, "batch channel *space"], mask: Bool[np.ndarray, "*space"], known: InputRange, where: str
) -> list[str]:
    """Refuse fields far outside the range that a run was trained on; return warnings of others that are unlike it.

    Only what is seen counts: finite values that the mask does not hide.
    """
    warnings = []
    for channel, (low, high) in enumerate(zip(*known, strict=True)):
        values = np.where(np.isfinite(x[:, channel]) & mask, x[:, channel].astype(np.float64), np.nan)
        width = high - low
        if not width or np.isnan(values).all():
            continue
        beyond = np.nan_to_num(np.maximum(low - values, values - high) / width, nan=-np.inf)
        place = np.unravel_index(np.argmax(beyond), beyond.shape)
        trained = f"the run was trained on inputs from {low:.4g} to {high:.4g}"
        said = f"{where}: channel {channel} reaches {values[place]:.4g} in field {int(place[0])}, and {trained}"
        if beyond[place] > _REFUSED:
            raise InputError(f"{said}; give fields in the units of the run's data")
        if beyond[place] > _WARNED:
            warnings.append(f"{said}: its error bars may not hold there")
        elif (spread := float(np.nanmax(values) - np.nanmin(values))) < _SMALL * width:
            warnings.append(
                f"{where}: channel {channel} varies by {spread:.2g} in all, and {trained}; are these the units of the"
                " run's data?"
            )
    return warnings
