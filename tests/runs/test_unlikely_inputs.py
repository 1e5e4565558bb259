"""Inputs that nobody should get an answer for, and data that nothing can be learned from or scored on."""

import json
import shutil

import jax
import numpy as np
import pytest

import crossreg as xr
from crossreg.cli.main import main
from crossreg.config import TrainConfig
from crossreg.data.dataset import unmeasured
from crossreg.data.files.load import load_file
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.fitting import Fit
from crossreg.metrics.localization import on_host
from crossreg.runs.input_range import InputRange, check_hidden, check_range, check_seen, input_range, stored_range
from crossreg.runs.run_folder import load_run
from crossreg.runs.safeguards.manifest import record_json

SHAPE = ["--width", "4", "--num-blocks", "2", "--num-modes", "4", "--steps", "10", "--batch-size", "4", "--quiet"]
SAMPLES, TIMES, CHANNELS, POINTS = 11, 5, 2, 14


def own_fields() -> np.ndarray:
    """Random fields around 1013 with a spread of 12, and around 0 with one of 0.5, (sample, time, channel, x)."""
    fields = np.random.default_rng(3).uniform(-1, 1, (SAMPLES, TIMES, CHANNELS, POINTS))
    return (fields * [[12.0], [0.5]] + [[1013.0], [0.0]]).astype(np.float32)


@pytest.fixture(scope="module")
def own_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    np.save(folder / "own.npy", own_fields())
    assert main(["train", "--data", str(folder / "own.npy"), *SHAPE, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def predicts(own_run, tmp_path, capsys):
    """Runs `crossreg predict` on some fields; gives its exit code, its errors, and whether it has written anything."""

    def predict(x, *flags, folder=own_run):
        np.save(tmp_path / "x.npy", x)
        target = tmp_path / "p.npz"
        capsys.readouterr()
        code = main(["predict", str(folder), "--input", str(tmp_path / "x.npy"), "--output", str(target), *flags])
        written = target.exists()
        target.unlink(missing_ok=True)
        return code, capsys.readouterr().err, written

    return predict


def test_the_range_is_that_of_the_inputs_as_they_are_seen(data, trajectories):
    """In 7 trajectories of 3 steps the last time is no input, and what the mask hides is 0."""
    seen = trajectories.train[:7, :3] * np.asarray(data.run_mask)
    low, high = (pick(seen, axis=(0, 1, 3)) for pick in (np.min, np.max))
    known = input_range(data.train)
    assert known[:2] == (tuple(low.tolist()), tuple(high.tolist()))
    # The spread of each field counts what is seen alone.
    fields = trajectories.train[:7, :3, :, np.asarray(data.run_mask)].astype(np.float64)
    assert known.least_spread == tuple(np.ptp(fields, axis=3).min((0, 1)).tolist())


def test_a_run_knows_the_range_of_its_inputs(own_run):
    inputs = np.asarray(load_file(own_run.parent / "own.npy").train.trajectories)[:, :-1]
    low, high = (pick(inputs, axis=(0, 1, 3)) for pick in (np.min, np.max))
    least = np.ptp(inputs.astype(np.float64), axis=3).min((0, 1))
    assert load_run(own_run).input_range == (*(tuple(values.tolist()) for values in (low, high, least)), 0.0)
    assert 1001 <= low[0] < 1002
    assert 0.45 < high[1] <= 0.5


def test_fields_in_other_units_are_refused(predicts):
    x = own_fields()[:3, 0]
    assert predicts(x) == (0, "", True)
    for wrong, channel, value in ((x * 1000, 0, x[:, 0].max() * 1000), (x / 10, 0, x[:, 0].min() / 10)):
        code, said, written = predicts(wrong)
        assert (code, written) == (2, False)
        assert said.count("\n") == 1
        assert f"x.npy: channel {channel} reaches {value:.4g} in field " in said
        assert "and the run was trained on inputs from 1001 to 1025; give fields in the units of the run's data" in said
    spike = x.copy()
    spike[2, 1, 5] = 30.0
    assert (
        "channel 1 reaches 30 in field 2, and the run was trained on inputs from -0.4989 to 0.4998;"
        in predicts(spike)[1]
    )
    # What is hidden does not count.
    mask = np.arange(POINTS) != 5
    assert check_range(spike, mask, InputRange((1001, -0.5), (1025, 0.5)), "x") == []


def test_a_loaded_run_refuses_what_the_command_refuses(own_run, capsys):
    run, x = load_run(own_run), own_fields()[:3, 0]
    assert run.predict(x).mean.shape == x.shape
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match=r"^x: channel 0 reaches 1\.\d+e\+06 in field \d, and the run was trained on"):
        run.predict(1000 * x)
    with pytest.raises(InputError, match=r"^x has fields of \(7,\) points; the run was trained on \(14,\)$"):
        run.predict(x[..., ::2])
    run.predict(x + np.array([[50.0], [0.0]], np.float32))
    assert "crossreg: warning: x: channel 0 reaches 107" in capsys.readouterr().err
    with pytest.raises(InputError, match="1 channels"):
        run.predict(x[:, :1])


def test_a_rollout_refuses_what_a_prediction_refuses(own_run, capsys):
    run, x = load_run(own_run), own_fields()[:3, 0]
    data = xr.load(own_fields())
    fitted = Fit(run.model, [], data, TrainConfig())
    for has_model, shift in ((run, 50.0), (fitted, 53.0)):  # the same warning is not printed twice
        assert has_model.rollout(x, 2, 3).mean.shape == (2, *x.shape)
        assert capsys.readouterr().err == ""
        with pytest.raises(
            InputError, match=r"^x0: channel 0 reaches 1\.\d+e\+06 in field \d, and the run was trained"
        ):
            has_model.rollout(1000 * x, 2, 3)
        with pytest.raises(InputError, match=r"^x0 has fields of \(7,\) points; the run was trained on \(14,\)$"):
            has_model.rollout(x[..., ::2], 2, 3)
        with pytest.raises(InputError, match=r"^x0 has fields of \(7,\) points"):
            xr.rollout(has_model, x[..., ::2], 2, 3)
        batch = data.test[:2]
        with pytest.raises(InputError, match=r"^x0: channel 0 reaches"):
            has_model.rollout(batch._replace(x=1000 * batch.x), 2, 3)
        has_model.rollout(x + np.array([[shift], [0.0]], np.float32), 2, 3)
        assert "crossreg: warning: x0: channel 0 reaches 107" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"^x has fields of \(7,\) points; the run was trained on \(14,\)$"):
        fitted.predict(x[..., ::2])


