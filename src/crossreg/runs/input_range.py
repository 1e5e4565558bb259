"""The range of the inputs that a run was trained on, and checks that fields to predict from lie within it.

A network gives an answer for any input, with error bars of the size that it has learned. For fields in other units, or
fields of which nothing is observed, they mean nothing.
"""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from crossreg.data.pairs import AbstractPairs, Pairs
from crossreg.data.units import Units
from crossreg.errors import InputError, warn
from crossreg.forecasts.forecast import HELD, Limits
from crossreg.nn.build import scale_pairs

# How far beyond the range, in units of its width, a value may lie before there is a warning, and before it is refused.
_WARNED, _REFUSED = 1.0, 10.0
# There is a warning for a field that varies by less than this share of the range, unless the run was trained on such
# fields: it may be in other units.
_SMALL = 0.01
# Of runs of older versions only mean and standard deviation are known: values lie within so many of these.
_USUAL = 4.0


class InputRange(NamedTuple):
    """The range of the inputs in training. The last two are None for runs of older versions.

    Attributes:
        low: The smallest value of each channel.
        high: The largest value of each channel.
        least_spread: The smallest range, over all fields, of the values of one field, for each channel.
        hidden: The largest share of points that was hidden in an input.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    least_spread: tuple[float, ...] | None = None
    hidden: float | None = None

    @property
    def limits(self) -> Limits:
        """The range that the particles of a rollout are held to: this one, and a tenth of its width on either side."""
        return Limits.around(np.asarray([self.low, self.high])[:, :, None], HELD)


def input_range(pairs: AbstractPairs) -> InputRange:
    """Return the range of the inputs of a split as a model sees them; of a large split, that of evenly spaced pairs."""
    numbers = scale_pairs(pairs)
    x, mask = map(np.asarray, _inputs(pairs.hold(np.asarray(numbers)), numbers))
    axes = (0, *range(2, x.ndim))
    spreads = _spreads(np.where(mask, x.astype(np.float64), np.nan))
    least = np.nanmin(spreads, axis=0, initial=np.inf)
    # Of a channel that is never observed, no field varies too little.
    least = np.where(np.isfinite(least), least, 0.0)
    hidden = float(1 - mask.reshape(len(mask), -1).mean(axis=1).min())
    # Rare gaps may lie in other pairs than these.
    is_whole = isinstance(pairs, Pairs) and not pairs.has_gaps and pairs.observed is None
    low, high, least = (tuple(values.tolist()) for values in (x.min(axes), x.max(axes), least))
    return InputRange(low, high, least, hidden if hidden or is_whole else None)


@eqx.filter_jit
def _inputs(pairs: AbstractPairs, numbers):
    batch = pairs.gather(numbers)
    return batch.x[:, : pairs.field_shape[0]], batch.mask


def _spreads(values: Float[np.ndarray, "batch channel *space"]) -> Float[np.ndarray, "batch channel"]:
    """Return the range of the values of each channel of each field, NaN where none is observed."""
    flat = values.reshape(*values.shape[:2], -1)
    low, high = np.nanmin(flat, axis=-1, initial=np.inf), np.nanmax(flat, axis=-1, initial=-np.inf)
    return np.where(low <= high, high - low, np.nan)


def stored_range(fields: dict[str, Any], channels: int, units: Units | None) -> InputRange | None:
    """Return the range in the content of a `fields.json`.

    Args:
        fields: The content.
        channels: The number of channels.
        units: The units of the fields, from which the range follows where an older version did not store it.

    Returns:
        The range; None where neither it nor the units are known.

    Raises:
        ValueError: If it is no range.
    """
    if "input_low" not in fields:
        if units is None:
            return None
        low, high = (tuple(o + sign * _USUAL * s for o, s in zip(*units, strict=True)) for sign in (-1, 1))
        return InputRange(low, high)
    low, high = (tuple(map(float, fields[name])) for name in ("input_low", "input_high"))
    fits = len(low) == len(high) == channels and np.isfinite([low, high]).all()
    if not fits or any(a > b for a, b in zip(low, high, strict=True)):
        raise ValueError("input_low and input_high need a finite number for each channel, the lower one first")
    least, hidden = fields.get("input_least_spread"), fields.get("input_hidden")
    if least is not None:
        least = tuple(map(float, least))
        if len(least) != channels or not all(0 <= spread < np.inf for spread in least):
            raise ValueError("input_least_spread needs a finite number for each channel, none below 0")
    if hidden is not None and not 0 <= (hidden := float(hidden)) <= 1:
        raise ValueError("input_hidden is a share, from 0 to 1")
    return InputRange(low, high, least, hidden)


def described_range(known: InputRange) -> dict[str, Any]:
    """Return a range as `fields.json` holds it."""
    return {f"input_{name}": values for name, values in known._asdict().items() if values is not None}


def check_seen(x: Float[np.ndarray, "batch channel *space"], mask: Bool[np.ndarray, "*space"], where: str) -> list[str]:
    """Check that something of each field is observed, neither NaN nor hidden by the mask.

    Args:
        x: The fields.
        mask: Where they are observed.
        where: The name of the fields in messages.

    Returns:
        Warnings about channels of which nothing is observed in some field. Data may have such gaps, but most have none.

    Raises:
        InputError: If nothing of a field is observed.
    """
    by_channel = np.any((np.isfinite(x) & mask).reshape(*x.shape[:2], -1), axis=-1)
    seen = by_channel.any(axis=-1)
    if not seen.all():
        raise InputError(
            f"{where}: nothing of field {int(np.argmin(seen))} is seen, since every value is NaN or hidden by the mask;"
            " expected at least one"
        )
    return [
        f"{where}: nothing of channel {channel} is seen in {_which(~there)}, since every value is NaN or hidden by the"
        " mask: error bars there may not hold"
        for channel, there in enumerate(np.moveaxis(by_channel, 1, 0))
        if not there.all()
    ]


def check_hidden(
    x: Float[np.ndarray, "batch channel *space"], mask: Bool[np.ndarray, "*space"], known: InputRange, where: str
) -> list[str]:
    """Check that a run was trained with hidden points, if fields have any.

    A model learns what a hidden point means. Without any in training, it takes the 0 that stands there for a value, and
    its error bars ignore that the value is unknown.

    Args:
        x: The fields.
        mask: Where they are observed.
        known: The range of the inputs in training.
        where: The name of the fields in messages.

    Returns:
        A warning where a field has many more hidden points than any field in training.

    Raises:
        InputError: If a field has hidden points, and the run was trained without any.
    """
    if known.hidden is None:
        return []
    seen = (np.isfinite(x).all(axis=1) & mask).reshape(len(x), -1)
    share = 1 - seen.mean(axis=1)
    most = int(np.argmax(share))
    said = f"{where}: {share[most]:.1%} of the points of field {most} are hidden, by the mask or as NaN"
    if share[most] and not known.hidden:
        raise InputError(
            f"{said}, and the run was trained on fields of which every point was observed: train one with"
            " `observed_fraction` below 1, or on data with such gaps"
        )
    if share[most] > known.hidden + (1 - known.hidden) / 2:
        return [f"{said}, and the run was trained with at most {known.hidden:.1%}: its error bars may not hold"]
    return []


def _which(fields: Bool[np.ndarray, " batch"]) -> str:
    """Return the number of the first of some fields, and how many more there are."""
    more = int(fields.sum()) - 1
    return f"field {int(np.argmax(fields))}" + (f" and {more} more" if more else "")


def check_inputs(
    x: Float[Array | np.ndarray, "..."], field_shape: tuple[int, ...], known: InputRange | None, where: str
) -> None:
    """Check inputs in memory; those of another number of axes or channels are left to the network.

    Inside a compiled program, where values are not known, the grid alone is checked.

    Args:
        x: The inputs, with or without a mask channel.
        field_shape: The shape (channel, *space) of the fields in training.
        known: The range of the inputs in training, where it is known.
        where: The name of the inputs in messages.

    Raises:
        InputError: For another grid, or for values far outside the range; there is a warning of less far ones.
    """
    channels, *space = field_shape
    if x.ndim != len(space) + 2 or x.shape[1] < channels:
        return
    if x.shape[2:] != tuple(space):
        raise InputError(f"{where} has fields of {x.shape[2:]} points; the run was trained on {tuple(space)}")
    if known is None or isinstance(x, Tracer) or not x.size:
        return
    for warning in check_range(np.asarray(x[:, :channels]), np.ones(space, bool), known, where):
        warn(warning)


def check_range(
    x: Float[np.ndarray, "batch channel *space"], mask: Bool[np.ndarray, "*space"], known: InputRange, where: str
) -> list[str]:
    """Check that fields lie within the range that a run was trained on, each channel by itself.

    Only observed values count: finite ones that the mask does not hide.

    Args:
        x: The fields.
        mask: Where they are observed.
        known: The range of the inputs in training.
        where: The name of the fields in messages.

    Returns:
        Warnings about channels that lie outside the range, or vary much less.

    Raises:
        InputError: If a value lies far outside the range.
    """
    warnings = []
    spreads = _spreads(np.where(np.isfinite(x) & mask, x.astype(np.float64), np.nan))
    for channel, (low, high) in enumerate(zip(known.low, known.high, strict=True)):
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
        least = np.inf if known.least_spread is None else known.least_spread[channel]
        small = spreads[:, channel] < min(_SMALL * width, least)
        if small.any():
            spread = spreads[np.argmax(small), channel]
            warnings.append(
                f"{where}: channel {channel} varies by {spread:.2g} in {_which(small)}, and {trained}; are these the"
                " units of the run's data?"
            )
    return warnings
