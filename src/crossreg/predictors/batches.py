"""All pairs of a split, in batches of one shape, for whatever reads a predictor once over a whole split."""

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

# Points per compiled call: bounds memory, keeps 30 samples of them in a CPU's cache, and changes no number, since each
# pair has noise of its own.
_POINTS_PER_CALL = {"cpu": 2**12, "accelerator": 2**17}


def batches_of(
    pairs: AbstractPairs, *, key: PRNGKeyArray, most_pairs: int | None = None, steps: range | None = None
) -> Iterator[tuple[Batch, Key[Array, " batch"], int]]:
    """All pairs of a split in batches of one shape, a key for each pair, and how many of the batch count.

    With `most_pairs`, only so many of them, evenly spaced; with `steps`, of those only the ones that are at these steps
    of their rows.
    """
    # Fetched as it is: a product of it would wait behind all that the device still has to do.
    numbers = evenly_spaced(int(pairs.num_rows) * pairs.pairs_per_row, most_pairs)
    in_all = len(numbers)
    if steps is not None:
        numbers = numbers[np.isin(numbers % pairs.pairs_per_row, steps)]
    num_pairs = len(numbers)
    if not num_pairs:
        raise InputError("the split has nothing to score on")
    on_cpu = jax.default_backend() == "cpu"
    points_per_call = _POINTS_PER_CALL["cpu" if on_cpu else "accelerator"]
    chunk = max(1, points_per_call // math.prod(pairs.field_shape))
    if on_cpu:
        # A power of two where few are enough: splits of about one size share a program, and so do all steps of one. An
        # accelerator takes longer to compile a further program than to score a split that is filled up.
        chunk = min(chunk, 1 << (in_all - 1).bit_length())
    starts = range(0, num_pairs, chunk)
    # Filled up with the last pair and gathered outside: one program serves all chunks.
    indices = [numbers[np.minimum(np.arange(start, start + chunk), num_pairs - 1)] for start in starts]
    for start, index, ready in zip(starts, indices, _held(pairs, indices), strict=True):
        yield *_gather(ready, key, jnp.asarray(index)), min(chunk, num_pairs - start)


def _held(pairs: AbstractPairs, indices: Sequence[Int[np.ndarray, " batch"]]) -> Iterator[AbstractPairs]:
    """The pairs with those of each batch in memory; of data in files, the next ones are read meanwhile."""
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
