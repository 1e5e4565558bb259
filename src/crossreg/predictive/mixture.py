r"""A prediction: one Gaussian mixture at every point.

Sample $s$ of the model is the component $\mathcal N(\mu_s, \sigma_{pred,s}^2 + \sigma_{gen,s}^2)$; weights are equal.
Cross-regularized models, MC dropout, ensembles and plain networks all predict such mixtures, and scores and figures
read nothing else.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import erf, log_ndtr, logsumexp, ndtr
from jaxtyping import Array, ArrayLike, Float, Real

from crossreg.errors import InputError

LOG_2PI = 1.8378770664093453


class Mixture(eqx.Module):
    """A mixture of Gaussians of equal weight at every point, with an explicit sample axis.

    Attributes:
        means: μ_s of each component, (sample, *shape).
        vars_predictive: σ_pred,s² of each component.
        vars_generalization: σ_gen,s² of each component.
        instance_means: The means under generalization noise alone, for models in which ψ owns noise too: the μ_s then
            vary for two reasons, which these tell apart. None for other models.
        paired: Whether components s and s + S/2 were drawn with opposite noise, so that they are not independent.

    Example:
        ```python
        mixture = xr.predict(model, x)
        mixture.mean, mixture.std, mixture.quantile(0.95)  # (batch, channel, *space) each
        mixture.crps(y).mean()
        ```
    """

    means: Float[Array, "sample *shape"]
    vars_predictive: Float[Array, "sample *shape"]
    vars_generalization: Float[Array, "sample *shape"]
    instance_means: Float[Array, "instance *shape"] | None = None
    paired: bool = eqx.field(static=True, default=False)

    @property
    def num_samples(self) -> int:
        """S, the number of components."""
        return self.means.shape[0]

    @property
    def variances(self) -> Float[Array, "sample *shape"]:
        """The variance of each component, σ_s² = σ_pred,s² + σ_gen,s²."""
        return self.vars_predictive + self.vars_generalization

    @property
    def mean(self) -> Float[Array, "*shape"]:
        """E[μ_s], the mean of the mixture."""
        return jnp.mean(self.means, axis=0)

    @property
    def var_predictive(self) -> Float[Array, "*shape"]:
        r"""$U_{pred} = E_s[\sigma_{pred,s}^2]$, plus the spread of the means that predictive noise causes."""
        rest = 0.0 if self.instance_means is None else jnp.var(self.means, axis=0) - self.var_of_means
        return jnp.mean(self.vars_predictive, axis=0) + rest

    @property
    def var_of_means(self) -> Float[Array, "*shape"]:
        r"""$\mathrm{Var}_{\omega\sim q_\rho}[\mu]$, the spread of the means over model instances."""
        spread = jnp.var(self.means, axis=0)
        if self.instance_means is None:
            return spread
        return jnp.minimum(jnp.var(self.instance_means, axis=0), spread)

    @property
    def var_generalization(self) -> Float[Array, "*shape"]:
        r"""$U_{gen} = \mathrm{Var}_\omega[\mu] + E_s[\sigma_{gen,s}^2]$.

        The first term comes from noise inside the model, the second from a σ_gen head.
        """
        return self.var_of_means + jnp.mean(self.vars_generalization, axis=0)

    @property
    def variance(self) -> Float[Array, "*shape"]:
        r"""$U_{tot} = U_{pred} + U_{gen}$, which is the exact variance of the mixture."""
        return jnp.mean(self.variances, axis=0) + jnp.var(self.means, axis=0)

    @property
    def std(self) -> Float[Array, "*shape"]:
        """The total standard deviation, √U_tot."""
        return jnp.sqrt(self.variance)

    @property
    def std_of_means(self) -> Float[Array, "*shape"]:
        r"""$\mathrm{Std}_\omega[\mu]$."""
        return jnp.sqrt(self.var_of_means)

    @property
    def std_predictive(self) -> Float[Array, "*shape"]:
        """√U_pred."""
        return jnp.sqrt(self.var_predictive)

    @property
    def std_generalization(self) -> Float[Array, "*shape"]:
        """√U_gen."""
        return jnp.sqrt(self.var_generalization)

    def log_prob(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$\log \frac1S \sum_s \mathcal N(y; \mu_s, \sigma_s^2)$ at every point, finite far into the tails."""
        self.check_truth(y)
        variances = self.variances
        log_p = -0.5 * (LOG_2PI + jnp.log(variances) + (y - self.means) ** 2 / variances)
        return logsumexp(log_p, axis=0) - jnp.log(self.num_samples)

    def cdf(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$\frac1S \sum_s \Phi((y - \mu_s)/\sigma_s)$; at the truth it is the PIT."""
        self.check_truth(y)
        return jnp.mean(ndtr((y - self.means) / jnp.sqrt(self.variances)), axis=0)

    def log_cdf(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$\log F(y)$, exact far below, where F rounds to 0."""
        self.check_truth(y)
        standard = (y - self.means) / jnp.sqrt(self.variances)
        return logsumexp(log_ndtr(standard), axis=0) - jnp.log(self.num_samples)

    def log_tail(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$\log(2\min(F(y), 1 - F(y)))$, the log of the mass outside the central interval that ends at y.

        It is exact far out, where F rounds to 0 or 1.
        """
        self.check_truth(y)
        standard = (y - self.means) / jnp.sqrt(self.variances)
        below, above = (logsumexp(log_ndtr(side), axis=0) for side in (standard, -standard))
        return jnp.minimum(jnp.log(2.0) + jnp.minimum(below, above) - jnp.log(self.num_samples), 0.0)

    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "*shape"]:
        """Return the value below which the mixture has the probability `level`, by bisection.

        The root lies between the smallest and the largest quantile of the components; 60 halvings reach the last bit of
        a float32 and, nearly, of a float64.

        Args:
            level: A probability between 0 and 1.

        Returns:
            The quantile at every point.

        Raises:
            InputError: If `level` does not lie in (0, 1).
        """
        check_level(level)
        if isinstance(level, float) and level > 0.5:  # 1 − F keeps its digits far out, where F rounds to 1
            return -eqx.tree_at(lambda m: m.means, self, -self.means).quantile(1 - level)
        sigma = jnp.sqrt(self.variances)
        components = self.means + sigma * jax.scipy.special.ndtri(jnp.asarray(level, sigma.dtype))
        low, high = jnp.min(components, axis=0), jnp.max(components, axis=0)
        return bisect(lambda y: self.cdf(y) < level, low, high)

    def crps(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""The continuous ranked probability score, in closed form (Grimit et al. 2006):

        $$ \tfrac1S \sum_s A(y-\mu_s, \sigma_s^2) - \tfrac1{2S^2} \sum_{s,r} A(\mu_s-\mu_r, \sigma_s^2+\sigma_r^2) $$

        with $A(d, v) = 2\sqrt v\,\varphi(d/\sqrt v) + d\,(2\Phi(d/\sqrt v) - 1)$, the mean of $|\mathcal N(d, v)|$.
        """
        return self.distance_to(y) - 0.5 * self.distance_within()

    def distance_to(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$E|X - y|$ for X of the mixture."""
        self.check_truth(y)
        return jnp.mean(_mean_absolute(y - self.means, self.variances), axis=0)

    def distance_within(self, *, distinct: bool = False) -> Float[Array, "*shape"]:
        r"""$E|X - X'|$ for X and X' of the mixture, drawn independently.

        With `distinct`, of two independent components: an estimate without bias of what infinitely many samples of the
        model would have, where all pairs count a component's distance from itself too often. A component is
        independent of all others, or of all but the one with the opposite noise (`paired`). One sample is its own
        infinity.

        Raises:
            ValueError: If there are two components, and these are a pair, but independent ones are asked for.
        """
        means, variances = self.means, self.variances
        num_samples = self.num_samples
        diagonal = jnp.sum(2 * jnp.sqrt(variances / jnp.pi), axis=0)  # E|N(0, 2σ²)| = 2σ/√π
        if num_samples == 1:
            return diagonal

        if distinct and self.paired and num_samples == 2:
            raise ValueError("two samples with opposite noise: their distance says nothing of independent ones")

        # The double sum by shifts k = r − s, one at a time, which keeps memory at S fields, not S². Shifts k and S − k
        # have the same pairs, so that half of them are enough. The shift S/2 has those of opposite noise.
        def shifted(total, shift):
            others = jnp.roll(means, shift, axis=0), jnp.roll(variances, shift, axis=0)
            weight = jnp.where(2 * shift == num_samples, 1, 2)
            return total + weight * jnp.sum(_mean_absolute(means - others[0], variances + others[1]), axis=0), None

        without = distinct and self.paired
        shifts = jnp.arange(1, num_samples // 2 + (0 if without else 1))
        pairs, _ = jax.lax.scan(shifted, jnp.zeros_like(diagonal), shifts)
        if distinct:
            return pairs / (num_samples * (num_samples - (2 if without else 1)))
        return (diagonal + pairs) / num_samples**2

    def tempered(self, temperature: float | Float[Array, "*#shape"]) -> "Mixture":
        r"""Widen by a factor a about the mean m: $\mu_s \mapsto m + a(\mu_s - m)$, $\sigma_s \mapsto a\sigma_s$.

        The factor is one number, or one for each point.
        """
        _check_factor("temperature", temperature)
        mean, instances = self.mean, self.instance_means
        return Mixture(
            mean + temperature * (self.means - mean),
            temperature**2 * self.vars_predictive,
            temperature**2 * self.vars_generalization,
            None if instances is None else mean + temperature * (instances - mean),
            self.paired,
        )

    def scale_sigmas(self, factor: float | Float[Array, ""]) -> "Mixture":
        r"""Widen the components alone: $\sigma_s \mapsto a\sigma_s$, with the same $\mu_s$."""
        _check_factor("factor", factor)
        variances = factor**2 * self.vars_predictive, factor**2 * self.vars_generalization
        return Mixture(self.means, *variances, self.instance_means, self.paired)

    def combined(
        self,
        weights: Real[ArrayLike, "combination channel"],
        *,
        correlation: Float[ArrayLike, "channel channel"] | None = None,
        axis: int = 1,
    ) -> "Mixture":
        r"""Return the mixture of $\sum_c a_c y_c$ at every point: of quantities derived from several channels.

        $$ \mathcal N\Big(\sum_c a_c \mu_{s,c},\;
           \sum_{c,d} a_c a_d R_{cd} (\sigma_{pred,s,c}\sigma_{pred,s,d} + \sigma_{gen,s,c}\sigma_{gen,s,d})\Big) $$

        It is exact. Errors that channels share through noise inside the model are in their $\mu_s$ already; R is the
        correlation of the rest.

        Args:
            weights: One row a for each combination.
            correlation: R; by default the identity. `fit_correlation` estimates it on held-out fields.
            axis: The axis of a field that has the channels; in the result it has the combinations.

        Returns:
            The mixture of the combinations.

        Example:
            ```python
            mixture.combined(np.array([[1.0, -1.0]])).std  # of the difference of two channels
            ```
        """
        weights = jnp.asarray(weights, self.means.dtype)
        shared = jnp.eye(weights.shape[1]) if correlation is None else jnp.asarray(correlation, self.means.dtype)

        def along(values):
            return jnp.moveaxis(values, axis + 1, -1)

        def variance(variances):
            parts = along(jnp.sqrt(variances))[..., None, :] * weights
            squares = jnp.einsum("...oc,cd,...od->...o", parts, shared, parts, precision="float32")
            return jnp.moveaxis(squares, -1, axis + 1)

        def mean(means):
            return jnp.moveaxis(jnp.matmul(along(means), weights.T, precision="float32"), -1, axis + 1)

        instances = None if self.instance_means is None else mean(self.instance_means)
        variances = variance(self.vars_predictive), variance(self.vars_generalization)
        return Mixture(mean(self.means), *variances, instances, self.paired)

    def check_truth(self, y: Float[ArrayLike, "..."]) -> None:
        """Raise InputError for a field of another shape, which would be compared with every field or channel."""
        own, given = self.means.shape[1:], jnp.shape(y)
        fits = len(given) == len(own) and all(size in (1, wanted) for size, wanted in zip(given, own, strict=True))
        if given and not fits:
            raise InputError(f"y has shape {given}; the prediction has {own}")


def bisect(
    is_below: Callable[[Array], Array], low: Float[Array, "*shape"], high: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Return where `is_below` turns false between `low` and `high`, by 60 halvings."""

    def halve(_, interval):
        low, high = interval
        middle = 0.5 * (low + high)
        below = is_below(middle)
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
    return 0.5 * (low + high)


def check_level(level: float | Float[Array, ""]) -> None:
    """Raise InputError for a level outside (0, 1); inside a compiled program its value is not known."""
    if not isinstance(level, Tracer) and not 0 < float(level) < 1:
        raise InputError(f"level is {float(level):g}: must lie in (0, 1)")


def _check_factor(name: str, factor: float | Float[Array, "..."]) -> None:
    """Raise InputError for a factor of standard deviations that is known, and not positive and finite."""
    if jnp.ndim(factor) == 0 and not isinstance(factor, Tracer) and not 0 < float(factor) < float("inf"):
        raise InputError(f"{name} is {float(factor):g}: must be positive and finite")


@jax.custom_jvp
def _mean_absolute(difference, variance):
    """Return A(d, v) = E|X| for X ~ N(d, v)."""
    return _mean_absolute_and_slopes(difference, variance)[0]


def _mean_absolute_and_slopes(difference, variance):
    """Return A = 2√v φ(z) + d (2Φ(z) − 1) with z = d/√v, and its slopes ∂A/∂d = 2Φ(z) − 1 and ∂A/∂v = φ(z)/√v."""
    sigma = jnp.sqrt(variance)
    standard = difference / sigma
    density = jnp.exp(-0.5 * (standard**2 + LOG_2PI))
    # 2Φ(z) − 1 as erf: ndtr would compute two tails, of which only the difference is wanted.
    sides = erf(standard / math.sqrt(2))
    return 2 * sigma * density + difference * sides, (sides, density / sigma)


@_mean_absolute.defjvp
def _mean_absolute_jvp(primals, tangents):
    # Most terms of A cancel in its derivative: the rest costs a fraction of differentiating all of them.
    value, slopes = _mean_absolute_and_slopes(*primals)
    return value, slopes[0] * tangents[0] + slopes[1] * tangents[1]
