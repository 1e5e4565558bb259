"""Sets of cars, and which of them a run trains on, regularizes on and is scored on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crossreg.cars.meshes.surface import Surface
from crossreg.errors import InputError


@dataclass(frozen=True)
class CarSet:
    """The cars in a folder, by name; `read` gets one. `origin` says which folder, and in which layout.

    `test` is the release's own test part, empty where it has none; `train` is all the rest. Both are sorted.
    """

    origin: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    read: Callable[[str], Surface]


class CarSplit(NamedTuple):
    """Names of cars, sorted, no name in two places; `note` is a line to show where there are fewer than asked for."""

    train: tuple[str, ...]
    reg: tuple[str, ...]
    test: tuple[str, ...]
    note: str | None


def split_cars(
    cars: CarSet, *, train_size: int = 30, reg_size: int = 50, test_size: int = 60, seed: int = 0
) -> CarSplit:
    """Cars for each split, chosen by the seed.

    Test cars come from the release's own test part, and train and reg cars from the rest; a release without such a
    part gives all three. Where there are fewer cars than asked for, they are shared in proportion, at least one each.
    With one seed, the train cars of a smaller `train_size` are among those of a larger one, and the others stay.
    """
    asked = {"train": train_size, "reg": reg_size, "test": test_size}
    for name, size in asked.items():
        if size < 1:
            raise InputError(f"{name}_size {size}: expected at least 1 car")
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
    """What was asked for, or, where that is too much, shares in proportion that add up to what there is.

    Shares are rounded down, at least 1; what is left over goes to the first that has less than it asked for.
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
