"""Sweeps: shared trainings, one contract for all methods, restarts that change nothing, and tables of known numbers."""

import json
import math

import numpy as np
import pytest

from crossreg.cli import main
from crossreg.config import Config, save_yaml
from crossreg.errors import InputError
from crossreg.methods.names import parse_method
from crossreg.report import comparison
from crossreg.studies import sweep as module
from crossreg.studies.grids import Point, plan
from crossreg.studies.sweep import chunks_of, point_hash, read_rows, run_sweep, training_hash, trainings_of

METHODS = (
    "xreg,xreg+early+temperature,xreg-heads,ensemble,ensemble-1,unregularized,ensemble+early+conformal,"
    "fixed-noise,dropout+temperature,persistence,persistence-masked+conformal"
)


@pytest.fixture
def points(cached_waves, tiny):
    return plan("grid", methods=METHODS, seeds=2, steps=20, grid=["observed_fraction=0.5,1.0"], base=tiny)


def test_every_method_ends_in_a_row(points, tmp_path, cached_waves, capsys):
    rows = run_sweep(points, tmp_path / "s", progress=True)
    assert len(rows) == 2 * 2 * 11
    for row in rows:
        assert row["method"] in METHODS.split(",")
        assert not row["diverged"]
        for split in ("test", "reg"):
            assert all(math.isfinite(v) for k, v in row[split].items() if k != "coverage")
            assert len(row[split]["coverage"]) == 9
    by = {(row["method"], row["observed_fraction"], row["seed"]): row for row in rows}
    for fraction in (0.5, 1.0):
        for seed in (0, 1):
            alone, plain = by["ensemble-1", fraction, seed], by["unregularized", fraction, seed]
            assert alone["test"] == plain["test"]
            assert by["ensemble", fraction, seed]["test"]["std_mu"] > 0
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
    assert run_sweep(points, tmp_path / "s", progress=False) == rows
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "s" / "trained").iterdir()} == stamp
    assert len(read_rows(tmp_path / "s")) == len(rows)

    # A method that is added uses what was trained for others.
    more = plan(
        "grid", methods="ensemble+temperature", seeds=2, steps=20, grid=["observed_fraction=0.5"], base=points[0].config
    )
    digest = cached_waves.digest
    wanted = {training_hash(t, digest) for p in more for members in trainings_of(p) for t in members}
    known = {training_hash(t, digest) for p in points for members in trainings_of(p) for t in members}
    assert wanted <= known


def test_a_killed_sweep_goes_on_where_it_was(cached_waves, tiny, tmp_path, monkeypatch):
    points = plan("grid", methods="xreg,unregularized+early", seeds=2, steps=20, grid=["mask_seed=3"], base=tiny)
    whole = run_sweep(points, tmp_path / "whole", progress=False)
    steps = []

    class Stopping(module.SweepDisplay):
        def update(self, report, replicas):
            super().update(report, replicas)
            steps.append(report.step)
            if report.step == 10 and len(steps) < 5:
                raise KeyboardInterrupt

    monkeypatch.setattr(module, "SweepDisplay", Stopping)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(points, tmp_path / "killed", progress=False)
    assert list((tmp_path / "killed" / "trained").glob("*.part.npz"))
    assert not read_rows(tmp_path / "killed")
    steps += [0] * 5
    before = len(steps)
    assert run_sweep(points, tmp_path / "killed", progress=False) == whole
    assert steps[before] == 11  # the first step after the snapshot
    assert not list((tmp_path / "killed" / "trained").glob("*.part.npz"))
    histories = [sorted((tmp_path / name / "trained").glob("*.jsonl")) for name in ("whole", "killed")]
    for a, b in zip(*histories, strict=True):
        assert a.read_text() == b.read_text()
        assert [json.loads(line)["step"] for line in a.read_text().splitlines()] == [10, 10, 20, 20]


