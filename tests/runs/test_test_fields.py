"""Stored test fields: what a file says is what the prediction says."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from crossreg.cli.main import main
from crossreg.config import DataConfig
from crossreg.data.files.load import load_file
from crossreg.data.keys import evaluation_key
from crossreg.data.load import make_data
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.metrics.calibration import LEVELS as NOMINAL
from crossreg.metrics.evaluation import point_scores
from crossreg.nn.build import build_model
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.persistence import fit_persistence
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.runs.fields.stored_fields import LEVELS, Planes, read_stored_fields, write_stored_fields
from crossreg.runs.fields.test_fields import compute_test_fields, load_run_fields, quantile_offsets
from crossreg.runs.file_names import TEST_FIELDS
from crossreg.runs.final_scores import final_metrics


@pytest.fixture(scope="module")
def predictor(data, tiny):
    model = build_model(tiny.model, data.train, key=jax.random.key(2))
    return SurrogatePredictor(model, tiny.train.evaluation_samples)


@pytest.fixture(scope="module")
def stored(predictor, data):
    return compute_test_fields(predictor, data.test)


def test_fields_are_what_the_scores_see(predictor, data, stored, tmp_path):
    points = point_scores(predictor, data.test, key=evaluation_key(0))
    rows, horizon = stored.trajectories, data.test.horizon
    assert stored.truth.shape == (3, horizon, *data.test.field_shape)
    write_stored_fields(tmp_path / "f.npz", stored)
    read = read_stored_fields(tmp_path / "f.npz")
    for name in ("truth", "mean", "std_mu", "std_predictive", "std_generalization", "std"):
        whole = np.asarray(getattr(points, name)).reshape(-1, horizon, *data.test.field_shape)
        np.testing.assert_allclose(getattr(stored, name), whole[rows], rtol=1e-4, atol=1e-6)
        # Half precision has 11 bits.
        np.testing.assert_allclose(getattr(read, name), whole[rows], rtol=2e-3, atol=1e-3 if name == "mean" else 1e-5)
    np.testing.assert_allclose(read.error, stored.error, rtol=1e-3, atol=1e-7)
    np.testing.assert_array_equal(read.steps, 1 + np.arange(horizon))
    np.testing.assert_array_equal(read.observed, np.broadcast_to(data.run_mask, read.observed.shape))
    assert (np.diff(read.quantiles, axis=0) >= 0).all()
    np.testing.assert_allclose(read.quantiles, stored.quantiles, atol=float(stored.std.max()) / 40)
    assert (read.unaware, read.aware, read.scanned, read.space) == (stored.unaware, stored.aware, 4, (20,))


def test_quantiles_up_to_five_deviations_away_are_kept_to_a_24th(stored, tmp_path):
    offsets = np.linspace(-5, 5, stored.offsets.size, dtype=np.float32).reshape(stored.offsets.shape)
    write_stored_fields(tmp_path / "f.npz", stored._replace(offsets=offsets))
    np.testing.assert_allclose(read_stored_fields(tmp_path / "f.npz").offsets, offsets, atol=0.5 / 24 + 1e-5)


@pytest.mark.parametrize(("offset", "spread"), [(1e5, 20.0), (300.0, 3.0)])
def test_channels_of_other_sizes_and_with_an_offset_keep_their_digits(stored, tmp_path, offset, spread):
    """10⁵ ± 20 Pa or 300 ± 3 K beside velocities of some cm/s: each has half precision of its own spread."""
    size = np.array([spread, 0.05])[: stored.truth.shape[2], None]
    assert len(size) == 2
    own = stored._replace(
        truth=(stored.truth * size + np.array([offset, 0.0])[:, None]).astype(np.float32),
        **{name: (getattr(stored, name) * size).astype(np.float32) for name in ("error", "std_mu", "std_predictive")},
        windows=None,
    )
    write_stored_fields(tmp_path / "f.npz", own)
    read = read_stored_fields(tmp_path / "f.npz")
    for name in ("truth", "error", "std_mu", "std_predictive"):
        apart = np.abs(getattr(read, name) - getattr(own, name)).max((0, 1, 3))
        assert (apart < 3e-3 * np.abs(stored.truth).max() * size[:, 0]).all(), name
    # So has the mean where the truth is unknown.
    hole = np.zeros(own.truth.shape, bool)
    hole[0, 1, 0, 3:6] = True
    gappy = own._replace(truth=np.where(hole, np.nan, own.truth), gap_mean=np.where(hole, own.mean, np.nan))
    write_stored_fields(tmp_path / "gappy.npz", gappy)
    apart = np.abs(read_stored_fields(tmp_path / "gappy.npz").mean - own.mean)[hole].max()
    assert apart < 3e-3 * np.abs(stored.truth).max() * spread


def test_channels_of_different_units_keep_their_digits(stored, tmp_path):
    def channels(values, axis):
        return np.concatenate([values, 2e5 * values], axis)

    names = ("truth", "error", "std_mu", "std_predictive", "std_generalization")
    two = {name: channels(getattr(stored, name), 2) for name in names}
    few = {name: values[:1, :3, :, None] for name, values in two.items()}
    planes = Planes(np.asarray([0]), 1, stored.steps[:3], stored.observed[:1, :3, None], **few)
    offsets = np.concatenate([stored.offsets] * 2, 3)
    write_stored_fields(tmp_path / "f.npz", stored._replace(**two, offsets=offsets, windows=None, planes=planes))
    read = read_stored_fields(tmp_path / "f.npz")
    assert read.planes is not None
    for name in names:
        np.testing.assert_allclose(getattr(read, name), two[name], rtol=1e-3, atol=1e-7)
        np.testing.assert_array_equal(getattr(read.planes, name), getattr(read, name)[:1, :3, :, None])


def test_what_was_not_measured_is_no_truth(tmp_path):
    values = np.random.default_rng(5).normal(size=(6, 5, 2, 16)).astype(np.float32)
    values[:, :, 1] *= 1e4
    values[:, 2, 0, 3:6] = np.nan
    np.savez(tmp_path / "u.npz", u=values)
    data = load_file(tmp_path / "u.npz", train_size=2, reg_size=2, test_size=2)
    stored = compute_test_fields(fit_persistence(data.train), data.test)
    write_stored_fields(tmp_path / "f.npz", stored)
    read = read_stored_fields(tmp_path / "f.npz")
    gaps = np.isnan(values[:2, 1:])  # of every trajectory the same
    points = point_scores(fit_persistence(data.train), data.test, key=evaluation_key(0))
    mean = np.asarray(points.mean).reshape(2, 4, 2, 16)
    for fields, rtol in ((stored, 1e-5), (read, 2e-3)):
        np.testing.assert_array_equal(np.isnan(fields.truth), gaps)
        np.testing.assert_array_equal(np.isnan(fields.error), gaps)
        assert np.isfinite(fields.std).all()
        # A prediction is there all the same.
        np.testing.assert_allclose(fields.mean, mean, rtol=rtol, atol=1e-3 * np.abs(mean).max())
        np.testing.assert_allclose(fields.mean[gaps], mean[gaps], rtol=rtol, atol=1e-6)
        assert np.isfinite(fields.quantiles).all()
    np.testing.assert_allclose(read.truth, stored.truth, rtol=1e-3)
    # A file of an older version knows no prediction there, and is read.
    _older(tmp_path / "f.npz", drop="gap_mean")
    older = read_stored_fields(tmp_path / "f.npz")
    np.testing.assert_array_equal(np.isnan(older.mean), gaps)
    np.testing.assert_array_equal(older.mean[~gaps], read.mean[~gaps])


def _older(path, *, drop: str, header: dict | None = None, **changed) -> None:
    """Makes a file of one with other arrays, as an older version wrote it: without a seal."""
    with np.load(path) as file:
        arrays = {name: changed.get(name, file[name]) for name in file.files if name != drop}
    if header is not None:
        arrays["header"] = np.array(json.dumps(header))
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


def test_what_is_hidden_has_a_truth_that_is_shown_and_not_scored(tmp_path):
    """With --score-on observed; where the files' own mask hides a point, anything may stand, and is no truth."""
    values = np.random.default_rng(6).normal(size=(6, 5, 1, 16)).astype(np.float32)
    values[:, 3, :, 2] = np.nan
    mask = np.ones((5, 16), bool)
    mask[2, 7:9] = False
    values[:, 2, :, 7:9] = -9e9
    np.savez(tmp_path / "u.npz", u=values, mask=mask)
    sizes = {"train_size": 2, "reg_size": 2, "test_size": 2}
    data = load_file(tmp_path / "u.npz", **sizes, observed_fraction=0.5, score_on="observed")
    hidden = ~np.asarray(data.test.run_mask)
    assert 0 < hidden.sum() < 16
    streamed = load_file(tmp_path / "u.npz", **sizes, observed_fraction=0.5, score_on="observed", in_memory_gib=0.0)
    for pairs in (data.test, streamed.test):
        stored = compute_test_fields(fit_persistence(data.train), pairs)
        unknown = np.isnan(values[:2, 1:]) | ~mask[None, 1:, None]
        np.testing.assert_array_equal(np.isnan(stored.truth), unknown)
        np.testing.assert_array_equal(np.isnan(stored.error), unknown)
        assert np.isfinite(stored.truth[..., hidden & mask.all(0)][:, :2]).all()
        assert np.abs(stored.mean).max() < 100
        # Points that are hidden now, or were not measured a step later, are not scored.
        assert stored.pit.sum() < 2 * 4 * (~hidden).sum()


