"""Own data from file to report, through the command line."""

import json
import re
import shlex
import shutil
from pathlib import Path

import jax
import matplotlib.image
import numpy as np
import onnxruntime
import pytest

from crossreg.cli.main import main
from crossreg.config import load_yaml
from crossreg.data.files.check import check_data
from crossreg.errors import InputError
from crossreg.export.tensors import read_model
from crossreg.report.data_check import draw_check
from crossreg.runs.prediction import predict_fields
from crossreg.runs.run_folder import load_run
from crossreg.runs.safeguards.manifest import vouch
from made_fields import fields
from refused_commands import refused

SMALL = "--width 4 --num-blocks 2 --num-modes 4 --steps 20 --evaluate-every 10 --batch-size 5 --num-samples 4 --quiet"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """A file, and a run that was trained on it."""
    folder = tmp_path_factory.mktemp("made")
    u = fields(1) * np.array([2e3, 0.05]).reshape(1, 1, 2, 1) + np.array([1e5, -3.0]).reshape(1, 1, 2, 1)
    u[:, :, 1, 5] = np.nan
    np.savez(folder / "flow.npz", pressure=u[:, :, 0], velocity=u[:, :, 1], x=np.arange(20.0))
    flags = ["--data", str(folder / "flow.npz"), "--field", "pressure,velocity", "--axes", "btx"]
    assert main(["train", *flags, "--out", str(folder / "run"), *SMALL.split()]) == 0
    return folder / "flow.npz", folder / "run"


@pytest.fixture
def own(made, tmp_path) -> Path:
    """A copy of the file, to be moved and changed."""
    return Path(shutil.copy(made[0], tmp_path / "flow.npz"))


@pytest.fixture
def run(made) -> Path:
    return made[1]


