"""The work of a worker: train a program, score trials, and report the outcome.

If a worker sees the sweep's folder (the token there is the driver's), it works in it, so that a second try resumes from
the snapshots of the first. Otherwise it works in a temporary folder and returns the trained file with the rows.
"""

import contextlib
import fcntl
import os
import platform
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from crossreg.data import cache
from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.machine.compilation import keep_compiled
from crossreg.machine.memory_maps import release_programs
from crossreg.methods.early import Trained
from crossreg.progress.sweep_display import SweepDisplay
from crossreg.runs.file_names import JOBS, TRAINED
from crossreg.runs.programs import described_program
from crossreg.runs.safeguards.locks import open_lock
from crossreg.runs.safeguards.versions import source_digest
from crossreg.studies.launchers.base import DATA, TOKEN, Job, Outcome, last_lines
from crossreg.studies.sweep.programs import on_device, read_program, train_program
from crossreg.studies.sweep.scoring import score_trials, scored_on

Fetch = Callable[[str], bytes]
# A cancelled worker releases its lock within seconds; NFS keeps the lock of a lost node for 90.
_SECONDS_TO_LET_GO = 150.0
_LONGEST_HOST = 64
_SIGNED = re.compile(r"\S+ +\d+ *\n")


def work(job: Job, fetch: Fetch | None = None) -> Outcome:
    """Do a job and return its outcome, also if it fails.

    Args:
        job: The job.
        fetch: Returns the content of a file of the sweep's folder by its name, for workers that do not see the folder.
    """
    try:
        keep_compiled()
        if (own := source_digest()) != job.source:
            raise InputError(
                f"the worker has another crossreg ({own}) than the driver ({job.source}); install the same one for both"
            )
        if _sees(job):
            return _do(job, Path(job.folder))
        if fetch is None:
            raise InputError(
                f"the worker does not see {job.folder}; the folder of a sweep must be one that workers share"
            )
        with tempfile.TemporaryDirectory(prefix="crossreg-") as place:
            for name in job.files:
                (Path(place) / name).parent.mkdir(exist_ok=True)
                (Path(place) / name).write_bytes(fetch(name))
            (Path(place) / TRAINED).mkdir(exist_ok=True)
            outcome = _do(job, Path(place))
            made = Path(place) / JOBS / f"{job.name}.npz"
            return outcome._replace(trained=read_regular(made) if job.train else None)
    except InputError as error:
        return Outcome(error=str(error), again=False)
    except Exception as error:
        return Outcome(
            error=f"{type(error).__name__}: {error}".splitlines()[0], lines=last_lines(traceback.format_exc())
        )
    finally:
        release_programs()


def _sees(job: Job) -> bool:
    try:
        return read_regular(Path(job.folder) / TOKEN).decode() == job.token
    except (OSError, ValueError):
        return False


def _do(job: Job, place: Path) -> Outcome:
    trajectories = on_device(cache.read(place / DATA))
    # The digest of data from files covers all that the sweep's runs read, but these arrays are those of one run.
    trajectories = trajectories._replace(digest=trajectories.origin.get("digest", trajectories.digest))
    if trajectories.digest != job.digest:
        raise InputError(f"{place / DATA}: does not hold the data of the sweep")
    trained: dict[str, Trained] = {}
    for name, description in job.stored.items():
        trained |= read_program(described_program(name, description), place, trajectories)
    if job.train is not None:
        program, quiet = described_program(*job.train), SweepDisplay(1.0, 1, 1, enabled=False)
        with _alone(place / JOBS / f"{job.name}.lock"):
            made = place / JOBS / f"{job.name}.npz"
            trained |= train_program(program, place, trajectories, quiet, job.saving, into=made)
    on = scored_on()
    return Outcome({key: row | {"key": key, "on": on} for key, row in score_trials(job.trials, trained, trajectories)})


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of a program; wait for a worker of an earlier driver or try that has not ended yet."""
    with open_lock(path) as lock:
        until = time.monotonic() + _SECONDS_TO_LET_GO
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RuntimeError(f"{path}: another worker has this program and does not release it") from None
                time.sleep(0.2)
        _sign(lock)
        yield


def _sign(lock: TextIO) -> None:
    """Write host and process into a lock, unless it holds anything but such a line."""
    try:
        said = lock.read()
    except UnicodeDecodeError:  # a user's file
        return
    if not said or _SIGNED.fullmatch(said):
        lock.seek(0)
        # All lines have the same length, so that nothing has to be truncated.
        lock.write(f"{platform.node()[:_LONGEST_HOST]:<{_LONGEST_HOST}} {os.getpid():<10}\n")
        lock.flush()
