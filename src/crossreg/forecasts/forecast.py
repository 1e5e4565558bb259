"""The result of a rollout: a predictive distribution at every lead."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from crossreg.errors import InputError
from crossreg.predictive.in_units import InUnits, Predictive
from crossreg.predictive.mixture import Mixture
from crossreg.predictive.recalibrated import Recalibrated

# Particles are held to the range of known fields and this share of its width on either side.
HELD = 0.1
# What a forecast is scored against, at every lead.
Field = Float[Array | np.ndarray, "lead batch channel *space"]


class Limits(NamedTuple):
    """The range that particles are held to, for each channel, in the fields' units.

    Attributes:
        low: The lower end, for each channel, or for each trajectory and channel.
        high: The upper end.

    Example:
        >>> xr.forecasts.Limits.around(np.array([[[0.0, 2.0]]]), widths=1.0)
        Limits(low=array([-2.]), high=array([4.]))
    """

    low: Float[np.ndarray, "*batch channel"]
    high: Float[np.ndarray, "*batch channel"]

    @classmethod
    def around(cls, fields: Float[Array | np.ndarray, "batch channel *space"], widths: float) -> "Limits":
        """Return the range of some fields, widened on both sides.

        Args:
            fields: The fields.
            widths: By how many widths of the range it is widened on each side.

        Returns:
            The range, for each channel.
        """
        values = np.moveaxis(np.array(fields, np.float64), 1, 0).reshape(fields.shape[1], -1)  # a copy
        missing = np.isnan(values).all(axis=1)
        values[missing] = 0.0
        low, high = np.nanmin(values, axis=1), np.nanmax(values, axis=1)
        low[missing], high[missing] = -np.inf, np.inf  # nothing is known of this channel
        size = np.maximum(np.abs(low), np.abs(high))
        width = np.where(high > low, high - low, np.where(size > 0, size, 1.0))  # a constant field has a size at least
        return cls(low - widths * width, high + widths * width)


class Forecast(eqx.Module):
    """A predictive distribution at every lead of a rollout, as [`rollout`][crossreg.rollout] returns it.

    Its fields have shape (lead, batch, channel, *space) and are in the units of the data.

    Attributes:
        predictive: The distribution, with the lead as the first axis of its fields.
        beyond: The share of each particle's values, at every lead, that are beyond `limits`.
        lost_at: The step at which each particle was beyond `limits` by more than their width or was no longer finite,
            or 0 if it never was. Lost particles stay in the distribution; `lost` counts them.
        limits: The range that particles are held to: in place of a prediction beyond it, the next step reads its end.
        leads: The leads that are kept; the first step has lead 1.
        names: The names of the channels, where they are known.

    Example:
        ```python
        forecast = xr.rollout(result, x0, steps=50)
        forecast.mean[9], forecast.std[9]  # ten steps ahead
        forecast.at(10).quantile(0.95)  # the same lead, as a mixture
        forecast.crps(truth).mean((1, 2, 3))  # by lead, for truth (lead, batch, channel, x)
        ```
    """

    predictive: Predictive
    beyond: Float[Array, "particle lead batch"]
    lost_at: Int[Array, "particle batch"]
    limits: Limits
    leads: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def mean(self) -> Float[Array, "lead batch channel *space"]:
        """The mean at every lead."""
        return _by_lead(self.predictive, "mean")

    @property
    def std(self) -> Float[Array, "lead batch channel *space"]:
        """The total standard deviation, √U_tot, at every lead."""
        return _by_lead(self.predictive, "std")

    @property
    def std_predictive(self) -> Float[Array, "lead batch channel *space"]:
        """√U_pred at every lead."""
        return _by_lead(self.predictive, "std_predictive")

    @property
    def std_generalization(self) -> Float[Array, "lead batch channel *space"]:
        """√U_gen at every lead."""
        return _by_lead(self.predictive, "std_generalization")

    @property
    def particles(self) -> Float[Array, "particle lead batch channel *space"]:
        """The mean of each particle's Gaussian at every lead.

        Without growth by lead and temperature it is the particle itself: what its next step reads, within the limits.
        They spread it about the mean of all particles, and the next step reads what it was before.
        """
        means = components(self.predictive).means
        if isinstance(self.predictive, InUnits):
            return self.predictive.offset + self.predictive.scale * means
        return means

    @property
    def lost(self) -> Int[np.ndarray, " lead"]:
        """The number of particles, over all trajectories, that are lost by each lead."""
        lost_at = np.asarray(self.lost_at)
        return np.asarray([np.sum((lost_at > 0) & (lost_at <= lead)) for lead in self.leads])

    @property
    def held_share(self) -> Float[np.ndarray, " lead"]:
        """The share of all particles' values, at every lead, that the next step does not read as they are."""
        return np.asarray(self.beyond, np.float64).mean(axis=(0, 2))

    def quantile(self, level: float) -> Float[Array, "lead batch channel *space"]:
        """Return the value below which the distribution has the probability `level`, at every lead."""
        if not 0 < level < 1:
            raise InputError(f"level is {level:g}: must lie in (0, 1)")
        if level > 0.5:  # 1 − level keeps its digits, where the level would round to 1
            return -_by_lead(_mirrored(self.predictive), "quantile", level=jnp.asarray(1 - level))
        return _by_lead(self.predictive, "quantile", level=jnp.asarray(level))

    def cdf(self, y: Field) -> Float[Array, "lead batch channel *space"]:
        """Return the distribution function at every lead; at the truth it is the PIT."""
        return _by_lead(self.predictive, "cdf", self._checked(y))

    def log_prob(self, y: Field) -> Float[Array, "lead batch channel *space"]:
        """Return the log-density at every lead and point."""
        return _by_lead(self.predictive, "log_prob", self._checked(y))

    def crps(self, y: Field) -> Float[Array, "lead batch channel *space"]:
        """Return the continuous ranked probability score at every lead and point."""
        return _by_lead(self.predictive, "crps", self._checked(y))

    def samples(
        self, number: int | None = None, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "sample lead batch channel *space"]:
        """Draw whole fields: each sample follows one particle, the same one at every lead.

        What σ adds to it is drawn independently at each point and each lead, so that differences between leads vary
        more than those of a trajectory. In forecasts that were learned from rollouts, nearly all of the
        spread is between particles, so that a correlation of these draws in space changed no score.

        Args:
            number: How many samples; by default one of each particle. Fewer are of evenly spaced particles, so that all
                members of an ensemble have their share; of more, particles serve again.
            key: The key of the draws. The default is `jax.random.key(0)`.

        Returns:
            The samples, in the fields' units.

        Raises:
            InputError: If `number` is less than 1, or the forecast is recalibrated and so has no components to draw.
        """
        standard = self.predictive.standard if isinstance(self.predictive, InUnits) else self.predictive
        if not isinstance(standard, Mixture):
            raise InputError("samples: a recalibrated forecast has quantiles and scores, but no components to draw")
        number = standard.num_samples if number is None else number
        if number < 1:
            raise InputError(f"number is {number}: must be at least 1")
        mixture = jax.tree.map(lambda array: array[evenly(number, array.shape[0])], standard)
        drawn = draw(mixture, jax.random.key(0) if key is None else key)
        if isinstance(self.predictive, InUnits):
            return self.predictive.offset + self.predictive.scale * drawn
        return drawn

    def at(self, lead: int) -> Predictive:
        """Return the distribution at one lead, of the type that a prediction of one step has.

        Args:
            lead: One of `leads`.

        Returns:
            The distribution, with fields of shape (batch, channel, *space).

        Raises:
            InputError: If the forecast does not keep this lead.
        """
        if lead not in self.leads:
            raise InputError(f"lead is {lead}: the forecast keeps {_listed(self.leads)}")
        return at_index(self.predictive, self.leads.index(lead))

    def __repr__(self) -> str:
        count, shape = components(self.predictive).num_samples, components(self.predictive).means.shape[2:]
        lost = f", {self.lost[-1]} lost" if self.lost[-1] else ""
        return f"Forecast(leads {_listed(self.leads)}, fields {shape}, {count} particles{lost})"

    def _checked(self, y: Any) -> Float[Array, "lead batch channel *space"]:
        y, expected = jnp.asarray(y), components(self.predictive).means.shape[1:]
        if y.shape != expected:
            raise InputError(f"y has shape {y.shape}; expected {expected}, (lead, batch, channel, *space)")
        return y


