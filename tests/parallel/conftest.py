"""Processes with several devices: virtual ones on the CPU, of which a process has as many as it is started with."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Starter = Callable[..., subprocess.Popen]


@pytest.fixture(scope="session")
def start() -> Starter:
    """Starts a script of this folder, or `-m MODULE`, on so many virtual devices."""

    def start(devices: int, *arguments: str | Path) -> subprocess.Popen:
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
        command = [sys.executable, *map(str, arguments)]
        environment = os.environ | {"XLA_FLAGS": flags}
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return start
