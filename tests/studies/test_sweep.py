"""Sweeps: shared trainings, one contract for all methods, and restarts that change nothing."""

import json
import math
import re
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from crossreg.cli.main import _parse, main
from crossreg.config import Config, to_dict, to_yaml
from crossreg.designs.grids import ALL_METHODS, Trial, plan
from crossreg.errors import InputError
from crossreg.methods import dropout
from crossreg.methods.names import parse_method
from crossreg.report.tables import write as table_files
from crossreg.runs.programs import read_programs
from crossreg.runs.sweep_folder import read_rows, trial_key
from crossreg.studies.sweep import run as module
from crossreg.studies.sweep.programs import plan_programs
from crossreg.studies.sweep.run import run_sweep
from crossreg.studies.sweep.scoring import trainings_of
from crossreg.training.replicas import make_task

METHODS = (
    "xreg,xreg+early+temperature,xreg-heads,ensemble,ensemble-1,unregularized,ensemble+early+conformal,"
    "fixed-noise,dropout+temperature,persistence,persistence-masked+conformal"
)


@pytest.fixture
def trials(cached_waves, tiny):
    return plan("grid", methods=METHODS, seeds=2, steps=20, grid=["observed_fraction=0.5,1.0"], base=tiny)


def test_a_start_that_was_refused_is_not_what_the_next_is_compared_with(tmp_path):
    """Workers with a core each have left a snapshot; two cores are refused, and then one must not be."""
    workers, two_cores, one_core = {"jaxlib": "1"}, {"jaxlib": "1", "cores": "2"}, {"jaxlib": "1", "cores": "1"}
    asked = {"keys": ["a"], "saving": module.USUAL}
    with module.open_sweep(tmp_path, {}, machine=workers, **asked):
        pass
    with pytest.raises(InputError, match="of one core"), module.open_sweep(tmp_path, {}, machine=two_cores, **asked):
        raise InputError("a snapshot of one core")
    with module.open_sweep(tmp_path, {}, machine=one_core, **asked):
        pass
    assert json.loads((tmp_path / "sweep.json").read_text())["starts"] == [workers, one_core]
    with pytest.raises(InputError, match="was 1, is 2"), module.open_sweep(tmp_path, {}, machine=two_cores, **asked):
        pass


def test_every_method_ends_in_a_row(trials, tmp_path, cached_waves, capsys):
    rows = run_sweep(trials, tmp_path / "s", progress=True)
    assert len(rows) == 2 * 2 * 11
    for row in rows:
        assert row["method"] in METHODS.split(",")
        assert not row["diverged"]
        for split in ("test", "reg", "train"):
            assert all(math.isfinite(v) for k, v in row[split].items() if not isinstance(v, list))
            assert len(row[split]["coverage"]) == 9
    by = {(row["method"], row["observed_fraction"], row["seed"]): row for row in rows}
    for fraction in (0.5, 1.0):
        for seed in (0, 1):
            alone, plain = by["ensemble-1", fraction, seed], by["unregularized", fraction, seed]
            assert alone["test"] == plain["test"]
            # Members that start apart and train on other batches are apart by about their error, not by rounding.
            pooled = by["ensemble", fraction, seed]["test"]
            assert pooled["std_mu"] > 0.1 * pooled["rmse"]
            assert plain["test"]["std_mu"] == 0
    assert by["persistence", 0.5, 0]["test"] == by["persistence", 0.5, 1]["test"]
    assert by["dropout+temperature", 0.5, 0]["notes"]["temperature"] > 0
    shown = capsys.readouterr().err
    assert "trained 100%" in shown
    assert "scored 44/44" in shown

    # Nothing is done again, and a row that a kill cut short is.
    stamp = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "s" / "trained").iterdir()}
    file = tmp_path / "s" / "rows.jsonl"
    file.write_text(file.read_text()[:-40])
    assert run_sweep(trials, tmp_path / "s", progress=False) == rows
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "s" / "trained").iterdir()} == stamp
    assert len(read_rows(tmp_path / "s")) == len(rows)

    # A method that is added, and a grid that grows, use what was trained before.
    base = trials[0].base
    more = plan("grid", methods="ensemble+temperature", seeds=3, steps=20, grid=["observed_fraction=0.5"], base=base)
    added = run_sweep(more, tmp_path / "s", progress=False)
    new = [p for p in read_programs(tmp_path / "s") if f"{p.name}.npz" not in stamp]
    assert sorted(t.config.train.seed for p in new for t in p.trainings.values()) == [2, 2, 2]
    assert [row["seed"] for row in added] == [0, 1, 2]


