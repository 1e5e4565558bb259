r"""Noise sites: multiplicative noise at one place of a network.

$$ h \mapsto h \odot (1 + \sigma\epsilon), \qquad \epsilon \sim \mathcal N(0, 1) $$

Gaussian noise, dropout and no noise are the same kind of module in the same place; a method
is which of them stand where and who learns them. A site's σ is one number, one per channel
or one per Fourier mode; its ε is one per channel (shared over space) or one per element. Who
learns σ follows from the type of its scale: [`PredictiveScale`][] (ψ) or
[`GeneralizationScale`][] (ρ).
"""

from abc import abstractmethod
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from crossreg.nn.bounds import Bounds, bound, unbound
from crossreg.nn.groups import Psi, Rho
from crossreg.nn.kernels import normal

Owner = Literal["predictive", "generalization"]
SigmaPer = Literal["layer", "channel", "mode"]
EpsilonPer = Literal["channel", "element"]


class AbstractNoiseScale(eqx.Module):
    """A learned, smoothly bounded log σ. `raw` broadcasts against the tensor it scales."""

    raw: eqx.AbstractVar[Float[Array, "..."]]
    bounds: eqx.AbstractVar[Bounds]

    def log_sigma(self) -> Float[Array, "..."]:
        return bound(self.raw, self.bounds)

    def sigma(self) -> Float[Array, "..."]:
        return jnp.exp(self.log_sigma())


class PredictiveScale(AbstractNoiseScale, Psi):
    """σ of predictive noise inside the network: in ψ, learned on train."""

    raw: Float[Array, "..."]
    bounds: Bounds = eqx.field(static=True)


class GeneralizationScale(AbstractNoiseScale, Rho):
    """σ of generalization noise: in ρ, learned on reg only."""

    raw: Float[Array, "..."]
    bounds: Bounds = eqx.field(static=True)


class AbstractNoise(eqx.Module):
    """A noise site. It multiplies by a random `factor` that broadcasts against its tensor."""

    @abstractmethod
    def factor(self, shape: tuple[int, ...], *, key: PRNGKeyArray, dtype: jnp.dtype) -> Float[Array, "..."]:
        """A random factor for a tensor of `shape` (channel, *axes)."""

    def __call__(self, h: Float[Array, "channel *axes"], *, key: PRNGKeyArray) -> Float[Array, "channel *axes"]:
        return h * self.factor(h.shape, key=key, dtype=h.dtype)


class NoNoise(AbstractNoise):
    """The identity site."""

    def factor(self, shape, *, key, dtype):
        return jnp.ones((1,) * len(shape), dtype)


class Dropout(AbstractNoise):
    r"""Inverted dropout, $h \mapsto h \odot m / (1-p)$ with $m \sim \mathrm{Bernoulli}(1-p)$ per element."""

    rate: float = eqx.field(static=True)

    def factor(self, shape, *, key, dtype):
        keep = 1.0 - self.rate
        return jax.random.bernoulli(key, keep, shape).astype(dtype) / keep


class FixedNoise(AbstractNoise):
    r"""Multiplicative Gaussian noise of a given size, per element: $h \mapsto h \odot (1 + \sigma\epsilon)$."""

    sigma: float = eqx.field(static=True)

    def factor(self, shape, *, key, dtype):
        return 1.0 + self.sigma * jax.random.normal(key, shape, dtype)


class GaussianNoise(AbstractNoise):
    r"""Multiplicative Gaussian noise, $h \mapsto h \odot (1 + \sigma\epsilon)$."""

    scale: AbstractNoiseScale
    name: str = eqx.field(static=True)
    epsilon_per: EpsilonPer = eqx.field(static=True)

    @property
    def is_per_channel(self) -> bool:
        """Whether the factor is the same at all points of a channel."""
        return self.epsilon_per == "channel" and self.scale.raw.size == self.scale.raw.shape[0]

    def factor(self, shape, *, key, dtype):
        if self.epsilon_per == "channel":
            epsilon = normal(key, shape[0], dtype).reshape(-1, *(1,) * (len(shape) - 1))
        else:
            epsilon = jax.random.normal(key, shape, dtype)
        return 1.0 + self.scale.sigma() * epsilon


class NoiseChain(AbstractNoise):
    """Several noises in one place, each with its own owner and its own draw."""

    noises: tuple[AbstractNoise, ...]

    def factor(self, shape, *, key, dtype):
        product = jnp.ones((1,) * len(shape), dtype)
        for noise, noise_key in zip(self.noises, jax.random.split(key, len(self.noises)), strict=True):
            product = product * noise.factor(shape, key=noise_key, dtype=dtype)
        return product


def gaussian_noise(
    name: str,
    shape: tuple[int, ...],
    *,
    owner: Owner,
    sigma_per: SigmaPer = "channel",
    epsilon_per: EpsilonPer = "channel",
    start: float = -5.0,
    bounds: Bounds = (-8.0, 3.0),
) -> GaussianNoise:
    """A Gaussian site for a tensor of `shape` (channel, *axes), its log σ starting at `start`.

    `sigma_per="mode"` gives one σ per position of `axes` (the Fourier modes), shared by channels.
    """
    channels, axes = shape[0], shape[1:]
    scale_shape = {
        "layer": (1,) * len(shape),
        "channel": (channels,) + (1,) * len(axes),
        "mode": (1, *axes),
    }[sigma_per]
    scale_type = PredictiveScale if owner == "predictive" else GeneralizationScale
    raw = jnp.full(scale_shape, unbound(start, bounds))
    return GaussianNoise(scale_type(raw, bounds), name, epsilon_per)


def _is_noise(node) -> bool:
    return isinstance(node, AbstractNoise) and not isinstance(node, NoiseChain)


def noises(module: PyTree) -> list[AbstractNoise]:
    """The noise sites inside `module`, in the order of its pytree; chains are taken apart."""
    return [n for n in jax.tree.leaves(module, is_leaf=_is_noise) if _is_noise(n)]


def is_stochastic(module: PyTree) -> bool:
    """Whether `module` holds a site that draws noise."""
    return any(not isinstance(noise, NoNoise) for noise in noises(module))


def without_predictive_noise(module: PyTree) -> PyTree:
    """`module` with its ψ-owned noise taken out: what is left to vary is the model instance ω ~ q_ρ."""

    def mute(node):
        if isinstance(node, GaussianNoise) and isinstance(node.scale, PredictiveScale):
            return NoNoise()
        return node

    return jax.tree.map(mute, module, is_leaf=_is_noise)


def has_predictive_noise(module: PyTree) -> bool:
    """Whether any noise inside `module` is owned by ψ."""
    return any(isinstance(n, GaussianNoise) and isinstance(n.scale, PredictiveScale) for n in noises(module))


def site_sigmas(model: PyTree) -> dict[str, Float[Array, "..."]]:
    """σ of each Gaussian site of one model, by the site's name, as the site holds it."""
    return {n.name: n.scale.sigma() for n in noises(model) if isinstance(n, GaussianNoise)}
