"""Stopped trainings end in the same bits, whatever is corrupted in between; in this process, where all is quick."""

import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import spoil, state_hash

from crossreg.cars import training as car_training
from crossreg.cars.study import run_car
from crossreg.cli.commands import Sweep
from crossreg.cli.main import main
from crossreg.cli.train_actions import DIVERGED, _verdict
from crossreg.config import OWN_DATA
from crossreg.designs.car_study import car_study
from crossreg.designs.grids import plan
from crossreg.errors import InputError
from crossreg.machine.stopping import Stopped
from crossreg.progress.display import TrainingDisplay
from crossreg.runs.file_names import SNAPSHOTS
from crossreg.runs.safeguards import manifest
from crossreg.runs.safeguards import versions as machine
from crossreg.runs.safeguards.locks import locked
from crossreg.runs.safeguards.saving import Saving
from crossreg.runs.safeguards.snapshots import SnapshotStore
from crossreg.studies import train as module
from crossreg.studies.sweep.run import run_sweep
from crossreg.studies.train import train_run
from crossreg.training import feeding, loop

OFTEN = Saving(every=0.0)


@pytest.fixture(scope="module")
def whole(waves, tiny, tmp_path_factory):
    """A run that nothing has stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train_run(tiny, folder, progress=False)
    return folder


@pytest.fixture(scope="module")
def swept(waves, tiny, tmp_path_factory):
    """A sweep that nothing has stopped, and its trials."""
    trials = plan("grid", methods="xreg,unregularized+early", seeds=2, steps=20, grid=["mask_seed=3"], base=tiny)
    folder = tmp_path_factory.mktemp("swept") / "s"
    run_sweep(trials, folder, progress=False)
    return trials, folder


def harm(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


class Stopping(TrainingDisplay):
    """Stops a training at one of its looks."""

    at = 0

    def update(self, name, report):
        super().update(name, report)
        if report.step >= Stopping.at:
            raise Stopped


def stop_at(step: int, config, folder, monkeypatch, *, saving=OFTEN) -> None:
    """Trains into a folder until a step."""
    Stopping.at = step
    with monkeypatch.context() as patch:
        patch.setattr(module, "TrainingDisplay", Stopping)
        with pytest.raises(Stopped):
            train_run(config, folder, progress=False, saving=saving)


@pytest.mark.parametrize(("chunk", "stops"), [(1e-9, (5, 13, 30)), (1e9, (1, 9, 10))])
def test_stopped_trainings_end_in_the_same_bits(chunk, stops, whole, tiny, tmp_path, monkeypatch, capsys):
    """However long the chunks are, wherever it was stopped, and several times."""
    monkeypatch.setattr(loop, "_CHUNK_SECONDS", chunk)
    for step in stops:
        stop_at(step, tiny, tmp_path / "run", monkeypatch)
    capsys.readouterr()
    train_run(tiny, tmp_path / "run", progress=False)
    said = re.search(r"resumes from step (\d+)", capsys.readouterr().err)
    assert said is not None
    assert int(said[1]) >= stops[-1]
    assert state_hash(tmp_path / "run") == state_hash(whole)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [10, 20, 30]


def test_a_stop_saves_where_the_clock_has_not(whole, tiny, tmp_path, monkeypatch):
    """Between two snapshots by the clock, the only one there is that of the stop."""
    monkeypatch.setattr(loop, "_CHUNK_SECONDS", 1e-9)
    stop_at(17, tiny, tmp_path / "run", monkeypatch, saving=Saving(every=1e6))
    assert [path.name for path in (tmp_path / "run" / SNAPSHOTS).iterdir()] == ["train.000000017.npz"]
    train_run(tiny, tmp_path / "run", progress=False)
    assert state_hash(tmp_path / "run") == state_hash(whole)
    # Of every look there is a line, those before the stop too, and none twice.
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [10, 20, 30]


def test_a_training_on_data_in_files_ends_in_the_same_bits(tiny, tmp_path, monkeypatch, capsys):
    """Read block by block, wherever in a block of 7 steps it was stopped."""
    monkeypatch.setattr(feeding, "_MOST_STEPS", 7)
    monkeypatch.setattr(loop, "_CHUNK_SECONDS", 1e-9)
    rng = np.random.default_rng(0)
    phase = rng.uniform(0, 6, (11, 1, 2, 1)) + 0.3 * np.arange(5).reshape(1, -1, 1, 1)
    np.save(tmp_path / "own.npy", np.sin(phase + 2 * np.pi * np.arange(20) / 20).astype(np.float32))
    sizes = {"train_size": 5, "reg_size": 3, "test_size": 3}
    config = tiny.replace(**OWN_DATA | {"data": str(tmp_path / "own.npy"), "in_memory_gib": 0.0} | sizes)
    train_run(config, tmp_path / "whole", progress=False)
    for step in (1, 5, 19):
        stop_at(step, config, tmp_path / "run", monkeypatch)
    capsys.readouterr()
    train_run(config, tmp_path / "run", progress=False)
    assert re.search(r"resumes from step (19|2\d)", capsys.readouterr().err)
    assert state_hash(tmp_path / "run") == state_hash(tmp_path / "whole")


@pytest.mark.parametrize("both", [False, True])
def test_a_harmed_snapshot_is_said_and_the_one_before_is_taken(both, whole, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(loop, "_CHUNK_SECONDS", 1e-9)
    stop_at(17, tiny, tmp_path / "run", monkeypatch)
    older, newer = sorted((tmp_path / "run" / SNAPSHOTS).iterdir())
    for path in (newer, older) if both else (newer,):
        path.write_bytes(path.read_bytes()[:-7])
    train_run(tiny, tmp_path / "run", progress=False)
    said = capsys.readouterr().err
    assert f"{newer}: not a readable checkpoint" in said
    goes_on = f"resumes from step {int(older.name.split('.')[1])}"
    assert ("no snapshot can be used; training starts from the beginning" if both else goes_on) in said
    assert (goes_on in said) is not both
    assert state_hash(tmp_path / "run") == state_hash(whole)


def test_a_finished_run_says_so_and_other_settings_are_refused(whole, tiny, capsys):
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    assert train_run(tiny, whole, progress=False) == json.loads((whole / "metrics.json").read_text())
    assert "holds this run, finished" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"other settings \(steps 30, not 40; seed 0, not 5\)"):
        train_run(tiny.replace(steps=40, seed=5), whole, progress=False)
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["config.yaml", "manifest.json"])
def test_a_harmed_run_is_not_given_other_settings(name, whole, tiny, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    harm(tmp_path / "run" / name)
    with pytest.raises(InputError, match="holds a run of other settings"):
        train_run(tiny.replace(seed=5), tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    "name",
    ["model.npz", "metrics.json", "metrics.jsonl", "config.yaml", "mask.npy", "test_fields.npz", "manifest.json"],
)
def test_a_finished_run_is_mended(name, whole, tiny, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "run")
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes()[:-9] + b"!" + path.read_bytes()[-8:])
    if name in ("metrics.json", "metrics.jsonl", "config.yaml", "manifest.json"):
        assert main(["figures", str(tmp_path / "run"), "--quiet"]) == 2
    if name in ("model.npz", "config.yaml", "mask.npy", "manifest.json"):
        assert main(["evaluate", str(tmp_path / "run"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert all(str(tmp_path / "run") in line for line in said.splitlines())
    train_run(tiny, tmp_path / "run", progress=False)
    assert re.search(rf"crossreg: {re.escape(str(path))}: is corrupted[^;\n]*; ", capsys.readouterr().err)
    assert state_hash(tmp_path / "run") == state_hash(whole)
    train_run(tiny, tmp_path / "run", progress=False)
    assert "finished" in capsys.readouterr().err


@pytest.mark.parametrize("changes", [{"seed": 5}, {"width": 5}])
def test_a_harmed_unfinished_run_is_not_given_other_settings(changes, whole, tiny, tmp_path, monkeypatch):
    """Not even in its config: the right command goes on afterwards."""
    stop_at(10, tiny, tmp_path / "run", monkeypatch)
    harm(tmp_path / "run" / "config.yaml")
    with pytest.raises(InputError, match="is of other settings or data; choose another folder"):
        train_run(tiny.replace(**changes), tmp_path / "run", progress=False)
    train_run(tiny, tmp_path / "run", progress=False)
    assert state_hash(tmp_path / "run") == state_hash(whole)


@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_a_kill_while_a_harmed_manifest_is_replaced_vouches_for_none(kind, whole, swept, tiny, tmp_path, monkeypatch):
    """Without a manifest, as older versions left a folder, all in it would be taken as it is."""
    trials, sweep = swept
    source, corrupted = {"run": (whole, "metrics.json"), "sweep": (sweep, "trained/*.jsonl")}[kind]
    shutil.copytree(source, tmp_path / "f")

    def start():
        if kind == "run":
            train_run(tiny, tmp_path / "f", progress=False)
        else:
            run_sweep(trials, tmp_path / "f", progress=False)

    for name in ("manifest.json", corrupted):
        harm(min((tmp_path / "f").glob(name)))

    def killed(*_):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "_write", killed)
        with pytest.raises(Stopped):
            start()
    start()
    assert state_hash(tmp_path / "f") == state_hash(source)


def test_another_machine_is_refused_unless_forced(waves, tiny, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    stop_at(10, tiny, folder, monkeypatch)
    usual = machine._conditions()
    monkeypatch.setattr(machine, "_conditions", lambda: usual | {"jaxlib": "0.0.1", "cores": "64"})
    with pytest.raises(InputError, match=r"number of cores .*, is 64; jaxlib: was .*, is 0.0.1.*`force_resume`"):
        train_run(tiny, folder, progress=False)
    train_run(tiny, folder, progress=False, saving=Saving(force=True))
    assert "resumes under other conditions" in capsys.readouterr().err


def test_a_run_is_not_scored_on_another_machine_unless_forced(whole, tiny, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "metrics.json").unlink()
    usual = machine._conditions()
    with monkeypatch.context() as patch:
        patch.setattr(machine, "_conditions", lambda: usual | {"device": "abacus"})
        with pytest.raises(InputError, match=r"device: was .*, is abacus"):
            train_run(tiny, tmp_path / "run", progress=False)
    train_run(tiny, tmp_path / "run", progress=False)
    assert state_hash(tmp_path / "run") == state_hash(whole)


def test_a_run_that_begins_again_says_on_which_machine(whole, tiny, tmp_path, monkeypatch):
    """Killed before its first snapshot there is nothing to go on from, and no machine that it is bound to."""
    (tmp_path / "run").mkdir()
    for name in ("config.yaml", "fields.json", "versions.json"):
        shutil.copy(whole / name, tmp_path / "run")
    usual = machine._conditions()
    monkeypatch.setattr(machine, "_conditions", lambda: usual | {"device": "abacus"})
    train_run(tiny, tmp_path / "run", progress=False)
    assert json.loads((tmp_path / "run" / "versions.json").read_text())["device"] == "abacus"


def test_a_second_process_is_refused(whole, swept, tiny):
    with locked(whole, "training"), pytest.raises(InputError, match="in use by another training"):
        train_run(tiny, whole, progress=False)
    trials, folder = swept
    with locked(folder, "sweep"), pytest.raises(InputError, match="in use by another sweep"):
        run_sweep(trials, folder, progress=False)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("rows.jsonl", "is corrupted; scored again"),
        ("sweep.json", "is corrupted; written again"),
        ("manifest.json", "what cannot be checked is made again"),
        ("trained/*.npz", "trained again"),
        ("trained/*.json", "planned again"),
        ("trained/*.jsonl", "written again"),
    ],
)
def test_a_finished_sweep_is_mended(pattern, said, swept, tmp_path, capsys):
    trials, folder = swept
    shutil.copytree(folder, tmp_path / "s")
    rows = run_sweep(trials, tmp_path / "s", progress=False)
    corrupted = min((tmp_path / "s").glob(pattern))
    harm(corrupted)
    capsys.readouterr()
    assert run_sweep(trials, tmp_path / "s", progress=False) == rows
    assert said in capsys.readouterr().err
    assert state_hash(tmp_path / "s") == state_hash(folder)
    run_sweep(trials, tmp_path / "s", progress=False)
    assert capsys.readouterr().err == ""


def test_a_sweep_on_another_machine_is_refused_unless_forced(swept, tiny, tmp_path, monkeypatch):
    trials, folder = swept
    shutil.copytree(folder, tmp_path / "s")
    usual = machine._conditions()
    monkeypatch.setattr(machine, "_conditions", lambda: usual | {"device": "abacus"})
    run_sweep(trials, tmp_path / "s", progress=False)  # nothing is left to do
    rows = tmp_path / "s" / "rows.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[1:]))
    monkeypatch.setattr(machine, "_conditions", lambda: usual | {"device": "slide rule"})
    with pytest.raises(InputError, match=f"device: was {usual['device']}, is slide rule"):
        run_sweep(trials, tmp_path / "s", progress=False)
    assert len(run_sweep(trials, tmp_path / "s", progress=False, saving=Saving(force=True))) == len(trials)


def test_a_harmed_program_is_not_trained_again_on_another_machine(swept, tmp_path, monkeypatch):
    """Not even where all rows are there: nor is one that has nothing to do the machine of those behind it."""
    trials, folder = swept
    shutil.copytree(folder, tmp_path / "s")
    usual = machine._conditions()
    monkeypatch.setattr(machine, "_conditions", lambda: usual | {"device": "abacus"})
    run_sweep(trials, tmp_path / "s", progress=False)
    harm(min((tmp_path / "s").glob("trained/*.npz")))
    with pytest.raises(InputError, match=f"device: was {usual['device']}, is abacus"):
        run_sweep(trials, tmp_path / "s", progress=False)


def test_a_car_experiment_goes_on_inside_a_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path / "cache"))
    sizes = {"points": 400, "grid": 23, "train_size": 3, "reg_size": 4, "test_size": 2, "seeds": 2}
    shapes = {"width": 3, "num_modes": 2, "num_blocks": 2, "batch_size": 2, "num_samples": 2}
    study = car_study("quick").replace(
        **sizes, **shapes, methods="xreg", steps=8, evaluate_every=3, evaluation_samples=3
    )
    summary = run_car(study, tmp_path / "whole", progress=False)
    monkeypatch.setattr(loop, "_CHUNK_SECONDS", 1e-9)
    Stopping.at = 5
    with monkeypatch.context() as patch:
        patch.setattr(car_training, "TrainingDisplay", Stopping)
        with pytest.raises(Stopped):
            run_car(study, tmp_path / "car", progress=False, saving=OFTEN)
    harm(tmp_path / "car" / "config.yaml")
    with pytest.raises(InputError, match=r"its config.yaml is corrupted, and its settings were not these"):
        run_car(study.replace(steps=9), tmp_path / "car", progress=False)
    assert run_car(study, tmp_path / "car", progress=False) == summary
    assert "resumes from step 5" in capsys.readouterr().err
    usual = machine._conditions()
    for names in (["models/*.npz", "history/xreg.jsonl", "config.yaml", "predictions/xreg.npz"], ["manifest.json"]):
        for name in names:
            harm(min((tmp_path / "car").glob(name)))
        assert main(["figures", str(tmp_path / "car"), "--quiet"]) == 2
        if names != ["manifest.json"]:
            with pytest.raises(InputError, match="holds an experiment with other settings: steps is 8, now 9"):
                run_car(study.replace(steps=9), tmp_path / "car", progress=False)
            with monkeypatch.context() as patch:
                patch.setattr(machine, "_conditions", lambda: usual | {"device": "abacus"})
                with pytest.raises(InputError, match="is abacus"):
                    run_car(study, tmp_path / "car", progress=False)
        assert run_car(study, tmp_path / "car", progress=False) == summary
        assert state_hash(tmp_path / "car") == state_hash(tmp_path / "whole")


def test_runs_that_diverge_are_counted_and_leave_the_others_as_they_are(waves, tiny, tmp_path, capsys, monkeypatch):
    """Of four replicas of one program two meet numbers that are none; the others' bits do not change."""
    trials = plan("grid", methods="unregularized", seeds=2, steps=20, grid=["train_size=3,30"], base=tiny)
    run_sweep(trials, tmp_path / "good", progress=False)
    spoil(monkeypatch, slice(10, 30))
    rows = run_sweep(trials, tmp_path / "bad", progress=False)
    assert [(row["train_size"], row["diverged"]) for row in rows] == [(3, False), (3, False), (30, True), (30, True)]
    good, bad = (np.load(next((tmp_path / name / "trained").glob("*.npz"))) for name in ("good", "bad"))
    keys = [json.loads(next((tmp_path / n / "trained").glob("*.json")).read_text()) for n in ("good", "bad")]
    small = [[i for i, item in enumerate(k) if item["config"]["data"]["train_size"] == 3] for k in keys]
    for name in set(good.files) - {"history"}:
        np.testing.assert_array_equal(good[name][small[0]], bad[name][small[1]])
    assert (bad["diverged_at"][small[1]] == -1).all()
    assert (np.delete(bad["diverged_at"], small[1]) > 0).all()
    assert all(np.isfinite(bad[name]).all() for name in bad.files if name.startswith("last"))


