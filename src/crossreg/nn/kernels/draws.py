r"""Keys and a few normal numbers for each sample, site and step, at little cost.

The generator is JAX's own, Threefry-2×32, a hash of a counter under a key, with 13 of its 20 rounds (which pass all of
BigCrush: Salmon et al. 2011) and written out: JAX has a loop of small operations instead on a CPU, and a kernel of its
own on a GPU. Normals are those of Box and Muller, $\sqrt{-2\log u}\,\cos 2\pi v$. Where a number is wanted for every
point, `jax.random` is faster: it stores what this would compute again in every use.

Keys of another kind than JAX's default are passed on to `jax.random`.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUNDS = 13
Words = tuple[UInt32[Array, "..."], UInt32[Array, "..."]]


@functools.partial(jax.jit, static_argnames="rounds")  # traced once, not at each of the thirty places of a step
def threefry(key: Words, counter: Words, rounds: int = _ROUNDS) -> Words:
    """Two random words for every pair of counters."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for number in range(rounds):
        turn = _ROTATIONS[number // 4 % 2][number % 4]
        x = x + y
        y = x ^ ((y << turn) | (y >> (32 - turn)))
        if number % 4 == 3:
            block = number // 4 + 1
            x, y = x + schedule[block % 3], y + schedule[(block + 1) % 3] + jnp.uint32(block)
    return x, y


def _words_of(key: PRNGKeyArray) -> Words | None:
    """The two words of a key of JAX's default kind."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or str(jax.random.key_impl(key)) != "threefry2x32":
        return None
    data = jax.random.key_data(key)
    return data[..., 0], data[..., 1]


def fold_in(key: PRNGKeyArray, number: int | Int[Array, ""]) -> PRNGKeyArray:
    """A key of its own for every number."""
    words = _words_of(key)
    if words is None:
        return jax.random.fold_in(key, number)
    mixed = threefry(words, (jnp.zeros_like(words[0]), jnp.full_like(words[1], number)))
    return jax.random.wrap_key_data(jnp.stack(mixed, axis=-1), impl="threefry2x32")


def normal(key: PRNGKeyArray, count: int, dtype=jnp.float32) -> Float[Array, " count"]:
    """Standard normal numbers, few for each key; none is further out than 5.9."""
    words = _words_of(key)
    if words is None or dtype != jnp.float32:
        return jax.random.normal(key, (count,), dtype)
    counter = jnp.arange(count, dtype=jnp.uint32)
    # Not 0 in the first word, where `fold_in` has it: the same blocks would be keys and noise.
    u, v = threefry(words, (jnp.full_like(counter, 1), counter))
    # 24 bits, as many as a float32 holds, and never 0.
    radius = jnp.sqrt(-2 * jnp.log(((u >> 8).astype(dtype) + 0.5) * 2.0**-24))
    drawn = radius * jnp.cos((v >> 8).astype(dtype) * (2 * math.pi * 2.0**-24))
    # XLA would fuse all of this into whatever is multiplied by it, and draw the noise of a channel again at each of its
    # points. On a CPU a barrier does not keep it from that, but it fuses nothing through a matrix product, and one with
    # the identity costs next to nothing.
    if jax.default_backend() != "cpu":
        return jax.lax.optimization_barrier(drawn)
    return jnp.matmul(jnp.eye(count, dtype=dtype), drawn, precision="float32")
