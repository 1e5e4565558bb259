r"""Scores of forecasts by lead.

Of the mixture at each lead: RMSE, spread over skill, CRPS, ECE and coverage, and the histogram of the PIT. Of joint
samples: energy score, variogram score and power spectrum. Beside them stands what climatology and persistence score.

$$ \text{spread/skill} = \frac{\sqrt{\overline{E_p[\sigma_p^2] + \tfrac{P+1}{P} s^2}}}{\mathrm{RMSE}}, \qquad
   s^2 = \tfrac{1}{P-1} \textstyle\sum_p (\mu_p - m)^2 $$

is 1 where the truth is one more draw of the forecast: the mean of P particles has an error of $s^2/P$ of its own. The
mean over points is taken of variances, before the root.

The energy score of a field of N points is $E\|X - y\| - \tfrac12 E\|X - X'\|$ with $\|d\|^2 = \frac1N\sum_i d_i^2$,
over distinct samples X, X'. The variogram score is the mean over points i and lags h of
$(E|X_i - X_{i+h}|^{1/2} - |y_i - y_{i+h}|^{1/2})^2$, with lags of 1, 2, 4 and 8 points along each axis.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from crossreg.data.keys import evaluation_key
from crossreg.data.pairs import AbstractPairs
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.forecasts.forecast import at_index, components, draw
from crossreg.forecasts.rollout import checked_leads
from crossreg.forecasts.windows import Window, first_pairs, forecasts_of
from crossreg.metrics.calibration import coverage, ece_from_coverage
from crossreg.nn.surrogate import Surrogate, Trained
from crossreg.predictive.in_units import InUnits, Predictive, standardized
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.predictor import Predictor

# Bins of the PIT; values that a climatology consists of; steps of a variogram.
_BINS, _QUANTILES, _LAGS = 20, 200, (1, 2, 4, 8)
# A forecast is valid until its error is this share of the climate's spread.
_VALID = 0.5


class _Sums(NamedTuple):
    """Sums at one lead: over points, per channel and in the network's units; or over fields, in the largest scale."""

    weight: Float[Array, " channel"]
    squared_error: Float[Array, " channel"]
    variance: Float[Array, " channel"]
    crps: Float[Array, " channel"]
    crps_fair: Float[Array, " channel"]
    crps_climatology: Float[Array, " channel"]
    crps_persistence: Float[Array, " channel"]
    covered: Float[Array, " level"]
    pit: Float[Array, " bin"]
    fields: Int[Array, ""]
    valid: Int[Array, ""]
    whole: Int[Array, ""]
    energy_score: Float[Array, ""]
    variogram_score: Float[Array, ""]
    spectrum_truth: Float[Array, " wavenumber"]
    spectrum_mean: Float[Array, " wavenumber"]
    spectrum_samples: Float[Array, " wavenumber"]


class Climatology(NamedTuple):
    """How the fields of a split are distributed, whatever their time and place, standardised as the split is.

    Attributes:
        quantiles: Quantiles of each channel: one distribution for all of its points.
        variance: The variance of each channel.
        units: Offset and scale of each channel; None where the split has none.
    """

    quantiles: Float[Array, "value channel"]
    variance: Float[Array, " channel"]
    units: Units | None = None

    def units_for(
        self, predictive: Predictive, num_dims: int
    ) -> tuple[Float[Array, "channel *ones"], Float[Array, "channel *ones"]]:
        """Return offset and scale of the split in the units of a distribution: 0 and 1 where they are the same."""
        offset, scale = (predictive.offset, predictive.scale) if isinstance(predictive, InUnits) else (0.0, 1.0)
        own = self.units or Units((0.0,) * self.variance.size, (1.0,) * self.variance.size)
        return (own.offsets(num_dims) - offset) / scale, own.scales(num_dims) / scale


