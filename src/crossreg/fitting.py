"""Fit one model in memory, with a progress display; the result predicts, scores, and saves itself as a run folder."""

import dataclasses
import functools
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.config import Config, DataConfig, ModelConfig, TrainConfig
from crossreg.config.settings import RegObjective
from crossreg.data.dataset import Data, SplitName
from crossreg.data.pairs import AbstractPairs, Batch, GridPairs
from crossreg.errors import InputError, did_you_mean
from crossreg.forecasts.forecast import Forecast, Limits
from crossreg.forecasts.particles import hidden_value
from crossreg.forecasts.rollout import Known, rollout
from crossreg.metrics.evaluation import evaluate
from crossreg.nn.build import check_reads
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.objectives import RegLoss
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture
from crossreg.progress.display import TrainingDisplay
from crossreg.runs.input_range import InputRange, check_inputs, input_range
from crossreg.studies.train import store_run
from crossreg.training.cohort import check_learnable_model, start_cohort
from crossreg.training.loop import train_replicas
from crossreg.training.replicas import make_task, stack, stack_tasks, unstack

_FIELDS = {known.name for known in dataclasses.fields(TrainConfig)}


class _Fields(NamedTuple):
    model: Surrogate
    history: list[dict[str, Any]]
    data: Data
    train: TrainConfig
    built_from: ModelConfig | None = None
    stopped_at: int | None = None


