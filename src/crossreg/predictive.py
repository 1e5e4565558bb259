r"""A prediction: one Gaussian mixture at every point.

Sample $s$ of the model gives the component $\mathcal N(\mu_s, \sigma_{pred,s}^2 + \sigma_{gen,s}^2)$,
all of equal weight. Cross-regularized models, MC dropout, ensembles and plain networks all end here; metrics and
plots know nothing else.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Float

LOG_2PI = 1.8378770664093453


class Mixture(eqx.Module):
    """An equal-weight Gaussian mixture at every point, with an explicit sample axis.

    `means`, `vars_predictive` and `vars_generalization` are μ_s, σ_pred,s² and σ_gen,s² of each component. Where ψ
    owns noise inside the model, the μ_s vary for two reasons; `instance_means` are then the means under
    generalization noise alone, and tell the two apart.
    """

    means: Float[Array, "sample *shape"]
    vars_predictive: Float[Array, "sample *shape"]
    vars_generalization: Float[Array, "sample *shape"]
    instance_means: Float[Array, "instance *shape"] | None = None

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
        r"""$U_{pred} = E_s[\sigma_{pred,s}^2]$, and the spread of the means that is not ω's, where there is any."""
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

        Internal noise makes the first term, a σ_gen head the second.
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
    def std_predictive(self) -> Float[Array, "*shape"]:
        """√U_pred."""
        return jnp.sqrt(self.var_predictive)

    @property
    def std_generalization(self) -> Float[Array, "*shape"]:
        """√U_gen."""
        return jnp.sqrt(self.var_generalization)

    def log_prob(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$\log \frac1S \sum_s \mathcal N(y; \mu_s, \sigma_s^2)$ at every point, finite far into the tails."""
        variances = self.variances
        log_p = -0.5 * (LOG_2PI + jnp.log(variances) + (y - self.means) ** 2 / variances)
        return logsumexp(log_p, axis=0) - jnp.log(self.num_samples)

    def cdf(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$\frac1S \sum_s \Phi((y - \mu_s)/\sigma_s)$; at the truth it is the PIT."""
        return jnp.mean(ndtr((y - self.means) / jnp.sqrt(self.variances)), axis=0)

    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "*shape"]:
        """The value below which the mixture puts the probability `level`, by bisection.

        The root lies between the smallest and the largest quantile of the components; 60
        halvings reach the last bit of a float32 or, nearly, of a float64.
        """
        sigma = jnp.sqrt(self.variances)
        components = self.means + sigma * jax.scipy.special.ndtri(jnp.asarray(level, sigma.dtype))
        low, high = jnp.min(components, axis=0), jnp.max(components, axis=0)

        def halve(_, interval):
            low, high = interval
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < level
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
        return 0.5 * (low + high)

    def crps(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""The continuous ranked probability score, in closed form (Grimit et al. 2006):

        $$ \tfrac1S \sum_s A(y-\mu_s, \sigma_s^2) - \tfrac1{2S^2} \sum_{s,r} A(\mu_s-\mu_r, \sigma_s^2+\sigma_r^2) $$

        with $A(d, v) = 2\sqrt v\,\varphi(d/\sqrt v) + d\,(2\Phi(d/\sqrt v) - 1)$, the mean of $|\mathcal N(d, v)|$.
        """
        means, variances = self.means, self.variances
        to_truth = jnp.mean(_mean_absolute(y - means, variances), axis=0)

        # One row of the double sum at a time keeps memory at S fields, not S².
        def row(total, component):
            mean, variance = component
            return total + jnp.sum(_mean_absolute(mean - means, variance + variances), axis=0), None

        pairs, _ = jax.lax.scan(row, jnp.zeros_like(to_truth), (means, variances))
        return to_truth - 0.5 * pairs / self.num_samples**2

    def tempered(self, temperature: float | Float[Array, ""]) -> "Mixture":
        r"""Widened by a: $\mu_s \mapsto m + a(\mu_s - m)$, $\sigma_s \mapsto a\sigma_s$, m the mixture's mean."""
        mean, instances = self.mean, self.instance_means
        return Mixture(
            mean + temperature * (self.means - mean),
            temperature**2 * self.vars_predictive,
            temperature**2 * self.vars_generalization,
            None if instances is None else mean + temperature * (instances - mean),
        )


def _mean_absolute(difference, variance):
    """E|X| for X ~ N(difference, variance)."""
    sigma = jnp.sqrt(variance)
    standard = difference / sigma
    density = jnp.exp(-0.5 * (standard**2 + LOG_2PI))
    return 2 * sigma * density + difference * (2 * ndtr(standard) - 1)
