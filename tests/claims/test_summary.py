"""The pages that sum up: every number of "Results in short", and claims on the pages that the README leads to."""

import pytest
import summed_up
from claimed import ROOT, Claim, flat, page, unclaimed_numbers

SUMMARY = "docs/summary.md"
CLAIMS: dict[str, list[Claim]] = {
    SUMMARY: [
        summed_up.the_summary_in_one_paragraph,
        summed_up.the_setting,
        summed_up.the_table,
        summed_up.the_long_runs,
        summed_up.the_design_of_the_confirmation,
        summed_up.the_confirmation,
        summed_up.how_equal_data_are_divided,
        summed_up.equal_data_in_likelihood,
        summed_up.equal_data_in_calibration,
        summed_up.where_conformal_is_better,
        summed_up.where_ensembles_are_better,
        summed_up.where_persistence_is_better,
        summed_up.the_two_parts,
        summed_up.the_other_experiments,
    ],
    "docs/index.md": [summed_up.the_hidden_points_of_the_figure],
    "docs/install.md": [summed_up.the_python],
    "docs/cli.md": [summed_up.the_time_of_a_run],
    "docs/methods.md": [summed_up.the_methods, summed_up.the_part_that_wrappers_keep],
    "docs/cars.md": [summed_up.the_page_of_cars],
}
PAIRS = [(name, claim) for name, claims in CLAIMS.items() for claim in claims]
# Numbers that say what something is and nothing of how well it does.
NAMED = (
    "**In one paragraph.**",
    "one observed fraction with one number of trajectories",
    "beyond the 95% interval of the difference",
    '"±" is a 95% interval',
    "XReg learns from 50 trajectories",
    "one of seven [further scenarios]",
    "## The two parts",
)


@pytest.mark.parametrize(("name", "claim"), PAIRS, ids=[claim.__name__ for _, claim in PAIRS])
def test_the_page_says_what_the_rows_say(name: str, claim: Claim):
    assert flat(claim()) in page(name)


def test_no_number_of_the_summary_is_without_a_claim():
    said = [claim() for claim in CLAIMS[SUMMARY]]
    assert unclaimed_numbers((ROOT / SUMMARY).read_text(), said, NAMED) == []