def test_a_fit_refuses_what_its_run_refuses(own_run, capsys):
    data, x = xr.load(own_fields()), own_fields()[:3, 0]
    fitted = Fit(load_run(own_run).model, [], data, TrainConfig())
    in_a_program = jax.jit(lambda fields: fitted.predict(fields, num_samples=3).mean)(x)
    np.testing.assert_allclose(fitted.predict(x, num_samples=3).mean, in_a_program, rtol=1e-4, atol=1e-4)
    assert capsys.readouterr().err == ""
    for large in (1000 * x, data.test[:2]._replace(x=1000 * data.test[:2].x)):
        with pytest.raises(InputError, match=r"^x: channel 0 reaches 1\.\d+e\+06 in field \d, and the run was trained"):
            fitted.predict(large)
    fitted.predict(x + np.array([[56.0], [0.0]], np.float32))
    assert "crossreg: warning: x: channel 0 reaches 1080" in capsys.readouterr().err


def test_fields_a_little_outside_are_warned_of(predicts):
    x = own_fields()[:3, 0]
    x[1, 1, 4] = -3.0
    code, said, written = predicts(x)
    assert (code, written) == (0, True)
    assert "channel 1 reaches -3 in field 1, and the run was trained on inputs from -0.4989 to 0.4998:" in said
    assert said.endswith("its error bars may not hold there\n")
    x = own_fields()[:3, 0]
    x[:, 1] /= 1000
    code, said, written = predicts(x)
    assert (code, written) == (0, True)
    assert "channel 1 varies by 0.00" in said
    assert said.endswith("are these the units of the run's data?\n")


