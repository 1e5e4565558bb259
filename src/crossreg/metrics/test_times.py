"""Scores on test times within and beyond those that were trained on."""

from collections.abc import Callable
from typing import Any

import numpy as np

from crossreg.config import DataConfig
from crossreg.data.dataset import Data
from crossreg.data.files.streamed import evenly_spaced
from crossreg.data.pairs import AbstractPairs
from crossreg.metrics.evaluation import evaluate_all
from crossreg.predictors.predictor import Predictor


def trained_steps(data: Data, config: DataConfig) -> int | None:
    """Return the number of steps of each test trajectory within the times of train, or None where all of them are.

    Trajectories of all splits begin at the same time, so the first steps of test are at the times of train. Where the
    times themselves are divided among the splits, no test time is a time of train.
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
    """Score test within the times of train and beyond them.

    Each pair is scored with the noise that it has in the scores of all of test.

    Args:
        predictor: The predictor to be scored.
        data: The splits.
        config: The settings of the data.
        most_pairs: Returns the largest number of pairs of a split to score, or None for all.
        progress: Called after every batch with the number of pairs scored in it.

    Returns:
        None where test has no times beyond those of train. Otherwise `trained` and `tested`, the steps of train and of
        test, and `within` and `beyond`, the scores of both parts with their number of `pairs`. A part without any pair
        is None; both are where all of test is beyond.
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
