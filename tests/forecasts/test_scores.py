"""Scores by lead against brute force in NumPy, from the components of the same forecasts, one point after the other."""

import dataclasses
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from crossreg.config import DataConfig
from crossreg.data.dataset import Data
from crossreg.data.keys import evaluation_key
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.forecasts import windows
from crossreg.forecasts.forecast import Limits, components
from crossreg.forecasts.loop import Particles
from crossreg.forecasts.rollout import rollout
from crossreg.forecasts.scores import climatology_of, score_by_lead
from crossreg.nn.noise import gaussian_noise
from crossreg.nn.surrogate import Surrogate
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.conformal import Conformal
from crossreg.predictors.predictor import SurrogatePredictor
from linear_fields import linear_model

CHANNELS, PARTICLES, STEPS, LEADS, ROWS = 2, 5, 4, [1, 2, 4], 6
SPACES = {"line": (12,), "plane": (6, 8)}  # 8 is a lag of the variogram, but no pair of two points
UNITS = Units((300.0, -4.0), (25.0, 0.5))


def shifted(h):
    return 0.9 * jnp.roll(h, 1, axis=-1)


def model_of(space, units=None) -> Surrogate:
    """Each channel is moved by one point in a step, and multiplied by noise of its own."""
    site = gaussian_noise("site", (CHANNELS, *(1,) * len(space)), owner="generalization", start=-1.2)
    return dataclasses.replace(linear_model(channels=CHANNELS), stages=(shifted, site), units=units)


def data_of(space, units=None, **how) -> Data:
    """Fields that move nearly as the model has it."""
    rng = np.random.default_rng(4)
    rows = [rng.normal(size=(POOL_SIZE, CHANNELS, *space))]
    for _ in range(STEPS + 2):
        rows.append(0.9 * np.roll(rows[-1], 1, axis=-1) + 0.3 * rng.normal(size=rows[0].shape))
    fields = np.stack(rows, axis=1)
    if units is not None:
        ones = (-1, *(1,) * len(space))
        fields = fields * np.reshape(units.scale, ones) + np.reshape(units.offset, ones)
    config = DataConfig(train_size=9, reg_size=2, test_size=ROWS, **how)
    fields = fields.astype(np.float32)
    data = make_data(Trajectories(fields, fields[-len(TEST_POOL) :], {}, ""), config, check=False)
    splits = {name: dataclasses.replace(getattr(data, name), units=units) for name in ("train", "reg", "test")}
    return dataclasses.replace(data, **splits)


# --- brute force ------------------------------------------------------------------------------------------------------


def away(d, v):
    """E|X| of X ~ N(d, v)."""
    sigma = np.sqrt(v)
    return 2 * sigma * norm.pdf(d / sigma) + d * (2 * ndtr(d / sigma) - 1)


def apart(means, variances, *, distinct: bool):
    """E|X − X'| of two components, of two different ones if they must be distinct."""
    pairs = [(s, r) for s, r in product(range(len(means)), repeat=2) if not (distinct and s == r)]
    return sum(away(means[s] - means[r], variances[s] + variances[r]) for s, r in pairs) / len(pairs)


def energy(samples, y, weight):
    def size(d):
        return np.sqrt((weight * d**2).sum() / weight.sum())

    count = len(samples)
    within = [size(samples[p] - samples[q]) for p, q in product(range(count), repeat=2) if p != q]
    return np.mean([size(sample - y) for sample in samples]) - 0.5 * np.mean(within)


def variogram(samples, y, weight):
    """Over all pairs of points that are 1, 2, 4 or 8 apart along an axis, around the edge."""
    total = count = 0.0
    for place in np.ndindex(y.shape):
        for axis, lag in product(range(1, y.ndim), (1, 2, 4, 8)):
            if lag < y.shape[axis]:
                other = (*place[:axis], (place[axis] + lag) % y.shape[axis], *place[axis + 1 :])
                both = weight[place] * weight[other]
                drawn = np.mean([abs(sample[place] - sample[other]) ** 0.5 for sample in samples])
                total += both * (drawn - abs(y[place] - y[other]) ** 0.5) ** 2
                count += both
    return total / count


