"""From trained replicas to the rows of a sweep."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from crossreg.config import DataConfig, changed_fields
from crossreg.data.load import make_data, trajectories_of
from crossreg.data.pairs import AbstractPairs
from crossreg.data.trajectories import Trajectories
from crossreg.designs.grids import Trial
from crossreg.methods.early import Trained
from crossreg.methods.readout import ReadOut, read_out
from crossreg.metrics.evaluation import evaluate_all, sigma_per_site
from crossreg.metrics.test_times import scores_by_time
from crossreg.predictors.predictor import Predictor
from crossreg.runs.final_scores import finite_or_none, rollout_scores
from crossreg.runs.programs import Training
from crossreg.runs.safeguards.versions import describe_machine
from crossreg.studies.sweep.programs import without_idle

# Settings that are columns of every row.
COLUMNS = ("scenario", "observed_fraction", "train_size", "reg_size", "seed", "steps")


def trainings_of(trial: Trial) -> list[list[Training]]:
    """Return the trainings that a trial needs: for each candidate, those of its members."""
    return [
        [Training(without_idle(config), member, trial.splits_off_calibration) for member in range(trial.method.members)]
        for config in trial.configs
    ]


def shared_trajectories(trials: Iterable[Trial]) -> Trajectories:
    """Return the trajectories that all trials share; the keys of all rows and trainings contain their digest."""
    return trajectories_of(*dict.fromkeys(c.data for trial in trials for c in (trial.config, *trial.configs)))


def scored_on() -> dict[str, str]:
    """Return what a row says about the machine on which it was scored."""
    machine = describe_machine()
    return {name: machine[name] for name in ("crossreg", "jax", "device")}


def score_trials(
    trials: dict[str, Trial], trained: dict[str, Trained], trajectories: Trajectories
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Score trials whose trainings are done.

    Args:
        trials: The trials, by the keys of their rows.
        trained: The trained replicas, by the keys of the trainings.
        trajectories: The data.

    Yields:
        The key and the row of each trial. In the row, `std_mu_final` of test is the mean Std_ω[μ] at the last step
        alone, as in the paper's figure. If test has times that train lacks, `test_times` has separate scores within
        the times of train and beyond them. If the settings ask for it, `rollouts` has the scores of forecasts by lead.
    """
    reads: list[ReadOut] = []
    splits_of = functools.cache(lambda config: make_data(trajectories, config, check=False))  # shared by many trials

    def jobs() -> Iterator[tuple[Predictor, AbstractPairs]]:
        for trial in trials.values():
            candidates = [[trained[t.key(trajectories.digest)] for t in members] for members in trainings_of(trial)]
            whole = splits_of(trial.config.data)
            data = whole.split_off_calibration(trial.config.train.seed) if trial.splits_off_calibration else whole
            reads.append(read_out(trial.method, candidates, data, trial.config.train.evaluation_samples))
            splits = {"test": data.test, "reg": whole.reg, "train": data.train}
            for name in _splits(trial):
                yield reads[-1].predictor, splits[name]

    scores = evaluate_all(jobs())
    for number, (key, trial) in enumerate(trials.items()):
        by_split = {name: next(scores) for name in _splits(trial)}
        predictor, data = reads[number].predictor, splits_of(trial.config.data)
        if by_split["test"]["std_mu"]:
            test = data.test
            last = range(test.pairs_per_row - 1, test.pairs_per_row)
            [slice_scores] = evaluate_all([(predictor, test)], steps=last)
            by_split["test"]["std_mu_final"] = slice_scores["std_mu"]
        row = _row(trial, reads[number], by_split)
        if (by_time := scores_by_time(predictor, data, trial.config.data)) is not None:
            row["test_times"] = finite_or_none(by_time)
        if steps := min(trial.config.train.rollout_steps, data.test.pairs_per_row):
            row["rollouts"] = rollout_scores(predictor, data, steps)
        yield key, row


def _splits(trial: Trial) -> tuple[str, ...]:
    """Return the splits that a trial is scored on."""
    return ("test", "reg", "train") if trial.config.data.reg_size else ("test", "train")


def _row(trial: Trial, read: ReadOut, scores: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a trial, without its key."""
    data = trial.config.data
    settings = changed_fields(trial.config) | trial.changes
    trained_with = changed_fields(without_idle(trial.configs[read.chosen])) if trial.configs else {}
    of_data = {field.name for field in dataclasses.fields(DataConfig)}
    return finite_or_none(
        {
            "scenario": data.scenario,
            "observed_fraction": data.observed_fraction,
            "train_size": data.train_size,
            "reg_size": data.reg_size,
            "method": trial.method.name,
            "seed": trial.config.train.seed,
            "steps": trial.config.train.steps,
            "settings": {k: v for k, v in settings.items() if k not in COLUMNS},
            "trained_with": {k: v for k, v in trained_with.items() if k not in (*COLUMNS, *of_data)},
            "diverged": read.failed or not math.isfinite(scores["test"]["nll"]),
            "test": scores["test"],
            "reg": scores.get("reg"),
            "train": scores["train"],
            "sigma": sigma_per_site(read.models[0]) if len(read.models) == 1 else {},
            "notes": read.notes,
        }
    )
