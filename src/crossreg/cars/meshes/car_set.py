"""Sets of cars, and their split into train, reg and test cars."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crossreg.cars.meshes.surface import Surface
from crossreg.errors import InputError


@dataclass(frozen=True)
class CarSet:
    """The names of the cars in a folder, and a function that reads one.

    `test` is the release's own test part, empty if it has none; `train` holds all other cars. Both are sorted.
    `origin` is the folder with its layout, for messages.
    """

    origin: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    read: Callable[[str], Surface]


class CarSplit(NamedTuple):
    """Sorted names of cars, each in one split; `note` is a line to print if there are fewer cars than requested."""

    train: tuple[str, ...]
    reg: tuple[str, ...]
    test: tuple[str, ...]
    note: str | None


def split_cars(
    cars: CarSet, *, train_size: int = 30, reg_size: int = 50, test_size: int = 60, seed: int = 0
) -> CarSplit:
    """Draw the cars of each split.

    Test cars come from the release's own test part, train and reg cars from the rest; a release without a test part
    supplies all three. If there are fewer cars than requested, they are shared in proportion, at least one each.
    For one seed, the train cars of a smaller `train_size` are among those of a larger one, and reg and test cars are
    the same.

    Args:
        cars: the cars of a folder.
        train_size: cars to train on.
        reg_size: cars to regularize on.
        test_size: cars to score.
        seed: seed of the draw.

    Raises:
        InputError: if a size is below 1, or the folder has too few cars for three splits.
    """
    asked = {"train": train_size, "reg": reg_size, "test": test_size}
    for name, size in asked.items():
        if size < 1:
            raise InputError(f"{name}_size is {size}: expected at least 1 car")
    least = 2 if cars.test else 3
    if len(cars.train) < least:
        besides = f" besides the {len(cars.test)} of its test part" if cars.test else ""
        raise InputError(
            f"{cars.origin}: {len(cars.train)} cars{besides}; expected at least {least}, one for each split"
        )
    generator = np.random.default_rng(seed)
    rest = _shuffled(cars.train, generator)
    if cars.test:
        sizes = [*_share(len(rest), (train_size, reg_size)), min(test_size, len(cars.test))]
        test = _shuffled(cars.test, generator)[: sizes[2]]
    else:
        sizes = _share(len(rest), (train_size, reg_size, test_size))
        test, rest = rest[: sizes[2]], rest[sizes[2] :]
    train, reg = rest[: sizes[0]], rest[len(rest) - sizes[1] :]
    note = None
    if sizes != list(asked.values()):
        own = f", {len(cars.test)} of them its test part" if cars.test else ""
        note = (
            f"{cars.origin}: {len(cars.train) + len(cars.test)} cars{own}: too few for {_listed(asked.values())},"
            f" so split in proportion into {_listed(sizes)}"
        )
    return CarSplit(tuple(sorted(train)), tuple(sorted(reg)), tuple(sorted(test)), note)


def _shuffled(names: Sequence[str], generator: np.random.Generator) -> list[str]:
    order: list[int] = generator.permutation(len(names)).tolist()
    return [names[i] for i in order]


def _share(available: int, asked: tuple[int, ...]) -> list[int]:
    """Return the requested sizes, or shares in proportion to them if they add up to more than is available.

    Shares are rounded down, at least 1; the remainder goes to the first split that has less than requested.
    """
    if sum(asked) <= available:
        return [*asked]
    sizes = [max(1, available * size // sum(asked)) for size in asked]
    while sum(sizes) > available:
        sizes[int(np.argmax(sizes))] -= 1
    for place, size in enumerate(asked):
        sizes[place] += min(size - sizes[place], available - sum(sizes))
    return sizes


def _listed(sizes: Iterable[int]) -> str:
    train, reg, test = sizes
    return f"{train} train, {reg} reg and {test} test"