class Fit(_Fields):
    """A trained model with its history and the data that it was trained on. [`fit`][crossreg.fit] returns one.

    Attributes:
        model: The trained surrogate; after divergence, the last finite one.
        history: One dictionary per evaluation on reg: step, losses, NLL, ECE, σ per site.
        data: The data it was trained on.
        train: The training settings.
        built_from: The settings that the model was built from; None where settings do not describe it or its training.
        stopped_at: The step at which Ctrl-C ended the training, None where it was completed.

    Example:
        ```python
        result = xr.fit(data, steps=5_000)
        result.predict(data.test[:3]).std
        result.evaluate()["crps"]
        ```
    """

    def __repr__(self) -> str:
        trained = f"{self.train.steps:,} steps" if self.stopped_at is None else f"stopped at step {self.stopped_at:,}"
        return f"Fit: {trained}{', diverged' if self.diverged else ''}, seed {self.train.seed}\n{self.data!r}"

    @property
    def diverged(self) -> bool:
        """Whether training met a number that is not finite."""
        return bool(self.history) and self.history[-1]["diverged_at"] >= 0

    @functools.cached_property
    def input_range(self) -> InputRange:
        """The range of the inputs of train."""
        with jax.ensure_compile_time_eval():  # in a program, too, the data are known
            return input_range(self.data.train)

    @property
    def limits(self) -> Limits:
        """The range that the particles of a rollout are held to: that of the inputs of train, and a tenth beyond."""
        return self.input_range.limits

    def predict(
        self,
        x: Float[Array | np.ndarray, "batch in *space"] | Batch,
        *,
        key: PRNGKeyArray | None = None,
        num_samples: int = 30,
    ) -> Mixture | InUnits:
        """Predict the next fields, one step ahead.

        Args:
            x: A batch, or inputs of shape (batch, channel, *space) as batches of `data.test` have them: with hidden
                points already 0, or, in data with units, at the offset of their channel. No mask is applied here;
                `crossreg predict` on a saved run applies the run's.
            key: Key of the model instances that are drawn; equal keys give equal predictions. By default always the
                same one.
            num_samples: Model instances.

        Returns:
            A mixture of `num_samples` Gaussians at every point: `mean`, `std`, `std_predictive`,
            `std_generalization`, `quantile`, `cdf`, `log_prob`, `crps`.

        Raises:
            InputError: If `x` has the wrong shape or another grid than the data, is not finite, or has values far
                outside the range of the inputs of train. Of values less far outside there is a warning.
        """
        x = x.x if isinstance(x, Batch) else jnp.asarray(x)
        if isinstance(self.data.train, GridPairs):
            check_inputs(x, self.data.train.field_shape, self.input_range, "x")
        return predict(self.model, x, key=key, num_samples=num_samples)

    def rollout(
        self, x0: Float[Array | np.ndarray, "batch in *space"] | Batch, steps: int, particles: int = 60, **how: Any
    ) -> Forecast:
        """Forecast fields many steps ahead.

        Particles are held to the range of the inputs of train, and a tenth of its width on either side.

        Args:
            x0: The fields to start from, or a batch, which brings its masks along. Fields are hidden by the mask of the
                run at every step; without a mask for the whole run, fields need a `mask`.
            steps: How many steps ahead.
            particles: Model instances.
            **how: Further arguments of [`rollout`][crossreg.rollout], such as `key`, `leads` and `mask`.

        Returns:
            A predictive distribution at every lead.

        Raises:
            InputError: If `x0` has another grid than the data, or values far outside the range of the inputs of train,
                or an argument is out of range. Of values less far outside there is a warning.
        """
        return rollout(self, x0, steps, particles, **how)

    def known_of(self, x0: Float[Array | np.ndarray, "..."] | Batch) -> Known:
        """Return what is known of fields to start a rollout from, after checks.

        Args:
            x0: The fields, or a batch.

        Returns:
            The limits, the mask of the run, what stands at hidden points, and the names of the channels.

        Raises:
            InputError: As for `rollout`.
        """
        train = self.data.train
        check_inputs(x0.x if isinstance(x0, Batch) else x0, train.field_shape, self.input_range, "x0")
        masking = train.masking if train.run_mask is None else ""
        hidden = hidden_value(train, len(train.field_shape) - 1)
        return Known(self.limits, train.run_mask, masking, hidden, tuple(self.data.names))

    def evaluate(self, pairs: AbstractPairs | SplitName = "test", *, num_samples: int = 30) -> dict[str, object]:
        """Score the model on pairs, or on a split of its data.

        Args:
            pairs: The pairs, or the name of a split.
            num_samples: Model instances.

        Returns:
            Scores by name, as [`evaluate`][crossreg.evaluate] lists them.
        """
        return evaluate(self.model, self.data.pairs_of(pairs), num_samples=num_samples)

    def save(self, folder: Path | str, *, progress: bool = True) -> dict[str, Any]:
        """Save the model as a run folder, as `crossreg train` writes it, with its scores on all splits.

        Args:
            folder: The folder: new, or empty. It is written whole or not at all.
            progress: Show progress while the model is scored.

        Returns:
            The scores on test, reg and train, and σ per site.

        Raises:
            InputError: If the folder holds anything; if training was stopped; or if settings do not describe the model
                and its data: a model, an optimizer or a reg objective of your own, or data that `load` did not make.
                `xr.export.export_model` writes such a model.

        Example:
            ```python
            result.save("runs/mine")
            xr.load_run("runs/mine").model
            ```
        """
        if self.stopped_at is not None:
            raise InputError(
                f"save: the training was stopped at step {self.stopped_at:,} of {self.train.steps:,}, and a run folder"
                " would say that it was completed; use crossreg.export.export_model"
            )
        if self.built_from is None or self.data.config is None:
            which = "model and its training" if self.built_from is None else "data"
            raise InputError(
                f"save: a run folder stores settings, and these do not describe the {which}; use"
                " crossreg.export.export_model, or equinox.tree_serialise_leaves"
            )
        config = Config(self.data.config, self.built_from, self.train)
        return store_run(self.model, self.history, self.data, config, Path(folder), progress=progress)


