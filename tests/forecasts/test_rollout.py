"""Rollouts against closed forms, against a loop of one-step predictions, and against themselves."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.data.pairs import Batch
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.forecasts import loop as module
from crossreg.forecasts.forecast import Limits, components
from crossreg.forecasts.rollout import rollout
from crossreg.forecasts.scores import climatology_of, score_by_lead
from crossreg.nn.growth import LeadGrowth
from crossreg.nn.noise import Dropout, NoNoise, gaussian_noise
from crossreg.nn.surrogate import predict
from crossreg.predictors.conformal import Conformal
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.predictors.grown import Grown
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.predictors.temperature import Tempered
from linear_fields import LOG_SIGMA_PRED, POINTS, SIGMA, fields, flowed, linear_model

KEY = jax.random.key(5)
MODEL = linear_model()
TWO = linear_model(channels=2)


def as_batch(x: np.ndarray, mask: np.ndarray | None = None) -> Batch:
    seen = np.ones((len(x), 1, *x.shape[2:]), bool) if mask is None else mask
    weight = jnp.ones((len(x), *(1,) * (x.ndim - 1)))
    return Batch(jnp.asarray(x), jnp.asarray(x), jnp.asarray(seen), weight)


def close(a, b, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


# --- closed forms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("redraw", [False, True])
def test_the_mean_and_the_variance_of_a_linear_model_are_known(redraw):
    x0, steps, particles = fields(2), 6, 20_000
    forecast = rollout(MODEL, x0, steps, particles, key=KEY, leads=[1, 3, 6], redraw=redraw)
    for row, lead in enumerate((1, 3, 6)):
        # E(1 + σε)^n, from the moments of a Gaussian.
        nodes, weights = np.polynomial.hermite_e.hermegauss(20)
        power = 2 if redraw else 2 * lead
        first = 1.0 if redraw else np.sum(weights * (1 + SIGMA * nodes) ** lead) / weights.sum()
        second = np.sum(weights * (1 + SIGMA * nodes) ** power) / weights.sum()
        second = second**lead if redraw else second
        field = flowed(x0, lead)
        variance = (second - first**2) * field**2
        error = np.sqrt(variance / particles)
        assert np.all(np.abs(forecast.mean[row] - first * field) < 4.5 * error + 1e-6)
        np.testing.assert_allclose(forecast.std_generalization[row] ** 2, variance, rtol=0.08, atol=1e-7)
        np.testing.assert_allclose(forecast.std_predictive[row], np.exp(LOG_SIGMA_PRED), rtol=1e-5)
        np.testing.assert_allclose(forecast.std[row] ** 2, variance + np.exp(2 * LOG_SIGMA_PRED), rtol=0.08)


def test_the_points_of_a_particle_move_together():
    """One ε multiplies the whole field: at each lead, the particles' fields are multiples of the flowed one."""
    x0 = fields(1)
    particles = np.asarray(rollout(MODEL, x0, 4, 50, key=KEY).particles)
    for lead in range(1, 5):
        unit = flowed(x0, lead)[0, 0] / np.linalg.norm(flowed(x0, lead))
        found = particles[:, lead - 1, 0, 0]
        close(found, np.outer(found @ unit, unit))
    # With ε held fixed the factor of n steps is the n-th power of that of one.
    factor = particles[:, :, 0, 0] @ np.ones(POINTS) / (x0.sum() * np.ones(4))
    close(factor, factor[:, :1] ** np.arange(1, 5), 1e-4)


def test_without_noise_there_is_one_particle_and_all_others_would_be_the_same():
    x0 = fields(3)
    forecast = rollout(linear_model(0.0), x0, 5, 40)
    assert forecast.particles.shape == (1, 5, 3, 1, POINTS)
    for lead in range(1, 6):
        close(forecast.mean[lead - 1], flowed(x0, lead))
    faint = rollout(linear_model(1e-30 + np.exp(-8.9)), x0, 5, 9).particles
    assert np.ptp(np.asarray(faint), axis=0).max() < 5 * 4 * np.exp(-8.9) * np.abs(x0).max() * 2


