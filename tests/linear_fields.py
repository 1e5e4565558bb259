r"""A linear model of advection and diffusion whose rollouts are known in closed form.

Mode k of the field is multiplied by $a_k = e^{-\nu k^2 - ick}$ in each step, and the whole field by
$1 + \sigma\epsilon$. With ε held fixed, mode k is $a_k^n (1+\sigma\epsilon)^n$ times what it was after n steps.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from crossreg.nn.heads import Heads, make_heads
from crossreg.nn.noise import Owner, gaussian_noise
from crossreg.nn.surrogate import Surrogate

POINTS = 12
SPEED, VISCOSITY, SIGMA, LOG_SIGMA_PRED = 0.7, 0.02, 0.2, -1.5


class Flow(eqx.Module):
    """One step of advection and diffusion on the unit circle, without noise."""

    def __call__(self, h: Array) -> Array:
        k = jnp.arange(POINTS // 2 + 1)
        return jnp.fft.irfft(jnp.fft.rfft(h) * jnp.exp(-VISCOSITY * k**2 - 1j * SPEED * k), n=POINTS)


def identity_heads(channels: int, log_sigma_pred: float = LOG_SIGMA_PRED) -> Heads:
    """Heads whose mean is what they read, with a constant σ_pred."""
    heads = make_heads(channels, channels, log_sigma_pred_start=log_sigma_pred, key=jax.random.key(0))
    values = (jnp.eye(channels), jnp.zeros(channels))
    return eqx.tree_at(lambda h: (h.mean.weight, h.mean.bias), heads, values)


def linear_model(sigma: float = SIGMA, *, channels: int = 1, owner: Owner = "generalization") -> Surrogate:
    """The model; with σ = 0 it has no noise site."""
    noise = gaussian_noise("flow", (channels, 1), owner=owner, start=float(np.log(sigma or 1.0)), bounds=(-9.0, 3.0))
    stages = (Flow(), noise) if sigma else (Flow(),)
    return Surrogate(stages, identity_heads(channels))


def flowed(field: np.ndarray, steps: int) -> np.ndarray:
    """The field after some steps without noise, in double precision."""
    k = np.arange(POINTS // 2 + 1)
    factor = np.exp(-VISCOSITY * k**2 - 1j * SPEED * k) ** steps
    factor[-1] = np.exp(-VISCOSITY * k[-1] ** 2) ** steps * np.cos(SPEED * k[-1]) ** steps  # the highest mode is real
    return np.fft.irfft(np.fft.rfft(field) * factor, n=POINTS)


def fields(count: int, *, channels: int = 1, seed: int = 3) -> np.ndarray:
    """Fields (batch, channel, point) in float32."""
    return np.random.default_rng(seed).normal(size=(count, channels, POINTS)).astype(np.float32)
