"""`crossreg plan`: what is counted, how it is packed, what it says; and plans beside sweeps that were measured."""

import dataclasses
import json
import math
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crossreg.cli.commands import Plan, Sweep
from crossreg.cli.main import main
from crossreg.config import Config, load_yaml, to_yaml
from crossreg.designs.grids import plan
from crossreg.designs.presets import SCENARIOS
from crossreg.errors import InputError
from crossreg.methods.names import parse_method
from crossreg.report.plan_text import plan_text
from crossreg.studies.planning import device_costs
from crossreg.studies.planning.demand import asked_trials, demand_of, field_shape_of
from crossreg.studies.planning.device_costs import Around, Device, devices_of
from crossreg.studies.planning.packing import (
    Cohort,
    at_most,
    best_width,
    in_a_process,
    load_of,
    split_evenly,
    ways_to_run,
)
from crossreg.studies.planning.plan import make_plan
from crossreg.studies.planning.settings import Asked, Risks
from crossreg.studies.sweep.programs import plan_programs
from crossreg.studies.sweep.run import run_sweep
from crossreg.studies.sweep.scoring import trainings_of
from crossreg.training.cost import RATES

SHAPE = (1, 160)
ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "results" / "planning.json"
# Elements of fields in a step of a plain model at the defaults: batch × blocks × width × points.
ELEMENTS = 16 * 4 * 8 * 160


def device(step: float = 1e-3, per_replica: float = 1e-3, **around) -> Device:
    """A GPU on which a step of R plain models takes `step + R per_replica` seconds."""
    usual = {
        "memory": 64 * 2**30, "start": 5.0, "new": (10.0, 20.0), "known": (2.0, 4.0), "ahead": (3.0, 1.0),
        "replica": 0.0, "look": (0.0, 0.0), "row": (0.0, 0.0), "held": (2.0**30, 0.1), "compilers": 0, "crowding": 1.0,
    }  # fmt: skip
    rates = (step, 0.0, 0.0, 0.0, per_replica / ELEMENTS, 0.0)
    return Device("Some GPU", rates, (0.1, 0.5), Around(**(usual | around)))


def cohort(replicas: int, *, method: str = "unregularized", steps: int = 1000, scoring: float = 0.0) -> Cohort:
    [config] = parse_method(method).configs(Config().replace(steps=steps, num_samples=10))
    return Cohort(method, config, replicas, scoring)


@pytest.fixture
def measured_gpu(monkeypatch):
    """The made-up GPU, as if it had been measured."""
    monkeypatch.setattr(device_costs, "known_devices", lambda: {"gpu": device(), "tiny": device(memory=2**20)})


def test_what_is_counted_is_what_a_sweep_would_train(tmp_path):
    asked = Asked("paper", methods="xreg,ensemble,unregularized,dropout+temperature,persistence")
    trials = asked_trials(asked).trials
    every = {t for trial in trials for members in trainings_of(trial) for t in members}
    programs = plan_programs(every, tmp_path, "digest", 160, 10**13, write=False)
    for seeds in (1, 7, 10**5):
        found = demand_of(asked_trials(dataclasses.replace(asked, seeds=seeds)), lambda trial: 1.0)
        assert sorted(c.replicas for c in found.cohorts) == sorted(seeds * len(p.trainings) for p in programs)
        assert found.asked == found.left == seeds * 40
        # A second of scoring for every row, in the cohorts that it needs, but for those that need no training.
        assert found.rows == seeds * 8
        assert sum(c.replicas * c.scoring for c in found.cohorts) == pytest.approx(seeds * 32)


def test_seeds_are_alike(tmp_path):
    """Counting one seed and multiplying is counting all of them."""
    trials = plan("equal-data", seeds=3, methods="xreg,ensemble+early+temperature,dropout-reg")
    every = {t for trial in trials for members in trainings_of(trial) for t in members}
    programs = plan_programs(every, tmp_path, "digest", 1, 10**15, write=False)
    asked = Asked("equal-data", seeds=3, methods="xreg,ensemble+early+temperature,dropout-reg")
    found = demand_of(asked_trials(asked), lambda trial: 1.0)
    assert sum(c.replicas for c in found.cohorts) == sum(len(p.trainings) for p in programs) == len(every)


