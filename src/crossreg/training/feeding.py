"""The data of the training loop, ready on the device: all at once or, for data in files, block by block.

A block is a number of steps. The pairs that they draw follow from the tasks' key and the steps alone, so that a thread
can read the next block while this one trains, and no number depends on where blocks begin. Where devices share batches,
each process reads only what its own devices need.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

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
        batch_bytes = config.batch_size * max(pairs.pair_bytes for pairs in streamed)
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
        is_due = self._learns_on_reg & is_due
        splits = (
            self._held(tasks.train, self._placed.train, TRAIN_STREAM, steps),
            self._held(tasks.reg, self._placed.reg, REG_STREAM, steps[is_due]),
        )
        return eqx.tree_at(lambda t: (t.train, t.reg), self._placed, splits)

    def _held(
        self, pairs: AbstractPairs, placed: AbstractPairs, stream: int, due: Int[np.ndarray, " step"]
    ) -> AbstractPairs:
        """Return a split with the pairs that these steps draw; each device has those of its part of a batch."""
        if not pairs.in_files:
            return placed
        size = self._config.batch_size
        drawn = np.zeros((0, size), int)
        if due.size:
            drawn = np.asarray(_drawn(self._tasks.key, pairs, jnp.asarray(stream), jnp.asarray(due), size))[0]
        if self._layout.mesh is None:
            return pairs.hold(drawn.ravel(), self._steps * size)
        parts = [pairs.hold(drawn[:, own].ravel(), self._steps * own.size) for own in self._layout.local_slots(size)]
        return placed.with_held_part(self._layout.from_parts([part.held_part for part in parts]))


@eqx.filter_jit
def _drawn(key, pairs: AbstractPairs, stream, steps, batch_size: int) -> Int[Array, "replica step batch"]:
    """Return the pairs that each step of each replica draws."""

    def of(key, pairs, step):
        batch_key, _ = keys_of(key, stream, step)
        return pairs.draw(batch_key, batch_size)[0]

    of_steps = jax.vmap(of, in_axes=(None, None, 0))
    return jax.vmap(of_steps, in_axes=(0, replica_axes(pairs), None))(key, pairs, steps)
