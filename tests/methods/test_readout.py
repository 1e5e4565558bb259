"""Ensembles and wrappers: what leaves a prediction as it is, what calibrates it, and what none may read."""

import dataclasses
import math
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from crossreg.data.keys import calibration_key, evaluation_key
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE
from crossreg.errors import InputError
from crossreg.methods import dropout
from crossreg.methods.early import Trained
from crossreg.methods.names import parse_method
from crossreg.methods.readout import read_out
from crossreg.metrics.calibration import LEVELS, coverage
from crossreg.metrics.evaluation import evaluate, mean_nll, point_scores
from crossreg.nn.build import build_model
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture
from crossreg.predictive.recalibrated import Recalibrated
from crossreg.predictors.batches import batches_of
from crossreg.predictors.conformal import conformal_levels, fit_conformal
from crossreg.predictors.correlation import fit_correlation
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.predictors.temperature import Tempered, fit_temperature


@pytest.fixture(scope="module")
def models(data, tiny):
    # Noise that is large enough to see.
    config = tiny.replace(log_sigma_gen_start=-1.0).model
    return [build_model(config, data.train, key=jax.random.key(i)) for i in range(3)]


class Wide(eqx.Module):
    """Predicts the truth's mean with a σ that is `factor` times too large, in three equal components."""

    factor: float

    def __call__(self, batch, keys):
        def one(key, shape):
            return jax.random.normal(key, shape)

        truth_noise = jax.vmap(lambda k, y: one(k, y.shape))(keys, batch.y)
        # The truth is the mean plus noise of size 0.3; the predictor must not see it, so it is taken out again.
        mean = batch.y - 0.3 * truth_noise
        means = jnp.stack([mean] * 3)
        return Mixture(means, jnp.full_like(means, (0.3 * self.factor) ** 2), jnp.zeros_like(means))


def test_one_member_is_its_member(models, data):
    batch = data.test.gather(jnp.arange(5))
    keys = jax.random.split(jax.random.key(1), 5)
    one, alone = EnsemblePredictor(models[:1], 7)(batch, keys), SurrogatePredictor(models[0], 7)(batch, keys)
    np.testing.assert_array_equal(one.means, alone.means)
    np.testing.assert_array_equal(one.variances, alone.variances)


def test_members_are_pooled_and_draw_noise_of_their_own(models, data):
    batch = data.test.gather(jnp.arange(5))
    keys = jax.random.split(jax.random.key(1), 5)
    pooled = EnsemblePredictor(models, 7)(batch, keys)
    assert pooled.num_samples == 9  # 3 members, 3 samples each: at least 7
    np.testing.assert_allclose(pooled.variance, pooled.var_predictive + pooled.var_generalization, rtol=1e-5)
    twins = EnsemblePredictor([models[0]] * 2, 4)(batch, keys)
    assert not np.allclose(twins.means[:2], twins.means[2:])


def test_temperature_one_changes_nothing(models, data):
    key = evaluation_key(0)
    plain = SurrogatePredictor(models[0], 4)
    before = point_scores(plain, data.test, key=key)
    after = point_scores(Tempered(plain, jnp.asarray(1.0)), data.test, key=key)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_the_temperature_undoes_a_sigma_that_is_off(data, factor):
    wrapped = fit_temperature(Wide(factor), data.train)
    # 420 standard normal values: their spread is known to 3.5%.
    assert float(wrapped.temperature) == pytest.approx(1 / factor, rel=0.1)


class Spread(eqx.Module):
    """Members with one σ whose means lie about the truth as far apart as it is from them; `size` of them, at most 4."""

    sigma: float
    size: int

    def __call__(self, batch, keys):
        noise = jax.vmap(lambda key, y: 0.3 * jax.random.normal(key, (4, *y.shape)), out_axes=1)(keys, batch.y)
        means = batch.y + noise[: self.size]
        return Mixture(means, jnp.full_like(means, self.sigma**2), jnp.zeros_like(means))


