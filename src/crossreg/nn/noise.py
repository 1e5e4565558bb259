r"""Noise sites: multiplicative noise at one place of a network.

$$ h \mapsto h \odot (1 + \sigma\epsilon), \qquad \epsilon \sim \mathcal N(0, 1) $$

Gaussian noise, dropout and no noise are modules of one kind; methods differ in which of them stand where and who learns
them. A site has one σ, one per channel or one per Fourier mode, and one ε per channel (shared over space) or per
element. Who learns σ follows from the type of its scale: [`PredictiveScale`][] (ψ) or [`GeneralizationScale`][] (ρ).
"""

import dataclasses
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
        """log σ, within its bounds."""
        return bound(self.raw, self.bounds)

    def sigma(self) -> Float[Array, "..."]:
        """σ."""
        return jnp.exp(self.log_sigma())


class PredictiveScale(AbstractNoiseScale, Psi):
    """The σ of predictive noise inside the network: in ψ, learned on train."""

    raw: Float[Array, "..."]
    bounds: Bounds = eqx.field(static=True)


class GeneralizationScale(AbstractNoiseScale, Rho):
    """The σ of generalization noise: in ρ, learned on reg only."""

    raw: Float[Array, "..."]
    bounds: Bounds = eqx.field(static=True)


class AbstractNoise(eqx.Module):
    """A noise site, which multiplies a tensor by a random factor.

    A subclass defines `factor`.

    Example:
        ```python
        class Uniform(xr.nn.AbstractNoise):
            def factor(self, shape, *, key, dtype):
                return 1 + jax.random.uniform(key, shape, dtype, -0.1, 0.1)


        noisy = Uniform()(jnp.ones((8, 64)), key=jax.random.key(0))
        ```
    """

    @abstractmethod
    def factor(self, shape: tuple[int, ...], *, key: PRNGKeyArray, dtype: jnp.dtype) -> Float[Array, "..."]:
        """Draw a factor that broadcasts against a tensor.

        Args:
            shape: The tensor's shape, (channel, *axes).
            key: The key of the noise.
            dtype: The type of the factor.

        Returns:
            The factor.
        """

    def mirrored(self) -> "AbstractNoise | None":
        """Return this noise with −ε in place of ε, or None if it has no mirror image, as here by default."""
        return None

    def __call__(self, h: Float[Array, "channel *axes"], *, key: PRNGKeyArray) -> Float[Array, "channel *axes"]:
        """Multiply `h` by a factor drawn with `key`."""
        return h * self.factor(h.shape, key=key, dtype=h.dtype)


class NoNoise(AbstractNoise):
    """A site without noise: the identity."""

    def factor(self, shape, *, key, dtype):
        return jnp.ones((1,) * len(shape), dtype)

    def mirrored(self):
        return self


class Dropout(AbstractNoise):
    r"""Inverted dropout, $h \mapsto h \odot m / (1-p)$ with $m \sim \mathrm{Bernoulli}(1-p)$ per element.

    Attributes:
        rate: The probability p that an element is dropped.

    Example:
        ```python
        dropped = xr.nn.Dropout(0.1)(jnp.ones((8, 64)), key=jax.random.key(0))
        ```
    """

    rate: float = eqx.field(static=True)

    def factor(self, shape, *, key, dtype):
        keep = 1.0 - self.rate
        return jax.random.bernoulli(key, keep, shape).astype(dtype) / keep


class FixedNoise(AbstractNoise):
    r"""Multiplicative Gaussian noise with a fixed σ, per element: $h \mapsto h \odot (1 + \sigma\epsilon)$."""

    sigma: float = eqx.field(static=True)

    def factor(self, shape, *, key, dtype):
        return 1.0 + self.sigma * jax.random.normal(key, shape, dtype)

    def mirrored(self):
        return FixedNoise(-self.sigma)


