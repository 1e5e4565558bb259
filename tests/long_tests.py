"""How much of the long tests runs: nothing, with CROSSREG_FAULTS=tenth a tenth of each, with `long` all."""

import os
import zlib
from collections.abc import Sequence

import pytest

ASKED = os.environ.get("CROSSREG_FAULTS", "")
if ASKED not in ("", "tenth", "long"):
    raise pytest.UsageError(f"CROSSREG_FAULTS={ASKED}: expected tenth or long, or nothing")
long = pytest.mark.long


def amount(quick: int, whole: int) -> int:
    """How often a test repeats what it does: `whole` in a long run, a tenth of that in CI, else `quick`."""
    return {"": quick, "tenth": -(-whole // 10), "long": whole}[ASKED]


def skip_long(items: Sequence[pytest.Item]) -> None:
    """Skip the cases of long tests that do not run now. A tenth of a test's cases is at least one."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("long"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, group in cases.items():
        # Which case is the first depends on the test, so that not all take the same engine, signal or moment.
        first = zlib.crc32(name.encode()) % min(10, len(group))
        running = {"": [], "tenth": group[first::10], "long": group}[ASKED]
        for item in group:
            if item not in running:
                item.add_marker(pytest.mark.skip(reason="long: `make faults` runs it"))