# --- one step is the prediction --------------------------------------------------------------------------------------

LEVELS = (jnp.asarray([0.0, 0.7, 1.9]), jnp.asarray([0.0, 0.4, 1.5]), jnp.asarray(0.8))
PREDICTORS = {
    "surrogate": SurrogatePredictor(TWO, 7),
    "ensemble": EnsemblePredictor([TWO, linear_model(0.4, channels=2)], 7),
    "dropout": SurrogatePredictor(dataclasses.replace(TWO, stages=(TWO.stages[0], Dropout(0.3))), 7),
    "psi": SurrogatePredictor(linear_model(0.3, channels=2, owner="predictive"), 7),
    "units": SurrogatePredictor(dataclasses.replace(TWO, units=Units((101325.0, -3.0), (12.0, 0.5))), 7),
    "tempered": Tempered(SurrogatePredictor(TWO, 7), jnp.asarray(1.7)),
    "conformal": Conformal(SurrogatePredictor(TWO, 7), *LEVELS),
    "both": Conformal(Tempered(SurrogatePredictor(TWO, 7), jnp.asarray(1.7), "sigma"), *LEVELS),
    "function": lambda batch, keys: predict(TWO, batch.x, key=keys, num_samples=7),
}


@pytest.mark.parametrize("name", PREDICTORS)
def test_one_step_is_the_prediction(name):
    predictor = PREDICTORS[name]
    x0 = fields(3, channels=2)
    if name == "units":
        x0 = 101325 + 12 * x0
    keys = jax.random.split(KEY, 3)
    expected = predictor(as_batch(x0), keys)
    forecast = rollout(predictor, x0, 1, 7, key=KEY)
    found = forecast.at(1)
    scale = 12.0 if name == "units" else 1.0
    close(found.mean / scale, expected.mean / scale)
    for part in ("std", "std_predictive", "std_generalization", "std_of_means"):
        close(getattr(found, part) / scale, getattr(expected, part) / scale)
    close(found.quantile(0.9) / scale, expected.quantile(0.9) / scale, 1e-5)
    close(forecast.crps(x0[None])[0] / scale, expected.crps(jnp.asarray(x0)) / scale, 1e-5)


def test_the_spread_of_fields_with_an_offset_is_that_of_the_fields_without():
    x0 = fields(2)
    plain = rollout(MODEL, x0, 5, 30, key=KEY)
    moved = rollout(dataclasses.replace(MODEL, units=Units((131072.0,), (16.0,))), 131072 + 16 * x0, 5, 30, key=KEY)
    # The input itself is rounded to steps of 1/64, a thousandth of the field's scale.
    np.testing.assert_allclose(moved.std_generalization / 16, plain.std_generalization, rtol=2e-2, atol=1e-3)
    exact = (131072 + 16 * x0).astype(np.float32) - 131072
    plain = rollout(MODEL, exact / 16, 5, 30, key=KEY)
    close(moved.std_generalization / 16, plain.std_generalization)
    close(components(moved.predictive).means, components(plain.predictive).means)


# --- a rollout is a loop of predictions -------------------------------------------------------------------------------


def looped(model, x0, steps, particles, masks=None, keys=None, reads_mask=False):
    """Particle by particle, trajectory by trajectory, through the unbatched model."""
    keys = jax.random.split(KEY, len(x0)) if keys is None else keys
    out = np.zeros((particles, steps, *x0.shape))
    for row in range(len(x0)):
        for p, key in enumerate(jax.random.split(keys[row], particles)):
            x = jnp.asarray(x0[row])
            for step in range(steps):
                if masks is not None:
                    seen = masks[min(step, len(masks) - 1)][row]
                    x = jnp.where(seen, x, 0.0)
                    if reads_mask:
                        x = jnp.concatenate([x, seen.astype(x.dtype)])
                x = model(x, key=key).mean
                out[p, step, row] = x
    return out


class WithMask(eqx.Module):
    """A stage that reads one field and a mask."""

    def __call__(self, h):
        return 0.9 * h[:1] + 0.1 * h[1:]


