"""NetCDF and Zarr: dimensions by their names, missing values, masks."""

import builtins

import numpy as np
import pytest
from made_fields import fields, read_all

from crossreg.data.files.source import open_source
from crossreg.errors import InputError

xarray = pytest.importorskip("xarray")
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
    with pytest.raises(InputError, match=r"u: has the dimensions p, q, r, s; expected a time.*--axes"):
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


def test_refusals(tmp_path, monkeypatch):
    (tmp_path / "no.nc").write_bytes(b"nothing")
    (tmp_path / "no.zarr").mkdir()
    for name in ("no.nc", "no.zarr"):
        with pytest.raises(InputError, match=r"not readable by xarray|has no variable at its root") as raised:
            open_source(tmp_path / name)
        assert "\n" not in str(raised.value)
    xarray.Dataset({"u": (("time", "x"), np.zeros((6, 20)))}).to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"--field v: not in .*; it has u \(6, 20\)"):
        open_source(tmp_path / "u.nc", field="v")
    real = builtins.__import__

    def without_xarray(name, *arguments, **options):
        if name == "xarray":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_xarray)
    with pytest.raises(InputError, match=r"need the extra: pip install 'crossreg\[xarray\]'"):
        open_source(tmp_path / "u.nc")
