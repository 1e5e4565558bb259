"""How many examples: a few for every change, the same each time; many with CROSSREG_FAULTS=long."""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

LONG = os.environ.get("CROSSREG_FAULTS") == "long"

# No database, and what else is kept stands where the other tests keep theirs: nothing is written into the tree.
set_hypothesis_home_dir(Path(__file__).parents[2] / ".venv" / "test-cache" / "hypothesis")
settings.register_profile(
    "crossreg",
    database=None,
    deadline=None,
    derandomize=not LONG,
    max_examples=2000 if LONG else 50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("crossreg")
