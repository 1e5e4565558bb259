"""Fitting one model: a sweep of one, with its history and a progress display."""

import dataclasses
import sys
from typing import Any, NamedTuple

from crossreg.config import TrainConfig
from crossreg.data.pairs import Data
from crossreg.nn.build import check_reads
from crossreg.nn.surrogate import Surrogate
from crossreg.training.loop import train_replicas
from crossreg.training.replicas import make_task, stack, stack_tasks, unstack


class Fit(NamedTuple):
    """A trained model and what happened on the way: one dictionary per evaluation on reg.

    `stopped_at` is the step at which Ctrl-C ended the training, None where it came to its end.
    """

    model: Surrogate
    history: list[dict[str, Any]]
    stopped_at: int | None = None

    @property
    def diverged(self) -> bool:
        """Whether training met a number that is not finite; the model is then the last finite one."""
        return bool(self.history) and self.history[-1]["diverged_at"] >= 0


def fit(model: Surrogate, data: Data, config: TrainConfig | None = None, *, progress: bool = True, **fields) -> Fit:
    """Trains a model by Algorithm 1: θ and ψ on `data.train`, ρ on `data.reg`.

    Settings come from `config`, from fields of a [`TrainConfig`][] (`fit(model, data, steps=1000)`), or both.
    `progress` shows step, losses, reg ECE, σ per site and the time left.

    Ctrl-C, or the stop button of a notebook, ends the training and keeps it: a line says so, and what is returned is
    the model of the last report, at most a second or so before, with its step in `stopped_at`. Learning rates follow
    `steps`, so such a model has not been trained to an end. Before the first report there is nothing to keep, and the
    `KeyboardInterrupt` goes on.
    """
    from crossreg.progress.display import TrainingDisplay

    if not isinstance(data, Data):
        raise TypeError(
            f"fit learns from a Data, which has train and reg (see load, make_data), not a {type(data).__name__}"
        )
    check_reads(model, data.train)
    config = dataclasses.replace(config or TrainConfig(), **fields)
    history: list[dict[str, Any]] = []
    report = stopped_at = None
    try:
        with TrainingDisplay({"fit": config.steps}, enabled=progress) as display:
            for report in train_replicas(stack([model]), stack_tasks([make_task(data, config.seed)]), config):
                if report.record is not None:
                    history.append(report.record.of(0))
                display.update("fit", report)
    except KeyboardInterrupt:
        if report is None:
            raise
        stopped_at = report.step
        print(f"crossreg: fit: stopped at step {stopped_at:,} of {config.steps:,}; its model is kept", file=sys.stderr)
    assert report is not None  # a config has at least one step
    return Fit(unstack(report.models, 0), history, stopped_at)
