"""`crossreg extract`: copy one trained model of a sweep into a run folder, to predict with."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossreg.designs.grids import Trial, settings_of
from crossreg.errors import InputError
from crossreg.files.whole import check_is_folder, made_whole
from crossreg.methods.names import parse_method
from crossreg.metrics.test_times import scores_by_time
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.runs.archive import Archive
from crossreg.runs.fields.stored_fields import write_run_fields
from crossreg.runs.fields.test_fields import compute_test_fields
from crossreg.runs.file_names import HISTORY, METRICS, MODEL, TEST_FIELDS
from crossreg.runs.final_scores import finite_or_none
from crossreg.runs.run_writer import check_free, write_beginning
from crossreg.runs.safeguards.manifest import entered, record_json, recorded
from crossreg.runs.sweep_folder import load_trials, read_rows, trial_key
from crossreg.studies.sweep.scoring import shared_trajectories, trainings_of
from crossreg.training.checkpoint import save_model


def extract(
    folder: Path, out: Path, *, method: str, seed: int, where: Sequence[str] = (), progress: bool = False
) -> dict[str, Any]:
    """Write one trial of a sweep as a run folder.

    Args:
        folder: The folder of the sweep.
        out: The run folder; it must be new or empty.
        method: The method of the trial; it must train a single model, without wrappers.
        seed: The seed of the trial.
        where: The regime of the trial as `field=value`, if the sweep has several.
        progress: Whether progress is shown.

    Returns:
        The scores of the run, as in its `metrics.json`.

    Raises:
        InputError: No trial, or more than one, fits; or it is not finished.
    """
    check_is_folder(folder)
    check_free(out)
    trials = load_trials(folder)
    trial = _find(trials, method, seed, where)
    if len(trial.configs) != 1 or trial.method.members != 1 or trial.method.wrapped:
        raise InputError(
            f"method {trial.method.name}: has more than one trained model, or a wrapper; a run folder holds one model"
        )
    trajectories = shared_trajectories(trials)
    [[training]] = trainings_of(trial)
    key, archive = training.key(trajectories.digest), Archive(folder)
    rows = {row["key"]: row for row in read_rows(folder)}
    row = rows.get(trial_key(trial, trajectories.digest))
    if key not in archive or row is None:
        raise InputError(f"{folder}: this trial is not finished; run the same `crossreg sweep` to finish it")
    data = training.data(trajectories)
    channels, *space = data.train.field_shape
    model = archive.model(key, channels, tuple(space), data.train.units)
    history = [{k: v for k, v in line.items() if k != "training"} for line in archive.history(key)]
    # Only sweeps have this score; `crossreg evaluate` computes the others.
    test = {name: value for name, value in row["test"].items() if name != "std_mu_final"}
    metrics = {"test": test, **{name: row[name] for name in ("reg", "train", "sigma")}}
    predictor = SurrogatePredictor(model, training.config.train.evaluation_samples)
    if (by_time := scores_by_time(predictor, data, training.config.data)) is not None:
        metrics["test_times"] = finite_or_none(by_time)
    fields = compute_test_fields(predictor, data.test, names=data.names, progress=progress)
    with made_whole(out) as made:
        write_beginning(made, training.config, data, key)
        with entered(made, MODEL) as entry:
            save_model(made / MODEL, model, identity=key, announce=entry)
        with recorded(made, HISTORY) as file:
            file.write("".join(json.dumps(line) + "\n" for line in history).encode())
        write_run_fields(made, TEST_FIELDS, fields, identity=key)
        record_json(made, METRICS, metrics)
    return metrics


def _find(trials: Sequence[Trial], method: str, seed: int, where: Sequence[str]) -> Trial:
    """Return the only trial that fits."""
    name, wanted = parse_method(method, "method").name, settings_of(where, "where")
    of_method = [trial for trial in trials if trial.method.name == name]
    if not of_method:
        methods = dict.fromkeys(trial.method.name for trial in trials)
        raise InputError(f"method {name}: the sweep has {', '.join(methods)}")
    of_seed = [trial for trial in of_method if trial.config.train.seed == seed]
    if not of_seed:
        seeds = sorted({trial.config.train.seed for trial in of_method})
        raise InputError(f"seed is {seed}: the sweep has {', '.join(map(str, seeds))}")

    def field(trial: Trial, name: str) -> Any:
        config = trial.config
        return (vars(config.data) | vars(config.model) | vars(config.train))[name]

    fitting = [trial for trial in of_seed if all(field(trial, name) == value for name, value in wanted.items())]
    if len(fitting) == 1:
        return fitting[0]
    varied = dict.fromkeys(name for trial in of_seed for name in trial.changes)
    values = {name: list(dict.fromkeys(field(trial, name) for trial in of_seed)) for name in varied}
    choices = [f"{name} {', '.join(map(str, listed))}" for name, listed in values.items() if len(listed) > 1]
    raise InputError(f"`where`: {len(fitting)} trials match, and one is expected; the sweep has {'; '.join(choices)}")
