"""The final scores of a run: what `metrics.json` holds and `crossreg evaluate` prints."""

import math
from pathlib import Path
from typing import Any

from crossreg.config import Config
from crossreg.data.pairs import AbstractPairs, Data
from crossreg.metrics.evaluation import evaluate_all, sigma_per_site
from crossreg.metrics.test_times import scores_by_time, trained_steps
from crossreg.nn.surrogate import Surrogate
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.progress.display import CountDisplay

# Of data in files, the pairs of each split that are scored unless a config says more.
SCORED_PAIRS = 1000


def final_metrics(
    model: Surrogate, data: Data, config: Config, *, progress: bool = False, folder: Path | None = None
) -> dict[str, Any]:
    """Compute the scores on test, reg and train, and σ per site.

    Args:
        model: The trained model.
        data: The splits of the run.
        config: The settings of the run.
        progress: Whether to show how many pairs are scored.
        folder: The folder of a run that was just trained, whose `progress.json` is kept meanwhile.

    Returns:
        Scores by split (None for an empty one), `sigma` by site, and, where test has times that train has not,
        `test_times`: the scores within the times of train and beyond them. None replaces numbers that are not finite.
    """
    predictor = SurrogatePredictor(model, config.train.evaluation_samples)
    splits = {"test": data.test, "reg": data.reg, "train": data.train}
    there = {name: pairs for name, pairs in splits.items() if int(pairs.num_pairs)}
    asked = config.train.scored_pairs

    def most(pairs: AbstractPairs) -> int | None:
        return SCORED_PAIRS if asked is None and pairs.in_files else asked

    # Where test goes beyond the times of train, it is scored once more, in two parts.
    twice = [data.test] if trained_steps(data, config.data) else []
    total = sum(min(int(p.num_pairs), most(p) or int(p.num_pairs)) for p in [*there.values(), *twice])
    with CountDisplay("pairs scored", enabled=progress, folder=folder, steps=config.train.steps) as display:
        jobs = ((predictor, pairs) for pairs in there.values())
        how: dict[str, Any] = {"progress": display.adder(total), "most_pairs": most}
        scores = dict(zip(there, evaluate_all(jobs, **how), strict=True))
        by_time = scores_by_time(predictor, data, config.data, **how)
    found = {name: scores.get(name) for name in splits} | {"sigma": sigma_per_site(model)}
    return finite_or_none(found if by_time is None else found | {"test_times": by_time})


def finite_or_none(value: Any) -> Any:
    """Return nested lists and dictionaries with None in place of NaN and infinities, which JSON has not."""
    if isinstance(value, dict):
        return {key: finite_or_none(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
