"""`crossreg sweep --data`: the same splits, units, masks and gaps as a single run on the files has."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.config import DataConfig, load_yaml
from crossreg.data.files.load import load_file
from crossreg.data.load import make_data, trajectories_of
from crossreg.errors import InputError
from crossreg.runs.run_folder import load_run
from crossreg.runs.sweep_folder import load_trials
from crossreg.studies.sweep.programs import cohort_of
from made_fields import SAMPLES, fields

SMALL = {
    "model": {"width": 4, "num_blocks": 2, "num_modes": 4},
    "train": {"steps": 20, "evaluate_every": 10, "batch_size": 5, "num_samples": 4, "evaluation_samples": 6},
}
FLAGS = [f"--{k.replace('_', '-')}={v}" for part in SMALL.values() for k, v in part.items()]


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Path:
    """A file with two channels in units of their own, gaps in one of them, and a mask."""
    folder = tmp_path_factory.mktemp("own")
    u = fields(1) * np.array([2e3, 0.05]).reshape(1, 1, 2, 1) + np.array([1e5, -3.0]).reshape(1, 1, 2, 1)
    u[:, :, 1, 5] = np.nan
    mask = np.random.default_rng(3).random((*u.shape[:2], u.shape[3])) < 0.8
    np.savez(folder / "flow.npz", u=u, mask=mask)
    return folder / "flow.npz"


@pytest.fixture(scope="module")
def settings(own) -> Path:
    path = own.parent / "small.yaml"
    path.write_text(json.dumps(SMALL | {"data": {"reg_size": 2}}))
    return path


@pytest.fixture(scope="module")
def swept(own, settings) -> Path:
    out = own.parent / "sweep"
    flags = ["--data", str(own), "--config", str(settings), "--seeds", "2", "--quiet"]
    methods = "xreg,ensemble-2+temperature,persistence"
    assert main(["sweep", "scenario", *flags, "--methods", methods, "--out", str(out)]) == 0
    return out


def _rows(folder: Path, capsys) -> list[dict]:
    capsys.readouterr()
    assert main(["table", str(folder), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_row_has_the_scores_of_the_run_that_train_makes(own, swept, tmp_path, capsys):
    rows = {(row["method"], row["seed"]): row for row in _rows(swept, capsys)}
    assert len(rows) == 6
    assert {(row["scenario"], row["train_size"], row["reg_size"]) for row in rows.values()} == {("flow.npz", 7, 2)}
    flags = ["--data", str(own), "--reg-size", "2", "--seed", "1", *FLAGS, "--quiet"]
    assert main(["train", *flags, "--out", str(tmp_path / "run")]) == 0
    alone = json.loads((tmp_path / "run" / "metrics.json").read_text())
    for split in ("test", "reg", "train"):
        for name in ("nll", "channel_rmse", "crps"):  # replicas side by side differ in last digits
            np.testing.assert_allclose(rows["xreg", 1][split][name], alone[split][name], rtol=1e-3, err_msg=name)

    # One of the sweep's models as a run is that run, with its units.
    taken = tmp_path / "taken"
    assert main(["extract", str(swept), "--method", "xreg", "--seed", "1", "--out", str(taken), "--quiet"]) == 0
    assert load_yaml(taken / "config.yaml") == load_yaml(tmp_path / "run" / "config.yaml")
    assert (taken / "fields.json").read_text() == (tmp_path / "run" / "fields.json").read_text()
    assert load_run(taken).model.units == load_file(own, reg_size=2).train.units
    assert main(["evaluate", str(taken), "--json"]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    np.testing.assert_allclose(again["test"]["nll"], rows["xreg", 1]["test"]["nll"], rtol=1e-5)


def test_table_figures_and_report(own, settings, swept, tmp_path, capsys):
    assert main(["table", str(swept)]) == 0
    assert "ensemble-2+temperature" in capsys.readouterr().out
    assert main(["figures", str(swept), "--quiet"]) == 0
    assert any((swept / "figures").glob("maps*.png"))
    assert main(["report", str(swept), "--output", str(tmp_path / "r.html"), "--quiet"]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "flow.npz" in page
    assert str(own.parent) not in page
    entries = json.loads(page.split('id="report">')[1].split("</script>")[0])["entries"]
    assert [entry["names"] for entry in entries if entry["trajectories"]] == [["u[0]", "u[1]"]] * 2
    # The same command trains nothing again; with one method more, only that.
    before = {path.name for path in (swept / "trained").glob("*.npz")}
    flags = ["--data", str(own), "--config", str(settings), "--seeds", "2", "--quiet"]
    assert main(["sweep", "scenario", *flags, "--methods", "xreg,unregularized", "--out", str(swept)]) == 0
    assert {path.name for path in (swept / "trained").glob("*.npz")} == before


def test_regimes_of_other_sizes_have_units_of_their_own(own, settings, tmp_path, capsys):
    out = tmp_path / "sizes"
    flags = ["--data", str(own), "--config", str(settings), "--seeds", "1", "--methods", "persistence", "--quiet"]
    grid = ["--grid", "train_size=3,7", "--grid", "observed_fraction=0.5,1.0"]
    assert main(["sweep", "grid", *flags, *grid, "--out", str(out)]) == 0
    assert len(_rows(out, capsys)) == 4
    points = load_trials(out)
    # Masks train side by side, units do not.
    assert len({cohort_of(point.config) for point in points}) == 2
    configs = [point.config.data for point in points]
    trajectories = trajectories_of(configs[0])
    made = [make_data(trajectories, config) for config in configs]
    for config, data in zip(configs, made, strict=True):
        alone = load_file(own, **{k: getattr(config, k) for k in ("train_size", "reg_size", "observed_fraction")})
        for split in ("train", "reg", "test"):
            here, there = getattr(data, split), getattr(alone, split)
            assert here.units == there.units
            np.testing.assert_array_equal(here.gather(jnp.arange(5)).x, there.gather(jnp.arange(5)).x)
    assert made[0].train.units != made[-1].train.units
    assert made[0].test.trajectories is made[-1].test.trajectories  # one copy


def test_files_that_change_on_the_way_are_refused(tmp_path):
    np.save(tmp_path / "u.npy", fields(1))
    config = DataConfig(data=str(tmp_path / "u.npy"), train_size=4, reg_size=1, test_size=1, train_horizon=3)
    trajectories = trajectories_of(config)
    assert make_data(trajectories, config).train.field_shape == (2, 20)
    np.save(tmp_path / "u.npy", fields(1, seed=1))
    with pytest.raises(InputError, match="has changed since"):
        make_data(trajectories, config)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--data", "nothing.npz"], "nothing.npz: no such file"),
        (["--field", "u"], "--field u: describes --data"),
        (["--data", "OWN", "--scenario", "diff_adv"], "--scenario diff_adv and --data exclude each other"),
        (["--data", "OWN", "--grid", "in_memory_gib=0.0"], "a sweep needs its data in memory"),
        (["--data", "OWN", "--grid", f"train_size={SAMPLES}"], "--train-size"),
        (["--data", "OWN", "--methods", "xreg+temperature"], "needs --reg-size 2 or more, not 1"),
        (["--data", "OWN", "--axes", "btx"], "btx"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(flags, said, own, tmp_path, capsys):
    given = [str(own) if flag == "OWN" else flag for flag in flags]
    methods = [] if "--methods" in flags else ["--methods", "xreg"]
    name = "grid" if "--grid" in flags else "scenario"
    assert main(["sweep", name, *given, *methods, "--seeds", "1", "--out", str(tmp_path / "s"), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_a_training_has_a_scenario_or_your_data(own, tmp_path, capsys):
    command = ["train", "--data", str(own), "--scenario", "diff_adv", "--out", str(tmp_path / "r")]
    assert main(command) == 2
    assert capsys.readouterr().err == "crossreg: --scenario diff_adv and --data exclude each other\n"
    assert not (tmp_path / "r").exists()
