"""The whole network, and its start, against what the docstrings say, written in NumPy."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import ModelConfig
from crossreg.nn.bounds import bound
from crossreg.nn.build import build_model
from crossreg.nn.heads import make_heads
from crossreg.nn.kernels.draws import fold_in
from crossreg.nn.noise import AbstractNoise, Dropout, FixedNoise, GaussianNoise, NoiseChain, is_stochastic
from crossreg.nn.pointwise import HE_GAIN, PointwiseLinear
from crossreg.nn.spectral import SpectralConv
from crossreg.nn.surrogate import predict

CONFIG = ModelConfig(width=4, num_blocks=3, num_modes=5, log_sigma_gen_start=-1.0)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def linear(layer, h):
    weight, bias = np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)
    return weight @ h + bias[:, None]


def convolution(conv, h, factor=1.0):
    """The lowest modes, each mixed by its own matrix; all others are 0."""
    weight = np.asarray(conv.weight_real, np.float64) + 1j * np.asarray(conv.weight_imag, np.float64)
    kept = weight.shape[0]
    spectrum = np.fft.rfft(h, axis=-1)
    mixed = np.zeros_like(spectrum)
    mixed[:, :kept] = np.einsum("koi,ik->ok", weight, spectrum[:, :kept] * factor)
    return np.fft.irfft(mixed, h.shape[-1], axis=-1)


def b(r, low, high):
    """The smooth bound."""
    return low + np.logaddexp(0, r - low) - np.logaddexp(0, r - high)


def with_random_heads(model):
    for number, name in enumerate(("sigma_pred", "sigma_gen")):
        place = lambda m, name=name: getattr(m.heads, name).linear.weight  # noqa: E731
        model = eqx.tree_at(place, model, 0.5 * jax.random.normal(jax.random.key(number), place(model).shape))
    return model


@pytest.mark.parametrize(
    "changes", [{}, {"epsilon_per": "element", "predict_increment": True}, {"mode_noise": "generalization"}], ids=str
)
def test_a_sample_is_the_network_written_out(data, changes):
    """lift → L × (spectral + pointwise, GELU) → heads; noise after each GELU but the last, and around the last."""
    model = with_random_heads(build_model(dataclasses.replace(CONFIG, **changes), data.train, key=jax.random.key(0)))
    x = data.train.gather(jnp.arange(1)).x[0]
    key = jax.random.key(7)
    found = model(x, key=key)
    # Many at once, where factors and GELU wait for the next stage: the second sample of the first input.
    second = jax.random.split(jax.random.split(key, 2)[0], 3)[1]
    many = predict(model, jnp.stack([x, -x]), key=key, num_samples=3)
    one = model(x, key=second)
    np.testing.assert_allclose(many.means[1, 0], one.mean, atol=2e-6)
    np.testing.assert_allclose(many.vars_predictive[1, 0], np.exp(2 * one.log_sigma_pred), rtol=1e-5)
    assert one.log_sigma_gen is not None
    np.testing.assert_allclose(many.vars_generalization[1, 0], np.exp(2 * one.log_sigma_gen), rtol=1e-5)

    stages: Any = iter(model.stages)
    first = next(i for i, stage in enumerate(model.stages) if is_stochastic(stage))
    noisy = {id(stage): fold_in(key, i - first) for i, stage in enumerate(model.stages) if is_stochastic(stage)}

    def site(h):
        noise = next(stages)
        assert isinstance(noise, GaussianNoise)
        return h * np.asarray(noise.factor(h.shape, key=noisy[id(noise)], dtype=jnp.float32), np.float64), noise.name

    h, names = linear(next(stages), np.asarray(x, np.float64)), []
    for number in (1, 2, 3):
        block: Any = next(stages)
        factor = 1.0
        if is_stochastic(block):
            factor = block.spectral.noise.factor((4, 5), key=noisy[id(block)], dtype=jnp.float32)
        h = convolution(block.spectral, h, factor) + linear(block.pointwise, h)
        if number == 3:
            h, name = site(h)
            names.append(name)
        assert next(stages) is jax.nn.gelu
        h, name = site(gelu(h))
        names.append(name)
    assert names == ["block1", "block2", "block3_pre", "pre_head"]
    assert next(stages, None) is None
    mean = linear(model.heads.mean, h) + (np.asarray(x) if changes.get("predict_increment") else 0)
    np.testing.assert_allclose(found.mean, mean, atol=2e-6)
    for name in ("pred", "gen"):
        head, moment = getattr(model.heads, f"sigma_{name}"), getattr(found, f"log_sigma_{name}")
        np.testing.assert_allclose(moment, b(linear(head.linear, h), -12.0, 3.0), atol=5e-6, err_msg=name)


def test_the_noise_of_a_config_is_what_its_names_say(data):
    def site(place=2, **changes):
        model = build_model(dataclasses.replace(CONFIG, **changes), data.train, key=jax.random.key(0))
        return [stage for stage in model.stages if isinstance(stage, AbstractNoise)][place]

    def parts(noise):
        return type(noise.scale).__name__, noise.name, noise.scale.raw.shape, noise.epsilon_per

    assert parts(site()) == ("GeneralizationScale", "block3_pre", (4, 1), "channel")
    assert parts(site(sigma_per="layer", epsilon_per="element"))[2:] == ((1, 1), "element")
    assert parts(site(feature_noise="predictive"))[0] == "PredictiveScale"
    both = site(feature_noise="both")
    assert isinstance(both, NoiseChain)
    assert [parts(noise)[:2] for noise in both.noises] == [
        ("PredictiveScale", "block3_pre_predictive"),
        ("GeneralizationScale", "block3_pre_generalization"),
    ]
    dropped = site(feature_noise="dropout", dropout_rate=0.3)
    assert isinstance(dropped, Dropout)
    assert dropped.rate == 0.3
    lifted = site(0, lift_noise=0.2)
    assert isinstance(lifted, FixedNoise)
    assert lifted.sigma == 0.2
    assert parts(site(0, sites=("pre_head",)))[1] == "pre_head"
    model = build_model(dataclasses.replace(CONFIG, mode_noise="predictive"), data.train, key=jax.random.key(0))
    block: Any = model.stages[1]
    assert parts(block.spectral.noise) == ("PredictiveScale", "modes1", (1, 5), "element")


def test_log_sigmas_start_where_the_config_says(data):
    config = dataclasses.replace(CONFIG, log_sigma_pred_start=-3.5, log_sigma_gen_start=-2.5)
    model = build_model(config, data.train, key=jax.random.key(0))
    moments = model(data.train.gather(jnp.arange(1)).x[0], key=jax.random.key(1))
    np.testing.assert_allclose(moments.log_sigma_pred, -3.5, atol=1e-5)
    assert moments.log_sigma_gen is not None
    np.testing.assert_allclose(moments.log_sigma_gen, -2.5, atol=1e-5)
    for stage in model.stages:
        if isinstance(stage, GaussianNoise):
            np.testing.assert_allclose(stage.scale.log_sigma(), -2.5, atol=1e-5)
            assert stage.scale.bounds == (-8.0, 3.0)
    # By default at the spread of the targets, less ½.
    model = build_model(CONFIG, data.train, key=jax.random.key(0))
    spread = np.asarray(data.train.gather(jnp.arange(int(data.train.num_pairs))).y).std(axis=(0, 2))
    start = model(data.train.gather(jnp.arange(1)).x[0], key=jax.random.key(1)).log_sigma_pred
    np.testing.assert_allclose(start, np.broadcast_to(np.log(spread)[:, None] - 0.5, start.shape), atol=1e-4)


def test_the_bound_is_its_formula():
    raw = np.concatenate([np.linspace(-30, 30, 241), [-8.0, 3.0]])
    np.testing.assert_allclose(bound(jnp.asarray(raw, jnp.float32), (-8.0, 3.0)), b(raw, -8.0, 3.0), atol=4e-6)
    assert float(bound(jnp.asarray(3.0), (-8.0, 3.0))) == pytest.approx(3 - np.log(2), abs=2e-5)


def test_weights_start_at_their_scale():
    """Uniform in ±g/√C has the standard deviation g/√(3C); four standard errors of it are allowed."""
    width, count = 96, 96 * 96
    layer = PointwiseLinear(width, width, gain=HE_GAIN, key=jax.random.key(0))
    limit = np.sqrt(6 / width)
    assert limit * 0.999 < float(jnp.abs(layer.weight).max()) <= limit
    np.testing.assert_allclose(layer.weight.std(), np.sqrt(2 / width), rtol=4 / np.sqrt(2 * count))
    assert float(jnp.abs(layer.bias).max()) <= 1 / np.sqrt(width)
    assert PointwiseLinear(1, 5000, key=jax.random.key(0)).weight.std() == pytest.approx(np.sqrt(1 / 3), rel=0.03)
    conv = SpectralConv(5, 7, (60,), key=jax.random.key(0))
    for weight in (conv.weight_real, conv.weight_imag):
        np.testing.assert_allclose(weight.std(), 1 / 35, rtol=4 / np.sqrt(2 * weight.size))
        np.testing.assert_allclose(weight.mean(), 0, atol=4 / 35 / np.sqrt(weight.size))
    assert (conv.weight_real != conv.weight_imag).all()


def test_heads_read_the_same_in_reverse_where_no_weight_is_0():
    heads = make_heads(4, 2, generalization=True, key=jax.random.key(0))
    for number, name in enumerate(("sigma_pred", "sigma_gen")):
        place = lambda h, name=name: getattr(h, name).linear.weight  # noqa: E731
        heads = eqx.tree_at(place, heads, jax.random.normal(jax.random.key(number), place(heads).shape))
    features = jax.random.normal(jax.random.key(2), (4, 3, 7))
    plain, reverse = heads(features), heads.reverse(features)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(reverse), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
        assert float(jnp.std(one)) > 0.1


def test_a_model_of_the_config_has_the_heads_it_names(data):
    without = build_model(dataclasses.replace(CONFIG, generalization_head=False), data.train, key=jax.random.key(0))
    assert without.heads.sigma_gen is None
    bounds = {"head_log_sigma_min": -9.0, "head_log_sigma_max": 2.0, "log_sigma_min": -7.0, "log_sigma_max": 1.0}
    model = build_model(dataclasses.replace(CONFIG, **bounds), data.train, key=jax.random.key(0))
    assert model.heads.sigma_gen is not None
    assert model.heads.sigma_gen.bounds == model.heads.sigma_pred.bounds == (-9.0, 2.0)
    assert {s.scale.bounds for s in model.stages if isinstance(s, GaussianNoise)} == {(-7.0, 1.0)}