def test_the_histogram_has_the_coverage_of_the_scores(predictor, data, tiny, stored):
    scores = final_metrics(predictor.model, data, tiny)["test"]
    assert stored.pit.sum() == data.test.num_pairs * math.prod(data.test.field_shape)
    shares = stored.pit / stored.pit.sum()
    inside = [shares[10 - k : 10 + k].sum() for k in range(1, 10)]
    assert len(inside) == len(NOMINAL)
    np.testing.assert_allclose(inside, scores["coverage"], atol=2e-3)


def test_few_trajectories_are_looked_through_as_they_are_stored(predictor, data, stored):
    few = compute_test_fields(predictor, data.test, trajectories=3, scanned=2)
    whole = compute_test_fields(predictor, data.test.of([0, 1]), trajectories=1)
    assert (few.scanned, few.trajectories.tolist()) == (2, [0, 1, 2])
    np.testing.assert_allclose(few.pit, whole.pit, atol=1)
    assert [region[:4] for region in few.unaware] == [region[:4] for region in whole.unaware]
    np.testing.assert_allclose(few.mean[:1], stored.mean[:1], rtol=1e-4, atol=1e-6)


def test_quantiles_of_a_gaussian_and_of_a_mixture():
    rng = np.random.default_rng(3)
    mean, sigma = rng.normal(size=(1, 3, 5)), rng.uniform(0.1, 2, (1, 3, 5))
    one = Mixture(jnp.asarray(mean), jnp.asarray(sigma**2), jnp.zeros((1, 3, 5)))
    expected = np.broadcast_to(norm.ppf(LEVELS)[:, None, None], (7, 3, 5))
    np.testing.assert_allclose(quantile_offsets(one), expected, atol=2e-3)
    # Two and a half standard deviations apart: a flat top, and tails that are no Gaussian's.
    two = Mixture(jnp.asarray([[[-1.0]], [[1.5]]]), jnp.ones((2, 1, 1)), jnp.zeros((2, 1, 1)))

    y = np.linspace(-9, 9, 100_001)
    exact = (np.interp(LEVELS, 0.5 * (norm.cdf(y + 1) + norm.cdf(y - 1.5)), y) - 0.25) / math.hypot(1, 1.25)
    np.testing.assert_allclose(np.ravel(quantile_offsets(two)), exact, atol=0.01)


