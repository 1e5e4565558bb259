"""Windows of one simulation in several splits: warned of in training and in `data check`, and not by mistake."""

import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import crossreg as xr
from crossreg.cli.main import main
from crossreg.config import OWN_DATA, DataConfig
from crossreg.data.files.check import check_data
from crossreg.data.files.overlap import overlap_warning
from crossreg.data.files.split import split_source
from crossreg.data.formats.open import open_source

LENGTH, SHIFT = 7, 3


def config_of(path: Path, **fields: Any) -> DataConfig:
    return DataConfig(**cast(dict[str, Any], OWN_DATA | {"data": str(path)} | fields))


def simulation(times: int, seed: int = 0, channels: int = 2, points: int = 31) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(times, channels, points)).astype(np.float32)


def windows(whole: np.ndarray, count: int) -> np.ndarray:
    return np.stack([whole[start : start + LENGTH] for start in range(0, SHIFT * count, SHIFT)])


@pytest.fixture
def overlapping(tmp_path):
    np.save(tmp_path / "own.npy", windows(simulation(SHIFT * 12 + LENGTH), 12))
    return tmp_path / "own.npy"


def test_windows_that_overlap_are_warned_of(overlapping, capsys):
    xr.load(overlapping)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("crossreg: warning: ")
    [said] = [text for text in check_data(overlapping).summary["warnings"] if "too good" in text]
    assert line == f"crossreg: warning: data {overlapping}: {said}"
    # Every number in it follows from the windows: window w has the simulation's steps 3 w to 3 w + 5.
    parts = split_source(open_source(overlapping), config_of(overlapping))
    steps = {name: {SHIFT * w + t for w in part.samples for t in range(LENGTH - 1)} for name, part in parts.items()}
    one, other = next(pair for pair in (("train", "reg"), ("train", "test")) if steps[pair[0]] & steps[pair[1]])
    shared = sum(SHIFT * w + t in steps[one] for w in parts[other].samples for t in range(LENGTH - 1))
    own = len(parts[other].samples) * (LENGTH - 1)
    assert f"{shared:,} of the {own} steps of {other} are steps of {one} too: trajectory" in said
    numbers = [int(word.rstrip(";")) for word in said.split("trajectory ", 1)[1].split() if word.rstrip(";").isdigit()]
    sample, time, twin, twin_time = numbers
    assert SHIFT * sample + time == SHIFT * twin + twin_time
    assert sample in parts[other].samples
    assert twin in parts[one].samples


def test_the_same_warning_is_printed_once(overlapping, tmp_path, capsys):
    for _ in range(2):
        xr.load(overlapping, observed_fraction=0.5)
    assert capsys.readouterr().err.count("too good") == 1
    (tmp_path / "other.npy").write_bytes(overlapping.read_bytes())
    xr.load(tmp_path / "other.npy")
    assert capsys.readouterr().err.count("too good") == 1


def test_the_steps_of_the_later_split_are_counted(tmp_path):
    """Windows two steps apart: a step stands in up to three of them, so that the two splits share other counts."""
    whole = simulation(2 * 12 + LENGTH)
    fields = np.stack([whole[start : start + LENGTH] for start in range(0, 24, 2)])
    np.save(tmp_path / "own.npy", fields)
    source = open_source(tmp_path / "own.npy")
    parts = split_source(source, config_of(tmp_path / "own.npy"))
    steps = {name: [2 * w + t for w in part.samples for t in range(LENGTH - 1)] for name, part in parts.items()}
    shared = [
        sum(step in steps["train"] for step in steps["reg"]),
        sum(step in steps["reg"] for step in steps["train"]),
    ]
    assert shared[0] != shared[1]
    said = overlap_warning(source, parts)
    assert said is not None
    assert said.startswith(f"{shared[0]} of the {len(steps['reg'])} steps of reg are steps of train too")


def test_a_sweep_warns_once(overlapping, capsys):
    from crossreg.data.files.pool import Pool

    pool, config = Pool(open_source(overlapping)), config_of(overlapping)
    for _ in range(2):
        pool.parts(config)
    assert capsys.readouterr().err.count("too good") == 1


def test_windows_that_a_split_in_time_cuts_are_warned_of(tmp_path, capsys):
    np.save(tmp_path / "own.npy", np.stack([simulation(30)[start : start + 20] for start in (0, 10)]))
    xr.load(tmp_path / "own.npy", split="time")
    assert "steps of train too" in capsys.readouterr().err
    assert any("too good" in text for text in check_data(tmp_path / "own.npy").summary["warnings"])


@pytest.mark.parametrize("stride", [1, 2])
def test_a_stride_is_followed(tmp_path, stride):
    """Windows that lie one step apart have no step of two in common."""
    whole = simulation(20)
    np.save(tmp_path / "own.npy", np.stack([whole[start : start + 9] for start in (0, 1, 0 if stride == 1 else 11)]))
    source = open_source(tmp_path / "own.npy")
    said = overlap_warning(source, split_source(source, config_of(tmp_path / "own.npy", time_stride=stride)))
    assert (said is None) == (stride == 2)


