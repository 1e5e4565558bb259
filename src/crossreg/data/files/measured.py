"""Splits of a user's files of which nothing was measured: found before anything is trained on them."""

import math

import jax.numpy as jnp
import numpy as np

from crossreg.data.files.streamed import StreamedPairs, hold
from crossreg.data.formats.source import SAMPLED_BYTES
from crossreg.data.pairs import AbstractPairs, Data, Pairs
from crossreg.errors import InputError

# Values that are looked at together.
_VALUES = 2**20


def check_measured(data: Data, where: str) -> None:
    """Refuse data of which a split has no measured target, no input of which anything is seen, or no pair of both."""
    for name in ("train", "reg", "test"):
        if missing := unmeasured(getattr(data, name)):
            why = "every value is missing or hidden by the file's mask"
            if missing == ["pair"]:
                why = "where something of an input is there, all of its target is missing"
            raise InputError(
                f"{where}: no {' and no '.join(missing)} of {name} was measured: {why}; give other data, or another"
                " split of them"
            )


def unmeasured(pairs: AbstractPairs) -> list[str]:
    """Return which of `input` and `target` no pair of a split has; `pair` if none has both, and nothing if one has.

    Pairs are looked at until one with both was found, in most data among the first. Large splits that stay in their
    files are not read for it, and an empty split lacks nothing.
    """
    count = int(pairs.num_pairs)
    is_whole = isinstance(pairs, Pairs) and not pairs.has_gaps and pairs.observed is None
    is_large = isinstance(pairs, StreamedPairs) and count * pairs.reader.pair_bytes > SAMPLED_BYTES
    if is_whole or is_large or not count or not isinstance(pairs, Pairs | StreamedPairs):
        return []
    missing = {"input": True, "target": True, "pair": True}
    chunk = max(1, _VALUES // math.prod(pairs.field_shape))
    for start in range(0, count, chunk):
        # The last pair fills up: a batch of another size would be compiled for.
        numbers = np.minimum(np.arange(start, start + min(chunk, count)), count - 1)
        batch = hold(pairs, numbers, len(numbers)).gather(jnp.asarray(numbers))
        each = (np.asarray(values).reshape(len(numbers), -1) > 0 for values in (batch.mask, batch.weight))
        seen, counts = (values.any(axis=1) for values in each)
        missing["input"] &= not seen.any()
        missing["target"] &= not counts.any()
        missing["pair"] &= not (seen & counts).any()
        if not missing["pair"]:
            return []
    return [name for name in ("input", "target") if missing[name]] or ["pair"]
