"""The objectives against closed forms, finite differences, and the head-only fixed point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from crossreg.config import DataConfig, TrainConfig
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE, REG_POOL, TEST_POOL
from crossreg.data.trajectories import Trajectories
from crossreg.fitting import fit
from crossreg.nn.heads import make_heads
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.objectives import REG_OBJECTIVES, TRAIN_OBJECTIVES, mixture_nll, train_objective
from crossreg.predictive.mixture import Mixture
from written_out import REG_LOSSES, train_loss, weighted

OBJECTIVES = [*TRAIN_OBJECTIVES.values(), *REG_OBJECTIVES.values()]


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def draw(samples=4, shape=(3, 5), seed=0):
    keys = jax.random.split(jax.random.key(seed), 4)
    mixture = Mixture(
        jax.random.normal(keys[0], (samples, *shape)),
        jnp.exp(jax.random.normal(keys[1], (samples, *shape))),
        jnp.exp(jax.random.normal(keys[2], (samples, *shape)) - 1),
    )
    return mixture, jax.random.normal(keys[3], shape)


def test_train_objective_is_the_mixture_of_p_hier():
    mixture, y = draw()
    pred, gen = np.asarray(mixture.vars_predictive), np.asarray(mixture.vars_generalization)
    p_hier = np.exp(-0.5 * (np.log(2 * np.pi * pred) + ((y - mixture.means) ** 2 + gen) / pred))
    np.testing.assert_allclose(train_objective(mixture, y), -np.log(p_hier.mean(0)).mean(), rtol=1e-12)


@pytest.mark.parametrize("samples", [4, 5])  # pairs of an even number are counted by other shifts
@pytest.mark.parametrize("name", REG_OBJECTIVES)
def test_every_objective_is_its_formula(name, samples):
    """With some points that do not count, and weights that differ between points and are shared by others."""
    mixture, y = draw(samples)
    weight = jnp.asarray([[1.0], [0.0], [0.25]])
    expected = weighted(REG_LOSSES[name](mixture.means, mixture.variances, y), weight)
    np.testing.assert_allclose(REG_OBJECTIVES[name](mixture, y, weight), expected, rtol=1e-12)
    parts = mixture.means, mixture.vars_predictive, mixture.vars_generalization
    np.testing.assert_allclose(train_objective(mixture, y, weight), weighted(train_loss(*parts, y), weight), rtol=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_batch_in_which_nothing_counts_says_nothing(objective):
    """As it may be in data with gaps: the loss is 0, and so is its gradient."""
    mixture, y = draw()
    value, gradient = jax.value_and_grad(lambda m: objective(m, y, jnp.zeros(y.shape)))(mixture)
    assert value == 0
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


def test_fair_needs_one_sample_or_four():
    for samples in (2, 3):
        with pytest.raises(ValueError, match=f"4 or more samples, not {samples}"):
            REG_OBJECTIVES["fair"](*draw(samples))


def test_without_a_gen_head_p_hier_is_the_density():
    mixture, y = draw()
    mixture = Mixture(mixture.means, mixture.vars_predictive, jnp.zeros_like(mixture.means))
    np.testing.assert_allclose(train_objective(mixture, y), mixture_nll(mixture, y), rtol=1e-12)


def test_reg_objectives_are_gaussian_densities():
    mixture, y = draw()
    sigma = np.sqrt(mixture.variances)
    mix = -np.log(norm.pdf(y, mixture.means, sigma).mean(0)).mean()
    np.testing.assert_allclose(mixture_nll(mixture, y), mix, rtol=1e-12)
    mean = np.asarray(mixture.means).mean(0)
    var = (sigma**2 + np.asarray(mixture.means) ** 2).mean(0) - mean**2
    matched = REG_OBJECTIVES["moment-matched"](mixture, y)
    np.testing.assert_allclose(matched, -norm.logpdf(y, mean, np.sqrt(var)).mean(), rtol=1e-12)


def test_crps_objectives_are_those_of_infinitely_many_samples():
    r"""Means spread as N(0, s²) and one σ: the mixture of all samples is N(0, v), v = s² + σ², whose scores are known:
    E|X − X'| = 2√(v/π) and E|X − y| = √v (2φ(z) + z(2Φ(z) − 1)), z = y/√v."""
    spread, sigma, y = 0.7, 0.5, 0.9
    means = spread * jax.random.normal(jax.random.key(0), (5, 400_000))
    mixture = Mixture(means, jnp.full_like(means, sigma**2), jnp.zeros_like(means))
    v = spread**2 + sigma**2
    z = y / np.sqrt(v)
    to_truth = np.sqrt(v) * (2 * norm.pdf(z) + z * (2 * norm.cdf(z) - 1))
    within = 2 * np.sqrt(v / np.pi)
    truth = jnp.full(means.shape[1:], y)
    assert REG_OBJECTIVES["crps"](mixture, truth) == pytest.approx(to_truth - within / 2, abs=5e-4)
    # All pairs, as the reported score has them, are of the five samples at hand.
    assert jnp.mean(mixture.crps(truth)) - (to_truth - within / 2) > 0.01
    assert jnp.mean(mixture.distance_within(distinct=True)) == pytest.approx(within, abs=1e-3)
    # A ratio of two estimates is not quite the ratio: with many samples it is.
    means = spread * jax.random.normal(jax.random.key(1), (200, 500))
    many = Mixture(means, jnp.full_like(means, sigma**2), jnp.zeros_like(means))
    scaled = to_truth / within + 0.5 * np.log(within)
    assert REG_OBJECTIVES["scaled-crps"](many, jnp.full(means.shape[1:], y)) == pytest.approx(scaled, abs=5e-3)


