r"""The Fourier neural operator, once for 1, 2 and 3 dimensions, with its noise sites.

    lift → L × (spectral convolution + pointwise linear, GELU) → heads

Feature sites stand after the GELU of blocks 1 … L−1, before the GELU of block L, and after it (`pre_head`): L + 1 sites
on L + 1 different tensors. A mode site acts on the kept Fourier modes of each block.
"""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.config.sites import mode_site_names, site_names
from crossreg.nn.bounds import Bounds
from crossreg.nn.heads import make_heads
from crossreg.nn.kernels import BatchedStage, Pending
from crossreg.nn.noise import AbstractNoise, NoNoise
from crossreg.nn.pointwise import HE_GAIN, PointwiseLinear
from crossreg.nn.spectral import SpectralConv, Transform, mode_shape
from crossreg.nn.surrogate import Surrogate

# Returns the noise of a site, from the site's name and its tensor's shape (channel, *axes).
NoiseAt = Callable[[str, tuple[int, ...]], AbstractNoise]


def no_noise(name: str, shape: tuple[int, ...]) -> AbstractNoise:
    """Return the site without noise, whatever its name and shape."""
    return NoNoise()


class SpectralBlock(BatchedStage):
    """A spectral convolution plus a pointwise linear map; the GELU is a stage of its own."""

    spectral: SpectralConv
    pointwise: PointwiseLinear

    def __call__(
        self, h: Float[Array, "width *any_space"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "width *any_space"]:
        return self.spectral(h, key=key) + self.pointwise(h)

    def reverse(self, h: Float[Array, "width *any_space"]) -> Float[Array, "width *any_space"]:
        return self.spectral.reverse(h) + self.pointwise.reverse(h)

    def fused(self, waiting: Pending, *, weight_gradients: bool) -> Float[Array, "width sample *space"] | None:
        spectral, pointwise = self.spectral, self.pointwise
        if spectral.transform == "fft":
            return None
        weights = spectral.weight_real, spectral.weight_imag, pointwise.weight, pointwise.bias
        return waiting.through_block(*weights, weight_gradients=weight_gradients)


def fno(
    num_spatial_dims: int,
    in_channels: int,
    out_channels: int,
    *,
    width: int = 8,
    num_blocks: int = 4,
    num_modes: int | tuple[int, ...] = 12,
    feature_noise: NoiseAt = no_noise,
    mode_noise: NoiseAt = no_noise,
    lift_noise: AbstractNoise | None = None,
    generalization_head: bool = False,
    log_sigma_pred_start: float | Float[Array, " out"] = -2.0,
    log_sigma_gen_start: float = -5.0,
    head_bounds: Bounds = (-12.0, 3.0),
    predict_increment: bool = False,
    input_rms: Float[Array, " in"] | None = None,
    pointwise_gain: float = HE_GAIN,
    transform: Transform = "auto",
    key: PRNGKeyArray,
) -> Surrogate:
    """Build a surrogate whose backbone is a Fourier neural operator.

    Where features fade from block to block, the network is nearly linear at its start and learns slowly which inputs
    are exactly 0, that is, hidden. `input_rms` and `pointwise_gain` keep their scale.

    Args:
        num_spatial_dims: 1, 2 or 3.
        in_channels: Channels of the input field, a mask included.
        out_channels: Channels of the predicted field.
        width: Hidden channels.
        num_blocks: Spectral blocks, L.
        num_modes: Kept Fourier modes, of every axis or of each.
        feature_noise: Returns the noise of each feature site, from its name and its tensor's shape.
        mode_noise: Returns the noise on the Fourier modes of each block, likewise.
        lift_noise: Noise after the lift.
        generalization_head: Whether there is a log σ_gen head, learned on reg.
        log_sigma_pred_start: Start of log σ_pred, for all channels or for each.
        log_sigma_gen_start: Start of the head's log σ_gen.
        head_bounds: Smooth bounds of both log σ.
        predict_increment: Whether the mean head gives the change from the input.
        input_rms: Root mean square of each input channel; the lift's weights start divided by it.
        pointwise_gain: Gain of the start of the blocks' pointwise layers (see `PointwiseLinear`).
        transform: How Fourier coefficients are computed; `"auto"` takes the faster way.
        key: The key of the weights.

    Returns:
        An untrained surrogate, without units.

    Raises:
        ValueError: If `num_modes` has not one number per dimension.

    Example:
        ```python
        noise = lambda name, shape: xr.nn.gaussian_noise(name, shape, owner="generalization")
        model = xr.nn.fno(1, 2, 2, width=16, feature_noise=noise, key=jax.random.key(0))
        ```
    """
    modes = (num_modes,) * num_spatial_dims if isinstance(num_modes, int) else num_modes
    if len(modes) != num_spatial_dims:
        raise ValueError(f"num_modes is {modes}: expected one number for each of {num_spatial_dims} dimensions")
    lift_key, head_key, *block_keys = jax.random.split(key, num_blocks + 2)
    feature_shape = (width,) + (1,) * num_spatial_dims
    sites = [feature_noise(name, feature_shape) for name in site_names(num_blocks)]

    lift = PointwiseLinear(in_channels, width, key=lift_key)
    if input_rms is not None:
        lift = eqx.tree_at(lambda layer: layer.weight, lift, lift.weight / input_rms)
    stages: list[Callable] = [lift, lift_noise or NoNoise()]
    for index, (name, block_key) in enumerate(zip(mode_site_names(num_blocks), block_keys, strict=True)):
        spectral_key, pointwise_key = jax.random.split(block_key)
        block = SpectralBlock(
            SpectralConv(
                width,
                width,
                modes,
                noise=mode_noise(name, (width, *mode_shape(modes))),
                transform=transform,
                key=spectral_key,
            ),
            PointwiseLinear(width, width, gain=pointwise_gain, key=pointwise_key),
        )
        is_last = index == num_blocks - 1
        stages += [block, sites[-2], jax.nn.gelu, sites[-1]] if is_last else [block, jax.nn.gelu, sites[index]]

    heads = make_heads(
        width,
        out_channels,
        generalization=generalization_head,
        log_sigma_pred_start=log_sigma_pred_start,
        log_sigma_gen_start=log_sigma_gen_start,
        bounds=head_bounds,
        key=head_key,
    )
    # A site without noise is no stage: there is nothing to run, and nothing that ends the prefix.
    return Surrogate(tuple(stage for stage in stages if not isinstance(stage, NoNoise)), heads, predict_increment)
