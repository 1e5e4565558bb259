"""ρ learns from rollouts: its gradient, written out as a loop over leads; when it moves; and what stays as it is."""

import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from crossreg.config import Config, DataConfig, TrainConfig
from crossreg.data.dataset import Data
from crossreg.data.keys import REG_STREAM, TRAIN_STREAM
from crossreg.data.load import make_data
from crossreg.data.observation import draw_mask
from crossreg.data.pairs import replica_axes, stack_pairs
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.fitting import fit
from crossreg.nn.build import build_model
from crossreg.nn.growth import LeadGrowth
from crossreg.nn.noise import AbstractNoiseScale
from crossreg.routing import Routed, merge, route
from crossreg.training import compiled
from crossreg.training.cohort import start_cohort
from crossreg.training.compiled import Settings
from crossreg.training.loop import train_replicas
from crossreg.training.packed import Packed
from crossreg.training.parallel import WHOLE
from crossreg.training.replicas import make_task, stack_tasks, unstack
from crossreg.training.step import TrainState, init_state, reg_step, train_step
from travelling_waves import waves
from written_out import REG_LOSSES, crps_loss, train_loss, weighted

POINTS, CHANNELS, STEPS_OF_A_ROW = 10, 2, 6
BASE: dict[str, Any] = {
    "train_size": 7,
    "reg_size": 5,
    "test_size": 3,
    "observed_fraction": 0.6,
    "width": 3,
    "num_blocks": 1,
    "num_modes": 3,
    "lead_growth": True,
    "steps": 24,
    "settle": 0.5,
    "evaluate_every": 12,
    "k_reg": 4,
    "reg_horizon": 3,
    "batch_size": 5,
    "num_samples": 3,
    "train_samples": None,
    "rollout_particles": 4,
    "evaluation_samples": 2,
}


def config_of(**fields: Any) -> Config:
    return Config().replace(**BASE | fields)


@pytest.fixture(scope="module")
def pool() -> Trajectories:
    fields = waves(POOL_SIZE, STEPS_OF_A_ROW, 0, POINTS, CHANNELS), waves(len(TEST_POOL), 4, 1, POINTS, CHANNELS)
    return Trajectories(*fields, {}, "made up")


@pytest.fixture(scope="module")
def data(pool) -> Data:
    return make_data(pool, config_of().data)


def run(configs, data, **how):
    return list(train_replicas(*start_cohort(configs, data), **how))


def leaves(tree) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def assert_equal(a, b) -> None:
    for one, other in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(one, other)


# --- the gradient -----------------------------------------------------------------------------------------------------


def lively(model, key):
    """A model all of whose ρ matters: noise that is felt, heads that read their features, and growth.

    No log σ is beyond its bounds, where the gradient is not that of the loss but leads back inside.
    """
    louder = lambda node: isinstance(node, AbstractNoiseScale)  # noqa: E731
    model = jax.tree.map(
        lambda node: eqx.tree_at(lambda s: s.raw, node, node.raw + 3) if louder(node) else node, model, is_leaf=louder
    )
    for place, part in zip(
        (lambda m: m.heads.sigma_pred.linear.weight, lambda m: m.heads.sigma_gen.linear.weight),
        jax.random.split(key),
        strict=True,
    ):
        model = eqx.tree_at(place, model, 0.1 * jax.random.normal(part, place(model).shape))
    if model.growth is not None:
        growth = LeadGrowth(jnp.asarray([0.1, 0.4]), jnp.asarray([-0.2, 0.3]), jnp.asarray([0.4, 0.7]))
        model = dataclasses.replace(model, growth=growth)
    return model


def wide(tree):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, float) if eqx.is_inexact_array(leaf) else leaf, tree)


