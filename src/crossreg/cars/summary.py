"""Scores of a car run, for `summary.json`; `report/cars/table.py` makes a table of them.

There are two intervals. `half_width` is half of Student's 95% interval over seeds, on the same cars: how much a score
depends on the start of a training. `over_cars` has the ends of a 95% bootstrap interval over the test cars, with the
same seeds: how much a score depends on the cars. Diverged runs are counted, and excluded from both.
"""

from typing import Any, NamedTuple

import numpy as np

from crossreg.cars.metrics import CarMeans, bootstrap
from crossreg.metrics.intervals import interval


class ScoredRun(NamedTuple):
    """One seed of a method: facts about it, its scores on the test cars, and those of every car."""

    about: dict[str, Any]
    scores: dict[str, Any]
    cars: CarMeans


def method_summary(runs: list[ScoredRun]) -> dict[str, Any]:
    """Return the scores of a method over its seeds, and of each seed."""
    good = [run for run in runs if not run.about["diverged"]]
    test, half = {}, {}
    for score in runs[0].scores:
        values = [run.scores[score] for run in good]
        if score == "coverage":
            test[score] = np.mean(values, axis=0).tolist() if values else None
        elif (found := interval(values)) is not None:
            test[score], half[score] = found
    return {
        "seeds": len(runs),
        "diverged": len(runs) - len(good),
        "test": test,
        "half_width": half,
        "over_cars": {score: [*limits] for score, limits in bootstrap([run.cars for run in good]).items()},
        "cars": {
            score: np.mean([getattr(run.cars, score) for run in good], axis=0).tolist() if good else None
            for score in ("relative_l2", "nll")
        },
        "runs": [run.about | {"test": run.scores} for run in runs],
    }
