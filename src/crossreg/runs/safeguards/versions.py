"""The conditions that numbers depend on besides settings and data: versions of packages, and the kind of machine.

A training gives the same bits again on the same kind of processor with as many cores, with the same compiler (jaxlib),
the same number of devices and the same number of replicas side by side. These are stored with every snapshot and
compared before it is used.
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
from crossreg.machine.processor import num_cores, processor_name
from crossreg.training.parallel import Layout

_PACKAGES = ("crossreg", "jax", "jaxlib", "equinox", "optax", "numpy")
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
    """Return what `versions.json` holds: the versions of packages, and the kind of machine and device."""
    versions = {package: _version(package) for package in _PACKAGES}
    return versions | {"source": source_digest(), "python": platform.python_version()} | _conditions()


def describe_driver() -> dict[str, str]:
    """Return the versions alone, for a process that leaves all computing to workers, which describe themselves."""
    here = set(_conditions()) - {"jaxlib"}
    return {name: value for name, value in describe_machine().items() if name not in here}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _conditions() -> dict[str, str]:
    # On a CPU the compiler uses all instructions that there are, and programs add numbers up in as many parts as there
    # are cores. XLA reads NPROC before it counts cores.
    on_cpu = jax.default_backend() == "cpu"
    return {
        "machine": platform.machine(),
        "processor": processor_name() if on_cpu else "-",
        "cores": (os.environ.get("NPROC") or str(num_cores())) if on_cpu else "-",
        "jaxlib": _version("jaxlib"),
        "device": jax.local_devices()[0].device_kind,
        "devices": str(len(devices_in_use()) * jax.process_count()),
    }


def source_digest() -> str:
    """Return a short hash of the source of this package, which says which state of it made a number."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def numerics(layout: Layout) -> dict[str, str]:
    """Return what the bits of a program depend on; few replicas may use fewer devices than there are."""
    return _conditions() | {"devices": str(layout.num_devices), "replicas": str(layout.replicas)}


def check_versions(path: Path, *, force: bool) -> None:
    """Compare this machine with the one on which a folder was begun, as `check_numerics` does.

    Args:
        path: The `versions.json` of the folder.
        force: Whether to warn instead of raising.
    """
    check_numerics(read_json(path, "what `crossreg` writes"), describe_machine(), str(path.parent), force=force)


def check_numerics(stored: Mapping[str, Any], now: Mapping[str, str], where: str, *, force: bool) -> None:
    """Compare the conditions under which a training was begun with those of now.

    Args:
        stored: The conditions then; those that an older version did not store are not compared.
        now: The conditions now.
        where: The folder, for messages.
        force: Whether to warn instead of raising.

    Raises:
        InputError: If they differ, unless `force` is set.
    """
    names = [name for name in _NUMERICS if name in stored and name in now and stored[name] != now[name]]
    if not names:
        return
    changes = "; ".join(f"{_NUMERICS[name]}: was {stored[name]}, is {now[name]}" for name in names)
    if not force:
        raise InputError(f"{where}: started under other conditions ({changes}); `force_resume` resumes nevertheless")
    print(f"crossreg: {where}: resumes under other conditions ({changes}): last digits may differ", file=sys.stderr)