def spectrum(field):
    """Power of one field (channel, *space) by the rounded length of the wavenumber."""
    space = field.shape[1:]
    power = np.zeros(min(space) // 2 + 1)
    for channel in field:
        coefficients = np.fft.fftn(channel) / channel.size
        for place in np.ndindex(space):
            wave = [k if 2 * k <= n else k - n for k, n in zip(place, space, strict=True)]
            length = round(float(np.sqrt(sum(k * k for k in wave))))
            if length < len(power):
                power[length] += abs(coefficients[place]) ** 2
    return power


def by_hand(model, data: Data, leads, seed=0) -> dict[str, Any]:
    """All scores, in float64."""
    test = data.test
    length = test.pairs_per_row
    first = np.arange(int(test.num_rows)) * length
    key = evaluation_key(seed)
    keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.asarray(first))
    masks = np.stack([np.asarray(test[first + step].mask) for step in range(STEPS)])
    forecast = rollout(model, test[first], STEPS, PARTICLES, key=keys, leads=leads, mask=masks)
    units = test.units or Units((0.0,) * CHANNELS, (1.0,) * CHANNELS)
    ones = (-1, *(1,) * (len(test.field_shape) - 1))
    offset, scale = (np.reshape(part, ones) for part in units)
    train = data.train[np.arange(int(data.train.num_pairs))]
    seen = np.broadcast_to(np.asarray(train.weight) > 0, train.y.shape)
    levels = (np.arange(200) + 0.5) / 200
    values = [np.asarray(train.y, np.float64)[:, c][seen[:, c]] for c in range(CHANNELS)]
    quantiles = np.stack([np.quantile(v, levels) for v in values])
    climate = np.reshape([v.var() for v in values], ones)
    found: dict[str, Any] = {}
    lead_keys = jax.random.split(jax.random.fold_in(key, 0), len(leads))
    for row, lead in enumerate(leads):
        mixture = components(forecast.at(lead))
        standard = np.asarray(mixture.means, np.float64)
        means, variances = offset + scale * standard, scale**2 * np.asarray(mixture.variances, np.float64)
        pairs = test[first + lead - 1]
        y, weight = (np.asarray(a, np.float64) for a in (pairs.y, jnp.broadcast_to(pairs.weight, pairs.y.shape)))
        last = np.asarray(test[first].x, np.float64)[:, :CHANNELS]

        def mean(values, weight=weight):
            return (weight * values).sum() / weight.sum()

        mean_field = means.mean(0)
        spread = means.var(0, ddof=1) * (PARTICLES + 1) / PARTICLES
        rmse = np.sqrt(mean((mean_field - y) ** 2))
        to_truth = away(y - means, variances).mean(0)
        pit = ndtr((y - means) / np.sqrt(variances)).mean(0)
        covered = [mean(np.abs(2 * pit - 1) <= level) for level in np.arange(1, 10) / 10]
        q = quantiles.reshape(CHANNELS, 1, -1)
        far = np.abs(y[..., None] - q.reshape(1, *(CHANNELS, *(1,) * (y.ndim - 2)), -1)).mean(-1)
        within = np.abs(quantiles[:, :, None] - quantiles[:, None]).mean((1, 2)).reshape(ones)
        noise = np.asarray(jax.random.normal(lead_keys[row], mixture.means.shape), np.float64)
        samples = means + np.sqrt(variances) * noise
        squares = (weight * ((mean_field - y) / scale) ** 2).reshape(len(y), -1).sum(1)
        errors = np.sqrt(squares / (weight * climate / scale**2).reshape(len(y), -1).sum(1))
        bins = np.minimum(np.floor(20 * pit), 19)
        count = len(y)
        now = {
            "rmse": rmse,
            "spread_skill": np.sqrt(mean(variances.mean(0) + spread)) / rmse,
            "crps": mean(to_truth - 0.5 * apart(means, variances, distinct=False)),
            "crps_fair": mean(to_truth - 0.5 * apart(means, variances, distinct=True)),
            "crps_climatology": mean(far - 0.5 * within),
            "crps_persistence": mean(np.abs(last - y)),
            "coverage": covered,
            "ece_mix": np.abs(np.asarray(covered) - np.arange(1, 10) / 10).mean(),
            "rank_histogram": [mean(bins == b) for b in range(20)],
            "energy_score": np.mean([energy(samples[:, i], y[i], weight[i]) for i in range(count)]),
            "variogram_score": np.mean([variogram(samples[:, i], y[i], weight[i]) for i in range(count)]),
            "spectrum_truth": np.mean([spectrum(field) for field in y - offset], axis=0),
            "spectrum_mean": np.mean([spectrum(field) for field in mean_field - offset], axis=0),
            "spectrum_samples": np.mean([spectrum(s) for s in (samples - offset).reshape(-1, *y.shape[1:])], axis=0),
            "valid_share": (errors < 0.5).mean(),
        }
        for name, value in now.items():
            found.setdefault(name, []).append(value)
    return found


