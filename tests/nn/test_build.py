"""Starts taken from the data, and data that a model cannot start on."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import DataConfig, ModelConfig
from crossreg.data.load import make_data
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.nn.backbone import cross_regularize
from crossreg.nn.build import build_model, check_scale, data_scale, model_like
from crossreg.nn.surrogate import predict

SMALL = ModelConfig(width=4, num_blocks=2, num_modes=4)


def test_without_a_key_the_weights_are_those_of_key_0(data):
    module = eqx.nn.Conv1d(data.train.in_channels, 4, 1, key=jax.random.key(3))

    def models(**key):
        return build_model(SMALL, data.train, **key), cross_regularize(module, lambda m: (), data.train, **key)

    for alone, same, other in zip(models(), models(key=jax.random.key(0)), models(key=jax.random.key(1)), strict=True):
        assert eqx.tree_equal(alone, same)
        assert not eqx.tree_equal(alone, other)


def scaled(trajectories: Trajectories, *factors: float, **fields):
    factor = np.asarray(factors, np.float32).reshape(1, 1, -1, 1)
    made = trajectories._replace(train=trajectories.train * factor, test=trajectories.test * factor)
    return make_data(made, DataConfig(train_size=7, reg_size=6, test_size=4, **fields), check=False)


def test_the_scale_of_the_data_is_per_channel(trajectories):
    data = scaled(trajectories, 1.0, 20.0, observed_fraction=0.5, mask_channel=True)
    scale = data_scale(data.train)
    np.testing.assert_allclose(scale.target_std, [np.sqrt(0.5), 20 * np.sqrt(0.5)], rtol=0.02)
    np.testing.assert_allclose(scale.input_rms[2], np.sqrt(0.5), rtol=1e-4)
    np.testing.assert_allclose(scale.input_rms[1] / scale.input_rms[0], 20, rtol=0.2)


def test_sigma_pred_and_the_lift_start_at_the_scale_of_the_data(trajectories):
    data = scaled(trajectories, 1.0, 20.0)
    model = build_model(SMALL, data.train, key=jax.random.key(0))
    batch = data.train.gather(jnp.arange(5))
    mixture = predict(model, batch.x, key=jax.random.key(1), num_samples=2)
    expected = data_scale(data.train).target_std * np.exp(-0.5)
    np.testing.assert_allclose(mixture.std_predictive.mean((0, 2)), expected, rtol=1e-3)
    plain = build_model(
        ModelConfig(width=4, num_blocks=2, num_modes=4, scaled_start=False), data.train, key=jax.random.key(0)
    )
    ratio = plain.stages[0].weight / model.stages[0].weight  # pyright: ignore[reportFunctionMemberAccess]
    np.testing.assert_allclose(ratio, np.broadcast_to(data_scale(data.train).input_rms, ratio.shape), rtol=1e-4)


def test_features_keep_their_scale_from_block_to_block(trajectories):
    data = scaled(trajectories, 0.01, 20.0)
    x = data.train.gather(jnp.arange(5)).x

    def rms_after_each_gelu(scaled_start):
        config = ModelConfig(width=64, num_blocks=3, num_modes=4, feature_noise="none", scaled_start=scaled_start)
        model = build_model(config, data.train, key=jax.random.key(0))
        h, sizes = x, []
        for stage in model.stages:
            h = jax.vmap(stage)(h)
            if stage is jax.nn.gelu:
                sizes.append(float(jnp.sqrt(jnp.mean(h**2))))
        return sizes

    first, *_, last = rms_after_each_gelu(True)
    assert 0.7 < last / first < 1.4
    first, *_, last = rms_after_each_gelu(False)
    assert last / first < 0.4


@pytest.mark.parametrize("factor", [1e3, 1e-7])
def test_data_beyond_the_bounds_are_refused(trajectories, factor):
    data = scaled(trajectories, 1.0, factor)
    with pytest.raises(InputError, match=r"channel 1 of the targets has a spread of .* rescale the data"):
        check_scale(SMALL, data.train)
    check_scale(SMALL, scaled(trajectories, 1.0, 1.0).train)


def test_a_channel_that_is_always_zero_is_no_trouble(trajectories):
    data = scaled(trajectories, 1.0, 0.0)
    model = build_model(ModelConfig(width=4, num_modes=4, log_sigma_pred_start=-2.0), data.train, key=jax.random.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model) if hasattr(leaf, "shape"))


def test_the_structure_of_a_model_needs_no_data(data):
    model = build_model(SMALL, data.train, key=jax.random.key(0))
    like = model_like(SMALL, 2, (2, 20))
    assert jax.tree.structure(like) == jax.tree.structure(model)
    shapes = [(a.shape, a.dtype) for a in jax.tree.leaves(model) if hasattr(a, "shape")]
    assert shapes == [(a.shape, a.dtype) for a in jax.tree.leaves(like) if hasattr(a, "shape")]
