"""A predictor: anything that turns a batch of inputs into a predictive distribution."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Key

from crossreg.data.pairs import Batch
from crossreg.errors import InputError
from crossreg.nn.surrogate import Surrogate, Trained, predict, surrogate_in
from crossreg.predictive.in_units import InUnits, Predictive
from crossreg.predictive.mixture import Mixture
from crossreg.predictive.recalibrated import Recalibrated

Predictor = Callable[[Batch, Key[Array, " batch"]], Predictive]
"""Anything that turns a batch, and a key for each of its pairs, into a predictive distribution at every point."""


class SurrogatePredictor(eqx.Module):
    """A surrogate as a predictor: its mixture of `num_samples` sampled Gaussians."""

    model: Surrogate
    num_samples: int = eqx.field(static=True)

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture | InUnits:
        return predict(self.model, batch.x, at=batch.at, key=keys, num_samples=self.num_samples)


def as_predictor(predictor: Surrogate | Trained | Predictor, num_samples: int = 30) -> Predictor:
    """Return a surrogate, or what holds one, as a predictor of `num_samples` samples, and a predictor unchanged."""
    if callable(predictor) and not isinstance(predictor, Surrogate):
        return predictor
    return SurrogatePredictor(surrogate_in(predictor), num_samples)


def with_components(predictive: Predictive, asked_by: str, use: str) -> Mixture | InUnits:
    """Return a predictive distribution that has components; raise InputError, which says for what use, if it has none.

    Args:
        predictive: The distribution, in units or standardised.
        asked_by: What needs the components.
        use: What it does with them, as in "to follow".
    """
    standard = predictive.standard if isinstance(predictive, InUnits) else predictive
    if isinstance(standard, Recalibrated):
        raise InputError(f"{asked_by}: the predictor gives a recalibrated distribution, which has no components {use}")
    return predictive  # pyright: ignore[reportReturnType]
