"""Which cars a run trains on, regularizes on and is scored on."""

import pytest

from crossreg.cars.meshes.car_set import CarSet, split_cars
from crossreg.errors import InputError


def cars_of(num_train: int, num_test: int = 0) -> CarSet:
    def read(name: str):
        raise AssertionError(f"{name} is read")

    train, test = (tuple(f"{part}{i:03d}" for i in range(n)) for part, n in (("a", num_train), ("t", num_test)))
    return CarSet("made up", train, test, read)


@pytest.mark.parametrize("num_test", [0, 111])
def test_a_split_is_seeded_and_keeps_the_releases_test_part(num_test):
    cars = cars_of(500, num_test)
    split = split_cars(cars, seed=3)
    assert [len(part) for part in split[:3]] == [30, 50, 60]
    assert split.note is None
    assert len({*split.train, *split.reg, *split.test}) == 140
    assert all(part == tuple(sorted(part)) for part in split[:3])
    assert {name[0] for name in (*split.train, *split.reg)} == {"a"}
    assert {name[0] for name in split.test} == ({"t"} if num_test else {"a"})
    assert split_cars(cars, seed=3) == split
    other = split_cars(cars, seed=4)
    assert all(len({*a} & {*b}) < len(a) for a, b in zip(split[:3], other[:3], strict=True))
    fewer = split_cars(cars, train_size=11, seed=3)
    assert {*fewer.train} < {*split.train}
    assert (fewer.reg, fewer.test) == (split.reg, split.test)


@pytest.mark.parametrize(
    ("available", "sizes"),
    [
        ((3, 0), [1, 1, 1]),
        ((4, 0), [2, 1, 1]),
        ((3, 1), [2, 1, 1]),
        ((2, 9), [1, 1, 9]),
        ((70, 0), [15, 25, 30]),
        ((139, 0), [30, 50, 59]),
        ((140, 0), [30, 50, 60]),
        ((40, 60), [15, 25, 60]),
        ((200, 59), [30, 50, 59]),
    ],
)
def test_fewer_cars_are_split_in_proportion(available, sizes):
    split = split_cars(cars_of(*available))
    assert [len(part) for part in split[:3]] == sizes
    assert (split.note is None) == (sizes == [30, 50, 60])
    if split.note:
        assert split.note.endswith(f"into {sizes[0]} train, {sizes[1]} reg and {sizes[2]} test")
    assert len({*split.train, *split.reg, *split.test}) == sum(sizes)


def test_every_number_of_cars_is_used_up_before_a_split_goes_short():
    for available in range(3, 30):
        split = split_cars(cars_of(available), train_size=2, reg_size=17, test_size=5)
        sizes = [len(part) for part in split[:3]]
        assert sum(sizes) == min(available, 24)
        assert all(1 <= size <= most for size, most in zip(sizes, (2, 17, 5), strict=True))


@pytest.mark.parametrize(
    ("available", "sizes", "message"),
    [
        ((2, 0), {}, "made up: 2 cars; expected at least 3"),
        ((1, 8), {}, "made up: 1 cars besides the 8 of its test part; expected at least 2"),
        ((9, 9), {"reg_size": 0}, "reg_size is 0: expected at least 1 car"),
    ],
)
def test_splits_that_are_refused(available, sizes, message):
    with pytest.raises(InputError, match=message):
        split_cars(cars_of(*available), **sizes)
