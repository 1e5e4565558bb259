"""From trained replicas to a predictor: choose, pool, and calibrate after training.

Only train and held-out data are read here, never test.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from crossreg.data.pairs import Data
from crossreg.methods.conformal import fit_conformal
from crossreg.methods.ensemble import EnsemblePredictor
from crossreg.methods.names import Method
from crossreg.methods.persistence import fit_persistence
from crossreg.methods.temperature import fit_temperature
from crossreg.metrics.evaluation import Predictor
from crossreg.nn.surrogate import Surrogate


class Trained(NamedTuple):
    """A trained replica: at its last step, and at its lowest NLL on the held-out data it was monitored on."""

    last: Surrogate
    best: Surrogate
    last_nll: float
    best_nll: float
    diverged_at: int


class ReadOut(NamedTuple):
    """A predictor, the models in it, and what was chosen or fitted on the way."""

    predictor: Predictor
    models: list[Surrogate]
    notes: dict[str, Any]


def read_out(method: Method, candidates: Sequence[Sequence[Trained]], data: Data, num_samples: int) -> ReadOut:
    """The predictor of a method, from the members of each of its candidates.

    What is chosen or fitted here uses `data.unseen`: all of reg, or the part that was kept from it.
    """
    notes: dict[str, Any] = {}
    models: list[Surrogate] = []
    if candidates:
        nll = [np.mean([t.best_nll if method.early else t.last_nll for t in members]) for members in candidates]
        chosen = int(np.argmin(np.where(np.isfinite(nll), nll, np.inf))) if len(nll) > 1 else 0
        if len(nll) > 1:
            notes["chosen"] = chosen
        models = [t.best if method.early else t.last for t in candidates[chosen]]
        predictor: Predictor = EnsemblePredictor(models, num_samples)
    else:
        predictor = fit_persistence(data.train, knows_mask=method.name.startswith("persistence-masked"))
    if method.temperature:
        predictor = fit_temperature(predictor, data.unseen)
        notes["temperature"] = float(predictor.temperature)
    if method.conformal:
        predictor = fit_conformal(predictor, data.unseen)
    return ReadOut(predictor, models, notes)
