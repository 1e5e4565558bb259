"""The CPU of this machine, found without JAX."""

import os
import platform
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """Return the model of the CPU."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def num_cores() -> int:
    """Return how many cores this process may use; all of the machine's where the system cannot say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_processor() -> str:
    """Return the CPU and the number of cores with which XLA computes, such as `AMD EPYC, 2 cores`."""
    cores = os.environ.get("NPROC") or str(num_cores())
    return f"{processor_name()}, {cores} core{'s' * (cores != '1')}"
