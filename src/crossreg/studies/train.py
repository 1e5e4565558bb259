"""`crossreg train`: one run from a config to its folder."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from crossreg.config import Config
from crossreg.data.files.load import resolved
from crossreg.data.pairs import Data, load_data
from crossreg.metrics.evaluation import SurrogatePredictor
from crossreg.nn.surrogate import Surrogate
from crossreg.report.progress import TrainingDisplay
from crossreg.studies.cohort import start_cohort
from crossreg.studies.run_folder import METRICS, MODEL, append_history, check_free, final_metrics, open_run, write_json
from crossreg.studies.test_fields import TEST_FIELDS, compute_test_fields, write_test_fields
from crossreg.training.checkpoint import save_model
from crossreg.training.loop import train_replicas, unstack


def train_side_by_side(
    configs: dict[str, Config], data: dict[str, Data], folders: dict[str, Path], *, progress: bool = True
) -> dict[str, Surrogate]:
    """Trains several runs at once, the one that is furthest behind first, each into its folder."""
    trainings = {name: train_replicas(*start_cohort([config], [data[name]])) for name, config in configs.items()}
    # Only once the models stand: a config that cannot be built leaves no folder behind.
    for name, config in configs.items():
        open_run(folders[name], config, data[name])
    steps = {name: config.train.steps for name, config in configs.items()}
    done = dict.fromkeys(configs, 0.0)
    models: dict[str, Surrogate] = {}
    with TrainingDisplay(steps, folders=folders, enabled=progress) as display:
        while trainings:
            name = min(trainings, key=lambda n: done[n])
            report = next(trainings[name])
            done[name] = report.step / steps[name]
            if report.record is not None:
                append_history(folders[name], report.record)
            display.update(name, report)
            if report.step == steps[name]:
                models[name] = unstack(report.models, 0)
                save_model(folders[name] / MODEL, models[name])
                del trainings[name]
                if report.record is not None and report.record.diverged_at[0] >= 0:
                    step = int(report.record.diverged_at[0])
                    print(f"crossreg: {name} diverged at step {step}; its last finite state is kept", file=sys.stderr)
    return {name: models[name] for name in configs}


def train_run(config: Config, folder: Path, *, progress: bool = True) -> dict[str, Any]:
    """Trains one run and scores it; returns what `metrics.json` holds."""
    check_free(folder)
    config = dataclasses.replace(config, data=resolved(config.data))
    data = load_data(config.data)
    name = folder.name or "run"
    model = train_side_by_side({name: config}, {name: data}, {name: folder}, progress=progress)[name]
    if progress:
        print("scoring …", file=sys.stderr, flush=True)
    metrics = final_metrics(model, data, config, progress=progress, folder=folder)
    write_json(folder / METRICS, metrics)
    predictor = SurrogatePredictor(model, config.train.evaluation_samples)
    write_test_fields(folder / TEST_FIELDS, compute_test_fields(predictor, data.test, progress=progress))
    return metrics
