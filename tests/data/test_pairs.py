"""Splits, pairs and masks: what the network is shown."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import DataConfig
from crossreg.data.load import make_data
from crossreg.data.observation import draw_mask, masks_of
from crossreg.data.pairs import replica_axes, stack_pairs
from crossreg.data.split import REG_POOL, split_trajectories
from crossreg.errors import InputError

SMALL = DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.4)


def test_the_pools_of_the_protocol():
    """0 to 69 for train, 70 to 119 for reg, of each the first ones; test has trajectories of its own."""
    assert split_trajectories(70, 50, 30) == (range(70), range(70, 120), range(30))
    assert split_trajectories(20, 5, 3) == (range(20), range(70, 75), range(3))
    assert split_trajectories(20, 0, 3).reg == range(70, 70)


def test_one_pool_gives_train_the_first_and_reg_the_next():
    assert split_trajectories(20, 5, 3, one_pool=True) == (range(20), range(20, 25), range(3))
    assert split_trajectories(100, 50, 30, one_pool=True) == (range(100), range(100, 150), range(30))
    assert split_trajectories(80, 0, 30, one_pool=True).reg == range(80, 80)
    with pytest.raises(InputError, match="together at most 150 trajectories"):
        split_trajectories(100, 51, 30, one_pool=True)


def steps_of(pairs) -> np.ndarray:
    """The fields before and after each step of a split, (row, step, before or after, channel, x)."""
    batch = pairs.gather(jnp.arange(int(pairs.num_pairs)))
    both = np.stack([batch.x, batch.y], axis=1)
    return both.reshape(-1, pairs.horizon, *both.shape[1:])


@pytest.mark.parametrize("one_pool", [False, True])
def test_each_split_has_the_steps_of_its_own_trajectories(trajectories, one_pool):
    config = dataclasses.replace(SMALL, observed_fraction=1.0, one_pool=one_pool)
    data = make_data(trajectories, config)
    reg = slice(7, 13) if one_pool else slice(70, 76)
    fields = {"train": trajectories.train[:7], "reg": trajectories.train[reg], "test": trajectories.test[:4]}
    for name, array in fields.items():
        expected = np.stack([array[:, :-1], array[:, 1:]], axis=2)
        np.testing.assert_array_equal(steps_of(getattr(data, name)), expected)


def test_reg_trajectories_may_be_longer_than_those_of_train(trajectories):
    data = make_data(trajectories, dataclasses.replace(SMALL, observed_fraction=1.0, train_horizon=1, reg_steps=2))
    assert trajectories.train.shape[1] > 3  # longer than both
    assert [pairs.pairs_per_row for pairs in (data.train, data.reg, data.test)] == [
        1,
        2,
        trajectories.test.shape[1] - 1,
    ]
    for pairs, array in ((data.train, trajectories.train[:7, :2]), (data.reg, trajectories.train[70:76, :3])):
        np.testing.assert_array_equal(steps_of(pairs), np.stack([array[:, :-1], array[:, 1:]], axis=2))
    with pytest.raises(InputError, match="reg_steps is 3: is for scenarios"):
        DataConfig(data="u.npy", reg_steps=3)


@pytest.mark.parametrize("sizes", [(71, 50, 30), (0, 50, 30), (50, 51, 30), (50, 50, 31)])
def test_sizes_beyond_the_pools_are_refused(sizes):
    with pytest.raises(InputError, match=r"(train|reg|test)_size is \d+: .* [01] to (70|50|30) trajectories"):
        split_trajectories(*sizes)


def test_trajectories_that_are_not_there_are_refused(trajectories):
    few = trajectories._replace(train=trajectories.train[:74])
    with pytest.raises(
        InputError, match="reg_size is 6: needs trajectories up to number 75, but the data have only 74"
    ):
        make_data(few, SMALL)


def test_replicas_of_other_data_are_refused(trajectories):
    other = trajectories._replace(train=trajectories.train[:, :3])
    with pytest.raises(ValueError, match="share one array"):
        stack_pairs([make_data(t, SMALL).train for t in (trajectories, other)])


def test_a_pair_is_a_step_and_the_next(trajectories):
    data = make_data(trajectories, SMALL)
    horizon = data.reg.horizon
    index = jnp.asarray([0, 4, horizon * 5 + 2])
    batch = data.reg.gather(index)
    mask = np.asarray(data.reg.masks[0])
    for i, number in enumerate(np.asarray(index)):
        row, time = REG_POOL[number // horizon], number % horizon
        np.testing.assert_array_equal(batch.x[i], trajectories.train[row, time] * mask)
        np.testing.assert_array_equal(batch.y[i], trajectories.train[row, time + 1])
    assert (np.asarray(batch.x)[..., ~mask] == 0).all()


def test_sampling_reaches_every_pair_and_no_other(trajectories):
    pairs = make_data(trajectories, SMALL).train
    batch = pairs.sample(jax.random.key(0), 3000)
    first = np.unique(np.asarray(batch.y)[:, 0, 0])
    expected = np.unique(trajectories.train[:7, 1:, 0, 0])
    np.testing.assert_array_equal(first, expected)


@pytest.mark.parametrize(
    ("fraction", "count"), [(0.05, 8), (0.3, 48), (0.333, 53), (0.698, 112), (0.7, 112), (1.0, 160)]
)
def test_a_mask_observes_exactly_its_fraction(fraction, count):
    """Of 160 points, to the nearest."""
    assert draw_mask(jax.random.key(0), (20, 8), fraction).sum() == count
    np.testing.assert_array_equal(masks_of(jax.random.key(0), jnp.arange(3), (20, 8), fraction).sum((1, 2)), count)


def test_masks_of_one_seed_are_nested():
    masks = [draw_mask(jax.random.key(3), (40,), f) for f in (0.2, 0.5, 0.9)]
    assert (masks[0] <= masks[1]).all()
    assert (masks[1] <= masks[2]).all()


def test_a_mask_never_hides_everything():
    assert draw_mask(jax.random.key(0), (5,), 0.01).sum() == 1


def seen(pairs, index, key=None):
    return np.asarray(pairs.gather(jnp.asarray(index), mask_key=key).x[:, 0] != 0)


def test_masks_per_run_are_one_for_all_splits(trajectories):
    data = make_data(trajectories, SMALL)
    patterns = {m.tobytes() for pairs in (data.train, data.reg, data.test) for m in seen(pairs, [0, 1, 5, 11])}
    assert len(patterns) == 1
    other = make_data(trajectories, dataclasses.replace(SMALL, mask_seed=1))
    assert (other.run_mask != data.run_mask).any()  # pyright: ignore[reportOptionalOperand, reportAttributeAccessIssue]


def test_masks_depend_on_their_own_seed_alone(trajectories):
    """Methods and seeds that are compared see the same points, whatever the sizes of their splits."""
    for mask_per in ("run", "trajectory", "pair"):
        config = dataclasses.replace(SMALL, mask_per=mask_per, mask_seed=2)
        masks = np.asarray(make_data(trajectories, config).train.masks)
        for changes in ({"split_seed": 5}, {"one_pool": True}, {"reg_size": 2}, {"score_on": "observed"}):
            other = make_data(trajectories, dataclasses.replace(config, **changes)).train.masks
            np.testing.assert_array_equal(other, masks)
        fewer = np.asarray(make_data(trajectories, dataclasses.replace(config, train_size=3)).train.masks)
        np.testing.assert_array_equal(fewer, masks[: len(fewer)])
        reseeded = np.asarray(make_data(trajectories, dataclasses.replace(config, mask_seed=3)).train.masks)
        assert (reseeded != masks).any((1,)).all()


def test_every_point_is_hidden_as_often_as_any_other():
    masks = np.asarray(masks_of(jax.random.key(0), jnp.arange(2000), (20,), 0.4))
    assert (masks.sum(1) == 8).all()
    # Five standard deviations of 2,000 draws.
    np.testing.assert_allclose(masks.mean(0), 0.4, atol=5 * np.sqrt(0.4 * 0.6 / 2000))


@pytest.mark.parametrize(("mask_per", "per"), [("run", 18), ("trajectory", 3), ("pair", 1)])
def test_a_mask_hides_the_points_of_the_pairs_that_it_is_drawn_for(trajectories, mask_per, per):
    """Of 18 pairs of reg; where a point is hidden, all channels are 0, and no target is."""
    pairs = make_data(trajectories, dataclasses.replace(SMALL, mask_per=mask_per)).reg
    batch = pairs.gather(jnp.arange(18))
    masks = np.repeat(np.asarray(pairs.masks), per, axis=0)
    np.testing.assert_array_equal(batch.mask[:, 0], masks)
    before, after = (trajectories.train[70:76, s].reshape(18, 2, 20) for s in (slice(0, -1), slice(1, None)))
    np.testing.assert_array_equal(batch.x, np.where(masks[:, None], before, 0))
    np.testing.assert_array_equal(batch.y, after)
    assert (np.asarray(batch.weight) == 1).all()


@pytest.mark.parametrize(("mask_per", "count"), [("trajectory", 2), ("pair", 4), ("step", 4)])
def test_masks_per_trajectory_and_per_pair(trajectories, mask_per, count):
    data = make_data(trajectories, dataclasses.replace(SMALL, mask_per=mask_per))
    assert data.run_mask is None
    index = [0, 1, 3, 4]  # two pairs of two trajectories
    patterns = {m.tobytes() for m in seen(data.train, index)}
    assert len(patterns) == count
    for other in (data.reg, data.test):
        assert patterns.isdisjoint({m.tobytes() for m in seen(other, index)})
    again = {m.tobytes() for m in seen(data.train, index)}
    assert again == patterns


def test_masks_per_step_are_new_each_time_and_fixed_for_evaluation(trajectories):
    pairs = make_data(trajectories, dataclasses.replace(SMALL, mask_per="step")).train
    draws = [seen(pairs, [2], jax.random.key(k)).tobytes() for k in range(5)]
    assert len(set(draws)) == 5
    assert (seen(pairs, [2], jax.random.key(0)).sum(-1) == round(0.4 * 20)).all()
    np.testing.assert_array_equal(seen(pairs, [2]), seen(pairs, [2]))


def test_a_mask_channel_tells_what_is_hidden(trajectories):
    pairs = make_data(trajectories, dataclasses.replace(SMALL, mask_channel=True)).train
    batch = pairs.gather(jnp.arange(5))
    assert batch.x.shape == (5, 3, 20)
    assert batch.y.shape == (5, 2, 20)
    np.testing.assert_array_equal(batch.x[:, 2], np.broadcast_to(pairs.masks[0], (5, 20)))


def test_scoring_on_observed_points(trajectories):
    pairs = make_data(trajectories, dataclasses.replace(SMALL, score_on="observed")).train
    np.testing.assert_array_equal(pairs.gather(jnp.arange(5)).weight[3, 0], pairs.masks[0])
    full = make_data(trajectories, SMALL).train
    assert (full.gather(jnp.arange(5)).weight == 1).all()


@pytest.mark.parametrize("mask_per", ["run", "trajectory", "pair"])
def test_one_row_alone_is_seen_under_the_same_mask(trajectories, mask_per):
    pairs = make_data(trajectories, dataclasses.replace(SMALL, mask_per=mask_per)).test
    horizon = pairs.horizon
    alone = pairs.of([2]).gather(jnp.arange(horizon))
    within = pairs.gather(2 * horizon + jnp.arange(horizon))
    np.testing.assert_array_equal(alone.x, within.x)
    np.testing.assert_array_equal(alone.y, within.y)


@pytest.mark.parametrize("mask_per", ["run", "trajectory", "pair"])
def test_stacked_splits_of_different_sizes_keep_their_own(trajectories, mask_per):
    splits = [
        make_data(trajectories, dataclasses.replace(SMALL, train_size=n, observed_fraction=f, mask_per=mask_per)).train
        for n, f in ((3, 0.4), (7, 0.9))
    ]
    stacked = stack_pairs(splits)
    assert stacked.trajectories is splits[0].trajectories
    draw = eqx.filter_vmap(lambda p, k: p.sample(k, 400), in_axes=(replica_axes(stacked), None))
    batch = draw(stacked, jax.random.key(0))
    for i, split in enumerate(splits):
        alone = split.sample(jax.random.key(0), 400)
        np.testing.assert_array_equal(batch.x[i], alone.x)
        np.testing.assert_array_equal(batch.y[i], alone.y)
    # Padding has no weight when all pairs are walked through.
    walk = eqx.filter_vmap(lambda p: p.gather(jnp.arange(p.max_pairs)).weight, in_axes=(replica_axes(stacked),))
    weight = walk(stacked)
    np.testing.assert_array_equal(weight.sum((1, 2, 3)), [3 * 3, 7 * 3])
