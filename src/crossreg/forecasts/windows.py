"""Windows: stretches of held-out trajectories, with a forecast of each and the truth at its leads."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from crossreg.data.files.streamed import evenly_spaced
from crossreg.data.pairs import AbstractPairs, GridPairs
from crossreg.errors import InputError
from crossreg.forecasts.forecast import Forecast
from crossreg.forecasts.particles import affine_of, hidden_value, seen_in
from crossreg.forecasts.rollout import checked_leads, start
from crossreg.nn.surrogate import Surrogate, Trained
from crossreg.predictors.predictor import Predictor

# Values of all particles at all leads that are kept at a time: 1 GiB of them, and their variances.
_MOST_VALUES = 2**26


class Window(NamedTuple):
    """Forecasts of some windows.

    Attributes:
        forecast: Their forecast, with the windows as its batch.
        truth: The fields at its leads.
        weight: 1 where a point counts.
        whole: Whether every value of a field of the truth is known, scored or not.
        start: The fields that the forecast starts from, as the network sees them, which persistence repeats.
    """

    forecast: Forecast
    truth: Float[Array, "lead batch channel *space"]
    weight: Float[Array, "lead batch #channel *space"]
    whole: Bool[Array, "lead batch"]
    start: Float[Array, "batch channel *space"]


def first_pairs(pairs: AbstractPairs, horizon: int, most: int | None = None) -> Int[np.ndarray, " window"]:
    """Return the numbers of the first pairs of windows that do not overlap.

    Args:
        pairs: The split.
        horizon: Steps of each window.
        most: At most so many windows, evenly spaced; by default all.

    Raises:
        InputError: If the trajectories are shorter than a window.
    """
    if horizon < 1:
        raise InputError(f"horizon is {horizon}: must be at least 1")
    length = pairs.pairs_per_row
    if length < horizon:
        raise InputError(f"rollouts of {horizon} steps need trajectories of at least as many; these have {length}")
    first = np.arange(int(pairs.num_rows))[:, None] * length + np.arange(0, length - horizon + 1, horizon)
    return first.ravel()[evenly_spaced(first.size, most)]


def forecasts_of(
    predictor: Surrogate | Trained | Predictor,
    pairs: AbstractPairs,
    leads: Sequence[int],
    steps: int,
    *,
    first: Int[np.ndarray, " window"],
    particles: int,
    key: PRNGKeyArray,
    progress: Callable[[int], None] | None = None,
    in_parts: bool = False,
    **how: Any,
) -> Iterator[Window]:
    """Forecast windows of a split, as many at a time as memory is meant for.

    Args:
        predictor: A surrogate, a `Fit`, a `Run` or any predictor.
        pairs: The split. Its masks hide the forecast's inputs, each at its own time.
        leads: The leads to keep.
        steps: How many steps to go.
        first: The number of the first pair of each window.
        particles: Particles of each forecast.
        key: The key that the windows' own keys are folded from, so that none depends on its companions.
        progress: Called after each part with the number of windows in it.
        in_parts: Whether a window may come in parts, of some leads each, where all of them are too large for memory.
        **how: Further arguments of `rollout`.

    Yields:
        Windows, in order; with `in_parts`, leads of a window in order too.

    Raises:
        InputError: If there are no particles, or leads beyond the steps.
    """
    leads = checked_leads(leads, steps, particles)
    of_lead = math.prod(pairs.field_shape) * particles
    together = max(1, _MOST_VALUES // (of_lead * len(leads)))
    at_once = max(1, _MOST_VALUES // of_lead) if in_parts else len(leads)
    hidden = hidden_value(pairs, len(pairs.field_shape) - 1)
    for begin in range(0, len(first), together):
        own = first[begin : begin + together]
        batch = pairs[own]
        channels = batch.y.shape[1]
        # In the units of the data: those of a predictor may be others.
        own_masks = steps if (pairs.run_mask is None or pairs.may_have_gaps) and how.get("hide_own", True) else 1
        units = affine_of(pairs, batch.x.ndim - 2)
        inputs = (pairs[own + step] for step in range(own_masks))
        mask = jnp.stack([seen_in(at.x[:, :channels], at.mask, units) for at in inputs])
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.asarray(own))
        followed = start(predictor, batch, steps, particles, key=keys, mask=mask, hidden=hidden, **how)
        for first_lead in range(0, len(leads), at_once):
            part = leads[first_lead : first_lead + at_once]
            targets = [pairs[own + lead - 1] for lead in part]
            truth, weight = (jnp.stack([getattr(t, name) for t in targets]) for name in ("y", "weight"))
            whole = jnp.stack([_is_whole(pairs, own + lead - 1) for lead in part])
            yield Window(followed.to(part), truth, weight, whole, batch.x[:, :channels])
        if progress is not None:
            progress(len(own))


def _is_whole(pairs: AbstractPairs, numbers: Int[np.ndarray, " batch"]) -> Bool[Array, " batch"]:
    """Return whether every value of the targets of pairs is known."""
    if not (isinstance(pairs, GridPairs) and pairs.may_have_gaps):
        return jnp.ones(numbers.shape, bool)
    known = pairs.hold(numbers).known(jnp.asarray(numbers))
    return jnp.all(known, axis=tuple(range(1, known.ndim)))