def test_the_mask_hides_the_networks_own_predictions_too():
    x0 = fields(3)
    mask = np.random.default_rng(0).random((3, 1, POINTS)) < 0.6
    hidden = np.where(mask, x0, 0).astype(np.float32)
    close(rollout(MODEL, hidden, 4, 5, key=KEY, mask=mask).particles, looped(MODEL, x0, 4, 5, mask[None]))
    close(rollout(MODEL, as_batch(hidden, mask), 4, 5, key=KEY).particles, looped(MODEL, x0, 4, 5, mask[None]))
    one = mask[1, 0]
    same = np.broadcast_to(one, mask.shape)
    close(rollout(MODEL, x0, 3, 5, key=KEY, mask=one).particles, looped(MODEL, x0, 3, 5, same[None]))
    first_alone = np.stack([mask, np.ones_like(mask)])
    found = rollout(MODEL, hidden, 4, 5, key=KEY, mask=mask, hide_own=False)
    close(found.particles, looped(MODEL, x0, 4, 5, first_alone))


def test_each_step_may_have_a_mask_of_its_own():
    x0 = fields(2)
    masks = np.random.default_rng(1).random((3, 2, 1, POINTS)) < 0.5
    close(rollout(MODEL, x0, 3, 4, key=KEY, mask=masks).particles, looped(MODEL, x0, 3, 4, masks))


def test_a_network_that_reads_its_mask_is_given_it_at_every_step():
    model = dataclasses.replace(MODEL, stages=(WithMask(), *MODEL.stages))
    x0 = fields(2)
    mask = np.random.default_rng(2).random((2, 1, POINTS)) < 0.5
    expected = looped(model, x0, 3, 4, mask[None], reads_mask=True)
    close(rollout(model, x0, 3, 4, key=KEY, mask=mask).particles, expected)
    batch = as_batch(np.where(mask, x0, 0), mask)
    with_channel = batch._replace(x=jnp.concatenate([batch.x, jnp.asarray(mask, jnp.float32)], axis=1))
    close(rollout(model, with_channel, 3, 4, key=KEY).particles, expected)
    seen = np.ones_like(mask)
    close(rollout(model, x0, 2, 4, key=KEY).particles, looped(model, x0, 2, 4, seen[None], reads_mask=True))


@pytest.mark.parametrize("reads_mask", [False, True])
def test_a_gap_hides_its_own_channel_alone_in_every_input(reads_mask):
    """As in training on single steps, where the network sees the channels of a point that were measured."""
    x0 = fields(3, channels=2)
    measured = np.less(np.random.default_rng(4).random((3, 2, POINTS)), 0.7)
    whole = np.all(measured, axis=1, keepdims=True)
    batch = as_batch(np.where(measured, x0, 0), whole)
    model = TWO
    if reads_mask:
        model = dataclasses.replace(TWO, stages=(lambda h: 0.9 * h[:2] + 0.1 * h[2:], *TWO.stages))
        batch = batch._replace(x=jnp.concatenate([batch.x, jnp.asarray(whole, jnp.float32)], axis=1))
    expected = np.zeros((4, 3, 3, 2, POINTS))
    for row, p in np.ndindex(3, 4):
        x, key = jnp.asarray(x0[row]), jax.random.split(jax.random.split(KEY, 3)[row], 4)[p]
        for step in range(3):
            x = jnp.where(measured[row], x, 0.0)
            x = jnp.concatenate([x, jnp.asarray(whole[row], x.dtype)]) if reads_mask else x
            x = model(x, key=key).mean
            expected[p, step, row] = x
    close(rollout(model, batch, 3, 4, key=KEY).particles, expected)
    first = predict(model, batch.x, key=jax.random.split(KEY, 3), num_samples=4)
    close(rollout(model, batch, 1, 4, key=KEY).at(1).std, first.std)
    masks = np.broadcast_to(measured, (3, *measured.shape))
    close(rollout(model, x0, 3, 4, key=KEY, mask=masks).particles, expected)
    function = lambda batch, keys: predict(model, batch.x, key=keys, num_samples=4)  # noqa: E731
    close(rollout(function, batch, 3, 4, key=KEY).particles, expected)


