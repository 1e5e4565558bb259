"""Several processes, on one host or on many, that train one model together (`jax.distributed`).

Each runs the same command. Process 0 alone writes and speaks; all begin together or not at all, and stop together at
the same step. With one process, all of this is nothing.
"""

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from crossreg.errors import InputError
from crossreg.stopping import Stopped, asked_to_stop

Tree = TypeVar("Tree")


def join_hosts(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Makes this process one of several; what is None a cluster's environment says, as Slurm's does."""
    given = {"--coordinator": coordinator, "--num-processes": num_processes, "--process-id": process_id}
    missing = [flag for flag, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        raise InputError(f"{' and '.join(missing)}: needed as well as the others of {', '.join(given)}")
    if num_processes is not None and process_id is not None and not 0 <= process_id < num_processes:
        raise InputError(f"--process-id {process_id}: must lie in 0 … {num_processes - 1}, of --num-processes")
    # Its own handler of signals would take the place of ours, which stops all processes.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id)
    except (ValueError, RuntimeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"--distributed: the other processes are not found ({first})") from error


def leave_hosts() -> None:
    """Waits until all have come so far, and is one process again."""
    jax.distributed.shutdown()


def is_writer() -> bool:
    """Whether this is the process that writes and speaks."""
    return jax.process_index() == 0


def from_writer(value: int) -> int:
    """The number that process 0 has."""
    return value if jax.process_count() == 1 else int(multihost_utils.broadcast_one_to_all(np.asarray(value)))


def tree_from_writer(tree: Tree) -> Tree:
    """The arrays that process 0 has."""
    return tree if jax.process_count() == 1 else multihost_utils.broadcast_one_to_all(tree)


def _most(value: int) -> int:
    """The largest number that a process has."""
    return value if jax.process_count() == 1 else int(multihost_utils.process_allgather(np.asarray(value)).max())


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """A block that all processes end, or none: what goes wrong in one is said there, and ends the others too."""
    try:
        yield
    except BaseException:
        _most(1)
        raise
    if _most(0):
        raise InputError("another process of this training could not go on; it says why")


def stop_together() -> None:
    """Raises `Stopped` in all processes if one was asked to stop."""
    if jax.process_count() > 1 and (number := _most(asked_to_stop())):
        raise Stopped(number)
