r"""A predictive distribution in the units of a user's fields.

Spreads, variances and scores are computed for the standardised field $z = (u - o)/s$ and only then brought to the units
of $u = o + s z$. At an offset of 10⁵, float32 resolves steps of 0.008: a spread of means computed after o is added is
mostly rounding error. And the squares of fields of 10¹⁸, or of 10⁻²², are beyond float32.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Real

from crossreg.predictive.mixture import Mixture
from crossreg.predictive.recalibrated import Recalibrated


class InUnits(eqx.Module):
    """The distribution of $u = o + s z$, in the fields' units. It has the properties and methods of a mixture.

    Attributes:
        standard: The distribution of the standardised field z.
        offset: o of each channel, shaped to broadcast over a batch of fields.
        scale: s of each channel, likewise.

    Example:
        ```python
        predictive = xr.predict(model, x)  # a model whose data have units
        predictive.std                  # in the fields' units
        predictive.standard.std         # of the standardised field
        ```
    """

    standard: Mixture | Recalibrated
    offset: Float[Array, "channel *ones"]
    scale: Float[Array, "channel *ones"]

    def to_standard(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Return z of a field u; one of another shape raises InputError."""
        (self.standard.mixture if isinstance(self.standard, Recalibrated) else self.standard).check_truth(y)
        return (y - self.offset) / self.scale

    @property
    def num_samples(self) -> int:
        """S, the number of components."""
        return self._mixture.num_samples

    @property
    def means(self) -> Float[Array, "sample *shape"]:
        """μ_s of each component, rounded as the fields are: for their spread use `std_of_means`."""
        return self.offset + self.scale * self._mixture.means

    @property
    def vars_predictive(self) -> Float[Array, "sample *shape"]:
        """σ_pred,s² of each component."""
        return self.scale**2 * self._mixture.vars_predictive

    @property
    def vars_generalization(self) -> Float[Array, "sample *shape"]:
        """σ_gen,s² of each component."""
        return self.scale**2 * self._mixture.vars_generalization

    @property
    def variances(self) -> Float[Array, "sample *shape"]:
        """σ_s² of each component."""
        return self.scale**2 * self._mixture.variances

    @property
    def mean(self) -> Float[Array, "*shape"]:
        """The mean."""
        return self.offset + self.scale * self.standard.mean

    @property
    def std(self) -> Float[Array, "*shape"]:
        """The total standard deviation, √U_tot."""
        return self.scale * self.standard.std

    @property
    def std_predictive(self) -> Float[Array, "*shape"]:
        """√U_pred."""
        return self.scale * self.standard.std_predictive

    @property
    def std_generalization(self) -> Float[Array, "*shape"]:
        """√U_gen."""
        return self.scale * self.standard.std_generalization

    @property
    def variance(self) -> Float[Array, "*shape"]:
        """U_tot."""
        return self.std**2

    @property
    def var_predictive(self) -> Float[Array, "*shape"]:
        """U_pred."""
        return self.std_predictive**2

    @property
    def var_generalization(self) -> Float[Array, "*shape"]:
        """U_gen."""
        return self.std_generalization**2

    @property
    def var_of_means(self) -> Float[Array, "*shape"]:
        """Var_ω[μ], the spread of the means over model instances."""
        return self.std_of_means**2

    @property
    def std_of_means(self) -> Float[Array, "*shape"]:
        """Std_ω[μ]."""
        return self.scale * self.standard.std_of_means

    def log_prob(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Return the log-density at every point: that of z, less log s."""
        return self.standard.log_prob(self.to_standard(y)) - jnp.log(self.scale)

    def cdf(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The distribution function; at the truth it is the PIT."""
        return self.standard.cdf(self.to_standard(y))

    def log_tail(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The log of the mass outside the central interval that ends at y."""
        return self._mixture.log_tail(self.to_standard(y))

    def quantile(self, level: float | Float[Array, ""]) -> Float[Array, "*shape"]:
        """Return the value below which the distribution has the probability `level`."""
        return self.offset + self.scale * self.standard.quantile(level)

    def crps(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The continuous ranked probability score, in the fields' units."""
        return self.scale * self.standard.crps(self.to_standard(y))

    def distance_to(self, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        r"""$E|X - y|$, in the fields' units."""
        return self.scale * self._mixture.distance_to(self.to_standard(y))

    def distance_within(self, *, distinct: bool = False) -> Float[Array, "*shape"]:
        r"""$E|X - X'|$, in the fields' units."""
        return self.scale * self._mixture.distance_within(distinct=distinct)

    def tempered(self, temperature: float | Float[Array, ""]) -> "InUnits":
        """Widen about the mean, as `Mixture.tempered` does."""
        return dataclasses.replace(self, standard=self._mixture.tempered(temperature))

    def scale_sigmas(self, factor: float | Float[Array, ""]) -> "InUnits":
        """Multiply every σ_s, as `Mixture.scale_sigmas` does."""
        return dataclasses.replace(self, standard=self._mixture.scale_sigmas(factor))

    def combined(
        self,
        weights: Real[ArrayLike, "combination channel"],
        *,
        correlation: Float[ArrayLike, "channel channel"] | None = None,
        axis: int = 1,
    ) -> "InUnits":
        r"""Return the distribution of $\sum_c a_c u_c$; arguments are those of `Mixture.combined`."""
        weights = jnp.asarray(weights, self.scale.dtype)
        ones = (-1, *(1,) * (self.scale.ndim - 1))
        lengths = weights * self.scale.reshape(-1)
        # One scale for each combination, so that combinations keep the size of z.
        scale = jnp.max(jnp.abs(lengths), axis=1)
        scale = jnp.where(scale > 0, scale, 1.0)
        standard = self._mixture.combined(lengths / scale[:, None], correlation=correlation, axis=axis)
        offset = jnp.matmul(weights, self.offset.reshape(-1), precision="float32")
        return InUnits(standard, offset.reshape(ones), scale.reshape(ones))

    @property
    def _mixture(self) -> Mixture:
        if not isinstance(self.standard, Mixture):
            raise TypeError("a recalibrated distribution has quantiles, densities and scores, but no components")
        return self.standard


Predictive = Mixture | Recalibrated | InUnits


def standardized(predictive: Predictive, y: Float[Array, "*shape"]) -> tuple[Any, Float[Array, "*shape"]]:
    """Return a distribution and the truth in the network's units, for losses and sums of squares."""
    if isinstance(predictive, InUnits):
        return predictive.standard, predictive.to_standard(y)
    return predictive, y


def error_of(predictive: Predictive, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return the mean less the truth in the fields' units; no offset, with its rounding, is added before."""
    standard, truth = standardized(predictive, y)
    error = standard.mean - truth
    return predictive.scale * error if isinstance(predictive, InUnits) else error


def _units_of(mixture: Mixture | InUnits) -> tuple[Any, Any]:
    return (mixture.offset, mixture.scale) if isinstance(mixture, InUnits) else (0.0, 1.0)


def standardized_as(mixture: Mixture | InUnits, like: Mixture | InUnits) -> Mixture:
    r"""Return the components of a mixture, standardised as another one is.

    A component of mean $o_1 + s_1 m$ has the mean $(o_1 - o_0)/s_0 + (s_1/s_0) m$ in the other's units $o_0$ and $s_0$.
    Without units, $o = 0$ and $s = 1$.
    """
    offsets, scales = zip(*map(_units_of, (mixture, like)), strict=True)
    shift, factor = (offsets[0] - offsets[1]) / scales[1], scales[0] / scales[1]
    own = mixture._mixture if isinstance(mixture, InUnits) else mixture
    return Mixture(
        shift + factor * own.means,
        factor**2 * own.vars_predictive,
        factor**2 * own.vars_generalization,
        None if own.instance_means is None else shift + factor * own.instance_means,
    )


def with_standard(predictive: Predictive, standard: Mixture | Recalibrated) -> Any:
    """Replace the distribution of the standardised field, in the units of `predictive`."""
    return dataclasses.replace(predictive, standard=standard) if isinstance(predictive, InUnits) else standard
