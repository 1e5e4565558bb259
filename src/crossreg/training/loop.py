"""Algorithm 1 as a compiled loop over a replica axis, driven from the host in short chunks.

A sweep is one program over many replicas; one run is a sweep of one. The host sees the loop
about once a second: progress, history and stop signals live there. Where it stops to look
changes no number, since batches and noise follow from the key and the step.
"""

import dataclasses
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from crossreg.config import TrainConfig
from crossreg.data.files.streamed import StreamedPairs
from crossreg.data.pairs import AbstractPairs, Data, replica_axes, stack_pairs
from crossreg.metrics.calibration import ece
from crossreg.metrics.evaluation import evaluation_key
from crossreg.nn.noise import site_sigmas
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.nn.waiting import Path
from crossreg.objectives import weighted_mean
from crossreg.routing import Routed, merge, route
from crossreg.streams import MEMBER_STREAM
from crossreg.training.feeding import Feed
from crossreg.training.step import Task, TrainState, init_state, path_of, reg_step, train_step, with_engine

_CHUNK_SECONDS = 1.0
# Of data in files, what is kept in memory to be scored along the way.
_MONITOR_BYTES = 2**23
MONITOR_POINTS = 2**13
# As many as a train step draws: 30 would cost a tenth of a training.
MONITOR_SAMPLES = 10


class Record(NamedTuple):
    """One line of history, for every replica at once."""

    step: int
    train_loss: Float[np.ndarray, " replica"]
    reg_loss: Float[np.ndarray, " replica"]
    reg_nll: Float[np.ndarray, " replica"]
    reg_ece: Float[np.ndarray, " replica"]
    reg_std_mu: Float[np.ndarray, " replica"]
    sigma: dict[str, Float[np.ndarray, "replica ..."]]
    diverged_at: Int[np.ndarray, " replica"]

    def of(self, replica: int) -> dict[str, Any]:
        """The line of one replica as plain numbers; what is not finite becomes None."""

        def number(values) -> float | None:
            value = float(values[replica])
            return value if math.isfinite(value) else None

        return {
            "step": self.step,
            "train_loss": number(self.train_loss),
            "reg_loss": number(self.reg_loss),
            "reg_nll": number(self.reg_nll),
            "reg_ece": number(self.reg_ece),
            "reg_std_mu": number(self.reg_std_mu),
            "sigma": {name: np.ravel(sigma[replica]).tolist() for name, sigma in self.sigma.items()},
            "diverged_at": int(self.diverged_at[replica]),
        }

    def mean(self) -> dict[str, float | int | None]:
        """Losses and scores, averaged over the replicas that have not diverged, and how many have."""
        going = self.diverged_at < 0

        def average(values) -> float | None:
            kept = np.asarray(values)[going]
            return float(kept.mean()) if kept.size and np.isfinite(kept).all() else None

        names = ("train_loss", "reg_loss", "reg_nll", "reg_ece")
        return {name: average(getattr(self, name)) for name in names} | {"diverged": int((~going).sum())}


class Snapshot(NamedTuple):
    """All of a training in progress: a loop that starts from it goes on as if it had never stopped.

    `best` are the parameters of each replica at its lowest NLL on the monitored split.
    """

    step: Int[Array, ""]
    state: TrainState
    best: PyTree
    best_nll: Float[Array, " replica"]


class Progress(NamedTuple):
    """Where a training stands after a chunk. `record` is there when the monitored split was just evaluated."""

    step: int
    seconds_left: float
    record: Record | None
    static: PyTree
    snapshot: Snapshot

    @property
    def models(self) -> Surrogate:
        """The stacked models as they are."""
        state = self.snapshot.state
        return merge(Routed(state.theta_psi.tree(), state.rho.tree(), self.static))


def stack(models: Sequence[PyTree]) -> PyTree:
    """Models of equal structure as one, their parameters with a leading replica axis.

    Arrays that are not trained (indices, flags) are shared: they must be equal, and get no such axis.
    """
    fixed = [eqx.filter(model, eqx.is_inexact_array, inverse=True) for model in models]
    if not all(eqx.tree_equal(fixed[0], other) for other in fixed[1:]):
        raise ValueError("replicas must be equal in all that is not trained")
    return jax.tree.map(lambda *xs: jnp.stack(xs) if eqx.is_inexact_array(xs[0]) else xs[0], *models)