def test_of_a_plane_a_line_is_kept():
    rng = np.random.default_rng(1)
    train, test = (rng.normal(size=(count, 4, 2, 9, 5)).astype(np.float32) for count in (150, 30))
    made = Trajectories(train, test, {}, "planes")
    data = make_data(made, DataConfig(train_size=3, reg_size=2, test_size=4, observed_fraction=0.4))
    stored = compute_test_fields(fit_persistence(data.train, knows_mask=False), data.test)
    assert stored.truth.shape == (3, 3, 2, 9)
    assert stored.space == (9, 5)
    np.testing.assert_array_equal(stored.truth[1], test[1, 1:, :, :, 2])
    np.testing.assert_array_equal(stored.observed[0, 0], np.asarray(data.run_mask)[:, 2])
    assert stored.pit.sum() == 4 * 3 * 2 * 9 * 5
    assert {region.points for region in stored.unaware} <= {((0, 7), (0, 4)), ((8, 8), (0, 4))}


def test_whole_planes_of_three_steps_are_kept(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    train, test = (rng.normal(size=(count, 6, 2, 9, 7, 5)).astype(np.float32) for count in (150, 30))
    made = Trajectories(train, test, {}, "boxes")
    data = make_data(made, DataConfig(train_size=3, reg_size=2, test_size=4, observed_fraction=0.4))
    predictor = fit_persistence(data.train, knows_mask=False)
    stored = compute_test_fields(predictor, data.test)
    write_stored_fields(tmp_path / "f.npz", stored)
    planes = read_stored_fields(tmp_path / "f.npz").planes
    assert planes is not None
    assert (planes.stride, planes.steps.tolist()) == (1, [1, 3, 5])
    rows = planes.trajectories
    assert len(rows) == 3
    np.testing.assert_array_equal(rows, stored.trajectories)
    # Of three dimensions the plane through the middle of the last one.
    np.testing.assert_allclose(planes.truth, test[rows][:, [1, 3, 5]][..., 2], rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(planes.observed[2, 1], np.asarray(data.run_mask)[:, :, 2])
    points = point_scores(predictor, data.test, key=evaluation_key(0))
    for name, expected in (("error", points.mean - points.truth), ("std", points.std)):
        every = np.asarray(expected).reshape(4, 5, 2, 9, 7, 5)[rows]
        np.testing.assert_allclose(getattr(planes, name), every[:, [0, 2, 4]][..., 2], rtol=2e-3, atol=1e-5)
    monkeypatch.setattr("crossreg.runs.fields.test_fields._MOST_PER_SIDE", 3)
    thin = compute_test_fields(predictor, data.test, trajectories=1).planes
    assert thin is not None
    np.testing.assert_allclose(thin.truth, test[:1, [1, 3, 5]][..., ::3, ::3, 2])
    # Of large fields those of fewer trajectories: the first, and the one with the worst region.
    monkeypatch.setattr("crossreg.runs.fields.test_fields._MOST_IN_PLANES", 2 * 3 * 2 * 3 * 3)
    few = compute_test_fields(predictor, data.test).planes
    assert few is not None
    np.testing.assert_array_equal(few.trajectories, rows[[0, 2]])


def test_planes_of_an_older_version_are_read(stored, tmp_path):
    names = ("truth", "error", "std_mu", "std_predictive", "std_generalization")
    part = {name: getattr(stored, name)[:1, :3, :, None] for name in names}
    planes = Planes(np.asarray([0]), 2, stored.steps[:3], stored.observed[:1, :3, None], **part)
    path = tmp_path / "f.npz"
    write_stored_fields(path, stored._replace(planes=planes))
    new = read_stored_fields(path).planes
    with np.load(path) as file:
        header = json.loads(str(file["header"]))
        flat = {f"plane_{name}": file[f"plane_{name}"][0] for name in (*names, "observed")}
    header.pop("planes")
    _older(path, drop="", header=header | {"plane": [0, 2]}, **flat)
    old = read_stored_fields(path).planes
    assert old is not None
    assert new is not None
    assert (old.trajectories.tolist(), old.stride) == ([0], 2)
    for name in (*names, "observed", "steps"):
        np.testing.assert_array_equal(getattr(old, name), getattr(new, name))


def test_names_of_channels_are_kept(stored, tmp_path):
    write_stored_fields(tmp_path / "f.npz", stored._replace(names=("flow[0]", "Vx")))
    assert read_stored_fields(tmp_path / "f.npz").names == ("flow[0]", "Vx")


def test_long_fields_keep_fewer_times(data, predictor, monkeypatch):
    from crossreg.runs.fields import test_fields

    monkeypatch.setattr(test_fields, "_MOST_POINTS", 2 * 20 * 3)  # of 5 times × 2 channels × 20 points
    fewer = compute_test_fields(predictor, data.test, scanned=2)
    assert fewer.truth.shape == (1, 3, 2, 20)
    assert fewer.steps.tolist() == [1, 3, 5]
    assert fewer.scanned == 2
    np.testing.assert_array_equal(fewer.truth[0], np.asarray(data.test.trajectories)[0, [1, 3, 5]])


def test_a_run_folder_gets_its_file_and_an_older_one_later(cached_waves, tmp_path, capsys):
    out = tmp_path / "run"
    sizes = {"train-size": 7, "reg-size": 6, "test-size": 4, "train-horizon": 3, "test-horizon": 5, "width": 4}
    sizes |= {"num-blocks": 3, "num-modes": 5, "steps": 20, "evaluate-every": 10, "batch-size": 6, "num-samples": 4}
    flags = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    assert main(["train", "--out", str(out), *flags, "--quiet"]) == 0
    written = load_run_fields(out, compute=False)
    (out / TEST_FIELDS).unlink()
    with pytest.raises(InputError, match="No such file"):
        load_run_fields(out, compute=False)
    again = load_run_fields(out)
    assert (out / TEST_FIELDS).exists()
    np.testing.assert_allclose(again.error, written.error, rtol=2e-3, atol=1e-5)
    assert json.dumps(again.unaware[0]) == json.dumps(written.unaware[0])


ODD_REGION = {"trajectory": 0, "channel": 0, "steps": [1, 5], "points": [[0, 7]], "error": math.nan, "std": 0.1}
ODD_HEADERS = {
    "format": {"format": 99},
    "pit": {"pit": [math.nan] * 20},
    "error": {"unaware": [ODD_REGION]},
    "axes": {"aware": [ODD_REGION | {"error": 0.1, "points": []}]},
    "names": {"names": ["one too few"]},
    "planes": {"planes": {"trajectories": [0], "stride": 1}},
}


@pytest.mark.parametrize("damage", ["cut", "text", "shape", "steps", "empty", *ODD_HEADERS])
def test_damaged_files_are_refused(stored, tmp_path, damage):
    path = tmp_path / "f.npz"
    write_stored_fields(path, stored)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:700])
    elif damage == "text":
        path.write_text("no archive")
    else:
        with np.load(path) as file:
            arrays = dict(file)
        if damage == "shape":
            arrays["error"] = arrays["error"][:, :-1]
        elif damage == "steps":
            arrays["steps"] = arrays["steps"] * math.nan
        elif damage == "empty":
            few = {name: arrays[name][:0] for name in arrays if name not in ("header", "steps", "offsets")}
            arrays |= few | {"offsets": arrays["offsets"][:, :0]}
        else:
            arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | ODD_HEADERS[damage]))
        np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"f\.npz: not (a )?readable"):
        read_stored_fields(path)