def test_a_gap_hides_its_own_channel_alone_in_units():
    x0 = 300 + 25 * fields(2, channels=2)
    measured = np.less(np.random.default_rng(4).random((2, 2, POINTS)), 0.7)
    batch = as_batch(np.where(measured, x0, 300).astype(np.float32), np.all(measured, axis=1, keepdims=True))
    model = dataclasses.replace(TWO, units=Units((300.0, 300.0), (25.0, 5.0)))
    first = predict(model, batch.x, key=jax.random.split(KEY, 2), num_samples=4)
    found = rollout(model, batch, 3, 4, key=KEY)
    close(found.mean[0] / 25, first.mean / 25)
    standard = batch._replace(x=(batch.x - 300) / jnp.asarray([[25.0], [5.0]]))
    expected = components(rollout(TWO, standard, 3, 4, key=KEY).predictive)
    close(components(found.predictive).means, expected.means, 1e-5)


def test_each_trajectory_has_its_own_answer():
    x0, keys = fields(5), jax.random.split(KEY, 5)
    together = rollout(MODEL, x0, 3, 4, key=keys).particles
    for row in (0, 4):
        close(together[:, :, row], rollout(MODEL, x0[row : row + 1], 3, 4, key=keys[row : row + 1]).particles[:, :, 0])


def test_ten_steps_are_four_and_then_six():
    x0 = fields(3)
    forecast = rollout(MODEL, x0, 10, 2, key=KEY)
    first = rollout(MODEL, x0, 4, 2, key=KEY)
    second = rollout(MODEL, first.particles[0, -1], 6, 2, key=KEY)
    close(forecast.particles[0], jnp.concatenate([first.particles[0], second.particles[0]]))


@pytest.mark.parametrize("values", [1, 3 * POINTS, 14 * POINTS])
def test_chunks_change_nothing(values, monkeypatch):
    x0 = np.concatenate([fields(4), [fields(1)[0] * 1e4]])
    mask = np.random.default_rng(0).random((5, 1, POINTS)) < 0.6
    limits = Limits(np.asarray([-50.0]), np.asarray([50.0]))
    whole = rollout(MODEL, x0, 3, 7, key=KEY, mask=mask, limits=limits)
    monkeypatch.setattr(module, "_VALUES_PER_CALL", {"cpu": values, "accelerator": values})
    parts = rollout(MODEL, x0, 3, 7, key=KEY, mask=mask, limits=limits)
    close(parts.particles, whole.particles, 1e-5)
    np.testing.assert_array_equal(parts.lost_at, whole.lost_at)
    function = PREDICTORS["function"]
    x0 = fields(3, channels=2)
    close(rollout(function, x0, 2, 7, key=KEY).particles, rollout(TWO, x0, 2, 7, key=KEY).particles)


def test_a_field_of_whole_numbers_is_one_of_floats():
    x0 = np.round(10 * fields(2))
    np.testing.assert_array_equal(rollout(MODEL, x0.astype(int), 3, 4).mean, rollout(MODEL, x0, 3, 4).mean)


def test_only_the_leads_asked_for_are_kept():
    x0 = fields(2)
    full, few = rollout(MODEL, x0, 7, 4, key=KEY), rollout(MODEL, x0, 7, 4, key=KEY, leads=[2, 3, 7])
    assert few.leads == (2, 3, 7)
    assert few.particles.shape == (4, 3, 2, 1, POINTS)
    close(few.particles, full.particles[:, [1, 2, 6]])
    close(few.at(3).std, full.at(3).std)


