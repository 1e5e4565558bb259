"""How much memory there is, and refusing what would take more of it, before any is taken."""

import math
import os
from pathlib import Path

from crossreg.errors import InputError

_MEMINFO = Path("/proc/meminfo")
# A container may have less than its machine: its limit, and what it has taken.
_CONTAINER = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def available_bytes() -> int:
    """Memory that a process can still take."""
    try:
        kilobytes = next(line.split()[1] for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvail"))
        free = 1024 * int(kilobytes)
    except (OSError, StopIteration, IndexError, ValueError):  # not a Linux: all that the machine has
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit, taken = (int(path.read_text()) for path in _CONTAINER)
        return min(free, max(limit - taken, 0))
    except (OSError, ValueError):  # no container, or one without a limit
        return free


def check_room(needed: int, what: str, *, there: int | None = None) -> None:
    """Refuses what would take more bytes than are `there`, by default those that the machine can still give."""
    there = available_bytes() if there is None else there
    if needed > there:
        raise InputError(f"{what} would take {in_words(needed)} of memory; there are {in_words(there)}")


def in_words(size: int) -> str:
    """A number of bytes, and the same in a unit that can be read."""
    if size >= 1 << 70:  # a header may promise more than a float holds
        return f"10^{int(math.log10(size))} bytes"
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if size >= 1 << power:
            return f"{size} bytes ({size / (1 << power):.1f} {unit})"
    return f"{size} bytes"
