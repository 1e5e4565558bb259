"""Jobs and outcomes, which the driver of a sweep and its workers exchange, and the base class of launchers.

A job trains one whole program and scores its trials, or scores trials whose programs are stored already. A worker
never writes a file that another process writes: it keeps the snapshots and the growing history of its own program, and
leaves the trained arrays under `jobs/`. Only the driver takes them in, writes rows, and keeps the manifest
(`studies/sweep/distributed.py`). This module does not import JAX, so that a worker can first set its environment.

jobs/data.npz      the trajectories, so that a worker needs neither the cache nor APEBench
jobs/token         tells a worker that the folder it sees is the driver's
jobs/NAME.npz      trained by a worker, not yet taken in
jobs/NAME.lock     held by the worker that trains the program; its text names that worker
jobs/worker-N.log  output of a local worker
jobs/slurm/        submitit's files; the numbers of the Slurm jobs are in jobs/slurm-ids
"""

import contextlib
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossreg.designs.grids import Trial
from crossreg.files.regular import open_regular
from crossreg.files.whole import check_no_link, is_temporary
from crossreg.runs.file_names import JOBS
from crossreg.runs.safeguards.saving import Saving

DATA, TOKEN = f"{JOBS}/data.npz", f"{JOBS}/token"
SLURM, SLURM_IDS = "slurm", "slurm-ids"
SECONDS_TO_END = 4.0
# Names of files that a driver and its workers write there: a program has 20 digits, a file of submitit a job's number.
_OWN = re.compile(rf"data\.npz|token|{SLURM_IDS}|worker-\d+\.log|[0-9a-f]{{20}}\.(npz|lock)")
_SUBMITITS = re.compile(
    r"\d+(_\d+)*_(submission\.sh|submitted\.pkl|result\.pkl|log\.(out|err))(\.save_tmp)?"
    r"|[0-9a-f]{32}\.pkl|\.submission_file_[0-9a-f]{32}\.sh"
)
_LAST_LINES, _LONGEST_LINE = 8, 300


class Job(NamedTuple):
    """One piece of work for a worker.

    Attributes:
        name: The name of the program, or one made of the trials.
        label: Methods and number of replicas or rows, for messages.
        folder: The folder of the sweep.
        token: The content of `jobs/token` by which a worker recognizes that folder.
        digest: The digest of the data.
        source: The digest of the driver's code, which must be the worker's too.
        saving: When snapshots are written.
        environment: Variables to set before JAX starts.
        train: The name and the description (`runs.programs.describe_program`) of the program to train, or None.
        stored: Descriptions, by name, of programs that are trained already and that the trials need.
        trials: The trials to score, by the keys of their rows.
    """

    name: str
    label: str
    folder: str
    token: str
    digest: str
    source: str
    saving: Saving
    environment: dict[str, str]
    train: tuple[str, list[dict[str, Any]]] | None
    stored: dict[str, list[dict[str, Any]]]
    trials: dict[str, Trial]

    @property
    def files(self) -> list[str]:
        """The files of the folder that a worker reads."""
        return [DATA, *(f"trained/{name}.npz" for name in self.stored)]


class Outcome(NamedTuple):
    """The outcome of a job.

    Attributes:
        rows: The rows of its trials, by key.
        trained: The content of the trained file, if the worker did not see the folder.
        error: Why the job failed, or "".
        again: Whether another try may help.
        lines: The last lines of the worker's output.
    """

    rows: dict[str, dict[str, Any]] = {}  # noqa: RUF012
    trained: bytes | None = None
    error: str = ""
    again: bool = True
    lines: str = ""


def last_lines(text: str | bytes | None) -> str:
    """Return the last lines of a worker's output, without blank ones."""
    said = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    kept = [line.rstrip()[:_LONGEST_LINE] for line in said.splitlines() if line.strip()]
    return "\n".join(kept[-_LAST_LINES:])


def end_of_file(path: Path, size: int = 4096) -> bytes:
    """Return the last bytes of a file; none if it cannot be read."""
    try:
        with open_regular(path) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - size))
            return file.read()
    except OSError:
        return b""


def remove_jobs(folder: Path) -> None:
    """Remove the files of a driver and its workers under `jobs/`; a folder that holds files of others stays."""
    for place, own in ((folder / JOBS / SLURM, _SUBMITITS), (folder / JOBS, _OWN)):
        with contextlib.suppress(OSError):  # missing, a link, or not empty at the end
            check_no_link(place)
            for path in place.iterdir():
                if (own.fullmatch(path.name) and not path.is_dir()) or is_temporary(path):
                    path.unlink(missing_ok=True)
            place.rmdir()


class Launcher(ABC):
    """Runs jobs on workers. As a context manager, it cancels unfinished jobs at its end."""

    def __init__(self) -> None:
        self._queue: deque[Job] = deque()
        self._cancelled = False

    @abstractmethod
    def memory(self) -> int:
        """Return the bytes that a worker may fill."""

    @abstractmethod
    def room(self) -> int | None:
        """Return how many jobs run at a time, or None if that is not known."""

    def submit(self, jobs: Sequence[Job], *, first: bool = False) -> None:
        """Queue jobs, to be run in this order as soon as there is room; with `first`, before those that wait."""
        if first:
            self._queue.extendleft(reversed(jobs))
        else:
            self._queue.extend(jobs)
        self._hand_out()

    @abstractmethod
    def _hand_out(self) -> None:
        """Start queued jobs while there is room, unless cancelled."""

    @abstractmethod
    def ended(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Return the jobs that have ended since the last call, after waiting at most this long for the first.

        A job whose worker was lost has ended too; its outcome says so.
        """

    @abstractmethod
    def cancel(self) -> None:
        """End all jobs within 4 seconds. May be called twice, and from another thread."""

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.cancel()
