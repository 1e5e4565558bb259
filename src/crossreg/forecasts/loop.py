"""All particles of a forecast, taken from lead to lead: particles and trajectories in one compiled loop."""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from crossreg.forecasts.forecast import Forecast, Limits
from crossreg.forecasts.particles import Mask, Member, Recalibrate, standardized_fields
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.ensemble import pooled

# The number of values that are stepped together, of all particles: it bounds memory, and fits into a CPU's cache. It
# changes numbers by rounding alone, since each particle has its own noise.
_VALUES_PER_CALL = {"cpu": 2**17, "accelerator": 2**24}


class State(NamedTuple):
    """The particles of a member after some steps.

    Attributes:
        means: Their own means, which the next step reads.
        instances: Those without the noise of ψ; None where ψ has none.
        lost_at: The step at which each was lost, or 0.
    """

    means: Float[Array, "particle batch channel *space"]
    instances: Float[Array, "particle batch channel *space"] | None
    lost_at: Int[Array, "particle batch"]

    @classmethod
    def at(cls, member: Member, x0: Float[Array, "batch channel *space"]) -> "State":
        """Return all particles of a member at one field."""
        z = jnp.broadcast_to(standardized_fields(x0, member.units), (len(member.keys), *x0.shape))
        return cls(z, None if member.quiet is None else z, jnp.zeros(member.keys.shape, jnp.int32))


