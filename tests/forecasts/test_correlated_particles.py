r"""The correlation of particles between points and between leads, where it is known in closed form.

Each step carries the field along, rotates its two channels into each other, and multiplies each channel by a factor
$1 + \sigma\epsilon$ of its own. The points of a channel then have parts of both factors, and are correlated in part.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.forecasts.rollout import rollout
from linear_fields import POINTS, SIGMA, fields, flowed, linear_model

ANGLE, LEADS, PARTICLES, CHANNELS = 0.6, (1, 2, 4), 20_000, 2
ROTATION = np.asarray([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])
SIZE = CHANNELS * POINTS


def one_step() -> np.ndarray:
    """The matrix of a step without noise."""
    basis = np.eye(SIZE).reshape(SIZE, CHANNELS, POINTS)
    return (ROTATION @ flowed(basis, 1)).reshape(SIZE, SIZE).T


def covariance_redrawn(x0: np.ndarray) -> np.ndarray:
    r"""The covariance of all leads, (lead, value) in each axis, where ε is redrawn.

    With L the step, $M_n = E[x_n x_n^T]$ becomes $(L M_n L^T) \circ K$, where K is $1 + \sigma^2$ within a channel and
    1 between two; and $E[x_m x_n^T] = L^{m-n} M_n$ for $m > n$.
    """
    step = one_step()
    same = 1 + SIGMA**2 * np.kron(np.eye(CHANNELS), np.ones((POINTS, POINTS)))
    mean, moment = x0.ravel(), np.outer(x0, x0)
    means, moments = {}, {}
    for lead in range(1, max(LEADS) + 1):
        mean, moment = step @ mean, (step @ moment @ step.T) * same
        means[lead], moments[lead] = mean, moment

    def between(m: int, n: int) -> np.ndarray:
        if m < n:
            return between(n, m).T
        return np.linalg.matrix_power(step, m - n) @ moments[n] - np.outer(means[m], means[n])

    return np.block([[between(m, n) for n in LEADS] for m in LEADS])


def covariance_fixed(x0: np.ndarray) -> np.ndarray:
    """The same where both ε are held fixed: an integral of polynomials over them, exact by Gauss–Hermite."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    both = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, CHANNELS)
    weight = np.outer(weights, weights).ravel() / weights.sum() ** 2
    factors = np.repeat(1 + SIGMA * both, POINTS, axis=1)
    x, rows = np.broadcast_to(x0.ravel(), factors.shape), {}
    for lead in range(1, max(LEADS) + 1):
        x = factors * (x @ one_step().T)
        rows[lead] = x
    values = np.concatenate([rows[lead] for lead in LEADS], axis=1)
    values = values - weight @ values
    return (weight[:, None] * values).T @ values


def correlation_of(covariance: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.diag(covariance))
    return covariance / np.outer(size, size)


@pytest.mark.parametrize("redraw", [False, True])
def test_the_correlation_of_points_and_of_leads_is_known(redraw):
    """Within 5 standard errors; that of a correlation r is the one of the mean of $ab - r(a^2 + b^2)/2$."""
    model = linear_model(channels=CHANNELS)
    flow, noise = model.stages
    model = dataclasses.replace(model, stages=(flow, lambda h: jnp.asarray(ROTATION, h.dtype) @ h, noise))
    x0 = fields(1, channels=CHANNELS)
    forecast = rollout(model, x0, max(LEADS), PARTICLES, key=jax.random.key(5), leads=LEADS, redraw=redraw)
    a = np.asarray(forecast.particles, float)[:, :, 0].reshape(PARTICLES, -1)
    a = (a - a.mean(0)) / a.std(0)
    found = a.T @ a / PARTICLES
    square, cube, fourth = (a**2).T @ a**2 / PARTICLES, (a**3).T @ a / PARTICLES, np.mean(a**4, axis=0)
    variance = square + found**2 * (fourth[:, None] + fourth + 2 * square) / 4 - found * (cube + cube.T)
    error = np.sqrt(np.maximum(variance, 0) / PARTICLES) + 1e-5  # and rounding

    redrawn, fixed = (correlation_of(of(x0[0].astype(float))) for of in (covariance_redrawn, covariance_fixed))
    known, other = (redrawn, fixed) if redraw else (fixed, redrawn)
    assert np.abs((found - known) / error).max() < 5
    # The two ways are told apart, and points within a channel, and leads, are correlated in part.
    assert np.abs((found - other) / error).max() > 50
    assert np.ptp(known[-POINTS:, -POINTS:]) > 1
    assert np.ptp(known[:POINTS, -POINTS:]) > 1
