"""Which trajectories a run learns from, regularizes on and is scored on. Never a pair of the
same trajectory in two of them."""

from typing import NamedTuple

from crossreg.errors import InputError

# The protocol's pools within the train-seed trajectories: the spare ones are in no split.
TRAIN_POOL = range(0, 70)
REG_POOL = range(70, 120)
POOL_SIZE = 150
TEST_POOL = range(0, 30)


class Split(NamedTuple):
    """Row numbers of the trajectories: `train` and `reg` of one array, `test` of another."""

    train: range
    reg: range
    test: range


def split_trajectories(train_size: int, reg_size: int, test_size: int) -> Split:
    """The first `train_size` of the train pool, the first `reg_size` of the reg pool, likewise of test."""
    pools = (("train", train_size, TRAIN_POOL), ("reg", reg_size, REG_POOL), ("test", test_size, TEST_POOL))
    for name, size, pool in pools:
        if not 1 <= size <= len(pool):
            raise InputError(f"--{name}-size {size}: the {name} pool has 1 to {len(pool)} trajectories")
    return Split(TRAIN_POOL[:train_size], REG_POOL[:reg_size], TEST_POOL[:test_size])
