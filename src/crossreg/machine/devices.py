"""The devices of this machine that train, and their memory.

Their number is set once per process, as by `--devices`. It says where things run, and is no setting of a training.
"""

import os
from typing import Any

import jax

from crossreg.errors import InputError

_in_use: int | None = None


def use_devices(count: int | None) -> None:
    """Train on the first `count` devices of this machine from now on; on all of them with None."""
    global _in_use  # noqa: PLW0603 (a process has one set of devices)
    there = jax.local_device_count()
    if count is not None and not 1 <= count <= there:
        have = "there is 1" if there == 1 else f"there are {there}"
        least = "must be 1 or more; " if count < 1 else ""
        raise InputError(f"devices is {count}: {least}{have} on this machine ({jax.local_devices()[0].device_kind})")
    _in_use = count


def devices_in_use() -> list[Any]:
    """Return the devices of this machine that train."""
    return jax.local_devices()[:_in_use]


def device_bytes() -> int:
    """Return the total memory of one device."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
