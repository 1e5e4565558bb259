"""Test times beyond those that were trained on: which they are, and what a model scores within and beyond them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from crossreg.config import DataConfig
from crossreg.data.files.streamed import evenly_spaced
from crossreg.data.pairs import AbstractPairs, Data
from crossreg.metrics.evaluation import evaluate_all
from crossreg.predictors.predictor import Predictor


def trained_steps(data: Data, config: DataConfig) -> int | None:
    """Return how many steps of each test trajectory lie within the times of train, or None where all of them do.

    Trajectories of all splits begin at the same time, so that the first steps of test are the times of train. Where the
    times themselves are divided among the splits, no test time is one of train's.
    """
    if config.split == "time" and config.data is not None:
        return 0
    trained = data.train.pairs_per_row
    return trained if trained < data.test.pairs_per_row else None


def scores_by_time(
    predictor: Predictor,
    data: Data,
    config: DataConfig,
    *,
    most_pairs: Callable[[AbstractPairs], int | None] = lambda pairs: None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any] | None:
    """Score test within the times of train and beyond them; None where test has no times beyond.

    Each pair has the noise that it has in the scores of all of test. Returns the steps of train and of test as
    `trained` and `tested`, and the scores of both parts with their number of `pairs` as `within` and `beyond`; a part
    without any pair, and both where all of test is beyond, are None.
    """
    if (trained := trained_steps(data, config)) is None:
        return None
    test, tested = data.test, data.test.pairs_per_row
    found: dict[str, Any] = {"trained": trained, "tested": tested, "within": None, "beyond": None}
    if not trained:
        return found
    step = evenly_spaced(int(test.num_pairs), most_pairs(test)) % tested
    for name, steps in (("within", range(trained)), ("beyond", range(trained, tested))):
        if pairs := int(np.isin(step, steps).sum()):
            jobs = [(predictor, test)]
            [scores] = evaluate_all(jobs, progress=progress, most_pairs=most_pairs, steps=steps)
            found[name] = {"pairs": pairs} | scores
    return found
