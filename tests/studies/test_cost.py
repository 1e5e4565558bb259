"""The cost model: its counts against the compiler's, and what a sweep says before it runs."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.config import Config, to_yaml
from crossreg.data.load import make_data
from crossreg.data.trajectories import Trajectories, digest
from crossreg.designs import grids
from crossreg.methods.names import parse_method
from crossreg.nn.build import build_model
from crossreg.report.plan_text import plan_text
from crossreg.routing import route
from crossreg.studies.planning import plan
from crossreg.studies.planning.settings import Asked
from crossreg.studies.sweep import run
from crossreg.studies.sweep.open_work import Packing, open_work
from crossreg.training import cost
from crossreg.training.replicas import make_task
from crossreg.training.step import init_state, train_step

MEASURED = json.loads(cost.RATES.read_text())["cpu"]["processor"]


def flops_by_xla(config: Config, space: tuple[int, ...]) -> float:
    """Floating-point operations of a train update, as the compiler counts them before it optimises."""
    draw = np.random.default_rng(0)
    train, test = (draw.normal(size=(n, 3, 1, *space)).astype(np.float32) for n in (9, 1))
    data = make_data(Trajectories(train, test, {}, digest(train, test)), config.data)
    model = build_model(config.model, data.train, key=jax.random.key(0))
    state, static, task = init_state(model), route(model).static, make_task(data, 0)
    step = jax.jit(lambda state: train_step(state, static, task, jnp.asarray(1), config.train))
    counted = step.lower(state).cost_analysis()
    assert counted is not None
    return counted["flops"]


@pytest.mark.parametrize(
    ("method", "space", "fields"),
    [
        ("xreg", (160,), {}),
        ("xreg", (96,), {"width": 24, "num_modes": 5, "train_samples": 4, "num_blocks": 3}),
        ("xreg", (20, 24), {"num_modes": 4, "width": 6, "train_samples": None, "num_samples": 3}),
        ("unregularized", (160,), {}),
        ("dropout", (128,), {"sites": ("block3",), "num_blocks": 4}),
    ],
)
def test_operations_are_those_that_the_compiler_counts(method, space, fields):
    base = Config().replace(train_size=3, reg_size=3, test_size=1, one_pool=True, k_reg=10**6, settle=0.0, **fields)
    [config] = parse_method(method).configs(base)
    work = cost.work_of(config, space, "cpu")
    counted = work.dft + work.fft + work.mixing
    assert counted == pytest.approx(flops_by_xla(config, space), rel=0.3)


def test_blocks_before_the_first_noise_run_once():
    def once(method, **fields):
        [config] = parse_method(method).configs(Config())
        return cost.blocks_before_noise(config.replace(**fields).model)

    assert once("xreg") == 1
    assert once("xreg", sites=("pre_head", "block3")) == 3
    assert once("xreg", sites=("pre_head",)) == 4
    assert once("unregularized") == once("xreg-heads") == 4
    assert once("fixed-noise") == once("xreg-modes") == 0


def test_reg_updates_are_those_of_the_whole_run():
    config = Config().replace(steps=1000, k_reg=5, settle=0.1)
    assert cost.reg_updates_per_step(config) == pytest.approx((900 / 5 + 100) / 1000)
    [plain] = parse_method("unregularized").configs(config)
    assert cost.reg_updates_per_step(plain) == 0


def test_a_plan_says_what_would_be_run_and_writes_nothing(cached_waves, tiny, tmp_path, capsys, monkeypatch):
    (tmp_path / "c.yaml").write_text(to_yaml(tiny.replace(settle=0.1)))
    command = ["sweep", "grid", "--grid", "k_reg=2,3", "--methods", "xreg,ensemble", "--seeds", "2", "--steps", "20"]
    command += ["--config", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out"), "--plan"]
    monkeypatch.setattr(cost, "rates_of", lambda device: (0.5, 0.0, 0.0, 0.0, 0.0, 0.0))
    assert main(command) == 0
    said = capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert "8 of 8 rows to make, 3 programs to train" in said
    # Updates alone cost here, half a second each: 20 of θ in all three programs, and of ρ in those of xreg after every
    # second or third of the first 18, and after the last two.
    assert f"about 0:{round(0.5 * (3 * 20 + 9 + 2 + 6 + 2)):02d} of training" in said


@pytest.mark.parametrize(
    ("here", "differs"), [(MEASURED, False), ("Other CPU, 2 cores", True), ("AMD EPYC, 3 cores", True)]
)
def test_rates_of_another_processor_are_named_as_such(here, differs, cached_waves, tiny, tmp_path, capsys, monkeypatch):
    """Every CPU is `cpu` to JAX; the rates are those of one, with so many cores."""
    for module in (cost, run, plan):
        monkeypatch.setattr(module, "describe_processor", lambda: here)
    assert cost.measured_elsewhere() == (MEASURED if differs else None)
    (tmp_path / "c.yaml").write_text(to_yaml(tiny))
    command = ["sweep", "grid", "--grid", "k_reg=2", "--methods", "xreg", "--seeds", "1", "--config"]
    assert main([*command, str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out"), "--plan"]) == 0
    said = f"times are those measured on {MEASURED}; on this machine ({here}) they differ"
    assert (said in capsys.readouterr().out) == differs
    # A display makes no first guess from rates of another processor.
    trials = grids.plan("grid", methods="xreg", seeds=1, steps=20, grid=["k_reg=2"], base=tiny)
    work = open_work(trials, tmp_path, cached_waves, Packing(2**30), write=False)
    assert work.extent(trials)["seconds_per_work"] == (None if differs else 1.0)
    # A plan for a CPU says which one was measured, and that this one is another; one for a GPU has no processor.
    made = plan.make_plan(Asked("paper"), "cpu:1")
    assert (made["measured_on"], made["processor_here"]) == (MEASURED, here)
    text = plan_text(made)
    assert f"by rates measured on cpu ({MEASURED}), off by" in text
    assert (f"this machine has another processor ({here}), on which times differ" in text) == differs
    made = plan.make_plan(Asked("paper"), "h200:1")
    assert (made["measured_on"], made["processor_here"]) == (None, None)
    assert "processor" not in plan_text(made)
