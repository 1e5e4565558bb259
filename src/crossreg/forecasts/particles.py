r"""Particles: model instances that a rollout feeds with their own output.

Particle p is one model instance $\omega_p$: a member of an ensemble, with its noise and its dropout masks. It follows

$$ x^p_{k+1} = \mu(x^p_k; \omega_p), \qquad
   p(x_k) = \frac1P \sum_p \mathcal N(\mu^p_k, \sigma_{pred,p,k}^2 + \sigma_{gen,p,k}^2). $$

Only the mean is fed back. σ describes how far single points deviate, not how they deviate together: added as white
noise, it would excite scales that the field does not have. States are standardised, so that a large offset costs no
digits.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.errors import InputError
from crossreg.forecasts.forecast import components, evenly
from crossreg.nn.growth import LeadGrowth
from crossreg.nn.kernels import ComputePath
from crossreg.nn.surrogate import Surrogate, Trained, predict, predict_each, sample_keys, without_psi_noise
from crossreg.predictive.in_units import InUnits, Predictive, standardized_as
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.conformal import Conformal
from crossreg.predictors.ensemble import EnsemblePredictor, member_keys
from crossreg.predictors.grown import Grown
from crossreg.predictors.predictor import Predictor, SurrogatePredictor, as_predictor, with_components
from crossreg.predictors.temperature import Tempered

# Where a network sees its input: each channel by itself where some were not measured at a point.
Mask = Bool[Array, "batch #channel *space"] | None
# Offset o and scale s of the fields u = o + s z whose z is the state of a particle; None where they are the state.
Affine = tuple[Float[Array, "channel *ones"], Float[Array, "channel *ones"]] | None


class SurrogateStep(eqx.Module):
    """One step of a surrogate: particle p is its instance with the noise of key p. `hidden` stands at hidden points."""

    model: Surrogate
    reads_mask: bool = eqx.field(static=True)
    path: ComputePath = eqx.field(static=True, default="plain")
    hidden: Float[Array, "#channel *ones"] | float = 0.0

    def __call__(
        self,
        x: Float[Array, "particle batch channel *space"],
        keys: Key[Array, "particle batch"],
        numbers: Int[Array, " particle"],
        mask: Mask,
    ) -> Mixture:
        """Return the mixture whose component p is particle p, one step later."""
        if mask is not None:
            x = jnp.where(mask, x, self.hidden)
        if self.reads_mask:
            seen = jnp.ones_like(x[:, :, :1]) if mask is None else jnp.broadcast_to(_whole(mask), x[:, :, :1].shape)
            x = jnp.concatenate([x, seen.astype(x.dtype)], axis=2)
        return predict_each(self.model, x, keys, path=self.path)


class CallableStep(eqx.Module):
    """One step of any predictor: a particle follows a component of the mixtures that are predicted from its own state.

    Attributes:
        predictor: The predictor.
        chosen: The component of each particle.
        reads_mask: Whether the predictor reads a mask channel.
        units: Offset and scale of the states.
        hidden: What stands at hidden points, as a state.
        quiet: Whether the means are those under generalization noise alone, `instance_means`.
    """

    predictor: Predictor
    chosen: Int[Array, " particle"]
    reads_mask: bool = eqx.field(static=True)
    units: Affine = None
    hidden: Float[Array, "#channel *ones"] | float = 0.0
    quiet: bool = eqx.field(static=True, default=False)

    def __call__(
        self,
        x: Float[Array, "particle batch channel *space"],
        keys: Key[Array, "particle batch"],
        numbers: Int[Array, " particle"],
        mask: Mask,
    ) -> Mixture:
        """Return the mixture whose component p is particle p, one step later."""
        particles, size = x.shape[:2]
        seen = jnp.ones((size, 1, *x.shape[3:]), bool) if mask is None else mask
        x = jnp.where(seen, x, self.hidden)
        fields = in_fields_units(x, self.units).reshape(-1, *x.shape[2:])
        seen = jnp.tile(_whole(seen), (particles, *(1,) * (seen.ndim - 1)))
        inputs = jnp.concatenate([fields, seen.astype(x.dtype)], axis=1) if self.reads_mask else fields
        weight = jnp.ones((fields.shape[0], *(1,) * (fields.ndim - 1)), x.dtype)
        predictive = self.predictor(Batch(inputs, fields, seen, weight), keys.reshape(-1))
        mixture = _with_components(predictive)
        if isinstance(mixture, InUnits):
            mixture = standardized_as(mixture, mixture)
        row = jnp.arange(particles * size)

        def own(values: Float[Array, "component row *field"]) -> Float[Array, "particle batch *field"]:
            component = jnp.repeat(self.chosen[numbers] % values.shape[0], size)
            return values[component, row].reshape(particles, size, *values.shape[2:])

        means = mixture.instance_means if self.quiet else mixture.means
        assert means is not None  # some function returned them when the particles were made
        return Mixture(own(means), own(mixture.vars_predictive), own(mixture.vars_generalization))


class Member(NamedTuple):
    """Particles that share a network.

    Attributes:
        step: Takes one step of all these particles.
        quiet: Takes one step without the noise of ψ, that is, of the model instance ω alone; None where ψ has no noise.
        keys: The key of each particle's noise, for each trajectory.
        growth: How their mixture grows by lead; None where that was not learned.
        units: Offset and scale by which states are standardised; None where they are not.
        width: How many mixtures' components a step computes for each particle.
    """

    step: SurrogateStep | CallableStep
    quiet: SurrogateStep | CallableStep | None
    keys: Key[Array, "particle batch"]
    growth: LeadGrowth | None
    units: Affine
    width: int = 1

    def with_hidden(self, values: Float[Array, "#channel *ones"]) -> "Member":
        """Return the particles with these values, in the fields' units, at the points that a mask hides."""
        z = standardized_fields(values, self.units)
        step, quiet = (None if s is None else dataclasses.replace(s, hidden=z) for s in (self.step, self.quiet))
        return self._replace(step=step, quiet=quiet)


