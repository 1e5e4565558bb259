"""Matrix products over channels and over Fourier modes, with gradients written out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from crossreg.nn.kernels.paths import TRAINING_PRECISION

# The backward passes below name their precision: they run after `predict` has returned and its setting is gone.


@jax.custom_vjp
def mix_channels(weight: Float[Array, "out in"], h: Float[Array, "in *any"]) -> Float[Array, "out *any"]:
    """Return W h over the first axis. JAX's own gradients put channels last, for which a CPU copies whole fields."""
    return jnp.tensordot(weight, h, axes=1)


def _mix_channels_forward(weight, h):
    return mix_channels(weight, h), (weight, h)


def _mix_channels_backward(kept, grad):
    weight, h = kept
    axes = tuple(range(1, h.ndim))
    if jax.default_backend() == "cpu" or h.ndim < 3:
        dweight = jnp.tensordot(grad, h, axes=(axes, axes), precision=TRAINING_PRECISION)
    else:
        # One small product for each sample: a GPU computes them all at once, while a single long sum would keep few of
        # its processors busy.
        each = (field.reshape(*field.shape[:2], -1) for field in (grad, h))
        dweight = jnp.sum(jnp.einsum("osx,isx->soi", *each, precision=TRAINING_PRECISION), axis=0)
    return dweight, jnp.tensordot(weight.T, grad, axes=1, precision=TRAINING_PRECISION)


mix_channels.defvjp(_mix_channels_forward, _mix_channels_backward)


def complex_blocks(
    real: Float[Array, "mode out in"], imag: Float[Array, "mode out in"]
) -> Float[Array, "mode row column"]:
    """Return W(k) as real 2×2 blocks of re and im, so that one real product multiplies complex numbers."""
    num_modes, out, width = real.shape
    rows = [jnp.stack([real, -imag], 2), jnp.stack([imag, real], 2)]
    return jnp.stack(rows, 1).reshape(num_modes, 2 * out, 2 * width)


def mix_modes(
    real: Float[Array, "mode out in"], imag: Float[Array, "mode out in"], z: Float[Array, "mode 2 in any"]
) -> Float[Array, "mode 2 out any"]:
    """Return W(k) times the coefficients of every mode."""
    num_modes, out, width = real.shape
    mixed = jnp.matmul(complex_blocks(real, imag), z.reshape(num_modes, 2 * width, z.shape[-1]))
    return mixed.reshape(num_modes, 2, out, z.shape[-1])


@jax.custom_vjp
def mix_modes_in_reverse(real, imag, z):
    """Return `mix_modes`, with half the products in the gradient of W: two of its four blocks repeat the others."""
    return mix_modes(real, imag, z)


def _mix_modes_forward(real, imag, z):
    return mix_modes(real, imag, z), (real, imag, z)


def _mix_modes_backward(kept, grad):
    real, imag, z = kept
    num_modes, out, _ = real.shape
    transposed = jnp.swapaxes(complex_blocks(real, imag), 1, 2)
    dz = jnp.matmul(transposed, grad.reshape(num_modes, 2 * out, -1), precision=TRAINING_PRECISION)
    turned = jnp.stack([-z[:, 1], z[:, 0]], 1)
    dreal, dimag = (jnp.einsum("kqos,kqis->koi", grad, side, precision=TRAINING_PRECISION) for side in (z, turned))
    return dreal, dimag, dz.reshape(z.shape)


mix_modes_in_reverse.defvjp(_mix_modes_forward, _mix_modes_backward)