CASES: dict[str, tuple] = {
    "line": ("line", None, {"observed_fraction": 1.0}),
    "units": ("line", UNITS, {"observed_fraction": 0.7, "score_on": "observed"}),
    "plane": ("plane", UNITS, {"observed_fraction": 0.8, "score_on": "observed", "mask_per": "pair"}),
}


@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_brute_force(case):
    space, units, how = CASES[case]
    space = SPACES[space]
    data, model = data_of(space, units, **how), model_of(space, units)
    found = score_by_lead(model, data.test, LEADS, steps=STEPS, climate=climatology_of(data.train), particles=PARTICLES)
    assert found["leads"] == LEADS
    assert found["forecasts"] == ROWS
    assert found["particles_in_all"] == ROWS * PARTICLES
    for name, values in by_hand(model, data, LEADS).items():
        np.testing.assert_allclose(found[name], values, rtol=2e-4, atol=1e-5, err_msg=name)


SPACE = SPACES["line"]


@pytest.fixture(scope="module")
def plain() -> tuple[Surrogate, Data]:
    return model_of(SPACE, UNITS), data_of(SPACE, UNITS, observed_fraction=0.7)


def test_scores_do_not_depend_on_how_windows_are_divided(plain, monkeypatch):
    """But for those of drawn samples, each part of which has draws of its own."""
    model, data = plain
    limits = Limits(np.asarray([275.0, -4.5]), np.asarray([325.0, -3.5]))
    how = {"steps": STEPS, "climate": climatology_of(data.train), "particles": PARTICLES, "limits": limits, "seed": 3}
    whole = score_by_lead(model, data.test, LEADS, **how)
    assert score_by_lead(model, data.test, LEADS, **how) == whole
    monkeypatch.setattr(windows, "_MOST_VALUES", 2 * 24 * len(LEADS) * PARTICLES)
    done: list[int] = []
    parts = score_by_lead(model, data.test, LEADS, progress=done.append, **how)
    assert done == [2, 2, 2]
    drawn = {"energy_score", "variogram_score", "spectrum_samples"}
    assert 0 < whole["out_of_range"] == whole["lost"][-1] < whole["particles_in_all"]
    for name in whole.keys() - drawn:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-4, atol=1e-6, err_msg=name)
    for name in drawn:
        assert parts[name] != whole[name]
        np.testing.assert_allclose(parts[name], whole[name], rtol=0.5, err_msg=name)


def test_scores_of_large_fields_are_computed_some_leads_at_a_time(plain, monkeypatch):
    """Those of drawn samples too: each lead has draws of its own."""
    model, data = plain
    limits = Limits(np.asarray([275.0, -4.5]), np.asarray([325.0, -3.5]))
    how = {"steps": STEPS, "climate": climatology_of(data.train), "particles": PARTICLES, "limits": limits}
    taken, real = [], Particles.to
    monkeypatch.setattr(Particles, "to", lambda self, leads: taken.append(leads) or real(self, leads))
    found = {}
    for at_once in (2, 3):
        monkeypatch.setattr(windows, "_MOST_VALUES", at_once * 24 * PARTICLES)
        found[at_once] = score_by_lead(model, data.test, LEADS, **how)
    assert taken == [(1, 2), (4,)] * ROWS + [(1, 2, 4)] * ROWS
    assert found[2].keys() == found[3].keys()
    for name, values in found[3].items():
        np.testing.assert_allclose(found[2][name], values, rtol=1e-5, err_msg=name)


def test_particles_lost_are_those_of_the_forecast(plain):
    model, data = plain
    first = np.arange(ROWS) * data.test.pairs_per_row
    keys = jax.vmap(lambda number: jax.random.fold_in(evaluation_key(3), number))(jnp.asarray(first))
    limits = Limits(np.asarray([275.0, -4.5]), np.asarray([325.0, -3.5]))
    forecast = rollout(model, data.test[first], STEPS, PARTICLES, key=keys, leads=LEADS, limits=limits)
    how = {"steps": STEPS, "climate": climatology_of(data.train), "particles": PARTICLES, "limits": limits, "seed": 3}
    scores = score_by_lead(model, data.test, LEADS, **how)
    assert scores["lost"] == forecast.lost.tolist()
    assert scores["out_of_range"] == forecast.lost[-1] > 0
    np.testing.assert_allclose(scores["held_share"], forecast.held_share, rtol=1e-6)
    assert 0.01 < scores["held_share"][-1] < 0.9


