"""Which trajectories of a scenario are train, reg and test: no trajectory is in two of them."""

from typing import NamedTuple

from crossreg.errors import InputError

# The protocol's pools among the trajectories of the train seed; the others are in no split.
TRAIN_POOL = range(0, 70)
REG_POOL = range(70, 120)
POOL_SIZE = 150
TEST_POOL = range(0, 30)


class Split(NamedTuple):
    """Row numbers of the trajectories: `train` and `reg` in one array, `test` in another."""

    train: range
    reg: range
    test: range


def split_trajectories(train_size: int, reg_size: int, test_size: int, *, one_pool: bool = False) -> Split:
    """Return the first trajectories of the train pool, the reg pool and the test pool.

    With `one_pool`, train and reg share all trajectories of the train seed: first train, then reg.

    Raises:
        InputError: if a pool has fewer trajectories.
    """
    train_pool, reg_pool = TRAIN_POOL, REG_POOL
    if one_pool:
        if train_size + reg_size > POOL_SIZE:
            raise InputError(
                f"train_size is {train_size} and reg_size is {reg_size}: together at most {POOL_SIZE} trajectories"
            )
        train_pool, reg_pool = range(train_size), range(train_size, train_size + reg_size)
    pools = (("train", train_size, train_pool, 1), ("reg", reg_size, reg_pool, 0), ("test", test_size, TEST_POOL, 1))
    for name, size, pool, least in pools:
        if not least <= size <= len(pool):
            raise InputError(f"{name}_size is {size}: the {name} pool has {least} to {len(pool)} trajectories")
    return Split(train_pool[:train_size], reg_pool[:reg_size], TEST_POOL[:test_size])
