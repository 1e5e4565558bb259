"""From trained replicas to a predictor: choose a candidate, pool its members, and calibrate after training.

Only train and held-out data are read here, never test. Candidates are chosen on `data.reg`. The wrappers are fitted on
`data.held_out`: the calibration part for a method that learns on reg, else all of reg. Several wrappers of one method
share these data.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from crossreg.config import Config
from crossreg.data.dataset import Data
from crossreg.data.keys import calibration_key
from crossreg.forecasts.growth import fit_growth
from crossreg.methods.early import Trained
from crossreg.methods.names import Method
from crossreg.metrics.evaluation import mean_nll
from crossreg.nn.surrogate import Surrogate
from crossreg.predictors.conformal import fit_conformal
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.predictors.persistence import fit_persistence
from crossreg.predictors.predictor import Predictor
from crossreg.predictors.temperature import fit_temperature

# Steps of the rollouts that a growth by lead is fitted to, or as many as reg trajectories have.
ROLLOUT_HORIZON = 50


class ReadOut(NamedTuple):
    """A predictor and where it came from.

    Attributes:
        predictor: The predictor, calibrated as the method asks.
        models: The models that it pools; empty for a method that is not trained.
        chosen: The index of the candidate that was chosen.
        failed: Whether one of the models is unusable (`Trained.failed`).
        notes: What was fitted after training, such as the temperature.
    """

    predictor: Predictor
    models: list[Surrogate]
    chosen: int
    failed: bool
    notes: dict[str, Any]


def read_out(method: Method, candidates: Sequence[Sequence[Trained]], data: Data, num_samples: int) -> ReadOut:
    """Return the predictor of a method.

    Args:
        method: The method.
        candidates: The trained members of each candidate; empty for a method that is not trained.
        data: The splits; test is not read.
        num_samples: Samples of each model in a prediction.
    """
    notes: dict[str, Any] = {}
    models: list[Surrogate] = []
    chosen, failed = 0, False
    if candidates:
        pools = [[t.model(early=method.early) for t in members] for members in candidates]
        predictors: list[Predictor] = [EnsemblePredictor(pool, num_samples) for pool in pools]
        if len(predictors) > 1:
            nll = [mean_nll(predictor, data.reg, key=calibration_key()) for predictor in predictors]
            chosen = int(np.argmin(np.where(np.isfinite(nll), nll, np.inf)))
            # Candidates are dropout rates.
            notes["dropout_rate"] = method.configs(Config())[chosen].model.dropout_rate
        models, predictor = pools[chosen], predictors[chosen]
        failed = any(t.failed(early=method.early) for t in candidates[chosen])
    else:
        predictor = fit_persistence(data.train, knows_mask=method.name.startswith("persistence-masked"))
    # Members that learned from rollouts each by itself are too wide together.
    pools_rollouts = len(models) > 1 and all(model.growth is not None for model in models)
    if method.growth or pools_rollouts:
        held_out = data.held_out if method.growth else data.reg
        predictor = fit_growth(predictor, held_out, min(ROLLOUT_HORIZON, held_out.pairs_per_row))
        notes["growth"] = predictor.growth.spread.tolist()
    if method.temperature or method.sigma_temperature:
        predictor = fit_temperature(predictor, data.held_out, form="stretch" if method.temperature else "sigma")
        notes["temperature"] = float(predictor.temperature)
    if method.conformal:
        predictor = fit_conformal(predictor, data.held_out)
    return ReadOut(predictor, models, chosen, failed, notes)