@eqx.filter_jit
def _take(models: PyTree, index: Int[Array, ""]) -> PyTree:
    return jax.tree.map(lambda x: x[index], models)


def unstack(models: PyTree, index: int) -> PyTree:
    """One replica out of stacked models."""
    arrays, rest = eqx.partition(models, eqx.is_inexact_array)
    return eqx.combine(_take(arrays, jnp.asarray(index)), rest)


def make_task(data: Data, seed: int, member: int = 0) -> Task:
    """What a single replica learns from. Member 0 of an ensemble is the run of that seed alone."""
    key = jax.random.key(seed)
    if member:
        key = jax.random.fold_in(jax.random.fold_in(key, MEMBER_STREAM), member)
    monitor = data.unseen
    if isinstance(monitor, StreamedPairs):
        monitor = monitor.evenly_spaced(_MONITOR_BYTES)
    return Task(key, data.train, data.reg, monitor)


def stack_tasks(tasks: Sequence[Task]) -> Task:
    """Tasks of several replicas as one."""
    return Task(
        jnp.stack([task.key for task in tasks]),
        stack_pairs([task.train for task in tasks]),
        stack_pairs([task.reg for task in tasks]),
        stack_pairs([task.monitor for task in tasks]),
    )


def _task_axes(tasks: Task) -> PyTree:
    splits = (tasks.train, tasks.reg, tasks.monitor)
    axes = jax.tree.map(lambda _: 0, tasks)
    return eqx.tree_at(lambda t: (t.train, t.reg, t.monitor), axes, tuple(replica_axes(pairs) for pairs in splits))


def _steps_of(static: PyTree, tasks: Task, config: TrainConfig):
    """One train step and one reg step of all replicas."""
    axes = (0, _task_axes(tasks), None)
    return (
        jax.vmap(lambda s, task, t: train_step(s, static, task, t, config), in_axes=axes),
        jax.vmap(lambda s, task, t: reg_step(s, static, task, t, config), in_axes=axes),
    )


