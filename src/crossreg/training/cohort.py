"""Runs of equal shape as replicas of one program.

Configs of a cohort may differ in everything that is data to the compiled loop: the seed, the mask and its seed, the
observed fraction and the sizes of the splits.
"""

import dataclasses
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np

from crossreg.config import Config, ModelConfig, TrainConfig
from crossreg.data.dataset import Data
from crossreg.data.keys import MODEL_STREAM
from crossreg.data.pairs import AbstractPairs, replica_axes
from crossreg.errors import InputError
from crossreg.files.memory import in_words
from crossreg.machine.devices import device_bytes, devices_in_use
from crossreg.nn.build import build_model, check_scale, scale_pairs
from crossreg.nn.noise import GaussianNoise, GeneralizationScale, PredictiveScale, noises
from crossreg.nn.surrogate import Surrogate
from crossreg.routing import route
from crossreg.training.compiled import MONITOR_POINTS, MONITOR_SAMPLES
from crossreg.training.replicas import make_task, stack_tasks
from crossreg.training.step import Task

# Bytes per feature, sample and block in training: values kept for the gradient, and their copies.
_BYTES_PER_FEATURE = 64
# Bytes per feature and sample without a gradient: features in, features out.
_BYTES_PER_PREDICTION = 8
# The weights, their gradients, both moments of Adam, and the best and the last state.
_COPIES_OF_WEIGHTS = 6


def shared_train_config(configs: Sequence[Config]) -> TrainConfig:
    """Return the train config that all replicas share, apart from their seeds."""
    first = dataclasses.replace(configs[0].train, seed=0)
    for config in configs:
        if dataclasses.replace(config.train, seed=0) != first or config.model != configs[0].model:
            raise ValueError("the runs of a cohort must share model and training settings, apart from their seeds")
    return first


def check_learnable(config: Config) -> None:
    """Raise InputError for settings under which ρ, or noise of ψ inside the network, could not be learned."""
    model = config.model
    inside = {model.feature_noise, model.mode_noise}
    owners = {owner for owner in ("generalization", "predictive") if inside & {owner, "both"}}
    _check_learnable(config.train, owners, model.learns_on_reg, config.data.reg_size)


def check_learnable_model(model: Surrogate, config: TrainConfig, reg: AbstractPairs) -> None:
    """Raise InputError if ρ, or noise of ψ inside the network, could not be learned by a model as it is."""
    scales = {type(noise.scale) for noise in noises(model) if isinstance(noise, GaussianNoise)}
    named = {"generalization": GeneralizationScale, "predictive": PredictiveScale}
    owners = {owner for owner, scale in named.items() if scale in scales}
    _check_learnable(config, owners, bool(jax.tree.leaves(route(model).rho)), int(reg.num_rows))


def _check_learnable(train: TrainConfig, owners: set[str], learns_on_reg: bool, reg_size: int | None) -> None:
    """Check the samples that noise inside the network is learned from, by its owners, and the size of reg."""
    names = {"num_samples"} if "generalization" in owners else set()
    if "predictive" in owners:
        names.add("num_samples" if train.train_samples is None else "train_samples")
    for name in sorted(names):
        if getattr(train, name) < 2:
            raise InputError(f"{name} is 1: noise inside the network is learned from the spread of 2 or more samples")
    if not learns_on_reg:
        return
    if train.reg_objective == "fair":
        if train.num_samples in (2, 3):
            raise InputError(
                f"num_samples is {train.num_samples}: `reg_objective=fair` needs 4 or more, the others any number"
            )
        if train.reg_horizon > 1 and train.rollout_particles < 4:
            raise InputError(f"rollout_particles is {train.rollout_particles}: `reg_objective=fair` needs 4 or more")
    if not reg_size:
        raise InputError("reg_size is 0: this model learns on reg; give it at least one trajectory")


def memory_bytes() -> int:
    """Return the memory of all devices that train; several devices on a CPU share one memory."""
    return device_bytes() * (1 if jax.default_backend() == "cpu" else len(devices_in_use()))


