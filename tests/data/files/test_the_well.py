"""The layout of The Well: orders of tensors, fields that do not vary, split folders."""

import h5py
import numpy as np
import pytest

from crossreg.data.formats.open import open_source
from crossreg.errors import InputError
from made_fields import SPACE, TIMES, fields, read_all

GRID = SPACE[2]


def write(path, samples: int = 5, seed: int = 0, boundary: str = "PERIODIC") -> dict[str, np.ndarray]:
    """A file with a scalar, a vector, a symmetric and an antisymmetric matrix, and fields that do not vary."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32)

    whole = (samples, TIMES, *GRID)
    symmetric, antisymmetric = draw(*whole, 2, 2), draw(*whole, 2, 2)
    symmetric[..., 1, 0] = symmetric[..., 0, 1]
    antisymmetric[..., 1, 0] = -antisymmetric[..., 0, 1]
    arrays = {
        "t0_fields": {"buoyancy": draw(*whole), "depth": draw(GRID[0]), "height": draw(samples, *GRID)},
        "t1_fields": {"velocity": draw(*whole, 2)},
        "t2_fields": {"stress": symmetric, "spin": antisymmetric},
    }
    varying = {"depth": (False, False, (True, False)), "height": (True, False, (True, True))}
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["dataset_name"] = "made_up_flow"
        file.attrs["n_trajectories"] = samples
        file.attrs["n_spatial_dims"] = 2
        file.attrs["grid_type"] = "cartesian"
        file.attrs["simulation_parameters"] = ["Rayleigh"]
        file.attrs["Rayleigh"] = 1e6
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = ["x", "y"]
        for name, size in (("time", TIMES), ("x", GRID[0]), ("y", GRID[1])):
            dimensions[name] = np.arange(size, dtype=np.float32)
            dimensions[name].attrs["sample_varying"] = False
        wall = file.create_group("boundary_conditions/y_wall")
        wall.attrs["bc_type"], wall.attrs["associated_dims"] = boundary, ["y"]
        file.create_group("scalars").attrs["field_names"] = ["Rayleigh"]
        file["scalars/Rayleigh"] = 1e6
        for group, members in arrays.items():
            file.create_group(group).attrs["field_names"] = list(members)
            for name, values in members.items():
                item = file[group].create_dataset(name, data=values)  # pyright: ignore[reportAttributeAccessIssue]
                sample, time, dims = varying.get(name, (True, True, (True, True)))
                item.attrs["sample_varying"], item.attrs["time_varying"] = sample, time
                item.attrs["dim_varying"] = list(dims)
                item.attrs["symmetric"], item.attrs["antisymmetric"] = name == "stress", name == "spin"
    return {name: values for members in arrays.values() for name, values in members.items()}


def test_components_become_channels_and_redundant_ones_are_left_out(tmp_path):
    made = write(tmp_path / "u.hdf5")
    source = open_source(tmp_path / "u.hdf5")
    assert source.kind == "The Well (made_up_flow)"
    assert source.names == (
        "buoyancy", "velocity_x", "velocity_y", "stress_x_x", "stress_x_y", "stress_y_y", "spin_x_y",
    )  # fmt: skip
    assert source.notes == ("left out, since nothing of it changes in time: depth, height",)
    parts = [
        made["buoyancy"],
        *(made["velocity"][..., i] for i in range(2)),
        *(made["stress"][..., i, j] for i, j in ((0, 0), (0, 1), (1, 1))),
        made["spin"][..., 0, 1],
    ]
    np.testing.assert_array_equal(read_all(source), np.stack(parts, axis=2))


def test_a_matrix_with_its_components_in_one_axis(tmp_path):
    made = write(tmp_path / "u.hdf5")
    with h5py.File(tmp_path / "u.hdf5", "a") as file:
        attributes = dict(file["t2_fields/stress"].attrs)
        del file["t2_fields/stress"]
        file["t2_fields/stress"] = made["stress"].reshape(5, TIMES, *GRID, 4)
        file["t2_fields/stress"].attrs.update(attributes)
    source = open_source(tmp_path / "u.hdf5", field="stress")
    assert source.names == ("stress_x_x", "stress_x_y", "stress_y_y")
    np.testing.assert_array_equal(read_all(source)[:, :, 1], made["stress"][..., 0, 1])


def test_fields_that_do_not_vary_are_spread(tmp_path):
    made = write(tmp_path / "u.hdf5")
    source = open_source(tmp_path / "u.hdf5", field="buoyancy,depth,height")
    assert source.names == ("buoyancy", "depth", "height")
    found = read_all(source)
    shape = (5, TIMES, *GRID)
    np.testing.assert_array_equal(found[:, :, 0], made["buoyancy"])
    np.testing.assert_array_equal(found[:, :, 1], np.broadcast_to(made["depth"][:, None], shape))
    np.testing.assert_array_equal(found[:, :, 2], np.broadcast_to(made["height"][:, None], shape))


def test_an_axis_that_does_not_vary_may_be_there_with_length_one(tmp_path):
    """The description leaves it out, and the dataset's own loader repeats one of length 1."""
    made = write(tmp_path / "u.hdf5")
    with h5py.File(tmp_path / "u.hdf5", "a") as file:
        attributes = dict(file["t0_fields/depth"].attrs)
        del file["t0_fields/depth"]
        file["t0_fields/depth"] = made["depth"][:, None]
        file["t0_fields/depth"].attrs.update(attributes)
    found = read_all(open_source(tmp_path / "u.hdf5", field="buoyancy,depth"))
    np.testing.assert_array_equal(found[:, :, 0], made["buoyancy"])
    np.testing.assert_array_equal(found[:, :, 1], np.broadcast_to(made["depth"][:, None], (5, TIMES, *GRID)))


