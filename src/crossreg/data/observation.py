"""Observation masks: which points of an input the model sees.

A mask observes exactly round(fraction · N) of the N points (at least one), the same for all
channels. With one seed, the mask of a smaller fraction lies inside the mask of a larger one.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


def _observe(key: PRNGKeyArray, space: tuple[int, ...], num_observed: Float[Array, ""]) -> Bool[Array, "*space"]:
    rank = jnp.argsort(jax.random.permutation(key, math.prod(space)))
    return (rank < num_observed).reshape(space)


def _num_observed(space: tuple[int, ...], observed_fraction: Float[Array, ""] | float) -> Float[Array, ""]:
    return jnp.maximum(jnp.round(observed_fraction * math.prod(space)), 1)


def draw_mask(
    key: PRNGKeyArray, space: tuple[int, ...], observed_fraction: Float[Array, ""] | float
) -> Bool[Array, "*space"]:
    """One mask, True where the point is observed."""
    return _observe(key, space, _num_observed(space, observed_fraction))


@functools.partial(jax.jit, static_argnums=2)
def _observe_all(key, numbers, space: tuple[int, ...], num_observed) -> Bool[Array, "count *space"]:
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers)
    return jax.vmap(lambda k: _observe(k, space, num_observed))(keys)


def draw_masks(
    key: PRNGKeyArray, count: int, space: tuple[int, ...], observed_fraction: float
) -> Bool[Array, "count *space"]:
    """`count` masks; mask i depends on the key and on i alone."""
    return masks_of(key, jnp.arange(count), space, observed_fraction)


def masks_of(
    key: PRNGKeyArray, numbers: Int[Array, " count"], space: tuple[int, ...], observed_fraction: float
) -> Bool[Array, "count *space"]:
    """The masks of these numbers."""
    # The number of points is found outside of the compiled part, where the fraction is not yet rounded to float32.
    return _observe_all(key, numbers, space, _num_observed(space, observed_fraction))
