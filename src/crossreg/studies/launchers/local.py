"""Workers as processes of this machine, each with its share of the cores and, where there are GPUs, one of its own."""

import contextlib
import os
import re
import subprocess
import sys
import time
from multiprocessing.connection import Pipe, wait
from pathlib import Path

from crossreg.errors import InputError
from crossreg.files.regular import open_descriptor
from crossreg.machine.processor import num_cores
from crossreg.runs.file_names import JOBS
from crossreg.studies.launchers.base import SECONDS_TO_END, Job, Launcher, Outcome, end_of_file, last_lines
from crossreg.studies.launchers.settings import Workers

# JAX reserves this share of a GPU when it starts; workers that share a GPU divide it.
_SHARE_OF_A_GPU = 0.75
_ASK_MEMORY = (
    "import jax; from crossreg.training.cohort import memory_bytes; print(jax.default_backend(), memory_bytes())"
)


class _Worker:
    """A worker process with its connection, its log, and its current job."""

    def __init__(self, environment: dict[str, str], log: Path):
        self.connection, theirs = Pipe()
        self.log = log
        self.job: Job | None = None
        with os.fdopen(open_descriptor(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK), "ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "crossreg.studies.launchers.process", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in a terminal is for the driver alone
            )
        theirs.close()

    def outcome(self) -> Outcome:
        """Return the outcome of its job; an error if the process has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            died = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            return Outcome(error=f"its worker {died}", lines=last_lines(end_of_file(self.log)))


class LocalLauncher(Launcher):
    """Up to `workers` processes, started when they are needed, which take one job after another."""

    def __init__(self, workers: Workers, folder: Path):
        super().__init__()
        self._count = workers.workers or 1
        self._folder = folder
        self._environments = worker_environments(workers)
        self._workers: dict[int, _Worker] = {}

    def memory(self) -> int:
        environment = self._environments[0]
        if environment.get("CUDA_VISIBLE_DEVICES"):
            asked = subprocess.run(
                [sys.executable, "-c", _ASK_MEMORY], env=environment, check=False, capture_output=True, text=True
            )
            if asked.returncode != 0:
                reason = last_lines(asked.stderr).rpartition("\n")[2]
                raise InputError(
                    f"workers is {self._count}: a worker cannot start ({reason}); with `worker_gpus=0`, workers need no"
                    " GPU"
                )
            backend, there = asked.stdout.split()[-2:]
            if backend != "cpu":  # there are GPUs, and JAX can use them
                return int(there)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // self._count

    def room(self) -> int:
        return self._count

    def ended(self, seconds: float) -> list[tuple[Job, Outcome]]:
        ended = []
        ready = wait([worker.connection for worker in self._workers.values() if worker.job is not None], seconds)
        for number, worker in list(self._workers.items()):
            if worker.job is None or worker.connection not in ready:
                continue
            ended.append((worker.job, worker.outcome()))
            worker.job = None
            if worker.process.poll() is not None:
                del self._workers[number]
                worker.connection.close()
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
                with contextlib.suppress(OSError):  # the process has died; its outcome will say so
                    worker.connection.send(worker.job)

    def cancel(self) -> None:
        self._cancelled = True
        self._queue.clear()
        left = [worker.process for worker in self._workers.values() if worker.process.poll() is None]
        for process in left:
            process.terminate()
        until = time.monotonic() + SECONDS_TO_END
        for process in left:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def worker_environments(workers: Workers) -> list[dict[str, str]]:
    """Return the environment of each worker, which sets the GPUs it sees and the number of cores it uses.

    The last digits of results on a CPU depend on the number of cores (`runs/safeguards/versions.py`), so an NPROC that
    is set already is kept.
    """
    count, gpus = workers.workers or 1, _gpus() if workers.worker_gpus != 0 else []
    cores = workers.worker_cpus or max(1, num_cores() // count)
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


def _gpus() -> list[str]:
    """Return the GPUs that CUDA would show to this process, without starting CUDA: the driver uses none of them."""
    if os.environ.get("JAX_PLATFORMS", "").lower() == "cpu":
        return []
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip() and gpu.strip() != "-1"]
    try:
        found = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]
    except OSError:
        return []
    return [str(number) for number in range(len(found))]
