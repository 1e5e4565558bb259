"""Open the launcher that is asked for; each is imported only if it is used."""

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