def test_times_that_a_stride_leaves_out_do_not_count(tmp_path):
    """Windows two steps apart, whose odd times are their own: every even step of a later one is a step of the first."""
    whole = simulation(20)
    fields = np.stack([whole[start : start + 9] for start in (0, 2, 4)])
    fields[:, 1::2] = np.stack([simulation(4, seed) for seed in (7, 8, 9)])
    np.save(tmp_path / "own.npy", fields)
    source = open_source(tmp_path / "own.npy")
    said = overlap_warning(source, split_source(source, config_of(tmp_path / "own.npy", time_stride=2)))
    assert said is not None
    assert "too good" in said


def test_equal_starts_beside_an_overlap_are_not_counted(tmp_path):
    """All trajectories begin with one field, so that their first steps begin alike and end differently."""
    fields = windows(simulation(SHIFT * 12 + LENGTH), 12)
    fields[:, 0] = simulation(1, 99)
    np.save(tmp_path / "own.npy", fields)
    source = open_source(tmp_path / "own.npy")
    parts = split_source(source, config_of(tmp_path / "own.npy"))
    steps = {name: [SHIFT * w + t for w in part.samples for t in range(1, LENGTH - 1)] for name, part in parts.items()}
    one, other = next(pair for pair in (("train", "reg"), ("train", "test")) if {*steps[pair[0]]} & {*steps[pair[1]]})
    shared = sum(step in steps[one] for step in steps[other])
    said = overlap_warning(source, parts)
    assert said is not None
    assert said.startswith(f"{shared} of the {len(parts[other].samples) * (LENGTH - 1)} steps of {other} ")


def test_all_steps_of_a_split_are_in_the_total(tmp_path):
    """A small spot that moves changes few of the values by which equal steps are found."""
    places, points = np.arange(LENGTH + SHIFT * 12), np.arange(97)
    whole = (np.abs(points - 2 * places[:, None] - 5) < 2).astype(np.float32)[:, None] * [[1.0], [2.0]]
    np.save(tmp_path / "own.npy", windows(whole.astype(np.float32), 12))
    source = open_source(tmp_path / "own.npy")
    parts = split_source(source, config_of(tmp_path / "own.npy"))
    said = overlap_warning(source, parts)
    assert said is not None
    found = re.match(r"at least (\d+) of the (\d+) steps of (\w+) are steps of (\w+)", said)
    assert found is not None
    count, total, other, one = found.groups()
    steps = {name: [SHIFT * w + t for w in part.samples for t in range(LENGTH - 1)] for name, part in parts.items()}
    assert int(total) == len(parts[other].samples) * (LENGTH - 1) == len(steps[other])
    assert 0 < int(count) < sum(step in steps[one] for step in steps[other])


def test_what_is_alike_and_no_overlap(tmp_path, capsys):
    """Equal starts, a state of rest that all come to, uniform fields, and steps of which some values agree."""
    fields = np.stack([simulation(LENGTH, seed) for seed in range(10)])
    fields[:, 0] = simulation(1, 99)
    fields[:, 4:] = simulation(1, 98)
    fields[:, 1, 0] = 0
    np.save(tmp_path / "rest.npy", fields)
    xr.load(tmp_path / "rest.npy")
    uniform = np.stack([simulation(LENGTH, seed) for seed in range(10)])
    uniform[:, 3:5] = np.arange(2).reshape(1, 2, 1, 1)
    np.save(tmp_path / "uniform.npy", uniform)
    xr.load(tmp_path / "uniform.npy")
    # Of 62 values 24 are looked at first: the others differ here.
    some = np.stack([simulation(LENGTH, seed) for seed in range(10)]).reshape(10, LENGTH, -1)
    places = np.linspace(0, some.shape[2] - 1, 24).round().astype(int)
    some[:, 2:4, places] = simulation(2, 97).reshape(2, -1)[:, places]
    np.save(tmp_path / "some.npy", some.reshape(fields.shape))
    xr.load(tmp_path / "some.npy")
    assert capsys.readouterr().err == ""


def test_gaps_and_signed_zeros_do_not_hide_an_overlap(tmp_path, capsys):
    whole = simulation(SHIFT * 12 + LENGTH)
    whole[:, 1, 5:9] = np.nan
    whole[:, 0, 0] = 0
    fields = windows(whole, 12)
    fields[::2, :, 0, 0] = -0.0
    np.save(tmp_path / "own.npy", fields)
    xr.load(tmp_path / "own.npy")
    assert "too good" in capsys.readouterr().err


def test_the_command_says_it(overlapping, tmp_path, capsys):
    assert main(["data", "check", str(overlapping), "--picture", str(tmp_path / "p.png")]) == 0
    assert "\nwarning: " in (said := capsys.readouterr().out)
    assert "give each split its own simulations, in folders train, reg and test" in said