def test_a_line_of_costs_is_a_job():
    """Start, compilation, steps of a + R b, looks, rows: by hand."""
    gpu = device(replica=0.5, look=(0.25, 0.0), row=(2.0, 0.0))
    load = load_of([cohort(6, scoring=gpu.row_seconds(Config(), SHAPE, members=1))], 3.0, SHAPE, gpu)
    made = in_a_process(load, 1)
    steps, looks = 1000 * (1e-3 + 6 * 1e-3), 10 * 0.25
    assert made.schedule.makespan == pytest.approx(5 + 10 + steps + looks + 6 * 0.5 + 6 * 2.0 + 3.0)
    known = load_of(load.cohorts, 3.0, SHAPE, gpu, compiled=True)
    assert in_a_process(known, 1).schedule.makespan == pytest.approx(made.schedule.makespan - 10 + 2)
    # Half of the steps are done already.
    half = load_of([load.cohorts[0]._replace(fixed=True, left=0.5)], 3.0, SHAPE, gpu)
    assert in_a_process(half, 1).schedule.busy == pytest.approx((steps + looks + 3) / 2 + 12 + 3)


def test_on_all_devices_each_has_its_share():
    gpu = device()
    made = in_a_process(load_of([cohort(20)], 0.0, SHAPE, gpu), 8)
    assert made.schedule.makespan == pytest.approx(5 + 10 + 1000 * (1e-3 + 3 * 1e-3))  # 20 on 8: 3 at most
    # All rows are scored by one of the devices.
    scored = in_a_process(load_of([cohort(20, scoring=0.5)], 0.0, SHAPE, gpu), 8)
    assert scored.schedule.makespan == pytest.approx(made.schedule.makespan + 20 * 0.5)


def random_load(seed: int):
    draw = np.random.default_rng(seed)
    gpu = device(
        step=draw.uniform(0, 2e-3), per_replica=draw.uniform(1e-5, 1e-3), memory=int(draw.uniform(0.5, 40) * 2**30),
        new=(draw.uniform(0, 20), 20.0), held=(1e6, 0.2),
    )  # fmt: skip
    cohorts = [
        cohort(int(draw.integers(1, 3000)), steps=int(draw.integers(50, 5000)), scoring=draw.uniform(0, 0.2))
        for _ in range(int(draw.integers(1, 5)))
    ]
    return load_of(cohorts, draw.uniform(0, 10), SHAPE, gpu), int(draw.integers(2, 200))


@pytest.mark.parametrize("seed", range(12))
def test_no_replica_is_lost_no_memory_exceeded_and_nothing_better_than_perfect(seed):
    load, devices = random_load(seed)
    for count in (1, devices):
        ways = [way.packing for way in ways_to_run(load, count)]
        for way in ways:
            for i, one in enumerate(load.cohorts):
                assert sum(jobs.number * jobs.replicas for jobs in way.jobs if jobs.cohort == i) == one.replicas
            for jobs in way.jobs:
                share = math.ceil(jobs.replicas / way.devices_each)
                config = load.cohorts[jobs.cohort].config
                assert share <= load.device.most(config, SHAPE)
                assert load.device.held_bytes(config, SHAPE, share) <= load.device.around.memory
            assert 0 < load.useful() / (count * way.schedule.makespan) <= 1
        if count > 1:
            assert ways[0].schedule.makespan <= 1.01 * min(w.schedule.makespan for w in ways if w.devices_each == 1)


@pytest.mark.parametrize(("replicas", "devices"), [(100, 8), (513, 5), (37, 16)])
def test_the_width_is_the_best_of_all_widths(replicas, devices):
    load = load_of([cohort(replicas)], 0.0, SHAPE, device(new=(3.0, 3.0)))
    every = [at_most(load, devices, width).schedule.makespan for width in range(1, load.lines[0].most + 1)]
    assert best_width(load, devices)[1].schedule.makespan <= 1.01 * min(every)