@dataclasses.dataclass
class Particles:
    """All particles of a forecast, which `to` takes further: in parts, a long forecast needs less memory."""

    members: list[Member]
    recalibrate: Recalibrate
    states: list[State]
    masks: Bool[Array, "step batch #channel *space"] | None
    limits: Limits
    sides: list[Float[Array, "batch channel *ones"]]
    hide_own: bool
    redraw: bool
    names: tuple[str, ...]
    step: int = 0

    def to(self, leads: tuple[int, ...]) -> Forecast:
        """Take all particles to the last of some leads, and return the forecast at these."""
        rolled = [self._rolled(member, state, leads) for member, state in zip(self.members, self.states, strict=True)]
        parts, beyond, self.states = (list(each) for each in zip(*rolled, strict=True))
        self.step = leads[-1]
        predictive = self.recalibrate(pooled(parts), jnp.asarray(leads))
        lost_at = jnp.concatenate([state.lost_at for state in self.states])
        return Forecast(predictive, jnp.concatenate(beyond), lost_at, self.limits, leads, self.names)

    def _rolled(
        self, member: Member, state: State, leads: tuple[int, ...]
    ) -> tuple[Mixture | InUnits, Float[Array, "particle lead batch"], State]:
        """Take the particles of one member further, in chunks of at most `_VALUES_PER_CALL` values.

        Returns:
            Their mixture, the share of values beyond the limits, and their state at the last lead.
        """
        particles, size, *field = state.means.shape
        on_cpu = jax.default_backend() == "cpu"
        values = _VALUES_PER_CALL["cpu" if on_cpu else "accelerator"]
        together = max(1, values // (math.prod(field) * member.width))
        of_particles = min(particles, together)
        of_batch = min(size, max(1, together // of_particles))
        sides = [standardized_fields(side, member.units) for side in self.sides]
        gaps = jnp.diff(jnp.asarray((self.step, *leads)))
        rows = []
        for first_row in range(0, size, of_batch):
            # The last chunk starts early enough to be full, so that one program serves all.
            begin = min(first_row, size - of_batch)
            chosen = slice(begin, begin + of_batch)
            columns = []
            for first in range(0, particles, of_particles):
                begin_p = min(first, particles - of_particles)
                own = slice(begin_p, begin_p + of_particles)
                rolled = _roll(
                    member._replace(keys=member.keys[own, chosen]),
                    jnp.arange(particles)[own],
                    jax.tree.map(lambda array, own=own, chosen=chosen: array[own, chosen], state),
                    jnp.asarray(self.step),
                    None if self.masks is None else self.masks[:, chosen],
                    gaps,
                    [side[chosen] for side in sides],
                    self.hide_own,
                    self.redraw,
                )
                columns.append(jax.tree.map(lambda array, new=first - begin_p: array[new:], rolled))
            by_lead, after = jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *columns)
            new = first_row - begin
            rows.append(
                (
                    jax.tree.map(lambda array, new=new: array[:, :, new:], by_lead),
                    jax.tree.map(lambda array, new=new: array[:, new:], after),
                )
            )
        by_lead, after = zip(*rows, strict=True)
        mixture, beyond = jax.tree.map(lambda *arrays: jnp.concatenate(arrays, axis=2), *by_lead)
        after = jax.tree.map(lambda *arrays: jnp.concatenate(arrays, axis=1), *after)
        if member.growth is not None:
            mixture = jax.vmap(member.growth, in_axes=(1, 0), out_axes=1)(mixture, jnp.asarray(leads))
        return (mixture if member.units is None else InUnits(mixture, *member.units)), beyond, after


class _Step(NamedTuple):
    """All particles between two steps: their last mixture, the share of its values beyond the limits, and lost ones."""

    mixture: Mixture
    beyond: Float[Array, "particle batch"]
    lost_at: Int[Array, "particle batch"]
    step: Int[Array, ""]


@eqx.filter_jit
def _roll(
    member: Member,
    numbers: Int[Array, " particle"],
    state: State,
    step: Int[Array, ""],
    masks: Bool[Array, "step batch #channel *space"] | None,
    gaps: Int[Array, " lead"],
    limits: list[Float[Array, "batch channel *ones"]],
    hide_own: bool,
    redraw: bool,
) -> tuple[tuple[Mixture, Float[Array, "particle lead batch"]], State]:
    """Return the mixture at the leads that are `gaps` apart, (particle, lead, batch, channel, *space).

    With it, the share of its values beyond the limits; and the state at the last lead.
    """
    low, high = limits
    field_axes = tuple(range(2, state.means.ndim))

    def mask_of(step) -> Mask:
        if masks is None:
            return None
        mask = masks[jnp.minimum(step, masks.shape[0] - 1)]
        return mask if hide_own else mask | (step > 0)

    def held(means, step):
        """Return what the next step reads: the limit in place of a prediction beyond it, which is no field."""
        return jnp.where(step > 0, jnp.clip(means, low, high), means)

    def advance(state: _Step) -> _Step:
        mask = mask_of(state.step)
        # Step 0 of both ways draws the same instance, so that one step is always the prediction.
        again = redraw & (state.step > 0)
        redrawn = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, state.step)))(member.keys)
        keys = jax.random.wrap_key_data(
            jnp.where(again, jax.random.key_data(redrawn), jax.random.key_data(member.keys)),
            impl=jax.random.key_impl(member.keys),
        )
        mixture = member.step(held(state.mixture.means, state.step), keys, numbers, mask)
        if member.quiet is not None and (instances := state.mixture.instance_means) is not None:
            quiet = member.quiet(held(instances, state.step), keys, numbers, mask)
            mixture = eqx.tree_at(lambda m: m.instance_means, mixture, quiet.means, is_leaf=lambda node: node is None)
        # Of a value that is not a number, all comparisons are false.
        is_within = (mixture.means >= low) & (mixture.means <= high)
        width = high - low
        is_near = jnp.all((mixture.means >= low - width) & (mixture.means <= high + width), axis=field_axes)
        step = state.step + 1
        lost_at = jnp.where((state.lost_at == 0) & ~is_near, step, state.lost_at)
        return _Step(mixture, jnp.mean(~is_within, axis=field_axes), lost_at, step)

    def to_next_lead(state: _Step, gap) -> tuple[_Step, tuple[Mixture, Array]]:
        state = jax.lax.fori_loop(0, gap, lambda _, state: advance(state), state)
        return state, (state.mixture, state.beyond)

    zeros, none = jnp.zeros_like(state.means), jnp.zeros(member.keys.shape)
    first = _Step(Mixture(state.means, zeros, zeros, state.instances), none, state.lost_at, step)
    last, by_lead = jax.lax.scan(to_next_lead, first, gaps)
    after = State(last.mixture.means, last.mixture.instance_means, last.lost_at)
    return jax.tree.map(lambda array: jnp.moveaxis(array, 0, 1), by_lead), after
