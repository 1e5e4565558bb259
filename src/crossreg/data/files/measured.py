"""Splits of own files of which nothing was measured: found before anything is trained on them."""

import math

import numpy as np

from crossreg.data.files.streamed import StreamedPairs, hold
from crossreg.data.pairs import AbstractPairs, Data, Pairs
from crossreg.errors import InputError

# Values that are looked at together.
_VALUES = 2**20


def check_measured(data: Data, where: str) -> None:
    """Refuse data of which a split has no measured target, or no input of which anything is seen."""
    for name in ("train", "reg", "test"):
        if missing := unmeasured(getattr(data, name)):
            raise InputError(
                f"{where}: no {' and no '.join(missing)} of {name} was measured: every value is missing or hidden by"
                " the file's mask; give other data, or another split of them"
            )


def unmeasured(pairs: AbstractPairs) -> list[str]:
    """Return which of inputs and targets no pair of a split has; an empty split lacks nothing.

    Pairs are looked at until both were found, in most data among the first.
    """
    count = int(pairs.num_pairs)
    is_whole = isinstance(pairs, Pairs) and not pairs.has_gaps and pairs.observed is None
    if is_whole or not count or not isinstance(pairs, Pairs | StreamedPairs):
        return []
    missing = {"input": True, "target": True}
    chunk = max(1, _VALUES // math.prod(pairs.field_shape))
    for start in range(0, count, chunk):
        # The last pair fills up: a batch of another size would be compiled for.
        numbers = np.minimum(np.arange(start, start + min(chunk, count)), count - 1)
        batch = hold(pairs, numbers, len(numbers)).gather(numbers)  # pyright: ignore[reportArgumentType]
        missing["input"] &= not bool(batch.mask.any())
        missing["target"] &= not bool((batch.weight > 0).any())
        if not any(missing.values()):
            break
    return [name for name, is_missing in missing.items() if is_missing]