def test_every_listed_region_can_be_looked_at(predictor, data, stored, tmp_path, monkeypatch):
    from crossreg.runs.fields import test_fields

    # One trajectory is stored, and windows are shorter than the five steps there are.
    monkeypatch.setattr(test_fields, "_MOST_POINTS", 5 * 2 * 20 * 4)
    few = compute_test_fields(predictor, data.test, trajectories=1)
    regions = [*few.unaware, *few.aware]
    assert {region.trajectory for region in regions} == {0, 1, 2, 3}
    windows = few.windows
    assert windows is not None
    assert sorted(windows.trajectories) == [1, 2, 3]  # of one trajectory one window, where it shows all of its regions
    for place, number in enumerate(windows.trajectories):
        for region in (r for r in regions if r.trajectory == number):
            assert windows.steps[place][0] <= region.steps[0] <= region.steps[1] <= windows.steps[place][-1]
    # They say what whole trajectories do.
    places = {int(number): place for place, number in enumerate(windows.trajectories)}
    for number in (1, 2):
        np.testing.assert_allclose(windows.error[places[number]], stored.error[number], rtol=1e-4, atol=1e-6)
    write_stored_fields(tmp_path / "f.npz", few)
    read = read_stored_fields(tmp_path / "f.npz").windows
    assert read is not None
    np.testing.assert_allclose(read.std_predictive, windows.std_predictive, rtol=2e-3, atol=1e-5)
    for name in ("trajectories", "steps", "lines", "observed"):
        np.testing.assert_array_equal(getattr(read, name), getattr(windows, name))
    assert stored.windows is None or set(stored.windows.trajectories) <= {3}


