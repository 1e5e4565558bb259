"""Engines that run the programs of a sweep on workers: local processes, Ray tasks, Slurm jobs.

`base.py` is what they share, `work.py` what a worker does; each engine is one file that knows nothing of sweeps.
"""

from pathlib import Path

from crossreg.errors import InputError
from crossreg.studies.launchers.base import Launcher
from crossreg.studies.launchers.settings import Workers


def open_launcher(workers: Workers, folder: Path) -> Launcher:
    """The engine that was asked for; `folder` is the sweep's."""
    if workers.launcher != "local":
        raise InputError(f"--launcher {workers.launcher}: is not there yet")
    from crossreg.studies.launchers.local import LocalLauncher

    return LocalLauncher(workers, folder)
