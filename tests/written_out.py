"""The objectives once more, in the plainest way: sums over samples and pairs of them, at every point.

All take the means and variances of S samples, stacked, and the truth, and give a loss at every point.
"""

import jax
import jax.numpy as jnp
import numpy as np


def density(x):
    return jnp.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def mean_absolute(d, v):
    """E|X| of X ~ N(d, v)."""
    z = d / jnp.sqrt(v)
    return 2 * jnp.sqrt(v) * density(z) + d * jax.lax.erf(z / np.sqrt(2))


def train_loss(means, pred, gen, y):
    """σ_gen is a constant on train."""
    exponents = -((y - means) ** 2 + jax.lax.stop_gradient(gen)) / (2 * pred)
    return -jnp.log(jnp.mean(jnp.exp(exponents) / jnp.sqrt(2 * np.pi * pred), axis=0))


def mixture_loss(means, variances, y):
    return -jnp.log(jnp.mean(density((y - means) / jnp.sqrt(variances)) / jnp.sqrt(variances), axis=0))


def matched_loss(means, variances, y):
    mean = jnp.mean(means, axis=0)
    variance = jnp.mean(variances + means**2, axis=0) - mean**2
    return jnp.log(2 * np.pi * variance) / 2 + (y - mean) ** 2 / (2 * variance)


def fair_loss(means, variances, y):
    """ν = (S − 1)(v/s²)² degrees of freedom."""
    count, mean = len(means), jnp.mean(means, axis=0)
    spread = jnp.sum((means - mean) ** 2, axis=0) / (count - 1)
    total = jnp.mean(variances, axis=0) + spread
    nu = (count - 1) * (total / spread) ** 2
    return (jnp.log(2 * np.pi * total) + 1 / nu + (1 - 2 / nu) * ((y - mean) ** 2 - spread / count) / total) / 2


def distances(means, variances, y, paired=False):
    """E|X − y|, and E|X − X'| of two different samples, whose noise is not the opposite of each other's."""
    count = len(means)
    pairs = [(s, r) for s in range(count) for r in range(count) if s != r]
    if paired:
        pairs = [(s, r) for s, r in pairs if abs(s - r) != count // 2]
    within = sum(mean_absolute(means[s] - means[r], variances[s] + variances[r]) for s, r in pairs) / len(pairs)
    return jnp.mean(mean_absolute(y - means, variances), axis=0), within


def crps_loss(means, variances, y, paired=False):
    to_truth, within = distances(means, variances, y, paired)
    return to_truth - within / 2


def scaled_loss(means, variances, y, paired=False):
    to_truth, within = distances(means, variances, y, paired)
    return to_truth / within + jnp.log(within) / 2


REG_LOSSES = {
    "mixture": mixture_loss,
    "moment-matched": matched_loss,
    "fair": fair_loss,
    "crps": crps_loss,
    "scaled-crps": scaled_loss,
}


def weighted(values, weight):
    """The mean over the points that count."""
    weight = jnp.broadcast_to(weight, values.shape)
    return jnp.sum(weight * values) / jnp.sum(weight)
