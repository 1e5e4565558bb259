"""The list of mutants says what can be run: each change applies to the code as it is, and each test exists."""

import pytest
from run_mutants import ROOT, Mutant, read_mutants

MUTANTS = read_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_changes_its_file_in_one_place(mutant: Mutant):
    text = (ROOT / mutant.file).read_text()
    assert mutant.applied_to(text) != text


def test_every_mutant_names_tests_that_exist():
    for mutant in MUTANTS:
        assert mutant.tests, mutant
        for test in mutant.tests:
            path, *names = test.split("::")
            text = (ROOT / path).read_text()
            assert all(f"def {name.split('[')[0]}(" in text for name in names), test
