r"""The losses that train and reg minimise. Each is computed per point (x, t), then averaged.

$\mu_s$, $\sigma_{pred,s}$ and $\sigma_{gen,s}$ are those of the mixture's components. In a model without σ_gen head,
$\sigma_{gen} = 0$ and the generalization noise is in the spread of the $\mu_s$; in one without internal noise, S = 1.
Fields in units are standardised first: a loss does not depend on the unit of a field, and no channel counts for more
because its numbers are larger.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from crossreg.config.settings import RegObjective, TrainObjective
from crossreg.predictive.in_units import InUnits, standardized
from crossreg.predictive.mixture import LOG_2PI, Mixture

Weight = Float[Array, "*#shape"] | None
Sampled = Mixture | InUnits
# A loss on reg, (mixture, y, weight) ↦ scalar: the mean over the points of weight 1. In training, the mixture and the
# truth y are those of the standardised fields, and weight broadcasts against y.
RegLoss = Callable[..., Float[Array, ""]]


def weighted_mean(values: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    """Return the mean over all points, or over those of weight 1."""
    if weight is None:
        return jnp.mean(values)
    weight = jnp.broadcast_to(weight, values.shape)
    return jnp.sum(weight * values) / jnp.sum(weight)


def batch_mean(values: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    """Return the mean for a loss: 0, without a gradient, if no point of a batch counts, as in data with gaps."""
    if weight is None:
        return jnp.mean(values)
    weight = jnp.broadcast_to(weight, values.shape)
    return jnp.sum(weight * values) / jnp.maximum(jnp.sum(weight), jnp.finfo(values.dtype).tiny)


def train_objective(mixture: Sampled, y: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    r"""$\mathcal L_{train} = -\log \frac1S \sum_s p_{hier}(y \mid x, \omega_s)$ with

    $$ \log p_{hier} = -\tfrac12\left[
        \log(2\pi\sigma_{pred}^2) + \frac{(y-\mu)^2 + \sigma_{gen}^2}{\sigma_{pred}^2}
    \right]. $$

    σ_gen enters as a constant. p_hier is an objective, not a density, and no reported NLL uses it.
    """
    mixture, y = standardized(mixture, y)
    gen = jax.lax.stop_gradient(mixture.vars_generalization)
    pred = mixture.vars_predictive
    log_p = -0.5 * (LOG_2PI + jnp.log(pred) + ((y - mixture.means) ** 2 + gen) / pred)
    nll = jnp.log(mixture.num_samples) - logsumexp(log_p, axis=0)
    return batch_mean(nll, weight)


def log_scale(mixture: Sampled, y: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    """Return the mean of log s, by which an NLL in the fields' units exceeds that of standardised fields."""
    if not isinstance(mixture, InUnits):
        return jnp.zeros(())
    return batch_mean(jnp.broadcast_to(jnp.log(mixture.scale), y.shape), weight)


def mixture_nll(mixture: Sampled, y: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    r"""$\mathcal L_{reg}^{mix} = -\log \frac1S \sum_s \mathcal N(y; \mu_s, \sigma_{pred,s}^2 + \sigma_{gen,s}^2)$."""
    mixture, y = standardized(mixture, y)
    return batch_mean(-mixture.log_prob(y), weight)


def moment_matched_nll(mixture: Sampled, y: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    r"""$\mathcal L_{reg}^{mm} = -\log \mathcal N(y; \mu_{mm}, \sigma_{mm}^2)$ with

    $$ \mu_{mm} = E[\mu_s], \qquad \sigma_{mm}^2 = E[\sigma_s^2 + \mu_s^2] - \mu_{mm}^2, $$

    the mixture's own mean and variance.
    """
    mixture, y = standardized(mixture, y)
    variance = mixture.variance
    nll = 0.5 * (LOG_2PI + jnp.log(variance) + (y - mixture.mean) ** 2 / variance)
    return batch_mean(nll, weight)


def fair_moment_matched_nll(mixture: Sampled, y: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    r"""$\mathcal L_{reg}^{mm}$ of infinitely many samples, estimated from S of them.

    With S samples, $\mu_{mm}$ has the variance $s^2/S$, where $s^2 = \frac{1}{S-1}\sum_s(\mu_s - \mu_{mm})^2$, and
    $v = E[\sigma_s^2] + s^2$ is noisy: at S = 10 the minimum of $\mathcal L_{reg}^{mm}$ lies up to 5% below the right
    total standard deviation if the spread of the means is a small part of it, and 19% above if it is all of it.
    For Gaussian $\mu_s$, v has about $\nu = (S-1)(v/s^2)^2$ degrees of freedom (Satterthwaite), and

    $$ \tfrac12\left[\log 2\pi v + \frac1\nu
        + \left(1 - \frac2\nu\right)\frac{(y-\mu_{mm})^2 - s^2/S}{v}\right] $$

    has the same expectation as the limit to first order in 1/ν, and exactly (up to a constant) without other noise than
    the spread: then it is the ensemble-adjusted logarithmic score (Siegert et al. 2019). With one sample there is
    nothing to correct.

    Raises:
        ValueError: If S is 2 or 3.
    """
    mixture, y = standardized(mixture, y)
    num_samples = mixture.num_samples
    if num_samples in (2, 3):
        raise ValueError(f"the fair objective needs 4 or more samples, not {num_samples}")
    degrees = max(num_samples - 1, 1)
    spread = jnp.var(mixture.means, axis=0) * num_samples / degrees
    variance = jnp.mean(mixture.variances, axis=0) + spread
    inverse_nu = (spread / variance) ** 2 / degrees
    squared = (y - mixture.mean) ** 2 - spread / num_samples
    nll = 0.5 * (LOG_2PI + jnp.log(variance) + inverse_nu + (1 - 2 * inverse_nu) * squared / variance)
    return batch_mean(nll, weight)


def fair_crps(mixture: Sampled, y: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    r"""$E|X - y| - \tfrac12 E|X - X'|$ of infinitely many samples, estimated without bias from S (Ferro 2014)."""
    mixture, y = standardized(mixture, y)
    return batch_mean(mixture.distance_to(y) - 0.5 * mixture.distance_within(distinct=True), weight)


def train_crps(mixture: Sampled, y: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    """Return the fair CRPS for θ and ψ: σ_gen enters as a constant, as in `train_objective`."""
    mixture, y = standardized(mixture, y)
    mixture = eqx.tree_at(lambda m: m.vars_generalization, mixture, replace_fn=jax.lax.stop_gradient)
    return fair_crps(mixture, y, weight)


def scaled_crps(mixture: Sampled, y: Float[Array, "*shape"], weight: Weight = None) -> Float[Array, ""]:
    r"""$\frac{E|X - y|}{E|X - X'|} + \tfrac12\log E|X - X'|$, the scaled CRPS (Bolin and Wallin 2023).

    It is proper and, like the likelihood, independent of the local scale; but it grows with the size of an error, not
    its square, so that a few large errors do not widen all the rest.
    """
    mixture, y = standardized(mixture, y)
    within = mixture.distance_within(distinct=True)
    return batch_mean(mixture.distance_to(y) / within + 0.5 * jnp.log(within), weight)


TRAIN_OBJECTIVES: dict[TrainObjective, RegLoss] = {"likelihood": train_objective, "crps": train_crps}
REG_OBJECTIVES: dict[RegObjective, RegLoss] = {
    "fair": fair_moment_matched_nll,
    "moment-matched": moment_matched_nll,
    "mixture": mixture_nll,
    "crps": fair_crps,
    "scaled-crps": scaled_crps,
}