def with_gaps(data: Data, *places) -> Data:
    """Values of test trajectories that were not measured: row, time, channel and points of each."""
    trajectories = np.array(data.test.trajectories)
    for row, *place in places:
        trajectories[np.asarray(data.test.rows)[row], *place] = np.nan
    return dataclasses.replace(
        data, test=dataclasses.replace(data.test, trajectories=jnp.asarray(trajectories), has_gaps=True)
    )


@pytest.mark.parametrize("factor", [1e-24, 1e24])
def test_scores_are_proportional_to_the_units_however_large(factor):
    """Squares of such fields are beyond float32."""
    found = {}
    for by in (1.0, factor):
        units = Units((0.0, 0.0), (25.0 * by, 0.5 * by))
        data, model = data_of(SPACE, units, observed_fraction=1.0), model_of(SPACE, units)
        climate = climatology_of(data.train)
        found[by] = score_by_lead(model, data.test, LEADS, climate=climate, particles=PARTICLES)
    for name, values in found[1.0].items():
        power = 2 if name.startswith("spectrum") else 1
        power = power if name.startswith(("spectrum", "rmse", "crps", "energy", "variogram")) else 0
        wanted = np.asarray(values) * factor**power
        np.testing.assert_allclose(found[factor][name], wanted, rtol=1e-3, atol=1e-6 * abs(wanted).max(), err_msg=name)


@pytest.mark.parametrize("score_on", ["all", "observed"])
def test_spectra_are_those_of_the_fields_without_a_gap(score_on):
    data = data_of(SPACE, UNITS, observed_fraction=0.7, score_on=score_on)
    fields = np.asarray(data.test.trajectories, np.float64)[np.asarray(data.test.rows)] - [[300.0], [-4.0]]
    every_row = [(row, 4, row % 2, 1) for row in range(ROWS)]
    data = with_gaps(data, (1, 2, 0, 5), (4, 2, 1, slice(3, 8)), *every_row)
    climate = climatology_of(data.train)
    found = score_by_lead(model_of(SPACE, UNITS), data.test, LEADS, climate=climate, particles=PARTICLES)
    for place, rows in enumerate((range(ROWS), (0, 2, 3, 5))):
        wanted = np.mean([spectrum(fields[row, LEADS[place]]) for row in rows], axis=0)
        np.testing.assert_allclose(found["spectrum_truth"][place], wanted, rtol=1e-4)
    for name in ("spectrum_truth", "spectrum_mean", "spectrum_samples"):
        assert np.isnan(found[name][2]).all()
    assert np.isfinite(found["rmse"]).all()


@pytest.mark.parametrize("units", [None, UNITS])
def test_forecasts_of_windows_see_the_measured_channels_of_a_point(units):
    data = with_gaps(data_of(SPACE, units, observed_fraction=1.0), (1, 0, 0, slice(2, 7)), (4, 1, 1, 5))
    model = dataclasses.replace(model_of(SPACE, units), stages=model_of(SPACE).stages[:1])
    first = np.arange(ROWS) * data.test.pairs_per_row
    how = {"first": first, "particles": 1, "key": evaluation_key(0)}
    [window] = windows.forecasts_of(model, data.test, [1, 2], 2, **how)
    offset, scale = ((0.0, 0.0), (1.0, 1.0)) if units is None else units
    field = (np.asarray(data.test[first].x, np.float64) - np.reshape(offset, (-1, 1))) / np.reshape(scale, (-1, 1))
    field[1, 0, 2:7] = 0
    for lead in (1, 2):
        field = 0.9 * np.roll(field, 1, axis=-1)
        found = components(window.forecast.at(lead)).means[0]
        np.testing.assert_allclose(found, field, rtol=1e-4, atol=1e-4)
        field[4, 1, 5] = 0  # at time 1