def test_from_file_to_report(made, tmp_path, capsys, monkeypatch):
    own, run = made
    config = load_yaml(run / "config.yaml").data
    sizes = (config.train_size, config.reg_size, config.test_size, config.train_horizon, config.test_horizon)
    assert sizes == (8, 1, 2, 5, 5)
    assert (config.data, config.scenario, config.observed_fraction) == (str(own.resolve()), "flow.npz", 1.0)
    monkeypatch.chdir("/")  # a run finds its data from anywhere
    capsys.readouterr()
    assert main(["evaluate", str(run)]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if line.startswith(("pressure", "velocity"))] == [
        "pressure",
        "velocity",
    ]
    assert main(["evaluate", str(run), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics == json.loads((run / "metrics.json").read_text())
    pressure, velocity = metrics["test"]["channel_rmse"]
    assert 100 < pressure < 2e4
    assert 1e-3 < velocity < 0.5
    assert main(["report", str(run), "--output", str(tmp_path / "r.html"), "--quiet"]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "flow.npz" in page
    assert str(own.parent) not in page
    assert '"names":["pressure","velocity"]' in page.replace('": [', '":[').replace('", "', '","')
    assert main(["figures", str(run), "--quiet"]) == 0
    assert all((run / "figures" / f"maps_channel{i}.png").exists() for i in range(2))


def test_predict_reads_and_writes_own_units(run, tmp_path):
    u = fields(1)[:3, 0] * np.array([2e3, 0.05]).reshape(1, 2, 1) + np.array([1e5, -3.0]).reshape(1, 2, 1)

    def prediction(x):
        np.save(tmp_path / "x.npy", x)
        (tmp_path / "p.npz").unlink(missing_ok=True)
        arguments = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "p.npz"), "--quiet"]
        assert main(["predict", str(run), *arguments]) == 0
        return dict(np.load(tmp_path / "p.npz"))

    found = prediction(u)
    assert 9e4 < found["mean"][:, 0].mean() < 1.1e5
    assert -4 < found["mean"][:, 1].mean() < -2
    assert 10 < found["std"][:, 0].mean() < 1e4
    # A value that is not there is what the network takes it for: the mean of its channel.
    gap, mean = u.copy(), u.copy()
    gap[0, 1, 7], mean[0, 1, 7] = np.nan, load_run(run).model.units.offset[1]  # pyright: ignore[reportOptionalMemberAccess]
    np.testing.assert_array_equal(prediction(gap)["mean"], prediction(mean)["mean"])


def test_an_export_keeps_the_units(run, tmp_path, capsys):
    """From a run in units of its own to files and back: the same model, and the same numbers in these units."""
    out = tmp_path / "out"
    flags = ["--levels", "0.3", "--samples", "4", "--json", "--quiet"]
    assert main(["export", str(run), "--output", str(out), *flags]) == 0
    about = json.loads(capsys.readouterr().out)
    assert max(max(apart.values()) for apart in about["largest_difference"].values()) < 1e-5
    assert about["channels"] == ["pressure", "velocity"]
    assert "Channels: 0 `pressure`, 1 `velocity`." in (out / "README.md").read_text()
    # What is handed on says which file it was, and not where.
    assert about["settings"]["data"]["data"] == "flow.npz"
    assert str(run.parent) not in (out / "config.json").read_text()
    trained, again = load_run(run), read_model(out)
    assert again.units is not None
    assert again.units == trained.model.units
    assert jax.tree.structure(again) == jax.tree.structure(trained.model)
    u = fields(1)[:3, 0] * np.array([2e3, 0.05]).reshape(1, 2, 1) + np.array([1e5, -3.0]).reshape(1, 2, 1)
    u[0, 1, 7] = np.nan
    u = u.astype(np.float32)
    wanted, found = (
        predict_fields(r, u, np.ones(20, bool), levels=(0.3,)) for r in (trained, trained._replace(model=again))
    )
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    session = onnxruntime.InferenceSession(out / "model.onnx")
    [mean] = session.run(["mean"], {"fields": u[:1]})
    four = trained._replace(config=trained.config.replace(evaluation_samples=4))
    alone = predict_fields(four, u[:1], np.ones(20, bool), levels=(0.3,))["mean"]
    scale = np.asarray(again.units.scale)[:, None]
    # Of 10⁵ a float32 has no more than 10⁻² left.
    np.testing.assert_allclose(np.asarray(mean) / scale, alone / scale, rtol=0, atol=5e-5)

    text = json.loads((out / "config.json").read_text())
    for wrong in ({"scale": [0.0, 1.0]}, {"offset": [1.0]}, {"scale": [1.0, "x"]}, {"offset": [1.0, float("inf")]}):
        (out / "config.json").write_text(json.dumps(text | {"fields": text["fields"] | wrong}))
        with pytest.raises(InputError, match="not a readable export"):
            read_model(out)


def test_units_that_cannot_be_are_refused(run, tmp_path, capsys):
    corrupted = shutil.copytree(run, tmp_path / "corrupted")
    there = json.loads((corrupted / "fields.json").read_text())
    for wrong in ({"scale": [0.0, 1.0]}, {"scale": [1.0]}, {"offset": [1.0, float("nan")]}, {"offset": None}):
        (corrupted / "fields.json").write_text(json.dumps(there | wrong))
        vouch(corrupted, "fields.json")
        assert "fields.json: not readable" in refused(capsys, "evaluate", corrupted)


def test_data_that_moved_or_changed(own, run, tmp_path, capsys):
    moved = own.rename(tmp_path / "moved.npz")
    lost = shutil.copytree(run, tmp_path / "lost")
    text = (lost / "config.yaml").read_text()
    (lost / "config.yaml").write_text(re.sub("data: /.*", f"data: {own}", text))
    vouch(lost, "config.yaml")  # as if it had been trained there
    assert "no such file" in refused(capsys, "evaluate", lost)
    assert main(["evaluate", str(lost), "--data", str(moved), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((run / "metrics.json").read_text())
    arrays = dict(np.load(moved))
    np.savez(moved, **(arrays | {"pressure": arrays["pressure"] + 1}))
    assert "holds other data than the run was trained on" in refused(capsys, "evaluate", lost, "--data", moved)


def test_the_command_that_the_check_suggests_trains(own, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--field", "pressure,velocity", "--axes", "btx"]
    assert main(["data", "check", "flow.npz", *flags, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    pressure, velocity = summary["channels"]
    assert (summary["trajectories"], summary["times"], summary["space"]) == (11, 6, [20])
    assert (pressure["missing"], velocity["missing"]) == (0, 11 * 6)
    assert (pressure["missing_share"], velocity["missing_share"]) == (0, pytest.approx(0.05))
    # ρ learns from one trajectory alone.
    assert [text.split(":")[0] for text in summary["warnings"]] == ["reg has 1 trajectory"]
    assert "the generalization noise ρ learns from reg alone" in summary["warnings"][0]
    u = np.load(own)
    np.testing.assert_allclose(
        [pressure[name] for name in ("min", "max", "mean", "std")],
        [getattr(u["pressure"], name)() for name in ("min", "max", "mean", "std")],
        rtol=1e-4,
    )
    change = np.sqrt(np.nanmean(np.diff(u["velocity"], axis=1) ** 2)) / np.nanstd(u["velocity"])
    assert velocity["one_step_change"] == pytest.approx(change, rel=1e-4)
    assert summary["split"] == {"by": "trajectory", "train": 8, "reg": 1, "test": 2}
    assert Path("data_check.png").read_bytes().startswith(b"\x89PNG")
    command = shlex.split(summary["command"])[1:]
    assert command[:3] == ["train", "--data", "flow.npz"]
    assert "--mask-channel" in command
    assert main([*command, *SMALL.split()]) == 0
    assert main(["data", "check", "flow.npz", *flags, "--picture", "other.png"]) == 0
    shown = capsys.readouterr().out.split("channels on 20 points")[1]
    assert "split: train 8, reg 1, test 2 trajectories" in shown
    assert [line.split()[5:7] for line in shown.splitlines() if line.startswith("velocity ")] == [["66", "(5.0%)"]]
    assert "warning: reg has 1 trajectory: the generalization noise ρ learns from reg alone" in shown
    assert "picture: other.png" in shown


def test_one_long_trajectory(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("long.npy", fields(1, samples=1, times=63))
    assert "--split time" in refused(capsys, "train", "--data", "long.npy", "--out", "run", *SMALL.split())
    assert main(["data", "check", "long.npy", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["split"] == {"by": "time", "train": 42, "reg": 6, "test": 12}
    assert main([*shlex.split(summary["command"])[1:], *SMALL.split()]) == 0
    data = load_yaml(Path("runs/own/config.yaml")).data
    assert (data.train_size, data.reg_size, data.test_size) == (42, 6, 12)
    capsys.readouterr()
    assert main(["evaluate", "runs/own", "--json"]) == 0


@pytest.mark.parametrize(("samples", "said"), [(3, "reg has 1 trajectory:"), (44, "reg has 4 trajectories:"), (50, "")])
def test_few_trajectories_to_learn_noise_from_are_warned_of(tmp_path, capsys, monkeypatch, samples, said):
    monkeypatch.chdir(tmp_path)
    np.save("u.npy", fields(1, samples=samples))
    assert main(["data", "check", "u.npy", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["split"]["reg"] == max(1, round(0.1 * samples))
    assert [text[: len(said)] for text in summary["warnings"]] == ([said] if said else [])
    if samples == 44:
        assert summary["warnings"][0].endswith("; --reg-size 5 or more helps")


def test_names_are_no_formulas_and_gaps_are_grey(tmp_path, monkeypatch):
    """A name that would be a broken formula is drawn as it stands."""
    monkeypatch.chdir(tmp_path)
    u = fields(2, samples=3)
    u[:, :, 0, 2:5, 3:7] = np.nan
    np.savez("u.npz", **{"p$^$": u})  # pyright: ignore[reportArgumentType]
    found = check_data(Path("u.npz"))
    draw_check(found, Path("p.png"))
    picture = matplotlib.image.imread("p.png")
    grey = (np.abs(picture[..., :3] - 0.5) < 0.01).all(-1)
    assert grey.mean() > 0.005
    assert main(["data", "check", "u.npz"]) == 0


def test_values_as_large_as_a_fill_value_are_warned_of(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    u = fields(1, samples=50)
    u[3, 2, 1, 4] = 9.969209968386869e36
    np.save("u.npy", u)
    assert main(["data", "check", "u.npy"]) == 0
    shown = capsys.readouterr().out
    assert "warning: field[1] has values as large as 9.97e+36: if they stand for missing ones, make them NaN" in shown
    assert shown.count("warning") == 1


def test_a_config_file_may_name_the_data(own, tmp_path, capsys):
    settings = f"data: {{data: {own}, field: pressure, axes: btx}}\nmodel: {{num_modes: 4, width: 4, num_blocks: 2}}"
    (tmp_path / "c.yaml").write_text(settings)
    assert main(["train", "--config", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "run"), *SMALL.split()]) == 0
    assert load_yaml(tmp_path / "run" / "config.yaml").data.observed_fraction == 1.0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--data nowhere.npy", "no such file or folder"),
        ("--field u", "--field u: describes --data, which is not given"),
        ("--data flow.npz", "several arrays fit|none has the axes"),
        ("--data flow.npz --field pressure --axes bxt --train-size 40", "its grid is|together at most 11"),
        ("--time-stride 0", "--time-stride 0: must be at least 1"),
    ],
)
def test_refusals_leave_no_folder(own, tmp_path, capsys, monkeypatch, flags, said):
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, "train", *flags.split(), "--out", "run", *SMALL.split())
    assert any(part in line for part in said.split("|"))
    assert not Path("run").exists()


def test_a_sweep_takes_files_that_a_config_names(own, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(f"data: {{data: {own}, field: pressure, axes: btx}}\nmodel: {{num_modes: 4}}")
    flags = ["--config", str(tmp_path / "c.yaml"), "--methods", "xreg", "--seeds", "1", "--grid", "k_reg=1,2"]
    assert main(["sweep", "grid", *flags, "--out", str(tmp_path / "s"), "--plan"]) == 0
    assert "2 of 2 rows to make, 2 programs to train" in capsys.readouterr().out
    assert not (tmp_path / "s").exists()


def test_data_in_a_file_train_as_those_in_memory(made, tmp_path, capsys):
    """The whole command, by the flag alone."""
    flags = ["--data", str(made[0]), "--field", "pressure,velocity", "--axes", "btx", *SMALL.split()]
    assert main(["train", *flags, "--in-memory-gib", "0", "--out", str(tmp_path / "run")]) == 0
    expected, found = (json.loads((folder / "metrics.json").read_text()) for folder in (made[1], tmp_path / "run"))
    for split in ("test", "reg", "train"):
        for name in ("nll", "rmse", "ece_mix", "channel_rmse", "spearman"):
            np.testing.assert_allclose(found[split][name], expected[split][name], rtol=1e-3, atol=1e-4)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
