"""How many examples: a few for every change, the same each time; many with CROSSREG_FAULTS=long."""

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("CROSSREG_FAULTS") == "long"

# No database: nothing is written into the tree.
settings.register_profile(
    "crossreg",
    database=None,
    deadline=None,
    derandomize=not LONG,
    max_examples=2000 if LONG else 50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("crossreg")
