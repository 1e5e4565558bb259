"""Where the programs of a sweep are trained, as flags of `crossreg sweep`. This module does not import JAX."""

import importlib.util
from dataclasses import dataclass
from typing import Literal

from crossreg.config.field_types import check
from crossreg.errors import InputError

Engine = Literal["local", "ray", "slurm"]
_GIB = 2**30


@dataclass(frozen=True)
class Workers:
    """Which workers train the programs of a sweep, and how large a program may be."""

    launcher: Engine = "local"
    """What the workers are: processes on this machine, tasks in a Ray cluster (needs crossreg[ray]), or Slurm jobs
    (needs crossreg[slurm])."""
    workers: int | None = None
    """Number of workers, that is, of programs trained at the same time. By default 1 for local, in this process, and
    otherwise as many as the cluster has room for."""
    most_replicas: int | None = None
    """Largest number of replicas in a program. By default what fits into a worker's memory, but no more than a worker's
    share of all replicas. The last digits of results depend on it: the same value gives the same table everywhere."""
    worker_memory: float | None = None
    """GiB that a worker may fill, of its GPU if it has one. By default a worker measures this; Slurm needs a value."""
    worker_cpus: int | None = None
    """CPU cores of a worker. By default its share of this machine for local, 1 for Ray, and Slurm's own default."""
    worker_gpus: int | None = None
    """GPUs of a worker. By default 1 if this machine or the Ray cluster has any, and 0 for Slurm."""
    ray_address: str | None = None
    """The Ray cluster: host:port or ray://host:port, auto for the one that runs on this machine, or local to start one.
    By default that of RAY_ADDRESS, else the one that runs on this machine, else a new one."""
    slurm_partition: str | None = None
    """Slurm partition of the jobs."""
    slurm_time: int = 240
    """Minutes that a Slurm job may take. One that takes longer is queued again, and resumes from its last snapshot."""
    slurm_options: str | None = None
    """Further options, named as in submitit: account=mine,constraint=h100. With cluster=local, jobs run on this
    machine, without Slurm."""

    @property
    def in_process(self) -> bool:
        """Whether the sweep trains its programs in this process, one after another, without workers."""
        return self.launcher == "local" and self.workers in (None, 1)

    @property
    def memory(self) -> int | None:
        """The bytes that a worker may fill, or None if `worker_memory` is not given."""
        return None if self.worker_memory is None else int(self.worker_memory * _GIB)

    def options(self) -> dict[str, str]:
        """Return `slurm_options` by name."""
        items = [item.partition("=") for item in (self.slurm_options or "").split(",") if item.strip()]
        whole = all(key.strip() and equals and value.strip() for key, equals, value in items)
        check(whole, "slurm_options", self.slurm_options, "expected key=value,key=value")
        return {key.strip().replace("-", "_"): value.strip() for key, _, value in items}

    def checked(self) -> "Workers":
        """Return self after validation."""
        for name, least in (("workers", 1), ("most_replicas", 1), ("worker_cpus", 1), ("worker_gpus", 0)):
            value = getattr(self, name)
            check(value is None or value >= least, name, value, f"must be {least} or more")
        memory, address, slurm = self.worker_memory, self.ray_address, self.launcher == "slurm"
        check(memory is None or 0 < memory < 2**20, "worker_memory", memory, "must be a number of GiB above 0")
        check(self.slurm_time >= 1, "slurm_time", self.slurm_time, "must be 1 minute or more")
        check(self.launcher == "ray" or address is None, "ray_address", address, "is for `launcher=ray`")
        if not slurm and (self.slurm_partition or self.slurm_options):
            raise InputError("`slurm_partition` and `slurm_options`: are for `launcher=slurm`")
        if self.in_process and (self.worker_cpus is not None or self.worker_gpus is not None):
            raise InputError("`worker_cpus` and `worker_gpus`: are for `workers=2` or more, or another `launcher`")
        needs = "needs `worker_memory`, the GiB that a job may fill (of its GPU if it has one)"
        check(not slurm or memory is not None, "launcher", self.launcher, needs)
        self.options()
        for engine, package in (("ray", "ray"), ("slurm", "submitit")):
            is_there = self.launcher != engine or importlib.util.find_spec(package) is not None
            check(is_there, "launcher", engine, f"needs {package}; install it by `pip install 'crossreg[{engine}]'`")
        return self


HERE = Workers()
