"""`crossreg train`: one run from a config to its folder."""

from pathlib import Path
from typing import Any

import jax

from crossreg.config import Config
from crossreg.data.pairs import Data, load_data
from crossreg.nn.build import build_model
from crossreg.nn.surrogate import Surrogate
from crossreg.report.progress import TrainingDisplay
from crossreg.studies.run_folder import append_history, check_free, close_run, final_metrics, open_run
from crossreg.training.fit import training
from crossreg.training.loop import unstack
from crossreg.training.step import MODEL_STREAM


def initial_model(config: Config, data: Data) -> Surrogate:
    """The untrained model of a run; its weights follow from the run's seed."""
    key = jax.random.fold_in(jax.random.key(config.train.seed), MODEL_STREAM)
    return build_model(config.model, data.train, key=key)


def train_side_by_side(
    configs: dict[str, Config], data: dict[str, Data], folders: dict[str, Path], *, progress: bool = True
) -> dict[str, Surrogate]:
    """Trains several runs at once, the one that is furthest behind first, each into its folder."""
    trainings = {
        name: training(initial_model(config, data[name]), data[name], config.train)
        for name, config in configs.items()
    }
    # Only once the models stand: a config that cannot be built leaves no folder behind.
    for name, config in configs.items():
        open_run(folders[name], config, data[name])
    steps = {name: config.train.steps for name, config in configs.items()}
    done = dict.fromkeys(configs, 0.0)
    models: dict[str, Surrogate] = {}
    with TrainingDisplay(steps, enabled=progress) as display:
        while trainings:
            name = min(trainings, key=lambda n: done[n])
            report = next(trainings[name])
            done[name] = report.step / steps[name]
            if report.record is not None:
                append_history(folders[name], report.record)
            display.update(name, report)
            if report.step == steps[name]:
                models[name] = unstack(report.models, 0)
                del trainings[name]
    return {name: models[name] for name in configs}


def train_run(config: Config, folder: Path, *, progress: bool = True) -> dict[str, Any]:
    """Trains one run and scores it; returns what `metrics.json` holds."""
    check_free(folder)
    data = load_data(config.data)
    name = folder.name or "run"
    model = train_side_by_side({name: config}, {name: data}, {name: folder}, progress=progress)[name]
    metrics = final_metrics(model, data, config)
    close_run(folder, model, metrics)
    return metrics
