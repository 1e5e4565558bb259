"""Any HDF5 file."""

import h5py
import numpy as np
import pytest

from crossreg.data.formats.open import open_source
from crossreg.errors import InputError
from made_fields import fields, read_all


def test_a_nested_field_with_its_axes(tmp_path):
    u = fields(2)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_dataset("run/flow", data=np.moveaxis(u, 2, -1), chunks=(2, 1, 5, 4, 2), compression="gzip")
        file["run/x"] = np.arange(12.0)
    source = open_source(tmp_path / "u.h5", field="run/flow", axes="btxyc")
    assert source.names == ("run/flow[0]", "run/flow[1]")
    np.testing.assert_array_equal(read_all(source), u)


def test_the_only_one_that_fits_is_taken(tmp_path):
    u = fields(1)
    with h5py.File(tmp_path / "u.hdf5", "w") as file:
        file["u"], file["time"], file["name"], file["viscosity"] = u, np.arange(6.0), "some text", 0.01
    source = open_source(tmp_path / "u.hdf5")
    assert source.notes == ("the field is u",)
    np.testing.assert_array_equal(read_all(source), u)


def test_fields_side_by_side_with_a_mask_and_a_fill_value(tmp_path):
    u = fields(1)
    mask = np.random.default_rng(0).integers(0, 2, (6, 20))
    filled = u.astype(np.float64)
    filled[2, 1, 0, 3] = -9999
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["a"], file["b"], file["mask"] = filled[:, :, 0], u[:, :, 1], mask
        file["a"].attrs["_FillValue"] = np.array([-9999.0])
    source = open_source(tmp_path / "u.h5", field="a,b", axes="btx")
    found = read_all(source)
    assert np.argwhere(np.isnan(found)).tolist() == [[2, 1, 0, 3]]
    np.testing.assert_array_equal(np.nan_to_num(found), np.where(np.isnan(found), 0, u))
    np.testing.assert_array_equal(source.observed(4, slice(1, 3)), mask[1:3].astype(bool))


def test_refusals_list_what_is_there(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["a"], file["g/b"], file["text"] = np.zeros((5, 4, 20)), np.zeros((5, 4, 20)), "x"
        file["complex"] = np.zeros((5, 4, 1, 20), complex)
    said = r"`field=NAME` .*a \(5, 4, 20\), g/b \(5, 4, 20\)"
    for axes in (None, "btx"):
        with pytest.raises(InputError, match=said):
            open_source(tmp_path / "u.h5", axes=axes)
    with pytest.raises(InputError, match=r"complex: has type complex128; expected real numbers"):
        open_source(tmp_path / "u.h5", field="complex")
    (tmp_path / "no.h5").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a readable HDF5 file"):
        open_source(tmp_path / "no.h5")


def test_a_file_cut_short_is_refused_in_one_line(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_dataset("u", data=fields(1), chunks=(1, 1, 2, 20))
    content = (tmp_path / "u.h5").read_bytes()
    (tmp_path / "u.h5").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError) as raised:
        read_all(open_source(tmp_path / "u.h5"))
    assert "\n" not in str(raised.value)
