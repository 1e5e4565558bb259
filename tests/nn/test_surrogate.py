"""Sampling: the fold is a pure rearrangement, the prefix runs once, each sample has its own noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config.sites import site_names
from crossreg.nn.build import build_model
from crossreg.nn.fourier import fno
from crossreg.nn.heads import make_heads
from crossreg.nn.noise import NoiseChain, gaussian_noise, is_stochastic, site_sigmas
from crossreg.nn.surrogate import Surrogate, predict

# As one program; op by op, each operation would be compiled on its own.
compiled = eqx.filter_jit(predict)
alone_compiled = eqx.filter_jit(lambda model, x, key: model(x, key=key))


def noisy(name, shape):
    return gaussian_noise(name, shape, owner="generalization", epsilon_per="element", start=-1.0)


def make(dims=1, **options):
    options = {"width": 4, "num_blocks": 3, "num_modes": 3, "key": jax.random.key(0)} | options
    return fno(dims, 2, 3, **options)


@pytest.mark.parametrize("points", [(11,), (9, 10), (7, 8, 9)])
def test_the_fold_equals_one_call_per_sample_and_item(points):
    model = make(len(points), feature_noise=noisy, mode_noise=noisy, generalization_head=True)
    x = jax.random.normal(jax.random.key(1), (5, 2, *points))
    key = jax.random.key(2)
    mixture = compiled(model, x, key=key, num_samples=6)
    assert mixture.means.shape == (6, 5, 3, *points)
    keys = [jax.random.split(k, 6) for k in jax.random.split(key, 5)]
    for sample, item in ((0, 0), (2, 3), (5, 4)):
        alone = alone_compiled(model, x[item], keys[item][sample])
        np.testing.assert_allclose(mixture.means[sample, item], alone.mean, atol=2e-5)
        np.testing.assert_allclose(mixture.vars_predictive[sample, item], jnp.exp(2 * alone.log_sigma_pred), rtol=1e-4)
        assert alone.log_sigma_gen is not None
        np.testing.assert_allclose(
            mixture.vars_generalization[sample, item], jnp.exp(2 * alone.log_sigma_gen), rtol=1e-4
        )


def test_samples_and_items_have_noise_of_their_own():
    model = make(feature_noise=noisy)
    x = jnp.ones((4, 2, 11))
    means = compiled(model, x, key=jax.random.key(0), num_samples=3).means.reshape(12, -1)
    assert len(np.unique(np.asarray(means[:, 0]))) == 12


def test_without_a_key_the_noise_is_that_of_key_0():
    model, x = make(feature_noise=noisy), jnp.ones((4, 2, 11))
    means = compiled(model, x, num_samples=3).means
    np.testing.assert_array_equal(means, compiled(model, x, key=jax.random.key(0), num_samples=3).means)
    assert (means != compiled(model, x, key=jax.random.key(1), num_samples=3).means).any()


def test_without_noise_one_sample_is_the_mixture():
    model = make()
    assert not model.is_stochastic
    assert predict(model, jnp.ones((4, 2, 11)), key=jax.random.key(0), num_samples=10).num_samples == 1


def test_what_precedes_the_first_site_runs_once_per_item():
    def marked(h):
        return jnp.sinh(h)  # a primitive that nothing else here uses

    model = make(feature_noise=noisy)
    position = next(i for i, stage in enumerate(model.stages) if is_stochastic(stage))

    def sizes(stages):
        marked_model = Surrogate(stages, model.heads)
        jaxpr = jax.make_jaxpr(lambda x: predict(marked_model, x, key=jax.random.key(0), num_samples=10).means)(
            jnp.ones((5, 2, 11))
        )
        return [eqn.outvars[0].aval.size for eqn in jaxpr.eqns if eqn.primitive.name == "sinh"]

    before = (*model.stages[:position], marked, *model.stages[position:])
    after = (*model.stages[: position + 1], marked, *model.stages[position + 1 :])
    assert sizes(before) == [5 * 4 * 11]
    assert sizes(after) == [10 * 5 * 4 * 11]


def test_an_increment_adds_the_input_and_not_its_mask():
    plain, increment = (
        fno(1, 3, 2, width=4, num_modes=3, predict_increment=flag, key=jax.random.key(0)) for flag in (False, True)
    )
    x = jax.random.normal(jax.random.key(1), (5, 3, 12))
    key = jax.random.key(0)
    difference = compiled(increment, x, key=key).mean - compiled(plain, x, key=key).mean
    np.testing.assert_allclose(difference, x[:, :2], atol=1e-6)
    np.testing.assert_allclose(increment(x[0], key=key).mean, compiled(increment, x, key=key).mean[0], atol=1e-5)


def test_sites_stand_on_different_tensors_with_names():
    model = make(feature_noise=noisy, num_blocks=4)
    assert tuple(site_sigmas(model)) == site_names(4) == ("block1", "block2", "block3", "block4_pre", "pre_head")
    tail = [type(s).__name__ if isinstance(s, eqx.Module) else "gelu" for s in model.stages[-4:]]
    assert tail == ["SpectralBlock", "GaussianNoise", "gelu", "GaussianNoise"]


def test_heads_start_constant_where_they_are_told():
    heads = make_heads(
        4,
        3,
        generalization=True,
        log_sigma_pred_start=-1.5,
        log_sigma_gen_start=-5.0,
        bounds=(-12.0, 3.0),
        key=jax.random.key(0),
    )
    moments = heads(jax.random.normal(jax.random.key(1), (4, 6)))
    np.testing.assert_allclose(moments.log_sigma_pred, -1.5, atol=1e-5)
    assert moments.log_sigma_gen is not None
    np.testing.assert_allclose(moments.log_sigma_gen, -5, atol=1e-5)


def test_a_users_own_network_becomes_a_surrogate():
    width = 6
    keys = jax.random.split(jax.random.key(0), 3)
    model = Surrogate(
        (
            eqx.nn.Conv1d(1, width, 3, padding="SAME", key=keys[0]),
            jax.nn.tanh,
            gaussian_noise("hidden", (width, 1), owner="generalization", start=-1.0),
        ),
        make_heads(
            width,
            1,
            generalization=False,
            log_sigma_pred_start=-1.0,
            log_sigma_gen_start=-5.0,
            bounds=(-8.0, 3.0),
            key=keys[1],
        ),
    )
    mixture = predict(model, jnp.ones((3, 1, 10)), key=keys[2], num_samples=4)
    assert mixture.means.shape == (4, 3, 1, 10)
    assert (mixture.std_of_means > 1e-3).all()  # rounding would give 1e-8


def test_an_input_with_a_key_of_its_own_does_not_depend_on_the_batch():
    model = make(feature_noise=noisy)
    x = jax.random.normal(jax.random.key(1), (5, 2, 11))
    keys = jax.random.split(jax.random.key(2), 5)
    whole = compiled(model, x, key=keys, num_samples=3)
    part = compiled(model, x[2:4], key=keys[2:4], num_samples=3)
    np.testing.assert_allclose(part.means, whole.means[:, 2:4], atol=1e-6)


@pytest.mark.parametrize(("owners", "gen", "pred"), [("predictive", False, True), ("generalization", True, False)])
def test_internal_noise_is_credited_to_its_owner(owners, gen, pred):
    def noise(name, shape):
        return gaussian_noise(name, shape, owner=owners, start=-1.0)

    model = make(feature_noise=noise)
    mixture = compiled(model, jnp.ones((4, 2, 11)), key=jax.random.key(0), num_samples=8)
    head = jnp.mean(mixture.vars_predictive, axis=0)
    # Noise of σ = e⁻¹ at every site; rounding alone is below 1e-6.
    assert (mixture.var_generalization.max() > 0.01) == gen
    assert (mixture.var_generalization.max() > 1e-6) == gen
    assert ((mixture.var_predictive - head).max() > 0.01) == pred
    assert ((mixture.var_predictive - head).max() > 1e-6) == pred
    np.testing.assert_allclose(mixture.variance, mixture.var_predictive + mixture.var_generalization, rtol=1e-5)


def test_two_owners_in_one_place_share_the_spread():
    def noise(name, shape):
        return NoiseChain(
            tuple(gaussian_noise(name, shape, owner=o, start=-3.0) for o in ("predictive", "generalization"))
        )

    model = make(feature_noise=noise)
    mixture = compiled(model, jnp.ones((4, 2, 11)), key=jax.random.key(0), num_samples=1000)
    share = jnp.mean(mixture.var_of_means) / jnp.mean(jnp.var(mixture.means, axis=0))
    # Two equal noises: each has half of the spread to first order.
    assert 0.42 < share < 0.58
    np.testing.assert_allclose(mixture.variance, mixture.var_predictive + mixture.var_generalization, rtol=1e-4)


def test_a_prediction_can_be_differentiated_in_any_way(data, tiny):
    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    x = data.train.gather(jnp.arange(3)).x

    def total(x):
        return jnp.sum(predict(model, x, key=jax.random.key(1), num_samples=2).mean ** 2)

    along = jax.random.normal(jax.random.key(2), x.shape)
    _, forward = jax.jit(lambda x: jax.jvp(total, (x,), (along,)))(x)
    assert float(forward) == pytest.approx(float(jnp.sum(jax.jit(jax.grad(total))(x) * along)), rel=1e-4)


def test_noise_that_varies_in_space_is_that_of_every_sample(data, tiny):
    """One ε for a channel, but a σ for every point."""
    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    x = data.train.gather(jnp.arange(3)).x
    width, points = tiny.model.width, x.shape[-1]
    site = gaussian_noise("place", (width, points), owner="generalization", sigma_per="mode", start=-1.0)
    raw = site.scale.raw + jnp.linspace(0, 1, points)
    site = eqx.tree_at(lambda s: s.scale.raw, site, raw)
    model = eqx.tree_at(lambda m: m.stages, model, (*model.stages, site))
    keys = jax.random.split(jax.random.key(1), 3)
    many = compiled(model, x, key=keys, num_samples=2)
    one = alone_compiled(model, x[1], jax.random.split(keys[1], 2)[1])
    np.testing.assert_allclose(many.means[1, 1], one.mean, rtol=1e-4, atol=1e-5)
