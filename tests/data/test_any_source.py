"""One loader for scenarios, files and arrays: arrays are divided, observed and hashed like the same data in files."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import crossreg as xr
from crossreg.config import DataConfig
from crossreg.data.dataset import Data
from crossreg.data.files.streamed import StreamedPairs
from crossreg.data.load import load_config
from crossreg.errors import InputError


@pytest.fixture
def fields() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(10, 5, 2, 12)).astype(np.float32)


def assert_same(one: Data, other: Data) -> None:
    assert one.digest == other.digest
    assert (one.names, one.axes) == (other.names, other.axes)
    for name in ("train", "reg", "test"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert ours.units == theirs.units
        np.testing.assert_array_equal(ours.trajectories, theirs.trajectories)
        np.testing.assert_array_equal(ours.masks, theirs.masks)
        batch, expected = (p.gather(jnp.arange(int(p.num_pairs))) for p in (ours, theirs))
        for a, b in zip(batch[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"train_size": 3, "reg_size": 2, "test_size": 4, "split_seed": 5},
        {"split": "time", "train_size": 1, "reg_size": 0, "test_size": 1},
        {"observed_fraction": 0.5, "mask_per": "pair", "mask_channel": True, "train_horizon": 2},
    ],
)
@pytest.mark.parametrize("as_array", [np.asarray, jnp.asarray])
def test_an_array_is_what_its_file_is(tmp_path, fields, settings, as_array):
    if settings.get("split") == "time":
        fields = np.random.default_rng(1).normal(size=(3, 9, 2, 12)).astype(np.float32)
    np.save(tmp_path / "u.npy", fields)
    ours, theirs = xr.load(as_array(fields), **settings), xr.load(tmp_path / "u.npy", **settings)
    assert_same(ours, theirs)
    sizes = ("train_size", "reg_size", "test_size", "train_horizon", "test_horizon")
    assert [getattr(ours.config, name) for name in sizes] == [getattr(theirs.config, name) for name in sizes]


def test_axes_and_gaps_of_an_array_are_those_of_its_file(tmp_path, fields):
    fields[2, 1, 0, 3] = np.nan
    turned = np.moveaxis(fields, 2, 3)
    np.save(tmp_path / "u.npy", turned)
    data = xr.load(turned, axes="btxc")
    assert_same(data, xr.load(str(tmp_path / "u.npy"), axes="btxc"))
    assert data.axes == "btxc"
    plain = xr.load(fields)
    np.testing.assert_array_equal(plain.train.trajectories, data.train.trajectories)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_what_a_masked_array_masks_is_missing(fields, dtype):
    fields = (100 * fields).astype(dtype)
    hidden = np.random.default_rng(1).random(fields.shape) < 0.2
    wanted = np.where(hidden, np.nan, fields)
    found = xr.load(np.ma.masked_array(np.where(hidden, 999, fields), mask=hidden))
    assert_same(found, xr.load(wanted.astype(found.train.trajectories.dtype)))
    assert found.train.has_gaps
    splits = {"train": slice(0, 5), "reg": slice(5, 8), "test": slice(8, 10)}
    masked = np.ma.masked_array(fields, mask=hidden)
    parts = xr.load({name: masked[own] for name, own in splits.items()})
    np.testing.assert_array_equal(parts.reg.trajectories, wanted[5:8].astype(np.float32))
    assert not xr.load(np.ma.masked_array(fields)).train.has_gaps


@pytest.mark.parametrize(("offset", "is_said"), [(101325.0, False), (1e7, True)])
def test_fields_too_coarse_in_float32_are_warned_of_where_they_are_loaded(fields, offset, is_said, capsys):
    xr.load(12 * fields.astype(np.float64) + [[offset], [0.0]])
    said = capsys.readouterr().err
    assert ("field[0] varies by 11.1 around values of 1e+07, where float32 has steps of 1: subtract" in said) == is_said
    assert bool(said) == is_said


def test_arrays_of_splits_are_what_their_folders_are(tmp_path, fields):
    parts = {"train": fields[:6], "reg": fields[6:8], "test": fields[8:]}
    for name, part in parts.items():
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "u.npy", part)
    data = xr.load(dict(reversed(parts.items())))
    assert_same(data, xr.load(tmp_path))
    np.testing.assert_array_equal(data.reg.trajectories, fields[6:8])


def test_a_list_of_files_is_what_their_folder_is(tmp_path, fields):
    for name, part in (("a", fields[:6]), ("b", fields[6:])):
        np.save(tmp_path / f"{name}.npy", part)
    files = [tmp_path / "a.npy", str(tmp_path / "b.npy")]
    assert_same(xr.load(files), xr.load(tmp_path))
    assert xr.load(files[::-1]).digest != xr.load(files).digest


def test_a_large_array_stays_where_it_is_and_gives_the_same_pairs(fields):
    there, streamed = xr.load(fields), xr.load(fields, in_memory_gib=0.0)
    assert isinstance(streamed.train, StreamedPairs)
    numbers = np.array([3, 0, 7])
    ours, theirs = streamed.train.hold(numbers).gather(jnp.asarray(numbers)), there.train.gather(jnp.asarray(numbers))
    np.testing.assert_array_equal(ours.x, theirs.x)
    np.testing.assert_array_equal(ours.y, theirs.y)


def test_what_is_loaded_is_a_copy(fields):
    data = xr.load(fields)
    before = np.asarray(data.train.trajectories)
    fields[:] = 0
    np.testing.assert_array_equal(data.train.trajectories, before)


def test_a_name_is_a_scenario_and_a_path_a_file(cached_waves, tiny, tmp_path, monkeypatch, fields):
    monkeypatch.chdir(tmp_path)
    np.save("u.npy", fields)
    (tmp_path / "u.npy").rename("diff_ks")  # a file that is called like a scenario
    sizes = {"train_size": 7, "reg_size": 6, "test_size": 4}
    scenario = {name: getattr(tiny.data, name) for name in ("train_horizon", "test_horizon")} | sizes
    found = xr.load(tiny.data.scenario, **scenario)
    assert found.digest == cached_waves.digest
    with pytest.raises(InputError, match="unknown kind of file"):
        xr.load(tmp_path / "diff_ks")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("diff_sk", "diff_sk: neither one of APEBench's scenarios nor a file or folder; did you mean .*diff_ks"),
        ("flow", "flow: neither .*; did you mean .*flow.npz"),
        ("flw.npz", "flw.npz: neither .*; did you mean flow.npz"),
        ("nowhere/u.npy", "nowhere/u.npy: neither one of APEBench's scenarios nor a file or folder"),
        (["flow.npz", "missing.npy"], "data missing.npy: no such file"),
        ({"train": np.zeros((3, 4, 1, 8))}, "data: has arrays for train; expected train, reg and test"),
        (np.zeros((3, 4)), "array: has 2 axes; expected .*name them with `axes`"),
        (np.zeros((3, 4, 1, 8), complex), "has type complex128; expected real numbers"),
        (7, "source: expected the name of a scenario, .* not a int"),
        ([], "source: expected the name of a scenario, .* not a list"),
    ],
)
def test_what_is_no_source_is_refused_and_near_matches_are_named(tmp_path, monkeypatch, source, said):
    pytest.importorskip("apebench")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path / "cache"))
    np.savez("flow.npz", u=np.zeros((5, 4, 1, 8)))
    with pytest.raises(InputError, match=said):
        xr.load(source)


def test_a_field_is_of_a_file_not_of_an_array(fields):
    with pytest.raises(InputError, match=re.escape("field is u: names an array of a file")):
        xr.load(fields, field="u")


def test_older_loaders_warn_and_load_the_same(tmp_path, fields):
    np.save(tmp_path / "u.npy", fields)
    with pytest.warns(DeprecationWarning, match="load_file") as found:
        assert_same(xr.load_file(tmp_path / "u.npy"), xr.load(tmp_path / "u.npy"))
    assert len(found) == 1
    config = DataConfig(
        data=str(tmp_path / "u.npy"), train_size=None, reg_size=None, test_size=None, train_horizon=None
    )
    with pytest.warns(DeprecationWarning, match="load_data") as found:
        assert_same(xr.load_data(config), load_config(config))
    assert len(found) == 1


def test_loaded_data_say_what_is_in_them(tmp_path, fields):
    """The numbers are those of the arrays; none of them is printed as an array."""
    flow = tmp_path / "flow"
    for name, part in {"train": fields[:4], "reg": fields[4:6], "test": fields[6:9]}.items():
        (flow / name).mkdir(parents=True)
        np.savez(flow / name / "u.npz", wind=part)
    data = xr.load(flow, observed_fraction=0.7, mask_per="pair", axes="btcx")
    assert repr(data).splitlines() == [
        "Data of flow: 2 channels (wind[0], wind[1]) on 12 points",
        "train: 4 trajectories, 16 pairs",
        "reg: 2 trajectories, 8 pairs",
        "test: 3 trajectories, 12 pairs",
        "mask: 70% of the points are observed, with a mask per pair",
    ]
    assert repr(data.split_off_calibration(0)).splitlines()[2::2] == [
        "reg: 1 trajectory, 4 pairs",
        "calibration: 1 trajectory, 4 pairs",
    ]
    streamed = xr.load(flow, observed_fraction=0.7, in_memory_gib=0.0, axes="btcx")
    assert repr(streamed).splitlines()[:4] == repr(data).splitlines()[:4]
    assert "70% of the points are observed, with one mask for all pairs; values that are missing" in repr(streamed)
    assert repr(xr.load(fields)).endswith("\nmask: every point is observed")
    fields[0, 1, 0] = np.nan
    assert repr(xr.load(fields)).endswith("\nmask: every point that was measured is observed")


@pytest.mark.parametrize("setting", [{"time_stride": 2}, {"split": "time"}, {"split_seed": 3}])
def test_a_setting_of_your_data_is_refused_for_a_scenario(setting, cached_waves):
    with pytest.raises(InputError, match=f"{next(iter(setting))} is .*: is for your data; a scenario has its own"):
        xr.load("diff_ks", **setting)


@pytest.mark.parametrize("setting", [{"num_points": 8}, {"num_spatial_dims": 1}])
def test_a_setting_of_scenarios_is_refused_for_your_data(setting, tmp_path):
    u = np.random.default_rng(0).normal(size=(10, 5, 1, 16)).astype(np.float32)
    np.save(tmp_path / "u.npy", u)
    for source in (u, tmp_path / "u.npy", [tmp_path / "u.npy"]):
        with pytest.raises(InputError, match=f"{next(iter(setting))} is .*: is for scenarios; your data"):
            xr.load(source, **setting)