def test_chunks_follow_from_the_whole_grid(points, cached_waves):
    digest = cached_waves.digest
    chunks = chunks_of(points, digest, 40, memory=10**9)
    hashes = [[training_hash(t, digest) for t in chunk] for chunk in chunks]
    flat = [h for chunk in hashes for h in chunk]
    assert len(flat) == len(set(flat))
    # 4 points of ensembles of 3 share their members with the plain model: 12 of one program.
    assert max(len(chunk) for chunk in chunks) == 12
    one = chunks_of(points, digest, 40, memory=1)
    assert {len(chunk) for chunk in one} == {1}
    assert sorted(h for c in one for h in [training_hash(c[0], digest)]) == sorted(flat)


def test_hashes_tell_settings_apart(tiny):
    def point(method="xreg", **fields):
        return Point(tiny.replace(**fields), parse_method(method), {})

    keys = [
        point_hash(p, digest)
        for p, digest in [
            (point(), "a"),
            (point(), "b"),
            (point(seed=1), "a"),
            (point(steps=31), "a"),
            (point("xreg-layer"), "a"),
            (point("xreg+early"), "a"),
            (point("ensemble-2"), "a"),
            (point("ensemble-3"), "a"),
            (point("persistence"), "a"),
        ]
    ]
    assert len(set(keys)) == len(keys)
    assert point_hash(point(), "a") == keys[0]


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
    for point in plan("equal-data", seeds=1):
        data = point.config.data
        assert data.train_size + data.reg_size in (25, 40, 60, 80)
        assert data.one_pool
        assert (data.reg_size > 0) == point.method.needs_reg(point.config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["papers"], "papers: not one of paper-observed"),
        (["paper", "--seeds", "0"], "--seeds 0: must be at least 1"),
        (["paper", "--methods", "xregg"], "no such method"),
        (["grid"], "give at least one --grid"),
        (["grid", "--grid", "observed_fraction"], "expected field=value,value"),
        (["grid", "--grid", "colour=1"], "colour: no such config field"),
        (["grid", "--grid", "width=wide"], "'wide'; expected int"),
        (["grid", "--grid", "seed=1,2"], "--seeds"),
        (["grid", "--grid", "observed_fraction=0.5,1.5"], r"1.5: must lie in \(0, 1\]"),
        (["grid", "--grid", "reg_size=0", "--methods", "xreg"], "uses held-out data, and --reg-size is 0"),
        (["paper-regimes", "--methods", "xreg"], "have methods of their own"),
    ],
)
def test_bad_sweeps_are_refused(arguments, message, capsys, tmp_path, cached_waves):
    import re

    assert main(["sweep", *arguments, "--out", str(tmp_path / "s")]) == 2
    shown = capsys.readouterr()
    assert re.search(message, shown.err)
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_command_line(tiny, cached_waves, tmp_path, capsys):
    save_yaml(tiny, tmp_path / "c.yaml")
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
    assert main(["table", str(tmp_path / "nowhere")]) == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x.txt").write_text("x")
    assert main(["sweep", *arguments, *common, "--out", str(tmp_path / "mine")]) == 2
    assert main(["table", str(tmp_path / "mine")]) == 2


def made_up(method, nll, *, fraction=0.4, diverged=()):
    """Rows of made-up numbers, one per seed."""
    scores = dict.fromkeys(("crps", "rmse", "std_mu", "sharpness", "spearman", "ause"), 0.1)
    return [
        {
            "observed_fraction": fraction,
            "train_size": 50,
            "reg_size": 50,
            "method": method,
            "seed": seed,
            "steps": 10,
            "diverged": seed in diverged,
            "test": scores | {"nll": value, "ece_mix": 0.01 * (seed + 1)},
            "reg": None if method == "ensemble" else scores | {"nll": value, "ece_mix": 0.02},
        }
        for seed, value in enumerate(nll)
    ]


