"""Engines that run the programs of a sweep on workers: local processes, Ray tasks, Slurm jobs.

`base.py` is what they share, `work.py` what a worker does; each engine is one file that knows nothing of sweeps.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from crossreg.studies.launchers.base import Launcher
from crossreg.studies.launchers.settings import Workers


def open_launcher(workers: Workers, folder: Path) -> Launcher:
    """The engine that was asked for; `folder` is the sweep's."""
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
    """A block that may import submitit, which else takes away the handlers of all loggers there are.

    Its workers, which inherit the environment, are to log as they do.
    """
    name = "SUBMITIT_LOG_LEVEL"
    if name in os.environ:  # it was said what it shall do
        yield
        return
    os.environ[name] = "NOCONFIG"
    try:
        yield
    finally:
        del os.environ[name]