def test_jobs_are_as_wide_as_can_be_where_nothing_is_gained():
    # One device takes all; where compiling takes long, each compiles once.
    load = load_of([cohort(300)], 0.0, SHAPE, device(new=(1000.0, 1000.0), known=(1000.0, 1000.0)))
    assert best_width(load, 1) == (300, at_most(load, 1, 300))
    assert best_width(load, 8)[1].num_jobs <= 8


def test_a_cohort_is_split_as_programs_are():
    for replicas, parts in ((10, 3), (7, 7), (12, 4), (1, 1), (1000, 7)):
        sizes = [size for number, size in split_evenly(replicas, parts) for _ in range(number)]
        assert sizes == [len(part) for part in np.array_split(np.arange(replicas), parts)]


def test_without_trouble_a_plan_is_its_schedule(measured_gpu):
    made = make_plan(Asked("paper", methods="unregularized", seeds=8), "gpu:1")
    [jobs] = made["jobs"]
    assert (made["replicas"], jobs["replicas"], made["num_jobs"]) == (64, 64, 1)
    steps = 10_000 * (1e-3 + 64 * 1e-3)
    assert made["seconds"] == pytest.approx(5 + 10 + steps)
    assert made["band"] == [made["seconds"]] * 2
    assert made["efficiency"] == pytest.approx(steps / made["seconds"])
    assert made["device_hours"] == pytest.approx(made["seconds"] / 3600)
    assert sum(made["shares"].values()) == pytest.approx(1)


def test_equal_jobs_on_devices_take_their_rounds(measured_gpu):
    made = make_plan(Asked("paper", methods="unregularized", seeds=800), "gpu:4")
    # 6,400 replicas, 512 at most: on four devices sixteen jobs of 400, or, in one process, four on all of them.
    seconds = 10_000 * (1e-3 + 400 * 1e-3)
    ways = {way["name"]: way["seconds"] for way in made["ways"]}
    assert ways["workers, best width"] == pytest.approx(5 + 5 + 10 + 4 * seconds)
    assert ways["one process, all devices"] == pytest.approx(5 + 10 + 4 * seconds)


def test_trouble_widens_the_band_and_is_said(measured_gpu):
    asked = Asked("paper", methods="unregularized", seeds=800)
    calm = make_plan(asked, "gpu:16")
    risks = Risks(0.1, 3.0, 0.2, retries=9)
    risky = make_plan(asked, "gpu:16", risks=risks)
    low, high = risky["band"]
    assert calm["seconds"] <= low <= risky["seconds"] <= high
    assert low < high
    assert risky["failures"] > 0
    assert risky["runs"] >= 5
    assert "simulated runs" in plan_text(risky)
    assert make_plan(asked, "gpu:16", risks=risks) == risky


def test_jobs_that_are_given_up_are_no_way_to_be_fast(measured_gpu):
    asked = Asked("paper", methods="unregularized", seeds=800)
    made = make_plan(asked, "gpu:16", risks=Risks(failures_per_hour=100.0, save_every=1e6))
    assert made["given_up"] >= 1
    assert "are given up" in plan_text(made).splitlines()[-1]


def test_a_million_replicas_on_a_thousand_devices(measured_gpu):
    made = make_plan(Asked("paper", seeds=25_000), "gpu:1000", risks=Risks(0.01, 3.0, 0.01, runs=2))
    assert made["replicas"] == 10**6
    assert sum(jobs["number"] * jobs["replicas"] for jobs in made["jobs"]) == 10**6
    assert 0 < made["efficiency"] <= 1
    assert len(plan_text(made).splitlines()) <= 32


