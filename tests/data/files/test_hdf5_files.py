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


def _labelled(file, name, values, dims):
    dataset = file.create_dataset(name, data=values)
    for axis, label in zip(dataset.dims, dims, strict=True):
        axis.label = label
    return dataset


def test_a_name_means_the_same_axis_in_every_field_and_in_the_mask(tmp_path):
    """On a square grid, no shape tells that one field has latitude first and another longitude."""
    u = fields(2, channels=2)[:, :, :, :9, :9]
    mask = np.random.default_rng(0).integers(0, 2, (9, 9))
    with h5py.File(tmp_path / "u.h5", "w") as file:
        _labelled(file, "a", u[:, :, 0], ("case", "time", "lat", "lon"))
        _labelled(file, "b", u[:, :, 1].swapaxes(2, 3), ("case", "time", "lon", "lat"))
        _labelled(file, "mask", mask.T, ("lon", "lat"))
    for axes in (None, "btxy"):
        source = open_source(tmp_path / "u.h5", field="a,b", axes=axes)
        np.testing.assert_array_equal(read_all(source), u)
        np.testing.assert_array_equal(source.observed(1, slice(2, 3))[0], mask.astype(bool))


def test_a_named_mask_of_other_sizes_is_refused(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        _labelled(file, "u", fields(1)[:, :, 0], ("case", "time", "x"))
        _labelled(file, "mask", np.ones((19, 6)), ("x", "time"))
    with pytest.raises(InputError, match=r"mask: has shape \(19, 6\); expected"):
        open_source(tmp_path / "u.h5")


def test_packed_numbers_are_unpacked_and_every_mark_of_a_missing_one_counts(tmp_path):
    stored = np.random.default_rng(0).integers(-900, 900, (3, 4, 1, 20)).astype(np.int16)
    stored[0, 1, 0, 2], stored[1, 2, 0, 3], stored[2, 3, 0, 4] = -999, -998, -997
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["u"] = stored
        file["u"].attrs.update({"scale_factor": 0.01, "add_offset": [273.15], "_FillValue": np.int16(-999)})
        file["u"].attrs["missing_value"] = np.array([-998.0, -997.0])
    source = open_source(tmp_path / "u.h5")
    found = read_all(source)
    assert np.argwhere(np.isnan(found)).tolist() == [[0, 1, 0, 2], [1, 2, 0, 3], [2, 3, 0, 4]]
    there = np.isfinite(found)
    np.testing.assert_allclose(found[there], (0.01 * stored + 273.15)[there], rtol=1e-6)
    assert source.notes == ("u: its numbers are packed, and unpacked by 0.01 · n + 273.15, as the file says",)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([0, 1, 2, 3, 10, 11], "not evenly spaced"),
        ([1000, 1001, 1002, 1003, 1004, 1006], "not evenly spaced"),
        ([5, 4, 3, 2, 1, 0], "run backwards"),
        ([0, 2, 4, 6, 8, 10], None),
    ],
)
def test_times_that_the_network_cannot_learn_from_are_told(tmp_path, times, said):
    u = fields(1)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["u"], file["time"] = u, np.asarray(times, float)
        file["v"] = u[:, :, 0]
        file["v"].attrs["dims"] = "case step x"
        file["step"] = np.asarray(times)
    np.savez(tmp_path / "u.npz", u=u, t=np.asarray(times, np.float32))
    asked = [("u.h5", "u", None), ("u.h5", "v", "btx"), ("u.npz", "u", None)]
    for name, field, axes in asked:
        notes = " ".join(open_source(tmp_path / name, field=field, axes=axes).notes)
        assert (said is None and "times" not in notes) or (said is not None and said in notes), name
