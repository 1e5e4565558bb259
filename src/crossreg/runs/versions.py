"""What numbers may depend on besides settings and data: versions, and the kind of machine.

A training is bit for bit the same on the same kind of processor with as many cores, with the same compiler (jaxlib),
the same number of devices and the same number of replicas side by side. These go with every snapshot and are compared
before it is used.
"""

import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from crossreg.errors import InputError
from crossreg.files.whole import read_json
from crossreg.machine.devices import devices_in_use
from crossreg.training.parallel import Layout

_PACKAGES = ("crossreg", "jax", "jaxlib", "equinox", "optax", "numpy")
_CPU_INFO = Path("/proc/cpuinfo")
_COUNTS_OWN = hasattr(os, "sched_getaffinity")
_NUMERICS = {
    "machine": "kind of machine",
    "processor": "processor",
    "cores": "number of cores (NPROC sets it)",
    "jaxlib": "jaxlib",
    "device": "device",
    "devices": "number of devices in use",
    "replicas": "number of replicas side by side",
}


def describe_machine() -> dict[str, str]:
    """Versions and the kind of device: what a number may depend on."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions | {"source": source_digest(), "python": platform.python_version()} | _conditions()


def describe_driver() -> dict[str, str]:
    """The same for a process that leaves the numbers to workers: each of these says itself where it computes."""
    here = set(_conditions()) - {"jaxlib"}
    return {name: value for name, value in describe_machine().items() if name not in here}


def _conditions() -> dict[str, str]:
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": _cores(),
        "jaxlib": importlib.metadata.version("jaxlib"),
        "device": jax.local_devices()[0].device_kind,
        "devices": str(len(devices_in_use()) * jax.process_count()),
    }


def source_digest() -> str:
    """A short hash of the package's own code: which state of it made a number, installed or not."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    """The model of the CPU where it trains: its compiler uses all the instructions that this one has."""
    if jax.default_backend() != "cpu":
        return "-"
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _cores() -> str:
    """How many threads a CPU's programs are cut for: what they add up, they add up in as many parts."""
    if jax.default_backend() != "cpu":
        return "-"
    # XLA reads this variable before it counts.
    return os.environ.get("NPROC") or str(len(os.sched_getaffinity(0)) if _COUNTS_OWN else os.cpu_count())


def numerics(layout: Layout) -> dict[str, str]:
    """What a program is bit for bit the same under: few replicas may use fewer devices than there are."""
    return _conditions() | {"devices": str(layout.num_devices), "replicas": str(layout.replicas)}


def check_versions(path: Path, *, force: bool) -> None:
    """`check_numerics` of what `describe_machine` said when a folder was begun, in a file of it."""
    check_numerics(read_json(path, "what `crossreg` writes"), describe_machine(), str(path.parent), force=force)


def check_numerics(stored: Mapping[str, Any], now: Mapping[str, str], where: str, *, force: bool) -> None:
    """Refuses to go on with what was begun under other conditions, unless it is asked for; then it says so.

    What was not stored, by an older version, is not compared.
    """
    names = [name for name in _NUMERICS if name in stored and name in now and stored[name] != now[name]]
    if not names:
        return
    changes = "; ".join(f"{_NUMERICS[name]}: was {stored[name]}, is {now[name]}" for name in names)
    if not force:
        raise InputError(f"{where}: begun under other conditions ({changes}); --force-resume goes on all the same")
    print(f"crossreg: {where}: goes on under other conditions ({changes}): last digits may differ", file=sys.stderr)
