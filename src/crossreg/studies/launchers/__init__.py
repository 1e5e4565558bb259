"""Engines that run the programs of a sweep on workers: local processes, Ray tasks, Slurm jobs.

`base.py` is what they share, `work.py` what a worker does; each engine is one file that knows nothing of sweeps.
"""

from pathlib import Path

from crossreg.studies.launchers.base import Launcher
from crossreg.studies.launchers.settings import Workers


def open_launcher(workers: Workers, folder: Path) -> Launcher:
    """The engine that was asked for; `folder` is the sweep's."""
    if workers.launcher == "ray":
        from crossreg.studies.launchers.ray_core import RayLauncher

        return RayLauncher(workers, folder)
    if workers.launcher == "slurm":
        from crossreg.studies.launchers.slurm import SlurmLauncher

        return SlurmLauncher(workers, folder)
    from crossreg.studies.launchers.local import LocalLauncher

    return LocalLauncher(workers, folder)
