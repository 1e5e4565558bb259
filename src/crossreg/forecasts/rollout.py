"""Rollouts: feed a predictor its own output, and keep a predictive distribution at every lead."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, Shaped

from crossreg.data.pairs import Batch
from crossreg.errors import InputError, warn
from crossreg.forecasts.forecast import Forecast, Limits
from crossreg.forecasts.loop import Particles, State
from crossreg.forecasts.particles import Member, SurrogateStep, hidden_value_in, members_of, seen_in
from crossreg.nn.surrogate import Surrogate, Trained
from crossreg.predictors.predictor import Predictor

# Where the predictor has no limits, they are the range of each first field and this many of its widths beyond.
_WIDTHS = 10.0


def rollout(
    predictor: Surrogate | Trained | Predictor,
    x0: Shaped[Array | np.ndarray, "..."] | Batch,
    steps: int,
    particles: int = 60,
    *,
    key: PRNGKeyArray | Key[Array, "..."] | None = None,
    leads: Sequence[int] | None = None,
    mask: Shaped[Array | np.ndarray, "..."] | None = None,
    hide_own: bool = True,
    redraw: bool = False,
    limits: Limits | None = None,
    names: Sequence[str] = (),
) -> Forecast:
    r"""Forecast fields many steps ahead.

    A particle is one model instance ω (a member of an ensemble, with its noise) that is held fixed along the whole
    rollout, since a wrong model errs in the same way at each step. Each step reads the particle's own mean. The
    forecast at a lead is the mixture of all particles' Gaussians. After one step it is what
    [`predict`][crossreg.predict] gives with the same key and as many samples.

    Args:
        predictor: A surrogate, a `Fit` or a `Run`; an ensemble; a recalibrated predictor; or any function of a batch
            and keys that returns a mixture. Its own number of samples is ignored.
        x0: The fields to start from, (batch, channel, *space), in the units of the data. Hidden points are 0, or the
            offset of their channel, as in a batch of the data. A batch brings its own mask.
        steps: The number of steps ahead.
        particles: The number of particles, of all members together, at least 2. All members have equally many, so that
            it is rounded up to a multiple of their number. A network without noise inside has one, and a function at
            most as many as its mixtures have components; of fewer, they follow evenly spaced components.
        key: One key, or one key for each trajectory, whose noise then does not depend on the rest of the batch. The
            default is `jax.random.key(0)`.
        leads: The leads to keep, between 1 and `steps`; by default all of them. Memory grows with their number.
        mask: The observed points of the inputs: of all fields, (*space); of each field, (batch, 1, *space); or of each
            field at each step, (step, batch, 1, *space). In place of 1, the last two may have the number of channels.
            The default is the mask of the batch, if `x0` is one; else the run's, for a `Fit` or a `Run`; and otherwise
            every point. Where a batch has some channels of a point, those are seen.
        hide_own: Whether the mask also hides points of the network's own predictions, as it hides points of the fields
            in training. If not, it hides points of `x0` alone.
        redraw: Whether each step draws a new model instance. Errors of successive steps are then independent and
            average out, so the forecast is overconfident wherever a model errs in the same way at each step.
        limits: The range that particles are held to: in place of a prediction beyond it, the next step reads its end.
            A `Fit`, a `Run` and what `fit_growth` returns know theirs; so does any predictor with `limits`. For others
            the default is the range of a trajectory's own field of `x0`, widened by ten of its widths on both sides.
        names: Names of the channels.

    Returns:
        The forecast; its `lost` counts the particles that have been far beyond the limits by each lead. There is a
        warning where most of them are, in the end.

    Raises:
        InputError: If the predictor cannot step these fields, or an argument is out of range. A `Fit` and a `Run` also
            refuse another grid than that of their data, and values far outside the range of the inputs of train.

    Example:
        ```python
        first = data.test[:: data.test.horizon]  # the first field of each test trajectory
        forecast = xr.rollout(result, first, steps=100, leads=[1, 10, 100])
        forecast.mean, forecast.std  # (3, batch, channel, *space) each
        ```
    """
    is_known = isinstance(predictor, KnowsItsFields)
    known = predictor.known_of(x0) if is_known else Known()
    if mask is None and not isinstance(x0, Batch):
        mask = known.mask
        if mask is None and known.masking:
            raise InputError(f"mask: none serves all fields ({known.masking}); give a `mask`, or a batch of the data")
    how: dict[str, Any] = {"key": key, "leads": leads, "hide_own": hide_own, "redraw": redraw, "hidden": known.hidden}
    how |= {"mask": mask, "limits": known.limits if limits is None else limits, "names": names or known.names}
    forecast = follow(predictor, x0, steps, particles, **how)
    if 2 * (lost := int(forecast.lost[-1])) > forecast.lost_at.size:
        warn(f"this is no forecast: of {forecast.lost_at.size} particles, {lost} are far out of range or not finite")
    return forecast


class Known(NamedTuple):
    """What is known of the fields that a forecast starts from.

    Attributes:
        limits: The range that particles are held to.
        mask: The mask of the run.
        masking: Which points are observed, in words, where there are masks, and none is that of the run.
        hidden: What stands at hidden points.
        names: The names of the channels.
    """

    limits: Limits | None = None
    mask: Bool[Array | np.ndarray, "*space"] | None = None
    masking: str = ""
    hidden: Float[Array, "#channel *ones"] | None = None
    names: tuple[str, ...] = ()


@runtime_checkable
class KnowsItsFields(Protocol):
    """A trained model that knows the fields it was trained on: a `Fit` or a `Run`."""

    def known_of(self, x0: Any) -> Known:
        """Return what is known of fields to start from; raise InputError where they cannot be those of the model."""
        ...


def follow(
    predictor: Surrogate | Trained | Predictor,
    x0: Shaped[Array | np.ndarray, "..."] | Batch,
    steps: int,
    particles: int,
    *,
    leads: Sequence[int] | None = None,
    **how: Any,
) -> Forecast:
    """Return what `rollout` does, of a predictor with no more of its own than limits, and without a warning."""
    leads = checked_leads(leads, steps, particles)
    return start(predictor, x0, steps, particles, **how).to(leads)


def start(
    predictor: Surrogate | Trained | Predictor,
    x0: Shaped[Array | np.ndarray, "..."] | Batch,
    steps: int,
    particles: int,
    *,
    key: PRNGKeyArray | Key[Array, "..."] | None = None,
    mask: Shaped[Array | np.ndarray, "..."] | None = None,
    hide_own: bool = True,
    redraw: bool = False,
    limits: Limits | None = None,
    names: Sequence[str] = (),
    hidden: Float[Array, "#channel *ones"] | None = None,
) -> Particles:
    """Return the particles of a forecast at its start. Arguments are those of `rollout`.

    `hidden` is what stands at hidden points of the fields; by default it is found in `x0`.
    """
    batch = _start(x0)
    masks = None if mask is None else _masks(batch, mask, steps if hide_own else 1)
    # Windows of data, which are batches, may have a field of which nothing was measured.
    if masks is not None and not isinstance(x0, Batch) and not masks.any(axis=tuple(range(2, masks.ndim))).all():
        raise InputError("mask: hides every point of a field; expected at least one 1 (observed) at each step")
    key = jax.random.key(0) if key is None else key
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise InputError("key: expected a key, as `jax.random.key(0)` is one, or one for each field")
    if key.ndim and key.shape != batch.x.shape[:1]:
        raise InputError(f"key has shape {key.shape}: expected one key, or one for each of {batch.x.shape[0]} fields")
    keys = key if key.ndim else jax.random.split(key, batch.x.shape[0])
    members, recalibrate = members_of(predictor, max(particles, 2), keys, batch)
    if particles == 1 and sum(len(member.keys) for member in members) > 1:
        raise InputError("particles is 1: one particle has no spread; expected at least 2 of a model with noise inside")
    if hidden is None:
        hidden = _hidden_in(batch, masks, members)
    if masks is None and not bool(batch.mask.all()):
        masks = batch.mask[None]
        if hidden is not None:  # some channels may have been measured at a hidden point
            masks = seen_in(batch.x, batch.mask, (hidden, jnp.ones_like(hidden)))[None]
    if hidden is not None:
        members = [member.with_hidden(hidden) for member in members]
    limits = _limits_of(predictor, batch.x) if limits is None else limits
    shapes = batch.x.shape[1:2], batch.x.shape[:2]
    if any(np.shape(side) not in shapes for side in limits) or not np.all(limits[0] <= limits[1]):
        raise InputError(f"limits: expected numbers of shape {shapes[0]} or {shapes[1]}, no low end above its high end")
    ones = (1,) * (batch.x.ndim - 2)
    sides = [jnp.asarray(side, batch.x.dtype) for side in limits]
    sides = [jnp.broadcast_to(side.reshape(*side.shape, *ones), (*batch.x.shape[:2], *ones)) for side in sides]
    states = [State.at(member, batch.x) for member in members]
    return Particles(members, recalibrate, states, masks, limits, sides, hide_own, redraw, tuple(names))


def _hidden_in(batch: Batch, masks, members: Sequence[Member]) -> Float[Array, "#channel *ones"] | None:
    """Return what stands at the hidden points of the fields to start from, where these tell.

    A network has offsets of its own, which serve fields that come with a mask and may be whole.
    """
    num_dims = batch.x.ndim - 2
    zero = jnp.zeros((1,) * (num_dims + 1))
    offsets = [zero if member.units is None else member.units[0] for member in members]
    is_network = isinstance(members[0].step, SurrogateStep)
    if not bool(batch.mask.all()):
        return hidden_value_in(batch.x, batch.mask, offsets)
    if masks is None or is_network or members[0].units is not None:
        return None
    return hidden_value_in(batch.x, masks[0], [])


def _limits_of(predictor: Any, x0: Float[Array, "batch channel *space"]) -> Limits:
    """Return the limits that a predictor knows, or else the widened range of each trajectory's first field."""
    known = getattr(predictor, "limits", None)
    if isinstance(known, Limits):
        return known
    fields = np.asarray(x0)
    each = [Limits.around(fields[row : row + 1], _WIDTHS) for row in range(len(fields))]
    return Limits(*(np.stack(side) for side in zip(*each, strict=True)))


