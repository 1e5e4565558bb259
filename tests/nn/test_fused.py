"""The fused kernels, interpreted on the CPU, are the same map as the readable path, in value and in every gradient."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import ModelConfig
from crossreg.nn.build import build_model
from crossreg.nn.fourier import SpectralBlock
from crossreg.nn.kernels.fused import Weights, can_fuse, can_read, fused_block
from crossreg.nn.kernels.pending import Pending
from crossreg.nn.pointwise import PointwiseLinear
from crossreg.nn.spectral import SpectralConv
from crossreg.nn.surrogate import predict
from crossreg.objectives import fair_crps, train_objective
from crossreg.routing import Routed, merge, route


def make_block(width, modes, *, key):
    spectral_key, pointwise_key = jax.random.split(key)
    spectral = SpectralConv(width, width, (modes,), transform="matmul", key=spectral_key)
    return SpectralBlock(spectral, PointwiseLinear(width, width, key=pointwise_key))


def of_block(a, first, second, weights, gelu):
    """The readable path with these weights."""
    block = make_block(a.shape[0], weights.real.shape[0], key=jax.random.key(0))
    places = lambda b: (b.spectral.weight_real, b.spectral.weight_imag, b.pointwise.weight, b.pointwise.bias)  # noqa: E731
    block = eqx.tree_at(places, block, tuple(weights))
    return jax.vmap(block, in_axes=1, out_axes=1)(Pending(a, first, gelu, second).done())


def close(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * float(jnp.abs(b).max()))


# Channels, samples, points, modes: every axis has its own size.
SHAPES = [((8, 16, 96, 12), True), ((4, 32, 64, 5), False), ((16, 4, 32, 16), True)]


@pytest.mark.parametrize(("shape", "gelu"), SHAPES)
def test_value_and_gradients_are_those_of_the_block(shape, gelu):
    width, samples, points, modes = shape
    keys = jax.random.split(jax.random.key(sum(shape)), 5)
    block = make_block(width, modes, key=keys[0])
    spectral = block.spectral
    weights = Weights(spectral.weight_real, spectral.weight_imag, block.pointwise.weight, block.pointwise.bias)
    a, target = (jax.random.normal(key, (width, samples, points)) for key in keys[1:3])
    first, second = (1 + 0.4 * jax.random.normal(key, (width, samples)) for key in keys[3:])
    assert can_fuse((width, width), (modes,), (samples, points))

    def loss(run):
        return lambda *args: jnp.sum(target * run(*args))

    arguments = (a, first, second, weights)
    reference = loss(functools.partial(of_block, gelu=gelu))
    value, gradients = jax.jit(jax.value_and_grad(reference, (0, 1, 2, 3)))(*arguments)
    for weight_gradients in (True, False):
        fused = loss(lambda a, f, g, w, wanted=weight_gradients: fused_block(a, f, g, w, gelu, wanted))
        ours, theirs = jax.jit(jax.value_and_grad(fused, (0, 1, 2, 3)))(*arguments), gradients
        if not weight_gradients:
            theirs = (*gradients[:3], jax.tree.map(jnp.zeros_like, weights))
        assert float(ours[0]) == pytest.approx(float(value), abs=1e-6 * a.size)
        close(ours[1], theirs)
    # Replicas, each with weights of its own.
    many = jax.tree.map(lambda x: jnp.stack([x, 1.5 * x, -x]), arguments)
    run = loss(lambda a, f, g, w: fused_block(a, f, g, w, gelu, True))
    ours = jax.jit(jax.vmap(jax.grad(run, (0, 1, 2, 3))))(*many)
    close(ours, jax.jit(jax.vmap(jax.grad(reference, (0, 1, 2, 3))))(*many))


@pytest.mark.parametrize("changes", [{}, {"epsilon_per": "element", "mode_noise": "generalization"}])
def test_a_model_predicts_and_learns_the_same(data, changes):
    """Noise that is not the same at all points of a channel, or on modes, leaves stages to the readable path."""
    config = ModelConfig(width=8, num_blocks=3, num_modes=5, log_sigma_gen_start=-1.0, **changes)
    model = build_model(config, data.train, key=jax.random.key(0))
    # Heads that read their features, as after some training: they start as constants.
    heads = lambda m: [m.heads.sigma_pred.linear.weight, m.heads.sigma_gen.linear.weight]  # noqa: E731
    model = eqx.tree_at(heads, model, [0.05 * jax.random.normal(jax.random.key(5 + i), (2, 8)) for i in range(2)])
    batch = data.train.gather(jnp.arange(4))
    # 8 fields of 32 points: the kernels take 16 samples and 32 points at a time.
    x, y = (jnp.tile(f, (2, 1, 2))[..., :32] for f in (batch.x, batch.y))
    parts = route(model)

    def run(theta_psi, rho, path):
        routed = Routed(theta_psi, rho, parts.static)
        return predict(merge(routed), x, key=jax.random.key(1), num_samples=4, path=path)

    def train(theta_psi, path):
        return train_objective(run(theta_psi, parts.rho, path), y)

    def reg(rho, path):
        return fair_crps(run(parts.theta_psi, rho, path), y)

    def all_of(theta_psi, rho, *, paths):
        train_path, reg_path = paths
        mixture = run(theta_psi, rho, train_path)
        return mixture, jax.grad(train)(theta_psi, train_path), jax.grad(reg)(rho, reg_path)

    plain, *others = (
        eqx.filter_jit(functools.partial(all_of, paths=paths))(parts.theta_psi, parts.rho)
        for paths in (("plain", "plain"), ("reverse", "reverse"), ("kernels", "noise kernels"))
    )
    for other in others:
        close(other, plain)
    assert "pallas_call" in str(jax.make_jaxpr(lambda t: jax.grad(train)(t, "kernels"))(parts.theta_psi))


def test_what_the_kernels_do_not_take():
    assert can_fuse((8, 8), (12,), (160, 160))
    assert not can_fuse((8, 8), (12,), (160, 150))  # points
    assert not can_fuse((8, 8), (12,), (161, 160))  # samples
    assert not can_fuse((8, 8), (17,), (160, 160))  # modes
    assert not can_fuse((8, 8), (12, 12), (160, 32, 32))  # dimensions
    assert not can_fuse((6, 6), (12,), (160, 160))  # channels
    assert can_read(8, 3, (160, 160))
    assert not can_read(64, 9, (160, 160))  # products


@pytest.mark.parametrize(("path", "expected"), [("plain", ["HIGHEST"]), ("reverse", ["HIGH", "HIGHEST"])])
def test_every_matrix_product_says_how_precise_it_is(data, tiny, path, expected):
    """On an accelerator, one that says nothing has what the hardware likes. HIGH is TF32 there; sums have float32."""
    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    parts = route(model)
    batch = data.train.gather(jnp.arange(4))

    def loss(theta_psi):
        model = merge(Routed(theta_psi, parts.rho, parts.static))
        return train_objective(predict(model, batch.x, key=jax.random.key(1), path=path), batch.y)

    text = str(jax.make_jaxpr(loss if path == "plain" else jax.grad(loss))(parts.theta_psi))
    found = re.findall(r"precision=\(Precision\.(\w+), Precision\.(\w+)\)", text)
    assert text.count("dot_general[") == len(found) > 10
    assert sorted({side for pair in found for side in pair}) == expected