def test_a_folder_has_what_is_left(cached_waves, tiny, tmp_path, measured_gpu, capsys):
    base = tiny.replace(steps=20)
    flags = {"methods": "unregularized,dropout,persistence", "seeds": 2, "grid": ["train_size=3,5"]}
    folder = tmp_path / "sweep"
    asked = {"name": "grid", "first_seed": 0, "steps": 20, "config": json.loads(json.dumps(_plain(base)))} | flags
    run_sweep(plan("grid", **flags, base=base), folder, progress=False, asked=asked)
    done = make_plan(Asked(str(folder)), "gpu:1")
    assert done["rows"] == {"asked": 12, "left": 0}
    assert (done["replicas"], done["num_jobs"]) == (0, 0)
    assert plan_text(done) == f"{folder}: 12 rows, all finished; nothing is left to train or to score"
    # One program and its rows are gone: it is planned as it was, and the rows of the other are not.
    [dropped] = [p for p in (folder / "trained").glob("*.json") if '"feature_noise": "dropout"' in p.read_text()]
    rows = (folder / "rows.jsonl").read_text().splitlines()
    kept = [row for row in rows if json.loads(row)["method"] != "dropout"]
    (folder / "rows.jsonl").write_text("".join(f"{row}\n" for row in kept))
    dropped.with_suffix(".npz").unlink()
    left = make_plan(Asked(str(folder)), "gpu:4")
    assert left["rows"] == {"asked": 12, "left": 4}
    assert [(jobs["label"], jobs["replicas"], jobs["steps"]) for jobs in left["jobs"]] == [("dropout", 4, 20)]
    assert [(way["flags"], way["num_jobs"]) for way in left["ways"]] == [("--workers 4", 1), ("--devices 4", 1)]
    # A snapshot says how far it had come.
    (folder / "snapshots").mkdir()
    (folder / "snapshots" / f"{dropped.stem}.000000015.npz").touch()
    assert [jobs["steps"] for jobs in make_plan(Asked(str(folder)), "gpu:4")["jobs"]] == [5]
    with pytest.raises(InputError, match=r"`seeds`: .* is a folder, which has this setting itself"):
        make_plan(Asked(str(folder), seeds=3), "gpu:4")


def _plain(config: Config) -> dict:
    from crossreg.config import to_dict

    return to_dict(config)


def test_settings_and_presets_are_runs(tmp_path, measured_gpu):
    (tmp_path / "mine.yaml").write_text(to_yaml(Config().replace(steps=123, width=4)))
    made = make_plan(Asked(str(tmp_path / "mine.yaml"), seeds=3), "gpu:1")
    assert [(jobs["label"], jobs["replicas"], jobs["steps"]) for jobs in made["jobs"]] == [("mine", 3, 123)]
    assert load_yaml(tmp_path / "mine.yaml").train.steps == 123
    made = make_plan(Asked("reference", seeds=2, steps=50), "gpu:2")
    assert made["replicas"] == 2
    made = make_plan(Asked(str(tmp_path / "mine.yaml"), seeds=1, methods="xreg,ensemble"), "gpu:1")
    assert made["replicas"] == 4
    made = make_plan(Asked("unregularized", seeds=2, steps=50, grid=["train_size=20,30,40"]), "gpu:1")
    assert [(jobs["label"], jobs["replicas"]) for jobs in made["jobs"]] == [("unregularized", 6)]
    (tmp_path / "own.yaml").write_text(to_yaml(Config().replace(data="flow.npy")))
    with pytest.raises(InputError, match=r"own\.yaml: uses your data \(flow\.npy\), which plans do not support"):
        make_plan(Asked(str(tmp_path / "own.yaml")), "gpu:1")


def test_flags_are_those_of_a_sweep():
    """All that says what a sweep trains says it to a plan."""
    names = {field.name for field in dataclasses.fields(Sweep)}
    about = {"name", "methods", "seeds", "first_seed", "steps", "grid", "scenario", "config"}
    assert about <= names
    assert {field.name for field in dataclasses.fields(Plan)} >= about - {"name"} | {"what"}
    scenario = next(iter(SCENARIOS))
    trials = asked_trials(Asked("paper", scenario=scenario, steps=77)).trials
    assert {(p.config.data.scenario, p.config.train.steps) for p in trials} == {(scenario, 77)}


