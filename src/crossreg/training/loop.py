"""Algorithm 1 over a replica axis, driven from the host in short chunks.

The compiled programs (`training/compiled.py`) return to the host about once a second, for progress, history and stop
signals. When they return changes no number, since batches and noise follow from the key and the step.
"""

import dataclasses
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from crossreg.config import TrainConfig
from crossreg.errors import InputError
from crossreg.machine.hosts import from_writer, stop_together
from crossreg.nn.noise import site_sigmas
from crossreg.nn.surrogate import Surrogate
from crossreg.objectives import RegLoss
from crossreg.routing import route
from crossreg.training.compiled import advance, has_periods, keep_best, monitor_scores, take_steps
from crossreg.training.feeding import Feed
from crossreg.training.parallel import Layout, over_replicas
from crossreg.training.replicas import SNAPSHOT_AXES, Progress, Record, Snapshot, first_snapshot, task_axes
from crossreg.training.step import NO_OVERRIDES, Overrides, Task, TrainState, with_engine

_CHUNK_SECONDS = 1.0


def _next_stop(step: int, chunk: int, config: TrainConfig, *, periods: bool) -> int:
    """Return the next step to stop at: about `chunk` steps ahead, and at every evaluation.

    With `periods` there are two programs. Every period of k_reg steps that fits before the next evaluation belongs to
    the one with loops of known length, and the remaining steps to the other, however large the chunks are: which
    program takes a step must not depend on how fast a machine is.
    """
    limit = min((step // config.record_every + 1) * config.record_every, config.steps)
    if not periods or step >= config.settled_after:
        return min(step + chunk, limit)
    limit, every = min(limit, config.settled_after), config.k_reg
    if step % every:
        return min((step // every + 1) * every, limit)
    last = limit - limit % every
    return min(step + max(chunk // every, 1) * every, last) if last > step else limit


def _of_program(config: TrainConfig, layout: Layout) -> TrainConfig:
    """Return the config that a program is compiled for. Seeds are in the tasks' keys, not in the program."""
    return dataclasses.replace(with_engine(config, layout.per_device), seed=0)


def _placed(snapshot: Snapshot, static: PyTree, tasks: Task, layout: Layout) -> tuple[Snapshot, PyTree, Task]:
    """Put the arguments of the programs on the devices."""
    return (
        layout.place(snapshot, SNAPSHOT_AXES),
        layout.place(static, None),
        layout.place(tasks, task_axes(tasks)),
    )


def compile_for(models: Surrogate, tasks: Task, config: TrainConfig) -> None:
    """Compile the programs that `train_replicas` will run on the same arguments, by no step and one evaluation."""
    layout = over_replicas(tasks.key.shape[0])
    config = _of_program(config, layout)
    snapshot, static, tasks = _placed(first_snapshot(models), route(models).static, tasks, layout)
    state = snapshot.state
    for periods in {False, has_periods(state, config)}:
        advance(state, static, tasks, jnp.asarray(0), jnp.asarray(0), config, layout, NO_OVERRIDES, periods)
    monitor_scores(state, static, tasks, config, layout)


def train_replicas(
    models: Surrogate,
    tasks: Task,
    config: TrainConfig,
    *,
    start: Snapshot | None = None,
    layout: Layout | None = None,
    optimizer: optax.GradientTransformation | None = None,
    reg_objective: RegLoss | None = None,
) -> Iterator[Progress]:
    """Train stacked models by Algorithm 1, one per stacked task, and report about once a second.

    Args:
        models: The untrained models, with a leading replica axis (`stack`, `start_cohort`).
        tasks: Their data and keys, stacked alike.
        config: Settings of the training.
        start: A snapshot of an earlier training of the same models, tasks and optimizer, to resume from.
        layout: How the training is divided among devices. By default the replicas are divided among those in use.
        optimizer: An Optax transformation that updates θ and ψ instead of Adam, applied as it is: the config's rates,
            `schedule` and `clip` then concern ρ alone, which keeps its Adam.
        reg_objective: A loss that ρ minimises instead of the config's: (mixture, y, weight) ↦ scalar, the mean over the
            points of weight 1. Mixture and truth are those of the standardised fields.

    Yields:
        Reports in the order of steps. The last one is that of the last step; its `models` are the trained ones.

    Raises:
        InputError: If `optimizer` is no Optax transformation, or `reg_objective` cannot be called.

    Example:
        ```python
        for report in train_replicas(models, tasks, config, optimizer=optax.adamw(1e-3)):
            print(report.step)
        model = unstack(report.models, 0)
        ```
    """
    if not isinstance(optimizer, optax.GradientTransformation | None):
        raise InputError(f"optimizer: expected an optax.GradientTransformation, not a {type(optimizer).__name__}")
    if reg_objective is not None and not callable(reg_objective):
        raise InputError(
            f"reg_objective: expected a function (mixture, y, weight), not a {type(reg_objective).__name__}"
        )
    rolled = (
        ("reg_horizon", config.reg_horizon, "reg", tasks.reg),
        ("train_rollout_steps", config.train_rollout_steps, "train", tasks.train),
    )
    for name, horizon, split, pairs in rolled:
        if horizon > 1 and pairs.pairs_per_row < horizon:
            raise InputError(
                f"{name} is {horizon}: must be at most {pairs.pairs_per_row}, the steps of the trajectories of {split}"
            )
    overrides = Overrides(optimizer, reg_objective)
    layout = over_replicas(tasks.key.shape[0]) if layout is None else layout
    config = _of_program(config, layout)
    static = route(models).static
    snapshot = first_snapshot(models, optimizer) if start is None else start
    learns_on_reg = bool(snapshot.state.rho.vector.size)
    if reg_objective is not None and not learns_on_reg:
        raise InputError("reg_objective: nothing in this model learns on reg, so that it would never be computed")
    placed = _placed(snapshot, static, tasks, layout)
    feed = Feed(tasks, placed[2], config, layout, learns_on_reg=learns_on_reg)
    try:
        for progress in _train_fed(*placed, config, feed, layout, overrides):
            yield progress._replace(static=static)  # on the device where a reader of the report computes
    finally:
        feed.close()


def _train_fed(
    snapshot: Snapshot,
    static: PyTree,
    tasks: Task,
    config: TrainConfig,
    feed: Feed,
    layout: Layout,
    overrides: Overrides,
) -> Iterator[Progress]:
    """Train on the tasks that the feed has ready."""
    step = first = int(snapshot.step)
    recorded = step - step % config.record_every
    chunk, busy, untimed = 1, 0.0, 0
    if jax.default_backend() != "cpu" and not layout.communicates:
        # Compile it beside the first step's program: the host has nothing else to do.
        monitor: Any = monitor_scores
        arguments = (snapshot.state, static, tasks, config, layout)
        threading.Thread(target=lambda: monitor.lower(*arguments).compile()).start()
    while step < config.steps:
        if layout.spans_processes:  # all processes take the same steps and stop at the same one
            stop_together()
            chunk = from_writer(chunk)
        stop = _next_stop(step, chunk, config, periods=has_periods(snapshot.state, config))
        before = time.perf_counter()
        state = snapshot.state
        for part, begin, end in feed.parts(step, stop):
            state = take_steps(state, static, part, begin, end, config, layout, overrides)
        jax.block_until_ready(state)
        snapshot = snapshot._replace(step=jnp.asarray(stop), state=state)
        elapsed = time.perf_counter() - before
        # The first chunk includes compilation: it is left out of the estimate of the time left.
        is_first = step == first
        chunk = 8 if is_first else int(np.clip(_CHUNK_SECONDS * (stop - step) / elapsed, 1, 4 * chunk))
        if is_first:
            untimed = stop - first
            if has_periods(state, config) and not layout.communicates:
                # The program for the time after settling begins is compiled while the first periods train.
                none = (snapshot.state, static, tasks, jnp.asarray(0), jnp.asarray(0), config, layout, overrides, False)
                threading.Thread(target=advance, args=none).start()
        step, record = stop, None
        if step % config.record_every == 0 or step == config.steps:
            scores = monitor_scores(state, static, tasks, config, layout)
            record = _record(layout.collect(state), layout.collect(scores), config, step, step - recorded)
            recorded = step
            snapshot = keep_best(snapshot, scores[0], layout)
        if not is_first:
            busy += time.perf_counter() - before
        timed = step - first - untimed
        seconds_left = busy / timed * (config.steps - step) if timed > 0 else math.nan
        yield Progress(step, seconds_left, record, static, snapshot, layout)


def _record(state: TrainState, scores: tuple, config: TrainConfig, step: int, steps_since: int) -> Record:
    """Return the line of history of this step."""
    nll, ece, std_mu = scores
    diverged_at = np.asarray(state.diverged_at)
    reg_updates = 0
    if state.rho.vector.size:
        reg_updates = config.reg_updates_until(step) - config.reg_updates_until(step - steps_since)

    def mean_loss(total, updates):
        mean = np.asarray(total) / updates if updates else np.nan
        return np.where(diverged_at < 0, mean, np.nan)

    parameters = eqx.combine(state.theta_psi.tree(), state.rho.tree())
    return Record(
        step,
        mean_loss(state.train_loss, steps_since),
        mean_loss(state.reg_loss, reg_updates),
        np.asarray(nll),
        np.asarray(ece),
        np.asarray(std_mu),
        {name: np.asarray(value) for name, value in site_sigmas(parameters).items()},
        diverged_at,
    )
