"""The final scores of a run: what `metrics.json` holds and `crossreg evaluate` prints."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossreg.config import Config
from crossreg.data.dataset import Data
from crossreg.data.pairs import AbstractPairs
from crossreg.forecasts.scores import climatology_of, score_by_lead
from crossreg.metrics.evaluation import evaluate_all, sigma_per_site
from crossreg.metrics.test_times import scores_by_time, trained_steps
from crossreg.nn.surrogate import Surrogate
from crossreg.predictors.predictor import Predictor, SurrogatePredictor
from crossreg.progress.display import CountDisplay
from crossreg.runs.input_range import input_range

# Of data in files, the pairs of each split that are scored unless a config says more.
SCORED_PAIRS = 1000
# Leads of a table, as far as a rollout goes.
_LEADS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000)


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
        `test_times`: the scores within the times of train and beyond them. If the config has `rollout_steps`,
        `rollouts` has the scores of forecasts by lead. None replaces numbers that are not finite.
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
    if by_time is not None:
        found["test_times"] = by_time
    if steps := min(config.train.rollout_steps, data.test.pairs_per_row):
        found["rollouts"] = rollout_scores(predictor, data, steps)
    return finite_or_none(found)


def leads_until(steps: int) -> list[int]:
    """Return the leads of a table of a rollout: more of the first ones, and the last."""
    return sorted({lead for lead in _LEADS if lead < steps} | {steps})


def rollout_scores(
    predictor: Surrogate | Predictor, data: Data, steps: int, *, leads: Sequence[int] | None = None, **how: Any
) -> dict[str, Any]:
    """Score forecasts of test trajectories, each from its first field.

    Args:
        predictor: A surrogate or any predictor.
        data: The splits.
        steps: Steps of each forecast.
        leads: The leads to score; by default those of `leads_until`.
        **how: Further arguments of `score_by_lead`.

    Returns:
        The scores of `score_by_lead`, with None for numbers that are not finite.
    """
    how = {"climate": climatology_of(data.train), "limits": input_range(data.train).limits} | how
    return finite_or_none(score_by_lead(predictor, data.test, leads or leads_until(steps), steps=steps, **how))


def finite_or_none(value: Any) -> Any:
    """Return nested lists and dictionaries with None in place of NaN and infinities, which JSON has not."""
    if isinstance(value, dict):
        return {key: finite_or_none(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