def fit(
    data: Data,
    model: Surrogate | ModelConfig | None = None,
    config: TrainConfig | None = None,
    *,
    optimizer: optax.GradientTransformation | None = None,
    reg_objective: RegLoss | RegObjective | None = None,
    progress: bool = True,
    **fields: Any,
) -> Fit:
    """Train a model by cross-regularization: θ and ψ learn on `data.train`, ρ on `data.reg`.

    Ctrl-C, or the stop button of a notebook, ends the training early and keeps the model of the last report, at most a
    second or so before; its step is in `stopped_at`. Learning rates follow `steps`, so such a model is not trained to
    the end. Before the first report there is nothing to keep, and the `KeyboardInterrupt` is raised.

    Args:
        data: Train and reg pairs, as `load` returns them.
        model: The settings of the Fourier neural operator to build, by default those of the paper; or a surrogate of
            your own (see [`cross_regularize`][crossreg.cross_regularize]).
        config: Training settings.
        optimizer: An Optax transformation that updates θ and ψ instead of Adam, for example `optax.adamw(1e-3)`. The
            settings `learning_rate`, `schedule` and `clip` then do not act on θ and ψ. ρ keeps its own Adam.
        reg_objective: The loss on reg that ρ minimises: a name, as in the settings, or a function
            (mixture, y, weight) ↦ scalar of the standardised fields.
        progress: Show step, losses, reg ECE, σ per site and the time left.
        **fields: Fields of [`TrainConfig`][crossreg.TrainConfig] that replace those of `config`, such as `steps` and
            `seed`.

    Returns:
        The trained model with its history. Built from settings, it is the model that `crossreg train` trains with the
        same settings and data, bit for bit on the same machine.

    Raises:
        InputError: If the settings or the data cannot be trained on.
        TypeError: If `data`, `model` or `config` is of another kind.

    Example:
        ```python
        data = xr.load("diff_ks", train_size=50, observed_fraction=0.7)
        result = xr.fit(data, steps=5_000)
        result.evaluate(data.test)["nll"]
        ```
    """
    if isinstance(data, Surrogate):
        warnings.warn("fit(model, data) is now fit(data, model)", DeprecationWarning, stacklevel=2)
        data, model = model, data  # pyright: ignore[reportAssignmentType]
    if not isinstance(data, Data):
        raise TypeError(f"fit learns from a Data, which has train and reg (see load), not a {type(data).__name__}")
    if not isinstance(config, TrainConfig | None):
        raise TypeError(f"fit takes the settings of training as a TrainConfig, not as a {type(config).__name__}")
    if isinstance(reg_objective, str):
        fields["reg_objective"], reg_objective = reg_objective, None
    if unknown := [name for name in fields if name not in _FIELDS]:
        hint = did_you_mean(unknown[0], _FIELDS)
        raise InputError(f"{unknown[0]}: no such setting of training{hint}; those of the model go into a ModelConfig")
    if not isinstance(model, Surrogate | ModelConfig | None):
        raise TypeError(
            f"fit builds a model from a ModelConfig or trains a Surrogate, not a {type(model).__name__};"
            " `cross_regularize` makes a Surrogate of a network of your own"
        )
    train = dataclasses.replace(config or TrainConfig(), **fields)
    if isinstance(model, Surrogate):
        check_reads(model, data.train)
        built_from, program = None, train
        check_learnable_model(model, train, data.reg)
        models, tasks = stack([model]), stack_tasks([make_task(data, train.seed)])
    else:
        built_from = model or ModelConfig()
        sizes = DataConfig(reg_size=int(data.reg.num_rows))  # the rest of the data's settings does not count here
        models, tasks, program = start_cohort([Config(sizes, built_from, train)], [data])
    history: list[dict[str, Any]] = []
    report = stopped_at = None
    try:
        with TrainingDisplay({"fit": train.steps}, enabled=progress) as display:
            for report in train_replicas(models, tasks, program, optimizer=optimizer, reg_objective=reg_objective):
                if report.record is not None:
                    history.append(report.record.of(0))
                display.update("fit", report)
    except KeyboardInterrupt:
        if report is None:
            raise
        stopped_at = report.step
        print(f"crossreg: fit: stopped at step {stopped_at:,} of {train.steps:,}; its model is kept", file=sys.stderr)
    assert report is not None  # a config has at least one step
    if (step := int(report.snapshot.state.diverged_at[0])) >= 0:
        print(f"crossreg: fit: diverged at step {step:,}; its last finite state is kept", file=sys.stderr)
    if optimizer is not None or reg_objective is not None:
        built_from = None  # settings do not say how it was trained
    return Fit(unstack(report.models, 0), history, data, train, built_from, stopped_at)
