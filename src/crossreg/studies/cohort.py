"""Runs of equal shape as replicas of one program.

Configs of a cohort may differ in what is data to the compiled loop: the seed, the mask and
its seed, the observed fraction and the sizes of the splits.
"""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax

from crossreg.config import Config, TrainConfig
from crossreg.data.pairs import Data, replica_axes
from crossreg.errors import InputError
from crossreg.nn.build import build_model, check_scale
from crossreg.nn.surrogate import Surrogate
from crossreg.streams import MODEL_STREAM
from crossreg.training.loop import make_task, stack_tasks
from crossreg.training.step import Task


def shared_train_config(configs: Sequence[Config]) -> TrainConfig:
    """The train config that all replicas have in common, whatever their seeds."""
    first = dataclasses.replace(configs[0].train, seed=0)
    for config in configs:
        if dataclasses.replace(config.train, seed=0) != first or config.model != configs[0].model:
            raise ValueError("the runs of a cohort must share model and training settings, seeds aside")
    return first


def check_learnable(config: Config) -> None:
    """Refuses settings that nothing could be learned under."""
    if not config.model.learns_on_reg:
        return
    if config.train.reg_objective == "fair" and config.train.num_samples in (2, 3):
        raise InputError(
            f"--num-samples {config.train.num_samples}: --reg-objective fair needs 4 or more, the others any number"
        )
    if not config.data.reg_size:
        raise InputError("--reg-size 0: this model learns on reg; give it at least one trajectory")


def start_cohort(
    configs: Sequence[Config], data: Sequence[Data], members: Sequence[int] | None = None
) -> tuple[Surrogate, Task, TrainConfig]:
    """Untrained stacked models, their stacked tasks, and the shared train config.

    `members` are the replicas' numbers in their ensembles; by default all are 0.
    """
    train_config = shared_train_config(configs)
    if any(d.digest != data[0].digest for d in data):
        raise ValueError("the runs of a cohort must share their trajectories")
    for config, split in zip(configs, data, strict=True):
        check_scale(config.model, split.train)
        check_learnable(config)
    members = members or [0] * len(configs)
    tasks = stack_tasks([make_task(d, c.train.seed, m) for c, d, m in zip(configs, data, members, strict=True)])

    def build(pairs, key):
        return build_model(configs[0].model, pairs, key=jax.random.fold_in(key, MODEL_STREAM))

    build_all = eqx.filter_jit(eqx.filter_vmap(build, in_axes=(replica_axes(tasks.train), 0)))
    return build_all(tasks.train, tasks.key), tasks, train_config
