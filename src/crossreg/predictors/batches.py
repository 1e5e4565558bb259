"""Iterate over all pairs of a split in batches of one shape."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray

from crossreg.data.files.streamed import evenly_spaced
from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.errors import InputError

NOTHING_SCORED = "the split has no pairs with a point that is scored"
# Points per compiled call. Bounds memory and keeps 30 samples of them in a CPU's cache; changes no number, since each
# pair has its own noise.
_POINTS_PER_CALL = {"cpu": 2**12, "accelerator": 2**17}


def batches_of(
    pairs: AbstractPairs, *, key: PRNGKeyArray, most_pairs: int | None = None, steps: range | None = None
) -> Iterator[tuple[Batch, Key[Array, " batch"], int]]:
    """Yield all pairs of a split in batches of one shape.

    Args:
        pairs: The split.
        key: The key that the pairs' own keys are folded from, so that a pair's noise does not depend on its batch.
        most_pairs: At most this many pairs, evenly spaced.
        steps: Of those, only pairs at these steps of their rows.

    Yields:
        A batch, a key for each of its pairs, and how many of its pairs count; the others are padding.
    """
    # `num_rows` is fetched before it is multiplied: a product on the device would wait for all queued work.
    numbers = evenly_spaced(int(pairs.num_rows) * pairs.pairs_per_row, most_pairs)
    in_all = len(numbers)
    if steps is not None:
        numbers = numbers[np.isin(numbers % pairs.pairs_per_row, steps)]
    num_pairs = len(numbers)
    if not num_pairs:
        raise InputError(NOTHING_SCORED)
    on_cpu = jax.default_backend() == "cpu"
    points_per_call = _POINTS_PER_CALL["cpu" if on_cpu else "accelerator"]
    chunk = max(1, points_per_call // math.prod(pairs.field_shape))
    if on_cpu:
        # A power of two where few pairs are left: splits of similar size share a compiled program. On an accelerator
        # compiling a further program takes longer than scoring the padding.
        chunk = min(chunk, 1 << (in_all - 1).bit_length())
    starts = range(0, num_pairs, chunk)
    # Padded with the last pair, and gathered outside of the predictor's program: one program serves all chunks.
    indices = [numbers[np.minimum(np.arange(start, start + chunk), num_pairs - 1)] for start in starts]
    for start, index, ready in zip(starts, indices, _held(pairs, indices), strict=True):
        yield *_gather(ready, key, jnp.asarray(index)), min(chunk, num_pairs - start)


def _held(pairs: AbstractPairs, indices: Sequence[Int[np.ndarray, " batch"]]) -> Iterator[AbstractPairs]:
    """Yield the pairs with each batch in memory; of streamed data, the next batch is read meanwhile."""
    if not pairs.in_files:
        yield from (pairs for _ in indices)
        return
    with ThreadPoolExecutor(1) as pool:
        futures = deque(pool.submit(pairs.hold, index, len(index)) for index in indices[:1])
        for following in [*indices[1:], None]:
            if following is not None:
                futures.append(pool.submit(pairs.hold, following, len(following)))
            yield futures.popleft().result()


@eqx.filter_jit
def _gather(pairs: AbstractPairs, key: PRNGKeyArray, index: Int[Array, " batch"]) -> tuple[Batch, Key[Array, " batch"]]:
    return pairs.gather(index), jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
