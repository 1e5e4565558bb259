"""How many examples: a few for every change, the same each time; many with CROSSREG_FAULTS=long."""

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

from long_tests import ASKED, amount

# No database, and what else is kept stands where the other tests keep theirs: nothing is written into the tree.
set_hypothesis_home_dir(Path(__file__).parents[2] / ".venv" / "test-cache" / "hypothesis")
settings.register_profile(
    "crossreg",
    database=None,
    deadline=None,
    derandomize=ASKED != "long",
    max_examples=amount(50, 2000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("crossreg")
