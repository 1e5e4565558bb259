r"""Keys and a few normal numbers for each sample, site and step, at little cost.

The generator is JAX's own, Threefry-2×32, a hash of a counter under a key, with 13 of its 20 rounds (13 pass all of
BigCrush: Salmon et al. 2011). It is written out here, where JAX runs a loop of small operations on a CPU, and a
separate kernel on a GPU. Normals follow Box and Muller, $\sqrt{-2\log u}\,\cos 2\pi v$. For a number at every point,
`jax.random` is faster: it stores the numbers, while these are computed again wherever they are used.

Keys that are not of JAX's default kind are passed on to `jax.random`.
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


@functools.partial(jax.jit, static_argnames="rounds")  # traced once, not thirty times for a step
def threefry(key: Words, counter: Words, rounds: int = _ROUNDS) -> Words:
    """Return two random words for every pair of counters."""
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
    """Return the two words of a key of JAX's default kind, None for other keys."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or str(jax.random.key_impl(key)) != "threefry2x32":
        return None
    data = jax.random.key_data(key)
    return data[..., 0], data[..., 1]


def fold_in(key: PRNGKeyArray, number: int | Int[Array, ""]) -> PRNGKeyArray:
    """Derive a key from a key and a number, another one for every number."""
    words = _words_of(key)
    if words is None:
        return jax.random.fold_in(key, number)
    mixed = threefry(words, (jnp.zeros_like(words[0]), jnp.full_like(words[1], number)))
    return jax.random.wrap_key_data(jnp.stack(mixed, axis=-1), impl="threefry2x32")


def normal(key: PRNGKeyArray, count: int, dtype=jnp.float32) -> Float[Array, " count"]:
    """Draw `count` standard normal numbers, of which none is beyond ±5.9."""
    words = _words_of(key)
    if words is None or dtype != jnp.float32:
        return jax.random.normal(key, (count,), dtype)
    counter = jnp.arange(count, dtype=jnp.uint32)
    # `fold_in` has 0 in the first word: with 0 here too, the same random blocks would serve as keys and as noise.
    u, v = threefry(words, (jnp.full_like(counter, 1), counter))
    # A float32 holds 24 bits; the half keeps u from being 0.
    radius = jnp.sqrt(-2 * jnp.log(((u >> 8).astype(dtype) + 0.5) * 2.0**-24))
    drawn = radius * jnp.cos((v >> 8).astype(dtype) * (2 * math.pi * 2.0**-24))
    # XLA would fuse all of this into the product with a field, and draw the noise of a channel again at each point. On
    # a CPU a barrier does not prevent that, but a matrix product does, and one with the identity costs next to nothing.
    if jax.default_backend() != "cpu":
        return jax.lax.optimization_barrier(drawn)
    return jnp.matmul(jnp.eye(count, dtype=dtype), drawn, precision="float32")
