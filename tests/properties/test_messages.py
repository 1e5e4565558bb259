"""Messages of settings name the argument in Python, and its flag on the command line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcomes import Refused, outcome

from crossreg.cli.flags import in_flags
from crossreg.cli.main import main
from crossreg.config import Config, DataConfig, default_settings
from crossreg.errors import InputError

FLAG = re.compile(r"(?<![\w-])--\w")
FIELDS = sorted(default_settings())
WRONG = [-3, 0, 1.5, 2.0, 10**12, float("nan"), float("inf"), -9e9, "nothing", True, None, ("nowhere",), b"x"]


@given(st.sampled_from(FIELDS), st.sampled_from(WRONG))
def test_no_message_of_config_names_a_flag(name, value):
    found = outcome(Config().replace, **{name: value})
    if isinstance(found, Refused):
        assert not FLAG.search(found)
        assert found.partition(" is ")[0] in FIELDS  # bounds and starts of log σ are refused together
        assert FLAG.match(in_flags(found))


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_refuses_by_its_name(name):
    """A type that no field has."""
    said = outcome(Config().replace, **{name: b"x"})
    assert said.startswith(f"{name} is b'x'; expected ")


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("observed_fraction is 2.0: must lie in (0, 1]", "--observed-fraction 2.0: must lie in (0, 1]"),
        (
            "train_size is 8, reg_size is 1 and test_size is 2: together at most 10 trajectories",
            "--train-size 8, --reg-size 1 and --test-size 2: together at most 10 trajectories",
        ),
        (
            "field is u: says something of `data`, which is not given",
            "--field u: says something of --data, which is not given",
        ),
        ("data u.npy: no such file or folder", "--data u.npy: no such file or folder"),
        ("data u.npy: say `axes='btxy'`, or `field=NAME`", "--data u.npy: say --axes btxy, or --field NAME"),
        (
            "split is time: leave `train_horizon` and `test_horizon` out",
            "--split time: leave --train-horizon and --test-horizon out",
        ),
        # No field, or not in a place where one is named.
        (
            "c.yaml: data.observed_fraction is 'x'; expected a number",
            "c.yaml: data.observed_fraction is 'x'; expected a number",
        ),
        (
            "--config: seed is 3; the first seed of a sweep is --first-seed",
            "--config: seed is 3; the first seed of a sweep is --first-seed",
        ),
        ("`crossreg train --help` lists them; `nobody` does", "`crossreg train --help` lists them; `nobody` does"),
        ("nothing is 3: width is 4", "nothing is 3: width is 4"),
    ],
)
def test_the_command_line_names_flags(message, typed):
    assert in_flags(message) == typed


def test_a_wrong_setting_in_python_and_as_a_flag(capsys):
    with pytest.raises(InputError, match=re.escape("observed_fraction is 2.0: must lie in (0, 1]")):
        DataConfig(observed_fraction=2.0)
    assert main(["train", "--observed-fraction", "2.0", "--out", "nowhere"]) == 2
    assert "crossreg: --observed-fraction 2.0: must lie in (0, 1]" in capsys.readouterr().err
