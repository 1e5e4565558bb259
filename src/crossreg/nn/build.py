"""From a model config to a surrogate."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.config import ModelConfig
from crossreg.data.pairs import Pairs
from crossreg.errors import InputError
from crossreg.nn.fno import fno, site_names
from crossreg.nn.noise import AbstractNoise, Dropout, EpsilonPer, NoiseChain, NoNoise, SigmaPer, gaussian_noise
from crossreg.nn.spectral import check_modes
from crossreg.nn.surrogate import Surrogate

# Pairs that the scale of the data is read from.
_SCALE_PAIRS = 500
_OWNERS = {
    "generalization": ("generalization",),
    "predictive": ("predictive",),
    "both": ("predictive", "generalization"),
}


class DataScale(NamedTuple):
    """The size of what a network reads and gives, from a split."""

    input_rms: Float[Array, " in"]
    target_std: Float[Array, ""]


def data_scale(pairs: Pairs) -> DataScale:
    """Root mean square of each input channel, as the network sees it, and the targets' spread."""
    # Evenly spaced pairs, so that a large split costs no more than a small one.
    batch = pairs.gather(jnp.arange(_SCALE_PAIRS) * pairs.num_pairs // _SCALE_PAIRS)
    axes = (0, *range(2, batch.x.ndim))
    return DataScale(jnp.sqrt(jnp.mean(batch.x**2, axes)), jnp.std(batch.y))


def build_model(config: ModelConfig, pairs: Pairs, *, key: PRNGKeyArray) -> Surrogate:
    r"""The surrogate that `config` describes, for the fields of `pairs`.

    Two starts are taken from the data. The lift starts as if its input had unit RMS. log σ_pred starts at
    $\log \mathrm{std}(y_{train}) - 1/2$ unless the config says otherwise: a start far below the residual's scale (the
    paper's −5) lets the reg gradient drive the sites' σ to their bound before σ_pred has grown.
    """
    channels, *points = pairs.trajectories.shape[2:]
    try:
        check_modes((config.num_modes,) * len(points), tuple(points))
    except ValueError as error:
        raise InputError(f"--num-modes {config.num_modes}: {error}") from error
    bounds = (config.log_sigma_min, config.log_sigma_max)

    def gaussian(name, shape, kind: str, sigma_per: SigmaPer, epsilon_per: EpsilonPer) -> AbstractNoise:
        parts = tuple(
            gaussian_noise(
                # Two owners in one place need two names.
                f"{name}_{owner}" if kind == "both" else name,
                shape,
                owner=owner,
                sigma_per=sigma_per,
                epsilon_per=epsilon_per,
                start=config.log_sigma_gen_start,
                bounds=bounds,
            )
            for owner in _OWNERS[kind]
        )
        return parts[0] if len(parts) == 1 else NoiseChain(parts)

    def feature_noise(name, shape) -> AbstractNoise:
        sites = config.sites or site_names(config.num_blocks)
        if config.feature_noise == "none" or name not in sites:
            return NoNoise()
        if config.feature_noise == "dropout":
            return Dropout(config.dropout_rate)
        return gaussian(name, shape, config.feature_noise, config.sigma_per, config.epsilon_per)

    def mode_noise(name, shape) -> AbstractNoise:
        if config.mode_noise == "none":
            return NoNoise()
        return gaussian(name, shape, config.mode_noise, config.mode_sigma_per, config.mode_epsilon_per)

    scale = data_scale(pairs)
    start = config.log_sigma_pred_start
    return fno(
        len(points),
        channels + pairs.mask_channel,
        channels,
        width=config.width,
        num_blocks=config.num_blocks,
        num_modes=config.num_modes,
        feature_noise=feature_noise,
        mode_noise=mode_noise,
        generalization_head=config.generalization_head,
        log_sigma_pred_start=jnp.log(scale.target_std) - 0.5 if start is None else start,
        log_sigma_gen_start=config.log_sigma_gen_start,
        head_bounds=(config.head_log_sigma_min, config.head_log_sigma_max),
        predict_increment=config.predict_increment,
        input_rms=scale.input_rms,
        key=key,
    )