def test_scaled_crps_does_not_know_the_unit():
    """Another unit adds ½ log of its size, as it adds its log to a likelihood."""
    mixture, y = draw()
    in_cm = Mixture(100 * mixture.means, 1e4 * mixture.vars_predictive, 1e4 * mixture.vars_generalization)
    objective = REG_OBJECTIVES["scaled-crps"]
    np.testing.assert_allclose(objective(in_cm, 100 * y), objective(mixture, y) + 0.5 * np.log(100), rtol=1e-10)


def has_its_minimum_near_one(objective, share: float, off: float) -> bool:
    """Whether a total standard deviation of 1 scores better than 1 − off and 1 + off, where 1 is the truth.

    The model knows 1 − share of the variance; the rest is for the spread of 10 means to match.
    """
    keys = jax.random.split(jax.random.key(1))
    noise = jax.random.normal(keys[0], (10, 100_000))
    y = jax.random.normal(keys[1], (100_000,))

    def loss(std):
        spread = jnp.sqrt(std**2 - 1 + share)
        return objective(Mixture(spread * noise, jnp.full_like(noise, 1 - share), jnp.zeros_like(noise)), y)

    at_one, *beside = jax.lax.map(loss, jnp.asarray([1.0, 1 - off, 1 + off]))
    return bool(at_one < min(beside))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.95, 1.0])
def test_few_samples_do_not_bias_the_objective(share):
    assert has_its_minimum_near_one(REG_OBJECTIVES["crps"], share, 0.02)
    assert has_its_minimum_near_one(REG_OBJECTIVES["fair"], share, 0.02)
    if share in (0.2, 1.0):
        assert not has_its_minimum_near_one(REG_OBJECTIVES["moment-matched"], share, 0.05)


def test_one_sample_makes_all_likelihoods_equal():
    mixture, y = draw(samples=1)
    for name in ("fair", "moment-matched"):
        np.testing.assert_allclose(REG_OBJECTIVES[name](mixture, y), mixture_nll(mixture, y), rtol=1e-12)
    for objective in (REG_OBJECTIVES["crps"], TRAIN_OBJECTIVES["crps"]):
        np.testing.assert_allclose(objective(mixture, y), jnp.mean(mixture.crps(y)), rtol=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradients_equal_finite_differences(objective):
    mixture, y = draw()
    weight = jnp.asarray(np.random.default_rng(0).integers(0, 2, y.shape), float).at[0, 0].set(1)

    def loss(means, pred, gen):
        return objective(Mixture(means, pred, gen), y, weight)

    arguments = (mixture.means, mixture.vars_predictive, mixture.vars_generalization)
    gradients = jax.grad(loss, argnums=(0, 1, 2))(*arguments)
    direction = jax.random.normal(jax.random.key(5), y.shape)
    for i, gradient in enumerate(gradients):
        step = 1e-6
        plus, minus = ([a + s * step * direction if i == j else a for j, a in enumerate(arguments)] for s in (1, -1))
        numeric = (loss(*plus) - loss(*minus)) / (2 * step)
        if objective in TRAIN_OBJECTIVES.values() and i == 2:
            assert (gradient == 0).all()  # σ_gen is a constant on train, though the loss depends on it
            assert numeric != 0
        else:
            np.testing.assert_allclose(jnp.sum(gradient * direction), numeric, rtol=1e-6)


def test_points_of_weight_zero_do_not_count():
    mixture, y = draw()
    weight = jnp.zeros(y.shape).at[1].set(1)
    only = jax.tree.map(lambda a: a[:, 1], mixture)
    for objective in OBJECTIVES:
        np.testing.assert_allclose(objective(mixture, y, weight), objective(only, y[1]), rtol=1e-12)


def test_head_only_fixed_point():
    r"""Train: σ_pred² = r_train² + σ_gen²; reg: σ_pred² + σ_gen² = r_reg². So σ_gen² = (r_reg² − r_train²)/2."""
    rng = np.random.default_rng(0)
    r_train, r_reg, slope = 0.5, 1.1, 0.8
    x = rng.normal(size=(POOL_SIZE, 1, 1, 40))
    spread = np.where(np.isin(np.arange(POOL_SIZE), REG_POOL), r_reg, r_train).reshape(-1, 1, 1, 1)
    y = slope * x + spread * rng.normal(size=x.shape)
    pool = np.concatenate([x, y], axis=1).astype(np.float32)
    trajectories = Trajectories(pool, pool[: len(TEST_POOL)], {}, "")
    data = make_data(trajectories, DataConfig(train_size=70, reg_size=50, observed_fraction=1.0), check=False)
    with jax.enable_x64(False):
        heads = make_heads(
            1,
            1,
            generalization=True,
            log_sigma_pred_start=0.0,
            log_sigma_gen_start=-2.0,
            bounds=(-8.0, 3.0),
            key=jax.random.key(0),
        )
        settings = TrainConfig(
            steps=4000,
            batch_size=64,
            k_reg=1,
            learning_rate=1e-2,
            generalization_head_learning_rate=1e-2,
            evaluate_every=4000,
        )
        model = fit(data, Surrogate((), heads), settings, progress=False).model
        mixture = predict(model, jnp.zeros((1, 1, 1)), key=jax.random.key(0))
    # Against the residuals the drawn data really have.
    residual = pool[:, 1] - slope * pool[:, 0]
    train_var, reg_var = residual[:70].var(), residual[70:120].var()
    gen = (reg_var - train_var) / 2
    np.testing.assert_allclose(mixture.var_generalization, gen, rtol=0.05)
    np.testing.assert_allclose(mixture.var_predictive, train_var + gen, rtol=0.05)
    np.testing.assert_allclose(mixture.variance, reg_var, rtol=0.03)