def test_predictive_noise_inside_is_told_apart_from_the_instance():
    """With noise of both owners, the particles' own instances go their own way, without the noise of ψ."""
    psi, rho = (linear_model(0.3, owner=owner).stages[1] for owner in ("predictive", "generalization"))
    flow = MODEL.stages[0]
    both = dataclasses.replace(MODEL, stages=(flow, psi, flow, rho))
    forecast = rollout(both, fields(2), 3, 5, key=KEY)
    muted = dataclasses.replace(both, stages=(flow, NoNoise(), flow, rho))
    keys = jax.random.split(KEY, 2)
    instances = looped(muted, fields(2), 3, 5, keys=keys)
    close(components(forecast.predictive).instance_means, instances)
    close(forecast.particles, looped(both, fields(2), 3, 5, keys=keys))
    close(forecast.std_generalization[2] ** 2, instances[:, 2].var(axis=0), 1e-4)


@pytest.mark.parametrize("shape", [(3, 2, 6, 4), (2, 1, 4, 6, 5)])
def test_fields_of_two_and_three_dimensions(shape):
    channels, num_dims = shape[1], len(shape) - 2
    ones = (1,) * num_dims
    site = gaussian_noise("site", (channels, *ones), owner="generalization", start=-1.0)

    def shifted(h):
        return 0.8 * jnp.roll(h, 1, axis=-1)

    model = dataclasses.replace(linear_model(channels=channels), stages=(shifted, site))
    x0 = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    close(rollout(model, x0, 3, 4, key=KEY).particles, looped(model, x0, 3, 4))


def test_redrawing_gives_every_step_an_instance_of_its_own():
    x0 = fields(2)
    fixed, redrawn = (rollout(MODEL, x0, 3, 6, key=KEY, redraw=redraw).particles for redraw in (False, True))
    close(redrawn[:, 0], fixed[:, 0])  # one step is the prediction, either way
    factors = np.asarray(redrawn).sum(axis=-1)[..., 0]
    factors = factors / np.concatenate(
        [np.broadcast_to(x0.sum(axis=-1)[None, None, :, 0], (6, 1, 2)), factors[:, :-1]], 1
    )
    epsilons = ((factors - 1) / SIGMA).transpose(1, 0, 2).reshape(3, -1)
    assert np.all(np.abs(np.corrcoef(epsilons)[np.triu_indices(3, 1)]) < 0.75)
    assert np.ptp(epsilons, axis=0).min() > 1e-3


# --- particles that leave ---------------------------------------------------------------------------------------------


def test_particles_are_held_to_the_limits_and_those_far_beyond_are_lost():
    growing = dataclasses.replace(linear_model(0.0), stages=(lambda h: 5 * h,))
    x0 = np.ones((3, 1, POINTS), np.float32) * np.asarray([0.9, -1.9, 0.01], np.float32)[:, None, None]
    limits = Limits(np.asarray([-4.0]), np.asarray([2.0]))  # lost below −10 and above 8
    forecast = rollout(growing, x0, 5, limits=limits)
    # 0.9 → 4.5, 2 → 10; −1.9 → −9.5, −4 → −20; 0.01 · 5⁴ = 6.25, 2 → 10
    by_lead = np.asarray([[4.5, 10, 10, 10, 10], [-9.5, -20, -20, -20, -20], [0.05, 0.25, 1.25, 6.25, 10]]).T
    close(forecast.mean, np.broadcast_to(by_lead[:, :, None, None], forecast.mean.shape))
    np.testing.assert_array_equal(forecast.lost_at, [[2, 2, 5]])
    np.testing.assert_array_equal(forecast.lost, [0, 2, 2, 2, 3])
    close(forecast.held_share, np.asarray([2, 2, 2, 3, 3]) / 3)
    some = rollout(growing, x0, 5, limits=limits, leads=[1, 4])
    np.testing.assert_array_equal(some.lost, [0, 2])
    close(some.held_share, np.asarray([2, 3]) / 3)
    assert "2 lost" in repr(some)


def test_a_channel_of_which_nothing_is_known_is_held_to_nothing():
    fields = np.stack([np.linspace(-1, 3, 8), np.full(8, np.nan), np.full(8, -5.0), np.zeros(8)])[None]
    limits = Limits.around(fields, 0.5)
    np.testing.assert_array_equal(limits.low, [-3, -np.inf, -7.5, -0.5])
    np.testing.assert_array_equal(limits.high, [5, np.inf, -2.5, 0.5])