@pytest.mark.parametrize("sigma", [0.0007, 2.0])
def test_of_one_gaussian_both_temperatures_are_the_rms_of_its_z_scores(data, sigma):
    batches = batches_of(data.train, key=calibration_key())
    scores = [((batch.y - Spread(sigma, 1)(batch, keys).means[0]) / sigma)[:size] for batch, keys, size in batches]
    expected = np.sqrt(np.mean(np.concatenate(scores) ** 2))
    found = fit_temperature(Spread(sigma, 1), data.train, form="sigma")
    assert float(found.temperature) == pytest.approx(expected, rel=2e-3)
    if expected < 50:  # as far as a stretch is looked for
        assert float(fit_temperature(Spread(sigma, 1), data.train).temperature) == pytest.approx(expected, rel=2e-3)


def test_members_that_are_too_sure_need_their_sigma_widened_alone(data):
    """A stretch that makes up for σ also pulls means apart that lie where they should."""
    sure = Spread(0.003, 4)
    stretched, widened = (fit_temperature(sure, data.train, form=form) for form in ("stretch", "sigma"))
    held_out = data.test
    nll = [mean_nll(p, held_out, key=evaluation_key(0)) for p in (sure, stretched, widened)]
    assert nll[2] < nll[1] - 0.1 < nll[0]
    batch, keys = held_out.gather(jnp.arange(3)), jax.random.split(jax.random.key(0), 3)
    np.testing.assert_array_equal(widened(batch, keys).means, sure(batch, keys).means)
    np.testing.assert_allclose(widened(batch, keys).variances, (float(widened.temperature) * 0.003) ** 2, rtol=1e-5)
    assert not np.allclose(stretched(batch, keys).means, sure(batch, keys).means)


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_conformal_reaches_its_levels_on_exchangeable_points(trajectories, factor):
    rng = np.random.default_rng(0)
    wave = rng.normal(size=(POOL_SIZE, 4, 2, 20)).astype(np.float32)
    data = make_data(trajectories._replace(train=wave, test=wave[120:]), _many())
    wrapped = fit_conformal(Wide(factor), data.reg)
    points = point_scores(wrapped, data.train, key=evaluation_key(0))
    # Binomial error of the calibration points and of those it is checked on.
    n, m = points.pit.size, int(data.reg.num_pairs) * 40
    covered = coverage(np.asarray(points.pit, np.float64))
    for level, share in zip(LEVELS, covered, strict=True):
        assert abs(share - level) < 4 * np.sqrt(level * (1 - level) * (1 / n + 1 / m))
    unwrapped = evaluate(Wide(factor), data.train)
    wrapped_scores = evaluate(wrapped, data.train)
    assert wrapped_scores["nll"] < unwrapped["nll"]  # pyright: ignore[reportOperatorIssue]
    assert wrapped_scores["crps"] < unwrapped["crps"]  # pyright: ignore[reportOperatorIssue]
    assert wrapped_scores["std"] == pytest.approx(0.3, rel=0.05)


def _many():
    from crossreg.config import DataConfig

    return DataConfig(train_size=60, reg_size=50, test_size=4, observed_fraction=1.0)


@pytest.mark.parametrize("n", [18, 19, 20, 37, 199, 400])
def test_split_conformal_covers_one_more_point_at_least_as_often_as_it_says(n):
    """A further exchangeable score has each of n + 1 ranks equally often: level k/20 needs ⌈(n + 1)k/20⌉ of them."""
    scores = np.sort(np.random.default_rng(n).exponential(size=n))
    knots = conformal_levels(scores).knots
    for k in range(1, 20):
        inside = int((scores <= knots[k]).sum())
        needed = math.ceil(Fraction(k * (n + 1), 20))
        if needed > n:
            assert knots[k] > scores[-1] + 9
        else:
            assert knots[k] == scores[needed - 1]
            assert inside == needed
            assert Fraction(inside, n + 1) >= Fraction(k, 20) > Fraction(inside - 1, n + 1)


def test_conformal_levels_are_the_ranks_of_split_conformal():
    scores = np.random.default_rng(1).exponential(size=199)
    knots, targets, tail = conformal_levels(scores)
    # ceil(200 · 0.9) = 180th smallest.
    assert knots[18] == pytest.approx(np.sort(scores)[179])
    assert targets[18] == pytest.approx(-np.log(0.1))
    assert tail == pytest.approx(1 / (np.sort(scores)[190:] - knots[-1]).mean())
    for few in (np.array([0.4]), np.full(50, 0.5), np.full(300, 5000.0), np.zeros(3)):
        knots, targets, tail = conformal_levels(few)
        assert (np.diff(knots.astype(np.float32)) > 0).all()
        assert np.isfinite(tail)
        assert tail > 0