def grown(growth: LeadGrowth, lead: int, means, pred, gen):
    """The formulas of growth in plain arithmetic, on (sample, batch, channel, point)."""
    late = 2 - 2 / np.sqrt(lead)
    s, c = (jnp.exp(start + rise * late) for start, rise in (growth.sigma_pred, growth.spread))
    climate = jnp.asarray(growth.climate)[:, None]

    def towards(v, q):
        return jnp.where(q > 1, q * v / (1 + (q - 1) * jnp.minimum(v / climate, 1)), q * v)

    pred = towards(pred, s**2)
    mean = means.mean(0)
    v = (pred + gen).mean(0) + ((means - mean) ** 2).mean(0)
    factor = towards(v, c**2) / v
    return mean + jnp.sqrt(factor) * (means - mean), factor * pred, factor * gen


def written_out_loss(model, reg, key, step: int, loss, *, stream: int, horizon: int):
    """The objective of a rollout update: draws, masks, steps and scores, one lead after the other.

    `loss` is one at every point, of the means, σ_pred² and σ_gen² of the particles, and the truth.
    """
    size, particles = BASE["batch_size"] // 2, BASE["rollout_particles" if stream == REG_STREAM else "num_samples"]
    key = jax.random.fold_in(jax.random.fold_in(key, stream), step)
    batch_key, noise_key = jax.random.split(key)
    index_key, mask_key = jax.random.split(batch_key)
    starts = STEPS_OF_A_ROW - horizon + 1
    number = jax.random.randint(index_key, (size,), 0, reg.rows.shape[0] * starts)
    row, time = number // starts, number % starts
    keys = jax.vmap(lambda k: jax.random.split(k, particles))(jax.random.split(noise_key, size))
    mask_keys = jax.random.split(mask_key, (horizon, size))
    field = jnp.nan_to_num(reg.trajectories[reg.rows[row], time])
    particle_fields = jnp.broadcast_to(field, (particles, *field.shape))
    units = Units((0.0,) * CHANNELS, (1.0,) * CHANNELS) if reg.units is None else reg.units
    offset, scale = (jnp.asarray(part)[:, None] for part in units)
    losses = []
    for lead in range(1, horizon + 1):
        pair = row * STEPS_OF_A_ROW + time + lead - 1
        if reg.mask_per == "step":
            masks = [draw_mask(k, (POINTS,), reg.observed_fraction) for k in mask_keys[lead - 1]]
            seen = jnp.stack(masks)[:, None]
        else:
            seen = reg.masks[{"run": 0 * pair, "trajectory": row, "pair": pair}[reg.mask_per]][:, None]
        measured = jnp.isfinite(reg.trajectories[reg.rows[row], time + lead - 1])
        x = jnp.where(seen & measured, particle_fields, offset)
        seen = seen & measured.all(axis=1, keepdims=True)
        if reg.mask_channel:
            x = jnp.concatenate([x, jnp.broadcast_to(seen, (particles, *seen.shape)).astype(x.dtype)], axis=2)
        moments = jax.vmap(jax.vmap(lambda u, k: model(u, key=k)))(x, keys.T)
        particle_fields = moments.mean
        means = (moments.mean - offset) / scale
        pred = jnp.exp(2 * moments.log_sigma_pred) / scale**2
        gen = jnp.exp(2 * moments.log_sigma_gen) / scale**2
        if model.growth is not None:
            means, pred, gen = grown(model.growth, lead, means, pred, gen)
        y = (reg.trajectories[reg.rows[row], time + lead] - offset) / scale
        weight = (seen if reg.score_on == "observed" else jnp.ones_like(seen)) * jnp.isfinite(y)
        losses.append(weighted(loss(means, pred, gen, jnp.nan_to_num(y)), weight))
    return sum(losses) / horizon


# Pairs that batches of nine were drawn from before there were windows.
EARLIER = [2, 23, 11, 16, 2, 3, 11, 20, 1]


