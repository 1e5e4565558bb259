"""`crossreg train`: one run from a config to its folder, which a killed training goes on in."""

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Any

from crossreg.config import Config, TrainConfig
from crossreg.data.files.load import resolved
from crossreg.data.files.streamed import check_unchanged
from crossreg.data.load import load_config
from crossreg.data.pairs import Data
from crossreg.machine.devices import devices_in_use
from crossreg.machine.hosts import all_or_none, check_alike, from_writer, leave_hosts
from crossreg.machine.stopping import stopped_together
from crossreg.nn.surrogate import Surrogate
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.progress.display import TrainingDisplay
from crossreg.routing import Routed, merge, route
from crossreg.runs.fields.stored_fields import TEST_FIELDS
from crossreg.runs.fields.test_fields import compute_test_fields, write_test_fields
from crossreg.runs.final_scores import final_metrics
from crossreg.runs.locks import locked
from crossreg.runs.manifest import drop, entered, is_sound, record_json, recorded
from crossreg.runs.programs import Training
from crossreg.runs.run_folder import HISTORY, METRICS, MODEL, VERSIONS, load_run, read_metrics
from crossreg.runs.run_writer import check_same, open_run, reopen, write_beginning
from crossreg.runs.saving import USUAL, Saving
from crossreg.runs.snapshots import SNAPSHOTS, HistoryLines, Resumable, SnapshotStore
from crossreg.runs.versions import check_versions, describe_machine, source_digest
from crossreg.training.checkpoint import save_model
from crossreg.training.cohort import start_cohort
from crossreg.training.parallel import ALONE, Layout
from crossreg.training.replicas import unstack
from crossreg.training.step import Task

# Settings that say where data are found, and not what they are.
_OF_A_HOST = ("data", "scenario")


def train_side_by_side(
    configs: dict[str, Config], data: dict[str, Data], folders: dict[str, Path], *, progress: bool = True
) -> dict[str, Surrogate]:
    """Trains several new runs at once, the one that is furthest behind first, each into its folder."""
    started = {name: start_cohort([config], [data[name]]) for name, config in configs.items()}
    # Only once the models stand: a config that cannot be built leaves no folder behind.
    for name, config in configs.items():
        open_run(folders[name], config, data[name], identity(config, data[name]))
    trainings = {name: Resumable(*started[name], _lines(folders[name])) for name in configs}
    steps = {name: config.train.steps for name, config in configs.items()}
    _train(trainings, steps, folders, progress=progress)
    return {
        name: _store(trainings[name], started[name][0], folders[name], identity(config, data[name]))
        for name, config in configs.items()
    }


def identity(config: Config, data: Data) -> str:
    """What the seal of a run's model says: the settings and the data that it was trained with."""
    return Training(config, 0, splits_off_calibration=False).key(data.digest)


def train_run(
    config: Config, folder: Path, *, progress: bool = True, saving: Saving = USUAL, layout: Layout = ALONE
) -> dict[str, Any]:
    """Trains one run and scores it, from where an earlier process has left it; returns what `metrics.json` holds.

    With a layout, devices share each batch. Of several processes, this is what process 0 does: see `follow_run`.
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
            print(f"crossreg: --batch-size {size}: fewer than the {parts} devices; the others wait", file=sys.stderr)
        is_trained = all(is_sound(folder, name) for name in (HISTORY, MODEL))
        from_writer(is_trained)
        if is_trained:
            leave_hosts()
            if all(is_sound(folder, name) for name in (METRICS, TEST_FIELDS)):
                print(f"crossreg: {folder} holds this run, finished; its scores again", file=sys.stderr)
                return read_metrics(folder)
            check_versions(folder / VERSIONS, force=saving.force)
            print(f"crossreg: {folder} is trained; its scores are made", file=sys.stderr, flush=True)
            model = load_run(folder).model
        else:
            drop(folder, HISTORY, MODEL, METRICS, TEST_FIELDS)
            write_beginning(folder, config, data, own)  # of which model, where another version had begun
            training, name = Resumable(*started, _lines(folder), kept, layout), folder.name or "run"
            if training.begun_at:
                print(f"crossreg: {folder} goes on from step {training.begun_at}", file=sys.stderr, flush=True)
            else:  # whatever machine has tried before
                record_json(folder, VERSIONS, describe_machine())
            if training.begun_at < config.train.steps:
                with training.saved_on_stop(), stopped_together(layout.spans_processes):
                    _train({name: training}, {name: config.train.steps}, {name: folder}, progress=progress)
                    training.save()
            # What is left to do is the work of one.
            leave_hosts()
            model = _store(training, started[0], folder, own)
            training.forget(but_the_last=True)
        return _score(model, data, config, folder, progress=progress)


def follow_run(config: Config, layout: Layout) -> None:
    """The part in `train_run` of a process that is not the first: it trains, writes nothing, and says nothing."""
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
    """The settings with all that the data say, the data, and the untrained model; `folder` may not hold another run."""
    config = dataclasses.replace(config, data=resolved(config.data))
    if folder is not None:
        check_same(folder, config)
    data = load_config(config.data)
    return config, data, start_cohort([config], [data], parts=layout.share.parts)


def _check_alike(config: Config, data: Data) -> None:
    """Refuses processes that do not train the same; where the data are is their own business."""
    check_alike({"version of crossreg": source_digest()})  # first: another one may have other settings
    parts = dataclasses.asdict(config)
    settings = {name: repr(value) for part in parts.values() for name, value in part.items()}
    flags = {f"--{name.replace('_', '-')}": value for name, value in settings.items() if name not in _OF_A_HOST}
    check_alike({"data": data.digest, "number of devices": str(len(devices_in_use()))} | flags)


def _score(model: Surrogate, data: Data, config: Config, folder: Path, *, progress: bool) -> dict[str, Any]:
    if progress:
        print("scoring …", file=sys.stderr, flush=True)
    metrics = final_metrics(model, data, config, progress=progress, folder=folder)
    predictor = SurrogatePredictor(model, config.train.evaluation_samples)
    fields = compute_test_fields(predictor, data.test, names=data.names, progress=progress)
    check_unchanged(data.train, data.reg, data.test)
    with entered(folder, TEST_FIELDS) as entry:
        write_test_fields(folder / TEST_FIELDS, fields, identity=identity(config, data), announce=entry)
    record_json(folder, METRICS, metrics)
    return metrics


def _lines(folder: Path) -> HistoryLines:
    return HistoryLines(folder / HISTORY, lambda record: [record.of(0)])


def _train(trainings: dict[str, Resumable], steps: dict[str, int], folders: dict[str, Path], *, progress: bool) -> None:
    """Trains to the end."""
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
            print(f"crossreg: {name} diverged at step {step}; its last finite state is kept", file=sys.stderr)


def _store(training: Resumable, models: Surrogate, folder: Path, identity: str) -> Surrogate:
    """The trained model; it and its history are stored."""
    state = training.snapshot.state
    model = unstack(merge(Routed(state.theta_psi.tree(), state.rho.tree(), route(models).static)), 0)
    with recorded(folder, HISTORY) as file:
        file.write(training.history)
    with entered(folder, MODEL) as entry:
        save_model(folder / MODEL, model, identity=identity, announce=entry)
    return model
