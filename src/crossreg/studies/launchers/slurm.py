"""Workers as Slurm jobs, by submitit: job arrays for all programs, in a folder that the nodes share.

A job that is stopped early (out of time, or preempted) saves its training, is queued again by submitit, by Slurm or by
the driver, and resumes from its snapshot. Only a job that Slurm gives up is lost; the driver then tries it once more.
"""

import contextlib
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError
from submitit.helpers import DelayedSubmission
from submitit.slurm.slurm import SlurmExecutor

from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.files.whole import make_folder, replacing
from crossreg.machine.stopping import code_of, save_now, stops_in_time
from crossreg.runs.file_names import JOBS
from crossreg.studies.launchers.base import SECONDS_TO_END, SLURM, SLURM_IDS, Job, Launcher, Outcome, last_lines
from crossreg.studies.launchers.settings import Workers

# How often a job may run out of time and be queued again.
_MOST_TIMES = 1000
# A shared file system may show a result late, and looking for those of a thousand jobs takes a while.
_SECONDS_TO_SHOW, _SECONDS_BETWEEN_LOOKS = 15.0, 5.0
# Slurm's default limit is 1001 (MaxArraySize).
_MOST_IN_AN_ARRAY = 1000
_GENERIC = ("nodes", "mem_gb", "tasks_per_node", "cpus_per_task", "gpus_per_node")


class _Task:
    """Does a job inside a Slurm job; the environment is set before JAX starts."""

    def __call__(self, job: Job) -> Outcome:
        os.environ.update(job.environment)
        try:
            with stops_in_time("crossreg: worker stopped"):  # scancel sends SIGTERM
                from crossreg.studies.launchers.work import work

                return work(job)
        except KeyboardInterrupt as stop:
            os._exit(code_of(stop))

    def checkpoint(self, job: Job) -> DelayedSubmission:
        """Save, and queue the same job again; submitit calls this when the time of the Slurm job is nearly over."""
        save_now()
        return DelayedSubmission(self, job)