def test_what_a_recalibrated_forecast_has_not_is_not_scored(plain):
    """Its components are those from before, whatever its intervals are: wider ones here."""
    model, data = plain
    how = {"climate": climatology_of(data.train), "particles": PARTICLES}
    knots = jnp.asarray([0.0, 1.0, 2.0])
    wide = Conformal(SurrogatePredictor(model, PARTICLES), knots, 0.3 * knots, jnp.asarray(0.3))
    found, before = (score_by_lead(of, data.test, [1, 2], **how) for of in (wide, model))
    assert (np.asarray(found["spread_skill"]) > 1.3 * np.asarray(before["spread_skill"])).all()
    np.testing.assert_allclose(found["rmse"], before["rmse"], rtol=1e-6)
    np.testing.assert_allclose(found["spectrum_mean"], before["spectrum_mean"], rtol=1e-6)
    for name in ("crps_fair", "energy_score", "variogram_score", "spectrum_samples"):
        assert np.isnan(found[name]).all(), name


def test_a_forecast_that_is_not_finite_is_in_no_interval_and_in_no_bin(plain):
    _, data = plain
    model = dataclasses.replace(model_of(SPACE, UNITS), stages=(lambda h: jnp.where(jnp.abs(h) > 2, jnp.nan, 2 * h),))
    found = score_by_lead(model, data.test, LEADS, climate=climatology_of(data.train), particles=PARTICLES)
    assert np.isnan(found["rmse"][-1])
    for name in ("ece_mix", "coverage", "rank_histogram", "crps"):
        assert np.isnan(found[name][-1]).all(), name


def test_leads_below_1_and_channels_that_were_never_measured_are_refused(plain):
    model, data = plain
    climate = climatology_of(data.train)
    with pytest.raises(InputError, match="leads is 0: must be increasing whole numbers from 1"):
        score_by_lead(model, data.test, [0], climate=climate)
    with pytest.raises(InputError, match="horizon is 0: must be at least 1"):
        windows.first_pairs(data.test, 0)
    gaps = with_gaps(data, *((row, slice(1, None), 1) for row in range(ROWS)))
    with pytest.raises(InputError, match="climatology: no value of channel 1 is scored"):
        climatology_of(gaps.test)


@pytest.mark.parametrize("particles", [2, 5, 40])
def test_spread_over_skill_is_1_where_the_truth_is_one_more_draw(particles):
    """However few the particles: without the factor (P + 1)/P two of them would have 0.82 of it."""
    spread, sigma, rows = 1.5, 0.4, 60
    rng = np.random.default_rng(0)
    fields = rng.normal(scale=np.hypot(spread, sigma), size=(POOL_SIZE, 2, 1, 101)).astype(np.float32)
    config = DataConfig(train_size=4, reg_size=1, test_size=30, observed_fraction=1.0)
    data = make_data(Trajectories(fields, fields[-30:] + 0.0, {}, ""), config, check=False)
    own = {"rows": jnp.arange(rows), "num_rows": jnp.asarray(rows), "trajectories": jnp.asarray(fields)}
    pairs = dataclasses.replace(data.test, **own)

    def forecaster(batch, keys):
        draw = jax.vmap(lambda key: jax.random.normal(key, (particles, *batch.y.shape[1:])), out_axes=1)(keys)
        return Mixture(spread * draw, jnp.full_like(draw, sigma**2), jnp.zeros_like(draw))

    scores = score_by_lead(forecaster, pairs, [1], climate=climatology_of(data.train), particles=particles)
    assert scores["spread_skill"][0] == pytest.approx(1, abs=0.03)
    assert scores["crps_fair"][0] == pytest.approx(np.hypot(spread, sigma) / np.sqrt(np.pi), rel=0.03)
    assert sum(scores["rank_histogram"][0]) == pytest.approx(1)


