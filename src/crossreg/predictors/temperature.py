r"""Temperature: one number that widens or narrows every mixture, fitted to held-out NLL.

`+temperature` stretches the whole mixture about its mean,

$$ \mu_s \mapsto m + a(\mu_s - m), \qquad \sigma_s \mapsto a\sigma_s, \qquad m = \tfrac1S \sum_s \mu_s, $$

and `+sigma-temperature` scales the σ alone, $\sigma_s \mapsto a\sigma_s$, which suits ensembles whose members are far
too sure of themselves although their means are rightly spread. For a single Gaussian the two agree, and a is the root
mean square of the z-scores.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from crossreg.data.keys import calibration_key
from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.errors import InputError
from crossreg.nn.surrogate import Surrogate, Trained
from crossreg.predictive.in_units import InUnits, Predictive
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.batches import NOTHING_SCORED, batches_of
from crossreg.predictors.predictor import Predictor, as_predictor, with_components

Form = Literal["stretch", "sigma"]
# log a is searched on this grid, then on finer ones around its best point. A σ alone may be too small by more.
_LARGEST_LOG: dict[Form, float] = {"stretch": 4.0, "sigma": 8.0}
_GRID = {"stretch": 33, "sigma": 65}


class Tempered(eqx.Module):
    """A predictor whose mixtures are scaled by `temperature`, as a whole or in their σ alone."""

    predictor: Predictor
    temperature: Float[Array, ""]
    form: Form = eqx.field(static=True, default="stretch")

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture | InUnits:
        return self.recalibrate(self.predictor(batch, keys))

    def recalibrate(self, mixture: Predictive) -> Mixture | InUnits:
        """Return a mixture with the fitted scale."""
        return _widened(mixture, self.temperature, self.form)

    @property
    def limits(self) -> Any:
        """The range that particles are held to in forecasts: that of the predictor inside."""
        return getattr(self.predictor, "limits", None)


def _widened(predictive: Predictive, temperature: Float[Array, ""], form: Form) -> Mixture | InUnits:
    mixture = with_components(predictive, "temperature", "to widen")
    return mixture.tempered(temperature) if form == "stretch" else mixture.scale_sigmas(temperature)


@eqx.filter_jit
def _nll_of_each(predictor, batch: Batch, keys, size, temperatures: Float[Array, " grid"], form: Form):
    """Return the summed NLL at each temperature and the number of points; pairs from `size` on are padding."""
    mixture = predictor(batch, keys)
    counts = (jnp.arange(batch.x.shape[0]) < size).reshape(-1, *(1,) * (batch.y.ndim - 1))
    weight = jnp.broadcast_to(batch.weight * counts, batch.y.shape)

    def nll(temperature: Float[Array, ""]) -> Float[Array, ""]:
        return -jnp.sum(weight * _widened(mixture, temperature, form).log_prob(batch.y))

    return jax.lax.map(nll, temperatures), weight.sum()


def fit_temperature(
    predictor: Surrogate | Trained | Predictor, pairs: AbstractPairs, *, form: Form = "stretch", num_samples: int = 30
) -> Tempered:
    """Find the temperature with the lowest mean NLL on held-out pairs, to 10⁻³ of its logarithm.

    Args:
        predictor: A surrogate, a `Fit` or a `Run`, of which `num_samples` instances are drawn, or any predictor.
        pairs: Held-out pairs that the predictor was not trained on.
        form: `stretch` scales whole mixtures about their mean, `sigma` scales the σ of each component.
        num_samples: Samples per prediction of a surrogate.

    Returns:
        A predictor whose mixtures are scaled; its `temperature` is the factor.

    Raises:
        InputError: If the pairs have no point that is scored, or the predictor is recalibrated already.

    Example:
        ```python
        tempered = xr.methods.fit_temperature(result.model, data.reg)
        xr.evaluate(tempered, data.test)["nll"]
        ```
    """
    predictor = as_predictor(predictor, num_samples)

    def scores(logs: np.ndarray) -> np.ndarray:
        temperatures = jnp.asarray(np.exp(logs), jnp.float32)
        totals, count = np.zeros(logs.size), 0.0
        for batch, keys, size in batches_of(pairs, key=calibration_key()):
            nll, points = _nll_of_each(predictor, batch, keys, jnp.asarray(size), temperatures, form)
            totals, count = totals + np.asarray(nll, np.float64), count + float(points)
        if not count:
            raise InputError(NOTHING_SCORED)
        return totals / count

    center, reach, size = 0.0, _LARGEST_LOG[form], _GRID[form]
    for _ in range(3):
        logs = center + np.linspace(-reach, reach, size)
        nll = scores(logs)
        center = float(logs[np.argmin(np.where(np.isfinite(nll), nll, np.inf))])
        reach = 2 * reach / (size - 1)
    return Tempered(predictor, jnp.asarray(np.exp(center), jnp.float32), form)
