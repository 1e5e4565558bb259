r"""Split conformal calibration of central intervals, on the mixture's PIT.

The score of a held-out point is how far out it lies, $s = -\log(2\min(u, 1-u))$ with u its PIT: the central interval
that just reaches it has the level $1 - e^{-s}$. The interval of nominal level α is then the one that ends at the
$\lceil (n+1)\alpha \rceil$-th smallest of the n scores: on exchangeable points it covers with probability at least α.
Points of one trajectory are not exchangeable one by one, so that on fields the promise is an approximation. So it is
behind another wrapper, which was fitted to the same held-out points.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from crossreg.data.keys import calibration_key
from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.predictive.in_units import Predictive, standardized, with_standard
from crossreg.predictive.mixture import Mixture, Recalibrated
from crossreg.predictors.batches import batches_of
from crossreg.predictors.predictor import Predictor

# Levels 0, 1/20, …, 19/20 are met by rank, all that ECE looks at among them; behind the last, scores are taken as
# exponential, which is what they are under the true distribution.
_PIECES = 20
# Two knots at one place would make an infinite density.
_SMALLEST_STEP = 1e-4


class Levels(NamedTuple):
    """Where B of a `Recalibrated` mixture bends, its values there, and its slope behind."""

    knots: Float[np.ndarray, " knot"]
    targets: Float[np.ndarray, " knot"]
    tail: float


class Conformal(eqx.Module):
    """A predictor whose mixtures have their central intervals relabelled."""

    predictor: Predictor
    knots: Float[Array, " knot"]
    targets: Float[Array, " knot"]
    tail: Float[Array, ""]

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Predictive:
        predictive = self.predictor(batch, keys)
        mixture, _ = standardized(predictive, batch.y)
        assert isinstance(mixture, Mixture)
        return with_standard(predictive, Recalibrated(mixture, self.knots, self.targets, self.tail))


def conformal_levels(scores: Float[np.ndarray, " point"]) -> Levels:
    """The levels that split conformal gives to scores of held-out points."""
    ordered = np.sort(np.asarray(scores, np.float64))
    knots = [0.0]
    for k in range(1, _PIECES):
        rank = -(-(ordered.size + 1) * k // _PIECES)
        # Too few points for a level: its interval ends nowhere, here far behind the last of them.
        score = float(ordered[rank - 1]) if rank <= ordered.size else float(ordered[-1]) + 10
        # Strictly rising, in float32 too.
        knots.append(max(score, knots[-1] * (1 + 1e-5) + _SMALLEST_STEP))
    excess = ordered[ordered > knots[-1]] - knots[-1]
    tail = 1 / np.clip(excess.mean(), 1e-3, 1e3) if excess.size else 1.0
    return Levels(np.asarray(knots), -np.log1p(-np.arange(_PIECES) / _PIECES), float(tail))


@eqx.filter_jit
def _scores(predictor, batch: Batch, keys) -> Float[Array, "batch channel *space"]:
    return -predictor(batch, keys).log_tail(batch.y)


def fit_conformal(predictor: Predictor, pairs: AbstractPairs) -> Conformal:
    """Relabels the intervals by their coverage of `pairs`."""
    scores = []
    for batch, keys, size in batches_of(pairs, key=calibration_key()):
        counts = np.broadcast_to(np.asarray(batch.weight) > 0, batch.y.shape)[:size]
        scores.append(np.asarray(_scores(predictor, batch, keys))[:size][counts])
    levels = conformal_levels(np.concatenate(scores))
    return Conformal(predictor, *(jnp.asarray(values, jnp.float32) for values in levels))