@pytest.fixture(scope="module")
def mixture():
    keys = jax.random.split(jax.random.key(3), 2)
    means = jax.random.normal(keys[0], (6, 50))
    return Mixture(means, jnp.exp(jax.random.normal(keys[1], (6, 50)) - 1), jnp.zeros_like(means))


def test_levels_that_stay_leave_the_mixture(mixture):
    levels = jnp.linspace(0, 3, 7)
    same = Recalibrated(mixture, levels, levels, jnp.asarray(1.0))
    y = jnp.linspace(-3, 3, 50)
    np.testing.assert_allclose(same.cdf(y), mixture.cdf(y), atol=1e-6)
    np.testing.assert_allclose(same.log_prob(y), mixture.log_prob(y), atol=1e-4)
    np.testing.assert_allclose(same.crps(y), mixture.crps(y), rtol=5e-3)
    np.testing.assert_allclose(same.std, mixture.std, rtol=5e-3)
    np.testing.assert_allclose(same.std_predictive, mixture.std_predictive, rtol=5e-3)
    np.testing.assert_allclose(same.quantile(0.2), mixture.quantile(0.2), atol=1e-4)


def test_a_recalibrated_mixture_is_one_distribution(mixture):
    """Density, cdf and quantiles fit together, whatever the knots."""
    levels = conformal_levels(np.random.default_rng(2).gamma(2, 1, size=500))
    changed = Recalibrated(mixture, *(jnp.asarray(values, jnp.float32) for values in levels))
    for level in (0.05, 0.4, 0.8, 0.99):
        np.testing.assert_allclose(changed.cdf(changed.quantile(level)), level, atol=2e-4)
    grid = jnp.linspace(-12, 12, 6001)
    density = jnp.exp(jax.vmap(lambda x: changed.log_prob(jnp.full(50, x)))(grid))
    np.testing.assert_allclose(jnp.trapezoid(density, grid, axis=0), 1, atol=5e-3)
    away = (grid[:, None] - changed.mean) ** 2
    np.testing.assert_allclose(changed.variance, jnp.trapezoid(density * away, grid, axis=0), rtol=0.02)
    # Both parts of it are widened alike, and add up to it.
    parts = changed.std_predictive, changed.std_generalization
    np.testing.assert_allclose(np.hypot(*parts), changed.std, rtol=1e-5)
    np.testing.assert_allclose(parts[0] / parts[1], mixture.std_predictive / mixture.std_generalization, rtol=1e-5)
    assert np.isfinite(changed.log_prob(jnp.full(50, 30.0))).all()


def test_quantiles_far_out_are_exact():
    """Levels beyond the digits of a float32, and tails of a single Gaussian that a float32 cannot hold."""
    one = Mixture(jnp.zeros((1, 1)), jnp.ones((1, 1)), jnp.zeros((1, 1)))
    knots = jnp.asarray([0.0, 1.0])
    same = Recalibrated(one, knots, knots, jnp.asarray(1.0))
    for level in (1e-12, 1e-7, 0.5, 1 - 1e-7, 1 - 1e-12):
        np.testing.assert_allclose(same.quantile(level), norm.ppf(level), rtol=1e-5, atol=1e-6)
    # A Gaussian that is far too sure: its interval of level 1 − e^{-400 d} becomes that of level 1 − e^{-d}.
    widened = Recalibrated(one, 400 * knots, knots, jnp.asarray(1 / 400))
    for level in (0.01, 0.9, 0.999):
        depth = 400 * -np.log(2 * min(level, 1 - level))
        found = float(widened.quantile(level)[0])
        assert norm.logcdf(-abs(found)) + np.log(2) == pytest.approx(-depth, rel=1e-5)
        assert (found > 0) == (level > 0.5)


@pytest.mark.parametrize("units", [False, True])
def test_what_is_recalibrated_is_not_widened_or_recalibrated_again(units, data):
    """In words, whatever the distribution is made of."""
    ones = jnp.ones((1, 1))

    def predictor(batch, keys):
        mixture = Mixture(batch.y[None], jnp.ones_like(batch.y)[None], jnp.zeros_like(batch.y)[None])
        return InUnits(mixture, ones, ones) if units else mixture

    calibrated = fit_conformal(predictor, data.reg)
    for fit, said in ((fit_temperature, "temperature"), (fit_conformal, "conformal"), (fit_correlation, "correlation")):
        with pytest.raises(InputError, match=f"^{said}: the predictor gives a recalibrated distribution, which has no"):
            fit(calibrated, data.reg)


