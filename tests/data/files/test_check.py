"""What `crossreg data check` warns of, what it writes, and data of which no pair can be learned from."""

import json

import numpy as np
import pytest

import crossreg as xr
from crossreg.cli.main import main


def _walks(*shape: int) -> np.ndarray:
    """Fields of no structure in space, of which each is near the one before it."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(shape[0], 1, *shape[2:])) + 0.2 * rng.normal(size=shape)


def _warnings_of(fields: np.ndarray, capsys, *options: str) -> list[str]:
    np.save("u.npy", fields)
    assert main(["data", "check", "u.npy", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["warnings"]


@pytest.mark.parametrize(
    ("offset", "scale", "said"),
    [
        (101325.0, 12.0, ""),  # float32 has steps of 0.008 there: a thousandth of the spread, and no more
        (101325.0, 3.0, "where float32 has steps of 0.008"),
        (0.0, 1e-36, "float32 loses digits below 1.2e-38"),
        (0.0, 1e-30, ""),
        (0.0, 1e18, ""),
    ],
)
def test_fields_that_float32_cannot_hold_are_warned_of(tmp_path, capsys, monkeypatch, offset, scale, said):
    monkeypatch.chdir(tmp_path)
    np.save("u.npy", offset + scale * _walks(50, 5, 1, 16))
    assert main(["data", "check", "u.npy", "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert len(warnings) == bool(said)
    assert said in "".join(warnings)


def test_exchanged_samples_and_times_are_warned_of(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fields = _walks(60, 7, 2, 20)
    assert _warnings_of(fields, capsys) == []
    said = _warnings_of(fields.swapaxes(0, 1), capsys, "--axes", "btcx")[0]
    assert "successive fields seem unrelated (a step changes a field by 1.4 of its spread)" in said


def test_channels_that_are_points_of_a_grid_are_warned_of(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walks = _walks(60, 7, 6, 20)
    assert _warnings_of(walks, capsys) == []
    assert _warnings_of(walks + 7 * np.arange(6).reshape(6, 1)[::-1], capsys) == []  # each about a value of its own
    grid = np.sin(2 * np.pi * (np.arange(16).reshape(16, 1) / 16 + np.arange(40) / 40) + walks[:, :, :1, :1])
    [said] = _warnings_of(grid, capsys)
    assert "the 16 channels differ as little from one to the next as points of a grid do (0.39 of their spread)" in said
    assert _warnings_of(grid, capsys, "--axes", "btcx") == []  # the user has said so

    for load in (lambda **own: xr.load("u.npy", **own), lambda **own: xr.load(grid, **own)):
        load()
        assert "the 16 channels differ as little from one to the next" in capsys.readouterr().err
        load(axes="btcx")
        assert capsys.readouterr().err == ""


def test_a_sweep_warns_once_of_channels_that_are_points_of_a_grid(tmp_path, capsys):
    points = np.arange(16).reshape(16, 1) / 16 + np.arange(40) / 40
    walks = _walks(60, 7, 1, 1)
    np.save(tmp_path / "u.npy", np.sin(2 * np.pi * points + walks))
    command = ["sweep", "scenario", "--data", str(tmp_path / "u.npy"), "--out", str(tmp_path / "out"), "--plan"]
    assert main([*command, "--methods", "xreg", "--seeds", "2"]) == 0
    assert capsys.readouterr().err.count("the 16 channels differ as little") == 1


def test_fields_below_what_float32_holds_are_refused():
    fields = _walks(20, 5, 2, 16)
    fields[:, :, 1] *= 1e-39
    with pytest.raises(xr.InputError, match=r"field\[1\] varies by 1.01e-39, and float32 holds nothing below 1.2e-38"):
        xr.load(fields)


@pytest.mark.parametrize(
    ("value", "share", "warned"),
    [(-9999.0, 0.0, True), (-9999.0, 0.01, True), (31.0, 0.0, False), (-5000.0, 0.01, False), (-5000.0, 0.0, True)],
)
def test_values_that_stand_for_missing_ones_are_warned_of(tmp_path, capsys, monkeypatch, value, share, warned):
    monkeypatch.chdir(tmp_path)
    fields = _walks(60, 7, 1, 40)
    fields.reshape(-1)[: max(1, int(share * fields.size))] = value
    said = [text for text in _warnings_of(fields, capsys) if "if it stands for a missing one, make it NaN" in text]
    assert bool(said) == warned
    assert all(f"field has a value of {value:.6g}, where" in text for text in said)


def test_no_command_is_given_that_would_be_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fields = _walks(60, 7, 2, 20)
    np.save("u.npy", fields)
    assert main(["data", "check", "u.npy"]) == 0
    assert "\ntrain: crossreg train --data u.npy" in capsys.readouterr().out
    fields[:, :, 1] = 3
    np.save("u.npy", fields)
    assert main(["data", "check", "u.npy"]) == 0
    assert "\ntrain:" not in (said := capsys.readouterr().out)
    assert "field[1] never changes: leave it out; if it does in the file, float32 is too coarse for it" in said


def test_the_share_of_observed_points_is_told_and_nothing_hidden_whole_is_trained_on(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fields, mask = _walks(60, 7, 2, 20), np.arange(20) < 13
    np.savez("u.npz", u=fields, mask=mask)
    assert main(["data", "check", "u.npz"]) == 0
    assert "observation mask: in the file; 65.0% of the points are observed" in (said := capsys.readouterr().out)
    assert "\ntrain:" in said
    np.savez("u.npz", u=fields, mask=np.zeros_like(mask))
    assert main(["data", "check", "u.npz"]) == 0
    assert "warning: the mask hides every point" in (said := capsys.readouterr().out)
    assert "\ntrain:" not in said


def test_a_picture_replaces_nothing_but_its_like(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("u.npy", _walks(60, 7, 1, 20))
    before = (tmp_path / "u.npy").read_bytes()
    assert main(["data", "check", "u.npy", "--picture", "u.npy"]) == 2
    assert "expected a name that ends in .png" in capsys.readouterr().err
    (tmp_path / "mine.png").write_bytes(b"mine")
    assert main(["data", "check", "u.npy", "--picture", "mine.png"]) == 2
    assert "exists already, and was not written by crossreg" in capsys.readouterr().err
    (tmp_path / "link.png").symlink_to(tmp_path / "u.npy")
    assert main(["data", "check", "u.npy", "--picture", "link.png"]) == 2
    assert (tmp_path / "mine.png").read_bytes() == b"mine"
    assert (tmp_path / "u.npy").read_bytes() == before
    for _ in range(2):  # its own it may
        assert main(["data", "check", "u.npy"]) == 0


def test_pairs_of_which_one_half_is_always_missing_are_refused(tmp_path, capsys, monkeypatch):
    """Every second time is missing: no pair has anything of an input and of its target."""
    monkeypatch.chdir(tmp_path)
    fields = _walks(20, 7, 2, 24)
    fields[:, 1::2] = np.nan
    np.save("u.npy", fields)
    assert main(["train", "--data", "u.npy", "--steps", "2", "--out", "run", "--quiet"]) == 2
    assert "no pair of train was measured: where something of an input is there" in capsys.readouterr().err
    fields[3, 5] = 1.0
    np.save("u.npy", fields)
    assert main(["train", "--data", "u.npy", "--steps", "2", "--out", "run", "--quiet"]) == 2
    assert "no pair of " in capsys.readouterr().err


def test_what_is_far_off_is_told_from_the_mean(tmp_path, capsys, monkeypatch):
    """Of pressures around 101325, −999 is the smallest number and the furthest from the others."""
    monkeypatch.chdir(tmp_path)
    fields = 101325 + 12 * _walks(60, 7, 1, 40)
    fields[3, 2, 0, 5] = -999.0
    assert any("field has a value of -999, where" in text for text in _warnings_of(fields, capsys))
