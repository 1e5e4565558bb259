"""Damaged files at every entrance: they are read, or refused in one line, and take little memory.

A few files of each kind here; 30,000 in all with CROSSREG_FAULTS=long.
"""

import logging
import resource
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import damaged, damaged_inside
from entrances import ENTRANCES, Entrance
from outcomes import Refused, outcome

from long_tests import amount

FILES = amount(24, -(-30_000 // len(ENTRANCES)))
# What reading takes besides the file: as Python objects, text takes some times its own size; a run's model, without its
# numbers, takes a megabyte.
FACTOR, CONSTANT = 8, 2**22


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def peak_of(entrance: Entrance, folder: Path) -> tuple[Any, int]:
    """What reading gives, or the line by which it is refused; and the most memory that it took."""
    tracemalloc.start()
    try:
        found = outcome(entrance.read, folder)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ENTRANCES)
def test_a_damaged_file_is_read_or_refused(kind, tmp_path):
    entrance = ENTRANCES[kind]
    entrance.make(tmp_path)
    path = tmp_path / entrance.file
    good = path.read_bytes()
    entrance.read(tmp_path)  # it is valid, and what is imported is now there
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    refused = 0
    for number in range(FILES):
        bad = (damaged_inside if entrance.zipped and number % 2 else damaged)(good, rng)
        path.write_bytes(bad)
        found, peak = peak_of(entrance, tmp_path)
        assert peak < FACTOR * len(bad) + CONSTANT, f"file {number}: {peak} bytes for {len(bad)}"
        refused += isinstance(found, Refused)
        assert all(np.isfinite(array).all() for array in arrays_in(found)), f"file {number}"
    assert refused > FILES // 3
    # Memory that C libraries take is seen here alone.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) < 8 * 2**30


def arrays_in(found: Any) -> list[np.ndarray]:
    if isinstance(found, np.ndarray):
        return [found]
    return [array for array in found if isinstance(array, np.ndarray)] if isinstance(found, list | tuple) else []