@pytest.mark.parametrize("fit", [fit_temperature, fit_conformal, fit_correlation])
def test_pairs_without_a_point_that_is_scored_are_refused(fit, data):
    unknown = jnp.full_like(data.reg.trajectories, jnp.nan)
    pairs = dataclasses.replace(data.reg, trajectories=unknown, has_gaps=True)
    with pytest.raises(InputError, match=r"^the split has no pairs with a point that is scored$"):
        fit(Wide(1.0), pairs)


def test_quadrature_follows_narrow_components():
    """Three sure members that disagree: levels that stay must give the mixture's own CRPS and std, to 1% on average."""
    keys = jax.random.split(jax.random.key(4))
    means = jax.random.normal(keys[0], (3, 400))
    pooled = Mixture(means, jnp.full_like(means, 0.05**2), jnp.zeros_like(means))
    same = -jnp.log1p(-jnp.arange(20) / 20)
    unchanged = Recalibrated(pooled, same, same, jnp.asarray(1.0))
    y = jax.random.normal(keys[1], (400,))
    np.testing.assert_allclose(unchanged.crps(y).mean(), pooled.crps(y).mean(), rtol=0.01)
    np.testing.assert_allclose(unchanged.std.mean(), pooled.std.mean(), rtol=0.01)


def test_the_lowest_nll_on_reg_decides(data, tiny):
    """Candidates that differ in log σ_pred alone: the one near the truth's spread wins, early or not."""
    built = [
        build_model(tiny.replace(log_sigma_pred_start=start).model, data.train, key=jax.random.key(0))
        for start in (-4.0, -0.3, 2.0)
    ]
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan if eqx.is_inexact_array(leaf) else leaf, built[0])

    def trained(last, best, diverged_at=-1):
        return [Trained(last, best, 0.0, diverged_at)]

    candidates = [trained(built[0], built[1], 7), trained(built[1], built[2]), trained(broken, broken, 7)]
    chosen = read_out(parse_method("dropout-reg"), candidates, data, 4)
    assert (chosen.chosen, chosen.failed) == (1, False)
    assert chosen.notes == {"dropout_rate": dropout.RATES[1]}
    assert chosen.models[0] is built[1]
    early = read_out(parse_method("dropout-reg+early"), candidates, data, 4)
    assert early.chosen == 0
    assert early.models[0] is built[1]  # where candidate 0 was best
    assert read_out(parse_method("xreg"), candidates[2:], data, 4).failed
    never = [[Trained(built[0], built[0], float("inf"), -1)]]
    assert read_out(parse_method("xreg+early"), never, data, 4).failed
    assert not read_out(parse_method("xreg"), never, data, 4).failed


@pytest.mark.parametrize("name", ["xreg+early+temperature+conformal", "persistence-masked+temperature", "ensemble"])
def test_no_wrapper_reads_test(name, models, data, trajectories, tiny):
    method = parse_method(name)
    blind = trajectories._replace(test=np.full_like(trajectories.test, np.nan))
    candidates = [[Trained(m, m, 0.0, -1) for m in models]] if method.candidates else []
    batch = data.test.gather(jnp.arange(3))
    keys = jax.random.split(jax.random.key(0), 3)

    def predicted(source):
        split = make_data(source, tiny.data, check=False).split_off_calibration(1)
        return read_out(method, candidates, split, 4).predictor(batch, keys)

    for a, b in zip(jax.tree.leaves(predicted(trajectories)), jax.tree.leaves(predicted(blind)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_kept_is_no_longer_in_reg(data):
    split = data.split_off_calibration(1)
    rows = [np.asarray(pairs.rows).tolist() for pairs in (split.reg, split.held_out)]
    assert sorted(rows[0] + rows[1]) == np.asarray(data.reg.rows).tolist()
    assert [len(r) for r in rows] == [4, 2]
    assert data.held_out is data.reg
    # Another seed keeps other trajectories.
    parts = {tuple(np.asarray(data.split_off_calibration(seed).held_out.rows).tolist()) for seed in range(8)}
    assert len(parts) > 3
