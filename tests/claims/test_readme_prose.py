"""The README's prose: every number of it, and every "ahead" and "level", computed from the published rows."""

import pytest
import summed_up
from claimed import ROOT, Claim, flat, page, part_of, unclaimed_numbers

CLAIMS: list[Claim] = [
    summed_up.the_python,
    summed_up.the_hidden_points_of_the_figure,
    summed_up.the_setting,
    summed_up.the_table,
    summed_up.the_design_of_the_confirmation,
    summed_up.the_confirmation,
    summed_up.the_long_runs,
    summed_up.how_equal_data_are_divided,
    summed_up.equal_data_in_likelihood,
    summed_up.equal_data_in_calibration,
    summed_up.where_conformal_is_better,
    summed_up.where_ensembles_are_better,
    summed_up.where_persistence_is_better,
    summed_up.what_there_is_besides,
    summed_up.the_time_of_a_run,
    summed_up.the_page_of_cars,
    summed_up.the_methods,
    summed_up.the_part_that_wrappers_keep,
    summed_up.the_two_parts,
]
# Numbers that say what something is and nothing of how well it does.
NAMED = (
    "trains three groups of parameters at once",
    "an uncertainty that comes in two parts",
    "The last three panels share",
    "## Two commands",
    "in one to three dimensions",
    "(its other three)",
    "shows the test cars in 3-D",
    "Each takes a run, a quickstart, a sweep, a car experiment or, the first two, any folder of them.",
    "## How to read the two uncertainties",
    "Reading the two uncertainties",
    "Own data to report in 10 minutes",
    "a server of 15 lines",
    "Further scenarios, in one and two dimensions",
    "Apache-2.0",
)
# What the quickstart printed is from one run of it.
QUICKSTART = part_of("README.md", "`make quickstart` trains on two CPU cores", "## What it reaches")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_the_readme_says_what_the_rows_say(claim: Claim):
    assert flat(claim()) in page("README.md")


def test_no_number_of_the_readme_is_without_a_claim():
    said = [claim() for claim in CLAIMS]
    assert unclaimed_numbers((ROOT / "README.md").read_text(), [QUICKSTART, *said], NAMED) == []
    # The check itself sees digits and words.
    assert unclaimed_numbers("It is ahead in seven of 12 (.02 and `3`).", said) == ["seven", "12", ".02"]
