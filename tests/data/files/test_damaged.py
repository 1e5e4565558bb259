"""Damaged files of every kind are read or refused in one line, never with another exception."""

import os

import h5py
import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.data.formats.open import open_source
from crossreg.errors import InputError
from made_fields import fields, read_all


def write_hdf5(path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("tensor", data=fields(1)[:, :, 0], chunks=(2, 3, 20), compression="gzip")
        file["t-coordinate"] = np.arange(7.0)


WRITERS = {
    "u.npy": lambda path: np.save(path, fields(1)),
    "u.npz": lambda path: np.savez_compressed(path, u=fields(1), mask=np.ones(20)),
    "u.h5": write_hdf5,
}


@pytest.mark.parametrize("name", WRITERS)
def test_any_damage_is_told_in_one_line(tmp_path, name):
    WRITERS[name](tmp_path / name)
    whole = np.frombuffer((tmp_path / name).read_bytes(), np.uint8)
    rng = np.random.default_rng(0)
    outcomes = set()
    for turn in range(60):
        content = whole.copy()
        if turn % 3 == 0:
            content = content[: rng.integers(0, len(content))]
        else:
            # Half of the damage where headers are.
            reach = min(len(content), 2000) if turn % 2 else len(content)
            content[rng.integers(0, reach, 5)] = rng.integers(0, 256, 5)
        damaged = tmp_path / f"{turn}{name}"
        damaged.write_bytes(content.tobytes())
        try:
            source = open_source(damaged)
            read_all(source)
            source.observed(0, slice(None))
            outcomes.add("read")
        except InputError as error:
            outcomes.add(str(error))
        damaged.unlink()
    assert outcomes - {"read"}
    assert not any("\n" in line for line in outcomes)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
@pytest.mark.parametrize("name", ["u.npy", "u.npz", "u.h5", "u.nc", "folder"])
def test_a_pipe_is_bad_input_and_nobody_waits_for_it(tmp_path, name, capsys):
    if name == "folder":
        (tmp_path / name).mkdir()
        os.mkfifo(tmp_path / name / "u.npy")
    else:
        os.mkfifo(tmp_path / name)
    for command in (["data", "check", str(tmp_path / name)], ["train", "--data", str(tmp_path / name)]):
        assert main([*command, *(["--out", str(tmp_path / "run")] if command[0] == "train" else [])]) == 2
        [said] = capsys.readouterr().err.splitlines()
        assert "neither a file nor a folder, but perhaps a pipe; write the data to a file first" in said


def test_names_in_files_cannot_steer_a_terminal(tmp_path, capsys):
    name = "\x1b[31mu\x07\r\nv"
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file[name] = fields(1)[:, :, 0]
    assert main(["data", "check", str(tmp_path / "u.h5"), "--axes", "btx", "--picture", str(tmp_path / "u.png")]) == 0
    said = capsys.readouterr().out
    assert "\N{REPLACEMENT CHARACTER}[31mu\N{REPLACEMENT CHARACTER} v" in said
    assert not {"\x1b", "\x07", "\r"} & set(said)
    # The name as it is in the file still chooses the field.
    assert (
        open_source(tmp_path / "u.h5", field=name, axes="btx").names == open_source(tmp_path / "u.h5", axes="btx").names
    )
