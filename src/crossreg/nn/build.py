"""Surrogates from a model config."""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from crossreg.config import ModelConfig
from crossreg.config.sites import site_names
from crossreg.data.pairs import AbstractPairs
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.nn.fourier import fno
from crossreg.nn.growth import LeadGrowth
from crossreg.nn.noise import (
    AbstractNoise,
    Dropout,
    EpsilonPer,
    FixedNoise,
    NoiseChain,
    NoNoise,
    SigmaPer,
    gaussian_noise,
)
from crossreg.nn.pointwise import HE_GAIN
from crossreg.nn.spectral import check_modes
from crossreg.nn.surrogate import Surrogate, predict

# The scale of the data is read from so many pairs, or from fewer of large fields: at most so many values.
_SCALE_PAIRS, _SCALE_VALUES = 500, 2**24
# Fields are in other units if their spread differs by more than this factor, or their mean by so many spreads.
_OTHER_UNITS = 100.0
_OWNERS = {
    "generalization": ("generalization",),
    "predictive": ("predictive",),
    "both": ("predictive", "generalization"),
}


class DataScale(NamedTuple):
    """The size of a network's inputs and targets, per channel."""

    input_rms: Float[Array, " in"]
    target_std: Float[Array, " channel"]


def scale_pairs(pairs: AbstractPairs) -> Int[Array, " pair"]:
    """Return the pairs that `data_scale` reads: evenly spaced, so that a large split costs no more than a small one."""
    count = max(1, min(_SCALE_PAIRS, _SCALE_VALUES // math.prod(pairs.field_shape)))
    return jnp.arange(count) * pairs.num_pairs // count


def data_scale(pairs: AbstractPairs) -> DataScale:
    """Return the root mean square of each input channel, as the network sees it, and the spread of each target."""
    if pairs.in_files and pairs.held_part is None:
        pairs = pairs.hold(np.asarray(scale_pairs(pairs)))
    batch = pairs.gather(scale_pairs(pairs))
    if pairs.units is not None:
        x, y = (jnp.moveaxis(pairs.units.to_network(jnp.moveaxis(f, 0, 1)), 0, 1) for f in (batch.x, batch.y))
        batch = batch._replace(x=x, y=y)
    axes = (0, *range(2, batch.x.ndim))
    counts = jnp.broadcast_to(batch.weight > 0, batch.y.shape)
    spread = jnp.std(batch.y, (0, *range(2, batch.y.ndim)), where=counts)
    if pairs.units is not None:
        # Pairs without any observed target have no spread; that of standardised fields is 1.
        spread = jnp.where(jnp.isnan(spread), 1.0, spread)
    return DataScale(jnp.sqrt(jnp.mean(batch.x**2, axes)), spread)


def pred_start(config: ModelConfig, scale: DataScale) -> float | Float[Array, " channel"]:
    r"""Return the start of log σ_pred: the config's, or $\log \mathrm{std}(y_{train}) - 1/2$ of each channel."""
    if config.log_sigma_pred_start is not None:
        return config.log_sigma_pred_start
    return jnp.log(scale.target_std) - 0.5


def check_scale(config: ModelConfig, pairs: AbstractPairs) -> None:
    """Raise InputError if a model of this config cannot start on these data."""
    scale = eqx.filter_jit(data_scale)(pairs)  # compiles one small program instead of thirty
    for channel, (std, start) in enumerate(
        zip(scale.target_std.tolist(), jnp.broadcast_to(pred_start(config, scale), scale.target_std.shape), strict=True)
    ):
        low, high = config.head_log_sigma_min, config.head_log_sigma_max
        if not low < start < high:
            if not std:
                raise InputError(
                    f"channel {channel} of the targets never changes, as float32: leave it out, or, if it does change"
                    " in double precision, subtract an offset or store it in another unit"
                )
            raise InputError(
                f"channel {channel} of the targets has a spread of {std:g}, so that log σ_pred would start at"
                f" {start:.3g}, outside ({low:g}, {high:g}): rescale the data, or set `head_log_sigma_min` and"
                " `head_log_sigma_max`"
            )


def build_model(config: ModelConfig, pairs: AbstractPairs, *, key: PRNGKeyArray | None = None) -> Surrogate:
    """Build the surrogate that a config describes, for the fields of `pairs`.

    Two starts are taken from the data. The lift starts as if its input had unit RMS, and the blocks keep that scale.
    log σ_pred starts near the targets' spread (see `pred_start`): a start far below the residual's scale (the paper's
    −5) lets the reg gradient drive the sites' σ to their bound before σ_pred has grown.

    Args:
        config: The FNO, its noise sites and its heads.
        pairs: Training pairs, for shapes, units and the scale of the data.
        key: The key of the weights. The default is `jax.random.key(0)`.

    Returns:
        An untrained surrogate in the units of `pairs`.

    Raises:
        InputError: If the grid cannot hold the config's Fourier modes.

    Example:
        ```python
        model = xr.build_model(xr.ModelConfig(width=16), data.train)
        ```
    """
    key = jax.random.key(0) if key is None else key
    model = _build(config, pairs.in_channels, pairs.field_shape, data_scale(pairs), key)
    return dataclasses.replace(model, units=pairs.units)


def check_reads(model: Surrogate, pairs: AbstractPairs) -> None:
    """Check that a model can read pairs, and that they are in its units.

    Args:
        model: A model, whose units are those of the fields that it was built for.
        pairs: A split to train it on, or to score it on.

    Raises:
        InputError: If the model cannot read fields of that shape, predicts fields of another shape, or was built for
            fields in units far from those of `pairs`.
    """
    x = jax.ShapeDtypeStruct((1, pairs.in_channels, *pairs.field_shape[1:]), jnp.float32)
    reads = f"the model does not read fields of shape {pairs.field_shape}"
    try:
        means = jax.eval_shape(lambda x: predict(model, x, key=jax.random.key(0), num_samples=1).means, x)
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(f"{reads} ({str(error).splitlines()[0]})") from error
    if means.shape[2:] != pairs.field_shape:
        raise InputError(f"{reads}: it gives fields of shape {means.shape[2:]}")
    if model.units is None or pairs.units is None:
        return
    for channel, (o, s, own, size) in enumerate(zip(*model.units, *pairs.units, strict=True)):
        if not (1 / _OTHER_UNITS < size / s < _OTHER_UNITS and abs(own - o) < _OTHER_UNITS * max(s, size)):
            raise InputError(
                f"the fields vary by {size:.3g} around {own:.6g} in channel {channel}, and the model was built for"
                f" fields that vary by {s:.3g} around {o:.6g}; give fields in its units"
            )


def model_like(
    config: ModelConfig, in_channels: int, field_shape: tuple[int, ...], units: Units | None = None
) -> Surrogate:
    """Return the structure of a model without its numbers: `ShapeDtypeStruct`s in place of arrays."""
    scale = DataScale(jnp.ones(in_channels), jnp.ones(field_shape[0]))
    model = eqx.filter_eval_shape(_build, config, in_channels, field_shape, scale, jax.random.key(0))
    return dataclasses.replace(model, units=units)


def site_noise(config: ModelConfig, name: str, shape: tuple[int, ...]) -> AbstractNoise:
    """Return the noise that a config puts on features of `shape` (channel, *axes)."""
    if config.feature_noise == "none":
        return NoNoise()
    if config.feature_noise == "dropout":
        return Dropout(config.dropout_rate)
    return _gaussian(config, name, shape, config.feature_noise, config.sigma_per, config.epsilon_per)


def _gaussian(
    config: ModelConfig, name: str, shape: tuple[int, ...], kind: str, sigma_per: SigmaPer, epsilon_per: EpsilonPer
) -> AbstractNoise:
    """Return Gaussian noise of one owner, or of both at one place."""
    parts = tuple(
        gaussian_noise(
            # Two owners at one place need two names.
            f"{name}_{owner}" if kind == "both" else name,
            shape,
            owner=owner,
            sigma_per=sigma_per,
            epsilon_per=epsilon_per,
            start=config.log_sigma_gen_start,
            bounds=(config.log_sigma_min, config.log_sigma_max),
        )
        for owner in _OWNERS[kind]
    )
    return parts[0] if len(parts) == 1 else NoiseChain(parts)


def _build(
    config: ModelConfig, in_channels: int, field_shape: tuple[int, ...], scale: DataScale, key: PRNGKeyArray
) -> Surrogate:
    channels, *space = field_shape
    try:
        check_modes((config.num_modes,) * len(space), tuple(space))
    except ValueError as error:
        raise InputError(f"num_modes is {config.num_modes}: {error}") from error

    def feature_noise(name, shape) -> AbstractNoise:
        sites = config.sites or site_names(config.num_blocks)
        return site_noise(config, name, shape) if name in sites else NoNoise()

    def mode_noise(name, shape) -> AbstractNoise:
        if config.mode_noise == "none":
            return NoNoise()
        return _gaussian(config, name, shape, config.mode_noise, config.mode_sigma_per, config.mode_epsilon_per)

    # An input channel that is always 0 has no scale to divide by.
    rms = jnp.where(scale.input_rms > 0, scale.input_rms, 1) if config.scaled_start else None
    model = fno(
        len(space),
        in_channels,
        channels,
        width=config.width,
        num_blocks=config.num_blocks,
        num_modes=config.num_modes,
        feature_noise=feature_noise,
        mode_noise=mode_noise,
        lift_noise=FixedNoise(config.lift_noise) if config.lift_noise else None,
        generalization_head=config.generalization_head,
        log_sigma_pred_start=pred_start(config, scale),
        log_sigma_gen_start=config.log_sigma_gen_start,
        head_bounds=(config.head_log_sigma_min, config.head_log_sigma_max),
        predict_increment=config.predict_increment,
        input_rms=rms,
        pointwise_gain=HE_GAIN if config.scaled_start else 1.0,
        key=key,
    )
    return dataclasses.replace(model, growth=LeadGrowth.start(scale.target_std**2)) if config.lead_growth else model