@eqx.filter_jit
def advance(
    state: TrainState, static: PyTree, tasks: Task, start: Int[Array, ""], stop: Int[Array, ""], config: TrainConfig
) -> TrainState:
    """Steps start+1 … stop of all replicas; one compiled program for any number of steps.

    ρ is updated after step t if k_reg divides t, and after every step behind `config.settled_after`.
    """
    trains, regularizes = _steps_of(static, tasks, config)
    learns_on_reg = bool(state.rho.vector.size)

    def train_until(step, end, state):
        return jax.lax.fori_loop(step + 1, end + 1, lambda t, s: trains(s, tasks, t), state)

    if not learns_on_reg:
        return train_until(start, stop, state)

    # A loop inside a loop, not a condition at every step: on a GPU a condition copies the whole state.
    def segment(carry):
        step, state = carry
        due = jnp.minimum((step // config.k_reg + 1) * config.k_reg, config.settled_after)
        end = jnp.minimum(jnp.where(step < config.settled_after, due, step + 1), stop)
        state = train_until(step, end, state)
        is_due = (end % config.k_reg == 0) | (end > config.settled_after)
        state = jax.lax.cond(is_due, lambda s: regularizes(s, tasks, end), lambda s: s, state)
        return end, state

    return jax.lax.while_loop(lambda carry: carry[0] < stop, segment, (start, state))[1]


@eqx.filter_jit
def advance_periods(
    state: TrainState, static: PyTree, tasks: Task, start: Int[Array, ""], stop: Int[Array, ""], config: TrainConfig
) -> TrainState:
    """The same from a multiple of k_reg to another, before settling: loops whose length the compiler knows.

    A GPU asks the host before each turn of any other loop, which takes a tenth of one replica's step.
    """
    trains, regularizes = _steps_of(static, tasks, config)

    def period(number, state):
        first = start + number * config.k_reg + 1
        state = jax.lax.fori_loop(0, config.k_reg, lambda turn, s: trains(s, tasks, first + turn), state)
        return regularizes(state, tasks, first + config.k_reg - 1)

    return jax.lax.fori_loop(0, (stop - start) // config.k_reg, period, state)


def _has_periods(state: TrainState, config: TrainConfig) -> bool:
    """Whether `advance_periods` pays: on a GPU that waits for the host more than it computes."""
    return jax.default_backend() == "gpu" and path_of(config) == "reverse" and bool(state.rho.vector.size)


def take_steps(state: TrainState, static: PyTree, tasks: Task, start: int, stop: int, config: TrainConfig):
    """Steps start+1 … stop, by the program that is the faster for them."""
    whole = start % config.k_reg == 0 and stop % config.k_reg == 0 and stop <= config.settled_after
    program = advance_periods if whole and _has_periods(state, config) else advance
    return program(state, static, tasks, jnp.asarray(start), jnp.asarray(stop), config)


def _next_stop(step: int, chunk: int, config: TrainConfig, *, periods: bool) -> int:
    """Where the host looks next: about `chunk` steps on, and at every evaluation.

    With `periods` there are two programs: every period of k_reg steps that fits before the next evaluation is one of
    `advance_periods`, and what is left belongs to `advance`, however large the chunks are: which of them takes a step
    must not depend on how fast a machine is.
    """
    limit = min((step // config.look_every + 1) * config.look_every, config.steps)
    if not periods or step >= config.settled_after:
        return min(step + chunk, limit)
    limit, every = min(limit, config.settled_after), config.k_reg
    if step % every:
        return min((step // every + 1) * every, limit)
    last = limit - limit % every
    return min(step + max(chunk // every, 1) * every, last) if last > step else limit


@eqx.filter_jit
def monitor_scores(state: TrainState, static: PyTree, tasks: Task, config: TrainConfig):
    """NLL, ECE_mix and mean Std_ω[μ] on the monitored split, for every replica."""

    def one(state, task):
        model = merge(Routed(state.theta_psi.tree(), state.rho.tree(), static))
        num_samples = min(config.evaluation_samples, MONITOR_SAMPLES)
        return split_scores(model, task.monitor, num_samples, path_of(config))

    return jax.vmap(one, in_axes=(0, _task_axes(tasks)))(state, tasks)


def split_scores(model: Surrogate, pairs: AbstractPairs, num_samples: int, path: Path = "plain"):
    """NLL, ECE_mix and mean Std_ω[μ] of a model on a split, inside a compiled program."""
    points_per_pair = math.prod(pairs.field_shape)
    chunk = max(1, min(MONITOR_POINTS // points_per_pair, pairs.max_pairs))
    chunk = chunk - chunk % 16 or chunk  # what the kernels for a GPU take
    num_chunks = -(-pairs.max_pairs // chunk)
    key = evaluation_key(0)

    def score(number):
        index = number * chunk + jnp.arange(chunk)
        batch = pairs.gather(index)
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
        mixture = predict(model, batch.x, at=batch.at, key=keys, num_samples=num_samples, path=path)
        weight = jnp.broadcast_to(batch.weight, batch.y.shape)
        return mixture.cdf(batch.y), -mixture.log_prob(batch.y), jnp.sqrt(mixture.var_of_means), weight

    pit, nll, std_mu, weight = jax.lax.map(score, jnp.arange(num_chunks))
    return weighted_mean(nll, weight), ece(pit, weight), weighted_mean(std_mu, weight)


@eqx.filter_jit
def _keep_best(snapshot: Snapshot, nll: Float[Array, " replica"]) -> Snapshot:
    """The snapshot after the monitored split was scored; a NaN is never the best."""
    better = nll < snapshot.best_nll
    current = (snapshot.state.theta_psi, snapshot.state.rho)

    def choose(new, old):
        return jnp.where(better.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    best = jax.tree.map(choose, current, snapshot.best)
    return snapshot._replace(best=best, best_nll=jnp.where(better, nll, snapshot.best_nll))


@eqx.filter_jit
def first_snapshot(models: Surrogate) -> Snapshot:
    """The snapshot before the first step of stacked models."""
    state = jax.vmap(init_state)(eqx.filter(models, eqx.is_inexact_array))
    return Snapshot(
        jnp.asarray(0), state, (state.theta_psi, state.rho), jnp.full(state.train_loss.shape, jnp.inf, jnp.float32)
    )


def _of_program(config: TrainConfig, tasks: Task) -> TrainConfig:
    """What of a config makes a program. Seeds are in the tasks' keys: one serves all of them."""
    return dataclasses.replace(with_engine(config, tasks.key.shape[0]), seed=0)


def compile_for(models: Surrogate, tasks: Task, config: TrainConfig) -> None:
    """Compiles what `train_replicas` will run on the same arguments: no step, and one look at the monitored split."""
    config = _of_program(config, tasks)
    static, state = route(models).static, first_snapshot(models).state
    for program in (advance, advance_periods) if _has_periods(state, config) else (advance,):
        program(state, static, tasks, jnp.asarray(0), jnp.asarray(0), config)
    monitor_scores(state, static, tasks, config)


def train_replicas(
    models: Surrogate, tasks: Task, config: TrainConfig, *, start: Snapshot | None = None
) -> Iterator[Progress]:
    """Trains stacked models, one per stacked task, and reports about once a second.

    The last report is that of the last step; its `models` are the trained ones. With `start`, a snapshot of an
    earlier training of the same models and tasks, it goes on from there.
    """
    config = _of_program(config, tasks)
    static = route(models).static
    snapshot = first_snapshot(models) if start is None else start
    feed = Feed(tasks, config, learns_on_reg=bool(snapshot.state.rho.vector.size))
    try:
        yield from _train_fed(snapshot, static, tasks, config, feed)
    finally:
        feed.close()


def _train_fed(snapshot: Snapshot, static: PyTree, tasks: Task, config: TrainConfig, feed: Feed) -> Iterator[Progress]:
    """`train_replicas` on what the feed has ready."""
    step = first = int(snapshot.step)
    recorded = step - step % config.look_every
    chunk, busy, untimed = 1, 0.0, 0
    if jax.default_backend() != "cpu":
        # Beside the first step's program: the host has nothing else to do.
        monitor: Any = monitor_scores
        arguments = (snapshot.state, static, tasks, config)
        threading.Thread(target=lambda: monitor.lower(*arguments).compile()).start()
    while step < config.steps:
        stop = _next_stop(step, chunk, config, periods=_has_periods(snapshot.state, config))
        before = time.perf_counter()
        state = snapshot.state
        for part, begin, end in feed.parts(step, stop):
            state = take_steps(state, static, part, begin, end, config)
        jax.block_until_ready(state)
        snapshot = snapshot._replace(step=jnp.asarray(stop), state=state)
        elapsed = time.perf_counter() - before
        # The first look stands alone: it also compiles, which says nothing of the time left.
        is_first = step == first
        chunk = 8 if is_first else int(np.clip(_CHUNK_SECONDS * (stop - step) / elapsed, 1, 4 * chunk))
        if is_first:
            untimed = stop - first
            if _has_periods(state, config):
                # What runs once settling begins is compiled while the first periods train.
                none = (snapshot.state, static, tasks, jnp.asarray(0), jnp.asarray(0), config)
                threading.Thread(target=advance, args=none).start()
        step, record = stop, None
        if step % config.look_every == 0 or step == config.steps:
            record = _record(state, static, tasks, config, step, step - recorded)
            recorded = step
            zero = jnp.zeros_like(state.train_loss)
            snapshot = _keep_best(
                snapshot._replace(
                    state=eqx.tree_at(lambda s: (s.train_loss, s.reg_loss), state, (zero, zero)),
                ),
                jnp.asarray(record.reg_nll),
            )
        if not is_first:
            busy += time.perf_counter() - before
        timed = step - first - untimed
        seconds_left = busy / timed * (config.steps - step) if timed > 0 else math.nan
        yield Progress(step, seconds_left, record, static, snapshot)


def _record(state, static, tasks, config, step: int, steps_since: int) -> Record:
    """The history line of this step."""
    nll, ece, std_mu = monitor_scores(state, static, tasks, config)
    diverged_at = np.asarray(state.diverged_at)
    reg_updates = 0
    if state.rho.vector.size:
        reg_updates = config.reg_updates_until(step) - config.reg_updates_until(step - steps_since)

    def mean_loss(total, updates):
        mean = np.asarray(total) / updates if updates else np.nan
        return np.where(diverged_at < 0, mean, np.nan)

    model = merge(Routed(state.theta_psi.tree(), state.rho.tree(), static))
    return Record(
        step,
        mean_loss(state.train_loss, steps_since),
        mean_loss(state.reg_loss, reg_updates),
        np.asarray(nll),
        np.asarray(ece),
        np.asarray(std_mu),
        {name: np.asarray(value) for name, value in site_sigmas(model).items()},
        diverged_at,
    )
