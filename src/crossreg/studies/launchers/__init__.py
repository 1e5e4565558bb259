"""Launchers: the programs of a sweep on local processes, as Ray tasks, or as Slurm jobs.

`settings.py` has the flags, `base.py` what driver and workers exchange, and `work.py` what a worker does with a job.
`local.py` (with `process.py`, the worker's main program), `ray_core.py` and `slurm.py` are one launcher each; they know
nothing of sweeps. The driver is `studies/sweep/distributed.py`.

May import everything up to runs, and `studies/sweep/programs.py` and `scoring.py`, which workers call.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from crossreg.studies.launchers.base import Launcher
from crossreg.studies.launchers.settings import Workers


def open_launcher(workers: Workers, folder: Path) -> Launcher:
    """Return the launcher that `workers` asks for; `folder` is the sweep's."""
    if workers.launcher == "ray":
        from crossreg.studies.launchers.ray_core import RayLauncher

        return RayLauncher(workers, folder)
    if workers.launcher == "slurm":
        with _loggers_kept():
            from crossreg.studies.launchers.slurm import SlurmLauncher

        return SlurmLauncher(workers, folder)
    from crossreg.studies.launchers.local import LocalLauncher

    return LocalLauncher(workers, folder)


@contextlib.contextmanager
def _loggers_kept() -> Iterator[None]:
    """Keep submitit, when it is imported, from removing the handlers of all loggers.

    The variable is removed afterwards: workers inherit the environment, and should log as usual.
    """
    name = "SUBMITIT_LOG_LEVEL"
    if name in os.environ:  # set by the user
        yield
        return
    os.environ[name] = "NOCONFIG"
    try:
        yield
    finally:
        del os.environ[name]
