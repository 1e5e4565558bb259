"""What a worker does with a job: train a program, score trials, and say how it went.

It works in the sweep's folder where it sees it (the token there is the driver's), so that another try goes on from the
snapshots of the first. Where it does not, it works in a folder of its own that is gone afterwards, and the trained file
goes back with the rows.
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
from crossreg.runs.locks import open_lock
from crossreg.runs.programs import TRAINED_FOLDER, described_program
from crossreg.runs.sweep_folder import JOBS
from crossreg.runs.versions import source_digest
from crossreg.studies.launchers.base import DATA, TOKEN, Job, Outcome, last_lines
from crossreg.studies.sweep.programs import on_device, read_program, train_apart
from crossreg.studies.sweep.scoring import score_trials, scored_on

Fetch = Callable[[str], bytes]
# A worker that was cancelled lets go of its program within seconds; of a node that is gone, NFS keeps a lock for 90.
_SECONDS_TO_LET_GO = 150.0
_LONGEST_HOST = 64
_SIGNED = re.compile(r"\S+ +\d+ *\n")


def work(job: Job, fetch: Fetch | None = None) -> Outcome:
    """Does a job. What goes wrong is an outcome too; `fetch` gets a file of the driver's folder by its name."""
    try:
        keep_compiled()
        if (own := source_digest()) != job.source:
            raise InputError(f"the worker has another crossreg ({own}) than the driver ({job.source})")
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
            (Path(place) / TRAINED_FOLDER).mkdir(exist_ok=True)
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
    # Own files are known by all that the runs of the sweep hold of them, and the cached fields are those of one run.
    trajectories = trajectories._replace(digest=trajectories.origin.get("digest", trajectories.digest))
    if trajectories.digest != job.digest:
        raise InputError(f"{place / DATA}: is not of the sweep's data")
    trained: dict[str, Trained] = {}
    for name, description in job.stored.items():
        trained |= read_program(described_program(name, description), place, trajectories)
    if job.train is not None:
        program, quiet = described_program(*job.train), SweepDisplay(1.0, 1, 1, enabled=False)
        with _alone(place / JOBS / f"{job.name}.lock"):
            made = place / JOBS / f"{job.name}.npz"
            trained |= train_apart(program, place, made, trajectories, quiet, job.saving)
    trials, on = {key: wired.trial() for key, wired in job.trials.items()}, scored_on()
    return Outcome({key: row | {"key": key, "on": on} for key, row in score_trials(trials, trained, trajectories)})


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits for a worker of an earlier driver or try that has the same program, and has not noticed its end yet."""
    with open_lock(path) as lock:
        until = time.monotonic() + _SECONDS_TO_LET_GO
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RuntimeError(f"{path}: another worker has this program, and does not let go of it") from None
                time.sleep(0.2)
        _sign(lock)
        yield


def _sign(lock: TextIO) -> None:
    """Write into a lock who has it, for whoever wants to know: host and process, at most over another such line."""
    try:
        said = lock.read()
    except UnicodeDecodeError:  # somebody's file, and no worker's
        return
    if not said or _SIGNED.fullmatch(said):
        lock.seek(0)
        # Of one length, so that nothing has to be cut off.
        lock.write(f"{platform.node()[:_LONGEST_HOST]:<{_LONGEST_HOST}} {os.getpid():<10}\n")
        lock.flush()