def checked_leads(leads: Sequence[int] | None, steps: int, particles: int) -> tuple[int, ...]:
    """Return the leads to keep, by default all of them; raise InputError where nothing can be forecast."""
    for name, number in (("steps", steps), ("particles", particles)):
        if not _is_whole(number):
            raise InputError(f"{name} is {number}: must be a whole number")
        if number < 1:
            raise InputError(f"{name} is {number}: must be at least 1")
    kept = tuple(range(1, steps + 1)) if leads is None else tuple(leads)
    are_whole = all(map(_is_whole, kept))
    if not kept or not are_whole or list(kept) != sorted(set(kept)) or kept[0] < 1 or kept[-1] > steps:
        said = ",".join(map(str, kept)) or "empty"
        raise InputError(f"leads is {said}: must be increasing whole numbers from 1 to the number of steps, {steps}")
    return tuple(map(int, kept))


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _start(x0) -> Batch:
    """Return the fields to start from as a batch, without a mask channel."""
    if isinstance(x0, Batch):
        if x0.at is not None:
            raise InputError("rollout: these pairs are not steps in time; expected a batch of fields on a grid")
        return x0._replace(x=x0.x[:, : x0.y.shape[1]])
    x = jnp.asarray(x0)
    if x.ndim < 3:
        raise InputError(f"x0 has shape {x.shape}; expected (batch, channel, *space)")
    if not x.size:
        raise InputError(f"x0 is empty: it has shape {x.shape}")
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise InputError("x0 is complex; expected real fields")
    x = x.astype(jnp.result_type(x.dtype, jnp.float32))  # a step of whole numbers would have none to go to
    if not bool(jnp.isfinite(x).all()):
        raise InputError("x0 is not finite everywhere; set hidden points to 0, or to the offset of their channel")
    seen = jnp.ones((x.shape[0], 1, *x.shape[2:]), bool)
    return Batch(x, x, seen, jnp.ones((x.shape[0], *(1,) * (x.ndim - 1)), x.dtype))


def _masks(batch: Batch, mask, steps: int) -> Bool[Array, "step batch #channel *space"]:
    """Return the masks of the inputs of the first steps, the last of which serves all further ones."""
    shape = batch.mask.shape
    if not np.isin(mask, (0, 1)).all():
        raise InputError("mask: expected only 0 (hidden) and 1 (observed)")
    masks = jnp.asarray(mask, bool)
    if masks.shape == shape[2:]:
        masks = masks[None, None]
    if masks.ndim == len(shape):
        masks = masks[None]
    wanted, channels = (steps, *shape), batch.x.shape[1]
    allowed = [(1, steps), (1, shape[0]), (1, channels), *((1, size) for size in shape[2:])]
    if masks.ndim != len(wanted) or any(size not in sizes for size, sizes in zip(masks.shape, allowed, strict=True)):
        raise InputError(f"mask has shape {jnp.shape(mask)}; expected {shape[2:]}, {shape} or {wanted}")
    return jnp.broadcast_to(masks, (masks.shape[0], shape[0], masks.shape[2], *shape[2:]))