def test_the_share_that_is_held_is_that_of_values():
    """Two of twelve points of one of two fields are beyond the limits."""
    same = linear_model(0.0)
    same = dataclasses.replace(same, stages=(lambda h: h,))
    x0 = np.zeros((2, 1, POINTS), np.float32)
    x0[1, 0, :2] = 1.5, -1.2
    forecast = rollout(same, x0, 2, limits=Limits(*np.asarray([[-1.0], [1.0]])))
    close(forecast.held_share, np.asarray([2 / 24, 0]))
    close(forecast.mean[1, 1, 0, :3], np.asarray([1.0, -1.0, 0.0]))


def test_a_lost_particle_stays_lost_and_one_that_is_no_number_is_lost():
    back = dataclasses.replace(linear_model(0.0), stages=(lambda h: jnp.where(jnp.abs(h) > 2.9, 0.0, 4 * h),))
    limits = Limits(np.asarray([-3.0]), np.asarray([3.0]))
    forecast = rollout(back, np.full((1, 1, POINTS), 2.5, np.float32), 4, limits=limits)
    np.testing.assert_array_equal(forecast.lost, [1, 1, 1, 1])
    assert float(jnp.abs(forecast.mean[1]).max()) == 0  # it came back
    bad = dataclasses.replace(linear_model(0.0), stages=(lambda h: jnp.where(h > 3, jnp.nan, 2 * h),))
    forecast = rollout(bad, np.full((1, 1, POINTS), 1.6, np.float32), 4, limits=Limits(*np.asarray([[-99.0], [99.0]])))
    np.testing.assert_array_equal(forecast.lost_at, [[2]])


@pytest.mark.parametrize(("lost", "said"), [(2, ""), (3, "of 4 particles, 3 are far out of range or not finite")])
def test_a_forecast_of_which_most_is_lost_is_warned_of(lost, said, capsys):
    """Four fields of one particle each, some of which begin far beyond the limits and stay there."""
    x = np.ones((4, 1, POINTS), np.float32)
    x[:lost] = 9.0
    quiet = dataclasses.replace(linear_model(0.0), stages=(lambda h: 1.0 * h,))
    assert rollout(quiet, x, 1, limits=Limits(np.zeros(1), np.ones(1))).lost[-1] == lost
    printed = capsys.readouterr().err
    assert printed == (f"crossreg: warning: this is no forecast: {said}\n" if said else "")


def test_a_field_to_start_from_is_read_as_it_is():
    """Also beyond the limits: one step ahead, a forecast is the prediction."""
    doubling = dataclasses.replace(linear_model(0.0), stages=(lambda h: 2 * h,))
    x0 = np.full((1, 1, POINTS), 7.0, np.float32)
    forecast = rollout(doubling, x0, 2, limits=Limits(*np.asarray([[-1.0], [1.0]])))
    close(forecast.mean[:, 0, 0, 0], np.asarray([14.0, 2.0]))


def test_the_instance_without_predictive_noise_is_held_too():
    doubling = linear_model(0.1, owner="predictive")
    doubling = dataclasses.replace(doubling, stages=(lambda h: 2 * h, doubling.stages[1]))
    forecast = rollout(doubling, np.ones((1, 1, POINTS), np.float32), 6, 5, limits=Limits(*np.asarray([[-3.0], [3.0]])))
    instances = components(forecast.at(6)).instance_means
    assert instances is not None
    close(instances, np.full(instances.shape, 6.0))


