"""Workers as tasks of a Ray cluster: a running one, or one that is started on this machine and ends with the sweep.

Ray schedules tasks and reports lost workers and nodes; only the driver decides whether a job is tried again
(`max_retries=0`). The files that a worker needs are passed along as Ray objects, which it fetches only if it does not
see the sweep's folder.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import ray.exceptions

from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.machine.stopping import SIGNALS
from crossreg.studies.launchers.base import DATA, Job, Launcher, Outcome, last_lines
from crossreg.studies.launchers.settings import Workers

_SECONDS_TO_SAVE, _SECONDS_TO_DIE = 2.5, 0.5
_SECONDS_TO_ANSWER = 10.0


def _task(job: Job, files: dict[str, Any]) -> Outcome:
    """Do a job on a worker; the environment is set before JAX starts."""
    os.environ.update(job.environment)
    from crossreg.studies.launchers.work import work

    return work(job, lambda name: ray.get(files[name]))


def _memory() -> int:
    from crossreg.training.cohort import memory_bytes

    return memory_bytes()


class RayLauncher(Launcher):
    """Tasks with `worker_cpus` cores and `worker_gpus` GPUs each, at most `workers` at a time."""

    def __init__(self, workers: Workers, folder: Path):
        super().__init__()
        self._folder, self._most = folder, workers.workers
        _check_answers(workers.ray_address or os.environ.get("RAY_ADDRESS", ""))
        self._started_here = not ray.is_initialized()
        if self._started_here:
            _connect(workers.ray_address)
        there = ray.cluster_resources()
        self._cpus = workers.worker_cpus or 1
        self._gpus = int(there.get("GPU", 0) >= 1) if workers.worker_gpus is None else workers.worker_gpus
        self._check_room()
        self._needs = {"num_cpus": self._cpus, "num_gpus": self._gpus, "max_retries": 0}
        self._running: dict[ray.ObjectRef, Job] = {}
        self._data: ray.ObjectRef | None = None
        self._lock = threading.Lock()

    def _check_room(self) -> None:
        for name, field, each in (("CPU", "worker_cpus", self._cpus), ("GPU", "worker_gpus", self._gpus)):
            most = max((node["Resources"].get(name, 0) for node in ray.nodes() if node["Alive"]), default=0)
            if each > most:
                self._disconnect()
                raise InputError(f"{field} is {each}: no node of the Ray cluster has so many; the most is {most:g}")

    def memory(self) -> int:
        if self._gpus:
            return ray.get(ray.remote(_memory).options(**self._needs).remote())
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        return int(min(node["memory"] * min(1.0, self._cpus / node["CPU"]) for node in nodes))

    def room(self) -> int:
        there = ray.cluster_resources()
        each = [(there.get("CPU", 0), self._cpus), (there.get("GPU", 0), self._gpus)]
        fits = max(1, int(min(total // need for total, need in each if need)))
        return min(fits, self._most or fits)

    def _hand_out(self) -> None:
        run = ray.remote(_task).options(**self._needs)
        while self._queue and not self._cancelled and (self._most is None or len(self._running) < self._most):
            job = self._queue.popleft()
            # Last digits on a CPU depend on the number of cores: as many as Ray assigns, unless NPROC is set.
            told = job._replace(environment={"NPROC": str(self._cpus)} | job.environment)
            self._running[run.remote(told, self._files(job))] = job

    def _files(self, job: Job) -> dict[str, Any]:
        """Return references to the files that a job reads; those to trained files live as long as the job."""
        if self._data is None:
            self._data = ray.put(read_regular(self._folder / DATA))
        others = {name: ray.put(read_regular(self._folder / name)) for name in job.files if name != DATA}
        return {DATA: self._data} | others

    def ended(self, seconds: float) -> list[tuple[Job, Outcome]]:
        if not self._running:
            return []
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=seconds)
        more, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        ended = [(self._running.pop(ref), _outcome(ref)) for ref in dict.fromkeys([*ready, *more])]
        self._hand_out()
        return ended

    def cancel(self) -> None:
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            self._queue.clear()
            left = list(self._running)
            for force, seconds in (
                (False, _SECONDS_TO_SAVE),
                (True, _SECONDS_TO_DIE),
            ):  # first as Ctrl-C
                for ref in left:
                    with contextlib.suppress(ray.exceptions.RayError, ValueError):
                        ray.cancel(ref, force=force)
                if left:
                    _, left = ray.wait(left, num_returns=len(left), timeout=seconds)
            self._disconnect()

    def _disconnect(self) -> None:
        if self._started_here:
            ray.shutdown()


def _outcome(ref: Any) -> Outcome:
    try:
        return ray.get(ref)
    except ray.exceptions.RayError as error:
        return Outcome(error=f"its worker was lost ({type(error).__name__})", lines=last_lines(str(error)))


def _connect(address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        with _own_signals(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="os.fork")  # the forked children only start other programs
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"ray_address is {address or 'auto'}: no Ray cluster there ({reason})") from error


def _check_answers(address: str) -> None:
    """Raise InputError at once if nothing listens at an address; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isascii() and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER).close()
        except (OSError, OverflowError) as error:
            raise InputError(f"ray_address is {address}: no Ray cluster there ({error})") from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the signal handlers that Ray replaces, so that a stop saves snapshots and cancels jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
