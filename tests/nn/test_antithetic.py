"""Samples in pairs with opposite noise: −ε for ε at every kind of site, and no more than that."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import crossreg as xr
from crossreg.nn.fourier import fno
from crossreg.nn.noise import (
    AbstractNoise,
    Dropout,
    EpsilonPer,
    FixedNoise,
    GaussianNoise,
    GeneralizationScale,
    NoiseChain,
    Owner,
    PredictiveScale,
    gaussian_noise,
    mirrored,
)
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.predictive.in_units import InUnits
from crossreg.predictors.ensemble import pooled

compiled: Any = eqx.filter_jit(predict)
X = jax.random.normal(jax.random.key(1), (3, 2, 12))


def gaussian(epsilon_per: EpsilonPer = "channel", owner: Owner = "generalization"):
    return lambda name, shape: gaussian_noise(name, shape, owner=owner, epsilon_per=epsilon_per, start=-1.0)


def chain(name, shape):
    return NoiseChain((gaussian()(name, shape), gaussian("element", "predictive")(name, shape)))


SITES = {
    "channel": {"feature_noise": gaussian()},
    "element": {"feature_noise": gaussian("element")},
    "fixed": {"feature_noise": lambda name, shape: FixedNoise(0.3)},
    "chain": {"feature_noise": chain},
    "modes": {"mode_noise": gaussian("element")},
    "features and modes": {"feature_noise": gaussian(), "mode_noise": gaussian("element")},
}


def model_with(**noise) -> Surrogate:
    return fno(1, 2, 2, width=4, num_blocks=3, num_modes=3, generalization_head=True, key=jax.random.key(0), **noise)


def with_opposite_noise(model: Surrogate) -> Surrogate:
    """Written out anew: σ is −σ wherever there is one."""

    def opposite(node):
        if isinstance(node, FixedNoise):
            return FixedNoise(-node.sigma)
        if not isinstance(node, GaussianNoise):
            return node
        negative = NEGATIVE[type(node.scale)](node.scale.raw, node.scale.bounds)
        return eqx.tree_at(lambda n: n.scale, node, negative)

    def is_leaf(node):
        return isinstance(node, AbstractNoise) and not isinstance(node, NoiseChain)

    return eqx.tree_at(lambda m: m.stages, model, jax.tree.map(opposite, model.stages, is_leaf=is_leaf))


class NegativePredictive(PredictiveScale):
    def sigma(self):
        return -super().sigma()


class NegativeGeneralization(GeneralizationScale):
    def sigma(self):
        return -super().sigma()


NEGATIVE = {PredictiveScale: NegativePredictive, GeneralizationScale: NegativeGeneralization}


@pytest.mark.parametrize("path", ["plain", "reverse", "kernels"])
@pytest.mark.parametrize("kind", SITES)
def test_the_second_half_of_the_samples_has_the_opposite_noise_of_the_first(kind, path):
    model, key = model_with(**SITES[kind]), jax.random.key(2)
    pairs = compiled(model, X, key=key, num_samples=6, antithetic=True, path=path)
    first, second = (compiled(m, X, key=key, num_samples=3) for m in (model, with_opposite_noise(model)))
    assert pairs.paired
    assert pairs.num_samples == 6
    for name in ("means", "vars_predictive", "vars_generalization"):
        expected = jnp.concatenate([getattr(first, name), getattr(second, name)])
        np.testing.assert_allclose(getattr(pairs, name), expected, rtol=2e-4, atol=2e-5)
    assert float(jnp.abs(first.means - second.means).min(axis=(1, 2, 3)).max()) > 0  # they differ at every point
    if kind == "chain":  # under the noise of ω alone, ψ's is left out of both halves
        np.testing.assert_allclose(pairs.instance_means[:3], first.instance_means, atol=2e-5)
        np.testing.assert_allclose(pairs.instance_means[3:], second.instance_means, atol=2e-5)


def test_two_opposite_mirror_images_are_the_noise_itself():
    model, key = model_with(feature_noise=chain), jax.random.key(3)
    twice = eqx.tree_at(lambda m: m.stages, model, mirrored(mirrored(model.stages)))
    np.testing.assert_array_equal(compiled(twice, X, key=key).means, compiled(model, X, key=key).means)


def test_of_a_linear_network_the_mean_is_that_without_noise():
    """Noise at one site and nothing but linear maps after it: what ε adds, −ε takes away."""
    width = 5
    convolution = eqx.nn.Conv1d(2, width, 3, padding="SAME", padding_mode="CIRCULAR", key=jax.random.key(4))
    site = gaussian()("hidden", (width, 1))
    heads = xr.nn.make_heads(width, 2, key=jax.random.key(5))
    model, clean = Surrogate((convolution, site), heads), Surrogate((convolution,), heads)
    pairs = predict(model, X, num_samples=2, antithetic=True)
    exact = predict(clean, X).mean
    np.testing.assert_allclose(pairs.mean, exact, atol=1e-6)
    assert float(jnp.abs(predict(model, X, num_samples=2).mean - exact).max()) > 0.05


class Uniform(AbstractNoise):
    """A site of a user, of which nobody knows a mirror image."""

    def factor(self, shape, *, key, dtype):
        return 1 + jax.random.uniform(key, shape, dtype)


@pytest.mark.parametrize(
    ("noise", "samples"),
    [(lambda *_: Dropout(0.2), 4), (lambda *_: Uniform(), 4), (gaussian(), 5), (gaussian(), 1)],
    ids=["dropout", "a user's own", "an odd number", "one"],
)
def test_where_there_are_no_pairs_samples_are_independent(noise, samples):
    model = model_with(feature_noise=noise)
    asked, plain = (compiled(model, X, num_samples=samples, antithetic=flag) for flag in (True, False))
    assert not asked.paired
    np.testing.assert_array_equal(asked.means, plain.means)


def test_a_chain_with_dropout_has_no_mirror_image():
    assert mirrored(NoiseChain((gaussian()("a", (4, 1)), Dropout(0.1)))) is None


def test_without_noise_there_is_one_sample():
    assert predict(model_with(), X, num_samples=4, antithetic=True).num_samples == 1


def test_pooled_members_are_no_longer_paired():
    """Components of two members stand one behind the other: half of them further on is no mirror image."""
    parts = [predict(model_with(feature_noise=gaussian()), X, num_samples=4, antithetic=True) for _ in range(2)]
    assert not isinstance(both := pooled(parts), InUnits)
    assert not both.paired


# A mixture of which all is known: μ = sε, ε ~ N(0, 1), and σ² the variance of each component.
S, SIGMA, TRUTH = 0.7, 0.4, 0.3
EXACT_WITHIN = 2 * np.sqrt((S**2 + SIGMA**2) / np.pi)


def drawn(pairs: int, size: int = 60_000) -> xr.Mixture:
    half = S * jax.random.normal(jax.random.key(6), (pairs, size))
    means = jnp.concatenate([half, -half])
    variances = jnp.full_like(means, SIGMA**2)
    return xr.Mixture(means, variances, jnp.zeros_like(means), paired=True)


@pytest.mark.parametrize("pairs", [2, 3])
def test_the_distance_of_independent_components_has_no_bias(pairs):
    mixture = drawn(pairs)
    found = np.asarray(mixture.distance_within(distinct=True))
    error = found.std() / np.sqrt(found.size)
    assert abs(found.mean() - EXACT_WITHIN) < 4 * error
    # Taken for independent, opposite components make it too large.
    taken = eqx.tree_at(
        lambda m: m.means, xr.Mixture(mixture.means, mixture.variances, 0 * mixture.means), mixture.means
    )
    assert np.asarray(taken.distance_within(distinct=True)).mean() - EXACT_WITHIN > 20 * error


def test_the_fair_crps_of_pairs_is_that_of_infinitely_many_samples():
    mixture, total = drawn(2), np.sqrt(S**2 + SIGMA**2)
    z = TRUTH / total
    exact = total * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    y = jnp.full(mixture.means.shape[1:], TRUTH)
    found = np.asarray(mixture.distance_to(y) - 0.5 * mixture.distance_within(distinct=True))
    assert abs(found.mean() - exact) < 4 * found.std() / np.sqrt(found.size)


def test_of_all_components_the_distance_counts_every_pair():
    mixture = drawn(2, 50)
    means, variances = np.asarray(mixture.means), np.asarray(mixture.variances)
    apart, spread = means[:, None] - means, np.sqrt(variances[:, None] + variances)
    expected = (2 * spread * norm.pdf(apart / spread) + apart * (2 * norm.cdf(apart / spread) - 1)).mean((0, 1))
    np.testing.assert_allclose(mixture.distance_within(), expected, rtol=1e-5)


def test_a_single_pair_has_no_independent_components():
    with pytest.raises(ValueError, match="opposite noise"):
        drawn(1, 5).distance_within(distinct=True)
    drawn(1, 5).distance_within()  # of the mixture itself, it is known


@pytest.mark.parametrize(
    "change", [lambda m: m.tempered(1.5), lambda m: m.scale_sigmas(2.0), lambda m: m.combined(np.eye(2), axis=0)]
)
def test_what_is_made_of_pairs_are_pairs(change):
    mixture = jax.tree.map(lambda a: a[:, :2], drawn(2, 4))
    assert change(mixture).paired
