"""The layouts of PDEBench, quirks included."""

import h5py
import numpy as np
import pytest

from crossreg.data.formats.open import open_source
from crossreg.errors import InputError
from made_fields import SAMPLES, SPACE, TIMES, fields, read_all


def test_scalar_1d_with_one_time_more_than_fields(tmp_path):
    u = fields(1, channels=1)
    with h5py.File(tmp_path / "1D_Burgers_Sols_Nu0.1.hdf5", "w") as file:
        file["tensor"] = u[:, :, 0]
        file["t-coordinate"] = np.linspace(0, 2, TIMES + 1, dtype=np.float32)
        file["x-coordinate"] = np.linspace(0, 1, 20, dtype=np.float32)
    source = open_source(tmp_path / "1D_Burgers_Sols_Nu0.1.hdf5")
    assert (source.kind, source.names, source.notes) == ("PDEBench", ("tensor",), ())
    np.testing.assert_array_equal(read_all(source), u)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_compressible_flow(tmp_path, dims):
    names = ("density", "pressure", "Vx", "Vy", "Vz")[: 2 + dims]
    u = fields(dims, channels=len(names))
    with h5py.File(tmp_path / "cfd.hdf5", "w") as file:
        for i, name in enumerate(names):
            file[name] = u[:, :, i]
        file["t-coordinate"] = np.linspace(0, 1, TIMES + 1)
        for letter, size in zip("xyz", SPACE[dims], strict=False):
            file[f"{letter}-coordinate"] = np.arange(size) / size
    source = open_source(tmp_path / "cfd.hdf5")
    assert source.names == names
    np.testing.assert_array_equal(read_all(source), u)
    some = open_source(tmp_path / "cfd.hdf5", field="Vx,density")
    np.testing.assert_array_equal(read_all(some), u[:, :, [2, 0]])


@pytest.mark.parametrize(("dims", "channels"), [(1, 1), (2, 1), (2, 2)])
def test_one_group_per_seed(tmp_path, dims, channels):
    """Diffusion-sorption, shallow water, diffusion-reaction: channels last, trajectories in the order of the seeds."""
    u = fields(dims, channels=channels)
    with h5py.File(tmp_path / "2D_rdb_NA_NA.h5", "w") as file:
        file["normalisation/data"] = np.zeros((TIMES, 3))  # a group without a seed's number is no trajectory
        for i in range(SAMPLES):
            group = file.create_group(f"{i:04d}")
            group["data"] = np.moveaxis(u[i], 1, -1)
            group["grid/t"] = np.linspace(0, 1, TIMES)
            for letter, size in zip("xy", SPACE[dims], strict=False):
                group[f"grid/{letter}"] = np.arange(size) / size
            group.attrs["config"] = "seed: 1"
    source = open_source(tmp_path / "2D_rdb_NA_NA.h5")
    assert source.kind == "PDEBench, one group per seed"
    assert source.names == (("data",) if channels == 1 else ("data[0]", "data[1]"))
    np.testing.assert_array_equal(read_all(source), u)


def test_incompressible_flow_without_its_constant_force(tmp_path):
    u = fields(2, channels=3)
    with h5py.File(tmp_path / "ns_incom_inhom_2d_512-0.h5", "w") as file:
        file["velocity"] = np.moveaxis(u[:, :, :2], 2, -1)
        file["particles"] = np.moveaxis(u[:, :, 2:], 2, -1)
        file["force"] = np.zeros((SAMPLES, 12, 9, 2))
        file["t"] = np.tile(np.arange(TIMES), (SAMPLES, 1))
    source = open_source(tmp_path / "ns_incom_inhom_2d_512-0.h5")
    assert source.names == ("velocity[0]", "velocity[1]", "particles")
    np.testing.assert_array_equal(read_all(source), u)


def test_what_is_no_trajectory_or_uneven_is_told(tmp_path):
    with h5py.File(tmp_path / "2D_DarcyFlow.hdf5", "w") as file:
        file["tensor"], file["nu"] = np.zeros((5, 1, 12, 9)), np.zeros((5, 12, 9))
        file["x-coordinate"] = np.arange(12)
    with pytest.raises(InputError, match="has 1 time; expected at least two, for one step"):
        open_source(tmp_path / "2D_DarcyFlow.hdf5")
    with h5py.File(tmp_path / "uneven.hdf5", "w") as file:
        file["tensor"], file["t-coordinate"] = np.zeros((5, 6, 12)), np.arange(7.0) ** 2
    assert open_source(tmp_path / "uneven.hdf5").notes[0].startswith("its times are not evenly spaced")
    with h5py.File(tmp_path / "even.hdf5", "w") as file:  # no field belongs to the last time
        file["tensor"], file["t-coordinate"] = np.zeros((5, 6, 12)), np.r_[0:6.0, 50.0]
    assert open_source(tmp_path / "even.hdf5").notes == ()
    with pytest.raises(InputError, match=r"field is u: not in .*; it has t-coordinate \(7,\), tensor \(5, 6, 12\)"):
        open_source(tmp_path / "uneven.hdf5", field="u")


def test_seeds_of_other_shapes_are_refused(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["0000/data"], file["0001/data"] = np.zeros((6, 20, 1)), np.zeros((5, 20, 1))
    with pytest.raises(InputError, match=r"must have one shape, but there are .*0000/data: 6 t.*0001/data: 5 t"):
        open_source(tmp_path / "u.h5")


def test_a_mask_and_a_fill_value_beside_the_fields_are_not_lost(tmp_path):
    """PDEBench has neither; a user's file with the same names may."""
    u = fields(1)
    mask = np.random.default_rng(0).integers(0, 2, (6, 20))
    density = u[:, :, 0].copy()
    density[2, 1, 3] = -9999
    with h5py.File(tmp_path / "u.h5", "w") as file:
        for name, values in (("density", density), ("pressure", u[:, :, 1]), ("Vx", u[:, :, 0])):
            file[name] = values
        file["density"].attrs["_FillValue"] = -9999.0
        file["mask"] = mask
    source = open_source(tmp_path / "u.h5")
    assert np.argwhere(np.isnan(read_all(source))).tolist() == [[2, 1, 0, 3]]
    np.testing.assert_array_equal(source.observed(4, slice(1, 3)), mask[1:3].astype(bool))
