"""Several processes, on one host or on many, that train one model together (`jax.distributed`).

Each runs the same command. Process 0 alone writes and speaks; all begin together or not at all, and stop together at
the same step. With one process, all of this is nothing.
"""

import collections
import contextlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from crossreg.errors import InputError
from crossreg.stopping import Stopped, asked_to_stop, end_at_once

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
    check_even([device.process_index for device in jax.devices()])


def check_even(owners: Sequence[int]) -> None:
    """Refuses, in all processes alike, devices of which some process has more than others: parts are equal."""
    counts = sorted(set(collections.Counter(owners).values()))
    if len(counts) > 1:
        leave_hosts()
        raise InputError(f"--distributed: a process has {counts[-1]} devices, another {counts[0]}; all need as many")


@contextlib.contextmanager
def in_company() -> Iterator[None]:
    """A block of one process among several, which all leave together.

    What goes wrong where the others cannot hear of it ends this process without them: they would wait for it in a sum
    over all, and it for them at the end. JAX ends them as soon as it is gone.
    """
    try:
        yield
    except BaseException:
        if jax.distributed.is_initialized() and jax.process_count() > 1:
            end_at_once()
        raise
    leave_hosts()


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
        leave_hosts()
        raise
    if _most(0):
        leave_hosts()
        raise InputError("another process of this training could not go on; it says why")


def check_alike(identity: str) -> None:
    """Refuses settings or data that are not process 0's, said by a hash: sums over processes would mix models."""
    number = int(identity[:7], 16)
    with all_or_none():
        if from_writer(number) != number:
            raise InputError("--distributed: this process was told other settings than process 0, or has other data")


def stop_together() -> None:
    """Raises `Stopped` in all processes if one was asked to stop."""
    if jax.process_count() > 1 and (number := _most(asked_to_stop())):
        leave_hosts()
        raise Stopped(number)
