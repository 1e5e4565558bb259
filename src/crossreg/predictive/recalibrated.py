"""A mixture with new levels for its central intervals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from crossreg.predictive.mixture import Mixture, bisect, check_level

_NODES = 32


class Recalibrated(eqx.Module):
    r"""A mixture whose central intervals have new levels, as conformal prediction gives them.

    The central interval that ends at y has the level $1 - e^{-s}$ under the mixture, where
    $s = -\log(2\min(F(y), 1 - F(y)))$ measures how far out y is, exactly even where F rounds to 0 or 1. Here it has the
    level $1 - e^{-B(s)}$. B rises from B(0) = 0. It is linear between `knots`, where it takes the values of `targets`,
    and linear with slope `tail` beyond them; B(s) = s is the mixture itself. The median, the reported mean and the
    spread of the means over model instances stay the same.
    """

    mixture: Mixture
    knots: Float[Array, " knot"]
    targets: Float[Array, " knot"]
    tail: Float[Array, ""]

    @property
    def mean(self) -> Float[Array, "*shape"]:
        return self.mixture.mean

    @property
    def var_of_means(self) -> Float[Array, "*shape"]:
        return self.mixture.var_of_means

    @property
    def std_of_means(self) -> Float[Array, "*shape"]:
        return self.mixture.std_of_means

    @property
    def std(self) -> Float[Array, "*shape"]:
        r"""$\sqrt{E(Y - m)^2}$ around the reported mean m: $E(Y-m)^2 = 2\int |x-m|\,P(Y \text{ beyond } x)\,dx$."""
        mean = self.mean

        def beyond(x, weight):
            tail = jnp.where(x < mean, self.cdf(x), 1 - self.cdf(x))
            return 2 * weight * jnp.abs(x - mean) * tail

        return jnp.sqrt(self._integrate(beyond, mean))

    @property
    def variance(self) -> Float[Array, "*shape"]:
        """The square of `std`."""
        return self.std**2

    @property
    def std_predictive(self) -> Float[Array, "*shape"]:
        """The predictive part; both parts are widened alike."""
        return self.mixture.std_predictive * (self.std / self.mixture.std)

    @property
    def std_generalization(self) -> Float[Array, "*shape"]:
        """The generalization part; both parts are widened alike."""
        return self.mixture.std_generalization * (self.std / self.mixture.std)

    def _depth(self, s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """B(s)."""
        beyond = self.targets[-1] + self.tail * (s - self.knots[-1])
        return jnp.where(s > self.knots[-1], beyond, jnp.interp(s, self.knots, self.targets))

    def _inverse_depth(self, depth: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        beyond = self.knots[-1] + (depth - self.targets[-1]) / self.tail
        return jnp.where(depth > self.targets[-1], beyond, jnp.interp(depth, self.targets, self.knots))

    def log_prob(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$\log f(y) + s - B(s) + \log B'(s)$, with f the mixture's density."""
        s = -self.mixture.log_tail(y)
        slopes = jnp.append(jnp.diff(self.targets) / jnp.diff(self.knots), self.tail)
        piece = jnp.clip(jnp.searchsorted(self.knots, s, side="right") - 1, 0, slopes.shape[0] - 1)
        return self.mixture.log_prob(y) + s - self._depth(s) + jnp.log(slopes)[piece]

    def cdf(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """F'; at the truth it is the PIT."""
        half = 0.5 * jnp.exp(-self._depth(-self.mixture.log_tail(y)))
        return jnp.where(self.mixture.cdf(y) < 0.5, half, 1 - half)

    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "*shape"]:
        """Return the value below which F' has the probability `level`."""
        check_level(level)
        beyond = jnp.minimum(level, 1 - level)  # of a Python float in double precision: float32 would lose its digits
        s = self._inverse_depth(-jnp.log(2 * jnp.asarray(beyond, self.knots.dtype)))
        # In the upper half by reflection. The tail e^{-s} itself may be too small for a float32.
        sign = jnp.where(level > 0.5, -1.0, 1.0).astype(self.knots.dtype)
        means, sigma = sign * self.mixture.means, jnp.sqrt(self.mixture.variances)
        reflected = eqx.tree_at(lambda m: m.means, self.mixture, means)
        # Of a Gaussian, less than ½ e^{-s} is further than √(2s) standard deviations below its mean.
        low, high = jnp.min(means - sigma * jnp.sqrt(2 * s), axis=0), jnp.max(means, axis=0)
        return sign * bisect(lambda y: reflected.log_cdf(y) < -s - jnp.log(2.0), low, high)

    def crps(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$\int (F'(x) - 1[y \le x])^2\,dx$ by quadrature."""

        def squared(x, weight):
            distance = jnp.where(x < y, self.cdf(x), 1 - self.cdf(x))
            return weight * distance**2

        return self._integrate(squared, y)

    def _integrate(self, weighted, split: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Integrate over all but a negligible part of F' by Gauss–Legendre, on both sides of a kink at `split`."""
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        # A Gaussian tail of e^{-s} ends near √(2s) standard deviations.
        reach = (1 + jnp.sqrt(2 * self._inverse_depth(jnp.asarray(16.0, split.dtype)))) * self.mixture.std
        low, high = jnp.minimum(self.mean - reach, split), jnp.maximum(self.mean + reach, split)

        def add(total, node):
            position, weight = node
            for start, stop in ((low, split), (split, high)):
                half = 0.5 * (stop - start)
                total = total + weighted(start + half * (1 + position), weight * half)
            return total, None

        each = (jnp.asarray(nodes, split.dtype), jnp.asarray(weights, split.dtype))
        total, _ = jax.lax.scan(add, jnp.zeros_like(split), each)
        return total
