"""NetCDF and Zarr: dimensions by their names, missing values, masks."""

import builtins

import h5py
import numpy as np
import pytest
from scipy.io import netcdf_file

from crossreg.data.formats.open import open_source
from crossreg.errors import InputError
from made_fields import fields, read_all

xarray, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
WRITERS = {
    "u.nc": lambda data, path: data.to_netcdf(path, engine="h5netcdf"),
    "u.zarr": lambda data, path: data.to_zarr(path, consolidated=False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_dimensions_by_name_in_any_order(tmp_path, name):
    u = fields(2, channels=2)
    data = xarray.Dataset(
        {
            "wind": (("time", "lat", "lon", "member"), u[:, :, 0].transpose(1, 2, 3, 0)),
            "heat": (("member", "time", "lat", "lon"), u[:, :, 1]),
            "land": (("lat", "lon"), np.ones((12, 9))),
        },
        coords={"time": np.arange(6.0), "lat": np.linspace(-90, 90, 12)},
    )
    data["time"].attrs["units"] = "days since 2000-01-01"
    WRITERS[name](data, tmp_path / name)
    source = open_source(tmp_path / name)
    assert source.names == ("heat", "wind")
    assert source.notes == ("the fields are heat, wind",)
    np.testing.assert_array_equal(read_all(source), u[:, :, ::-1])
    np.testing.assert_array_equal(read_all(open_source(tmp_path / name, field="heat")), u[:, :, 1:])


@pytest.mark.parametrize("name", WRITERS)
def test_variables_with_their_axes_in_another_order_on_a_square_grid(tmp_path, name):
    u = fields(2, channels=2)[:, :, :, :9, :9]
    data = xarray.Dataset(
        {
            "heat": (("member", "time", "lat", "lon"), u[:, :, 0]),
            "wind": (("member", "time", "lon", "lat"), u[:, :, 1].swapaxes(2, 3)),
        },
        coords={"time": np.arange(6.0)[::-1]},
    )
    WRITERS[name](data, tmp_path / name)
    source = open_source(tmp_path / name)
    np.testing.assert_array_equal(read_all(source), u)
    assert "its times run backwards: what is learned is the step to the field before" in source.notes


@pytest.mark.parametrize("name", WRITERS)
def test_packed_numbers_with_missing_ones_and_a_mask(tmp_path, name):
    """Numbers stored as int16 with a scale come back, a fill value as NaN."""
    u = np.round(fields(1, channels=1), 2)
    u[3, 2, 0, 7] = np.nan
    mask = np.random.default_rng(0).integers(0, 2, (20, 6)).astype(np.int8)
    data = xarray.Dataset({"u": (("sample", "time", "x"), u[:, :, 0]), "mask": (("x", "time"), mask)})
    data["u"].encoding = {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -9999}
    WRITERS[name](data, tmp_path / name)
    source = open_source(tmp_path / name)
    found = read_all(source)
    np.testing.assert_allclose(found, u, atol=1e-6)
    assert np.argwhere(np.isnan(found)).tolist() == [[3, 2, 0, 7]]
    np.testing.assert_array_equal(source.observed(4, slice(1, 4)), mask.T[1:4].astype(bool))


def test_axes_for_names_that_say_nothing(tmp_path):
    u = fields(1)
    data = xarray.Dataset({"u": (("p", "q", "r", "s"), np.moveaxis(u, 2, 3))})
    data.to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"u: has the dimensions p, q, r, s; expected time.*`axes`"):
        open_source(tmp_path / "u.nc")
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "u.nc", axes="btxc")), u)


def test_y_before_x_and_one_trajectory(tmp_path):
    u = fields(2, channels=1)[2:3]
    data = xarray.Dataset({"u": (("time", "y", "x"), u[0, :, 0].transpose(0, 2, 1))})
    data.to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "u.nc")), u)


def test_classic_netcdf(tmp_path):
    u = fields(1, channels=1)
    xarray.Dataset({"u": (("run", "time", "x"), u[:, :, 0])}).to_netcdf(tmp_path / "u.nc", engine="scipy")
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "u.nc")), u)


FILL = np.float32(9.969209968386869e36)  # NC_FILL_FLOAT


def test_what_a_netcdf_file_never_wrote_is_a_gap(tmp_path):
    """As the NetCDF library writes it: the default fill value in the dataset, and no attribute that names it."""
    u = fields(1, channels=1)[:, :, 0]
    sizes = dict(zip(("sample", "time", "x"), u.shape, strict=True))
    with h5py.File(tmp_path / "u.nc", "w") as file:
        for name, size in sizes.items():
            file.create_dataset(name, data=np.arange(size, dtype=float)).make_scale(name)
        data = file.create_dataset("u", u.shape, "f4", chunks=(1, *u.shape[1:]), fillvalue=FILL)
        for axis, name in enumerate(sizes):
            data.dims[axis].attach_scale(file[name])
        data[:7] = u[:7]
    found = read_all(open_source(tmp_path / "u.nc"))[:, :, 0]
    np.testing.assert_array_equal(found[:7], u[:7])
    assert np.isnan(found[7:]).all()


