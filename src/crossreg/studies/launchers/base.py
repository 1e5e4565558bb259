"""What goes to a worker and comes back, and what every engine that runs workers does.

A job is one program, trained whole and its trials scored; or trials whose programs are stored already. A worker never
writes what others write: it keeps snapshots and the growing history of its own program, and leaves the trained arrays
under `jobs/`. The driver alone takes them in, writes rows and keeps the manifest (`studies/sweep/distributed.py`).

jobs/data.npz      the trajectories, so that a worker needs neither the cache nor APEBench
jobs/token         tells a worker that the folder it sees is the driver's
jobs/NAME.npz      trained by a worker, not yet taken in
jobs/NAME.lock     held by the worker that trains it, which says in it who it is
jobs/worker-N.log  what a local worker has said
jobs/slurm/        what submitit keeps of jobs, whose numbers are in jobs/slurm-ids
"""

import contextlib
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossreg.config import Config
from crossreg.designs.grids import Trial
from crossreg.files.regular import open_regular
from crossreg.files.whole import check_no_link, is_temporary
from crossreg.methods.names import parse_method
from crossreg.runs.saving import Saving
from crossreg.runs.sweep_folder import JOBS

DATA, TOKEN = "jobs/data.npz", "jobs/token"
SLURM, SLURM_IDS = "slurm", "slurm-ids"
# What a driver and its workers put into these folders; programs have 20 digits, submitit's files numbers of jobs.
_OWN = re.compile(rf"data\.npz|token|{SLURM_IDS}|worker-\d+\.log|[0-9a-f]{{20}}\.(npz|lock)")
_SUBMITITS = re.compile(
    r"\d+(_\d+)*_(submission\.sh|submitted\.pkl|result\.pkl|log\.(out|err))(\.save_tmp)?"
    r"|[0-9a-f]{32}\.pkl|\.submission_file_[0-9a-f]{32}\.sh"
)
_LAST_LINES, _LONGEST_LINE = 8, 300


class Wired(NamedTuple):
    """A trial on its way to a worker: its method by name."""

    base: Config
    method: str
    changes: dict[str, Any]

    @staticmethod
    def of(trial: Trial) -> "Wired":
        return Wired(trial.base, trial.method.name, dict(trial.changes))

    def trial(self) -> Trial:
        return Trial(self.base, parse_method(self.method), self.changes)


class Job(NamedTuple):
    """One piece of work, as plain values: programs by their descriptions (`programs.describe`), trials by their keys.

    `train` is trained, or None; `stored` are programs whose arrays the trials need beside it. `digest` is that of the
    data, `source` that of the code, which must be the worker's too.
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
    trials: dict[str, Wired]

    @property
    def files(self) -> list[str]:
        """What a worker reads that does not see the folder."""
        return [DATA, *(f"trained/{name}.npz" for name in self.stored)]


class Outcome(NamedTuple):
    """How a job ended: rows by key and, where the worker did not see the folder, the trained file; or an error.

    `again`: another try may help. `lines` are the last that the worker has said.
    """

    rows: dict[str, dict[str, Any]] = {}  # noqa: RUF012
    trained: bytes | None = None
    error: str = ""
    again: bool = True
    lines: str = ""


def last_lines(text: str | bytes | None) -> str:
    """The end of what a worker has said."""
    said = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    kept = [line.rstrip()[:_LONGEST_LINE] for line in said.splitlines() if line.strip()]
    return "\n".join(kept[-_LAST_LINES:])


def end_of_file(path: Path, size: int = 4096) -> bytes:
    """The last bytes of a file; none where it cannot be read."""
    try:
        with open_regular(path) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - size))
            return file.read()
    except OSError:
        return b""


def remove_jobs(folder: Path) -> None:
    """Removes what a sweep's driver and its workers have put under `jobs/`; files of others stay, and with them it."""
    for place, own in ((folder / JOBS / SLURM, _SUBMITITS), (folder / JOBS, _OWN)):
        with contextlib.suppress(OSError):  # it is not there, is a link, or holds something else
            check_no_link(place)
            for path in place.iterdir():
                if (own.fullmatch(path.name) and not path.is_dir()) or is_temporary(path):
                    path.unlink(missing_ok=True)
            place.rmdir()


def put_in(queue: deque[Job], jobs: Sequence[Job], *, first: bool) -> None:
    """Jobs into a queue, at its beginning or at its end."""
    if first:
        queue.extendleft(reversed(jobs))
    else:
        queue.extend(jobs)


class Launcher(ABC):
    """Runs jobs on workers. A context: what is still under way at its end is cancelled."""

    @abstractmethod
    def memory(self) -> int:
        """The bytes that a worker may fill."""

    @abstractmethod
    def room(self) -> int | None:
        """How many jobs run at a time, as far as it is known."""

    @abstractmethod
    def submit(self, jobs: Sequence[Job], *, first: bool = False) -> None:
        """Jobs to be run as soon as there is room, in this order; with `first`, before those that wait already."""

    @abstractmethod
    def ended(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Those that have ended since, each once; waits for one so many seconds. A lost worker is an outcome, too."""

    @abstractmethod
    def cancel(self) -> None:
        """Ends what is under way within 4 seconds. May be called twice, and by another thread."""

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.cancel()
