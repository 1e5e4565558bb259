"""The README's prose: every number of it, and every "ahead" and "level", computed from the published rows."""

import pytest
import summed_up
from claimed import ROOT, Claim, flat, page, unclaimed_numbers

CLAIMS: list[Claim] = [
    summed_up.the_python,
    summed_up.the_hidden_points_of_the_figure,
    summed_up.the_setting,
    summed_up.the_table,
    summed_up.equal_data_in_short,
    summed_up.where_conformal_is_better,
]
# Numbers that say what something is and nothing of how well it does.
NAMED = (
    "trains three groups of parameters at once",
    "one-step predictions from inputs",
    "Trajectories in one to three dimensions",
    "further scenarios in one and two dimensions",
    "your data in ten minutes",
    "[the two uncertainties]",
    "Apache-2.0",
)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_the_readme_says_what_the_rows_say(claim: Claim):
    assert flat(claim()) in page("README.md")


def test_the_readme_is_a_door_not_a_house():
    assert len((ROOT / "README.md").read_text().split()) <= 1000


def test_no_number_of_the_readme_is_without_a_claim():
    said = [claim() for claim in CLAIMS]
    assert unclaimed_numbers((ROOT / "README.md").read_text(), said, NAMED) == []
    # The check itself sees digits and words.
    assert unclaimed_numbers("It is ahead in seven of 12 (.02 and `3`).", said) == ["seven", "12", ".02"]
