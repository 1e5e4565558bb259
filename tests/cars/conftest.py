"""The reference's numbers for two real cars."""

import pytest
from reference_facts import NAMES, CarFacts, stored_facts, whole_facts

from car_files import REAL_CARS

PARTS = ["part", *(["whole"] if REAL_CARS.is_dir() else [])]


@pytest.fixture(scope="session", params=[(part, name) for part in PARTS for name in NAMES], ids="-".join)
def reference(request: pytest.FixtureRequest) -> CarFacts:
    """A car by the reference: the part that is in the repository, and all of it beside the real cars."""
    part, name = request.param
    return stored_facts(name) if part == "part" else whole_facts(REAL_CARS.parent, name)