@pytest.mark.parametrize(
    ("beyond", "expected"), [(0.9, "nothing"), (1.1, "warned"), (9.9, "warned"), (10.1, "refused")]
)
@pytest.mark.parametrize("sign", [-1, 1])
def test_how_far_is_too_far(beyond, sign, expected):
    """In units of the range's width, 4, below its lower and above its upper end."""
    x = np.linspace(2.0, 6.0, 12, dtype=np.float32).reshape(2, 1, 6)
    x[1, 0, 3] = 4 + sign * (2 + 4 * beyond)
    known, mask = InputRange((2.0,), (6.0,)), np.ones(6, bool)
    if expected == "refused":
        with pytest.raises(InputError, match=r"channel 0 reaches .* in field 1"):
            check_range(x, mask, known, "x")
    else:
        assert len(check_range(x, mask, known, "x")) == (expected == "warned")


def test_fields_of_which_nothing_is_seen_are_refused(predicts, tmp_path):
    x = own_fields()[:3, 0]
    x[1] = np.nan
    code, said, written = predicts(x)
    assert (code, written) == (2, False)
    assert "x.npy: nothing of field 1 is seen, since every value is NaN or hidden by the mask" in said
    assert said.count("\n") == 1
    x[1, 1, 3:] = np.linspace(-0.3, 0.3, POINTS - 3)
    np.save(tmp_path / "mask.npy", np.arange(POINTS) < 3)
    assert "nothing of field 1 is seen" in predicts(x, "--mask", str(tmp_path / "mask.npy"))[1]
    np.save(tmp_path / "mask.npy", np.zeros(POINTS))
    assert "hides every point" in predicts(x, "--mask", str(tmp_path / "mask.npy"))[1]
    # A gap in a field may be, and one of a whole channel is said.
    [said] = check_seen(x, np.ones(POINTS, bool), "x")
    assert said.startswith("x: nothing of channel 0 is seen in field 1, since every value is NaN or hidden by the mask")
    x[2, 1] = np.nan
    x[0, 1] = np.nan
    said = check_seen(x, np.ones(POINTS, bool), "x")
    assert [line.split(" is seen in ")[1].split(",")[0] for line in said] == ["field 1", "field 0 and 1 more"]
    x[1, 0, :2] = 1013.0  # which a mask may hide
    assert len(check_seen(x, np.ones(POINTS, bool), "x")) == 1
    assert len(check_seen(x, np.arange(POINTS) > 2, "x")) == 2


def test_each_field_is_looked_at_by_itself(predicts):
    """Of three fields one is in another unit; and one varies less than any that was trained on, but not by much."""
    x = own_fields()[:3, 0]
    x[1, 1] /= 1000
    code, said, written = predicts(x)
    assert (code, written) == (0, True)
    spread = np.ptp(x[1, 1].astype(np.float64))
    assert f"channel 1 varies by {spread:.2g} in field 1, and the run was trained on inputs from -0.4989" in said
    assert said.count("\n") == 1
    x[2, 1] /= 1000
    x[0, 0, 3] = 1060.0  # of another channel, and beyond
    said = predicts(x)[1].splitlines()
    assert len(said) == 2
    assert "channel 0 reaches 1060 in field 0" in said[0]
    assert "in field 1 and 1 more, and the run" in said[1]
    x = own_fields()[:3, 0]
    x[1, 1] /= 50
    assert predicts(x) == (0, "", True)


def test_a_field_that_varies_as_little_as_those_of_train_is_not_warned_of():
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 1, 12) * [[[1.0]], [[0.003]], [[0.002]]]
    mask = np.arange(12) > 0
    for least, said in ((None, "field 1 and 1 more"), (np.ptp(x[1, 0, 1:]), "field 2"), (0.0, "")):
        known = InputRange((-1.0,), (1.0,), None if least is None else (float(least),))
        warnings = check_range(x, mask, known, "x")
        assert [line.split(" in ")[1].split(",")[0] for line in warnings] == ([said] if said else [])