def test_the_trajectory_with_the_worst_region_takes_the_last_place():
    rng = np.random.default_rng(6)
    train, test = (rng.normal(size=(count, 4, 1, 20)).astype(np.float32) for count in (150, 30))
    test[4, 2, 0, 8:12] += 50.0
    data = make_data(Trajectories(train, test, {}, "lines"), DataConfig(train_size=3, reg_size=2, test_size=6))
    stored = compute_test_fields(fit_persistence(data.train, knows_mask=False), data.test)
    assert stored.trajectories.tolist() == [0, 1, 4]
    np.testing.assert_array_equal(stored.truth, test[[0, 1, 4], 1:])


def test_a_region_beside_the_middle_has_its_own_line():
    rng = np.random.default_rng(4)
    train, test = (rng.normal(size=(count, 4, 2, 9, 20)).astype(np.float32) for count in (150, 30))
    test[1, 2, 0, :, 18] += 50.0  # far from the line through the middle, at 10
    data = make_data(Trajectories(train, test, {}, "planes"), DataConfig(train_size=3, reg_size=2, test_size=4))
    stored = compute_test_fields(fit_persistence(data.train, knows_mask=False), data.test)
    assert stored.unaware[0].points[1] == (16, 19)
    windows = stored.windows
    assert windows is not None
    assert (windows.trajectories[0], windows.lines[0].tolist()) == (1, [17])
    np.testing.assert_array_equal(windows.truth[0], test[1, 1:, :, :, 17])
    np.testing.assert_array_equal(windows.observed[0, 0], np.asarray(data.run_mask)[:, 17])
