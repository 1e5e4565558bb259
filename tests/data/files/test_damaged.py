"""Damaged files of every kind are read or refused in one line, never with another exception."""

import h5py
import numpy as np
import pytest
from made_fields import fields, read_all

from crossreg.data.files.source import open_source
from crossreg.errors import InputError


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
