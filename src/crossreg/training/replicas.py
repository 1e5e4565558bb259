"""Replicas as stacked trees: models, tasks and the state of their training, with a leading replica axis.

A sweep trains many replicas in one program; a single run is a sweep of one.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from crossreg.data.dataset import Data
from crossreg.data.keys import MEMBER_STREAM
from crossreg.data.pairs import AbstractPairs, replica_axes, stack_pairs
from crossreg.nn.surrogate import Surrogate
from crossreg.routing import Routed, merge
from crossreg.training.parallel import ALONE, PART, Layout
from crossreg.training.step import Task, TrainState, init_state

# Data in files: so many bytes are kept in memory for scores along the way.
_MONITOR_BYTES = 2**23


_SCORES = ("train_loss", "reg_loss", "reg_nll", "reg_ece")


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
        """Return the line of one replica as plain numbers, with None for those that are not finite."""

        def number(values) -> float | None:
            value = float(values[replica])
            return value if math.isfinite(value) else None

        return {
            "step": self.step,
            **{name: number(getattr(self, name)) for name in (*_SCORES, "reg_std_mu")},
            "sigma": {name: np.ravel(sigma[replica]).tolist() for name, sigma in self.sigma.items()},
            "diverged_at": int(self.diverged_at[replica]),
        }

    def mean(self) -> dict[str, float | int | None]:
        """Return mean losses and scores of the replicas that have not diverged, and how many have."""
        going = self.diverged_at < 0

        def average(values) -> float | None:
            kept = np.asarray(values)[going]
            return float(kept.mean()) if kept.size and np.isfinite(kept).all() else None

        return {name: average(getattr(self, name)) for name in _SCORES} | {"diverged": int((~going).sum())}


class Snapshot(NamedTuple):
    """The whole state of a training: a loop that starts from it resumes as if it had never stopped.

    `best` are the parameters of each replica at the lowest NLL on its `held_out` data.
    """

    step: Int[Array, ""]
    state: TrainState
    best: PyTree
    best_nll: Float[Array, " replica"]


# The parts of a snapshot that have a replica axis.
SNAPSHOT_AXES: Any = Snapshot(None, 0, 0, 0)  # pyright: ignore[reportArgumentType]


class Progress(NamedTuple):
    """A report on a training after a chunk of steps; it has a `record` if scores were just computed.

    `snapshot` is divided among devices as `layout` says; `layout.collect` puts it together.
    """

    step: int
    seconds_left: float
    record: Record | None
    static: PyTree
    snapshot: Snapshot
    layout: Layout = ALONE

    @property
    def models(self) -> Surrogate:
        """The stacked models after this step."""
        state = self.layout.collect(self.snapshot.state)
        return merge(Routed(state.theta_psi.tree(), state.rho.tree(), self.static))


def stack(models: Sequence[PyTree]) -> PyTree:
    """Stack the parameters of models of equal structure along a leading replica axis.

    Arrays that are not trained (indices, flags) are shared without such an axis.

    Raises:
        ValueError: If they differ between the models.
    """
    fixed = [eqx.filter(model, eqx.is_inexact_array, inverse=True) for model in models]
    if not all(eqx.tree_equal(fixed[0], other) for other in fixed[1:]):
        raise ValueError("replicas must be equal in all that is not trained")
    return jax.tree.map(lambda *xs: jnp.stack(xs) if eqx.is_inexact_array(xs[0]) else xs[0], *models)


@eqx.filter_jit
def _take(models: PyTree, index: Int[Array, ""]) -> PyTree:
    return jax.tree.map(lambda x: x[index], models)


def unstack(models: PyTree, index: int) -> PyTree:
    """Return one replica of stacked models."""
    arrays, rest = eqx.partition(models, eqx.is_inexact_array)
    return eqx.combine(_take(arrays, jnp.asarray(index)), rest)


def make_task(data: Data, seed: int, member: int = 0) -> Task:
    """Return the task of one replica. Member 0 of an ensemble is the run of that seed without an ensemble."""
    key = jax.random.key(seed)
    if member:
        key = jax.random.fold_in(jax.random.fold_in(key, MEMBER_STREAM), member)
    return Task(key, data.train, data.reg, data.held_out.in_memory(_MONITOR_BYTES))


def stack_tasks(tasks: Sequence[Task]) -> Task:
    """Stack the tasks of several replicas."""
    return Task(
        jnp.stack([task.key for task in tasks]),
        stack_pairs([task.train for task in tasks]),
        stack_pairs([task.reg for task in tasks]),
        stack_pairs([task.held_out for task in tasks]),
    )


def task_axes(tasks: Task) -> PyTree:
    """Return the `in_axes` that vmap stacked tasks over replicas."""
    splits = (tasks.train, tasks.reg, tasks.held_out)
    axes = jax.tree.map(lambda _: 0, tasks)
    return eqx.tree_at(lambda t: (t.train, t.reg, t.held_out), axes, tuple(replica_axes(pairs) for pairs in splits))


def device_axes(tasks: Task) -> PyTree:
    """Return the axes of stacked tasks for devices that share batches: of data in files, each holds what it needs."""

    def of(pairs: AbstractPairs, axes: PyTree) -> PyTree:
        return axes if pairs.held_part is None else axes.with_held_part((PART, PART))

    axes = task_axes(tasks)
    held = (of(tasks.train, axes.train), of(tasks.reg, axes.reg))
    return eqx.tree_at(lambda t: (t.train, t.reg), axes, held)


@eqx.filter_jit
def first_snapshot(models: Surrogate, optimizer: optax.GradientTransformation | None = None) -> Snapshot:
    """Return the snapshot of stacked models before the first step; `optimizer` is that of `Overrides`."""
    state = jax.vmap(lambda model: init_state(model, optimizer))(eqx.filter(models, eqx.is_inexact_array))
    return Snapshot(
        jnp.asarray(0), state, (state.theta_psi, state.rho), jnp.full(state.train_loss.shape, jnp.inf, jnp.float32)
    )