def _whole(mask: Bool[Array, "batch #channel *space"]) -> Bool[Array, "batch 1 *space"]:
    """Return the points at which all channels are seen."""
    return jnp.all(mask, axis=1, keepdims=True)


def affine_of(of: Surrogate | AbstractPairs, num_dims: int) -> Affine:
    """Return the offset and scale of the units of a model or of pairs."""
    return None if of.units is None else (of.units.offsets(num_dims), of.units.scales(num_dims))


def standardized_fields(u: Float[Array, "*shape"], units: Affine) -> Float[Array, "*shape"]:
    """Return the state z of a field u."""
    return u if units is None else (u - units[0]) / units[1]


def seen_in(fields: Float[Array, "..."], mask: Bool[Array, "..."], units: Affine) -> Bool[Array, "..."]:
    """Return which values of the inputs of a batch a network sees: at a point with a gap, the measured channels.

    Fields and the result have shape (*front, channel, *space), the mask one channel.

    Hidden values are 0 in the network's units. One that was measured, and is exactly 0 beside a gap, counts as hidden.
    """
    return mask | (standardized_fields(fields, units) != 0)


def hidden_value(of: Surrogate | AbstractPairs, num_dims: int) -> Float[Array, "#channel *ones"]:
    """Return what stands at hidden points of the fields of pairs, or of those that a model was trained on."""
    units = affine_of(of, num_dims)
    return jnp.zeros((1,) * (num_dims + 1)) if units is None else units[0]


def hidden_value_in(
    x: Float[Array, "batch channel *space"],
    mask: Bool[Array, "batch #channel *space"],
    known: Sequence[Float[Array, "#channel *ones"]],
) -> Float[Array, "#channel *ones"] | None:
    """Return what stands at the hidden points of fields, where at least one channel of each is hidden.

    It is the one of the `known` values that stands at most of them, or else the most frequent value of each channel;
    None where neither stands at all of them, since such fields are not hidden there.
    """
    fields, hidden = np.asarray(x), np.broadcast_to(~np.asarray(mask), x.shape)
    most_frequent = np.zeros((x.shape[1], *(1,) * (x.ndim - 2)), fields.dtype)
    for channel in range(x.shape[1]):
        values, counts = np.unique(fields[:, channel][hidden[:, channel]], return_counts=True)
        most_frequent[channel] = values[np.argmax(counts)] if counts.size else 0.0

    def places(values) -> int:
        there = (fields == np.asarray(values, fields.dtype)) & hidden
        at_points = there if mask.shape[1] == x.shape[1] else there.any(axis=1, keepdims=True)
        return int(there.sum()) if (at_points | np.asarray(mask)).all() else -1

    for values in (max(known, key=places, default=None), most_frequent):
        if values is not None and places(values) > 0:
            return jnp.asarray(values)
    return None


def in_fields_units(z: Float[Array, "*shape"], units: Affine) -> Float[Array, "*shape"]:
    """Return the field u = o + s z of a state."""
    return z if units is None else units[0] + units[1] * z


Recalibrate = Callable[[Any, Int[Array, " lead"]], Any]