class GaussianNoise(AbstractNoise):
    r"""Multiplicative Gaussian noise with a learned σ, $h \mapsto h \odot (1 + \sigma\epsilon)$.

    Build one with [`gaussian_noise`][].

    Attributes:
        scale: The scale that holds σ; its type says whether ψ or ρ owns it.
        name: The site's name in histories and tables.
        epsilon_per: Whether ε is drawn per channel, shared over space, or per element.
        sign: The sign of ε: −1 in a mirror image.

    Example:
        ```python
        site = xr.nn.gaussian_noise("block1", (8, 1), owner="generalization")
        site.scale.sigma().shape  # (8, 1)
        ```
    """

    scale: AbstractNoiseScale
    name: str = eqx.field(static=True)
    epsilon_per: EpsilonPer = eqx.field(static=True)
    sign: Literal[1, -1] = eqx.field(static=True, default=1)

    @property
    def is_per_channel(self) -> bool:
        """Whether the factor is the same at all points of a channel."""
        return self.epsilon_per == "channel" and self.scale.raw.size == self.scale.raw.shape[0]

    def factor(self, shape, *, key, dtype):
        if self.epsilon_per == "channel":
            epsilon = normal(key, shape[0], dtype).reshape(-1, *(1,) * (len(shape) - 1))
        else:
            epsilon = jax.random.normal(key, shape, dtype)
        return 1.0 + self.sign * self.scale.sigma() * epsilon

    def mirrored(self):
        return dataclasses.replace(self, sign=-self.sign)


class NoiseChain(AbstractNoise):
    """Several noises at one place, each with its own owner and its own draw."""

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
    """Build a Gaussian noise site.

    Args:
        name: The site's name in histories and tables.
        shape: The shape (channel, *axes) of the tensor at the site; axes of size 1 fit any size.
        owner: Who learns σ: `"predictive"` (ψ, on train) or `"generalization"` (ρ, on reg).
        sigma_per: Whether the site has one σ, one per channel, or one per position of `axes` (the Fourier modes).
        epsilon_per: Whether ε is drawn per channel, shared over space, or per element.
        start: The start of log σ.
        bounds: The interval that log σ stays in.

    Returns:
        The site.

    Example:
        ```python
        site = xr.nn.gaussian_noise("block1", (8, 1), owner="generalization", start=-3.0)
        site(jnp.ones((8, 64)), key=jax.random.key(0)).shape  # (8, 64)
        ```
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
    """List the noise sites inside a module in the order of its pytree, those of a chain one by one."""
    return [n for n in jax.tree.leaves(module, is_leaf=_is_noise) if _is_noise(n)]


def is_stochastic(module: PyTree) -> bool:
    """Whether a module holds a site that draws noise."""
    return any(not isinstance(noise, NoNoise) for noise in noises(module))


def mirrored(module: PyTree) -> PyTree | None:
    """Return a module in which every ε is −ε, or None where a site has no mirror image, such as dropout."""
    if any(noise.mirrored() is None for noise in noises(module)):
        return None
    return jax.tree.map(lambda node: node.mirrored() if _is_noise(node) else node, module, is_leaf=_is_noise)


def _is_predictive(node) -> bool:
    return isinstance(node, GaussianNoise) and isinstance(node.scale, PredictiveScale)


def without_predictive_noise(module: PyTree) -> PyTree:
    """Remove the noise that ψ owns from a module, so that the model instance ω ~ q_ρ alone is random."""
    return jax.tree.map(lambda node: NoNoise() if _is_predictive(node) else node, module, is_leaf=_is_noise)


def has_predictive_noise(module: PyTree) -> bool:
    """Whether ψ owns any noise inside a module."""
    return any(map(_is_predictive, noises(module)))


def site_sigmas(model: PyTree) -> dict[str, Float[Array, "..."]]:
    """Return the σ of each Gaussian site of a model by the site's name, in the shape that the site holds it."""
    return {n.name: n.scale.sigma() for n in noises(model) if isinstance(n, GaussianNoise)}
