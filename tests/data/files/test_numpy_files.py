"""NPY and NPZ files: axes, fields, masks, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossreg.data.formats.open import open_source
from crossreg.errors import InputError
from made_fields import CHANNELS, SAMPLES, SPACE, TIMES, fields, read_all


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_default_axes_come_back_as_they_were(tmp_path, dims):
    u = fields(dims)
    np.save(tmp_path / "u.npy", u)
    source = open_source(tmp_path / "u.npy")
    assert source.shape == (SAMPLES, TIMES, CHANNELS, *SPACE[dims])
    np.testing.assert_array_equal(read_all(source), u)
    np.testing.assert_array_equal(source.frames(3, slice(1, 6, 2)), u[3, 1:6:2])


@pytest.mark.parametrize(
    ("axes", "order"), [("btxyc", (0, 1, 3, 4, 2)), ("tbcyx", (1, 0, 2, 4, 3)), ("xytcb", (3, 4, 1, 2, 0))]
)
def test_any_order_of_axes(tmp_path, axes, order):
    u = fields(2)
    np.savez(tmp_path / "u.npz", flow=u.transpose(order))
    source = open_source(tmp_path / "u.npz", axes=axes)
    assert source.names == ("flow[0]", "flow[1]")
    np.testing.assert_array_equal(read_all(source), u)


def test_without_channels_and_samples(tmp_path):
    u = fields(1, channels=1)
    np.save(tmp_path / "u.npy", u[:, :, 0])
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "u.npy", axes="btx")), u)
    np.save(tmp_path / "one.npy", u[4, :, 0].T)
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "one.npy", axes="xt")), u[4:5])


def test_fields_stand_side_by_side_as_channels(tmp_path):
    u = fields(2, channels=3)
    np.savez(tmp_path / "u.npz", u=u[:, :, 0], v=u[:, :, 1], pressure=u[:, :, 2], x=np.arange(12.0))
    source = open_source(tmp_path / "u.npz", field="pressure,u", axes="btxy")
    assert source.names == ("pressure", "u")
    np.testing.assert_array_equal(read_all(source), u[:, :, [2, 0]])


def test_the_only_array_that_fits_is_taken_and_named(tmp_path):
    u = fields(1)
    np.savez(tmp_path / "u.npz", flow=u, grid=np.arange(20.0))
    source = open_source(tmp_path / "u.npz")
    assert source.notes == ("the field is flow",)
    np.testing.assert_array_equal(read_all(source), u)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4", "u1", "?", ">f8"])
def test_numbers_of_any_type_become_float32(tmp_path, dtype):
    u = (fields(1) * 3).astype(dtype)
    np.save(tmp_path / "u.npy", u)
    found = read_all(open_source(tmp_path / "u.npy"))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, u.astype(np.float32))


@pytest.mark.parametrize("keep", [(0, 1, 3), (1, 3), (3,)])
def test_a_mask_of_fewer_axes_holds_for_all(tmp_path, keep):
    """(b, t, x), (t, x) and (x): what is left out does not vary."""
    u = fields(1)
    mask = np.random.default_rng(0).random(u.shape) < 0.5
    mask = mask[tuple(slice(None) if axis in keep else 0 for axis in range(4))]
    np.savez(tmp_path / "u.npz", u=u, mask=mask)
    source = open_source(tmp_path / "u.npz")
    assert source.names == ("u[0]", "u[1]")
    found = np.stack([source.observed(sample, slice(None)) for sample in range(SAMPLES)])
    np.testing.assert_array_equal(found, np.broadcast_to(mask, (SAMPLES, TIMES, 20)))


def test_a_mask_for_each_channel_observes_where_all_are(tmp_path):
    u = fields(1)
    mask = np.random.default_rng(0).integers(0, 2, u.shape)
    np.savez(tmp_path / "u.npz", u=np.moveaxis(u, 2, 3), mask=np.moveaxis(mask, 2, 3))
    source = open_source(tmp_path / "u.npz", axes="btxc")
    np.testing.assert_array_equal(source.observed(5, slice(2, 4)), mask[5, 2:4].all(1))


def test_infinite_numbers_are_missing(tmp_path):
    u = fields(1).astype(np.float64)
    u[1, 2, 0, 3], u[1, 2, 1, 4], u[0, 0, 0, 0] = np.inf, 1e300, np.nan
    np.save(tmp_path / "u.npy", u)
    found = read_all(open_source(tmp_path / "u.npy"))
    assert np.argwhere(np.isnan(found)).tolist() == [[0, 0, 0, 0], [1, 2, 0, 3], [1, 2, 1, 4]]


def test_values_that_float32_does_not_hold_are_warned_of(tmp_path, capsys):
    u = fields(1).astype(np.float64)
    u[1, 2, 0, 3] = np.inf
    np.save(tmp_path / "u.npy", u)
    read_all(open_source(tmp_path / "u.npy"))
    assert capsys.readouterr().err == ""
    u[1, 2, 0, 3] = -3.5e38
    np.save(tmp_path / "u.npy", u)
    read_all(open_source(tmp_path / "u.npy"))
    said = "u.npy: has values beyond 3.4e+38, which float32 does not hold: they count as missing; if they were measured"
    assert capsys.readouterr().err.count(said) == 1


def test_equal_content_is_known_again_and_other_content_is_not(tmp_path):
    u = fields(1)
    np.save(tmp_path / "a.npy", u)
    np.savez_compressed(tmp_path / "b.npz", field=u)
    digests = {open_source(tmp_path / name, field=f).digest for name, f in (("a.npy", None), ("a.npy", None))}
    assert len(digests) == 1
    u[-1, -1, -1, -1] += 1e-3
    np.save(tmp_path / "a.npy", u)
    assert open_source(tmp_path / "a.npy").digest not in digests


def test_masks_names_and_the_order_of_channels_are_part_of_what_data_are_known_by(tmp_path):
    a, b = (fields(1, channels=1, seed=seed)[:, :, 0] for seed in (0, 1))
    mask = np.ones(a.shape, bool)
    hidden = mask.copy()
    hidden[-1, -1, -1] = False
    files = [
        {"a": a, "b": b}, {"a": b, "b": a}, {"x": a, "b": b},
        {"a": a, "b": b, "mask": mask}, {"a": a, "b": b, "mask": hidden},
    ]  # fmt: skip
    found = set()
    for arrays in files:
        np.savez(tmp_path / "u.npz", **arrays)
        names = ",".join(name for name in arrays if name != "mask")
        found.add(open_source(tmp_path / "u.npz", field=names, axes="btx").digest)
    assert len(found) == len(files)


def test_a_folder_of_files_is_one_source_and_split_folders_are_kept(tmp_path):
    u = fields(1)
    for folder, rows in (("train", slice(0, 6)), ("valid", slice(6, 8)), ("test", slice(8, 11))):
        (tmp_path / "split" / folder).mkdir(parents=True)
        np.save(tmp_path / "split" / folder / "u.npy", u[rows])
    source = open_source(tmp_path / "split")
    assert source.splits == {"train": range(0, 6), "reg": range(6, 8), "test": range(8, 11)}
    np.testing.assert_array_equal(read_all(source), u)
    (tmp_path / "flat").mkdir()
    np.save(tmp_path / "flat" / "a.npy", u[:4])
    np.save(tmp_path / "flat" / "b.npy", u[4:])
    flat = open_source(tmp_path / "flat")
    assert flat.splits is None
    np.testing.assert_array_equal(read_all(flat), u)


@pytest.mark.parametrize(
    ("arrays", "options", "said"),
    [
        ({"u": (5, 4, 20)}, {}, r"u\.npz: u: has 3 axes; expected .* name them with `axes`, as in `axes='btx'`"),
        ({"u": (5, 4, 2, 20), "v": (5, 4, 2, 20)}, {}, r"several arrays fit; .*`field=NAME`.*u \(5, 4, 2, 20\), v"),
        ({"u": (5, 4, 2, 20)}, {"field": "w"}, r"field is w: not in .*; it has u \(5, 4, 2, 20\)"),
        ({"u": (5, 4, 2, 20)}, {"axes": "btx"}, r"has 4 axes, but `axes='btx'` names 3"),
        ({"u": (5, 4, 2, 20)}, {"axes": "btcq"}, r"axes is btcq: expected one letter per axis: b trajectory"),
        ({"u": (5, 4, 2, 20)}, {"axes": "bxcy"}, r"axes is bxcy: .* with t"),
        ({"u": (5, 1, 2, 20)}, {}, r"has 1 time; expected at least two, for one step"),
        ({"u": (5, 4, 2, 3)}, {}, r"its grid is \(3,\); expected at least 4 points"),
        ({"u": (5, 4, 20), "v": (5, 4, 21)}, {"field": "u,v", "axes": "btx"}, r"its fields differ in shape: .*21"),
        ({"u": (5, 4, 20), "v": (6, 4, 20)}, {"field": "u,v", "axes": "btx"}, r"its fields differ in shape"),
        ({"u": (5, 4, 2, 20), "mask": (5, 20)}, {}, r"mask: has shape \(5, 20\); expected \(5, 4, 20\)"),
    ],
)
def test_refusals_say_what_is_there(tmp_path, arrays, options, said):
    zeros: dict[str, Any] = {name: np.zeros(shape) for name, shape in arrays.items()}
    np.savez(tmp_path / "u.npz", **zeros)
    with pytest.raises(InputError, match=said) as raised:
        open_source(tmp_path / "u.npz", **options)
    assert "\n" not in str(raised.value)


def test_files_that_are_no_arrays_are_refused(tmp_path):
    (tmp_path / "u.npy").write_bytes(b"nothing")
    (tmp_path / "u.npz").write_bytes(b"PK\x03\x04 nothing")
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "empty").mkdir()
    for name in ("u.npy", "u.npz", "text.npy", "objects.npy", "empty", "missing.npy"):
        with pytest.raises(InputError, match=r"data |axes is|has type"):
            open_source(tmp_path / name)
    (tmp_path / "u.mat").write_bytes(b"")
    with pytest.raises(InputError, match=r"unknown kind of file; expected \.npy"):
        open_source(tmp_path / "u.mat")
    with pytest.raises(InputError, match="no such file"):
        open_source(tmp_path / "missing")


def test_a_mask_of_other_numbers_is_refused_when_it_is_read(tmp_path):
    np.savez(tmp_path / "u.npz", u=fields(1), mask=np.full(20, 0.5))
    with pytest.raises(InputError, match=r"mask: expected only 0 \(hidden\) and 1 \(observed\)"):
        open_source(tmp_path / "u.npz").observed(0, slice(None))


def test_more_files_than_a_process_may_have_open_by_default(tmp_path):
    """A trajectory in each: the soft limit is raised."""
    resource = pytest.importorskip("resource")
    u = fields(1, samples=1)[0]
    for number in range(120):
        np.save(tmp_path / f"{number:03}.npy", u + number)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    here = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (here + 60, before[1]))
    try:
        source = open_source(tmp_path, axes="tcx")
        np.testing.assert_array_equal(source.frames(119, slice(None)), u + 119)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
