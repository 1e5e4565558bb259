"""Several processes, on one host or on many, that train one model together (`jax.distributed`).

Each runs the same command. Process 0 alone writes files and messages. All begin together or not at all, and stop at the
same step. With one process, every function here does nothing or returns its argument.
"""

import collections
import contextlib
import os
import socket
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from crossreg.errors import InputError
from crossreg.machine.stopping import Stopped, asked_to_stop, end_at_once

Tree = TypeVar("Tree")

_SECONDS_TO_JOIN, _SECONDS_OF_SILENCE = 300.0, 10.0


def join_hosts(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Make this process one of several.

    Args:
        coordinator: The address of process 0, as HOST:PORT; None where the environment of a cluster says it, as Slurm's
            does. The others are then None too.
        num_processes: The number of processes.
        process_id: The number of this process.

    Raises:
        InputError: If the arguments do not fit together, or if the others are not found.
    """
    given = {"`coordinator`": coordinator, "`num_processes`": num_processes, "`process_id`": process_id}
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        raise InputError(f"{' and '.join(missing)}: missing; {', '.join(given)} are given together or not at all")
    if num_processes is not None and num_processes < 1:
        raise InputError(f"num_processes is {num_processes}: must be 1 or more")
    if num_processes is not None and process_id is not None and not 0 <= process_id < num_processes:
        raise InputError(f"process_id is {process_id}: must lie in 0 … {num_processes - 1}, of `num_processes`")
    where = "`distributed`"
    if coordinator is not None:
        where = f"coordinator is {coordinator}"
        _check_address(where, coordinator, listens=process_id == 0)
    # JAX's own handler of signals would replace ours, which stops all processes.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        with _waited_for(where):
            jax.distributed.initialize(
                coordinator, num_processes, process_id, initialization_timeout=2 * int(_SECONDS_TO_JOIN)
            )
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        if coordinator is None and "should be defined" in reason:
            reason = (
                "no Slurm job or other cluster that JAX knows; elsewhere `coordinator=HOST:PORT` says where they are"
            )
        raise InputError(f"{where}: the other processes cannot be reached ({reason})") from error
    check_even([device.process_index for device in jax.devices()])


def check_even(owners: Sequence[int]) -> None:
    """Raise InputError in all processes unless each has as many devices, since the parts of a batch are equal."""
    counts = sorted(set(collections.Counter(owners).values()))
    if len(counts) > 1:
        leave_hosts()
        raise InputError(
            f"`distributed`: a process has {counts[-1]} devices, another {counts[0]}; all need the same number"
        )


@contextlib.contextmanager
def in_company() -> Iterator[None]:
    """A block of one process among several, which all leave together.

    An error that the others cannot hear of ends this process at once. Otherwise they would wait for it in a sum over
    all, and it would wait for them at the end. JAX ends them as soon as this process is gone.
    """
    try:
        yield
    except BaseException:
        if jax.distributed.is_initialized() and jax.process_count() > 1:
            end_at_once()
        raise
    leave_hosts()


def _check_address(where: str, coordinator: str, *, listens: bool) -> None:
    """Raise InputError at once for an address at which JAX would wait until it aborts."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise InputError(f"{where}: expected HOST:PORT, with a port in 1 … 65535")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        raise InputError(f"{where}: no such host ({error.strerror})") from error
    if listens:
        try:
            socket.create_server(("", int(port))).close()
        except OSError as error:
            raise InputError(f"{where}: process 0 cannot listen at this port ({error.strerror})") from error


@contextlib.contextmanager
def _waited_for(where: str) -> Iterator[None]:
    """A block in which JAX waits for the others: a message says so after a while, and in the end the process exits.

    JAX itself would abort with a stack of its own functions, and its call cannot be left otherwise.
    """

    def say() -> None:
        print(f"crossreg: {where}: waiting for the other processes …", file=sys.stderr, flush=True)

    def give_up() -> None:
        late = f"not all processes are there after {_SECONDS_TO_JOIN:g} s; each needs the same command"
        print(f"crossreg: {where}: {late}", file=sys.stderr, flush=True)
        os._exit(2)

    timers = [threading.Timer(_SECONDS_OF_SILENCE, say), threading.Timer(_SECONDS_TO_JOIN, give_up)]
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def leave_hosts() -> None:
    """Wait until all processes call this, and be one process again."""
    jax.distributed.shutdown()


def is_writer() -> bool:
    """Return whether this is the process that writes files and messages."""
    return jax.process_index() == 0


def from_writer(value: int) -> int:
    """Return the number that process 0 has."""
    return value if jax.process_count() == 1 else int(multihost_utils.broadcast_one_to_all(np.asarray(value)))


def tree_from_writer(tree: Tree) -> Tree:
    """Return the arrays that process 0 has."""
    return tree if jax.process_count() == 1 else multihost_utils.broadcast_one_to_all(tree)


def _most(value: int) -> int:
    """Return the largest number that a process has."""
    return value if jax.process_count() == 1 else int(multihost_utils.process_allgather(np.asarray(value)).max())


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """A block that all processes complete, or none: an error in one is raised there, and ends the others too."""
    try:
        yield
    except BaseException:
        _most(1)
        leave_hosts()
        raise
    if _most(0):
        leave_hosts()
        raise InputError("another process of this training has failed; its own message says why")


def check_alike(what: Mapping[str, str]) -> None:
    """Raise InputError in all processes if one of them differs from process 0.

    They would train different models as one, or wait for each other forever. All must call this with the same names.

    Args:
        what: Values by what messages call them.
    """
    if jax.process_count() == 1:
        return
    own = np.array([zlib.crc32(value.encode()) for value in what.values()], np.uint32)
    found = multihost_utils.process_allgather(own)
    other = [name for name, differs in zip(what, (found != found[0]).any(axis=0), strict=True) if differs]
    if other:
        leave_hosts()
        raise InputError(f"not all processes have the same {', '.join(other)}; each needs the same command and data")


def stop_together() -> None:
    """Raise `Stopped` in all processes if one was asked to stop."""
    if jax.process_count() > 1 and (number := _most(asked_to_stop())):
        leave_hosts()
        raise Stopped(number)
