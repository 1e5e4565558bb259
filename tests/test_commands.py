"""Flags: what they are where they are not given, which of two wins, and that each arrives where it is meant to."""

import dataclasses
import importlib.metadata
from pathlib import Path

import pytest

from crossreg.cli import commands
from crossreg.cli import main as cli
from crossreg.config import to_yaml
from crossreg.designs import presets
from crossreg.export import write
from crossreg.runs import prediction, run_folder
from crossreg.studies.launchers.settings import Workers
from crossreg.studies.sweep import extract
from crossreg.studies.sweep import run as sweep

# A default that changes makes another result of the same command: the change is to be meant, and told.
DEFAULTS = {
    "Train": {
        "preset": "reference", "config": None, "data_parallel": False, "devices": None, "distributed": False,
        "coordinator": None, "num_processes": None, "process_id": None, "save_every": 60.0, "force_resume": False,
        "max_diverged": 0.0, "quiet": False, "json": False,
    },
    "Evaluate": {"quiet": False, "data": None, "json": False},
    "Predict": {"method": None, "levels": (0.05, 0.5, 0.95), "mask": None, "no_mask": False, "quiet": False},
    "Export": {
        "seed": 0, "samples": None, "levels": (0.05, 0.5, 0.95), "mask_input": False, "quiet": False, "json": False,
    },
    "Quickstart": {"out": Path("runs/quickstart"), "steps": 5000, "quiet": False, "json": False},
    "Sweep": {
        "methods": None, "seeds": 5, "first_seed": 0, "steps": None, "grid": (), "scenario": None, "data": None,
        "field": None, "axes": None, "config": None, "devices": None, "save_every": 60.0, "force_resume": False,
        "max_diverged": 0.5, "quiet": False, "json": False, "plan": False, "cluster": Workers(),
    },
    "Plan": {
        "methods": None, "seeds": 5, "first_seed": 0, "steps": None, "grid": (), "scenario": None, "config": None,
        "compiled": False, "straggler_rate": 0.0, "straggler_slowdown": 3.0, "failures_per_hour": 0.0,
        "save_every": 60.0, "retries": 1, "runs": 0, "seed": 0, "figure": None, "json": False,
    },
    "Table": {"all": False, "json": False},
    "Figures": {"out": None, "trajectory": None, "quiet": False},
    "Report": {"output": None, "quiet": False},
    "Extract": {"method": "xreg", "seed": 0, "where": (), "quiet": False, "json": False},
    "Car": {
        "profile": "quick", "devices": None, "save_every": 60.0, "force_resume": False, "max_diverged": 0.5,
        "quiet": False, "json": False,
    },
    "Watch": {"host": "127.0.0.1", "port": 0, "open": True},
    "Workers": {
        "launcher": "local", "workers": None, "most_replicas": None, "worker_memory": None, "worker_cpus": None,
        "worker_gpus": None, "ray_address": None, "slurm_partition": None, "slurm_time": 240, "slurm_options": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_flag_that_is_not_given_is_what_it_was(name):
    found = {}
    for field in dataclasses.fields(getattr(commands, name)):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING and field.name != "settings":
            found[field.name] = field.default_factory()
    assert found == DEFAULTS[name]


def test_a_flag_wins_over_a_file_and_a_file_over_a_preset(tmp_path):
    (tmp_path / "c.yaml").write_text("train: {k_reg: 7, seed: 4}\nmodel: {width: 6}\n")
    flags = ["--out", "x", "--preset", "head-only", "--config", str(tmp_path / "c.yaml"), "--seed", "9"]
    settings = cli._parse("train", flags).settings
    wanted = presets.preset("head-only").replace(k_reg=7, width=6, seed=9)
    assert dataclasses.asdict(settings) == dataclasses.asdict(wanted)
    assert settings.model.feature_noise == "none"
    # Own data have defaults of their own, which the file changes.
    own = cli._parse("train", [*flags, "--data", "flow.npy", "--train-size", "3"]).settings
    assert (own.data.data, own.data.train_size, own.data.reg_size, own.data.observed_fraction) == (
        "flow.npy",
        3,
        None,
        1.0,
    )


@pytest.fixture
def called(monkeypatch):
    """Takes the place of what a command calls, and keeps what it was called with."""
    kept = {}

    def put(module, name: str, answer=None) -> None:
        def take(*arguments, **options):
            kept[name] = (arguments, options)
            return answer

        monkeypatch.setattr(module, name, take)

    return kept, put


def test_every_flag_of_predict_and_export_arrives(called):
    kept, put = called
    put(prediction, "predict_file", {})
    put(run_folder, "load_run", "a run")
    flags = ["--input", "x.npy", "--output", "y.npz", "--levels", "0.7", "0.2", "--mask", "m.npy", "--quiet"]
    assert cli.main(["predict", "folder", *flags]) == 0
    assert kept["predict_file"] == (
        ("a run", Path("x.npy"), Path("y.npz")),
        {"levels": (0.7, 0.2), "mask_file": Path("m.npy"), "no_mask": False, "progress": False},
    )
    put(write, "export_run", {"largest_difference": {}})
    flags = ["--output", "out", "--seed", "4", "--samples", "7", "--levels", "0.3", "--mask-input"]
    assert cli.main(["export", "folder", *flags]) == 0
    wanted = {"seed": 4, "num_samples": 7, "levels": (0.3,), "mask_input": True, "progress": True}
    assert kept["export_run"] == ((Path("folder"), Path("out")), wanted)


def test_every_flag_of_extract_arrives(called, monkeypatch):
    kept, put = called
    put(extract, "extract", {})
    monkeypatch.setattr("crossreg.cli.actions.print_scores", lambda *_, **__: None)
    flags = ["--method", "dropout", "--seed", "3", "--where", "a=1", "--where", "b=2", "--quiet"]
    assert cli.main(["extract", "s", "--out", "run", *flags]) == 0
    wanted = {"method": "dropout", "seed": 3, "where": ("a=1", "b=2"), "progress": False}
    assert kept["extract"] == ((Path("s"), Path("run")), wanted)


def test_a_sweep_has_the_seeds_steps_and_settings_that_were_asked_for(called, tiny, tmp_path):
    kept, put = called
    put(sweep, "run_sweep", [])
    put(sweep, "describe_sweep", "")
    (tmp_path / "c.yaml").write_text(to_yaml(tiny.replace(batch_size=3)))
    flags = [
        "--grid",
        "k_reg=2,5",
        "--grid",
        "mask_seed=3",
        "--methods",
        "dropout",
        "--seeds",
        "3",
        "--first-seed",
        "7",
        "--steps",
        "50",
    ]
    flags += ["--config", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "s"), "--save-every", "9", "--quiet"]
    assert cli.main(["sweep", "grid", *flags, "--plan"]) == 0
    assert "run_sweep" not in kept
    points = kept["describe_sweep"][0][0]
    assert [(p.config.train.seed, p.config.train.k_reg) for p in points] == [(s, k) for k in (2, 5) for s in (7, 8, 9)]
    assert {(p.method.name, p.config.train.steps, p.config.train.batch_size) for p in points} == {("dropout", 50, 3)}
    assert {p.config.data.mask_seed for p in points} == {3}
    (tmp_path / "s").mkdir()
    cli.main(["sweep", "grid", *flags, "--workers", "2", "--most-replicas", "4"])
    (again, out), options = kept["run_sweep"]
    assert [p.config for p in again] == [p.config for p in points]
    assert out == tmp_path / "s"
    asked = {
        "name": "grid",
        "methods": "dropout",
        "seeds": 3,
        "first_seed": 7,
        "steps": 50,
        "grid": ["k_reg=2,5", "mask_seed=3"],
    }
    assert {name: options["asked"][name] for name in asked} == asked
    assert options["asked"]["config"]["train"]["batch_size"] == 3
    assert (options["saving"].every, options["progress"]) == (9.0, False)
    assert options["workers"] == Workers(workers=2, most_replicas=4)


def test_the_version_is_printed(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"crossreg {importlib.metadata.version('crossreg')}\n"