def test_a_vector_has_as_many_components_as_there_are_dimensions(tmp_path):
    made = write(tmp_path / "u.hdf5")
    with h5py.File(tmp_path / "u.hdf5", "a") as file:
        attributes = dict(file["t1_fields/velocity"].attrs)
        del file["t1_fields/velocity"]
        file["t1_fields/velocity"] = np.concatenate([made["velocity"], made["velocity"][..., :1]], axis=-1)
        file["t1_fields/velocity"].attrs.update(attributes)
    with pytest.raises(InputError, match=r"velocity: has shape .* expected 2 components in 2-D"):
        open_source(tmp_path / "u.hdf5")


@pytest.mark.parametrize("root", ["", "data"])
def test_split_folders(tmp_path, root):
    """valid is reg; a split may be in several files."""
    folder = tmp_path / root
    made = [
        write(folder / "train" / "a.hdf5", 3, 0),
        write(folder / "train" / "b.hdf5", 4, 1),
        write(folder / "valid" / "a.hdf5", 1, 2),
        write(folder / "test" / "a.hdf5", 2, 3),
    ]
    source = open_source(tmp_path, field="velocity")
    assert source.splits == {"train": range(0, 7), "reg": range(7, 8), "test": range(8, 10)}
    np.testing.assert_array_equal(
        read_all(source), np.moveaxis(np.concatenate([one["velocity"] for one in made]), -1, 2)
    )


def test_what_is_said_and_refused(tmp_path):
    write(tmp_path / "u.hdf5", boundary="WALL")
    assert "boundaries that are not periodic: WALL" in open_source(tmp_path / "u.hdf5").notes
    with pytest.raises(InputError, match=r"field is u: not in .*; it has buoyancy, depth, height, velocity"):
        open_source(tmp_path / "u.hdf5", field="u")
    with pytest.raises(InputError, match="none of depth varies in time"):
        open_source(tmp_path / "u.hdf5", field="depth")
    with h5py.File(tmp_path / "u.hdf5", "a") as file:
        file["t0_fields/buoyancy"].attrs["time_varying"] = False
    with pytest.raises(InputError, match=r"buoyancy: has shape \(5, 6, 12, 9\), but its attributes give the axes bxy"):
        open_source(tmp_path / "u.hdf5")
    (tmp_path / "train").mkdir()
    np.save(tmp_path / "train" / "u.npy", fields(1))
    with pytest.raises(InputError, match="has files for train, but none for reg and test"):
        open_source(tmp_path)
