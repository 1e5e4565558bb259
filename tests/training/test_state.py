"""What is kept between steps: the state of a replica, the best one, snapshots, keys, and parts of a batch."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.data import keys as streams
from crossreg.data.load import make_data
from crossreg.nn.build import build_model
from crossreg.routing import route
from crossreg.training import loop
from crossreg.training.checkpoint import load_arrays, named_arrays, save_arrays
from crossreg.training.cohort import start_cohort
from crossreg.training.compiled import keep_best, split_scores
from crossreg.training.loop import train_replicas
from crossreg.training.packed import Packed
from crossreg.training.parallel import ALONE, Share
from crossreg.training.replicas import Record, first_snapshot, make_task, stack, stack_tasks, unstack
from crossreg.training.step import Task, _keep_finite, init_state, reg_step, train_step


def assert_same(a, b) -> None:
    found, expected = named_arrays(eqx.filter(a, eqx.is_array)), named_arrays(eqx.filter(b, eqx.is_array))
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def differ(a, b) -> bool:
    return any((x != y).any() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.fixture(scope="module")
def started(trajectories, tiny):
    """Two replicas that differ in their seed, with rates so high that what is best is not what is last."""
    config = tiny.replace(num_blocks=1, steps=14, evaluate_every=2, k_reg=3, settle=0.3, learning_rate=0.3)
    configs = [config.replace(seed=seed) for seed in (4, 5)]
    return start_cohort(configs, [make_data(trajectories, c.data) for c in configs])


@pytest.fixture(scope="module")
def reports(started):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_CHUNK_SECONDS", 1e-9)  # a report after every step
        return list(train_replicas(*started))


def test_the_best_state_is_that_of_the_lowest_score(reports):
    looks = [report for report in reports if report.record is not None]
    assert [look.step for look in looks] == [2, 4, 6, 8, 10, 12, 14]
    scores = np.stack([look.record.reg_nll for look in looks])
    best = scores.argmin(axis=0)
    assert (best < len(looks) - 1).all()  # or this test would say nothing
    last = reports[-1].snapshot
    np.testing.assert_array_equal(last.best_nll, scores.min(axis=0))
    for replica, number in enumerate(best):
        at_its_best = looks[number].snapshot.state
        for kept, then in zip(last.best, (at_its_best.theta_psi, at_its_best.rho), strict=True):
            np.testing.assert_array_equal(kept.vector[replica], then.vector[replica])


def test_what_is_best_is_decided_for_each_replica_and_never_by_nan(started):
    snapshot = first_snapshot(started[0])
    three = jnp.zeros(3, int)
    before = jax.tree.map(lambda a: a[three] - 9, snapshot.best)
    kept = snapshot._replace(best=before, best_nll=jnp.full(3, jnp.inf))
    states = []
    for number, scores in enumerate([(3.0, 1.0, np.nan), (2.0, 2.0, 5.0), (2.0, 0.5, np.nan), (4.0, 9.0, 4.0)]):
        states.append(jax.tree.map(lambda a, n=number: a[three] + n, snapshot.state))
        kept = keep_best(kept._replace(state=states[-1]), jnp.asarray(scores), ALONE)
        assert not kept.state.train_loss.any()
        assert not kept.state.reg_loss.any()
    np.testing.assert_array_equal(kept.best_nll, [2.0, 0.5, 4.0])
    for replica, number in enumerate((1, 2, 3)):
        np.testing.assert_array_equal(kept.best[0].vector[replica], states[number].theta_psi.vector[replica])
        np.testing.assert_array_equal(kept.best[1].vector[replica], states[number].rho.vector[replica])


def test_a_training_that_goes_on_from_disk_ends_in_the_same_bits(started, reports, tmp_path):
    """From a step that is neither an evaluation nor one of ρ, so that nothing of the state is at a beginning."""
    models, tasks, config = started
    stopped = next(report.snapshot for report in reports if report.step == 5)
    assert stopped.state.train_optimizer.count.tolist() == [5, 5]
    assert stopped.state.reg_optimizer.count.tolist() == [1, 1]
    save_arrays(tmp_path / "five.npz", stopped)
    loaded = load_arrays(tmp_path / "five.npz", eqx.filter_eval_shape(first_snapshot, models))
    assert_same(loaded, stopped)
    again = list(train_replicas(models, tasks, config, start=loaded))
    assert again[0].step == 6  # it does not begin again
    assert_same(again[-1].snapshot, reports[-1].snapshot)
    records = {report.step: report.record for report in reports if report.record is not None}
    for report in again:
        if report.record is not None:
            np.testing.assert_array_equal(report.record.train_loss, records[report.step].train_loss)
            np.testing.assert_array_equal(report.record.reg_loss, records[report.step].reg_loss)


def test_replicas_have_weights_batches_and_noise_of_their_own(started, reports):
    models, tasks, _ = started
    assert differ(unstack(models, 0), unstack(models, 1))
    assert (jax.random.key_data(tasks.key)[0] != jax.random.key_data(tasks.key)[1]).any()
    state = reports[-1].snapshot.state
    moments = np.asarray(state.train_optimizer.mu)
    reached = (moments != 0).any(axis=0)  # the mean of a field has no imaginary part to learn
    assert (moments[0] != moments[1])[reached].all()


def test_members_of_an_ensemble_have_keys_of_their_own(data):
    """Member 0 is the run of that seed alone; no other member of any seed shares a key."""
    keys = {(seed, member): make_task(data, seed, member).key for seed in range(4) for member in range(6)}
    words = {tuple(jax.random.key_data(key).tolist()) for key in keys.values()}
    assert len(words) == 24
    for seed in range(4):
        np.testing.assert_array_equal(jax.random.key_data(keys[seed, 0]), jax.random.key_data(jax.random.key(seed)))


def test_a_task_learns_from_reg_and_is_looked_at_elsewhere(data):
    task = make_task(data, 0)
    assert task.train is data.train
    assert task.reg is data.reg
    assert task.held_out is data.reg
    parted = data.split_off_calibration(0)
    task = make_task(parted, 0)
    assert task.reg is parted.reg
    assert task.held_out is parted.calibration


def test_streams_of_random_numbers_are_apart():
    constants = [value for name, value in vars(streams).items() if name.endswith("_STREAM")]
    assert len(constants) == len(set(constants)) == 6
    assert min(constants) > 2**16  # splits of a key are its first numbers


def test_what_is_not_finite_freezes_a_replica_for_good(data, tiny):
    old = init_state(build_model(tiny.model, data.train, key=jax.random.key(0)))
    new = jax.tree.map(lambda a: a + 1, old)
    good = Packed.of({"g": jnp.asarray([1.0, -2.0])})

    def after(loss, gradients, state=old, step=7):
        return _keep_finite(new, state, jnp.asarray(loss), gradients, step)

    assert_same(after(0.5, good), eqx.tree_at(lambda s: s.diverged_at, new, old.diverged_at))
    for loss, gradient in ((np.nan, 1.0), (np.inf, 1.0), (-np.inf, 1.0), (0.5, np.nan), (0.5, -np.inf)):
        frozen = after(loss, Packed.of({"g": jnp.asarray([1.0, gradient])}))
        assert frozen.diverged_at == 7
        assert_same(eqx.tree_at(lambda s: s.diverged_at, frozen, old.diverged_at), old)
        # What comes later moves nothing, and the step stays the first.
        assert_same(after(0.5, good, frozen, 8), frozen)
        assert_same(after(np.nan, good, frozen, 9), frozen)


def test_the_mean_of_a_record_leaves_out_what_has_diverged():
    values = np.array([1.0, 50.0, 3.0])
    record = Record(7, values, 2 * values, 3 * values, 4 * values, values, {"a": values}, np.array([-1, 5, -1]))
    means = {"train_loss": 2.0, "reg_loss": 4.0, "reg_nll": 6.0, "reg_ece": 8.0}
    assert record.mean() == means | {"diverged": 1}
    line = {
        "train_loss": 3.0,
        "reg_loss": 6.0,
        "reg_nll": 9.0,
        "reg_ece": 12.0,
        "reg_std_mu": 3.0,
        "sigma": {"a": [3.0]},
    }
    assert record.of(2) == line | {"step": 7, "diverged_at": -1}


def test_packed_arrays_are_the_tree_again():
    tree = {"a": jnp.arange(6.0).reshape(2, 3), "b": {"c": jnp.asarray(7.0), "d": jnp.arange(8.0, 12.0)}}
    packed = Packed.of(tree)
    np.testing.assert_array_equal(packed.vector, np.arange(12.0)[[0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]])
    assert_same(packed.tree(), tree)
    stacked = dataclasses.replace(packed, vector=jnp.stack([packed.vector, -packed.vector, 2 * packed.vector]))
    assert_same(stacked.tree(), jax.tree.map(lambda a: jnp.stack([a, -a, 2 * a]), tree))
    spread = packed.spread({"a": 1.0, "b": {"c": 2.0, "d": 3.0}})
    np.testing.assert_array_equal(spread, [1.0] * 6 + [2.0] + [3.0] * 4)


@pytest.mark.parametrize("parts", [2, 4])
def test_devices_that_share_a_batch_take_the_step_of_one(parts, trajectories, tiny):
    """Devices as an axis of a vmap: five pairs are no multiple of 2 or 4, and masks make their weights differ."""
    config = tiny.replace(
        num_blocks=1, batch_size=5, observed_fraction=0.5, mask_per="step", score_on="observed", num_samples=3
    )
    data = make_data(trajectories, config.data)
    model = build_model(config.model, data.train, key=jax.random.key(0))
    state, static, task = init_state(model), route(model).static, make_task(data, 3)

    def steps(share):
        trained = train_step(state, static, task, jnp.asarray(1), config.train, share)
        return reg_step(trained, static, task, jnp.asarray(1), config.train, share)

    def scores(share):
        return jnp.stack(split_scores(model, data.reg, 3, "plain", share))

    def divided(function):
        return jax.jit(jax.vmap(lambda _: function(Share(parts)), axis_name="devices"))(jnp.arange(parts))

    alone, together = jax.jit(lambda: steps(Share()))(), divided(steps)
    for name, array in named_arrays(alone).items():
        for device in np.asarray(named_arrays(together)[name]):
            scale = float(np.abs(array).max())
            np.testing.assert_allclose(device, array, rtol=1e-4, atol=1e-5 * scale, err_msg=name)
    expected = np.asarray(scores(Share()))
    np.testing.assert_allclose(divided(scores), np.broadcast_to(expected, (parts, 3)), rtol=1e-5)


def test_splits_of_stacked_tasks_are_in_their_places(trajectories, tiny):
    datas = [make_data(trajectories, tiny.replace(train_size=size, reg_size=5).data) for size in (3, 6)]
    parted = [data.split_off_calibration(seed) for seed, data in enumerate(datas)]
    assert (parted[0].reg.rows != parted[1].reg.rows).any()
    stacked = stack_tasks([make_task(data, seed) for seed, data in enumerate(parted)])
    assert isinstance(stacked, Task)
    assert stacked.train.num_rows.tolist() == [3, 6]
    assert stacked.reg.num_rows.tolist() == [3, 3]
    assert stacked.held_out.num_rows.tolist() == [2, 2]
    for name in ("reg", "held_out"):
        for replica, data in enumerate(parted):
            own = data.reg if name == "reg" else data.held_out
            np.testing.assert_array_equal(getattr(stacked, name).rows[replica], own.rows)


def test_stacked_models_are_those_that_were_stacked(data, tiny):
    models = [build_model(tiny.model, data.train, key=jax.random.key(seed)) for seed in range(3)]
    stacked = stack(models)
    for number, model in enumerate(models):
        assert_same(unstack(stacked, number), model)
