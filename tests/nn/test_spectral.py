"""The spectral convolution against exact derivatives, the FFT, and pdequinox."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.nn.fourier import fno
from crossreg.nn.noise import gaussian_noise
from crossreg.nn.spectral import (
    SpectralConv,
    Transform,
    inverse_truncated_dft,
    modes_first,
    prefers_fft,
    truncated_dft,
)

TRANSFORMS: tuple[Transform, ...] = ("matmul", "fft")


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def layer(transform, modes, channels=(2, 3)) -> SpectralConv:
    return SpectralConv(channels[0], channels[1], modes, transform=transform, key=jax.random.key(0))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_weights_ik_are_the_derivative(transform):
    points, kept = 30, 7
    x = np.linspace(0, 2 * np.pi, points, endpoint=False)
    conv = layer(transform, (kept,), (1, 1))
    weights = (jnp.zeros((kept, 1, 1)), jnp.arange(kept, dtype=float).reshape(-1, 1, 1))
    conv = eqx.tree_at(lambda c: (c.weight_real, c.weight_imag), conv, weights)
    field = np.sin(3 * x) + 0.3 * np.cos(6 * x) + 2
    np.testing.assert_allclose(conv(jnp.asarray(field)[None])[0], 3 * np.cos(3 * x) - 1.8 * np.sin(6 * x), atol=1e-12)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("axis", [0, 1])
def test_weights_ik_are_the_partial_derivative_in_2d(transform, axis):
    shape, kept = (14, 18), (4, 5)
    x, y = np.meshgrid(*(np.linspace(0, 2 * np.pi, n, endpoint=False) for n in shape), indexing="ij")
    waves = [np.concatenate([np.arange(4), np.arange(-4, 0)]), np.arange(5)]
    symbol = jnp.broadcast_to(jnp.asarray(np.meshgrid(*waves, indexing="ij")[axis], float), (1, 1, 8, 5))
    conv = layer(transform, kept, (1, 1))
    weights = (modes_first(jnp.zeros_like(symbol)), modes_first(symbol))
    conv = eqx.tree_at(lambda c: (c.weight_real, c.weight_imag), conv, weights)
    field = np.sin(2 * x - 3 * y) + np.cos(3 * x + y)
    partial = [2 * np.cos(2 * x - 3 * y) - 3 * np.sin(3 * x + y), -3 * np.cos(2 * x - 3 * y) - np.sin(3 * x + y)]
    np.testing.assert_allclose(conv(jnp.asarray(field)[None])[0], partial[axis], atol=1e-11)


@pytest.mark.parametrize(
    ("modes", "points"), [((6,), (15,)), ((9,), (16,)), ((3, 5), (10, 12)), ((2, 3, 4), (7, 8, 9))]
)
def test_matmul_equals_fft(modes, points):
    h = jax.random.normal(jax.random.key(1), (2, *points))
    key = jax.random.key(2)
    noise = gaussian_noise("modes", (2, *(2 * m for m in modes[:-1]), modes[-1]), owner="predictive", start=-1.0)
    plain, noisy = (
        [SpectralConv(2, 3, modes, noise=n, transform=t, key=jax.random.key(0)) for t in TRANSFORMS]
        for n in (None, noise)
    )
    np.testing.assert_allclose(plain[0](h), plain[1](h), atol=1e-12)
    np.testing.assert_allclose(noisy[0](h, key=key), noisy[1](h, key=key), atol=1e-12)
    assert not np.allclose(plain[0](h), noisy[0](h, key=key))
    with pytest.raises(ValueError, match="draws noise"):
        noisy[0](h)


def test_truncated_dft_inverts_on_band_limited_fields():
    # The plane k = 0 of the last axis holds each wave of a real field twice: leave it out.
    z = jax.random.normal(jax.random.key(0), (4, 6, 2, 3)).at[0].set(0)
    field = inverse_truncated_dft(z, (11, 13))
    again = inverse_truncated_dft(truncated_dft(field, (3, 4)), (11, 13))
    np.testing.assert_allclose(again, field, atol=1e-12)


def test_same_weights_run_on_a_finer_grid():
    model = fno(1, 1, 2, width=5, num_modes=6, key=jax.random.key(0))
    # The first block alone: a GELU makes frequencies that a coarser grid cannot hold.
    conv = model.stages[1]

    def field(points):
        x = np.linspace(0, 2 * np.pi, points, endpoint=False)
        return jnp.asarray(np.stack([np.sin(k * x + k) for k in range(5)]))

    np.testing.assert_allclose(conv(field(320))[:, ::2], conv(field(160)), atol=1e-6)
    key = jax.random.key(1)
    coarse, fine = (model(jnp.asarray(np.sin(field(n)[1:2])), key=key).mean for n in (160, 320))
    np.testing.assert_allclose(fine[:, ::2], coarse, atol=1e-3)


def test_mode_noise_scales_a_mode_and_keeps_its_phase():
    noise = gaussian_noise("modes", (1, 8), owner="generalization", sigma_per="mode", epsilon_per="element", start=-1.0)
    conv = SpectralConv(1, 1, (8,), noise=noise, key=jax.random.key(0))
    identity = (jnp.ones((8, 1, 1)), jnp.zeros((8, 1, 1)))
    conv = eqx.tree_at(lambda c: (c.weight_real, c.weight_imag), conv, identity)
    x = np.linspace(0, 2 * np.pi, 20, endpoint=False)
    noisy = conv(jnp.asarray(np.sin(3 * x + 0.4))[None], key=jax.random.key(3))[0]
    factor = noisy[1] / np.sin(3 * x[1] + 0.4)
    assert abs(factor - 1) > 1e-3
    np.testing.assert_allclose(noisy, factor * np.sin(3 * x + 0.4), atol=1e-12)


@pytest.mark.parametrize(("modes", "points"), [((9,), (15,)), ((6, 3), (11, 20)), ((3, 3), (10,))])
def test_a_grid_too_coarse_for_the_modes_is_refused(modes, points):
    with pytest.raises(ValueError, match=r"holds at most \d modes, not \d|expected one for each of \d dimensions"):
        layer("auto", modes)(jnp.zeros((2, *points)))


def test_the_transform_is_chosen_by_the_modes_kept():
    assert not prefers_fft((12,), (160,))
    assert prefers_fft((512,), (2048,))
    assert not prefers_fft((32, 32), (64, 64))
    # On a GPU an FFT costs as much as many more modes of a short axis, and fewer of a long one.
    assert prefers_fft((40,), (160,), "cpu")
    assert not prefers_fft((80,), (160,), "gpu")
    assert prefers_fft((128,), (2048,), "gpu")
    assert not prefers_fft((128,), (2048,), "cpu")


@pytest.mark.parametrize("dims", [1, 2])
def test_fno_equals_pdequinox(dims):
    from pdequinox.arch import ClassicFNO

    points, width, kept = (26, 22)[:dims], 4, 5
    theirs = ClassicFNO(dims, 3, 2, hidden_channels=width, num_modes=kept, num_blocks=3, key=jax.random.key(0))
    ours = fno(dims, 3, 2, width=width, num_modes=kept, num_blocks=3, key=jax.random.key(1))

    def linear(conv):
        return conv.weight.reshape(conv.weight.shape[:2]), conv.bias.reshape(-1)

    def spectral(weights):
        # Theirs has a corner axis; ours puts the negative modes of the first axis behind the positive ones.
        return weights[0] if dims == 1 else jnp.concatenate([weights[0], weights[1]], axis=2)

    blocks = [ours.stages[1 + 2 * i] for i in range(3)]
    new_blocks = []
    block: Any
    for mine, block in zip(blocks, theirs.blocks, strict=True):
        new = eqx.tree_at(lambda b: (b.pointwise.weight, b.pointwise.bias), mine, linear(block.by_pass_conv))
        kernel = block.spectral_conv
        weights = tuple(modes_first(spectral(part)) for part in (kernel.weights_real, kernel.weights_imag))
        new_blocks.append(eqx.tree_at(lambda b: (b.spectral.weight_real, b.spectral.weight_imag), new, weights))
    lift = eqx.tree_at(lambda layer: (layer.weight, layer.bias), ours.stages[0], linear(theirs.lifting))
    head = eqx.tree_at(lambda layer: (layer.weight, layer.bias), ours.heads.mean, linear(theirs.projection))
    stages = (lift, *(s for block in new_blocks for s in (block, jax.nn.gelu)))
    ours = eqx.tree_at(lambda m: (m.stages, m.heads.mean), ours, (stages, head))
    x = jax.random.normal(jax.random.key(2), (3, *points))
    np.testing.assert_allclose(ours(x, key=jax.random.key(3)).mean, theirs(x), atol=1e-10, rtol=0)


@pytest.mark.parametrize(("modes", "points"), [((6,), (15,)), ((3, 5), (10, 12)), ((2, 3, 4), (7, 8, 9))])
def test_gradients_written_out_are_those_of_jax(modes, points):
    conv = layer("matmul", modes)
    h, out = (jax.random.normal(jax.random.key(k), (c, 5, *points)) for k, c in ((1, 2), (2, 3)))

    def gradients(how):
        return eqx.filter_grad(lambda pair: jnp.sum(out * jnp.tanh(how(pair[0])(pair[1]))))((conv, h))

    plain, written = gradients(lambda c: c), gradients(lambda c: c.reverse)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(written), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-12)