def test_a_run_of_an_older_version_has_the_range_of_its_units(own_run, predicts, tmp_path):
    """Four standard deviations around the mean; a scenario's run says nothing, and predicts as it did."""
    older = tmp_path / "older"
    shutil.copytree(own_run, older)
    fields = json.loads((older / "fields.json").read_text())
    record_json(older, "fields.json", {k: v for k, v in fields.items() if not k.startswith("input_")})
    known = load_run(older).input_range
    assert known is not None
    spread = 12 / np.sqrt(3)  # of a uniform distribution
    np.testing.assert_allclose((known.low[0], known.high[0]), (1013 - 4 * spread, 1013 + 4 * spread), atol=2)
    assert predicts(own_fields()[:3, 0], folder=older) == (0, "", True)
    assert predicts(own_fields()[:3, 0] * 1000, folder=older)[0] == 2
    assert stored_range({}, 2, None) is None
    assert stored_range({}, 1, Units((3.0,), (0.5,))) == InputRange((1.0,), (5.0,))


@pytest.mark.parametrize(
    "ends", [([0.0], [1.0]), ([0.0, float("nan")], [1.0, 1.0]), ([0.0, 2.0], [1.0, 1.0]), ([0.0, 0.0], [1.0, 1.0, 1.0])]
)
def test_a_range_that_cannot_be_is_refused(ends):
    with pytest.raises(ValueError, match="input_low and input_high"):
        stored_range(dict(zip(("input_low", "input_high"), ends, strict=True)), 2, None)
    fields = {"input_low": [0.0, 1.0], "input_high": [3.0, 1.0]}
    for least in ([0.1], [0.1, -0.1], [float("nan"), 0.1], [0.1, float("inf")]):
        with pytest.raises(ValueError, match="input_least_spread"):
            stored_range(fields | {"input_least_spread": least}, 2, None)
    least = {"input_least_spread": [0.1, 0.0]}
    assert stored_range(fields | least, 2, None) == InputRange((0.0, 1.0), (3.0, 1.0), (0.1, 0.0))


