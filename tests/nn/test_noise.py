"""Noise sites: moments, who shares a draw, bounds and starts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.nn.bounds import bound, bound_in_reverse, unbound
from crossreg.nn.noise import Dropout, NoiseChain, NoNoise, gaussian_noise, is_stochastic, noises, site_sigmas

SHAPE = (3, 4, 5)


def factors(noise, count=40_000):
    keys = jax.random.split(jax.random.key(0), count)
    draw = jax.vmap(lambda key: jnp.broadcast_to(noise.factor(SHAPE, key=key, dtype=jnp.float32), SHAPE))
    return np.asarray(draw(keys))


@pytest.mark.parametrize("owner", ["predictive", "generalization"])
@pytest.mark.parametrize("sigma_per", ["layer", "channel", "mode"])
def test_factor_has_mean_one_and_the_sites_sigma(owner, sigma_per):
    noise = gaussian_noise("site", SHAPE, owner=owner, sigma_per=sigma_per, epsilon_per="element", start=-0.7)
    shape = {"layer": (1, 1, 1), "channel": (3, 1, 1), "mode": (1, 4, 5)}[sigma_per]
    assert noise.scale.raw.shape == shape
    drawn = factors(noise)
    np.testing.assert_allclose(drawn.mean(0), 1, atol=0.02)
    np.testing.assert_allclose(drawn.std(0), np.exp(-0.7), rtol=0.03)


def test_a_channel_draw_is_shared_over_space_and_no_further():
    drawn = factors(gaussian_noise("site", SHAPE, owner="generalization", epsilon_per="channel", start=-0.7), 500)
    assert (drawn == drawn[:, :, :1, :1]).all()
    correlation = np.corrcoef(drawn[:, :, 0, 0].T)
    assert np.abs(correlation - np.eye(3)).max() < 0.15


def test_element_draws_are_independent():
    drawn = factors(gaussian_noise("site", SHAPE, owner="generalization", epsilon_per="element", start=-0.7), 2000)
    correlation = np.corrcoef(drawn.reshape(2000, -1).T)
    assert np.abs(correlation - np.eye(60)).max() < 0.15


def test_two_owners_in_one_place_multiply():
    chain = NoiseChain(
        (
            gaussian_noise("a", SHAPE, owner="predictive", epsilon_per="element", start=-1.0),
            gaussian_noise("b", SHAPE, owner="generalization", epsilon_per="element", start=-0.5),
        )
    )
    expected = (1 + np.exp(-2.0)) * (1 + np.exp(-1.0)) - 1
    np.testing.assert_allclose(factors(chain).var(0), expected, rtol=0.05)
    assert [n.name for n in noises({"here": chain})] == ["a", "b"]  # pyright: ignore[reportAttributeAccessIssue]


def test_dropout_keeps_the_mean():
    drawn = factors(Dropout(0.25))
    values = np.unique(drawn)
    np.testing.assert_allclose(values, [0, 1 / 0.75])
    np.testing.assert_allclose(drawn.mean(0), 1, atol=0.02)


def test_no_noise_is_the_identity():
    h = jax.random.normal(jax.random.key(0), SHAPE)
    assert (NoNoise()(h, key=jax.random.key(1)) == h).all()
    assert not is_stochastic((NoNoise(), eqx.nn.Identity()))
    assert is_stochastic([NoNoise(), Dropout(0.1)])


def test_the_bound_is_smooth_monotone_and_kept():
    raw = jnp.linspace(-200, 200, 2001)
    value = bound(raw, (-8.0, 3.0))
    assert value.min() >= -8
    assert value.max() <= 3
    assert (jnp.diff(value) >= -2e-5).all()
    inside = jnp.linspace(-5, 0, 11)
    np.testing.assert_allclose(bound(inside, (-8.0, 3.0)), inside, atol=0.06)


def test_beyond_a_bound_only_the_way_back_is_open():
    bounds = (-8.0, 3.0)

    def slope(b, raw, sign):  # descent on sign · b(raw) makes b smaller for 1, larger for −1
        return sign * jax.vmap(jax.grad(lambda r: sign * b(r, bounds)))(raw)

    inside, above, below = jnp.linspace(-7.9, 2.9, 41), jnp.array([3.1, 9.0, 60.0]), jnp.array([-8.1, -20.0, -90.0])
    for raw, inward in ((inside, 0), (above, 1), (below, -1)):
        np.testing.assert_array_equal(bound_in_reverse(raw, bounds), bound(raw, bounds))
        for sign in (1.0, -1.0):
            expected = 0.5 if sign == inward else slope(bound, raw, sign)
            np.testing.assert_allclose(slope(bound_in_reverse, raw, sign), expected, rtol=1e-4, atol=1e-6)


def test_far_bounds_do_not_overflow():
    np.testing.assert_allclose(unbound(-5.0, (-200.0, 300.0)), -5.0)


@pytest.mark.parametrize("start", [-7.5, -5.0, -1.0, 2.5])
def test_a_scale_starts_where_it_is_told(start):
    noise = gaussian_noise("site", SHAPE, owner="generalization", start=start)
    np.testing.assert_allclose(noise.scale.log_sigma(), start, atol=1e-5)
    np.testing.assert_allclose(site_sigmas([noise])["site"], np.exp(start), rtol=1e-4)
    np.testing.assert_allclose(bound(unbound(start, (-9.0, 4.0)), (-9.0, 4.0)), start, atol=1e-5)
