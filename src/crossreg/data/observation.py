"""Observation masks: which points of an input the model sees. Masks are drawn here, and applied here.

A mask observes exactly round(fraction · N) of the N points (at least one), the same for all channels. With one seed,
the mask of a smaller fraction lies inside the mask of a larger one.
"""

import functools
import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from crossreg.config import DataConfig
from crossreg.config.settings import MaskPer
from crossreg.data.keys import MASK_STREAM


def mask_key_of(config: DataConfig, number: int) -> PRNGKeyArray:
    """Return the key of the masks of split `number`. One mask per run serves all splits; otherwise each has its own."""
    key = jax.random.fold_in(jax.random.key(config.mask_seed), MASK_STREAM)
    return key if config.mask_per == "run" else jax.random.fold_in(key, number)


def _observe(key: PRNGKeyArray, space: tuple[int, ...], num_observed: Float[Array, ""]) -> Bool[Array, "*space"]:
    rank = jnp.argsort(jax.random.permutation(key, math.prod(space)))
    return (rank < num_observed).reshape(space)


def _num_observed(space: tuple[int, ...], observed_fraction: Float[Array, ""] | float) -> Float[Array, ""]:
    return jnp.maximum(jnp.round(observed_fraction * math.prod(space)), 1)


def draw_mask(
    key: PRNGKeyArray, space: tuple[int, ...], observed_fraction: Float[Array, ""] | float
) -> Bool[Array, "*space"]:
    """Draw one mask, True where the point is observed."""
    return _observe(key, space, _num_observed(space, observed_fraction))


@functools.partial(jax.jit, static_argnums=2)
def _observe_all(key, numbers, space: tuple[int, ...], num_observed) -> Bool[Array, "count *space"]:
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers)
    return jax.vmap(lambda k: _observe(k, space, num_observed))(keys)


def masks_of(
    key: PRNGKeyArray, numbers: Int[Array, " count"], space: tuple[int, ...], observed_fraction: float
) -> Bool[Array, "count *space"]:
    """Draw the masks with these numbers; mask i depends on the key and on i alone."""
    # The number of points is found outside of the compiled part, where the fraction is not yet rounded to float32.
    return _observe_all(key, numbers, space, _num_observed(space, observed_fraction))


def masking_in_words(observed_fraction: float, mask_per: MaskPer, *, has_gaps: bool) -> str:
    """Say which points of an input are observed."""
    if observed_fraction == 1:
        return f"every point {'that was measured ' * has_gaps}is observed"
    owners = {"run": "one mask for all pairs", "step": "new masks at each step of training"}
    masks = owners.get(mask_per, f"a mask per {mask_per}")
    gaps = "; values that are missing are hidden too" * has_gaps
    return f"{100 * observed_fraction:.3g}% of the points are observed, with {masks}{gaps}"


def apply_masks(
    x: Float[Array, "batch channel *space"],
    y: Float[Array, "batch channel *space"],
    mask: Bool[Array, "batch 1 *space"],
    counts: Float[Array, "batch *one"],
    *,
    hidden: float | Float[Array, "channel *ones"] | None,
    has_gaps: bool,
    mask_channel: bool,
    score_on: Literal["all", "observed"],
    target_mask: Bool[Array, "batch 1 *space"] | None,
) -> tuple[
    Float[Array, "batch in *space"],
    Float[Array, "batch channel *space"],
    Bool[Array, "batch 1 *space"],
    Float[Array, "batch #channel *#space"],
]:
    """Hide what is not observed from inputs, and leave targets out that are not scored.

    Args:
        x: inputs; with `has_gaps`, missing values are NaN.
        y: targets.
        mask: the points of the inputs that are observed.
        counts: 1 for pairs that count, 0 for padding.
        hidden: the value at hidden points, which the network reads as 0; None for 0 itself.
        has_gaps: whether `x` and `y` may have missing values.
        mask_channel: whether the mask is appended to the inputs as a channel.
        score_on: whether all points of the targets are scored, or those observed in the input.
        target_mask: the points of the targets that the files' own mask observes, if they have one.

    Returns:
        The inputs, the targets, the points at which all channels are observed, and the weights of the targets' points.
    """
    there = mask
    if has_gaps:
        # The network sees the measured channels of a point; the point is observed if all of them were measured.
        mask = mask & jnp.all(jnp.isfinite(x), axis=1, keepdims=True)
        counts = counts * jnp.isfinite(y)
        x, y = (jnp.where(jnp.isfinite(field), field, 0.0 if hidden is None else hidden) for field in (x, y))
    x = x * there.astype(x.dtype) if hidden is None else jnp.where(there, x, hidden)
    seen = mask.astype(x.dtype)
    if mask_channel:
        x = jnp.concatenate([x, jnp.broadcast_to(seen, (x.shape[0], 1, *x.shape[2:]))], axis=1)
    if score_on == "observed":
        counts = counts * seen
        if target_mask is not None:  # what the files hide at the target's own time is not scored either
            counts = counts * target_mask
    return x, y, mask, counts