def evenly(number: int, size: int) -> Int[np.ndarray, " number"]:
    """Return so many of the first whole numbers up to `size`: all of them in turn, then evenly spaced ones."""
    rest = number % size
    return np.append(np.arange(number - rest) % size, np.arange(rest) * size // max(rest, 1))


def _listed(leads: tuple[int, ...]) -> str:
    if len(leads) > 2 and leads == tuple(range(leads[0], leads[-1] + 1)):
        return f"{leads[0]} to {leads[-1]}"
    return ", ".join(map(str, leads))


def draw(mixture: Mixture, key: PRNGKeyArray) -> Float[Array, "component *shape"]:
    """Draw one field of each component, independently at each point."""
    noise = jax.random.normal(key, mixture.means.shape, mixture.means.dtype)
    return mixture.means + jnp.sqrt(mixture.variances) * noise


def components(predictive: Predictive) -> Mixture:
    """Return the mixture whose components are the particles."""
    standard = predictive.standard if isinstance(predictive, InUnits) else predictive
    return standard.mixture if isinstance(standard, Recalibrated) else standard


def at_index(predictive: Predictive, index: int | Int[Array, ""]) -> Predictive:
    """Return the distribution at one place of the lead axis."""
    return eqx.tree_at(components, predictive, jax.tree.map(lambda array: array[:, index], components(predictive)))


def _mirrored(predictive: Predictive) -> Predictive:
    """Return the distribution of −u."""
    mirrored = eqx.tree_at(lambda p: components(p).means, predictive, replace_fn=jnp.negative)
    return dataclasses.replace(mirrored, offset=-mirrored.offset) if isinstance(mirrored, InUnits) else mirrored


@eqx.filter_jit
def _by_lead(predictive: Predictive, name: str, *fields: Array, **same: Array) -> Array:
    """Return a property or what a method gives at every lead: one by one, since some need many times a field's memory.

    By name, since a function that is made anew for each call would be compiled anew too.
    """

    def at_lead(row):
        found = getattr(at_index(predictive, row[0]), name)
        return found(*row[1:], **same) if callable(found) else found

    return jax.lax.map(at_lead, (jnp.arange(components(predictive).means.shape[1]), *fields))
