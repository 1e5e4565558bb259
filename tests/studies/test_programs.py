"""Programs of a sweep: which trainings share one, what identifies them, and equal numbers for equal settings."""

import dataclasses
import json
import queue
from types import SimpleNamespace

import pytest

from crossreg.config import Config, changed_fields, to_dict
from crossreg.data.load import make_data
from crossreg.designs.grids import Trial, plan
from crossreg.methods import xreg
from crossreg.methods.names import parse_method
from crossreg.metrics.evaluation import evaluate, sigma_per_site
from crossreg.runs.programs import FORMAT, Program, Training, describe_program, described_program, digest_of
from crossreg.runs.sweep_folder import trial_key
from crossreg.studies.sweep import programs
from crossreg.studies.sweep import run as module
from crossreg.studies.sweep.programs import most_replicas, plan_programs
from crossreg.studies.sweep.run import run_sweep
from crossreg.studies.sweep.scoring import trainings_of
from crossreg.training import loop
from crossreg.training.cohort import bytes_of, start_cohort
from crossreg.training.loop import train_replicas
from crossreg.training.replicas import unstack

# The default settings; test NLL, CRPS and σ at the first site of a tiny run.
DEFAULTS = "4b7d7ea7610d7f24ee29"
GOLDEN = [1.1631, 0.418337, 0.00534468, 0.00529072, 0.00338317, 0.0026792]


@pytest.fixture
def trials(cached_waves, tiny):
    names = "xreg,ensemble,ensemble-1,unregularized,dropout+temperature,persistence"
    return plan("grid", methods=names, seeds=2, steps=20, grid=["observed_fraction=0.5,1.0"], base=tiny)


def test_programs_are_decided_once(trials, cached_waves, tmp_path):
    digest = cached_waves.digest

    def planned(some, memory, folder="s"):
        (tmp_path / folder / "trained").mkdir(parents=True, exist_ok=True)
        trainings = [t for p in some for members in trainings_of(p) for t in members]
        return {p.name: list(p.trainings) for p in plan_programs(trainings, tmp_path / folder, digest, 40, memory)}

    first = planned(trials, 10**9)
    keys = [key for program in first.values() for key in program]
    assert len(keys) == len(set(keys))
    # 4 trials of ensembles of 3 share their members with the plain model: 12 of one program.
    assert max(map(len, first.values())) == 12
    # Neither other memory nor fewer trials change what was decided.
    assert planned(trials, 1) == first
    assert planned(trials[:3], 10**9) == first
    alone = planned(trials, 1, "small")
    assert {len(program) for program in alone.values()} == {1}
    assert sorted(key for program in alone.values() for key in program) == sorted(keys)


def test_hashes_tell_settings_apart(tiny):
    def trial(method="xreg", **fields):
        return Trial(tiny.replace(**fields), parse_method(method), {})

    keys = [
        trial_key(p, digest)
        for p, digest in [
            (trial(), "a"),
            (trial(), "b"),
            (trial(seed=1), "a"),
            (trial(steps=31), "a"),
            (trial("xreg-layer"), "a"),
            (trial("xreg+early"), "a"),
            (trial("ensemble-2"), "a"),
            (trial("ensemble-3"), "a"),
            (trial("persistence"), "a"),
        ]
    ]
    assert len(set(keys)) == len(keys)
    assert trial_key(trial(), "a") == keys[0]


def test_a_training_is_known_by_its_data_too(tiny):
    """And by all else that makes other numbers."""
    one = Training(tiny, 0, False)
    others = [(one, "b"), (one._replace(member=1), "a"), (one._replace(splits_off_calibration=True), "a")]
    others += [(one._replace(config=tiny.replace(seed=1)), "a")]
    keys = [one.key("a"), *(training.key(digest) for training, digest in others)]
    assert len(set(keys)) == 5
    assert Training(tiny.replace(), 0, False).key("a") == keys[0]


def test_replicas_take_half_of_the_memory(tiny):
    """The other half is for what is compiled and scored beside them."""
    each = bytes_of(tiny, 40)
    assert most_replicas(tiny, 40, 20 * each, devices=1) == 10
    assert most_replicas(tiny, 40, each, devices=1) == 1
    assert most_replicas(tiny, 40, 10**6 * each, devices=3) == 3 * 512


def test_the_same_settings_give_the_same_numbers_as_before(tiny, trajectories):
    """If this fails, numbers have changed: raise FORMAT in studies/sweep/programs.py, so that no sweep begun before is
    resumed, and write the new ones here. Three digits, so that another machine has them too."""
    assert FORMAT == 9
    # ρ moves far enough to be seen in three digits. The samples are those of the default when these were written.
    draws = {"train_samples": None, "antithetic": False, "reg_batch_size": 6}
    config = xreg.configure(tiny).replace(k_reg=2, settle=0.3, site_learning_rate=0.1, **draws)
    data = make_data(trajectories, config.data)
    *_, last = train_replicas(*start_cohort([config], [data]))
    model = unstack(last.models, 0)
    scores = evaluate(model, data.test, num_samples=5)
    sigma = sigma_per_site(model)["block1"]
    assert [scores["nll"], scores["crps"], *sigma] == pytest.approx(GOLDEN, rel=1e-3)


def test_a_run_is_known_by_what_it_changes(tiny):
    assert changed_fields(Config()) == {}
    assert changed_fields(Config().replace(k_reg=7, train_size=3)) == {"train_size": 3, "k_reg": 7}
    names = [f.name for part in dataclasses.fields(Config) for f in dataclasses.fields(part.default_factory)]  # pyright: ignore[reportArgumentType]
    assert len(set(names)) == len(names)
    # A default that changes makes other runs of the same hash: raise FORMAT then. A field that is new does not: only
    # write the new digest here.
    assert (FORMAT, digest_of(to_dict(Config()))) == (9, DEFAULTS)


def test_programs_compiled_ahead_give_the_same_rows(cached_waves, tiny, tmp_path, monkeypatch):
    """As on an accelerator, where the programs behind the first are compiled in threads beside it."""
    # One replica each: with little memory, too, there are no other programs.
    trials = plan("grid", methods="unregularized,dropout", seeds=1, grid=["train_size=5"], base=tiny.replace(steps=20))
    rows = run_sweep(trials, tmp_path / "one-after-another", progress=False)
    compiled = queue.Queue()

    def compile_for(*started):
        compiled.put(started)
        if failing:
            raise RuntimeError("no memory left")
        loop.compile_for(*started)

    monkeypatch.setattr(programs, "jax", SimpleNamespace(default_backend=lambda: "gpu"))
    monkeypatch.setattr(programs, "compile_for", compile_for)
    for failing in (False, True):
        assert run_sweep(trials, tmp_path / f"ahead-{failing}", progress=False) == rows
        compiled.get(timeout=30)  # the thread may end after the sweep
        assert compiled.empty()  # the first trains at once
    # None that would have to share memory with what trains.
    monkeypatch.setattr(module, "memory_bytes", lambda: 2**20)
    run_sweep(trials, tmp_path / "little memory", progress=False)
    assert compiled.empty()


def test_a_program_is_stored_under_the_names_of_the_first_versions(tiny):
    """What an older version stored is read: names on disk do not follow those of the code."""
    training = Training(tiny, member=2, splits_off_calibration=True)
    [stored] = describe_program(Program("p", {"k": training}))
    assert stored == {"key": "k", "config": to_dict(tiny), "member": 2, "keeps_part_of_reg": True}
    assert described_program("p", json.loads(json.dumps([stored]))) == Program("p", {"k": training})
