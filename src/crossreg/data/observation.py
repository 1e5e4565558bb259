"""Observation masks: which points of an input the model sees.

A mask observes exactly round(fraction · N) of the N points (at least one), the same for all
channels. With one seed, the mask of a smaller fraction lies inside the mask of a larger one.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray


def draw_mask(
    key: PRNGKeyArray, space: tuple[int, ...], observed_fraction: Float[Array, ""] | float
) -> Bool[Array, "*space"]:
    """One mask, True where the point is observed."""
    num_points = math.prod(space)
    num_observed = jnp.maximum(jnp.round(observed_fraction * num_points), 1)
    rank = jnp.argsort(jax.random.permutation(key, num_points))
    return (rank < num_observed).reshape(space)


def draw_masks(
    key: PRNGKeyArray, count: int, space: tuple[int, ...], observed_fraction: float
) -> Bool[Array, "count *space"]:
    """`count` masks; mask i depends on the key and on i alone."""
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(count))
    return jax.vmap(lambda k: draw_mask(k, space, observed_fraction))(keys)
