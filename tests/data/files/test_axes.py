"""Which axis is which: channels that cannot be channels, names in files, and grids that a run was not trained on."""

import json
from typing import Any

import h5py
import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.data.formats.axes import named_axes
from crossreg.data.formats.open import open_source
from crossreg.errors import InputError
from crossreg.runs.run_folder import load_run
from crossreg.runs.safeguards.manifest import vouch
from made_fields import fields, read_all

SMALL = "--width 4 --num-blocks 1 --num-modes 3 --steps 2 --evaluate-every 2 --batch-size 3 --num-samples 2 --quiet"


@pytest.mark.parametrize(
    ("shape", "axes", "meant", "would_be"),
    [
        (
            (5, 3, 48, 64),
            "btcx",
            "btxy",
            "48 channels on 64 points; write `axes='btxy'` if the grid has 48 × 64 points",
        ),
        ((5, 3, 17, 64), "btcx", "btxy", "17 channels on 64 points"),
        ((5, 3, 12, 9), "btcx", "btxy", "12 channels on 9 points"),
        ((5, 3, 5, 9), "btcx", "btxy", "5 channels on 9 points"),
        ((5, 3, 64, 2), "btcx", "btxc", "64 channels on 2 points; write `axes='btxc'` if the grid has 64 points"),
        (
            (5, 3, 48, 64, 3),
            "btcxy",
            "btxyc",
            "48 channels on 64 × 3 points; write `axes='btxyc'` if the grid has 48 × 64",
        ),
        ((5, 3, 18, 20, 24), "btcxy", "btxyz", "18 channels on 20 × 24 points"),
        ((5, 3, 6, 9, 20), "btcxy", "btxyz", "6 channels on 9 × 20 points"),
        ((5, 3, 6, 7, 8, 2), "btcxyz", "btxyzc", "6 channels on 7 × 8 × 2 points"),
    ],
)
def test_an_axis_that_is_too_large_for_channels_is_asked_about(tmp_path, shape, axes, meant, would_be):
    """The answer that the line proposes is taken, and so is the default where it is asked for."""
    np.save(tmp_path / "u.npy", np.zeros(shape))
    with pytest.raises(InputError) as raised:
        open_source(tmp_path / "u.npy")
    assert f"has shape {shape}, which would be {would_be}" in str(raised.value)
    assert f"or `axes='{axes}'` if they are channels" in str(raised.value)
    sizes = dict(zip(meant, shape, strict=True))
    found = open_source(tmp_path / "u.npy", axes=meant)
    space = tuple(sizes[letter] for letter in "xyz" if letter in sizes)
    assert found.shape == (5, 3, sizes.get("c", 1), *space)
    if min(shape[3:]) >= 4:
        assert open_source(tmp_path / "u.npy", axes=axes).shape == shape


@pytest.mark.parametrize("shape", [(5, 3, 4, 6), (5, 3, 16, 32), (5, 3, 5, 10, 11), (5, 3, 4, 4, 5, 6)])
def test_few_channels_are_channels(tmp_path, shape):
    np.save(tmp_path / "u.npy", np.zeros(shape))
    assert open_source(tmp_path / "u.npy").shape == shape


def older_run(data, out, *flags: str) -> dict:
    """A run as versions before this one stored it, which guessed that channels stand before space, whatever their size.

    Returns the scores that it was stored with.
    """
    assert main(["train", "--data", str(data), *SMALL.split(), *flags, "--out", str(out)]) == 0
    config, stored = ((out / name).read_text() for name in ("config.yaml", "fields.json"))
    said = flags[flags.index("--axes") + 1]
    assert f"axes: {said}\n" in config
    (out / "config.yaml").write_text(config.replace(f"axes: {said}\n", "axes: null\n"))
    stored = {name: value for name, value in json.loads(stored).items() if name not in ("axes", "identity")}
    (out / "fields.json").write_text(json.dumps(stored))
    vouch(out, "config.yaml", "fields.json")
    return json.loads((out / "metrics.json").read_text())


def write_hdf5(path, array: np.ndarray, name: str = "u") -> None:
    with h5py.File(path, "w") as file:
        file[name] = array