def climatology_of(pairs: AbstractPairs, most_pairs: int = 500) -> Climatology:
    """Return the climatology of a split: how its fields are distributed, whatever their time and place.

    Args:
        pairs: The split, such as `data.train`.
        most_pairs: At most so many pairs are read, evenly spaced.

    Returns:
        Quantiles and the variance of each channel.

    Raises:
        InputError: If no value of a channel is scored.

    Example:
        ```python
        climate = xr.forecasts.climatology_of(data.train)
        climate.variance  # one number for each channel, of the standardised fields
        ```
    """
    total = int(pairs.num_pairs)
    count = min(total, most_pairs)
    batch = pairs[np.arange(count) * total // count]
    y = np.moveaxis(np.asarray(batch.y, np.float64), 1, 0).reshape(batch.y.shape[1], -1)
    known = np.moveaxis(np.asarray(jnp.broadcast_to(batch.weight, batch.y.shape)), 1, 0).reshape(y.shape) > 0
    if pairs.units is not None:
        y = (y - np.asarray(pairs.units.offset)[:, None]) / np.asarray(pairs.units.scale)[:, None]
    levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    if not known.any(axis=1).all():
        raise InputError(f"climatology: no value of channel {int(np.argmin(known.any(axis=1)))} is scored")
    quantiles = [np.quantile(row[own], levels) for row, own in zip(y, known, strict=True)]
    variances = [np.var(row[own]) for row, own in zip(y, known, strict=True)]
    quantiles, variances = (jnp.asarray(of, jnp.float32) for of in (np.stack(quantiles, 1), variances))
    return Climatology(quantiles, variances, pairs.units)


def score_by_lead(
    predictor: Surrogate | Trained | Predictor,
    pairs: AbstractPairs,
    leads: Sequence[int],
    *,
    steps: int | None = None,
    climate: Climatology,
    particles: int = 60,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Score forecasts of a split by lead, each from the first field of its trajectory.

    Args:
        predictor: A surrogate, a `Fit`, a `Run` or any predictor.
        pairs: The split, such as `data.test`.
        leads: The leads, increasing.
        steps: How many steps to go, by default to the last lead; trajectories must be as long.
        climate: The climatology that the CRPS is compared with, `climatology_of(data.train)`.
        particles: Particles of each forecast.
        seed: Seed of the particles. Equal arguments give equal numbers.
        progress: Called after each part with the number of forecasts in it.
        **how: Further arguments of [`rollout`][crossreg.rollout], such as `limits` and `redraw`.

    Returns:
        `leads`. As lists along them, in the fields' units: `rmse`, `spread_skill`, `crps`, `crps_fair`,
        `crps_climatology`, `crps_persistence`, `ece_mix`, `energy_score`, `variogram_score`, and `valid_share`, the
        share of forecasts whose error is below half the climate's spread. For each lead, lists: `coverage` of central
        intervals of level 0.1 … 0.9, `rank_histogram` (shares of 20 bins of the PIT), `spectrum_truth`, `spectrum_mean`
        and `spectrum_samples` (power by wavenumber, of fields without a gap). `held_share`, the share of the
        particles' values that are beyond the limits at each lead, where the next step reads the limit; and `lost`, how
        many particles were far out of range by each lead, with `out_of_range`, their number in the end, of
        `particles_in_all`; `forecasts`, their number.

    Raises:
        InputError: If trajectories are shorter than the last lead, or the predictor does not step these fields.

    Example:
        ```python
        climate = xr.forecasts.climatology_of(data.train)
        scores = xr.forecasts.score_by_lead(result, data.test, [1, 2, 5], climate=climate)
        scores["spread_skill"]  # one number for each lead
        ```
    """
    steps = max([1, *leads]) if steps is None else steps
    leads = checked_leads(leads, steps, particles)
    first = first_pairs(pairs, steps)
    first = first[first % pairs.pairs_per_row == 0]
    key = evaluation_key(seed)
    lost, held, total = np.zeros(len(leads), int), np.zeros(len(leads)), 0
    scale, number, parts = np.ones(pairs.field_shape[0]), -1, {}
    how |= {"first": first, "particles": particles, "key": key, "progress": progress, "in_parts": True}
    for window in forecasts_of(predictor, pairs, leads, steps, **how):
        forecast, begin = window.forecast, leads.index(window.forecast.leads[0])
        own, number = slice(begin, begin + len(forecast.leads)), number + (begin == 0)
        lead_keys = jax.random.split(jax.random.fold_in(key, number), len(leads))[own]
        found = jax.tree.map(partial(np.asarray, dtype=np.float64), _sums(window, climate, lead_keys))
        parts[begin] = jax.tree.map(np.add, parts[begin], found) if number else found
        lost[own] += forecast.lost
        held[own] += forecast.held_share * forecast.lost_at.size
        total += forecast.lost_at.size if begin == 0 else 0
        predictive = forecast.predictive
        scale = np.asarray(predictive.scale, np.float64).reshape(-1) if isinstance(predictive, InUnits) else scale
    sums = jax.tree.map(lambda *of: np.concatenate(of), *parts.values())
    with np.errstate(invalid="ignore"):  # where nothing counts, the score is NaN
        summary = _summary(sums, scale, list(leads))
    return summary | {
        "held_share": (held / total).tolist(),
        "lost": lost.tolist(),
        "out_of_range": int(lost[-1]),
        "particles_in_all": total,
        "forecasts": len(first),
    }


def _summary(sums: _Sums, scale, leads: list[int]) -> dict[str, Any]:
    """Return the scores, in the fields' units, from sums with a first axis of leads."""
    points = sums.weight.sum(1)

    def mean(of, power):
        return (of * scale**power).sum(1) / points

    rmse = np.sqrt(mean(sums.squared_error, 2))
    # A value that is not a number lies in no interval and in no bin.
    points_of_pit = np.where(np.isfinite(rmse), points, np.nan)[:, None]
    covered = sums.covered / points_of_pit
    found = {
        "rmse": rmse,
        "spread_skill": np.sqrt(mean(sums.variance, 2)) / rmse,
        **{name: mean(getattr(sums, name), 1) for name in _Sums._fields if name.startswith("crps")},
        "ece_mix": np.asarray([ece_from_coverage(at) for at in covered]),
        "coverage": covered,
        "rank_histogram": sums.pit / points_of_pit,
        **{name: scale.max() * getattr(sums, name) / sums.fields for name in ("energy_score", "variogram_score")},
        **{
            name: scale.max() ** 2 * (getattr(sums, name).T / sums.whole).T
            for name in _Sums._fields
            if name.startswith("spectrum")
        },
        "valid_share": sums.valid / sums.fields,
    }
    return {"leads": leads} | {name: values.tolist() for name, values in found.items()}


@eqx.filter_jit
def _sums(window: Window, climate: Climatology, keys: Key[Array, " lead"]) -> _Sums:
    """Return the sums over windows at each lead."""

    def at_lead(row):
        index, truth, weight, whole, lead_key = row
        predictive = at_index(window.forecast.predictive, index)
        return _sums_at(predictive, truth, weight, whole, window.start, climate, lead_key)

    rows = (jnp.arange(len(keys)), window.truth, window.weight, window.whole, keys)
    return jax.lax.map(at_lead, rows)


def _sums_at(predictive, truth, weight, whole, start, climate: Climatology, key) -> _Sums:
    standard, y = standardized(predictive, truth)
    _, last = standardized(predictive, start)
    weight = jnp.broadcast_to(weight, y.shape)
    mixture = components(predictive)
    num_dims = y.ndim - 2
    # The climate is standardised as its split is; the predictor may have other units, or none.
    offset, unit = climate.units_for(predictive, num_dims)

    def total(values):
        return jnp.sum(weight * values, axis=(0, *range(2, y.ndim)))

    error = standard.mean - y
    pit = standard.cdf(y)
    crps, variance, fair = standard.crps(y), standard.std**2, jnp.full_like(y, jnp.nan)
    has_components = isinstance(standard, Mixture)
    if has_components:
        particles = mixture.num_samples
        spread = jnp.var(mixture.means, axis=0) * (particles + 1) / max(particles - 1, 1)
        variance = jnp.mean(mixture.variances, axis=0) + spread
        fair = mixture.distance_to(y) - 0.5 * mixture.distance_within(distinct=True)
    ones = (-1, *(1,) * num_dims)
    standing = (y - offset) / unit

    def from_climate(total, value):
        return total + jnp.abs(value.reshape(ones) - standing), None

    far = jax.lax.scan(from_climate, jnp.zeros_like(y), climate.quantiles)[0] / len(climate.quantiles)
    within = jnp.mean(jnp.abs(climate.quantiles[:, None] - climate.quantiles), axis=(0, 1)).reshape(ones)
    # Relative to the largest one, since squares of fields of 10²⁰ are beyond float32.
    scale = (
        predictive.scale / jnp.max(predictive.scale)
        if isinstance(predictive, InUnits)
        else jnp.ones((1,) * (num_dims + 1))
    )
    samples = scale * draw(mixture, key) if has_components else jnp.full_like(mixture.means, jnp.nan)
    bins = jnp.clip((pit * _BINS).astype(jnp.int32), 0, _BINS - 1)
    per_field = tuple(range(1, y.ndim))
    climate_variance = jnp.sum(weight * climate.variance.reshape(ones), axis=per_field)
    is_valid = jnp.sum(weight * (error / unit) ** 2, axis=per_field) < _VALID**2 * climate_variance
    known = jnp.any(weight > 0, axis=per_field)

    def over_fields(values: Float[Array, "batch *rest"], which=known):
        return jnp.sum(values, axis=0, where=which.reshape(-1, *(1,) * (values.ndim - 1)))

    return _Sums(
        total(jnp.ones_like(y)),
        total(error**2),
        total(variance),
        total(crps),
        total(fair),
        total(unit * (far - 0.5 * within)),
        total(jnp.abs(last - y)),
        jnp.nan_to_num(coverage(pit, weight)) * jnp.sum(weight),
        jnp.zeros(_BINS).at[bins.ravel()].add(weight.ravel()),
        jnp.sum(known),
        jnp.sum(known & is_valid),
        jnp.sum(whole),
        over_fields(jax.vmap(_energy_score, in_axes=(1, 0, 0))(samples, scale * y, weight)),
        over_fields(_variogram_scores(samples, scale * y, weight)),
        over_fields(_spectrum(scale * (y - offset), num_dims), whole),
        over_fields(_spectrum(scale * (standard.mean - offset), num_dims), whole),
        over_fields(jnp.mean(_spectrum(samples - scale * offset, num_dims), axis=0), whole),
    )


def _energy_score(samples, y, weight) -> Float[Array, ""]:
    """Return the energy score of one field, of distinct samples, by inner products."""
    weight = jnp.sqrt(weight / jnp.sum(weight)).ravel()
    rows = (samples - y).reshape(samples.shape[0], -1) * weight  # the truth is the origin: nothing large cancels
    squares = jnp.sum(rows**2, axis=1)
    inner = jnp.matmul(rows, rows.T, precision="float32")
    apart = jnp.sqrt(jnp.maximum(squares[:, None] + squares - 2 * inner, 0.0))
    count = samples.shape[0]
    within = jnp.sum(apart * (1 - jnp.eye(count))) / max(count * (count - 1), 1)
    return jnp.mean(jnp.sqrt(squares)) - 0.5 * within


def _variogram_scores(samples, y, weight) -> Float[Array, " batch"]:
    """Return the variogram score of each field, over pairs of points that both count; fields are periodic."""
    scores, counts = 0.0, 0.0
    per_field = tuple(range(1, y.ndim))
    for axis in range(2, y.ndim):
        for lag in (lag for lag in _LAGS if lag < y.shape[axis]):
            drawn = jnp.mean(jnp.sqrt(jnp.abs(samples - jnp.roll(samples, -lag, axis + 1))), axis=0)
            true = jnp.sqrt(jnp.abs(y - jnp.roll(y, -lag, axis)))
            both = weight * jnp.roll(weight, -lag, axis)
            scores += jnp.sum(both * (drawn - true) ** 2, axis=per_field)
            counts += jnp.sum(both, axis=per_field)
    return jnp.asarray(scores / jnp.maximum(counts, 1))


def _spectrum(fields, num_dims: int) -> Float[Array, "*front wavenumber"]:
    """Return the power of fields (*front, channel, *space) by the size of the wavenumber, summed over channels.

    Power sums to the mean square of the field, over all wavenumbers up to the grid's smallest Nyquist wavenumber.
    """
    space = fields.shape[-num_dims:]
    axes = tuple(range(-num_dims, 0))
    power = jnp.abs(jnp.fft.fftn(fields, axes=axes) / np.prod(space)) ** 2
    wave = np.sqrt(sum(k**2 for k in np.meshgrid(*(np.fft.fftfreq(n) * n for n in space), indexing="ij")))
    bins = np.rint(wave).astype(int).ravel()
    most = min(space) // 2
    flat = jnp.sum(power, axis=-num_dims - 1).reshape(*fields.shape[: -num_dims - 1], -1)
    inside = bins <= most
    shape = (*flat.shape[:-1], most + 1)
    return jnp.zeros(shape).at[..., bins[inside]].add(flat[..., inside])