def test_the_score_of_the_climatology_is_the_integral_over_its_steps():
    """∫ (F(x) − 1[y ≤ x])² dx, on a fine grid, with F the share of its values up to x."""
    data = data_of(SPACE, UNITS, observed_fraction=0.6, score_on="observed")
    climate = climatology_of(data.train)
    scores = score_by_lead(model_of(SPACE, UNITS), data.test, [2], climate=climate, particles=2)
    pairs = data.test[np.arange(ROWS) * data.test.pairs_per_row + 1]
    weight = np.broadcast_to(np.asarray(pairs.weight), pairs.y.shape)
    x, total = np.linspace(-8, 8, 16_001), 0.0
    for c in range(CHANNELS):
        below = np.searchsorted(np.sort(climate.quantiles[:, c]), x, side="right") / len(climate.quantiles)
        truth = (np.asarray(pairs.y)[:, c] - UNITS.offset[c]) / UNITS.scale[c]
        each = [((below - (y <= x)) ** 2).sum() * (x[1] - x[0]) for y in truth.ravel()]
        total += UNITS.scale[c] * (weight[:, c].ravel() * each).sum()
    assert scores["crps_climatology"][0] == pytest.approx(total / weight.sum(), rel=2e-3)
    train = data.train[np.arange(int(data.train.num_pairs))]
    known = np.broadcast_to(np.asarray(train.weight) > 0, train.y.shape)
    assert not known.all()
    for c in range(CHANNELS):
        values = (np.asarray(train.y)[:, c][known[:, c]] - UNITS.offset[c]) / UNITS.scale[c]
        assert float(climate.variance[c]) == pytest.approx(values.var(), rel=1e-4)
        wanted = np.quantile(values, (np.arange(200) + 0.5) / 200)
        np.testing.assert_allclose(climate.quantiles[:, c], wanted, atol=1e-4)


def test_a_climatology_is_of_evenly_spaced_pairs():
    data = data_of(SPACE)
    some = climatology_of(data.train, 4)
    count = int(data.train.num_pairs)
    y = np.asarray(data.train[[0, count // 4, count // 2, 3 * count // 4]].y)
    np.testing.assert_allclose(some.variance, y.var(axis=(0, 2)), rtol=1e-4)


def test_a_field_of_which_nothing_was_measured_does_not_count():
    """Neither its truth nor its energy score is known."""
    data, model = data_of(SPACE, observed_fraction=1.0), model_of(SPACE)
    gaps = np.array(data.test.trajectories)
    gaps[np.asarray(data.test.rows)[2], 2] = np.nan
    test = dataclasses.replace(data.test, trajectories=jnp.asarray(gaps), has_gaps=True)
    climate = climatology_of(data.train)
    found = score_by_lead(model, test, [1, 2], climate=climate, particles=PARTICLES)
    assert np.isfinite(np.concatenate([np.ravel(values) for values in found.values()])).all()
    without = test.of([0, 1, 3, 4, 5])
    of_others = score_by_lead(model, without, [2], steps=2, climate=climate, particles=200)
    of_all = score_by_lead(model, test, [2], steps=2, climate=climate, particles=200)
    for name in ("energy_score", "variogram_score", "spectrum_truth", "valid_share"):
        np.testing.assert_allclose(of_all[name], of_others[name], rtol=0.03, err_msg=name)


@pytest.mark.parametrize("mask_per", ["run", "pair"])
def test_the_network_may_see_the_whole_of_its_own_prediction(mask_per):
    """Then the masks of later steps hide nothing."""
    data, model = data_of(SPACE, observed_fraction=0.5, mask_per=mask_per), model_of(SPACE)
    how = {"climate": climatology_of(data.train), "particles": 3}
    hidden, shown = (score_by_lead(model, data.test, [1, 3], hide_own=hide, **how)["rmse"] for hide in (True, False))
    first = np.arange(ROWS) * data.test.pairs_per_row
    keys = jax.vmap(lambda number: jax.random.fold_in(evaluation_key(0), number))(jnp.asarray(first))
    seen = np.asarray(data.test[first].mask)
    forecast = rollout(model, data.test[first], 3, 3, key=keys, mask=np.stack([seen, seen | True, seen | True]))
    error = np.asarray(forecast.mean[2] - data.test[first + 2].y)
    assert shown[1] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)
    assert hidden[0] == pytest.approx(shown[0], rel=1e-5)
    assert abs(hidden[1] / shown[1] - 1) > 0.01


@pytest.mark.parametrize(
    ("leads", "steps", "message"),
    [
        ([1, 500], 3, "leads is 1,500: must be increasing whole numbers from 1 to the number of steps, 3"),
        ([2, 1], 3, "leads is 2,1: "),
        ([0, 1], 3, "leads is 0,1: "),
        ([], None, "leads is empty: "),
        ([1, 9], None, "rollouts of 9 steps need trajectories of at least as many; these have 6"),
    ],
)
def test_bad_leads_are_one_line(plain, leads, steps, message):
    model, data = plain
    with pytest.raises(InputError) as caught:
        score_by_lead(model, data.test, leads, steps=steps, climate=climatology_of(data.train), particles=2)
    assert message in str(caught.value)
