"""Messages name the argument in Python, and its flag on the command line."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcomes import Refused, outcome

import crossreg
from crossreg.cli.flags import in_flags
from crossreg.cli.main import main
from crossreg.config import Config, DataConfig, default_settings
from crossreg.errors import InputError

FLAG = re.compile(r"(?<![\w-])--\w")
FIELDS = sorted(default_settings())
ROOT = Path(crossreg.__file__).parent
# Files that write a command to type, with its flags.
COMMANDS = {"data/files/check.py", "export/readme.py", "runs/sweep_folder.py", "studies/planning/packing.py"}
WRONG = [-3, 0, 1.5, 2.0, 10**12, float("nan"), float("inf"), -9e9, "nothing", True, None, ("nowhere",), b"x"]


def texts_of(path: Path) -> list[ast.Constant]:
    """Return all strings of a file that are no docstrings, of fields or otherwise."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    strings = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node for node in strings if node not in docstrings]


def test_no_text_outside_the_command_line_names_a_flag():
    """Unless it is part of a command that the text shows: `crossreg car --out`."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name in COMMANDS or name.startswith("cli/"):
            continue
        for text in texts_of(path):
            if FLAG.search(re.sub("`crossreg [^`]*`", "", str(text.value))):
                found.append(f"{name}:{text.lineno}: {text.value}")
    assert not found


def test_files_that_show_commands_have_no_other_flags():
    """None of their errors names one."""
    for name in COMMANDS:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.Raise):
                assert not FLAG.search(ast.unparse(node)), f"{name}:{node.lineno}"


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
            "field is u: describes `data`, which is not given",
            "--field u: describes --data, which is not given",
        ),
        ("data u.npy: no such file or folder", "--data u.npy: no such file or folder"),
        ("data u.npy: say `axes='btxy'`, or `field=NAME`", "--data u.npy: say --axes btxy, or --field NAME"),
        (
            "split is time: leave `train_horizon` and `test_horizon` out",
            "--split time: leave --train-horizon and --test-horizon out",
        ),
        ("method nobody: no such method", "--method nobody: no such method"),
        ("out runs/a: exists and is not a folder", "--out runs/a: exists and is not a folder"),
        ("`mask` and `no_mask` exclude each other", "--mask and --no-mask exclude each other"),
        (
            "launcher is slurm: needs `worker_memory`; `slurm_options=cluster=local` does not",
            "--launcher slurm: needs --worker-memory; --slurm-options cluster=local does not",
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
