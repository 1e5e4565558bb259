"""The mixture against scipy, scoringrules, numerical integration and its own identities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scoringrules
from scipy import integrate
from scipy.stats import norm

from crossreg.errors import InputError
from crossreg.predictive.mixture import Mixture

SHAPE = (4, 3)


@pytest.fixture(scope="module")
def mixture() -> Mixture:
    keys = jax.random.split(jax.random.key(0), 3)
    return Mixture(
        jax.random.normal(keys[0], (5, *SHAPE)),
        jnp.exp(jax.random.normal(keys[1], (5, *SHAPE))),
        jnp.exp(jax.random.normal(keys[2], (5, *SHAPE)) - 1),
    )


@pytest.fixture(scope="module")
def truth():
    return 2 * jax.random.normal(jax.random.key(9), SHAPE)


def test_density_and_cdf_are_those_of_the_components(mixture, truth):
    sigma = np.sqrt(mixture.variances)
    np.testing.assert_allclose(
        mixture.log_prob(truth), np.log(norm.pdf(truth, mixture.means, sigma).mean(0)), rtol=1e-5
    )
    np.testing.assert_allclose(mixture.cdf(truth), norm.cdf(truth, mixture.means, sigma).mean(0), rtol=1e-5)


def test_the_decomposition_adds_up_to_the_mixtures_variance(mixture):
    total = mixture.var_predictive + mixture.var_generalization
    np.testing.assert_allclose(mixture.variance, total, rtol=1e-6)
    second = (mixture.variances + mixture.means**2).mean(0) - mixture.means.mean(0) ** 2
    np.testing.assert_allclose(mixture.variance, second, rtol=1e-4)
    np.testing.assert_allclose(mixture.std**2, total, rtol=1e-5)


def test_the_two_cases_of_u_gen():
    means = jnp.asarray([[1.0, 2.0], [3.0, 2.0]])
    ones = jnp.ones((2, 2))
    internal = Mixture(means, ones, jnp.zeros((2, 2)))
    np.testing.assert_allclose(internal.var_generalization, [1.0, 0.0])
    head_only = Mixture(means[:1], ones[:1], 0.25 * ones[:1])
    np.testing.assert_allclose(head_only.var_generalization, [0.25, 0.25])
    np.testing.assert_allclose(head_only.var_predictive, [1.0, 1.0])


def test_instance_means_tell_the_two_reasons_of_the_spread_apart():
    """Of a spread of 4 in the means, instances explain 1: the rest is predictive; they never explain more than all."""
    means = jnp.asarray([[0.0, 0.0], [4.0, 4.0]])
    instances = jnp.asarray([[1.0, -5.0], [3.0, 5.0], [1.0, -5.0], [3.0, 5.0]])
    of_both = Mixture(means, jnp.full((2, 2), 0.5), jnp.full((2, 2), 0.25), instances)
    np.testing.assert_allclose(of_both.var_of_means, [1.0, 4.0])
    np.testing.assert_allclose(of_both.var_generalization, [1.25, 4.25])
    np.testing.assert_allclose(of_both.var_predictive, [3.5, 0.5])
    np.testing.assert_allclose(of_both.variance, [4.75, 4.75])
    np.testing.assert_allclose(of_both.std_generalization, np.sqrt([1.25, 4.25]), rtol=1e-6)
    np.testing.assert_allclose(of_both.std_predictive, np.sqrt([3.5, 0.5]), rtol=1e-6)


@pytest.mark.parametrize("samples", [1, 2, 5, 6])
def test_the_distance_within_is_the_double_sum(samples):
    """Of all pairs, or of different ones, which one sample has none of: it stands for itself."""
    keys = jax.random.split(jax.random.key(1), 2)
    means, variances = jax.random.normal(keys[0], (samples, 3)), jnp.exp(jax.random.normal(keys[1], (samples, 3)))
    mixture = Mixture(means, variances, jnp.zeros_like(means))
    mu, v = np.asarray(means, np.float64), np.asarray(variances, np.float64)
    sigma = np.sqrt(v[:, None] + v)
    z = (mu[:, None] - mu) / sigma
    distance = sigma * (2 * norm.pdf(z) + z * (2 * norm.cdf(z) - 1))
    np.testing.assert_allclose(mixture.distance_within(), distance.mean((0, 1)), rtol=1e-5)
    different = distance[~np.eye(samples, dtype=bool)].mean(0) if samples > 1 else distance[0, 0]
    np.testing.assert_allclose(mixture.distance_within(distinct=True), different, rtol=1e-5)


def test_sigmas_times_a_factor_leave_the_means(mixture):
    wide = mixture.scale_sigmas(3.0)
    np.testing.assert_array_equal(wide.means, mixture.means)
    np.testing.assert_allclose(wide.variances, 9 * mixture.variances, rtol=1e-6)
    np.testing.assert_allclose(wide.vars_generalization, 9 * mixture.vars_generalization, rtol=1e-6)


@pytest.mark.parametrize("level", [0.001, 0.05, 0.5, 0.9, 0.999])
def test_quantile_inverts_the_cdf(mixture, level):
    np.testing.assert_allclose(mixture.cdf(mixture.quantile(level)), level, atol=2e-6)


def test_quantile_of_one_gaussian():
    one = Mixture(jnp.asarray([[0.3]]), jnp.asarray([[4.0]]), jnp.zeros((1, 1)))
    np.testing.assert_allclose(one.quantile(0.9), 0.3 + 2 * norm.ppf(0.9), rtol=1e-5)


def test_crps_equals_scoringrules_and_its_integral(mixture, truth):
    score = mixture.crps(truth)
    means, sigma = (np.moveaxis(np.asarray(a, np.float64), 0, -1) for a in (mixture.means, np.sqrt(mixture.variances)))
    np.testing.assert_allclose(
        score, np.asarray(scoringrules.crps_mixnorm(np.asarray(truth), means, sigma, m_axis=-1)), rtol=1e-4
    )

    def integrand(z, i, j):
        return (norm.cdf(z, means[i, j], sigma[i, j]).mean() - (z >= truth[i, j])) ** 2

    i, j = 2, 1
    at = float(truth[i, j])
    halves = [integrate.quad(integrand, *ends, args=(i, j))[0] for ends in ((-40, at), (at, 40))]
    np.testing.assert_allclose(score[i, j], sum(halves), rtol=1e-4)


@pytest.mark.parametrize("distance", [-40.0, 40.0])
def test_scores_are_finite_forty_sigma_away(distance):
    mixture = Mixture(jnp.asarray([[0.0], [0.1]]), jnp.full((2, 1), 0.01**2), jnp.zeros((2, 1)))
    y = jnp.asarray([0.01 * distance])
    log_prob = mixture.log_prob(y)
    # The nearer component carries all of the density there.
    nearer = max(norm.logpdf(y[0], m, 0.01) for m in (0.0, 0.1)) - np.log(2)
    np.testing.assert_allclose(log_prob[0], nearer, rtol=1e-4)
    expected = np.asarray(
        scoringrules.crps_mixnorm(np.asarray(y, np.float64), np.asarray([[0.0, 0.1]]), np.full((1, 2), 0.01), m_axis=-1)
    )
    np.testing.assert_allclose(mixture.crps(y), expected, rtol=1e-4)
    assert mixture.cdf(y)[0] in (0.0, 1.0)
    assert np.isfinite(
        jax.grad(lambda m: -Mixture(m, mixture.vars_predictive, mixture.vars_generalization).log_prob(y).sum())(
            mixture.means
        )
    ).all()


def test_temperature_widens_about_the_mean(mixture, truth):
    for a, b in zip(jax.tree.leaves(mixture.tempered(1.0)), jax.tree.leaves(mixture), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    wide = mixture.tempered(1.7)
    np.testing.assert_allclose(wide.mean, mixture.mean, atol=1e-6)
    np.testing.assert_allclose(wide.std, 1.7 * mixture.std, rtol=1e-5)
    # y = m + a (y' − m) has the density of y' over a.
    moved = mixture.mean + 1.7 * (truth - mixture.mean)
    np.testing.assert_allclose(wide.log_prob(moved), mixture.log_prob(truth) - np.log(1.7), atol=1e-4)


def test_tails_are_exact_far_out():
    """log(2 min(F, 1 − F)) of one Gaussian, where F itself is 0 or 1 to the last bit."""
    one = Mixture(jnp.zeros((1, 5)), jnp.ones((1, 5)), jnp.zeros((1, 5)))
    y = np.array([-30.0, -6.0, 0.0, 6.0, 30.0], np.float32)
    np.testing.assert_allclose(one.log_tail(jnp.asarray(y)), np.log(2) + norm.logcdf(-np.abs(y)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("score", ["log_prob", "cdf", "log_tail", "crps", "distance_to"])
def test_a_truth_of_another_shape_is_refused(mixture, truth, score):
    """A field without its axis of channels would otherwise be compared with the fields of all others."""
    compared = getattr(mixture, score)
    assert compared(truth).shape == truth.shape
    for wrong in (truth[0], truth[None], jnp.concatenate([truth, truth]), jnp.concatenate([truth, truth], axis=-1)):
        with pytest.raises(InputError, match=r"^y has shape \(.*\); the prediction has \("):
            compared(wrong)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_factors_of_standard_deviations_are_refused(mixture, factor):
    with pytest.raises(InputError, match=r"^temperature is .*: must be positive and finite$"):
        mixture.tempered(factor)
    with pytest.raises(InputError, match=r"^factor is .*: must be positive and finite$"):
        mixture.scale_sigmas(factor)