@pytest.mark.parametrize(("flags", "code"), [([], 4), (["--max-diverged", "1"], 0), (["--max-diverged", "2"], 2)])
def test_a_run_that_diverged_is_marked_and_has_an_exit_code(flags, code, waves, config_file, tmp_path, capsys):
    arguments = ["train", "--config", str(config_file), "--learning-rate", "1e30", "--out", str(tmp_path / "run")]
    assert main([*arguments, "--quiet", *flags]) == code
    assert code == 2 or re.search(r"run \(diverged at step [12]\)", capsys.readouterr().out)


def test_as_large_a_share_as_is_allowed_may_diverge(capsys):
    """Each hundredth is one: no product that rounding makes smaller."""
    for count in range(1, 101):
        command = Sweep(name="paper", out=Path("s"), max_diverged=float(f"{count / 100:.2f}"))
        assert _verdict(count, 100, command) == 0
        assert _verdict(count + 1, 101 + count, replace(command, max_diverged=count / (101 + count))) == DIVERGED


def test_a_snapshot_holds_numbers_alone_and_the_last_two_are_kept(waves, tiny, tmp_path, monkeypatch):
    stop_at(10, tiny, tmp_path / "run", monkeypatch)
    [path, *_] = sorted((tmp_path / "run" / SNAPSHOTS).iterdir(), reverse=True)
    with np.load(path) as file:
        assert int(file["step"]) == 10
        assert {file[name].dtype.name for name in file.files} == {"float32", "int32", "uint8"}
    assert len(list((tmp_path / "run" / SNAPSHOTS).iterdir())) == 2


def test_a_slow_disk_is_written_to_less_often(waves, tiny, tmp_path, monkeypatch):
    """A snapshot that takes 0.1 s is followed by a pause of 10 s at least: never more than 1% of the time."""
    saved = []
    monkeypatch.setattr(
        SnapshotStore, "save", lambda kept, snapshot, history, layout: saved.append(snapshot) or time.sleep(0.1)
    )
    monkeypatch.setattr(loop, "_CHUNK_SECONDS", 1e-9)
    train_run(tiny, tmp_path / "run", progress=False, saving=OFTEN)
    # The first look, and the end; those between come too soon.
    assert [int(snapshot.step) for snapshot in saved] == [1, tiny.train.steps]
