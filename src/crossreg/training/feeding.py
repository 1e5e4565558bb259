"""The data of the training loop, ready on the device: all at once or, for data in files, block by block.

A block is a number of steps. The pairs that they draw follow from the tasks' key and the steps alone, so that a thread
can read the next block while this one trains, and no number depends on where blocks begin. Where devices share batches,
each process reads only what its own devices need.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from crossreg.config import TrainConfig
from crossreg.data.keys import REG_STREAM, TRAIN_STREAM
from crossreg.data.pairs import AbstractPairs, replica_axes
from crossreg.training.parallel import Layout
from crossreg.training.step import Task, keys_of

# Bytes of the pairs of a block, for each split; two blocks are in memory at a time.
_BLOCK_BYTES = 2**26
_MOST_STEPS = 500


class Feed:
    """The tasks of a training, for any steps of it."""

    def __init__(self, tasks: Task, placed: Task, config: TrainConfig, layout: Layout, *, learns_on_reg: bool):
        """Take tasks, and the same tasks `placed` on the devices of the layout."""
        self._tasks, self._placed, self._layout = tasks, placed, layout
        self._config, self._learns_on_reg = config, learns_on_reg
        streamed = [pairs for pairs in (tasks.train, tasks.reg) if pairs.in_files]
        self._streams = bool(streamed)
        if not streamed:
            return
        if tasks.key.shape[0] != 1:
            raise ValueError("with data that stay in their files, only one run can be trained at a time")
        longest = max(config.reg_horizon, config.train_rollout_steps)
        pairs_per_step = max(config.batch_size, config.reg_pairs, config.rollout_batch_size * longest)
        batch_bytes = pairs_per_step * max(pairs.pair_bytes for pairs in streamed)
        self._steps = int(np.clip(_BLOCK_BYTES // batch_bytes, 1, _MOST_STEPS))
        self._pool = ThreadPoolExecutor(1)
        self._blocks: dict[int, Future[Task]] = {}

    def parts(self, start: int, stop: int) -> Iterator[tuple[Task, int, int]]:
        """Yield the tasks for steps start+1 … stop in as many parts as needed, each with its own start and stop."""
        if not self._streams:
            yield self._placed, start, stop
            return
        while start < stop:
            end = min((start // self._steps + 1) * self._steps, stop)
            yield self._block(start // self._steps), start, end
            start = end

    def close(self) -> None:
        """Stop reading ahead."""
        if self._streams:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _block(self, number: int) -> Task:
        """Return the tasks of a block, and start to read the next one."""
        last = (self._config.steps - 1) // self._steps
        self._blocks = {n: b for n, b in self._blocks.items() if n in (number, number + 1)}
        for wanted in (number, min(number + 1, last)):
            if wanted not in self._blocks:
                self._blocks[wanted] = self._pool.submit(self._read, wanted)
        return self._blocks[number].result()

    def _read(self, number: int) -> Task:
        config, tasks = self._config, self._tasks
        steps = np.arange(number * self._steps, min((number + 1) * self._steps, config.steps)) + 1
        settling = steps - config.settled_after
        is_due = np.where(settling > 0, settling % config.k_settled == 0, steps % config.k_reg == 0)
        due = steps[is_due & self._learns_on_reg]
        on_train = _draws(steps, config, config.batch_size, config.train_rollout_steps)
        on_reg = _draws(due, config, config.reg_pairs, config.reg_horizon)
        splits = (
            self._held(tasks.train, self._placed.train, TRAIN_STREAM, *on_train),
            self._held(tasks.reg, self._placed.reg, REG_STREAM, *on_reg),
        )
        return eqx.tree_at(lambda t: (t.train, t.reg), self._placed, splits)

    def _held(self, pairs: AbstractPairs, placed: AbstractPairs, stream: int, *draws: "_Draws") -> AbstractPairs:
        """Return a split with the pairs that these steps draw; each device has those of its part of a batch."""
        if not pairs.in_files:
            return placed
        drawn = [_drawn(self._tasks.key, pairs, stream, of) for of in draws]

        def held(places: list[Any]) -> AbstractPairs:
            numbers = [of_step[:, place].ravel() for of_step, place in zip(drawn, places, strict=True)]
            # Room for any block, so that one program serves all.
            room = max(self._steps * len(place) * of.horizon for of, place in zip(draws, places, strict=True))
            return pairs.hold(np.concatenate(numbers), room)

        if self._layout.mesh is None:
            return held([np.arange(of.size) for of in draws])
        parts = [
            held(list(places)) for places in zip(*(self._layout.local_slots(of.size) for of in draws), strict=True)
        ]
        return placed.with_held_part(self._layout.from_parts([part.held_part for part in parts]))


def _draws(steps: Int[np.ndarray, " step"], config: TrainConfig, size: int, horizon: int) -> "tuple[_Draws, _Draws]":
    """Return what steps draw: `size` single pairs and, of those that settle, windows of `horizon` pairs."""
    rolls = (steps > config.settled_after) & (horizon > 1)
    single, rolled = steps[~rolls], steps[rolls]
    return _Draws(single, size), _Draws(rolled, config.rollout_batch_size, horizon)


class _Draws(NamedTuple):
    """Steps that draw batches of one size, of single pairs or of windows of `horizon` pairs."""

    steps: Int[np.ndarray, " step"]
    size: int
    horizon: int = 1


def _drawn(key, pairs: AbstractPairs, stream: int, of: _Draws) -> Int[np.ndarray, "step batch horizon"]:
    """Return the pairs that each of these steps draws."""
    if not of.steps.size:
        return np.zeros((0, of.size, of.horizon), int)
    first = np.asarray(_first_drawn(key, pairs, jnp.asarray(stream), jnp.asarray(of.steps), of.size, of.horizon))[0]
    return first[..., None] + np.arange(of.horizon)


@eqx.filter_jit
def _first_drawn(
    key, pairs: AbstractPairs, stream, steps, batch_size: int, horizon: int
) -> Int[Array, "replica step batch"]:
    """Return the first pair of each window that each step of each replica draws."""

    def of(key, pairs, step):
        batch_key, _ = keys_of(key, stream, step)
        return pairs.draw(batch_key, batch_size, horizon)[0]

    of_steps = jax.vmap(of, in_axes=(None, None, 0))
    return jax.vmap(of_steps, in_axes=(0, replica_axes(pairs), None))(key, pairs, steps)
