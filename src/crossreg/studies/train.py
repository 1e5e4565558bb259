"""`crossreg train`: train one run into a folder, from which a killed training resumes."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossreg.config import Config, TrainConfig
from crossreg.data.dataset import Data
from crossreg.data.files.load import resolved
from crossreg.data.files.streamed import check_unchanged
from crossreg.data.load import load_config
from crossreg.errors import say
from crossreg.files.whole import made_whole
from crossreg.machine.devices import devices_in_use
from crossreg.machine.hosts import all_or_none, check_alike, from_writer, leave_hosts
from crossreg.machine.stopping import stopped_together
from crossreg.nn.surrogate import Surrogate
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.progress.display import TrainingDisplay
from crossreg.routing import Routed, merge, route
from crossreg.runs.fields.stored_fields import write_run_fields
from crossreg.runs.fields.test_fields import compute_test_fields
from crossreg.runs.file_names import HISTORY, METRICS, MODEL, SNAPSHOTS, TEST_FIELDS, VERSIONS
from crossreg.runs.final_scores import final_metrics
from crossreg.runs.programs import Training
from crossreg.runs.run_folder import load_run, read_metrics
from crossreg.runs.run_writer import check_free, check_same, open_run, reopen, write_beginning
from crossreg.runs.safeguards.locks import locked
from crossreg.runs.safeguards.manifest import drop, entered, is_sound, record_json, recorded
from crossreg.runs.safeguards.saving import USUAL, Saving
from crossreg.runs.safeguards.snapshots import HistoryLines, Resumable, SnapshotStore
from crossreg.runs.safeguards.versions import check_versions, describe_machine, source_digest
from crossreg.training.checkpoint import save_model
from crossreg.training.cohort import start_cohort
from crossreg.training.parallel import ALONE, Layout
from crossreg.training.replicas import unstack
from crossreg.training.step import Task

# Settings that say where data are, not what they are.
_OF_A_HOST = ("data", "scenario")


def train_side_by_side(
    configs: dict[str, Config], data: dict[str, Data], folders: dict[str, Path], *, progress: bool = True
) -> dict[str, Surrogate]:
    """Train several new runs in turns, always the one that is furthest behind.

    Args:
        configs: The settings of each run, by a name.
        data: The data of each run.
        folders: The folder of each run, to be created.
        progress: Whether progress is shown.

    Returns:
        The trained models, which are stored in the folders too.
    """
    started = {name: start_cohort([config], [data[name]]) for name, config in configs.items()}
    # After the models are built: a config that cannot be built should leave no folder behind.
    for name, config in configs.items():
        open_run(folders[name], config, data[name], identity(config, data[name]))
    trainings = {name: Resumable(*started[name], _lines(folders[name])) for name in configs}
    steps = {name: config.train.steps for name, config in configs.items()}
    _train(trainings, steps, folders, progress=progress)
    return {
        name: _store(trainings[name], started[name][0], folders[name], identity(config, data[name]))
        for name, config in configs.items()
    }


def store_run(
    model: Surrogate,
    history: Sequence[Mapping[str, Any]],
    data: Data,
    config: Config,
    folder: Path,
    *,
    progress: bool = True,
) -> dict[str, Any]:
    """Write a model that was trained in memory as a run folder, and score it.

    Args:
        model: The trained model, built from `config.model`.
        history: The lines of its history.
        data: The data that it was trained on.
        config: Every setting of the run.
        folder: The folder: new, or empty. It is written whole or not at all.
        progress: Whether progress is shown.

    Returns:
        The contents of `metrics.json`.

    Raises:
        InputError: If the folder holds anything.
    """
    check_free(folder, "folder")
    own = identity(config, data)
    with made_whole(folder, "folder") as made:
        write_beginning(made, config, data, own)
        _store_model(made, model, "".join(json.dumps(line) + "\n" for line in history).encode(), own)
        return _score(model, data, config, made, progress=progress)


def identity(config: Config, data: Data) -> str:
    """Return the identity of a run, which seals its model: a hash of its settings and its data."""
    return Training(config, 0, splits_off_calibration=False).key(data.digest)


def train_run(
    config: Config, folder: Path, *, progress: bool = True, saving: Saving = USUAL, layout: Layout = ALONE
) -> dict[str, Any]:
    """Train and score one run; resume if an earlier process has begun it.

    With several processes, process 0 calls this function and the others call `follow_run`.

    Args:
        config: All settings.
        folder: The folder of the run: new, empty, or of the same run.
        progress: Whether progress is shown.
        saving: When snapshots are written.
        layout: How devices share each batch; by default one device trains.

    Returns:
        The scores, as in `metrics.json`.

    Raises:
        InputError: The settings or the data are refused, or the folder holds something else.
    """
    with contextlib.ExitStack() as held:
        with all_or_none():
            config, data, started = _start(config, layout, folder)
        _check_alike(config, data)
        with all_or_none():
            own = identity(config, data)
            held.enter_context(locked(folder, "training", inside=[SNAPSHOTS]))
            reopen(folder, data.digest, own)
            kept = SnapshotStore(folder, "train", own, saving)
            kept.check_own()
            write_beginning(folder, config, data, own)
        if (parts := layout.share.parts) > (size := config.train.batch_size):
            say(f"a batch of {size} is fewer pairs than the {parts} devices; the other devices stay idle")
        is_trained = all(is_sound(folder, name) for name in (HISTORY, MODEL))
        from_writer(is_trained)
        if is_trained:
            leave_hosts()
            if all(is_sound(folder, name) for name in (METRICS, TEST_FIELDS)):
                say(f"{folder} holds this run, finished; its scores:")
                return read_metrics(folder)
            check_versions(folder / VERSIONS, force=saving.force)
            say(f"{folder} is trained already; scoring it")
            model = load_run(folder).model
        else:
            drop(folder, HISTORY, MODEL, METRICS, TEST_FIELDS)
            write_beginning(folder, config, data, own)  # its files name the model, which another version may have begun
            training, name = Resumable(*started, _lines(folder), kept, layout), folder.name or "run"
            if training.begun_at:
                say(f"{folder} resumes from step {training.begun_at}")
            else:  # whatever machine has begun it before
                record_json(folder, VERSIONS, describe_machine())
            if training.begun_at < config.train.steps:
                with training.saved_on_stop(), stopped_together(layout.spans_processes):
                    _train({name: training}, {name: config.train.steps}, {name: folder}, progress=progress)
                    training.save()
            # One process does the rest.
            leave_hosts()
            model = _store(training, started[0], folder, own)
            training.forget(but_the_last=True)
        return _score(model, data, config, folder, progress=progress)


def follow_run(config: Config, layout: Layout) -> None:
    """Train along with process 0, which calls `train_run`; write and print nothing.

    Args:
        config: All settings, the same as those of process 0.
        layout: How the devices of all processes share each batch.
    """
    with all_or_none():
        config, data, started = _start(config, layout)
    _check_alike(config, data)
    with all_or_none():
        pass  # process 0 opens the folder
    if not from_writer(False):
        training = Resumable(*started, HistoryLines(None, lambda record: []), None, layout)
        with stopped_together(layout.spans_processes):
            for _ in training.reports():
                pass
    leave_hosts()


def _start(
    config: Config, layout: Layout, folder: Path | None = None
) -> tuple[Config, Data, tuple[Surrogate, Task, TrainConfig]]:
    """Return the settings, completed from the data, the data, and the untrained model.

    Raises InputError if `folder` holds another run.
    """
    config = dataclasses.replace(config, data=resolved(config.data))
    if folder is not None:
        check_same(folder, config)
    data = load_config(config.data)
    return config, data, start_cohort([config], [data], parts=layout.share.parts)


def _check_alike(config: Config, data: Data) -> None:
    """Raise InputError unless all processes train the same; the data may lie in different places."""
    check_alike({"version of crossreg": source_digest()})  # first: another version may have other settings
    parts = dataclasses.asdict(config)
    settings = {name: repr(value) for part in parts.values() for name, value in part.items()}
    named = {f"`{name}`": value for name, value in settings.items() if name not in _OF_A_HOST}
    check_alike({"data": data.digest, "number of devices": str(len(devices_in_use()))} | named)


def _score(model: Surrogate, data: Data, config: Config, folder: Path, *, progress: bool) -> dict[str, Any]:
    """Return the scores of a trained run; store them and its test fields."""
    if progress:
        print("scoring …", file=sys.stderr, flush=True)
    metrics = final_metrics(model, data, config, progress=progress, folder=folder)
    predictor = SurrogatePredictor(model, config.train.evaluation_samples)
    fields = compute_test_fields(predictor, data.test, names=data.names, progress=progress)
    check_unchanged(data.train, data.reg, data.test)
    write_run_fields(folder, TEST_FIELDS, fields, identity=identity(config, data))
    record_json(folder, METRICS, metrics)
    return metrics


def _lines(folder: Path) -> HistoryLines:
    return HistoryLines(folder / HISTORY, lambda record: [record.of(0)])


def _train(trainings: dict[str, Resumable], steps: dict[str, int], folders: dict[str, Path], *, progress: bool) -> None:
    """Train all runs to their last step."""
    going = {name: training.reports() for name, training in trainings.items()}
    with TrainingDisplay(steps, folders=folders, enabled=progress) as display:
        while going:
            name = min(going, key=lambda n: trainings[n].step / steps[n])
            report = next(going[name])
            display.update(name, report)
            if report.step == steps[name]:
                del going[name]
    for name, training in trainings.items():
        if (step := int(training.snapshot.state.diverged_at[0])) >= 0:
            say(f"{name} diverged at step {step}; its last finite state is kept")


def _store(training: Resumable, models: Surrogate, folder: Path, identity: str) -> Surrogate:
    """Return the trained model; store it and its history."""
    state = training.snapshot.state
    model = unstack(merge(Routed(state.theta_psi.tree(), state.rho.tree(), route(models).static)), 0)
    _store_model(folder, model, training.history, identity)
    return model


def _store_model(folder: Path, model: Surrogate, history: bytes, identity: str) -> None:
    with recorded(folder, HISTORY) as file:
        file.write(history)
    with entered(folder, MODEL) as entry:
        save_model(folder / MODEL, model, identity=identity, announce=entry)