def test_each_channel_has_limits_of_its_own_in_the_fields_units():
    model = dataclasses.replace(
        linear_model(0.0, channels=2), stages=(lambda h: 2 * h,), units=Units((10.0, 0.0), (5.0, 1.0))
    )
    x0 = np.stack([np.full(POINTS, 15.0), np.full(POINTS, 1.0)])[None].astype(np.float32)
    # 15 = 10 + 5·1 → 20 → 30, and 1 → 2 → 4; lost beyond 28 or 48, and beyond 17.5, 3.7 or 9.5
    for high, lost in (((21.0, 3.0), [0, 1]), ((21.0, 9.0), [0, 1]), ((31.0, 2.1), [0, 1]), ((31.0, 5.0), [0, 0])):
        limits = Limits(np.asarray([14.0, 0.5]), np.asarray(high))
        np.testing.assert_array_equal(rollout(model, x0, 2, limits=limits).lost, lost)


def test_the_default_range_is_that_of_each_field_and_ten_widths_more():
    x = np.zeros((2, 2, 3), np.float32)
    x[:, 0], x[1, 1, 2] = 4.0, -0.5
    limits = rollout(linear_model_of(3), x, 1).limits
    np.testing.assert_allclose(limits.low, [[4 - 40, -10], [4 - 40, -0.5 - 5]])
    np.testing.assert_allclose(limits.high, [[4 + 40, 10], [4 + 40, 5]])


def test_a_forecast_within_default_limits_does_not_depend_on_its_companions(monkeypatch):
    """A small field that grows, beside one that is 500 times as large."""
    growing = dataclasses.replace(linear_model(0.0), stages=(lambda h: 3 * h,))
    x0 = np.concatenate([0.01 * fields(1), 5 * fields(2, seed=9)])
    alone = rollout(growing, x0[:1], 6)
    assert alone.held_share[-1] > 0
    close(rollout(growing, x0, 6).mean[:, :1], alone.mean)
    monkeypatch.setattr(module, "_VALUES_PER_CALL", {"cpu": 2 * POINTS, "accelerator": 2 * POINTS})
    close(rollout(growing, x0, 6).mean[:, :1], alone.mean)
    close(rollout(growing, x0[::-1], 6).mean[:, -1:], alone.mean)


def test_limits_pass_through_what_recalibrates():
    limits = Limits(np.asarray([-3.0]), np.asarray([3.0]))
    grown = Grown(SurrogatePredictor(MODEL, 7), LeadGrowth.start(jnp.ones(1)), limits)
    tempered = Tempered(grown, jnp.asarray(1.2))
    for predictor in (grown, tempered, Conformal(grown, *LEVELS), Conformal(tempered, *LEVELS)):
        assert rollout(predictor, fields(2), 1, 5).limits is limits
    assert rollout(Tempered(SurrogatePredictor(MODEL, 7), jnp.asarray(1.2)), fields(2), 1, 5).limits is not limits


class Own:
    """A predictor of a user's, whose names mean something else."""

    limits = (0, 1)

    def rollout(self, field):
        return field

    def __call__(self, batch, keys):
        return predict(TWO, batch.x, key=keys, num_samples=4)


def test_a_predictor_with_a_rollout_of_its_own_is_followed_like_any_other():
    x0 = fields(2, channels=2)
    close(rollout(Own(), x0, 2, 4, key=KEY).particles, rollout(TWO, x0, 2, 4, key=KEY).particles)


@pytest.mark.parametrize("name", ["surrogate", "ensemble", "function", "tempered"])
def test_one_particle_of_a_model_with_spread_is_refused(name):
    with pytest.raises(InputError, match="particles is 1: one particle has no spread; expected at least 2"):
        rollout(PREDICTORS[name], fields(2, channels=2), 2, 1)
    two = EnsemblePredictor([linear_model(0.0, channels=2)] * 2, 2)
    with pytest.raises(InputError, match="one particle has no spread"):
        rollout(two, fields(2, channels=2), 2, 1)
    assert rollout(linear_model(0.0), fields(2), 2, 1).particles.shape[0] == 1
    assert rollout(EnsemblePredictor([linear_model(0.0)], 2), fields(2), 2, 1).particles.shape[0] == 1


def linear_model_of(points: int):
    return dataclasses.replace(linear_model(0.0, channels=2), stages=(lambda h: 1.0 * h,))


# --- bad input --------------------------------------------------------------------------------------------------------


