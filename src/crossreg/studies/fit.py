"""Fitting one model: a sweep of one, with its history and a progress display."""

import dataclasses
from typing import Any, NamedTuple

from crossreg.config import TrainConfig
from crossreg.data.pairs import Data
from crossreg.nn.surrogate import Surrogate
from crossreg.training.loop import train_replicas
from crossreg.training.replicas import make_task, stack, stack_tasks, unstack


class Fit(NamedTuple):
    """A trained model and what happened on the way: one dictionary per evaluation on reg."""

    model: Surrogate
    history: list[dict[str, Any]]

    @property
    def diverged(self) -> bool:
        """Whether training met a number that is not finite; the model is then the last finite one."""
        return self.history[-1]["diverged_at"] >= 0


def fit(model: Surrogate, data: Data, config: TrainConfig | None = None, *, progress: bool = True, **fields) -> Fit:
    """Trains a model by Algorithm 1: θ and ψ on `data.train`, ρ on `data.reg`.

    Settings come from `config`, from fields of a [`TrainConfig`][] (`fit(model, data, steps=1000)`), or both.
    `progress` shows step, losses, reg ECE, σ per site and the time left.
    """
    from crossreg.report.progress import TrainingDisplay

    if not isinstance(data, Data):
        raise TypeError(
            f"fit learns from a Data, which has train and reg (see load, make_data), not a {type(data).__name__}"
        )
    config = dataclasses.replace(config or TrainConfig(), **fields)
    history: list[dict[str, Any]] = []
    report = None
    with TrainingDisplay({"fit": config.steps}, enabled=progress) as display:
        for report in train_replicas(stack([model]), stack_tasks([make_task(data, config.seed)]), config):
            if report.record is not None:
                history.append(report.record.of(0))
            display.update("fit", report)
    assert report is not None  # a config has at least one step
    return Fit(unstack(report.models, 0), history)
