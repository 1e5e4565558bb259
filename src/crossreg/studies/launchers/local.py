"""Workers as processes of this machine, each with its share of the cores, and a GPU of its own where there are any."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from crossreg.errors import InputError
from crossreg.files.regular import open_descriptor
from crossreg.runs.sweep_folder import JOBS
from crossreg.studies.launchers.base import Job, Launcher, Outcome, end_of_file, last_lines, put_in
from crossreg.studies.launchers.settings import Workers

_SECONDS_TO_END = 4.0
# JAX takes this share of a GPU at its start; workers that have one together divide it.
_SHARE_OF_A_GPU = 0.75
_ASK_MEMORY = (
    "import jax; from crossreg.training.cohort import memory_bytes; print(jax.default_backend(), memory_bytes())"
)


class _Worker:
    """One process, its connection, its log and the job that it has."""

    def __init__(self, environment: dict[str, str], log: Path):
        self.connection, theirs = Pipe()
        self.log, self.job = log, None
        with os.fdopen(open_descriptor(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK), "ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "crossreg.studies.launchers.process", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in a terminal is the driver's business
            )
        theirs.close()

    job: Job | None
    connection: Connection

    def outcome(self) -> Outcome:
        """What it has to say of its job; that it died, where it did."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            died = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            return Outcome(error=f"its worker {died}", lines=last_lines(end_of_file(self.log)))


class LocalLauncher(Launcher):
    """Up to so many processes, which are started when there is something to do, and take job after job."""

    def __init__(self, workers: Workers, folder: Path):
        self._count = workers.workers or 1
        self._folder = folder
        self._environments = worker_environments(workers)
        self._workers: dict[int, _Worker] = {}
        self._queue: deque[Job] = deque()
        self._cancelled = False

    def memory(self) -> int:
        environment = self._environments[0]
        if environment.get("CUDA_VISIBLE_DEVICES"):
            asked = subprocess.run(
                [sys.executable, "-c", _ASK_MEMORY], env=environment, check=False, capture_output=True, text=True
            )
            if asked.returncode != 0:
                reason = last_lines(asked.stderr).rpartition("\n")[2]
                raise InputError(
                    f"--workers {self._count}: a worker cannot begin ({reason}); --worker-gpus 0 needs no GPU"
                )
            backend, there = asked.stdout.split()[-2:]
            if backend != "cpu":  # GPUs, and a JAX that can use them
                return int(there)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // self._count

    def room(self) -> int:
        return self._count

    def submit(self, jobs: Sequence[Job], *, first: bool = False) -> None:
        put_in(self._queue, jobs, first=first)

    def ended(self, seconds: float) -> list[tuple[Job, Outcome]]:
        self._hand_out()
        busy = {worker.connection: number for number, worker in self._workers.items() if worker.job is not None}
        ended = []
        for connection in wait(list(busy), seconds):
            number = busy[connection]  # pyright: ignore[reportArgumentType]
            worker = self._workers[number]
            outcome, job, worker.job = worker.outcome(), worker.job, None
            if worker.process.poll() is not None:
                del self._workers[number]
                worker.connection.close()
            ended.append((job, outcome))
        self._hand_out()
        return ended

    def _hand_out(self) -> None:
        for number in range(self._count):
            if not self._queue or self._cancelled:
                return
            worker = self._workers.get(number)
            if worker is None:
                log = self._folder / JOBS / f"worker-{number}.log"
                worker = self._workers[number] = _Worker(self._environments[number], log)
            if worker.job is None:
                worker.job = self._queue.popleft()
                with contextlib.suppress(OSError):  # it has died; its outcome says so
                    worker.connection.send(worker.job)

    def cancel(self) -> None:
        self._cancelled = True
        self._queue.clear()
        left = [worker.process for worker in self._workers.values() if worker.process.poll() is None]
        for process in left:
            process.terminate()
        until = time.monotonic() + _SECONDS_TO_END
        for process in left:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def worker_environments(workers: Workers) -> list[dict[str, str]]:
    """The environment of each worker: which GPU it sees, and how many cores it computes with.

    A CPU's last digits depend on the number of cores (`runs/versions.py`): NPROC, where it is set, is not changed.
    """
    count, gpus = workers.workers or 1, _gpus() if workers.worker_gpus != 0 else []
    cores = workers.worker_cpus or max(1, _cores() // count)
    environments = []
    for number in range(count):
        own = {"NPROC": os.environ.get("NPROC") or str(cores)}
        if gpus:
            each = workers.worker_gpus or 1
            first = number * each % len(gpus)
            own["CUDA_VISIBLE_DEVICES"] = ",".join((gpus * 2)[first : first + min(each, len(gpus))])
            sharing = -(-count * each // len(gpus))
            if sharing > 1 and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
                own["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_SHARE_OF_A_GPU / sharing:.3f}"
        elif workers.worker_gpus == 0:
            own["JAX_PLATFORMS"] = "cpu"
        environments.append({**os.environ, **own})
    return environments


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus() -> list[str]:
    """The GPUs that CUDA would show this process, without asking it: the driver takes none of them."""
    if os.environ.get("JAX_PLATFORMS", "").lower() == "cpu":
        return []
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip() and gpu.strip() != "-1"]
    try:
        found = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]
    except OSError:
        return []
    return [str(number) for number in range(len(found))]