def recalibrated(batch, keys):
    """A function that returns what cannot be followed: intervals without components."""
    return PREDICTORS["conformal"](batch, keys)


BAD = {
    "steps is 0": {"steps": 0},
    "particles is 0": {"particles": 0},
    "leads is 0,2: must be increasing whole numbers from 1 to the number of steps, 3": {"leads": [0, 2]},
    "leads is 2,4": {"leads": [2, 4]},
    "leads is 2,1": {"leads": [2, 1]},
    "leads is empty": {"leads": []},
    "x0 has shape (12,)": {"x0": np.zeros(POINTS, np.float32)},
    "x0 is empty": {"x0": np.zeros((0, 1, POINTS), np.float32)},
    "x0 is not finite everywhere": {"x0": np.full((1, 1, POINTS), np.nan, np.float32)},
    "the predictor does not step fields of shape (2, 12)": {"x0": fields(1, channels=2)},
    "the predictor does not step fields of shape (1, 11)": {"x0": fields(1)[..., 1:]},
    "mask has shape (5,); expected (12,), (3, 1, 12) or (3, 3, 1, 12)": {"mask": np.ones(5, bool)},
    "mask: hides every point of a field": {"mask": np.arange(3)[:, None, None] * np.ones((3, 1, POINTS), bool) > 0},
    "observed) at each step": {"mask": np.arange(3, 0, -1)[:, None, None, None] * np.ones((3, 3, 1, POINTS)) > 1},
    "mask has shape (3, 2, 12)": {"mask": np.ones((3, 2, POINTS), bool)},
    "mask: expected only 0 (hidden) and 1 (observed)": {"mask": np.full(POINTS, 0.5)},
    "mask has shape (2, 3, 1, 12)": {"mask": np.ones((2, 3, 1, POINTS), bool)},
    "particles is True: must be a whole number": {"particles": True},
    "x0 is complex": {"x0": np.zeros((3, 1, POINTS), np.complex64)},
    "key: expected a key": {"key": jax.random.PRNGKey(0)},
    "key has shape (2,)": {"key": jax.random.split(KEY, 2)},
    "limits: expected numbers of shape (1,) or (3, 1), no low end above its high end": {
        "limits": Limits(np.zeros(2), np.ones(2))
    },
    "limits: expected numbers of": {"limits": Limits(np.ones(1), np.zeros(1))},
    "limits: expected numbers": {"limits": Limits(np.full(1, np.nan), np.ones(1))},
    "which has no components to follow": {
        "predictor": recalibrated,
        "x0": fields(1, channels=2),
    },
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_in_one_line(message):
    arguments = {"predictor": MODEL, "x0": fields(3), "steps": 3, "particles": 2} | BAD[message]
    with pytest.raises(InputError) as caught:
        rollout(**arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize("asked", [{"particles": 0}, {"leads": [2, 1]}, {"leads": [1, 3], "steps": 2}])
def test_scores_by_lead_refuse_what_rollout_refuses(asked, data):
    arguments = {"leads": [1, 2], "climate": climatology_of(data.train), "particles": 2} | asked
    with pytest.raises(InputError, match=r"(particles is 0: must be at least 1|leads is)"):
        score_by_lead(MODEL, data.test, **arguments)


# --- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "of_first"), [(4, 2), (5, 3), (8, 4), (12, 6), (20, 10)])
def test_samples_are_of_all_members_alike(number, of_first):
    """One member of two triples the field at each step."""
    model = linear_model(1e-3)
    triple = eqx.tree_at(lambda m: m.heads.mean.weight, model, 3 * model.heads.mean.weight)
    ensemble = EnsemblePredictor([model, triple], 8)
    x0 = np.ones((1, 1, POINTS), np.float32)
    samples = np.asarray(
        rollout(ensemble, x0, 3, 8, limits=Limits(np.full(1, -99.0), np.full(1, 99.0))).samples(number)
    )
    assert samples.shape == (number, 3, 1, 1, POINTS)
    assert np.sum(samples[:, -1].mean((1, 2, 3)) < 5) == of_first
