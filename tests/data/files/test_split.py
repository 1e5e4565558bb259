"""How own trajectories are divided."""

import dataclasses

import numpy as np
import pytest

from crossreg.config import OWN_DATA, Config
from crossreg.data.files.split import split_source, suggested_sizes
from crossreg.data.formats.open import open_source
from crossreg.errors import InputError
from made_fields import fields

OWN = Config().replace(data="own", **OWN_DATA).data


def source_of(tmp_path, samples=10, times=6):
    np.save(tmp_path / "u.npy", fields(1, samples=samples, times=times))
    return open_source(tmp_path / "u.npy")


def test_seventy_ten_twenty():
    assert suggested_sizes(100) == (70, 10, 20)
    assert suggested_sizes(3) == (1, 1, 1)
    assert all(sum(suggested_sizes(n)) == n and min(suggested_sizes(n)) >= 1 for n in range(3, 300))


def test_no_trajectory_is_in_two_splits_and_the_seed_says_which(tmp_path):
    source = source_of(tmp_path)
    parts = split_source(source, OWN)
    assert [len(part.samples) for part in parts.values()] == [7, 1, 2]
    assert sorted(s for part in parts.values() for s in part.samples) == list(range(10))
    assert split_source(source, OWN) == parts
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(10).tolist()
        divided = split_source(source, dataclasses.replace(OWN, split_seed=seed, mask_seed=7))
        samples = {name: list(part.samples) for name, part in divided.items()}
        assert samples == {"train": order[3:], "reg": order[2:3], "test": order[:2]}


def test_a_train_size_leaves_reg_and_test_as_they_are(tmp_path):
    source = source_of(tmp_path)
    whole, few = (split_source(source, dataclasses.replace(OWN, train_size=n)) for n in (None, 3))
    assert (few["reg"], few["test"]) == (whole["reg"], whole["test"])
    assert few["train"].samples == whole["train"].samples[:3]


def test_asked_for_fewer_no_trajectory_is_in_two_splits_either(tmp_path):
    source = source_of(tmp_path, samples=20)
    parts = split_source(source, dataclasses.replace(OWN, train_size=6, reg_size=5, test_size=4))
    chosen = [sample for part in parts.values() for sample in part.samples]
    assert [len(part.samples) for part in parts.values()] == [6, 5, 4]
    assert len(set(chosen)) == 15


def test_horizon_and_stride(tmp_path):
    source = source_of(tmp_path, times=12)
    parts = split_source(source, dataclasses.replace(OWN, train_horizon=2, time_stride=3))
    assert list(parts["train"].times) == list(parts["reg"].times) == [0, 3, 6]
    assert list(parts["test"].times) == [0, 3, 6, 9]


def test_in_time_every_trajectory_is_in_all_splits_and_no_time_in_two(tmp_path):
    source = source_of(tmp_path, samples=2, times=23)
    parts = split_source(source, dataclasses.replace(OWN, split="time"))
    assert all(part.samples == (0, 1) for part in parts.values())
    assert [t for part in parts.values() for t in part.times] == list(range(23))
    assert [list(part.times) for part in parts.values()] == [
        list(range(15)),
        list(range(15, 18)),
        list(range(18, 23)),
    ]
    strided = split_source(source, dataclasses.replace(OWN, split="time", time_stride=2))
    assert [t for part in strided.values() for t in part.times] == list(range(0, 23, 2))
    none = split_source(source, dataclasses.replace(OWN, split="time", reg_size=0))
    assert none["reg"].samples == ()


@pytest.mark.parametrize(
    ("samples", "changes", "said"),
    [
        (1, {}, r"has 1 trajectory; train, reg and test need one each; `split='time'` divides"),
        (2, {}, r"has 2 trajectories; train, reg and test need one each; `split='time'`"),
        (10, {"train_size": 8}, r"train_size is 8, reg_size is 1 and test_size is 2: together at most 10 trajectories"),
        (10, {"reg_size": 9}, r"^reg_size is 9 and test_size is 2: none of 10 trajectories is left to train on"),
        (10, {"time_stride": 6}, r"time_stride is 6: leaves 1 of 6 times"),
        (1, {"split": "time", "time_stride": 2}, r"split is time: 3 times are too few"),
        (1, {"split": "time", "train_horizon": 2}, r"split is time: sizes are steps already"),
    ],
)
def test_what_cannot_be_divided_is_refused(tmp_path, samples, changes, said):
    with pytest.raises(InputError, match=said):
        split_source(source_of(tmp_path, samples), dataclasses.replace(OWN, **changes))


def test_one_or_two_trajectories_with_sizes_that_fit(tmp_path):
    parts = split_source(source_of(tmp_path, 2), dataclasses.replace(OWN, train_size=1, reg_size=0, test_size=1))
    assert [len(part.samples) for part in parts.values()] == [1, 0, 1]


def test_folders_say_what_is_in_each_split(tmp_path):
    u = fields(1)
    for folder, rows in (("train", slice(0, 6)), ("val", slice(6, 8)), ("test", slice(8, 11))):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "u.npy", u[rows])
    source = open_source(tmp_path)
    parts = split_source(source, OWN)
    assert [part.samples for part in parts.values()] == [tuple(range(6)), (6, 7), (8, 9, 10)]
    few = split_source(source, dataclasses.replace(OWN, train_size=2))
    assert len(few["train"].samples) == 2
    assert set(few["train"].samples) < set(range(6))
    # Some of each folder, as the seed says.
    some = [
        split_source(source, dataclasses.replace(OWN, train_size=3, reg_size=1, test_size=2, split_seed=seed))
        for seed in range(6)
    ]
    for parts in some:
        for part, pool in zip(parts.values(), (range(6), range(6, 8), range(8, 11)), strict=True):
            assert set(part.samples) < set(pool)
    assert len({parts["train"].samples for parts in some}) > 3
    with pytest.raises(InputError, match=r"reg_size is 3: .* has 2 trajectories for reg"):
        split_source(source, dataclasses.replace(OWN, reg_size=3))


def test_folders_are_not_divided_in_time(tmp_path):
    """The first times of a test folder would be trained on."""
    for name in ("train", "valid", "test"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "u.npy", fields(1, samples=2, times=12))
    with pytest.raises(InputError, match="is split already, into folders for train, reg and test"):
        split_source(open_source(tmp_path), dataclasses.replace(OWN, split="time"))