@pytest.mark.parametrize("at", [10, 20])
def test_a_killed_sweep_goes_on_where_it_was(at, cached_waves, tiny, tmp_path, monkeypatch):
    trials = plan("grid", methods="xreg,unregularized+early", seeds=2, steps=20, grid=["mask_seed=3"], base=tiny)
    whole = run_sweep(trials, tmp_path / "whole", progress=False)
    steps = []

    class Stopping(module.SweepDisplay):
        stops = True

        def update(self, report):
            super().update(report)
            steps.append(report.step)
            if report.step == at and Stopping.stops:
                raise KeyboardInterrupt

    monkeypatch.setattr(module, "SweepDisplay", Stopping)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(trials, tmp_path / "killed", progress=False)
    assert len(list((tmp_path / "killed" / "snapshots").iterdir())) == 1
    assert not read_rows(tmp_path / "killed")
    Stopping.stops = False
    steps.clear()
    assert run_sweep(trials, tmp_path / "killed", progress=False) == whole
    assert steps[0] == (11 if at == 10 else 1)  # behind the snapshot; that of a last step needs no more
    assert not (tmp_path / "killed" / "snapshots").exists()
    histories = [sorted((tmp_path / name / "trained").glob("*.jsonl")) for name in ("whole", "killed")]
    for a, b in zip(*histories, strict=True):
        assert a.read_text() == b.read_text()
        assert [json.loads(line)["step"] for line in a.read_text().splitlines()] == [10, 10, 20, 20]


def test_a_sweep_survives_sigkill(cached_waves, tiny, tmp_path):
    """The real thing: a process that is shot as soon as its first program has ended."""
    (tmp_path / "c.yaml").write_text(to_yaml(tiny))
    arguments = ["grid", "--grid", "mask_seed=3", "--methods", "unregularized,xreg", "--seeds", "2"]
    arguments += ["--steps", "20", "--config", str(tmp_path / "c.yaml"), "--quiet", "--out"]
    assert main(["sweep", *arguments, str(tmp_path / "whole")]) == 0
    killed = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-m", "crossreg", "sweep", *arguments, str(killed)])
    for _ in range(1200):
        if list((killed / "trained").glob("*.npz")) or process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    (killed / "rows.jsonl.1-0123abcd.crossreg.tmp").write_text("cut short")
    assert main(["sweep", *arguments, str(killed)]) == 0
    for name in ("table.csv", "table.md"):
        assert (killed / name).read_text() == (tmp_path / "whole" / name).read_text()
    assert not list(killed.glob("*.tmp"))


def test_two_sweeps_do_not_share_a_folder(trials, tmp_path):
    with module.open_sweep(tmp_path / "s", {}), pytest.raises(InputError, match="in use by another sweep"):
        run_sweep(trials, tmp_path / "s")


def test_a_choice_and_what_is_fitted_behind_it_use_different_data(cached_waves, tiny, tmp_path, monkeypatch):
    """`dropout-reg+temperature`: p by the first part of reg, the temperature by the kept part."""
    monkeypatch.setattr(dropout, "RATES", (0.05, 0.1))
    [trial] = plan("grid", methods="dropout-reg+temperature", seeds=1, steps=10, grid=["mask_seed=3"], base=tiny)
    [row] = run_sweep([trial], tmp_path / "a", progress=False)
    assert row["notes"]["dropout_rate"] in (0.05, 0.1)
    split = trainings_of(trial)[0][0].data(cached_waves)
    assert set(np.asarray(split.reg.rows).tolist()).isdisjoint(np.asarray(split.held_out.rows).tolist())
    # Training is monitored on what nothing learns from.
    assert make_task(split, 0).held_out is split.held_out