def test_means_intervals_and_winners(tmp_path):
    ours = [-1.0, -1.1, -0.9, -1.0]
    rows = made_up("xreg", ours) + made_up("dropout", [-0.5, -0.6, -0.4, 99.0], diverged=(3,))
    rows += made_up("ensemble", [-1.0, -1.2, -0.8, -1.0]) + made_up("xreg", ours, fraction=0.6)
    rows += made_up("dropout", [-2.0, -2.1, -1.9, -2.0], fraction=0.6)
    lines = comparison.collect(rows)
    xreg, dropout, ensemble, *_ = lines
    interval = xreg.interval("test_nll")
    assert interval is not None
    assert interval.mean == pytest.approx(-1)
    # t(3, 97.5%) = 3.182; standard error 0.0816 / 2.
    assert interval.half == pytest.approx(3.182446 * np.std(ours, ddof=1) / 2, rel=1e-5)
    assert (dropout.seeds, dropout.diverged) == (4, 1)
    assert dropout.interval("test_nll").mean == pytest.approx(-0.5)  # pyright: ignore[reportOptionalMemberAccess]
    assert ensemble.interval("reg_ece_mix") is None
    groups = comparison.regimes(lines)
    assert comparison.clearly_best(groups[0], "test_nll") is None  # the ensemble is as good
    best = comparison.clearly_best(groups[1], "test_nll")
    assert best is not None
    assert best.method == "dropout"
    said = "\n".join(comparison.verdicts(lines))
    assert "does not win in 1, being worse beyond the interval: 0.6 observed, 50 trajectories: dropout (−1.000" in said
    assert "within the interval in 1: 0.4 observed, 50 trajectories: ensemble" in said
    text = comparison.write_tables(rows, tmp_path)
    assert "−2.000 ± 0.130*" in text
    assert "**−2.000 ± 0.130**" in (tmp_path / "table.md").read_text()
    assert r"\textbf{$-$2.000 $\pm$ 0.130}" in (tmp_path / "table.tex").read_text()
    # The paper's own number stands beside ours.
    assert "-0.51" in text
    assert "-0.5083" in (tmp_path / "table.csv").read_text()


def test_at_equal_data_each_method_has_its_best_split():
    def divided(method, nll, train, reg):
        changes = {"one_pool": True, "train_size": train, "reg_size": reg}
        rows = made_up(method, nll)
        return [row | {"train_size": train, "reg_size": reg, "changes": changes} for row in rows]

    rows = divided("xreg", [-1.0, -1.1], 20, 5) + divided("xreg", [-2.0, -2.1], 22, 3)
    rows += divided("ensemble", [-1.5, -1.6], 25, 0)
    lines = comparison.collect(rows)
    [group] = comparison.regimes(lines)
    assert group[0].regime["total"] == 25
    assert [line.split for line in comparison.best_splits(group)] == [(22, 3), (25, 0)]
    assert (
        "best beyond the 95% interval in 1 of 1 regimes: 0.4 observed, 25 trajectories" in comparison.verdicts(lines)[0]
    )
    assert "22 + 3" in comparison.as_markdown(lines)
    assert "0.4,25,10,22,3,xreg,2,0" in comparison.as_csv(lines)


def test_an_interval_is_that_of_welch():
    from scipy.stats import ttest_ind

    a, b = [1.0, 2.0, 4.0], [0.5, 0.7, 0.4, 0.8]
    x, y = comparison.collect(made_up("xreg", a) + made_up("dropout", b))
    gap = comparison.difference(x, y, "test_nll")
    low, high = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert gap is not None
    assert (gap.low, gap.high) == pytest.approx((low, high))
    same = comparison.collect(made_up("xreg", [1.0, 1.0]) + made_up("dropout", [2.0, 2.0]))
    assert comparison.difference(same[0], same[1], "test_nll") == (-1, 0)
    one, other = comparison.collect(made_up("xreg", [1.0]) + made_up("dropout", [2.0]))
    assert comparison.difference(one, other, "test_nll") is None


def test_a_sweep_has_one_kind_of_data(cached_waves, tiny, tmp_path):
    mixed = [Point(tiny, parse_method("xreg"), {}), Point(tiny.replace(scenario="diff_adv"), parse_method("xreg"), {})]
    with pytest.raises(InputError, match="one scenario"):
        run_sweep(mixed, tmp_path / "s")
    assert Config().data.scenario == "diff_ks"
