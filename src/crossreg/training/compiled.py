"""Algorithm 1 as compiled programs over a replica axis.

Batches and noise follow from the key and the step, so that no number depends on where one program ends and the next
begins. A layout says how the replicas are divided among devices (`training/parallel.py`).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from crossreg.config import TrainConfig
from crossreg.data.keys import evaluation_key
from crossreg.data.pairs import AbstractPairs
from crossreg.metrics.calibration import ece
from crossreg.nn.kernels import ComputePath
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.objectives import weighted_mean
from crossreg.routing import Routed, merge
from crossreg.training.parallel import ALONE, WHOLE, Layout, Share
from crossreg.training.replicas import SNAPSHOT_AXES, Snapshot, device_axes, task_axes
from crossreg.training.step import NO_OVERRIDES, Overrides, Task, TrainState, path_of, reg_step, train_step

MONITOR_POINTS = 2**13
# Independent samples, and those in pairs with opposite noise. 30 would cost as much as the training.
MONITOR_SAMPLES, MONITOR_PAIRED = 10, 4


class Settings(NamedTuple):
    """The settings of a compiled program; the last arguments of `train_step` and `reg_step`."""

    config: TrainConfig
    share: Share
    overrides: Overrides = NO_OVERRIDES


def _steps_of(settings: Settings, static: PyTree, tasks: Task):
    """Return functions that take one train step and one reg step of all replicas."""
    axes = (0, task_axes(tasks), None)
    return (
        jax.vmap(lambda s, task, t: train_step(s, static, task, t, *settings), in_axes=axes),
        jax.vmap(lambda s, task, t: reg_step(s, static, task, t, *settings), in_axes=axes),
    )


def _divided(program: Callable, settings: Settings, layout: Layout, state, static, tasks: Task, *steps):
    """Run a program as the devices of a layout divide it."""
    run = layout.divide(partial(program, settings), 0, None, device_axes(tasks), *(None for _ in steps))
    return run(state, static, tasks, *steps)


@eqx.filter_jit
def advance(
    state: TrainState,
    static: PyTree,
    tasks: Task,
    start: Int[Array, ""],
    stop: Int[Array, ""],
    config: TrainConfig,
    layout: Layout = ALONE,
    overrides: Overrides = NO_OVERRIDES,
    periods: bool = False,
) -> TrainState:
    """Take steps start+1 … stop of all replicas; one compiled program serves any number of steps.

    ρ is updated after step t if k_reg divides t, and from `config.settled_after` on after every `config.k_settled`.

    Args:
        state: All replicas, with a leading replica axis.
        static: The part of the models that no update changes.
        tasks: Their data and keys, stacked alike.
        start: The step that `state` has taken.
        stop: The step to stop after.
        config: Settings of the training.
        layout: How the replicas are divided among devices.
        overrides: Functions in place of settings.
        periods: Whether `start` and `stop` are multiples of k_reg before settling, so that the compiler knows the
            length of the loops. Before each turn of any other loop a GPU asks the host, which takes a tenth of one
            replica's step.
    """
    program = _advance_periods if periods else _advance
    return _divided(program, Settings(config, layout.share, overrides), layout, state, static, tasks, start, stop)


def _advance(settings: Settings, state: TrainState, static: PyTree, tasks: Task, start, stop):
    config = settings.config
    trains, regularizes = _steps_of(settings, static, tasks)
    learns_on_reg = bool(state.rho.vector.size)

    def train_until(step, end, state):
        return jax.lax.fori_loop(step + 1, end + 1, lambda t, s: trains(s, tasks, t), state)

    if not learns_on_reg:
        return train_until(start, stop, state)

    # A loop inside a loop instead of a condition at every step: on a GPU a condition copies the whole state.
    def segment(carry):
        step, state = carry
        due = jnp.minimum((step // config.k_reg + 1) * config.k_reg, config.settled_after)
        settling = step - config.settled_after
        next_due = step + config.k_settled - settling % config.k_settled
        end = jnp.minimum(jnp.where(settling < 0, due, next_due), stop)
        state = train_until(step, end, state)
        settling = end - config.settled_after
        is_due = jnp.where(settling > 0, settling % config.k_settled == 0, end % config.k_reg == 0)
        state = jax.lax.cond(is_due, lambda s: regularizes(s, tasks, end), lambda s: s, state)
        return end, state

    return jax.lax.while_loop(lambda carry: carry[0] < stop, segment, (start, state))[1]


def _advance_periods(settings: Settings, state: TrainState, static: PyTree, tasks: Task, start, stop):
    config = settings.config
    trains, regularizes = _steps_of(settings, static, tasks)

    def period(number, state):
        first = start + number * config.k_reg + 1
        state = jax.lax.fori_loop(0, config.k_reg, lambda turn, s: trains(s, tasks, first + turn), state)
        return regularizes(state, tasks, first + config.k_reg - 1)

    return jax.lax.fori_loop(0, (stop - start) // config.k_reg, period, state)


def has_periods(state: TrainState, config: TrainConfig) -> bool:
    """Whether loops of known length pay: on a GPU that waits for the host longer than it computes."""
    return jax.default_backend() == "gpu" and path_of(config) == "reverse" and bool(state.rho.vector.size)


def take_steps(
    state: TrainState,
    static: PyTree,
    tasks: Task,
    start: int,
    stop: int,
    config: TrainConfig,
    layout: Layout = ALONE,
    overrides: Overrides = NO_OVERRIDES,
) -> TrainState:
    """Take steps start+1 … stop of all replicas, by the program that is faster for them."""
    whole = start % config.k_reg == 0 and stop % config.k_reg == 0 and stop <= config.settled_after
    periods = whole and has_periods(state, config)
    return advance(state, static, tasks, jnp.asarray(start), jnp.asarray(stop), config, layout, overrides, periods)


@eqx.filter_jit
def monitor_scores(state: TrainState, static: PyTree, tasks: Task, config: TrainConfig, layout: Layout = ALONE):
    """Return NLL, ECE_mix and mean Std_ω[μ] of every replica on its `held_out` data."""
    return _divided(_monitor_scores, Settings(config, layout.share), layout, state, static, tasks)


def _monitor_scores(settings: Settings, state: TrainState, static: PyTree, tasks: Task):
    config, share = settings.config, settings.share

    def one(state, task):
        model = merge(Routed(state.theta_psi.tree(), state.rho.tree(), static))
        paired = config.antithetic and model.can_pair
        num_samples = min(config.evaluation_samples, MONITOR_PAIRED if paired else MONITOR_SAMPLES)
        return split_scores(model, task.held_out, num_samples, path_of(config), share, antithetic=paired)

    return jax.vmap(one, in_axes=(0, task_axes(tasks)))(state, tasks)


def split_scores(
    model: Surrogate,
    pairs: AbstractPairs,
    num_samples: int,
    path: ComputePath = "plain",
    share: Share = WHOLE,
    *,
    antithetic: bool = False,
):
    """Return NLL, ECE_mix and mean Std_ω[μ] of a model on a split, inside a compiled program."""
    points_per_pair = math.prod(pairs.field_shape)
    chunk = max(1, min(MONITOR_POINTS // points_per_pair, -(-pairs.max_pairs // share.parts)))
    chunk = chunk - chunk % 16 or chunk  # the kernels for a GPU take multiples of 16
    num_chunks = -(-pairs.max_pairs // chunk)
    key = evaluation_key(0)

    def score(number):
        index = number * chunk + jnp.arange(chunk)  # numbers beyond the last pair have no weight
        batch = pairs.gather(index)
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
        how: Any = {"num_samples": num_samples, "antithetic": antithetic, "path": path}
        mixture = predict(model, batch.x, at=batch.at, key=keys, **how)
        weight = jnp.broadcast_to(batch.weight, batch.y.shape)
        return mixture.cdf(batch.y), -mixture.log_prob(batch.y), mixture.std_of_means, weight

    pit, nll, std_mu, weight = share.together(jax.lax.map(score, share.numbers(num_chunks)))
    return weighted_mean(nll, weight), ece(pit, weight), weighted_mean(std_mu, weight)


@eqx.filter_jit
def keep_best(snapshot: Snapshot, nll: Float[Array, " replica"], layout: Layout) -> Snapshot:
    """Update the best state of each replica after its scores were computed, and start new sums of losses."""
    state, best, best_nll = layout.divide(_keep_best, SNAPSHOT_AXES, 0)(snapshot, nll)
    return Snapshot(snapshot.step, state, best, best_nll)


def _keep_best(snapshot: Snapshot, nll: Float[Array, " replica"]):
    state = snapshot.state
    better = nll < snapshot.best_nll  # a NaN is never the best

    def choose(new, old):
        return jnp.where(better.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    best = jax.tree.map(choose, (state.theta_psi, state.rho), snapshot.best)
    zero = jnp.zeros_like(state.train_loss)
    state = eqx.tree_at(lambda s: (s.train_loss, s.reg_loss), state, (zero, zero))
    return state, best, jnp.where(better, nll, snapshot.best_nll)
