"""Noise stands where the selector says, whatever the module; what cannot be is refused."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import DataConfig, ModelConfig
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories, digest
from crossreg.data.units import Units
from crossreg.fitting import fit
from crossreg.nn.backbone import cross_regularize
from crossreg.nn.fourier import fno
from crossreg.nn.noise import Dropout, noises, site_sigmas
from crossreg.nn.surrogate import predict
from foreign_modules import FOREIGN, WIDTH, Perceptron, resnet

KEY = jax.random.key(5)
# As one program; op by op, each operation would be compiled on its own.
compiled = eqx.filter_jit(predict)


def _module(name, data):
    make, where, names = FOREIGN[name]
    return make(data.train.in_channels, data.train.field_shape[1], key=KEY), where, names


@pytest.mark.parametrize("name", FOREIGN)
def test_sites_are_called_by_their_place_and_have_a_sigma_for_every_channel(name, data):
    module, where, names = _module(name, data)
    model = cross_regularize(module, where, data.train, key=KEY)
    sigmas = site_sigmas(model)
    assert set(sigmas) == set(names)
    np.testing.assert_allclose(np.concatenate([np.ravel(s) for s in sigmas.values()]), np.exp(-5), rtol=1e-4)
    assert model.heads.mean.weight.shape == (data.train.field_shape[0], WIDTH)


@pytest.mark.parametrize("name", FOREIGN)
def test_without_sites_the_mean_is_the_modules(name, data):
    module, _, _ = _module(name, data)
    model = cross_regularize(module, lambda m: (), data.train, key=KEY)
    x = data.train.gather(jnp.arange(3)).x
    expected = jax.jit(jax.vmap(lambda x: model.heads.mean(module(x))))(x)
    np.testing.assert_allclose(compiled(model, x, key=KEY).mean, expected, rtol=1e-5, atol=1e-6)


class TwoMaps(eqx.Module):
    """Linear in its input, and with as many features inside as outside, so that what was inside can be read off."""

    inner: eqx.nn.Conv1d
    outer: eqx.nn.Conv1d

    def __init__(self, in_channels, *, key):
        first, second = jax.random.split(key)
        self.inner = eqx.nn.Conv1d(in_channels, WIDTH, 1, key=first)
        self.outer = eqx.nn.Conv1d(WIDTH, WIDTH, 1, key=second)

    def __call__(self, x):
        return self.outer(self.inner(x))


def test_the_factor_stands_behind_the_chosen_part_one_for_every_channel(data):
    r"""Of $B(f \odot A x)$ the factor is $B^{-1}(y - b) / A x$: the same at all points, with mean 1 and spread σ."""
    module = TwoMaps(data.train.in_channels, key=KEY)
    config = ModelConfig(log_sigma_gen_start=-1.2)
    model = cross_regularize(module, lambda m: m.inner, data.train, config=config, key=KEY)
    x = data.train.gather(jnp.arange(1)).x[0]
    y = jax.jit(jax.vmap(lambda key: model.stages[0](x, key=key)))(jax.random.split(KEY, 3000))
    inside = jnp.linalg.solve(module.outer.weight[:, :, 0], y - module.outer.bias)
    factor = np.asarray(inside / module.inner(x))
    np.testing.assert_allclose(factor, np.broadcast_to(factor[:, :, :1], factor.shape), rtol=2e-2, atol=2e-3)
    np.testing.assert_allclose(factor[:, :, 0].mean(0), 1, atol=0.03)
    np.testing.assert_allclose(factor[:, :, 0].std(0), np.exp(-1.2), rtol=0.06)
    correlations = np.corrcoef(factor[:, :, 0].T) - np.eye(WIDTH)
    assert np.abs(correlations).max() < 0.08


def test_two_sites_draw_different_noise(data):
    module = TwoMaps(data.train.in_channels, key=KEY)
    model = cross_regularize(module, lambda m: (m.inner, m.outer), data.train, key=KEY)
    model = eqx.tree_at(
        lambda m: (m.stages[0].module.inner.part.weight, m.stages[0].module.outer.part.weight),
        model,
        (jnp.zeros_like(module.inner.weight), jnp.eye(WIDTH)[:, :, None]),
    )
    ones = eqx.tree_at(lambda m: m.stages[0].module.inner.part.bias, model, jnp.ones((WIDTH, 1)))
    ones = eqx.tree_at(lambda m: m.stages[0].module.outer.part.bias, ones, jnp.zeros((WIDTH, 1)))
    only_inner = eqx.tree_at(lambda m: m.stages[0].module.outer, ones, ones.stages[0].module.outer.part)
    x = data.train.gather(jnp.arange(1)).x[0]
    both, inner = ones.stages[0](x, key=KEY)[:, 0], only_inner.stages[0](x, key=KEY)[:, 0]
    outer = both / inner
    assert 1e-5 < np.abs(np.asarray(inner) - 1).min() < np.abs(np.asarray(inner) - 1).max() < 0.05  # σ is e⁻⁵
    assert np.abs(np.asarray(inner - outer)).min() > 1e-5


@pytest.mark.parametrize("name", FOREIGN)
def test_it_learns_and_its_uncertainty_comes_apart(name, data, tiny):
    module, where, _ = _module(name, data)
    model = cross_regularize(module, where, data.train, key=KEY)
    done = fit(data, model, tiny.train, progress=False, steps=60, evaluate_every=30)
    assert not done.diverged
    assert done.history[-1]["reg_nll"] < done.history[0]["reg_nll"]
    mixture = compiled(done.model, data.test.gather(jnp.arange(4)).x, key=KEY, num_samples=7)
    np.testing.assert_allclose(mixture.variance, mixture.var_predictive + mixture.var_generalization, rtol=1e-4)
    # Sites of σ ≈ e⁻⁵, so that the means spread by about a hundredth; rounding alone gives 1e-8.
    assert float(mixture.std_of_means.max()) > 1e-3


def test_a_rival_has_the_same_places(data):
    module, where, _ = _module("resnet", data)
    config = ModelConfig(feature_noise="dropout", generalization_head=False)
    model = cross_regularize(module, where, data.train, config=config, key=KEY)
    assert [type(noise) for noise in noises(model)] == [Dropout, Dropout]


def _fields(*space: int) -> Trajectories:
    """Two channels, the second the first one turned by a quarter wave and made smaller: they depend on each other."""
    draw = np.random.default_rng(len(space))
    grid = np.stack(np.meshgrid(*(np.arange(n) * 2 * np.pi / n for n in space), indexing="ij"))

    def waves(count):
        wave = draw.integers(1, 3, (count, len(space)))
        angle = np.tensordot(wave, grid, axes=1)[:, None] + draw.uniform(0, 6, (count, 1, *(1,) * len(space)))
        angle = angle + 0.4 * np.arange(3).reshape(1, 3, *(1,) * len(space))
        return np.stack([np.sin(angle), 0.3 * np.cos(angle)], axis=2).astype(np.float32)

    train, test = waves(POOL_SIZE), waves(len(TEST_POOL))
    return Trajectories(train, test, {}, digest(train, test))


@pytest.mark.parametrize("space", [(8, 10), (5, 6, 4)])
@pytest.mark.parametrize("kind", ["fno", "resnet"])
def test_fields_of_two_and_three_dimensions(space, kind, tiny):
    import pdequinox as pdeqx

    data = make_data(_fields(*space), DataConfig(train_size=7, reg_size=6, test_size=4))
    dims, channels = len(space), data.train.in_channels
    if kind == "fno":
        model = fno(dims, channels, 2, width=4, num_blocks=2, num_modes=2, key=KEY)
    else:
        module = pdeqx.arch.ClassicResNet(dims, channels, WIDTH, hidden_channels=4, num_blocks=1, key=KEY)
        model = cross_regularize(module, lambda m: m.blocks, data.train, key=KEY)
    done = fit(data, model, tiny.train, progress=False, steps=40, evaluate_every=20, learning_rate=1e-2, batch_size=3)
    assert done.history[-1]["reg_nll"] < done.history[0]["reg_nll"]
    mixture = compiled(done.model, data.test.gather(jnp.arange(3)).x, key=KEY, num_samples=5)
    assert mixture.mean.shape == (3, 2, *space)


def test_what_is_never_called_is_refused(data):
    class Idle(Perceptron):
        spare: eqx.nn.Linear = None  # pyright: ignore[reportAssignmentType]

        def __init__(self, *args, key):
            super().__init__(*args, key=key)
            self.spare = eqx.nn.Linear(2, 3, key=key)

    module = Idle(data.train.in_channels, data.train.field_shape[1], key=KEY)
    with pytest.raises(ValueError, match="spare is not called"):
        cross_regularize(module, lambda m: m.spare, data.train, key=KEY)


def test_what_is_no_part_or_gives_no_array_is_refused(data):
    class Pair(eqx.Module):
        part: eqx.nn.Lambda
        rest: Callable

        def __call__(self, x):
            return self.rest(self.part(x)[0])

    module, _, _ = _module("resnet", data)
    with pytest.raises(TypeError, match="selects an object of type ArrayImpl; noise"):
        cross_regularize(module, lambda m: m.blocks[0].conv_1.weight, data.train, key=KEY)
    pair = Pair(eqx.nn.Lambda(lambda x: (x, x)), module)
    with pytest.raises(TypeError, match="part returns no array"):
        cross_regularize(pair, lambda m: m.part, data.train, key=KEY)


def test_a_part_twice_inside_of_another_or_complex_is_refused(data):
    module = TwoMaps(data.train.in_channels, key=KEY)
    outer = eqx.nn.Sequential([eqx.nn.Lambda(module)])
    with pytest.raises(ValueError, match="selects a part twice"):
        cross_regularize(module, lambda m: (m.inner, m.inner), data.train, key=KEY)
    with pytest.raises(ValueError, match="a part inside another"):
        cross_regularize(outer, lambda m: (m[0], m[0].fn.inner), data.train, key=KEY)
    complex_one = eqx.tree_at(lambda m: m.inner.weight, module, module.inner.weight + 0j)
    with pytest.raises(TypeError, match="the module has complex arrays"):
        cross_regularize(complex_one, lambda m: m.outer, data.train, key=KEY)


def test_noise_may_stand_behind_the_whole_module(data):
    module = TwoMaps(data.train.in_channels, key=KEY)
    assert list(site_sigmas(cross_regularize(module, lambda m: m, data.train, key=KEY))) == ["module"]


def test_a_module_of_other_points_is_refused(data):
    module = resnet(data.train.in_channels, None, key=KEY)
    half = eqx.nn.Sequential([eqx.nn.Lambda(lambda x: x[:, ::2]), eqx.nn.Lambda(module)])
    with pytest.raises(ValueError, match=r"returns \(6, 10\) for \(2, 20\)"):
        cross_regularize(half, lambda m: (), data.train, key=KEY)


def test_heads_start_and_are_bounded_as_the_config_says(data):
    module, where, _ = _module("resnet", data)
    x = data.train.gather(jnp.arange(2)).x

    def built(**fields):
        return cross_regularize(module, where, data.train, config=ModelConfig(**fields), key=KEY)

    own = built(log_sigma_gen_start=-3.0, head_log_sigma_min=-6.0, head_log_sigma_max=1.0)
    assert own.heads.sigma_gen is not None
    assert own.heads.sigma_pred.bounds == own.heads.sigma_gen.bounds == (-6.0, 1.0)
    np.testing.assert_allclose(jnp.log(compiled(own, x, key=KEY).vars_generalization), -6.0, atol=1e-3)
    assert built(generalization_head=False).heads.sigma_gen is None
    plain, increment = (compiled(built(predict_increment=asked), x, key=KEY) for asked in (False, True))
    np.testing.assert_allclose(increment.mean, plain.mean + x[:, : plain.mean.shape[1]], atol=1e-5)


def test_units_of_the_data_are_the_models(data):
    """Data of other units, and a module that sees the same standardised numbers."""
    module, where, _ = _module("resnet", data)
    units = Units((3.0, -40.0), (2.0, 0.5))
    pairs = dataclasses.replace(data.train, units=units)
    model = cross_regularize(module, where, pairs, key=KEY)
    plain = dataclasses.replace(model, units=None)
    x = data.train.gather(jnp.arange(3)).x
    scale, offset = (jnp.asarray(part)[:, None] for part in (units.scale, units.offset))
    inside, outside = compiled(plain, (x - offset) / scale, key=KEY), compiled(model, x, key=KEY)
    np.testing.assert_allclose(outside.mean, inside.mean * scale + offset, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(outside.variance, inside.variance * scale**2, rtol=1e-4)
