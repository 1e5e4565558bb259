"""`crossreg rollout`: what it prints and writes, against the forecast object and `crossreg predict`."""

import dataclasses
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.data.keys import evaluation_key
from crossreg.errors import InputError
from crossreg.forecasts import windows
from crossreg.forecasts.forecast import Forecast
from crossreg.forecasts.loop import Particles
from crossreg.forecasts.rollout import start
from crossreg.forecasts.scores import climatology_of, score_by_lead
from crossreg.nn.build import model_like
from crossreg.nn.noise import is_stochastic
from crossreg.runs import forecasting
from crossreg.runs.fields.forecast_fields import compute_forecast_fields
from crossreg.runs.final_scores import leads_until
from crossreg.runs.forecasting import forecast_fields
from crossreg.runs.prediction import predict_fields
from crossreg.runs.run_folder import check_scored, load_run
from crossreg.runs.safeguards.locks import locked
from refused_commands import refused

SETTINGS = {
    "train_size": 7, "reg_size": 6, "test_size": 4, "train_horizon": 3, "test_horizon": 5, "width": 4, "num_blocks": 1,
    "num_modes": 5, "steps": 12, "evaluate_every": 6, "batch_size": 4, "num_samples": 3, "evaluation_samples": 6,
    "observed_fraction": 0.6, "reg_horizon": 3, "settle": 0.5,
}  # fmt: skip
LISTS = ("rmse", "spread_skill", "crps", "ece_mix", "crps_climatology", "energy_score")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run that is trained once; `diff_ks` are travelling waves."""
    from crossreg.data import cache
    from crossreg.data.split import POOL_SIZE, TEST_POOL
    from travelling_waves import HORIZON, TEST_HORIZON, make_trajectories

    where = tmp_path_factory.mktemp("rollouts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSREG_CACHE", str(where / "cache"))
        name = f"apebench-diff_ks-{POOL_SIZE}x{HORIZON}-{len(TEST_POOL)}x{TEST_HORIZON}"
        cache.write(where / "cache" / f"{name}.npz", make_trajectories())
        flags = [part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        assert main(["train", *flags, "--lead-growth", "--quiet", "--out", str(where / "run")]) == 0
        yield where / "run"


@pytest.fixture(scope="module")
def x(folder) -> np.ndarray:
    run = load_run(folder)
    return np.random.default_rng(0).normal(size=(3, run.channels, *run.space)).astype(np.float32)


def test_leads_of_a_table_end_at_the_last():
    assert leads_until(1) == [1]
    assert leads_until(6) == [1, 2, 3, 5, 6]
    assert leads_until(50)[-3:] == [30, 40, 50]


def test_the_scores_of_test_trajectories_are_printed_and_written(folder, capsys):
    capsys.readouterr()
    assert main(["rollout", str(folder), "--particles", "7", "--leads", "1,4,5", "--quiet"]) == 0
    shown = capsys.readouterr()
    # Its error bars were learned on rollouts, but not at these times.
    said = "the run was trained on 3 steps of its trajectories: leads above 3 are at times beyond those"
    assert shown.err == f"crossreg: {said}\n"
    stored = json.loads((folder / "rollout.json").read_text())
    run = load_run(folder)
    data = run.load_data()
    how = {"climate": climatology_of(data.train), "particles": 7}  # a run knows its limits
    wanted = score_by_lead(run, data.test, [1, 4, 5], steps=5, **how)
    assert stored == json.loads(json.dumps(wanted)) | {"steps": 5, "particles": 7, "reg_horizon": 3}
    assert stored["leads"] == [1, 4, 5]
    assert all(len(stored[name]) == 3 and all(isinstance(v, float) for v in stored[name]) for name in LISTS)
    assert isinstance(stored["out_of_range"], int)
    head, _, *rows = shown.out.splitlines()
    assert head.split()[0] == "lead"
    for row, lead in zip(rows[:3], (0, 1, 2), strict=True):
        cells = row.split()
        assert cells[0] == str(stored["leads"][lead])
        for place, name in ((1, "rmse"), (2, "spread_skill"), (3, "ece_mix"), (4, "crps"), (5, "crps_climatology")):
            assert float(cells[place]) == pytest.approx(stored[name][lead], rel=2e-2, abs=6e-4)
    assert main(["rollout", str(folder), "--particles", "7", "--leads", "1,4,5", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == stored


def test_one_step_is_what_predict_gives(folder, x, tmp_path, capsys):
    np.save(tmp_path / "x.npy", x)
    one_step = ["--steps", "1", "--particles", str(SETTINGS["evaluation_samples"])]
    for command, how in (("predict", []), ("rollout", one_step)):
        flags = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / f"{command}.npz"), "--quiet"]
        assert main([command, str(folder), *flags, "--levels", "0.3", "0.8", *how]) == 0
    predicted, forecast = (np.load(tmp_path / f"{name}.npz") for name in ("predict", "rollout"))
    assert set(forecast) == {*predicted, "leads", "held_share", "out_of_range"}
    for name in ("mean", "std", "std_predictive", "std_generalization"):
        np.testing.assert_allclose(forecast[name][0], predicted[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert forecast["quantiles"].shape == (2, 1, *x.shape)
    np.testing.assert_allclose(forecast["quantiles"][:, 0], predicted["quantiles"], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(forecast["leads"], [1])


@pytest.mark.parametrize("channels", [[0], [0, 1]])
def test_a_missing_value_is_hidden_as_predict_hides_it(folder, x, channels):
    """In its own channel, in the first input alone."""
    run = load_run(folder)
    assert run.mask is not None
    gaps = x.copy()
    place = int(np.flatnonzero(run.mask)[2])
    gaps[1, channels, place] = np.nan
    count = SETTINGS["evaluation_samples"]
    predicted = predict_fields(run, gaps, run.mask, levels=(0.5,))
    forecast = forecast_fields(run, gaps, run.mask, steps=3, particles=count, leads=[1, 3])
    np.testing.assert_allclose(forecast["mean"][0], predicted["mean"], rtol=1e-4, atol=1e-5)
    zeros = np.where(np.isnan(gaps), 0, gaps)
    same = forecast_fields(run, zeros, run.mask, steps=3, particles=count, leads=[1, 3])
    np.testing.assert_allclose(forecast["std"], same["std"], rtol=1e-4, atol=1e-5)


def test_a_network_that_reads_its_mask_sees_the_measured_channels_of_a_point(folder, x):
    run = load_run(folder)
    assert run.mask is not None
    config = run.config.replace(mask_channel=True)
    like = model_like(config.model, run.channels + 1, (run.channels, *run.space), run.model.units)
    is_array = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    model = jax.tree.map(lambda a: 0.1 * jnp.ones(a.shape, a.dtype) if is_array(a) else a, like)
    run, mask = run._replace(config=config, model=model), run.mask
    gaps = x.copy()
    gaps[1, 0, np.flatnonzero(mask)[2]] = np.nan
    predicted = predict_fields(run, gaps, mask, levels=(0.5,))
    forecast = forecast_fields(run, gaps, mask, steps=2, particles=SETTINGS["evaluation_samples"])
    np.testing.assert_allclose(forecast["mean"][0], predicted["mean"], rtol=1e-4, atol=1e-5)
    whole = forecast_fields(run, x, mask, steps=2, particles=SETTINGS["evaluation_samples"])
    assert np.abs(forecast["mean"][0, 1] - whole["mean"][0, 1]).max() > 1e-3


def test_a_forecast_does_not_depend_on_how_fields_are_divided(folder, x, monkeypatch):
    run = load_run(folder)
    assert run.mask is not None
    whole = forecast_fields(run, x, run.mask, steps=4, particles=5, leads=[2, 4])
    monkeypatch.setattr(forecasting, "_VALUES_PER_CALL", 2 * x[0].size * 2 * 5)
    parts = forecast_fields(run, x, run.mask, steps=4, particles=5, leads=[2, 4])
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
    run_forecast = run.rollout(np.where(run.mask, x, 0), 4, 5, leads=[2, 4])
    assert run_forecast.mean.shape == whole["mean"].shape
    assert whole["mean"].shape == (2, *x.shape)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_forecast_of_large_fields_is_computed_some_leads_at_a_time(folder, x, monkeypatch, at_once):
    """With the same numbers; one program serves all fields and levels."""
    run = load_run(folder)
    assert run.mask is not None
    how: dict[str, Any] = {"steps": 5, "particles": 5, "leads": [1, 3, 4, 5], "levels": (0.1, 0.5, 0.9)}
    whole = forecast_fields(run, x, run.mask, **how)
    found, real = [], Particles.to
    monkeypatch.setattr(Particles, "to", lambda self, leads: found.append(len(leads)) or real(self, leads))
    monkeypatch.setattr(forecasting, "_VALUES_PER_CALL", at_once * x[0].size * 5)
    parts = forecast_fields(run, x, run.mask, **how)
    assert found == [at_once] * (len(x) * 4 // at_once)
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-4, atol=1e-5, err_msg=name)


def test_what_sigma_adds_is_drawn_anew_for_each_part_of_a_large_forecast(folder, x, monkeypatch):
    run, found, real = load_run(folder), [], Forecast.samples
    monkeypatch.setattr(forecasting, "_VALUES_PER_CALL", x[0].size * 5)  # one lead of one field at a time
    monkeypatch.setattr(
        Forecast,
        "samples",
        lambda self, n, *, key: found.append(tuple(jax.random.key_data(key))) or real(self, n, key=key),
    )
    assert run.mask is not None
    forecast_fields(run, x, run.mask, steps=3, particles=5, levels=(0.5,), samples=2)
    assert len({tuple(map(int, key)) for key in found}) == len(found) == 3 * len(x)


def test_fields_in_chunks_share_their_programs(folder, x, monkeypatch):
    run = load_run(folder)
    assert run.mask is not None
    monkeypatch.setattr(forecasting, "_VALUES_PER_CALL", 2 * x[0].size * 5)
    how: dict[str, Any] = {"steps": 3, "particles": 5, "leads": [3]}
    forecast_fields(run, x[:2], run.mask, levels=(0.3,), **how)
    found = []
    monkeypatch.setattr(
        forecasting, "start", lambda *args, **given: found.append(args[1].shape) or start(*args, **given)
    )
    forecast_fields(run, x, run.mask, levels=(0.1, 0.2, 0.3, 0.4), **how)
    assert found == [(2, *x.shape[1:])] * 2  # the last chunk is padded


def test_a_forecast_that_does_not_fit_into_memory_is_refused_before_it_is_computed(folder, x, monkeypatch):
    """Its particles are counted too."""
    run = load_run(folder)
    assert run.mask is not None
    outputs = 4 * x.size * 3 * (4 + 3)
    monkeypatch.setattr("crossreg.files.memory.available_bytes", lambda: outputs + 4 * x.size * 3 * 60)
    forecast_fields(run, x, run.mask, steps=3, particles=2)
    with pytest.raises(InputError, match=r"a forecast of 3 fields of \d+ values with 60 particles at 3 leads with 3 l"):
        forecast_fields(run, x, run.mask, steps=3, particles=60)


def test_stored_forecasts_are_those_of_all_leads_together(folder, monkeypatch):
    run = load_run(folder)
    data = run.load_data()
    whole = compute_forecast_fields(run, data, 4, particles=3)
    found, real = [], Particles.to
    monkeypatch.setattr(Particles, "to", lambda self, leads: found.append(leads) or real(self, leads))
    monkeypatch.setattr(windows, "_MOST_VALUES", 1)
    parts = compute_forecast_fields(run, data, 4, particles=3)
    assert found == [(lead,) for _ in range(3) for lead in (1, 2, 3, 4)]
    for name, values in whole._asdict().items():
        if isinstance(values, np.ndarray):
            np.testing.assert_allclose(getattr(parts, name), values, rtol=1e-4, atol=1e-5, err_msg=name)


def test_stored_forecasts_are_those_of_the_run_beside_the_truth_of_their_leads(folder):
    run = load_run(folder)
    data = run.load_data()
    stored = compute_forecast_fields(run, data, 4, particles=3)
    rows = np.asarray(data.test.rows)[stored.trajectories]
    np.testing.assert_array_equal(stored.steps, [1, 2, 3, 4])
    np.testing.assert_array_equal(stored.truth, np.asarray(data.test.trajectories)[rows, 1:5])
    first = stored.trajectories * data.test.pairs_per_row
    keys = jax.vmap(lambda number: jax.random.fold_in(evaluation_key(0), number))(jnp.asarray(first))
    forecast = run.rollout(data.test[first], 4, 3, key=keys)
    for name in ("mean", "std", "std_predictive", "std_generalization"):
        found = np.moveaxis(getattr(stored, name), 1, 0)
        np.testing.assert_allclose(found, getattr(forecast, name), rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(np.moveaxis(stored.quantiles[5], 1, 0), forecast.quantile(0.95), rtol=1e-3, atol=1e-3)


def test_what_was_not_measured_is_no_truth_of_a_stored_forecast(folder):
    run = load_run(folder)
    data = run.load_data()
    fields = data.test.trajectories.at[:, 4, :, 2].set(jnp.nan)
    data = dataclasses.replace(data, test=dataclasses.replace(data.test, trajectories=fields, has_gaps=True))
    stored = compute_forecast_fields(run, data, 4, particles=3)
    gaps = np.zeros(stored.truth.shape, bool)
    gaps[:, 3, :, 2] = True
    assert stored.gap_mean is not None
    for found in (np.isnan(stored.truth), np.isnan(stored.error), ~np.isnan(stored.gap_mean)):
        np.testing.assert_array_equal(found, gaps)
    assert stored.pit.sum() == (~gaps).sum()


def test_a_run_refuses_fields_without_a_mask_where_none_serves_all(folder, x):
    run = load_run(folder)
    with pytest.raises(InputError, match=r"^mask: none serves all fields \(60% .*\); give a `mask`, or a batch"):
        run._replace(mask=None).rollout(x, 2, 3)
    assert run._replace(mask=None).rollout(x, 2, 3, mask=run.mask).leads == (1, 2)


def test_a_run_names_the_channels_of_its_forecasts(folder, x):
    run = load_run(folder)
    assert run.rollout(x, 1, 3).names == run.names == ()
    assert run._replace(names=("u", "v")).rollout(x, 1, 3).names == ("u", "v")
    assert run._replace(names=("u", "v")).rollout(x, 1, 3, names=["p", "q"]).names == ("p", "q")


def test_the_share_of_held_values_is_that_of_all_fields(folder, x, monkeypatch):
    """Of fields that are forecast in two parts; the limits are those of the inputs on train, and a tenth beyond."""
    run = load_run(folder)
    assert run.mask is not None
    train = run.load_data().train
    seen = np.asarray(train[np.arange(int(train.num_pairs))].x)[..., run.mask]
    low, high = seen.min(axis=(0, 2)), seen.max(axis=(0, 2))
    assert run.limits is not None
    np.testing.assert_allclose(run.limits.low, low - 0.1 * (high - low), rtol=1e-5)
    np.testing.assert_allclose(run.limits.high, high + 0.1 * (high - low), rtol=1e-5)
    mask = run.mask
    run = run._replace(model=eqx.tree_at(lambda m: m.heads.mean.weight, run.model, run.model.heads.mean.weight * 4))
    how: dict[str, Any] = {"steps": 4, "particles": 5, "leads": [1, 4]}
    whole = forecast_fields(run, x, mask, **how)["held_share"]
    assert 0.01 < whole.min() < whole.max() < 0.99
    monkeypatch.setattr(forecasting, "_VALUES_PER_CALL", 2 * x[0].size * 2 * 5)
    np.testing.assert_allclose(forecast_fields(run, x, mask, **how)["held_share"], whole, rtol=1e-3)


def test_error_bars_of_single_steps_are_warned_of_beyond_one(folder):
    run = load_run(folder)
    assert run.config.train.reg_horizon == 3
    single = run._replace(config=run.config.replace(reg_horizon=1, lead_growth=False))
    assert [bool(forecasting.of_single_steps(of, steps)) for of in (run, single) for steps in (1, 2)] == [
        False, False, False, True
    ]  # fmt: skip
    assert "learned on single steps" in forecasting.of_single_steps(single, 2)


def test_leads_at_times_of_train_are_not_warned_of(folder, capsys):
    capsys.readouterr()
    assert main(["rollout", str(folder), "--steps", "3", "--particles", "2", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_folder_in_use_is_refused_and_left_alone(folder, capsys):
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with locked(folder, "training"):
        said = refused(capsys, "rollout", folder, "--steps", "2", "--particles", "3", "--quiet")
    assert "in use by another process" in said
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_stored_forecasts_are_listed_and_checked(folder):
    assert main(["rollout", str(folder), "--steps", "2", "--particles", "2", "--quiet"]) == 0
    check_scored(folder)
    written = (folder / "rollout.json").read_bytes()
    (folder / "rollout.json").write_bytes(written.replace(b'"particles": 2', b'"particles": 9'))
    with pytest.raises(InputError, match=r"rollout\.json: is corrupted"):
        check_scored(folder)
    (folder / "rollout.json").write_bytes(written)
    check_scored(folder)


BAD = {
    "--particles 1: one particle has no spread": ["--particles", "1"],
    "--levels: needs --input": ["--levels", "0.1", "0.9"],
    "--steps 0: must be from 1 to the 5": ["--steps", "0"],
    "--steps 6: must be from 1 to the 5": ["--steps", "6"],
    "--particles 0: must be at least 1": ["--particles", "0"],
    "--leads 3,2: must be increasing": ["--leads", "3,2"],
    "--leads 1,9: must be increasing": ["--leads", "1,9"],
    "--leads 1,x": ["--leads", "1,x"],
    "--output: needs --input": ["--output", "a.npz"],
    "--samples: needs --input": ["--samples", "2"],
    "--mask: needs --input": ["--mask", "mask.npy"],
    "--no-mask: needs --input": ["--no-mask"],
}


@pytest.mark.parametrize("message", BAD)
def test_what_cannot_be_forecast_is_one_line(folder, message, capsys):
    assert message in refused(capsys, "rollout", folder, "--quiet", *BAD[message])


BAD_INPUT = {
    "--particles 1: one particle has no spread": ["--particles", "1"],
    "--data: is for the scores of test trajectories": ["--data", "waves.npy"],
    "--json: is for the scores of test trajectories": ["--json"],
    "--particles 0: must be at least 1": ["--particles", "0"],
    "--steps 0: must be at least 1": ["--steps", "0"],
    "--leads 2,1: must be increasing": ["--steps", "4", "--leads", "2,1"],
    "20": [],
}


@pytest.mark.parametrize("message", BAD_INPUT)
def test_what_cannot_be_forecast_from_is_one_line(folder, message, x, tmp_path, capsys):
    np.save(tmp_path / "x.npy", x[..., 1:] if message == "20" else x)
    flags = ["--input", tmp_path / "x.npy", "--output", tmp_path / "y.npz", "--quiet"]
    assert message in refused(capsys, "rollout", folder, *flags, *BAD_INPUT[message])
    assert not (tmp_path / "y.npz").exists()


@pytest.mark.parametrize("factor", [1e15, np.nan])
def test_a_model_that_explodes_is_one_line(folder, x, tmp_path, capsys, monkeypatch, factor):
    """Nothing is written; it is said that all particles are out of range."""
    run = load_run(folder)
    model = eqx.tree_at(lambda m: m.heads.mean.weight, run.model, run.model.heads.mean.weight * factor)
    monkeypatch.setattr("crossreg.runs.run_folder.load_run", lambda _: run._replace(model=model))
    np.save(tmp_path / "x.npy", x)
    flags = ["--input", tmp_path / "x.npy", "--output", tmp_path / "y.npz", "--steps", "6", "--particles", "7"]
    left = "this is no forecast: of 21 particles, 21 left the range of the training data"
    assert refused(capsys, "rollout", folder, *flags, "--quiet").endswith(f"{left}\n")
    assert not (tmp_path / "y.npz").exists()
    capsys.readouterr()
    assert main(["rollout", str(folder), "--particles", "3", "--json", "--quiet"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["out_of_range"] == scores["particles_in_all"] == 12
    assert min(scores["held_share"]) > 0.9
    assert scores["valid_share"][-1] == 0
    assert scores["rmse"][-1] is None or scores["rmse"][-1] > 1e10


def test_a_network_without_noise_has_one_particle(folder, x, tmp_path, capsys, monkeypatch):
    """One that explodes is refused, however many particles were asked for."""
    run = load_run(folder)
    model = dataclasses.replace(run.model, stages=tuple(s for s in run.model.stages if not is_stochastic(s)))
    exploding = eqx.tree_at(lambda m: m.heads.mean.weight, model, 1e15 * model.heads.mean.weight)
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(InputError, match="of 3 particles, 3 left the range of the training data"):
        forecasting.forecast_file(run._replace(model=exploding), tmp_path / "x.npy", tmp_path / "y.npz", steps=2)
    monkeypatch.setattr("crossreg.runs.run_folder.load_run", lambda _: run._replace(model=model))
    assert main(["rollout", str(folder), "--quiet"]) == 0
    assert "4 forecasts of 5 steps, 1 particle each" in capsys.readouterr().out


@pytest.mark.parametrize("lost", [10, 11])
def test_a_forecast_of_which_most_particles_are_lost_is_refused(folder, x, tmp_path, monkeypatch, lost, capsys):
    """At half of 21 particles or fewer, there is a warning."""
    run = load_run(folder)
    real = forecasting.forecast_fields

    def with_lost(*args, **how):
        return real(*args, **how) | {"out_of_range": np.asarray([0, 0, lost])}

    monkeypatch.setattr(forecasting, "forecast_fields", with_lost)
    np.save(tmp_path / "x.npy", x)
    source, target = tmp_path / "x.npy", tmp_path / "y.npz"
    if lost == 11:
        with pytest.raises(
            InputError, match="of 21 particles, 11 left the range of the training data; up to lead 2, n"
        ):
            forecasting.forecast_file(run, source, target, steps=3, particles=7)
        assert not target.exists()
    else:
        forecasting.forecast_file(run, source, target, steps=3, particles=7)
        assert "left the range of the training data: 10 of 21 (out_of_range" in capsys.readouterr().err
        np.testing.assert_array_equal(np.load(target)["out_of_range"], [0, 0, 10])
