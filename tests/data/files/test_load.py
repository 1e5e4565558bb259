"""Own data as pairs: units, gaps and masks."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import crossreg as xr
from crossreg.config import OWN_DATA
from crossreg.data.files.load import load_files, resolved, units_of
from crossreg.data.files.split import split_source
from crossreg.data.formats.open import open_source
from crossreg.data.load import make_data, trajectories_of
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.nn.build import data_scale
from crossreg.nn.surrogate import predict
from crossreg.objectives import batch_mean, train_objective
from made_fields import fields

SMALL = xr.ModelConfig(width=4, num_blocks=2, num_modes=4)
OFFSET, SCALE = np.array([1e5, -3.0]), np.array([2e3, 0.05])


def in_units(u: np.ndarray) -> np.ndarray:
    shape = (1, 1, 2, *(1,) * (u.ndim - 3))
    return u * SCALE.reshape(shape) + OFFSET.reshape(shape)


@pytest.fixture
def plain(tmp_path):
    np.save(tmp_path / "plain.npy", fields(1))
    return xr.load(tmp_path / "plain.npy")


@pytest.fixture
def large(tmp_path):
    """The same fields in other units."""
    np.save(tmp_path / "large.npy", in_units(fields(1)))
    return xr.load(tmp_path / "large.npy")


@pytest.fixture
def uneven(tmp_path):
    """Trajectories of different means and sizes, so that no split has the mean and spread of another."""
    number = np.arange(11).reshape(-1, 1, 1, 1)
    np.save(tmp_path / "uneven.npy", in_units((1 + number) * fields(1) + number**2))
    return xr.load(tmp_path / "uneven.npy")


def test_pairs_are_those_of_the_file(tmp_path, plain):
    u = fields(1)
    batch = plain.test.gather(jnp.arange(int(plain.test.num_pairs)))
    rows = [np.flatnonzero((u[:, 0] == x[None]).all((1, 2)))[0] for x in np.asarray(batch.x)[:: plain.test.horizon]]
    assert len(set(rows)) == 2
    np.testing.assert_array_equal(batch.x, u[rows, :-1].reshape(-1, 2, 20))
    np.testing.assert_array_equal(batch.y, u[rows, 1:].reshape(-1, 2, 20))
    assert np.asarray(batch.mask).all()
    assert (np.asarray(batch.weight) == 1).all()


def test_units_are_mean_and_spread_of_train(plain, large, uneven):
    train, test = (np.asarray(pairs.trajectories, np.float64) for pairs in (uneven.train, uneven.test))
    units = uneven.train.units
    np.testing.assert_allclose(units.offset, train.mean((0, 1, 3)), rtol=1e-6)
    np.testing.assert_allclose(units.scale, train.std((0, 1, 3)), rtol=1e-5)
    assert uneven.reg.units == uneven.test.units == units
    assert (np.abs(np.divide(units.scale, test.std((0, 1, 3))) - 1) > 0.05).all()
    for data in (plain, large):
        scale = data_scale(data.train)
        np.testing.assert_allclose(scale.target_std, 1, rtol=0.02)
        np.testing.assert_allclose(scale.input_rms, 1, rtol=0.02)


@pytest.mark.parametrize("changes", [{}, {"split_seed": 3, "train_size": 4}, {"split": "time"}, {"time_stride": 2}])
def test_what_a_sweep_shares_is_what_a_run_loads(tmp_path, changes):
    """Fields, splits, masks and units, read by either way in."""
    np.savez(tmp_path / "u.npz", u=in_units(fields(1)), mask=np.random.default_rng(0).random((11, 6, 20)) < 0.6)
    config = xr.DataConfig(**OWN_DATA | {"data": str(tmp_path / "u.npz"), "score_on": "observed"} | changes)
    alone, shared = load_files(config), make_data(trajectories_of(config), config)
    assert alone.digest == shared.digest
    for name in ("train", "reg", "test"):
        assert eqx.tree_equal(getattr(alone, name), getattr(shared, name))
    assert alone.train.units != units_of(open_source(tmp_path / "u.npz"), split_of(config)["test"], observed_only=True)


def split_of(config: xr.DataConfig) -> dict:
    return split_source(open_source(Path(str(config.data))), config)


def test_sizes_that_a_run_finds_in_its_files(tmp_path):
    np.save(tmp_path / "u.npy", fields(1))
    asked = xr.DataConfig(**OWN_DATA | {"data": str(tmp_path / "u.npy"), "time_stride": 2})

    def sizes(config):
        found = resolved(config)
        return found.train_size, found.reg_size, found.test_size, found.train_horizon, found.test_horizon

    assert sizes(asked) == (8, 1, 2, 2, 2)
    assert sizes(dataclasses.replace(asked, test_horizon=1, reg_size=3)) == (6, 3, 2, 2, 1)
    np.save(tmp_path / "u.npy", fields(1, samples=2, times=23))
    by_time = dataclasses.replace(asked, split="time", time_stride=1)
    assert sizes(by_time) == (14, 2, 4, None, None)
    # What was found is what was asked for: a run that is opened again has the same splits.
    assert split_of(resolved(by_time)) == split_of(by_time)


@pytest.mark.parametrize("options", [{"split": "time"}, {"time_stride": 2}, {"train_horizon": 2}, {"train_size": 3}])
def test_units_are_of_no_field_that_is_not_trained_on(tmp_path, options):
    """Of fields that grow from time to time and from trajectory to trajectory, every other choice has other units."""
    u = fields(1, times=11)
    time, number = np.arange(11).reshape(1, -1, 1, 1), np.arange(len(u)).reshape(-1, 1, 1, 1)
    u = (u + 0.5 * number) * (1 + time) * (1 + number)
    np.save(tmp_path / "u.npy", u)
    data = xr.load(tmp_path / "u.npy", **options)
    train = np.asarray(data.train.trajectories, np.float64)[: int(data.train.num_pairs) // data.train.horizon]
    assert train.size < u.size
    np.testing.assert_allclose(data.train.units.offset, train.mean((0, 1, 3)), rtol=1e-5)
    np.testing.assert_allclose(data.train.units.scale, train.std((0, 1, 3)), rtol=1e-5)


def test_a_constant_channel_has_nothing_to_learn(tmp_path):
    u = fields(1)
    u[:, :, 1] = 7.0
    np.save(tmp_path / "u.npy", u)
    data = xr.load(tmp_path / "u.npy")
    assert data.train.units.scale[1] == 1
    from crossreg.nn.build import check_scale

    with pytest.raises(xr.InputError, match="channel 1 of the targets never changes"):
        check_scale(SMALL, data.train)


def scores_of(data) -> dict:
    model = xr.build_model(SMALL, data.train, key=jax.random.key(0))
    fit = xr.fit(data, model, steps=40, batch_size=5, num_samples=4, progress=False)
    return xr.evaluate(fit.model, data.test, num_samples=6)


def test_scores_of_other_units_differ_by_the_units_alone(plain, large):
    """RMSE, CRPS and spread are s times as large, the NLL log s higher; coverage is what it was."""
    a, b = scores_of(plain), scores_of(large)
    for name in ("channel_rmse", "channel_crps", "channel_std"):
        np.testing.assert_allclose(np.divide(b[name], a[name]), SCALE, rtol=1e-3)
    np.testing.assert_allclose(np.subtract(b["channel_nll"], a["channel_nll"]), np.log(SCALE), atol=2e-3)
    np.testing.assert_allclose(b["coverage"], a["coverage"], atol=1e-3)
    assert b["ece_mix"] == pytest.approx(a["ece_mix"], abs=5e-4)
    assert b["nll"] == pytest.approx(np.mean(b["channel_nll"]), rel=1e-4)


def test_a_network_in_units_is_the_network_between_two_maps():
    """μ = o + s μ', σ = s σ' of the same network on (x − o)/s; a mask channel is left alone."""
    units = Units((3.0, -20.0), (0.5, 4.0))
    inner = xr.nn.fno(1, 3, 2, width=4, num_blocks=2, num_modes=4, key=jax.random.key(0), predict_increment=True)
    outer = dataclasses.replace(inner, units=units)
    offset, scale = (jnp.asarray(part)[:, None] for part in units)
    z = jax.random.normal(jax.random.key(1), (5, 3, 16))
    x = jnp.concatenate([z[:, :2] * scale + offset, z[:, 2:]], axis=1)
    key = jax.random.key(2)
    a, b = predict(inner, z, key=key), predict(outer, x, key=key)
    np.testing.assert_allclose(b.means, a.means * scale + offset, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b.vars_predictive, a.vars_predictive * scale**2, rtol=1e-4)
    alone = outer(x[0], key=key)
    np.testing.assert_allclose(alone.mean, inner(z[0], key=key).mean * scale + offset, rtol=1e-4, atol=1e-4)


@pytest.fixture
def gappy(tmp_path):
    """Channel 0 is missing at every third point, all of one time of one trajectory is missing."""
    u = in_units(fields(1))
    u[:, :, 0, ::3] = np.nan
    u[2, 3] = np.nan
    np.save(tmp_path / "gaps.npy", u)
    return u, xr.load(tmp_path / "gaps.npy", mask_channel=True)


def test_what_is_missing_is_hidden_and_no_target(gappy):
    _, data = gappy
    train = data.train
    index = jnp.arange(int(train.num_pairs))
    batch = train.gather(index)
    u = np.asarray(train.trajectories)
    x, y = (part.reshape(-1, 2, 20) for part in (u[:, :-1], u[:, 1:]))
    offset = np.asarray(train.units.offset)[:, None]
    np.testing.assert_array_equal(batch.x[:, :2], np.where(np.isnan(x), np.float32(offset), x))
    np.testing.assert_array_equal(batch.y, np.where(np.isnan(y), np.float32(offset), y))
    np.testing.assert_array_equal(batch.weight, np.isfinite(y))
    np.testing.assert_array_equal(batch.mask[:, 0], np.isfinite(x).all(1))
    np.testing.assert_array_equal(batch.x[:, 2], np.isfinite(x).all(1))
    # The network reads 0 where nothing was measured.
    seen = train.units.to_network(jnp.moveaxis(batch.x, 1, 0))
    assert (np.asarray(seen[:2])[np.isnan(np.moveaxis(x, 1, 0))] == 0).all()


def test_missing_targets_move_nothing(gappy):
    """The loss and its gradient are those over the points that are there, whatever stands at the others."""
    _, data = gappy
    model = xr.build_model(SMALL, data.train, key=jax.random.key(0))
    batch = data.train.gather(jnp.arange(6))
    assert 0 < float(jnp.mean(batch.weight)) < 1

    @eqx.filter_value_and_grad
    def loss(model, y):
        return train_objective(predict(model, batch.x, key=jax.random.key(1), num_samples=3), y, batch.weight)

    changed = jnp.where(batch.weight > 0, batch.y, batch.y + 1e4)
    (a, grads), (b, others) = loss(model, batch.y), loss(model, changed)
    assert a == b
    for one, other in zip(jax.tree.leaves(grads), jax.tree.leaves(others), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_batch_without_any_target_is_no_loss():
    values = jnp.asarray([3.0, 5.0])
    loss, gradient = jax.value_and_grad(lambda v: batch_mean(v, jnp.zeros(2)))(values)
    assert loss == 0
    assert (gradient == 0).all()
    assert batch_mean(values, jnp.asarray([1.0, 0.0])) == 3


def test_training_and_scores_are_finite_on_gappy_data(gappy):
    _, data = gappy
    model = xr.build_model(SMALL, data.train, key=jax.random.key(0))
    fit = xr.fit(data, model, steps=60, batch_size=1, num_samples=4, evaluate_every=20, progress=False)
    assert not fit.diverged
    for pairs in (data.train, data.reg, data.test):
        scores = xr.evaluate(fit.model, pairs, num_samples=4)
        assert all(np.isfinite(np.asarray(value)).all() for value in scores.values())


def test_a_mask_array_hides_inputs_but_targets_count(tmp_path):
    u = fields(1)
    mask = np.random.default_rng(0).random((11, 6, 20)) < 0.6
    np.savez(tmp_path / "u.npz", u=u, mask=mask)
    data = xr.load(tmp_path / "u.npz")
    batch = data.train.gather(jnp.arange(int(data.train.num_pairs)))
    seen = np.asarray(data.train.observed)[:, :-1].reshape(-1, 1, 20)
    assert 0.5 < seen.mean() < 0.7
    np.testing.assert_array_equal(batch.mask, seen)
    offset = np.asarray(data.train.units.offset, np.float32)[:, None]
    x = np.asarray(data.train.trajectories)[:, :-1].reshape(-1, 2, 20)
    np.testing.assert_array_equal(batch.x, np.where(seen, x, offset))
    assert (np.asarray(batch.weight) == 1).all()
    strict = xr.load(tmp_path / "u.npz", score_on="observed", observed_fraction=0.5)
    both = strict.train.gather(jnp.arange(4))
    assert np.asarray(both.mask).mean() < 0.45
    target = np.asarray(strict.train.observed)[:, 1:].reshape(-1, 20)[:4]
    np.testing.assert_array_equal(both.weight[:, 0], np.asarray(both.mask[:, 0]) & target)


@pytest.mark.parametrize("score_on", ["all", "observed"])
def test_a_target_is_known_where_it_was_measured(tmp_path, score_on):
    """Scored on observed points, also not where the files' own mask hides the target."""
    u, mask = fields(1), np.random.default_rng(0).random((11, 6, 20)) < 0.6
    u[:, 3:, 0, ::3] = np.nan
    np.savez(tmp_path / "u.npz", u=u, mask=mask)
    train = xr.load(tmp_path / "u.npz", score_on=score_on, observed_fraction=0.5).train
    targets, hidden = (np.asarray(part)[:, 1:] for part in (train.trajectories, ~train.observed))
    expected = np.isfinite(targets)
    if score_on == "observed":
        expected &= ~hidden[:, :, None]
    np.testing.assert_array_equal(train.known(jnp.arange(int(train.num_pairs))), expected.reshape(-1, 2, 20))