def bytes_of(config: Config, num_points: int, *, parts: int = 1) -> int:
    """Estimate the memory of one replica in a train step or evaluation, for one of `parts` parts of each batch."""
    train = config.train
    updates = ((train.batch_size, train.train_samples or train.num_samples), (train.reg_pairs, train.num_samples))
    step = max(-(-size // parts) * samples for size, samples in updates) * num_points * (config.model.num_blocks + 1)
    monitor = min(config.train.evaluation_samples, MONITOR_SAMPLES) * max(MONITOR_POINTS, num_points)
    return max(step, monitor) * config.model.width * _BYTES_PER_FEATURE


def check_memory(config: Config, field_shape: tuple[int, ...], there: int | None = None, *, parts: int = 1) -> None:
    """Raise InputError if a replica would not fit into memory, before any is allocated.

    Args:
        config: The run.
        field_shape: The shape (channel, *space) of a field.
        there: The memory of a device on another machine; by default that of this one.
        parts: The number of devices that share each batch.
    """
    there, num_points, model = there or device_bytes(), math.prod(field_shape), config.model
    wanted = (
        (
            bytes_of(config, num_points, parts=parts),
            f"batch_size is {config.train.batch_size}, num_samples is {config.train.num_samples} and width is"
            f" {model.width} on {num_points} values: a step would take about",
        ),
        (
            weight_bytes(model, len(field_shape) - 1),
            f"width is {model.width}, num_modes is {model.num_modes} and num_blocks is {model.num_blocks}: the weights"
            " would take about",
        ),
        (
            prediction_bytes(config, num_points),
            f"evaluation_samples is {config.train.evaluation_samples} and width is {model.width} on {num_points}"
            " values: a prediction would take about",
        ),
    )
    for needed, what in wanted:
        if needed > there:
            raise InputError(f"{what} {in_words(needed)}; this device has {in_words(there)}")


def prediction_bytes(config: Config, num_points: int) -> int:
    """Estimate the memory for predicting one field."""
    return config.train.evaluation_samples * num_points * config.model.width * _BYTES_PER_PREDICTION


def weight_bytes(model: ModelConfig, num_dims: int) -> int:
    """Estimate the memory of the spectral blocks' weights in training, with gradients, moments and copies."""
    modes = model.num_modes * (2 * model.num_modes) ** (num_dims - 1)
    return model.num_blocks * model.width**2 * 2 * modes * 4 * _COPIES_OF_WEIGHTS


def start_cohort(
    configs: Sequence[Config], data: Sequence[Data], members: Sequence[int] | None = None, *, parts: int = 1
) -> tuple[Surrogate, Task, TrainConfig]:
    """Build the untrained models of a cohort.

    Args:
        configs: One run per replica; they share model and training settings, apart from seeds.
        data: Their data, from the same trajectories.
        members: The replicas' numbers in their ensembles; by default all are 0.
        parts: The number of devices that share each batch.

    Returns:
        Stacked models, stacked tasks, and the shared train config.

    Raises:
        ValueError: If the runs cannot share one program.
        InputError: If a run does not fit into memory, or cannot be learned.
    """
    train_config = shared_train_config(configs)
    if any(d.digest != data[0].digest for d in data):
        raise ValueError("the runs of a cohort must share their trajectories")
    for config, split in zip(configs, data, strict=True):
        check_memory(config, split.train.field_shape, parts=parts)
        check_scale(config.model, split.train.hold(np.asarray(scale_pairs(split.train))))
        check_learnable(config)
    members = members or [0] * len(configs)
    tasks = stack_tasks([make_task(d, c.train.seed, m) for c, d, m in zip(configs, data, members, strict=True)])
    # A compiled program reads no file: the pairs that the data's scale is computed from are read before.
    ready = eqx.tree_at(lambda t: t.train, tasks, tasks.train.hold(np.asarray(scale_pairs(data[0].train))))
    return _build(configs[0].model, ready), tasks, train_config


def _build(config: ModelConfig, tasks: Task) -> Surrogate:
    """Build a model for every task on the CPU: a GPU's compiler would take seconds for the same."""
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to use another platform alone
        return eqx.filter_jit(_build_all)(config, tasks)
    device = jax.local_devices()[0]
    if device == cpu:
        return _build_on_cpu(config, tasks)
    arrays, rest = eqx.partition(_build_on_cpu(config, jax.device_put(tasks, cpu)), eqx.is_array)
    return eqx.combine(jax.device_put(arrays, device), rest)


def _build_all(config: ModelConfig, tasks: Task) -> Surrogate:
    """Build a model for every task."""

    def build(pairs, key):
        return build_model(config, pairs, key=jax.random.fold_in(key, MODEL_STREAM))

    return eqx.filter_vmap(build, in_axes=(replica_axes(tasks.train), 0))(tasks.train, tasks.key)


# It runs once: the 3 s that a CPU's compiler would spend on making it fast are never recovered.
_build_on_cpu = eqx.filter_jit(_build_all, compiler_options={"xla_backend_optimization_level": 0})  # pyright: ignore[reportCallIssue]