@pytest.mark.parametrize(
    ("dtype", "fill"), [("f4", FILL), ("f8", 9.969209968386869e36), ("i2", -32767), ("i4", -2147483647)]
)
def test_default_fill_values_of_classic_netcdf(tmp_path, dtype, fill):
    u = np.round(50 * fields(1, channels=1)[:, :, 0]).astype(dtype)
    u[2, 1, 4] = fill
    u[0, 0, 0] = 0
    with netcdf_file(tmp_path / "u.nc", "w") as file:
        for name, size in zip(("sample", "time", "x"), u.shape, strict=True):
            file.createDimension(name, size)
        variable = file.createVariable("u", dtype, ("sample", "time", "x"))
        variable[:] = u
        variable.scale_factor = 0.5
    found = read_all(open_source(tmp_path / "u.nc"))[:, :, 0]
    assert np.argwhere(np.isnan(found)).tolist() == [[2, 1, 4]]
    there = np.isfinite(found)
    np.testing.assert_allclose(found[there], 0.5 * u[there], rtol=1e-6)


def test_bytes_have_no_default_fill_value_and_a_named_one_is_the_only_one(tmp_path):
    u = np.random.default_rng(0).integers(-128, 128, (3, 5, 6)).astype("i1")
    u[1, 2, 3] = -127
    v = u.astype("f4")
    v[0, 0, 0], v[0, 0, 1] = FILL, -5.5
    with netcdf_file(tmp_path / "u.nc", "w") as file:
        for name, size in zip(("sample", "time", "x"), u.shape, strict=True):
            file.createDimension(name, size)
        file.createVariable("u", "i1", ("sample", "time", "x"))[:] = u
        named = file.createVariable("v", "f4", ("sample", "time", "x"))
        named[:] = v
        named._FillValue = np.float32(-5.5)
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "u.nc", field="u"))[:, :, 0], u)
    found = read_all(open_source(tmp_path / "u.nc", field="v"))[:, :, 0]
    assert np.argwhere(np.isnan(found)).tolist() == [[0, 0, 1]]
    assert found[0, 0, 0] == FILL


@pytest.mark.parametrize("version", [2, 3])
def test_zeros_of_a_zarr_store_are_values_unless_it_says_otherwise(tmp_path, version):
    """0 is what zarr fills arrays with if nobody says anything."""
    u = np.round(fields(1, channels=1)[:, :, 0])
    assert (u == 0).any()
    group = zarr.open_group(tmp_path / "u.zarr", mode="w", zarr_format=version)
    names = ["sample", "time", "x"]
    for name in ("chosen", "plain"):
        own = {"dimension_names": names} if version == 3 else {}
        array = group.create_array(name, shape=u.shape, dtype="f4", chunks=(1, *u.shape[1:]), fill_value=0, **own)
        array[:] = u
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = names
            if name == "chosen":
                array.attrs["_FillValue"] = 0.0
    plain = open_source(tmp_path / "u.zarr", field="plain")
    np.testing.assert_array_equal(read_all(plain)[:, :, 0], u)
    assert [note.split(":")[0] for note in plain.notes] == (["plain"] if version == 2 else [])
    if version == 2:
        chosen = open_source(tmp_path / "u.zarr", field="chosen")
        np.testing.assert_array_equal(np.isnan(read_all(chosen)[:, :, 0]), u == 0)
        assert chosen.notes == ()


def test_other_fill_values_of_a_zarr_store_are_gaps(tmp_path):
    u = fields(1, channels=1)[:, :, 0]
    group = zarr.open_group(tmp_path / "u.zarr", mode="w", zarr_format=2)
    array = group.create_array("u", shape=u.shape, dtype="f4", chunks=(1, *u.shape[1:]), fill_value=-9999.0)
    array.attrs["_ARRAY_DIMENSIONS"] = ["sample", "time", "x"]
    array[:9] = u[:9]
    found = read_all(open_source(tmp_path / "u.zarr"))[:, :, 0]
    np.testing.assert_array_equal(found[:9], u[:9])
    assert np.isnan(found[9:]).all()


def test_refusals(tmp_path, monkeypatch):
    (tmp_path / "no.nc").write_bytes(b"nothing")
    (tmp_path / "no.zarr").mkdir()
    for name in ("no.nc", "no.zarr"):
        with pytest.raises(InputError, match=r"not readable by xarray|has no variable at its root") as raised:
            open_source(tmp_path / name)
        assert "\n" not in str(raised.value)
    xarray.Dataset({"u": (("time", "x"), np.zeros((6, 20)))}).to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"field is v: not in .*; it has u \(6, 20\)"):
        open_source(tmp_path / "u.nc", field="v")
    real = builtins.__import__

    def without_xarray(name, *arguments, **options):
        if name == "xarray":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_xarray)
    with pytest.raises(InputError, match=r"need the extra: pip install 'crossreg\[xarray\]'"):
        open_source(tmp_path / "u.nc")
