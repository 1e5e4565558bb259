"""Available memory, and a check that an allocation fits into it."""

import math
import os
from pathlib import Path

from crossreg.errors import InputError

_MEMINFO = Path("/proc/meminfo")
# The limit of a container, which may be below the machine's memory, and what it uses.
_CONTAINER = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def available_bytes() -> int:
    """Return the bytes of memory that a process can still allocate."""
    try:
        kilobytes = next(line.split()[1] for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvail"))
        free = 1024 * int(kilobytes)
    except (OSError, StopIteration, IndexError, ValueError):  # not Linux: all memory of the machine
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit, taken = (int(path.read_text()) for path in _CONTAINER)
        return min(free, max(limit - taken, 0))
    except (OSError, ValueError):  # not in a container, or no limit
        return free


def check_room(needed: int, what: str) -> None:
    """Raise InputError if `what` takes more bytes than are available."""
    there = available_bytes()
    if needed > there:
        raise InputError(f"{what} would take {in_words(needed)} of memory; {in_words(there)} are available")


def in_words(size: int) -> str:
    """Return a number of bytes as text, in a readable unit too."""
    if size >= 1 << 70:  # a header may claim more than a float holds
        return f"10^{int(math.log10(size))} bytes"
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if size >= 1 << power:
            return f"{size} bytes ({size / (1 << power):.1f} {unit})"
    return f"{size} bytes"