def test_no_method_reads_test(cached_waves, tiny, tmp_path, monkeypatch):
    """With test data that are not there, everything but the test scores is the same."""
    names = "xreg+early+temperature,dropout-0.2+conformal,persistence+temperature"
    trials = plan("grid", methods=names, seeds=1, steps=20, grid=["mask_seed=3"], base=tiny)
    seen = run_sweep(trials, tmp_path / "seen", progress=False)
    blind = cached_waves._replace(test=np.full_like(cached_waves.test, np.nan))
    monkeypatch.setattr(module, "shared_trajectories", lambda trials: blind)
    for row, other in zip(seen, run_sweep(trials, tmp_path / "blind", progress=False), strict=True):
        assert other["test"]["nll"] is None
        assert other["diverged"]
        for name in ("reg", "train", "notes", "sigma"):
            assert row[name] == other[name]


def test_named_sweeps():
    paper = plan("paper", seeds=3)
    assert len(paper) == 8 * 4 * 3
    assert {p.config.train.steps for p in paper} == {10_000}
    regimes = plan("paper-regimes", seeds=1)
    assert [(p.config.data.observed_fraction, p.method.name) for p in regimes] == [
        (0.7, "xreg"),
        (0.3, "xreg-heads"),
        (0.7, "xreg-heads"),
        (0.7, "unregularized"),
    ]
    assert {p.config.train.steps for p in regimes} == {30_000}
    # What a sweep varies is not undone by the method.
    for trial in plan("grid", methods="xreg", grid=["sigma_per=layer", "reg_objective=mixture"], seeds=1):
        [config] = trial.configs
        assert (config.model.sigma_per, config.train.reg_objective) == ("layer", "mixture")
    every = plan("paper", methods="all", seeds=1)
    assert len({trial.method.name for trial in every}) == len(ALL_METHODS.split(","))
    assert len({trial_key(trial, "") for trial in every}) == len(every) == 8 * len(ALL_METHODS.split(","))
    ablation = plan("ablation", seeds=2)
    assert len({trial_key(trial, "") for trial in ablation}) == len(ablation)
    for trial in plan("equal-data", seeds=1):
        data = trial.config.data
        assert data.train_size is not None
        assert data.reg_size is not None
        assert data.train_size + data.reg_size in (25, 40, 60, 80)
        assert data.one_pool
        assert (data.reg_size > 0) == trial.needs_reg


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["papers"], "papers: not one of paper-observed"),
        (["paper", "--seeds", "0"], "--seeds 0: must lie in 1 … 100000"),
        (["paper", "--methods", "xregg"], "no such method"),
        (["grid"], "give at least one --grid"),
        (["grid", "--grid", "observed_fraction"], "expected field=value,value"),
        (["grid", "--grid", "colour=1"], "colour: no such setting"),
        (["grid", "--grid", "observed_fracton=1"], "did you mean observed_fraction"),
        (["paper", "--methods", ""], "names no method"),
        (["grid", "--grid", "width=wide"], "'wide'; expected a whole number"),
        (["grid", "--grid", "reg_objective=foo"], "expected one of fair, moment-matched,"),
        (["grid", "--grid", "sites=foo"], r"expected a list, \[a, b\]"),
        (["grid", "--grid", "seed=1,2"], "--seeds"),
        (["grid", "--grid", "observed_fraction=0.5,1.5"], r"1.5: must lie in \(0, 1\]"),
        (["grid", "--grid", "reg_size=0", "--methods", "xreg"], "xreg: needs --reg-size 1 or more, not 0"),
        (["grid", "--grid", "reg_size=1", "--methods", "dropout,xreg+early"], "needs --reg-size 2 or more, not 1"),
        (["paper-regimes", "--methods", "xreg"], "the sweep paper-regimes has fixed methods"),
        (["paper-exact", "--methods", "xreg"], "the sweep paper-exact has fixed methods"),
        (["paper", "--grid", "train_size=50"], "the sweep paper sets it itself"),
        (["grid", "--grid", "generalization_head=true", "--methods", "unregularized"], "would be another method"),
        (["grid", "--grid", "dropout_rate=0.1", "--methods", "dropout-reg"], "are the same; leave these out"),
        (["grid", "--grid", "sites=[block1", "--methods", "xreg"], "expected field=value,value"),
        (["grid", "--grid", "train_size=71"], "--train-size 71"),
        (["grid", "--grid", "time_stride=1,2", "--methods", "xreg"], "--time-stride 2: is for your data; a scenario"),
        (["grid", "--grid", "feature_noise=none", "--methods", "xreg"], "is what methods differ in"),
        (
            ["grid", "--grid", "num_samples=2", "--methods", "xreg-fair"],
            "--num-samples 2: --reg-objective fair",
        ),
    ],
)
def test_bad_sweeps_are_refused(arguments, message, capsys, tmp_path, cached_waves):
    assert main(["sweep", *arguments, "--out", str(tmp_path / "s")]) == 2
    shown = capsys.readouterr()
    assert re.search(message, shown.err)
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_a_settings_file_that_says_nothing_of_steps_leaves_the_sweep_its_own(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "run_sweep", lambda trials, *_, **__: asked.extend(trials) or [])
    monkeypatch.setattr(table_files, "write_tables", lambda *_, **__: "")
    for text, steps in (("data: {mask_seed: 3}", 10_000), ("train: {steps: 70}", 70)):
        (tmp_path / "c.yaml").write_text(text)
        assert main(["sweep", "paper", "--config", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "s")]) == 0
        assert {trial.config.train.steps for trial in asked} == {steps}
        asked.clear()


