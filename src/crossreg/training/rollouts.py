r"""The loss of rollouts, $\frac1K \sum_{k=1}^K \mathcal L$ over the leads k, and the windows of data for it.

`train_step` and `reg_step` take it in the last part of a training (`step.py`).
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from crossreg.data.pairs import AbstractPairs
from crossreg.forecasts.particles import SurrogateStep, affine_of, seen_in, standardized_fields
from crossreg.nn.kernels import ComputePath
from crossreg.nn.surrogate import Surrogate, sample_keys
from crossreg.objectives import RegLoss
from crossreg.training.parallel import Share


class Windows(NamedTuple):
    """Stretches of trajectories, and the keys of the particles that forecast them."""

    x: Float[Array, "lead batch in *space"]
    y: Float[Array, "lead batch channel *space"]
    mask: Bool[Array, "lead batch 1 *space"]
    weight: Float[Array, "lead batch #channel *space"]
    keys: Key[Array, "particle batch"]


def draw_windows(
    pairs: AbstractPairs,
    step_keys: tuple[PRNGKeyArray, PRNGKeyArray],
    horizon: int,
    size: int,
    particles: int,
    share: Share,
) -> Windows:
    """Draw the stretches of a step's batch, `horizon` pairs each, or this device's part of them."""
    batch_key, noise_key = step_keys
    first, mask_key = pairs.draw(batch_key, size, horizon)
    numbers = share.numbers(size)
    place = jnp.minimum(numbers, size - 1)
    index = first[place] + jnp.arange(horizon)[:, None]
    mask_keys = jax.random.split(mask_key, (horizon, size))[:, place]
    batch = pairs.gather(index.ravel(), mask_key=mask_keys.ravel())
    x, y, mask, weight, _ = jax.tree.map(lambda array: array.reshape(*index.shape, *array.shape[1:]), batch)
    weight = weight * (numbers < size).reshape(-1, *(1,) * (weight.ndim - 2))
    return Windows(x, y, mask, weight, sample_keys(jax.random.split(noise_key, size)[place], particles))


def rollout_loss(
    model: Surrogate, windows: Windows, objective: RegLoss, path: ComputePath, share: Share
) -> Float[Array, ""]:
    r"""Return $\frac1K \sum_{k=1}^K \mathcal L$ of the mixtures at the leads k of forecasts.

    For the gradient, the particles at each lead are kept, and what a step computes is computed again.
    """
    x, y, mask, weight, keys = windows
    network = dataclasses.replace(model, units=None, growth=None)
    advance = SurrogateStep(network, x.shape[2] > y.shape[2], path)
    units, fields = affine_of(model, y.ndim - 3), x[:, :, : y.shape[2]]
    start, truth = (standardized_fields(u, units) for u in (fields[0], y))
    number = jnp.arange(keys.shape[0])

    @jax.checkpoint
    def to_next(particles, at_lead):
        lead, y, mask, weight = at_lead
        mixture = advance(particles, keys, number, mask)
        grown = mixture if model.growth is None else model.growth(mixture, lead)
        return mixture.means, share.of(objective(grown, y, weight), weight)

    particles = jnp.broadcast_to(start, (len(number), *start.shape))
    leads = jnp.arange(1, y.shape[0] + 1)
    return jnp.mean(jax.lax.scan(to_next, particles, (leads, truth, seen_in(fields, mask, units), weight))[1])
