"""From a model config to a surrogate."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.config import ModelConfig
from crossreg.data.pairs import Pairs
from crossreg.errors import InputError
from crossreg.nn.fno import fno, site_names
from crossreg.nn.noise import AbstractNoise, Dropout, EpsilonPer, NoiseChain, NoNoise, SigmaPer, gaussian_noise
from crossreg.nn.spectral import check_modes
from crossreg.nn.surrogate import Surrogate

_OWNERS = {
    "generalization": ("generalization",),
    "predictive": ("predictive",),
    "both": ("predictive", "generalization"),
}


def target_spread(pairs: Pairs) -> Float[Array, ""]:
    """The standard deviation of a split's targets over all points and channels."""
    counts = jnp.arange(pairs.rows.shape[0]) < pairs.num_trajectories
    targets = pairs.trajectories[pairs.rows, 1:]
    weight = counts.reshape(-1, *(1,) * (targets.ndim - 1)).astype(targets.dtype)
    total = jnp.sum(weight * jnp.ones_like(targets))
    mean = jnp.sum(weight * targets) / total
    return jnp.sqrt(jnp.sum(weight * (targets - mean) ** 2) / total)


def build_model(config: ModelConfig, pairs: Pairs, *, key: PRNGKeyArray) -> Surrogate:
    r"""The surrogate that `config` describes, for the fields of `pairs`.

    Unless the config says otherwise, log σ_pred starts at $\log \mathrm{std}(y_{train}) - 1$. A start far below
    the residual's scale (the paper's −5) lets the reg gradient drive the sites' σ to their bound before σ_pred
    has grown.
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
        log_sigma_pred_start=jnp.log(target_spread(pairs)) - 1 if start is None else start,
        log_sigma_gen_start=config.log_sigma_gen_start,
        head_bounds=(config.head_log_sigma_min, config.head_log_sigma_max),
        predict_increment=config.predict_increment,
        key=key,
    )