def test_scored_on_observed_points_nothing_depends_on_what_stands_at_hidden_ones(tmp_path):
    """A mask that changes in time: neither units nor inputs nor the targets that count know what it hides."""
    mask = np.random.default_rng(0).random((11, 6, 20)) < 0.6
    batches = []
    for junk in (0.0, -9999.0):
        np.savez(tmp_path / "u.npz", u=np.where(mask[:, :, None], fields(1), junk), mask=mask)
        data = xr.load(tmp_path / "u.npz", score_on="observed")
        batch = data.train.gather(jnp.arange(int(data.train.num_pairs)))
        batches.append((data.train.units, batch.x, batch.weight, jnp.where(batch.weight > 0, batch.y, 0)))
    assert 0.2 < float(batches[0][2].mean()) < 0.5
    for one, other in zip(*batches, strict=True):
        np.testing.assert_array_equal(one, other)


def test_time_split_pairs_do_not_cross(tmp_path):
    u = fields(1, samples=2, times=23)
    np.save(tmp_path / "u.npy", u)
    data = xr.load(tmp_path / "u.npy", split="time")
    np.testing.assert_array_equal(data.train.trajectories, u[:, :15])
    np.testing.assert_array_equal(data.reg.trajectories, u[:, 15:18])
    np.testing.assert_array_equal(data.test.trajectories, u[:, 18:])


def test_a_trajectory_in_two_splits_is_refused(tmp_path):
    rng = np.random.default_rng(4)
    fields = rng.normal(size=(10, 5, 2, 9)).astype(np.float32)
    fields[:3, 0] = 1.0  # equal starts, or none that says anything, are no repetition
    np.save(tmp_path / "own.npy", fields)
    xr.load(tmp_path / "own.npy")
    np.save(tmp_path / "twice.npy", np.concatenate([fields, fields]))
    with pytest.raises(InputError, match=r"trajectory \d+ of (reg|test) begins as trajectory \d+ of (train|reg) does"):
        xr.load(tmp_path / "twice.npy")
    constant = np.broadcast_to(rng.normal(size=(10, 1, 1, 1)).astype(np.float32), (10, 5, 1, 9)).copy()
    constant[:, 2:] += fields[:, 2:, :1]
    constant[5, 0] = np.nan
    np.save(tmp_path / "rest.npy", constant)
    xr.load(tmp_path / "rest.npy")