def members_of(
    predictor: Surrogate | Trained | Predictor, particles: int, keys: Key[Array, " batch"], batch: Batch
) -> tuple[list[Member], Recalibrate]:
    """Return the particles of a predictor, and the function that recalibrates their mixture at each lead.

    Args:
        predictor: A surrogate, or any predictor.
        particles: The number of particles, of all members together. A network without noise inside has one.
        keys: A key for each trajectory. Particles are the samples that the predictor draws with these keys.
        batch: The fields that the rollout starts from, without a mask channel.

    Returns:
        The particles, grouped by the network that they share, and the function.

    Raises:
        InputError: If the predictor cannot read the fields, or its mixture has no components to follow.
    """
    if isinstance(predictor, Tempered | Conformal | Grown):
        members, inner = members_of(predictor.predictor, particles, keys, batch)
        if isinstance(predictor, Grown):
            return members, lambda mixture, leads: predictor.at_leads(inner(mixture, leads), leads)
        return members, lambda mixture, leads: predictor.recalibrate(inner(mixture, leads))
    if isinstance(predictor, EnsemblePredictor):
        each = -(-particles // len(predictor.members))
        members = [
            _surrogate_member(member.model, each, member_keys(number, keys), batch)
            for number, member in enumerate(predictor.members)
        ]
        return members, _unchanged
    predictor = as_predictor(predictor)
    if isinstance(predictor, SurrogatePredictor):
        return [_surrogate_member(predictor.model, particles, keys, batch)], _unchanged
    return [_callable_member(predictor, particles, keys, batch)], _unchanged


def _unchanged(mixture: Any, leads: Int[Array, " lead"]) -> Any:
    return mixture


def _surrogate_member(model: Surrogate, particles: int, keys: Key[Array, " batch"], batch: Batch) -> Member:
    """Return the particles of one surrogate, whose states are in the units of its network."""

    def reads(with_mask: bool) -> Any:
        return jax.eval_shape(
            lambda x: predict(model, x, key=jax.random.key(0), num_samples=1).means, _inputs(batch, with_mask)
        )

    reads_mask = _reads_mask(reads, batch)
    standard = dataclasses.replace(model, units=None, growth=None)
    quiet = without_psi_noise(standard)
    return Member(
        SurrogateStep(standard, reads_mask),
        None if quiet is None else SurrogateStep(quiet, reads_mask),
        sample_keys(keys, particles if model.is_stochastic else 1),
        model.growth,
        affine_of(model, batch.x.ndim - 2),
    )


def _callable_member(predictor: Predictor, particles: int, keys: Key[Array, " batch"], batch: Batch) -> Member:
    """Return the particles of any predictor; one prediction shows what its mixture is like."""
    first = jax.tree.map(lambda array: array[:1], batch)

    def reads(with_mask: bool) -> Any:
        x = _inputs(first, with_mask)
        return eqx.filter_eval_shape(lambda x: _with_components(predictor(first._replace(x=x), keys[:1])).means, x)

    reads_mask = _reads_mask(reads, first)
    seen = _with_components(predictor(first._replace(x=_inputs(first, reads_mask)), keys[:1]))
    units = (seen.offset, seen.scale) if isinstance(seen, InUnits) else None
    chosen = evenly(min(particles, seen.num_samples), seen.num_samples)
    same = jnp.broadcast_to(keys, (chosen.size, keys.shape[0]))  # all components come from one draw
    step = CallableStep(predictor, jnp.asarray(chosen), reads_mask, units)
    has_quiet = components(seen).instance_means is not None
    quiet = dataclasses.replace(step, quiet=True) if has_quiet else None
    return Member(step, quiet, same, None, units, seen.num_samples)


def _with_components(predictive: Predictive) -> Mixture | InUnits:
    return with_components(predictive, "rollout", "to follow")


def _inputs(batch: Batch, with_mask: bool) -> Float[Array, "batch in *space"]:
    """Return the inputs as a network with or without a mask channel reads them."""
    if not with_mask:
        return batch.x
    return jnp.concatenate([batch.x, jnp.broadcast_to(batch.mask, batch.x[:, :1].shape).astype(batch.x.dtype)], axis=1)


def _reads_mask(reads: Callable[[bool], Any], batch: Batch) -> bool:
    """Return whether a predictor reads a mask after the channels of the fields that it predicts."""
    said = ""
    for with_mask in (False, True):
        try:
            means = reads(with_mask)
        except (TypeError, ValueError, IndexError) as error:
            said = said or str(error).splitlines()[0]
            continue
        if means.shape[1:] == batch.x.shape:
            return with_mask
        said = said or f"it gives fields of shape {means.shape[2:]}"
    raise InputError(f"rollout: the predictor does not step fields of shape {batch.x.shape[1:]} ({said})")