@pytest.mark.parametrize("memory", ["1.0", "0.0"])
@pytest.mark.parametrize("split", ["train", "reg", "test"])
def test_a_split_without_a_measured_target_is_refused_before_training(split, memory, tmp_path, capsys):
    """Of each trajectory of the split only the first time was measured, which is no target."""
    for number, name in enumerate(("train", "valid", "test")):
        fields = own_fields()[3 * number : 3 * number + 3]
        if name == {"reg": "valid"}.get(split, split):
            fields[:, 1:] = np.nan
        (tmp_path / "data" / name).mkdir(parents=True)
        np.save(tmp_path / "data" / name / "u.npy", fields)
    out = tmp_path / "run"
    command = ["train", "--data", str(tmp_path / "data"), *SHAPE, "--in-memory-gib", memory, "--out", str(out)]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert f"no target of {split} was measured: every value is missing or hidden by the file's mask" in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_mask_that_hides_all_is_refused_before_training(tmp_path, capsys):
    mask = np.zeros((SAMPLES, TIMES, POINTS), bool)
    np.savez(tmp_path / "own.npz", u=own_fields(), mask=mask)
    command = ["train", "--data", str(tmp_path / "own.npz"), *SHAPE, "--out", str(tmp_path / "run")]
    assert main(command) == 2
    assert "no input of train was measured" in capsys.readouterr().err
    assert main([*command, "--score-on", "observed"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    sweep = ["sweep", "grid", "--grid", "mask_seed=3", "--methods", "persistence", "--data", str(tmp_path / "own.npz")]
    assert main([*sweep, "--out", str(tmp_path / "s"), "--quiet"]) == 2
    assert "no input of train was measured" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    # One point in the last trajectory that is looked at is enough.
    mask[:, :, 2] = True
    np.savez(tmp_path / "own.npz", u=own_fields(), mask=mask)
    assert unmeasured(load_file(tmp_path / "own.npz").test) == []


def test_a_part_of_reg_without_a_measured_target_calibrates_nothing(tmp_path):
    fields = own_fields()
    np.save(tmp_path / "own.npy", fields)
    sizes = {"train_size": 4, "reg_size": 4, "test_size": 3}
    rows = load_file(tmp_path / "own.npy", **sizes).reg.trajectories[:, 0, 0, 0]
    measured = np.flatnonzero(np.isin(fields[:, 0, 0, 0], np.asarray(rows)[2:3]))  # one of the four
    hidden = [i for i in np.flatnonzero(np.isin(fields[:, 0, 0, 0], np.asarray(rows))) if i not in measured]
    fields[hidden, 1:] = np.nan
    np.save(tmp_path / "own.npy", fields)
    data = load_file(tmp_path / "own.npy", **sizes)
    assert unmeasured(data.reg) == []
    for seed in range(6):  # the measured one is learned from, or kept
        with pytest.raises(InputError, match=r"reg_size is 4: a part of reg, .* has no measured value"):
            data.split_off_calibration(seed)


def test_pairs_without_a_target_have_no_localization():
    assert np.isnan(on_host(np.ones(3), np.ones(3), np.zeros(3))).all()


def test_hidden_points_are_refused_by_a_run_that_never_saw_any(predicts, tmp_path):
    x = own_fields()[:3, 0]
    mask = np.ones(POINTS, np.float32)
    mask[[2, 5]] = 0
    np.save(tmp_path / "mask.npy", mask)
    with_a_gap = x.copy()
    with_a_gap[1, 0, 4] = np.nan
    for arguments, share in (((x, "--mask", str(tmp_path / "mask.npy")), "14.3%"), ((with_a_gap,), "7.1%")):
        code, said, written = predicts(*arguments)
        assert (code, written) == (2, False)
        assert f"{share} of the points of field {share == '7.1%':d} are hidden" in said
        assert "trained on fields of which every point was observed" in said


@pytest.mark.parametrize(("hidden", "warned"), [(None, False), (0.3, True), (0.5, False)])
def test_many_more_hidden_points_than_in_training_are_warned_of(hidden, warned):
    """Of 14 points 10 are hidden, .714: beyond half of what is left of .7, and of .5 not."""
    x, mask = own_fields()[:3, 0], np.arange(POINTS) < 4
    said = check_hidden(x, mask, InputRange((0.0, 0.0), (1.0, 1.0), None, hidden), "input x")
    assert bool(said) == warned
    assert all("71.4% of the points of field 0 are hidden" in text and "at most 30.0%" in text for text in said)


def test_how_much_was_hidden_is_known_where_nothing_can_have_been_missed(tmp_path):
    """Of fields with rare gaps, those that were looked at may have none."""
    fields = own_fields()
    for name, gap, share in (("whole", (), 0.0), ("gap", (0, 2, 1, 3), 1 / POINTS)):
        if gap:
            fields[:, gap[1], gap[2], gap[3]] = np.nan
        np.save(tmp_path / f"{name}.npy", fields)
        known = input_range(load_file(tmp_path / f"{name}.npy").train)
        assert known.hidden == pytest.approx(share, abs=1e-7)
    assert input_range(load_file(tmp_path / "whole.npy", in_memory_gib=0.0).train).hidden is None
    half = input_range(load_file(tmp_path / "whole.npy", observed_fraction=0.5).train).hidden
    assert half == pytest.approx(0.5, abs=1e-6)


def test_every_pair_is_looked_at_until_one_is_measured(tmp_path, monkeypatch):
    fields = own_fields()
    train = load_file(_saved(tmp_path, fields)).train
    fields[:, :-2] = np.nan  # the last pair of each trajectory is whole
    pairs = load_file(_saved(tmp_path, fields)).train
    assert int(train.num_pairs) == int(pairs.num_pairs)
    monkeypatch.setattr("crossreg.data.dataset._VALUES", 1)
    assert unmeasured(pairs) == []


def _saved(folder, fields):
    np.save(folder / "own.npy", fields)
    return folder / "own.npy"
