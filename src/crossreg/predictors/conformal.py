r"""Split conformal calibration of central intervals, on the mixture's PIT.

The score of a held-out point with PIT u is $s = -\log(2\min(u, 1-u))$: the central interval that just reaches the
point has the level $1 - e^{-s}$. The calibrated interval of nominal level α ends at the
$\lceil (n+1)\alpha \rceil$-th smallest of the n scores, so that on exchangeable points it covers with probability at
least α. Neighbouring points of a field are not exchangeable, so on fields the guarantee is approximate. It is also
approximate after another wrapper that was fitted to the same held-out points.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from crossreg.data.keys import calibration_key
from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.errors import InputError
from crossreg.nn.surrogate import Surrogate, Trained
from crossreg.predictive.in_units import InUnits, Predictive, with_standard
from crossreg.predictive.recalibrated import Recalibrated
from crossreg.predictors.batches import NOTHING_SCORED, batches_of
from crossreg.predictors.predictor import Predictor, as_predictor, with_components

# Levels 0, 1/20, …, 19/20 are fitted by rank; they include all levels of the ECE. Beyond the last one, scores are taken
# as exponential, their distribution under the true model.
_PIECES = 20
# Two equal knots would make the density infinite.
_SMALLEST_STEP = 1e-4


class Levels(NamedTuple):
    """The map B of a `Recalibrated` mixture: its knots, its values there, and its slope after the last knot."""

    knots: Float[np.ndarray, " knot"]
    targets: Float[np.ndarray, " knot"]
    tail: float


class Conformal(eqx.Module):
    """A predictor whose central intervals carry the levels that they had on held-out data."""

    predictor: Predictor
    knots: Float[Array, " knot"]
    targets: Float[Array, " knot"]
    tail: Float[Array, ""]

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Predictive:
        return self.recalibrate(self.predictor(batch, keys))

    def recalibrate(self, predictive: Predictive) -> Predictive:
        """Return a mixture with the fitted levels."""
        found = with_components(predictive, "conformal", "to recalibrate")
        mixture: Any = found.standard if isinstance(found, InUnits) else found
        return with_standard(found, Recalibrated(mixture, self.knots, self.targets, self.tail))

    @property
    def limits(self) -> Any:
        """The range that particles are held to in forecasts: that of the predictor inside."""
        return getattr(self.predictor, "limits", None)


def conformal_levels(scores: Float[np.ndarray, " point"]) -> Levels:
    """Return the levels that split conformal assigns to scores of held-out points."""
    ordered = np.sort(np.asarray(scores, np.float64))
    knots = [0.0]
    for k in range(1, _PIECES):
        rank = -(-(ordered.size + 1) * k // _PIECES)
        # With too few points for a level its interval is unbounded; here it ends far beyond the largest score.
        score = float(ordered[rank - 1]) if rank <= ordered.size else float(ordered[-1]) + 10
        # Strictly increasing, in float32 too.
        knots.append(max(score, knots[-1] * (1 + 1e-5) + _SMALLEST_STEP))
    excess = ordered[ordered > knots[-1]] - knots[-1]
    tail = 1 / np.clip(excess.mean(), 1e-3, 1e3) if excess.size else 1.0
    return Levels(np.asarray(knots), -np.log1p(-np.arange(_PIECES) / _PIECES), float(tail))


@eqx.filter_jit
def _scores(predictor, batch: Batch, keys) -> Float[Array, "batch channel *space"]:
    predictive = with_components(predictor(batch, keys), "conformal", "to recalibrate")
    return -predictive.log_tail(batch.y)


def fit_conformal(
    predictor: Surrogate | Trained | Predictor, pairs: AbstractPairs, *, num_samples: int = 30
) -> Conformal:
    """Recalibrate central intervals by their coverage of held-out pairs.

    Args:
        predictor: A surrogate, a `Fit` or a `Run`, of which `num_samples` instances are drawn, or any predictor.
        pairs: Held-out pairs that the predictor was not trained on.
        num_samples: Samples per prediction of a surrogate.

    Returns:
        A predictor with the same means whose intervals have the held-out coverage.

    Raises:
        InputError: If the pairs have no point that is scored, or the predictor is recalibrated already.

    Example:
        ```python
        calibrated = xr.methods.fit_conformal(result.model, data.reg)
        xr.evaluate(calibrated, data.test)["ece_mix"]
        ```
    """
    predictor, scores = as_predictor(predictor, num_samples), []
    for batch, keys, size in batches_of(pairs, key=calibration_key()):
        counts = np.broadcast_to(np.asarray(batch.weight) > 0, batch.y.shape)[:size]
        scores.append(np.asarray(_scores(predictor, batch, keys))[:size][counts])
    points = np.concatenate(scores)
    if not points.size:
        raise InputError(NOTHING_SCORED)
    levels = conformal_levels(points)
    return Conformal(predictor, *(jnp.asarray(values, jnp.float32) for values in levels))