def test_the_shape_is_the_cached_files_or_the_configs(cached_waves, tiny):
    assert field_shape_of(tiny.data) == (cached_waves.train.shape[2:], True)
    assert field_shape_of(Config().replace(scenario="diff_burgers").data) == ((1, 160), False)
    wide = Config().replace(scenario="diff_burgers", num_spatial_dims=2, num_points=48)
    assert field_shape_of(wide.data) == ((1, 48, 48), False)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("paper --on", "Missing value for argument '--on'. Expected 1 values. (see crossreg plan --help)"),
        ("paper --on gpu:1 --steps many", "--steps: many is not a whole number (see crossreg plan --help)"),
        ("paper --on tpu:8", "--on tpu:8: no device tpu was measured; there are gpu, tiny"),
        ("paper --on gpu", "--on gpu: expected NAME:COUNT"),
        ("paper --on gpu:0", "--on gpu:0: expected NAME:COUNT"),
        ("papr --on gpu:1", "papr: neither a sweep (paper-observed"),
        ("paper --on gpu:1 --seeds 0", "--seeds 0: must lie in 1"),
        ("paper --on gpu:1 --straggler-rate 2", "--straggler-rate 2.0: must be a share"),
        ("paper --on gpu:1 --straggler-slowdown 0.5", "--straggler-slowdown 0.5: must be a factor"),
        ("paper --on gpu:1 --failures-per-hour -1", "--failures-per-hour -1.0: must lie in"),
        ("paper --on gpu:1 --save-every -1", "--save-every -1.0: must be"),
        ("paper --on gpu:1 --retries -1", "--retries -1: must lie in"),
        ("reference --on gpu:1 --scenario diff_kdv", "--scenario diff_kdv: is for named sweeps"),
        ("paper --on gpu:1 --methods nothing", "--methods nothing: no such method"),
        ("paper --on tiny:1", "--on Some GPU: one replica of width 8 on 160 values takes"),
        ("paper --on gpu:1 --figure plan.svg", "--figure plan.svg: expected a name that ends in .png"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(flags, said, measured_gpu, capsys):
    assert main(["plan", *flags.split()]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


def test_the_command_prints_text_or_json_and_draws(measured_gpu, tmp_path, capsys):
    assert main(["plan", "paper", "--on", "gpu:8", "--figure", str(tmp_path / "plan.png")]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 32
    assert all(len(line) <= 120 for line in text.splitlines())
    assert (tmp_path / "plan.png").stat().st_size > 10_000
    assert main(["plan", "paper", "--on", "gpu:8", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert f"{made['num_jobs']} jobs" in text
    assert next(way["flags"] for way in made["ways"] if way["name"] == made["way"]) in text


def test_no_device_is_touched():
    """A plan for a thousand GPUs can be made on a login node."""
    code = (
        "from crossreg.cli.main import main; assert main(['plan', 'paper', '--on', 'h200:1000', '--json']) == 0;"
        "from jax._src import xla_bridge; assert not xla_bridge._backends"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_plan_is_the_same_in_every_process():
    """Configs of a cohort differ in their data, and so in their costs; which of them counts is no matter of chance."""
    command = [sys.executable, "-m", "crossreg", "plan", "ablation", "--on", "h200:5", "--json"]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
        for seed in ("0", "1")
    )
    assert first.stdout == second.stdout


def test_devices_that_were_measured_have_all_that_a_plan_needs():
    for name in ("cpu", "h200"):
        known, count = devices_of(f"{name}:3")
        assert count == 3
        around = known.around
        assert around.new[0] >= around.known[0] > 0
        assert around.new[1] >= around.known[1] > 0
        assert around.memory > 2**30
        assert around.held[1] < 0.5  # half of memory is what a sweep fills by its own estimate


def test_constants_are_found_again_in_what_they_make():
    """Commands of known constants, timed by hand, give the constants to the benchmark that measures them."""
    fit = runpy.run_path(str(ROOT / "benchmarks" / "planning.py"))["fit"]
    truth = Around(
        memory=2**36, start=8.0, new=(9.0, 15.0), known=(3.0, 4.0), ahead=(5.0, 1.5), replica=0.03,
        look=(0.002, 0.4), row=(0.1, 2.0), held=(1e8, 0.09), compilers=4, crowding=1.5,
    )  # fmt: skip
    rates = json.loads(RATES.read_text())["NVIDIA H200"]
    gpu = Device("NVIDIA H200", tuple(rates["rates"]), (0.0, 0.0), truth)
    base, sizes, steps = Config().replace(train_size=50), [8, 64], 20
    methods = {"plain": parse_method("unregularized"), "reg": parse_method("xreg"), "more": parse_method("dropout")}
    configs = {kind: method.configs(base.replace(steps=steps))[0] for kind, method in methods.items()}

    def rows(kind: str, replicas: int, first: float) -> list[float]:
        """When each row is there: the first waits for the program that scores."""
        each = gpu.row_seconds(configs[kind], SHAPE, members=1)
        return [first + (i + 1) * each for i in range(replicas)]

    def sweep(kind: str, replicas: int, ready: float, first: float) -> dict:
        trained = 5.0 + ready - first + gpu.training_seconds(configs[kind], SHAPE, replicas)
        scored = [trained + after for after in rows(kind, replicas, first)]
        return {"planned": 5.0, "trained": [trained], "rows": scored, "wall": scored[-1] + 3.0}

    def crowded(ahead: float) -> dict:
        """A program that is ready 1.5 times as late, and behind its rows one that was compiled in the meantime."""
        trained = 5.0 + 1.5 * (sweeps["reg new"]["trained"][0] - 5.0)
        scored = [trained + after for after in rows("reg", 9, known)]
        second = scored[-1] + gpu.training_seconds(configs["more"], SHAPE, 9)
        scored += [second + after for after in rows("more", 9, ahead)]
        names = ["xreg"] * 9 + ["dropout"] * 9
        return {
            "planned": 5.0,
            "trained": [trained, second],
            "rows": scored,
            "wall": scored[-1] + 3.0,
            "methods": names,
        }

    # The program that scores is compiled by the narrow sweep: the wide one finds it, also where its training is new.
    new, known = 4.7, 1.2
    sweeps = {}
    for i, kind in enumerate(("plain", "reg")):
        sweeps[f"{kind} new"] = sweep(kind, 8, truth.new[i], new)
        sweeps[f"{kind} known"] = sweep(kind, 8, truth.known[i], known)
        sweeps[f"{kind} wide"] = sweep(kind, 64, truth.new[i] - new + known, known)
    sweeps["reg wide known"] = sweep("reg", 64, truth.known[1], known)
    sweeps |= {"crowded": crowded(truth.ahead[0]), "crowded known": crowded(truth.ahead[1])}
    config = configs["reg"]
    looks = [truth.look[0] + truth.look[1] * n * gpu.forward_seconds(config, SHAPE, 500, 10) for n in sizes]
    measured = {
        "device": gpu.kind, "sweeps": sweeps, "sizes": sizes, "steps": steps, "looks": looks, "memory": truth.memory,
        "held": [gpu.held_bytes(config, SHAPE, n) for n in sizes],
    }  # fmt: skip
    found = fit(measured, rates)
    for name, value in truth._asdict().items():
        assert found[name] == pytest.approx(list(value) if isinstance(value, tuple) else value, rel=5e-3), name


@pytest.mark.skipif(not MEASURED.exists(), reason="no sweep was measured")
def test_plans_are_within_a_quarter_of_measured_sweeps():
    for one in json.loads(MEASURED.read_text())["checks"]:
        name = device_costs.short_name(one["device"])
        made = make_plan(Asked(**one["asked"]), f"{name}:1", compiled=one["compiled"])
        assert made["seconds"] == pytest.approx(one["wall"], rel=0.25), one["asked"]