def write_labelled(path, array: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        write_named(file, array, ["sample", "time", "lat", "lon"], "labels")


def write_seeds(path, array: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        for number, one in enumerate(np.moveaxis(array, 2, -1)):
            file[f"{number:04}/data"] = one
            file[f"{number:04}/grid/x"] = np.arange(array.shape[-1])


@pytest.mark.parametrize(
    ("name", "write"),
    [("u.npy", np.save), ("u.h5", write_hdf5), ("u.h5", write_labelled)],
    ids=["npy", "hdf5", "labels"],
)
def test_the_fields_of_a_stored_run_are_not_guessed_at_again(tmp_path, capsys, name, write):
    """Twenty channels that nobody named by --axes, which an earlier version took for channels."""
    u = fields(1, channels=20, samples=8)[..., :13]
    write(tmp_path / name, u)
    metrics = older_run(tmp_path / name, tmp_path / "run", "--axes", "btcx")
    run = load_run(tmp_path / "run")
    assert (run.config.data.axes, run.axes, run.channels, run.space) == (None, "", 20, (13,))
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    np.testing.assert_allclose(again["test"]["nll"], metrics["test"]["nll"], rtol=1e-5)
    np.testing.assert_array_equal(read_all(open_source(tmp_path / name, stored=(20, 13))), u)


@pytest.mark.parametrize("write", [write_hdf5, write_seeds])
def test_a_stored_run_of_another_shape_decides_nothing(tmp_path, write):
    u = fields(1, channels=20, samples=8)[..., :13]
    write(tmp_path / "u.h5", u)
    assert open_source(tmp_path / "u.h5", stored=(20, 13)).shape == u.shape
    for stored in (None, (20, 14), (1, 20, 13), (19, 13)):
        with pytest.raises(InputError, match="20 channels on 13 points"):
            open_source(tmp_path / "u.h5", stored=stored)


def test_names_of_a_file_win_where_they_give_the_grid_of_a_stored_run(tmp_path):
    """On as many points as there are channels the default would fit too."""
    u = fields(1, channels=20, samples=8)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        write_named(file, u, ["sample", "time", "x", "channel"], "labels")
    read = read_all(open_source(tmp_path / "u.h5", stored=(20, 20)))
    np.testing.assert_array_equal(read, np.moveaxis(u, 2, 3))


def test_coordinates_along_more_axes_than_the_default_has(tmp_path):
    u = fields(2)[:, :, 0, :4]  # so few points that they could be channels
    given: list[dict[str, Any]] = [
        {"x": np.arange(4.0), "y": np.arange(9.0)},
        {"x-coordinate": u[0, 0, :, 0], "Y": u[0, 0, 0]},
    ]
    for coordinates in given:
        np.savez(tmp_path / "u.npz", u=u, **coordinates)
        with h5py.File(tmp_path / "u.h5", "w") as file:
            for name, values in {"u": u, **coordinates}.items():
                file[f"grid/{name}"] = values
        for name in ("u.npz", "u.h5"):
            with pytest.raises(InputError, match=r"4 channels on 9 points; write `axes='btxy'` if the grid has 4 × 9"):
                open_source(tmp_path / name)
    np.savez(tmp_path / "u.npz", u=u, x=np.arange(9.0), y=np.float64(3))  # a number is no axis
    assert open_source(tmp_path / "u.npz").shape == (11, 6, 4, 9)


def write_named(file: h5py.File, array: np.ndarray, names: list[str], how: str) -> None:
    dataset = file.create_dataset("u", data=array)
    if how == "scales":
        for axis, name in enumerate(names):
            scale = file.create_dataset(name, data=np.arange(array.shape[axis], dtype=float))
            scale.make_scale("any title")
            dataset.dims[axis].attach_scale(scale)
    elif how == "labels":
        for axis, name in enumerate(names):
            dataset.dims[axis].label = name
    elif how == "text":
        dataset.attrs["dims"] = ", ".join(names)
    elif how == "bytes":
        dataset.attrs["axes"] = np.array(names, "S")
    else:
        dataset.attrs[how] = names


@pytest.mark.parametrize("how", ["scales", "labels", "text", "bytes", "_ARRAY_DIMENSIONS", "dimensions"])
def test_the_names_of_an_hdf5_file_are_used(tmp_path, how):
    u = fields(2, channels=1)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        write_named(file, u[:, :, 0].transpose(1, 0, 3, 2), ["Time", "samples", "y", "x"], how)
        file["other"] = np.zeros((3, 4, 5))
    source = open_source(tmp_path / "u.h5")
    assert "u: axes tbyx, by the names in the file" in source.notes
    assert source.axes == "tbyx"
    np.testing.assert_array_equal(read_all(source), u)
    # --axes wins over names.
    turned = open_source(tmp_path / "u.h5", field="u", axes="btxy")
    np.testing.assert_array_equal(read_all(turned), u.transpose(1, 0, 2, 4, 3))


def test_letters_as_names_and_names_that_say_too_little(tmp_path):
    u = fields(2, channels=1)[:, :, 0]
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["u"] = u
        file["u"].attrs["axes"] = "btyx"
    assert open_source(tmp_path / "u.h5").space == (9, 12)
    with h5py.File(tmp_path / "u.h5", "a") as file:
        file["u"].attrs["axes"] = ["n", "time", "row", "column"]
    with pytest.raises(InputError, match=r"u: has the dimensions n, time, row, column; .*`axes`"):
        open_source(tmp_path / "u.h5")
    with h5py.File(tmp_path / "u.h5", "a") as file:
        for other in ([0, 1, 2, 3], ["time", "x"], "wavy"):  # nothing that names four axes
            file["u"].attrs["axes"] = other
            with pytest.raises(InputError, match="12 channels on 9 points"):
                open_source(tmp_path / "u.h5")


@pytest.mark.parametrize(
    ("names", "letters"),
    [
        ("member time lat lon", "btxy"),
        ("lat lon time", "xyt"),
        ("times y x channels", "tyxc"),
        ("x time y", "xty"),
        ("trajectories step z y x", "btzyx"),
        ("run_id time x", None),  # not x and y, with one trajectory
        ("n time lat lon", None),
        ("time x x2 y z", None),
        ("sample x", None),
        ("time y", None),
        ("time time x", None),
    ],
)
def test_letters_of_names(names, letters):
    if letters is None:
        with pytest.raises(InputError, match="name them with `axes`"):
            named_axes(names.split(), "u.nc")
    else:
        assert named_axes(names.split(), "u.nc") == letters


@pytest.mark.parametrize("command", ["check", "train"])
def test_no_command_reads_a_plane_as_channels(tmp_path, capsys, command):
    np.save(tmp_path / "u.npy", fields(2, channels=1)[:, :, 0])
    data, out = str(tmp_path / "u.npy"), str(tmp_path / "out")
    commands = {
        "check": ["data", "check", data, "--picture", f"{out}.png"],
        "train": ["train", "--data", data, "--out", out, *SMALL.split()],
    }
    assert main(commands[command]) == 2
    said = capsys.readouterr().err
    assert "12 channels on 9 points; write --axes btxy if the grid has 12 × 9 points" in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["u.npy"]


def test_prediction_is_on_the_grid_of_the_run(tmp_path, capsys):
    u = fields(2, channels=1)[:, :, 0]
    np.save(tmp_path / "u.npy", u.swapaxes(2, 3))
    run = tmp_path / "run"
    assert main(["train", "--data", str(tmp_path / "u.npy"), "--axes", "btyx", "--out", str(run), *SMALL.split()]) == 0
    stored = json.loads((run / "fields.json").read_text())
    assert (stored["axes"], stored["space"]) == ("btyx", [12, 9])

    def predict(x, *flags) -> tuple[int, str]:
        np.save(tmp_path / "x.npy", x)
        capsys.readouterr()
        code = main(["predict", str(run), "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "p"), *flags])
        return code, capsys.readouterr().err

    for flags in ((), ("--no-mask",)):
        code, said = predict(u[:3, :1].swapaxes(2, 3), *flags)  # as the file has it
        assert code == 2
        assert "has fields of 9 × 12 points; the run was trained on 12 × 9 (x 12, y 9); its axes may be" in said
        code, finer = predict(np.zeros((3, 1, 24, 18)), *flags)
        assert code == 2
        assert "24 × 18 points; the run was trained on 12 × 9 (x 12, y 9)\n" in finer
        assert "mask" not in said + finer
    # The order can be wrong on a square grid too, where no shape says so.
    code, said = predict(u[:3, :1])
    assert code == 0
    assert "file has the axes btyx; the input is read as (batch, channel, x, y), not in the order y, x" in said


def test_a_file_of_seeds_without_channels(tmp_path):
    """Groups 0000, 0001, … are PDEBench's (t, *space, c); a plane in each of them is not."""
    with h5py.File(tmp_path / "u.h5", "w") as file:
        for seed, plane in enumerate(fields(2, channels=1)[:, :, 0]):
            file[f"{seed:04d}/data"] = plane
    with pytest.raises(InputError, match=r"0000/data: has shape \(6, 12, 9\), which would be 9 channels on 12 points"):
        open_source(tmp_path / "u.h5")