def test_command_line(tiny, cached_waves, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(to_yaml(tiny))
    out = tmp_path / "s"
    arguments = ["grid", "--grid", "train-size=3,7", "--methods", "persistence,unregularized", "--seeds", "2"]
    common = ["--steps", "10", "--config", str(tmp_path / "c.yaml"), "--quiet"]
    assert main(["sweep", *arguments, *common, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert main(["table", str(out)]) == 0
    assert capsys.readouterr().out == printed.out
    assert {"table.md", "table.csv", "table.tex", "rows.jsonl", "sweep.json"} <= {p.name for p in out.iterdir()}
    header, *lines = (out / "table.csv").read_text().splitlines()
    for column in ("observed_fraction", "train_size", "method", "seeds", "diverged", "test_nll", "test_ece_mix_low"):
        assert column in header.split(",")
    assert len(lines) == 4
    assert main(["figures", str(out)]) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert str(out / "figures" / "losses_observed-0.7_train-7.pdf") in drawn
    assert len(set(drawn)) == len(drawn)
    assert main(["table", str(tmp_path / "nowhere")]) == 2
    assert main(["figures", str(tmp_path / "nowhere")]) == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x.txt").write_text("x")
    assert main(["sweep", *arguments, *common, "--out", str(tmp_path / "mine")]) == 2
    assert main(["table", str(tmp_path / "mine")]) == 2


def test_a_sweep_has_one_kind_of_data(cached_waves, tiny, tmp_path):
    mixed = [Trial(tiny, parse_method("xreg"), {}), Trial(tiny.replace(scenario="diff_adv"), parse_method("xreg"), {})]
    with pytest.raises(InputError, match="num_modes is 90"):
        run_sweep([Trial(tiny.replace(num_modes=90), parse_method("xreg"), {})], tmp_path / "s")
    with pytest.raises(InputError, match="one scenario"):
        run_sweep(mixed, tmp_path / "s")
    assert Config().data.scenario == "diff_ks"


def test_every_grid_flag_counts():
    command: Any = _parse("sweep", ["grid", "--grid", "k_reg=1,5", "--grid", "observed_fraction=0.5,0.9", "--out", "x"])
    assert command.grid == ("k_reg=1,5", "observed_fraction=0.5,0.9")
    assert len(plan(command.name, grid=command.grid, methods="xreg", seeds=1)) == 4


def test_a_run_of_a_sweep_becomes_a_run_folder(tiny, cached_waves, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(to_yaml(tiny))
    sweep = ["grid", "--grid", "observed_fraction=0.5,1.0", "--methods", "xreg,ensemble", "--seeds", "2"]
    common = ["--steps", "20", "--config", str(tmp_path / "c.yaml"), "--quiet"]
    assert main(["sweep", *sweep, *common, "--out", str(tmp_path / "s")]) == 0
    take = ["extract", str(tmp_path / "s"), "--out", str(tmp_path / "run"), "--seed", "1"]
    assert main([*take, "--where", "observed_fraction=0.5"]) == 0
    row = next(
        r for r in read_rows(tmp_path / "s") if (r["method"], r["observed_fraction"], r["seed"]) == ("xreg", 0.5, 1)
    )
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    # The run alone, with its own mask, config and model, scores what its row says.
    assert scores["test"]["nll"] == pytest.approx(row["test"]["nll"], rel=1e-5)
    assert scores == json.loads((tmp_path / "run" / "metrics.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 20]
    for arguments, message in (
        (["--where", "observed_fraction=0.5"], "already holds a run"),
        (
            ["--out", str(tmp_path / "a")],
            "2 trials match, and one is expected; the sweep has observed_fraction 0.5, 1.0",
        ),
        (["--out", str(tmp_path / "a"), "--method", "dropout"], "the sweep has xreg, ensemble"),
        (["--out", str(tmp_path / "a"), "--method", "ensemble", "--where", "observed_fraction=1.0"], "more than one"),
        (["--out", str(tmp_path / "a"), "--seed", "7"], "--seed 7: the sweep has 0, 1"),
        (["--out", str(tmp_path / "a"), "--method", "bogus"], "--method bogus: no such method"),
    ):
        assert main([*take, *arguments]) == 2
        assert message in capsys.readouterr().err


def test_another_command_says_what_it_replaces(tiny, cached_waves, tmp_path, capsys):
    trials = plan("grid", methods="unregularized", seeds=3, steps=10, grid=["observed_fraction=1.0"], base=tiny)
    asked = {"name": "grid", "seeds": 3, "grid": ["observed_fraction=1.0"], "config": to_dict(tiny)}
    out = tmp_path / "s"
    with module.open_sweep(out, asked | {"data": cached_waves.digest}):
        trainings = [t for trial in trials for members in trainings_of(trial) for t in members]
        plan_programs(trainings, out, cached_waves.digest, 40, 2**30)
    run_sweep(trials[:1], out, progress=False, asked=asked)
    assert "held" not in capsys.readouterr().err
    # What was planned stays so, begun or not: numbers must not depend on when a sweep was stopped.
    run_sweep(trials[:2], out, progress=False, asked=asked | {"seeds": 2})
    assert [len(p.trainings) for p in read_programs(out)] == [3]
    assert "held a sweep grid --seeds 3 --grid observed_fraction=1.0" in capsys.readouterr().err


def test_rows_say_what_was_set_and_idle_settings_train_nothing_twice(cached_waves, tiny, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(to_yaml(tiny.replace(test_size=2)))
    command = ["sweep", "grid", "--seeds", "2", "--steps", "20", "--config", str(tmp_path / "c.yaml"), "--quiet"]
    out = str(tmp_path / "s")
    grid = ["--grid", "k_reg=2,5", "--methods", "xreg,unregularized"]
    assert main([*command, *grid, "--out", out]) == 0
    rows = read_rows(tmp_path / "s")
    assert sorted((r["method"], r["settings"]["k_reg"]) for r in rows if r["seed"] == 0) == [
        ("unregularized", 2), ("unregularized", 5), ("xreg", 2), ("xreg", 5)
    ]  # fmt: skip
    assert all(row["settings"]["test_size"] == 2 for row in rows)
    # k_reg means nothing to a model that learns nothing on reg: one program for both.
    assert len(read_programs(tmp_path / "s")) == 3
    table = capsys.readouterr().out
    assert re.search("All with .*test_size 2", table)
    assert "Difference from k_reg 5\n" in table  # the default, and nothing of what all share
    # Another command's table says that there is more, and how to see it.
    assert main([*command, "--grid", "k_reg=3", "--methods", "persistence", "--out", out]) == 0
    capsys.readouterr()
    assert main(["table", out]) == 0
    assert "8 more rows of earlier sweeps are in the folder; --all" in capsys.readouterr().out
    assert main(["table", out, "--all"]) == 0
    shown = capsys.readouterr().out
    assert "unregularized" in shown
    assert "persistence" in shown
    assert "earlier sweeps" not in shown