GRADIENTS: dict[str, dict[str, Any]] = {
    "run": {"reg_objective": "crps"},
    "units": {"mask_per": "step", "mask_channel": True, "score_on": "observed", "reg_objective": "scaled-crps"},
    "gaps": {"mask_channel": True, "reg_objective": "crps"},
    "pair": {"mask_per": "pair", "lead_growth": False, "reg_objective": "mixture", "reg_horizon": 5},
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_rho_gets_the_gradient_of_the_mean_over_leads(name, pool):
    """Against central differences in float64 of a loss that is written out, at the first update from rollouts."""
    config = config_of(steps=20, settle=0.25, clip=1.0, **GRADIENTS[name])
    data = make_data(pool, config.data)
    if name == "units":
        units = Units((30.0, -4.0), (5.0, 0.5))
        moved = data.reg.trajectories * np.asarray(units.scale)[:, None] + np.asarray(units.offset)[:, None]
        reg = dataclasses.replace(data.reg, units=units, trajectories=jnp.asarray(moved, jnp.float32))
        data = dataclasses.replace(data, reg=reg, train=dataclasses.replace(reg))
    if name == "gaps":
        there = np.random.default_rng(5).random(data.reg.trajectories.shape) < 0.8
        gappy = jnp.where(there, data.reg.trajectories, jnp.nan)
        data = dataclasses.replace(data, reg=dataclasses.replace(data.reg, trajectories=gappy, has_gaps=True))
    step = 16
    with jax.enable_x64(True):
        task = wide(make_task(data, seed=3))
        model = wide(lively(build_model(config.model, data.reg, key=jax.random.key(1)), jax.random.key(2)))
        parts = route(model)
        state = init_state(model)
        # Adam has moments of single steps, which say nothing about rollouts.
        adam: Any = state.reg_optimizer
        used = adam._replace(count=adam.count + 9, mu=state.rho.vector + 2, nu=jnp.ones_like(state.rho.vector))
        state = dataclasses.replace(state, reg_optimizer=used)
        after = jax.jit(lambda state: reg_step(state, parts.static, task, jnp.asarray(step), config.train))(state)
        vector, unravel = ravel_pytree(parts.rho)

        objective = REG_LOSSES[config.train.reg_objective]

        @jax.jit
        def loss(vector):
            model = merge(Routed(parts.theta_psi, unravel(vector), parts.static))
            of = lambda means, pred, gen, y: objective(means, pred + gen, y)  # noqa: E731
            how: dict[str, Any] = {"stream": REG_STREAM, "horizon": config.train.reg_horizon}
            return written_out_loss(model, task.reg, task.key, step, of, **how)

        h = 1e-5
        wanted = np.asarray([(loss(vector + d) - loss(vector - d)) / (2 * h) for d in h * np.eye(vector.size)])
        np.testing.assert_allclose(after.reg_loss, loss(vector), rtol=1e-6)
        is_climate = np.zeros(vector.size, bool)
        if config.model.lead_growth:
            mark = eqx.tree_at(lambda r: r.growth.climate, jax.tree.map(jnp.zeros_like, parts.rho), jnp.ones(CHANNELS))
            is_climate = np.asarray(ravel_pytree(mark)[0]) > 0
    assert np.abs(wanted[is_climate]).min(initial=1) > 1e-7  # it would matter, and is no one's to change
    assert (np.asarray(after.reg_optimizer.mu)[is_climate] == 0).all()
    gradient = np.asarray(after.reg_optimizer.mu) / (1 - 0.9)
    assert np.abs(wanted).min() > 1e-9
    np.testing.assert_allclose(gradient[~is_climate], wanted[~is_climate], rtol=2e-5, atol=1e-8)
    assert int(after.reg_optimizer.count) == 1
    # One step of Adam from its start, at one and a half times the sites' rate, which falls as a cosine's square.
    rate = 1.5 * config.train.site_learning_rate * np.cos(np.pi / 2 * (16 - 15) / (20 - 15)) ** 2
    moved = np.asarray(after.rho.vector) - np.asarray(state.rho.vector)
    np.testing.assert_allclose(moved, -rate * gradient / (np.abs(gradient) + 1e-8), rtol=1e-4, atol=1e-9)
    assert_equal(after.theta_psi, state.theta_psi)
    assert_equal(after.train_optimizer, state.train_optimizer)


@pytest.mark.parametrize("objective", ["crps", "likelihood"])
def test_theta_and_psi_get_the_gradient_of_the_mean_over_leads(objective, data):
    """While they settle, from rollouts on train, in which the noise of ρ acts but not its growth.

    σ_gen is a constant, so that JAX differentiates what is written out here: differences would move σ_gen too.
    """
    config = config_of(steps=20, settle=0.25, train_objective=objective, train_rollout_steps=4).train
    loss_of = {
        "crps": lambda means, pred, gen, y: crps_loss(means, pred + jax.lax.stop_gradient(gen), y),
        "likelihood": train_loss,
    }[objective]
    with jax.enable_x64(True):
        task = wide(make_task(data, seed=3))
        model = wide(lively(build_model(config_of().model, data.train, key=jax.random.key(1)), jax.random.key(2)))
        parts = route(model)
        vector, unravel = ravel_pytree(parts.theta_psi)
        take = jax.jit(lambda state, t: train_step(state, parts.static, task, t, config))
        before, after = (take(init_state(model), jnp.asarray(step)) for step in (15, 16))

        @jax.jit
        def loss(vector):
            own = dataclasses.replace(merge(Routed(unravel(vector), parts.rho, parts.static)), growth=None)
            return written_out_loss(own, task.train, task.key, 16, loss_of, stream=TRAIN_STREAM, horizon=4)

        np.testing.assert_allclose(after.train_loss, loss(vector), rtol=1e-6)
        # The step before is one of single pairs.
        alone = dataclasses.replace(config, train_rollout_steps=1)
        single = jax.jit(lambda state: train_step(state, parts.static, task, jnp.asarray(15), alone))(init_state(model))
        assert abs(float(before.train_loss) - float(after.train_loss)) > 1e-3
        np.testing.assert_allclose(before.theta_psi.vector, single.theta_psi.vector, rtol=1e-12)
        assert_equal(after.rho, before.rho)
        wanted = jax.jit(jax.grad(loss))(vector)
        gradient = np.asarray(after.train_optimizer.mu) / (1 - 0.9)
    assert np.abs(gradient).max() > 1e-3
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("objective", ["crps", "likelihood"])
def test_the_record_of_a_likelihood_is_in_the_fields_units_from_rollouts_too(objective, data):
    """It exceeds that of standardised fields by the mean of log s; a CRPS does not."""
    units = Units((30.0, -4.0), (50.0, 0.3))
    moved = data.train.trajectories * np.asarray(units.scale)[:, None] + np.asarray(units.offset)[:, None]
    train = dataclasses.replace(data.train, units=units, trajectories=jnp.asarray(moved, jnp.float32))
    config = config_of(steps=20, settle=0.25, train_objective=objective, train_rollout_steps=4).train
    task = make_task(dataclasses.replace(data, train=train, reg=dataclasses.replace(data.reg, units=units)), seed=3)
    model = lively(build_model(config_of().model, train, key=jax.random.key(1)), jax.random.key(2))
    after = train_step(init_state(model), route(model).static, task, jnp.asarray(16), config)
    own, loss_of = dataclasses.replace(model, growth=None), train_loss
    if objective == "crps":
        loss_of = lambda means, pred, gen, y: crps_loss(means, pred + gen, y)  # noqa: E731
    standardized = written_out_loss(own, train, task.key, 16, loss_of, stream=TRAIN_STREAM, horizon=4)
    more = np.log(units.scale).mean() if objective == "likelihood" else 0.0
    np.testing.assert_allclose(after.train_loss, standardized + more, rtol=1e-4)


# --- the draw ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 2, 5, 6])
def test_windows_lie_inside_rows_and_every_one_is_drawn(horizon, data):
    first, _ = data.reg.draw(jax.random.key(0), 3000, horizon)
    row, time = np.asarray(first) // STEPS_OF_A_ROW, np.asarray(first) % STEPS_OF_A_ROW
    assert time.max() + horizon <= STEPS_OF_A_ROW
    wanted = {(r, t) for r in range(5) for t in range(STEPS_OF_A_ROW - horizon + 1)}
    assert set(zip(row.tolist(), time.tolist(), strict=True)) == wanted
    counts = np.unique(first, return_counts=True)[1]
    assert counts.min() > 0.6 * 3000 / len(wanted)


def test_the_draw_of_single_pairs_is_what_it_was(data):
    """Batches follow from a key: a training that was recorded before is the same today."""
    first, mask_key = data.reg.draw(jax.random.key(8), 9)
    np.testing.assert_array_equal(first, EARLIER)
    np.testing.assert_array_equal(first, data.reg.draw(jax.random.key(8), 9, 1)[0])
    index_key, other = jax.random.split(jax.random.key(8))
    np.testing.assert_array_equal(first, jax.random.randint(index_key, (9,), 0, 30))
    np.testing.assert_array_equal(jax.random.key_data(mask_key), jax.random.key_data(other))


def test_padding_rows_are_never_drawn(pool):
    """Of two replicas with 2 and 5 rows, as they are drawn from together."""
    splits = [make_data(pool, DataConfig(train_size=7, reg_size=size, test_size=3)).reg for size in (2, 5)]
    both = stack_pairs(splits)
    assert both.rows.shape == (2, 5)
    draw = jax.vmap(lambda pairs: pairs.draw(jax.random.key(1), 500, 4)[0], in_axes=(replica_axes(both),))
    assert np.asarray(draw(both)).max(axis=1).tolist() == [STEPS_OF_A_ROW + 2, 4 * STEPS_OF_A_ROW + 2]


# --- when ρ moves -----------------------------------------------------------------------------------------------------

SCHEDULES = [
    # steps, k_reg, settle, reg_horizon, updates from rollouts
    (24, 4, 0.5, 1, 12),
    (24, 4, 0.5, 3, 12),
    (23, 5, 0.4, 3, 9),
    (23, 5, 0.4, 1, 9),
    (2000, 7, 0.9, 3, 300),
    (1000, 7, 0.9, 1, 900),
    (1001, 3, 0.75, 2, 250),
    (700, 300, 1.0, 6, 350),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_when_rho_moves_is_a_list_of_steps(schedule, data, monkeypatch):
    """Every k_reg-th step before settling, and from then on every k_settled-th, wherever the host stops."""
    steps, k_reg, settle, horizon, rollouts = schedule
    config = TrainConfig(steps=steps, k_reg=k_reg, settle=settle, reg_horizon=horizon)
    settled = round(steps * (1 - settle))
    each = 1 if horizon == 1 else max(1, round(steps * settle / 300))
    due = {t for t in range(1, settled + 1) if t % k_reg == 0}
    late = {t for t in range(settled + 1, steps + 1) if (t - settled) % each == 0}
    assert len(late) == rollouts
    assert (config.settled_after, config.k_settled) == (settled, each)
    assert all(config.reg_updates_until(t) == sum(d <= t for d in due | late) for t in range(0, steps + 1))

    def note(what):
        def step(state, static, task, t, *_):
            return eqx.tree_at(lambda s: getattr(s, what), state, getattr(state, what).at[t].add(1))

        return step

    # In place of the optimisers, the state has how often each step was taken.
    monkeypatch.setattr(compiled, "train_step", note("train_optimizer"))
    monkeypatch.setattr(compiled, "reg_step", note("reg_optimizer"))
    taken, one, any_vector = jnp.zeros((1, steps + 1), int), jnp.zeros(()), Packed(jnp.ones((1, 2)), None, ())
    state = TrainState(any_vector, any_vector, taken, taken, one, one, jnp.asarray(0))
    state = jax.tree.map(lambda leaf: leaf if leaf.ndim else leaf[None], state)
    tasks = stack_tasks([make_task(data, 0)])
    settings = Settings(config, WHOLE)
    take = jax.jit(lambda state, start, stop: compiled._advance(settings, state, None, tasks, start, stop))
    at = [0, 1, settled // 2, settled - 1, settled, settled + 1, settled + each // 2, steps - 1, steps]
    at = sorted({min(max(t, 0), steps) for t in at})
    for start, stop in itertools.pairwise(at):
        state = take(state, jnp.asarray(start), jnp.asarray(stop))
    np.testing.assert_array_equal(state.train_optimizer[0, 1:], 1)
    assert set(np.flatnonzero(state.reg_optimizer[0]).tolist()) == due | late
    assert state.reg_optimizer.max() == 1


@pytest.fixture(scope="module")
def trained(data):
    return run([config_of()], [data])


def test_rollouts_are_counted_and_the_rest_is_that_of_single_steps(trained, data):
    """Up to settling, all numbers are those of a training on single steps."""
    models, tasks, program = start_cohort([config_of()], [data])
    single = list(train_replicas(models, tasks, dataclasses.replace(program, reg_horizon=1)))
    at_12, end = (next(r.snapshot.state for r in reports if r.step == 12) for reports in (trained, single))
    for name in ("theta_psi", "rho", "train_optimizer", "reg_optimizer"):
        assert_equal(getattr(at_12, name), getattr(end, name))
    assert int(at_12.reg_optimizer.count[0]) == 3  # pyright: ignore[reportAttributeAccessIssue]
    last: Any = trained[-1].snapshot.state
    assert int(last.reg_optimizer.count[0]) == 12
    after: Any = single[-1].snapshot.state
    assert int(after.reg_optimizer.count[0]) == 15
    assert (np.asarray(last.rho.vector) != np.asarray(single[-1].snapshot.state.rho.vector)).any()


def test_growth_moves_only_while_settling(trained, data):
    def growth_at(step):
        return next(unstack(r.models, 0).growth for r in trained if r.step == step)

    for name in ("sigma_pred", "spread"):
        assert (np.asarray(getattr(growth_at(12), name)) == 0).all()
        assert (np.abs(np.asarray(getattr(growth_at(24), name))) > 1e-4).all()
    start = unstack(start_cohort([config_of()], [data])[0], 0).growth
    for step in (12, 24):
        np.testing.assert_array_equal(growth_at(step).climate, start.climate)
    values = np.asarray(data.train.gather(jnp.arange(int(data.train.num_pairs))).y)
    np.testing.assert_allclose(start.climate, values.var(axis=(0, 2)), rtol=0.1)


@pytest.fixture(scope="module")
def one_step(data):
    """A step on train, and one on reg before and after settling, compiled once."""
    config = config_of().train
    model = lively(build_model(config_of().model, data.train, key=jax.random.key(1)), jax.random.key(2))
    static, task = route(model).static, make_task(data, 5)
    steps = jax.jit(lambda s, t: (train_step(s, static, task, t, config), reg_step(s, static, task, t, config)))
    return init_state(model), static, steps


def test_a_train_step_knows_nothing_of_growth(one_step):
    """Were σ_pred to grow there, ψ would learn to undo it. Nor does a single step on reg."""
    state, _, steps = one_step
    large = (jnp.full(2, 3.0), jnp.full(2, -2.0))
    rho = eqx.tree_at(lambda r: (r.growth.sigma_pred, r.growth.spread), state.rho.tree(), large)
    huge = dataclasses.replace(state, rho=Packed.of(rho))
    (one, reg_one), (other, reg_other) = (steps(s, jnp.asarray(4)) for s in (state, huge))
    assert_equal(one.theta_psi, other.theta_psi)
    np.testing.assert_array_equal(one.train_loss, other.train_loss)
    np.testing.assert_array_equal(reg_one.reg_loss, reg_other.reg_loss)
    assert_equal(reg_one.reg_optimizer, reg_other.reg_optimizer)
    assert float(steps(state, jnp.asarray(20))[1].reg_loss) != float(steps(huge, jnp.asarray(20))[1].reg_loss)


def test_no_update_on_reg_moves_theta_or_psi_and_rates_end_at_zero(one_step):
    state, _, steps = one_step
    moves = {}
    for t in (12, 13, 18, 24):
        _, after = steps(state, jnp.asarray(t))
        assert_equal(after.theta_psi, state.theta_psi)
        moves[t] = np.abs(np.asarray(after.rho.vector) - np.asarray(state.rho.vector)).max()
    # In the first step of Adam every number moves by the rate.
    assert moves[12] == pytest.approx(2e-2, rel=1e-3)
    assert moves[13] == pytest.approx(3e-2 * np.cos(np.pi / 24) ** 2, rel=1e-3)
    assert moves[24] < 1e-7
    # Only the first update from rollouts starts Adam afresh.
    _, first = steps(state, jnp.asarray(13))
    _, second = steps(first, jnp.asarray(14))
    assert (int(first.reg_optimizer.count), int(second.reg_optimizer.count)) == (1, 2)


# --- the same numbers, however it is run ------------------------------------------------------------------------------


def test_training_resumes_in_the_middle_of_settling(data):
    config = config_of(evaluate_every=7)
    whole = run([config], [data])
    middle = next(r.snapshot for r in whole if r.step == 21)
    again = run([config], [data], start=middle)
    assert_equal(again[-1].snapshot, whole[-1].snapshot)
    assert again[0].step > 21


def test_a_run_is_the_same_alone_and_among_replicas(pool):
    configs = [config_of(seed=4), config_of(seed=5, reg_size=2, mask_seed=1)]
    split = [make_data(pool, config.data) for config in configs]
    together = run(configs, split)[-1]
    for place, (config, own) in enumerate(zip(configs, split, strict=True)):
        alone = run([config], [own])[-1]
        for a, b in zip(leaves(unstack(alone.models, 0)), leaves(unstack(together.models, place)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def test_two_particles_are_refused():
    """Their fair CRPS falls the farther they are spread about their own mean."""
    assert config_of(rollout_particles=3).train.rollout_particles == 3
    with pytest.raises(InputError, match="rollout_particles is 2: must be at least 3"):
        config_of(rollout_particles=2)


@pytest.mark.parametrize(("name", "split"), [("reg_horizon", "reg"), ("train_rollout_steps", "train")])
def test_trajectories_must_be_as_long_as_their_rollouts(name, split, data):
    config = config_of(**{name: 7})
    with pytest.raises(InputError) as caught:
        fit(data, config.model, config.train, progress=False)
    assert str(caught.value) == f"{name} is 7: must be at most 6, the steps of the trajectories of {split}"
    with pytest.raises(InputError, match="settle"):
        config_of(settle=0.0)


def test_a_long_horizon_takes_little_more_memory_than_a_short_one():
    """Of each lead, the particles alone are kept: fifty leads take less than 1.6 times the memory of two."""
    fields = waves(POOL_SIZE, 50, 0, 16, 1)
    config = config_of(width=8, num_blocks=4, num_modes=6, lead_growth=True)
    data = make_data(Trajectories(fields, fields[:30] + 1, {}, ""), config.data, check=False)
    model = build_model(config.model, data.train, key=jax.random.key(0))
    state, static, task = init_state(model), route(model).static, make_task(data, 0)

    def temporary(horizon):
        own = dataclasses.replace(config.train, reg_horizon=horizon, batch_size=8, rollout_particles=8)
        step = jax.jit(lambda s, t: reg_step(s, static, task, t, own))
        return step.lower(state, jnp.asarray(20)).compile().memory_analysis().temp_size_in_bytes  # pyright: ignore[reportOptionalMemberAccess]

    found = {horizon: temporary(horizon) for horizon in (2, 50)}
    assert found[50] < 1.6 * found[2]
