"""Room for compiled programs.

On a CPU a compiled program holds some hundred memory maps, and Linux allows a process 65,530 of them. Where none is
left, XLA crashes without a message.
"""

from pathlib import Path

import jax

_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


def share_of_maps() -> float:
    """Return the share of the allowed memory maps that this process holds; 0 where the system does not say."""
    try:
        with _MAPS.open("rb") as file:
            return sum(1 for _ in file) / int(_LIMIT.read_text())
    except (OSError, ValueError):
        return 0.0


def release_programs(*, share: float = 0.3) -> None:
    """Forget all compiled programs if they take more than a share; those needed again are read from the cache."""
    if share_of_maps() > share:
        jax.clear_caches()
