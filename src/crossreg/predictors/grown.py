"""A predictor whose distributions are wider by lead, as `fit_growth` has found on rollouts of held-out trajectories."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Int, Key

from crossreg.data.pairs import Batch
from crossreg.nn.growth import LeadGrowth
from crossreg.predictive.in_units import InUnits, with_standard
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.predictor import Predictor


class Grown(eqx.Module):
    """A predictor with its growth by lead; a prediction of one step has lead 1.

    Attributes:
        predictor: Any predictor whose mixtures have components.
        growth: The factors of σ_pred and of the whole spread.
        limits: The range that particles were held to when the growth was fitted, and are held to in forecasts.
    """

    predictor: Predictor
    growth: LeadGrowth
    limits: Any = None

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture | InUnits:
        predictive = self.predictor(batch, keys)
        return with_standard(predictive, self.growth(_mixture_of(predictive), 1))

    def at_leads(self, predictive: Mixture | InUnits, leads: Int[Array, " lead"]) -> Mixture | InUnits:
        """Return the distributions (component, lead, batch, channel, *space) of a forecast, wider by lead."""
        grown = jax.vmap(self.growth, in_axes=(1, 0), out_axes=1)(_mixture_of(predictive), leads)
        return with_standard(predictive, grown)


def _mixture_of(predictive: Any) -> Any:
    return predictive.standard if isinstance(predictive, InUnits) else predictive