class SlurmLauncher(Launcher):
    """Job arrays; with the option `cluster=local`, the same jobs run as processes of this machine."""

    def __init__(self, workers: Workers, folder: Path):
        super().__init__()
        self._here = workers.options().get("cluster", "slurm") != "slurm"
        self._workers, self._folder = workers, folder.resolve()
        with tempfile.TemporaryDirectory() as place:  # raises for wrong options before the sweep's folder is touched
            make_executor(workers, Path(place))
        self._executor: submitit.AutoExecutor | None = None
        self._running: dict[str, tuple[Job, submitit.Job[Outcome]]] = {}
        self._silent: dict[str, tuple[str, float]] = {}  # state of jobs without a result, and since when
        self._looked = -math.inf

    def memory(self) -> int:
        assert self._workers.memory is not None  # `Workers.checked`
        return self._workers.memory

    def room(self) -> int | None:
        return self._workers.workers

    def submit(self, jobs: Sequence[Job], *, first: bool = False) -> None:
        if self._workers.worker_cpus:
            cores = {"NPROC": str(self._workers.worker_cpus)}
            jobs = [job._replace(environment=cores | job.environment) for job in jobs]
        super().submit(jobs, first=first)

    def _hand_out(self) -> None:
        """Submit all queued jobs at once: Slurm limits how many run. With `cluster=local`, only as many as may run."""
        room = (self._workers.workers or os.cpu_count() or 1) - len(self._running) if self._here else len(self._queue)
        taken = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
        if not taken or self._cancelled:
            return
        if self._executor is None:  # from here on, the folder belongs to this driver
            make_folder(self._folder / JOBS / SLURM)
            self._executor = make_executor(self._workers, self._folder / JOBS / SLURM)
            self._cancel_left()
        arrays = -(-len(taken) // _MOST_IN_AN_ARRAY)
        for number in range(arrays):  # each array has jobs of all lengths and its share of the workers
            part, workers = taken[number::arrays], self._workers.workers
            if workers is not None:
                self._executor.update_parameters(slurm_array_parallelism=max(1, (workers + number) // arrays))
            try:
                submitted = self._executor.map_array(_Task(), part)
            except (FailedJobError, OSError) as error:
                raise InputError(f"launcher is slurm: sbatch refuses the jobs ({last_lines(str(error))})") from error
            for job, given in zip(part, submitted, strict=True):
                self._running[given.job_id] = (job, given)
            with replacing(self._folder / JOBS / SLURM_IDS) as file:
                file.write("\n".join(self._arrays()).encode())

    def _arrays(self) -> list[str]:
        return sorted({number.partition("_")[0] for number in self._running})

    def ended(self, seconds: float) -> list[tuple[Job, Outcome]]:
        until = time.monotonic() + seconds
        between = 0.2 if self._here else _SECONDS_BETWEEN_LOOKS
        while True:
            ended = []
            if time.monotonic() - self._looked >= between:
                self._looked = time.monotonic()
                for number, (job, given) in list(self._running.items()):
                    if self._is_preempted(number, given):
                        del self._running[number]
                        self._queue.append(job)  # not the job's fault, so it does not count as a try
                    elif (outcome := self._outcome(number, given)) is not None:
                        del self._running[number]
                        ended.append((job, outcome))
            if ended or (left := until - time.monotonic()) <= 0:
                self._hand_out()
                return ended
            time.sleep(min(left, between))

    def _outcome(self, number: str, given: "submitit.Job[Outcome]") -> Outcome | None:
        """Return how a job ended, or None while it is queued or runs."""
        if not given.done():
            return None
        if not given.paths.result_pickle.exists():
            if not self._here and not self._is_still(number, given.state):
                return None
            said = last_lines(given.stderr() or given.stdout())
            return Outcome(error=f"its worker was lost (job {number}, {given.state})", lines=said)
        try:
            return given.result()
        except Exception as error:  # anything that was raised outside of `work`
            return Outcome(error=f"its worker failed (job {number})", lines=last_lines(str(error)))

    def _is_preempted(self, number: str, given: "submitit.Job[Outcome]") -> bool:
        """Return whether a job was preempted for good: Slurm does not queue it again, but submitit waits for that."""
        if self._here or given.state != "PREEMPTED" or given.paths.result_pickle.exists():
            return False
        if not self._is_still(number, given.state):
            return False
        _scancel([number])  # in case Slurm queues it later after all
        return True

    def _is_still(self, number: str, state: str) -> bool:
        """Return whether a job has been in a state long enough for its files to show, and for Slurm to update it."""
        before, since = self._silent.get(number, (None, 0.0))
        if before != state:
            self._silent[number] = (state, since := time.monotonic())
        return time.monotonic() - since >= _SECONDS_TO_SHOW

    def cancel(self) -> None:
        self._cancelled = True
        self._queue.clear()
        if not self._here:
            _scancel(self._arrays())
        else:
            for _, given in self._running.values():
                given.cancel(check=False)
            until = time.monotonic() + SECONDS_TO_END
            while not all(given.done() for _, given in self._running.values()) and time.monotonic() < until:
                time.sleep(0.05)
        self._running.clear()

    def _cancel_left(self) -> None:
        """Cancel jobs that a killed driver has left queued or running; the new jobs resume from their snapshots."""
        if not self._here and (ids := self._folder / JOBS / SLURM_IDS).exists():
            _scancel(read_regular(ids).decode().split())


def _scancel(arrays: Sequence[str]) -> None:
    """Cancel whole arrays, ended or not, by one call."""
    if arrays:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["scancel", *arrays], check=False, capture_output=True, timeout=SECONDS_TO_END)


def make_executor(workers: Workers, folder: Path) -> submitit.AutoExecutor:
    """Return submitit's executor for these settings; options unknown to it become lines of the sbatch script."""
    known, options = SlurmExecutor._valid_parameters(), workers.options()
    cluster = options.pop("cluster", "slurm")
    asked: dict[str, Any] = {
        "name": "crossreg",
        "timeout_min": workers.slurm_time,
        "cpus_per_task": workers.worker_cpus,
        "gpus_per_node": workers.worker_gpus,
        "slurm_partition": workers.slurm_partition,
        "slurm_array_parallelism": workers.workers,
    }
    if not workers.worker_gpus and workers.worker_memory is not None:
        asked["mem_gb"] = math.ceil(workers.worker_memory)
    others: dict[str, str] = {}
    for key, text in options.items():
        value: Any = int(text) if text.isdigit() else [text] if key in ("setup", "teardown") else text
        if key in _GENERIC:
            asked[key] = value
        elif key in known:
            asked[f"slurm_{key}"] = value
        else:
            others[key.replace("_", "-")] = text
    try:
        executor = submitit.AutoExecutor(folder, cluster=cluster, slurm_max_num_timeout=_MOST_TIMES)
        executor.update_parameters(**asked, slurm_additional_parameters=others or None)
    except RuntimeError as error:
        raise InputError(
            "launcher is slurm: there is no Slurm here (srun is missing);"
            " `slurm_options=cluster=local` runs the jobs on this machine"
        ) from error
    except (ValueError, NameError, AssertionError, TypeError) as error:
        raise InputError(f"slurm_options is {workers.slurm_options}: {str(error).splitlines()[0]}") from error
    return executor
