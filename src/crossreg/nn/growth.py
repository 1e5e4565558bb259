r"""Growth by lead: how much wider a distribution is k steps ahead than its particles say, learned on reg (ρ).

In a rollout, what is fed back is each particle's mean; σ_pred of the steps before is not. So σ_pred and the spread of
the particles each have a factor that is a smooth function of the lead k,

$$ \log s_k = a + b\,\ell(k), \qquad \log c_k = a' + b'\,\ell(k), \qquad \ell(k) = 2\,(1 - k^{-1/2}), $$

$$ \sigma_{pred} \mapsto \sqrt{g(\sigma_{pred}^2, s_k^2)}, \qquad
   \mu_p \mapsto m + \alpha\,(\mu_p - m), \quad \sigma_p \mapsto \alpha\,\sigma_p, \quad
   \alpha^2 = g(v, c_k^2)/v, $$

with m the mean of the particles and v their total variance at a point. $\ell$ is 0 at lead 1, rises like log k and ends
at 2, so that four numbers serve all leads, those beyond the longest that was learned on too. Widening ends
at the climate: g multiplies a small variance v by q but, where q > 1, leaves one of the climate's size V as it is,

$$ g(v, q) = \frac{q\,v}{1 + \max(q - 1, 0)\min(v/V, 1)}. $$
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from crossreg.nn.groups import Rho
from crossreg.predictive.mixture import Mixture


class LeadGrowth(Rho):
    """Factors of σ_pred and of the whole spread, by lead: part of ρ. Start from `LeadGrowth.start`.

    Attributes:
        sigma_pred: a and b of $s_k$.
        spread: a' and b' of $c_k$.
        climate: The variance V of the fields in the network's units, which is never trained.
    """

    sigma_pred: Float[Array, "2"]
    spread: Float[Array, "2"]
    climate: Float[Array, " channel"]

    @classmethod
    def start(cls, climate: Float[Array, " channel"]) -> "LeadGrowth":
        """Return factors of 1 at every lead."""
        return cls(jnp.zeros(2), jnp.zeros(2), climate)

    def factors(self, lead: int | Int[Array, "*lead"]) -> tuple[Float[Array, "*lead"], Float[Array, "*lead"]]:
        """Return $s_k$ and $c_k$."""
        late = 2 * (1 - jnp.asarray(lead, self.spread.dtype) ** -0.5)
        s, c = (jnp.exp(start + rise * late) for start, rise in (self.sigma_pred, self.spread))
        return s, c

    def __call__(self, mixture: Mixture, lead: int | Int[Array, ""]) -> Mixture:
        """Widen a mixture of standardised fields, k steps ahead."""
        s, c = self.factors(lead)
        climate = jax.lax.stop_gradient(self.climate).reshape(-1, *(1,) * (mixture.means.ndim - 3))
        wider = mixture.vars_predictive * _times(climate, mixture.vars_predictive, s**2)
        grown = eqx.tree_at(lambda m: m.vars_predictive, mixture, wider)
        return grown.tempered(jnp.sqrt(_times(climate, grown.variance, c**2)))


def _times(climate: Float[Array, "channel *ones"], variance: Float[Array, "*shape"], factor: Float[Array, ""]):
    """Return g(v, q)/v, which is q where there is no variance."""
    share = jnp.minimum(variance / jnp.maximum(climate, jnp.finfo(climate.dtype).tiny), 1.0)
    return factor / (1 + jnp.maximum(factor - 1, 0.0) * share)
