"""A finished program on disk: every training's own numbers come back, those of its last step and those of its best."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.nn.surrogate import Surrogate
from crossreg.runs.archive import Archive
from crossreg.runs.programs import Program, Training, describe_program, digest_of, read_programs
from crossreg.runs.safeguards.manifest import record_json, recorded, vouch
from crossreg.studies.sweep import programs
from crossreg.studies.sweep.distributed import take_in_left
from crossreg.studies.sweep.programs import read_program
from crossreg.training.replicas import first_snapshot, unstack

SEEDS, STEPS = (3, 0, 8), (10, 20)


def lines(replica: int, key: str) -> list[dict]:
    return [{"training": key, "step": step, "reg_nll": replica + step / 100} for step in STEPS]


@pytest.fixture(scope="module")
def stored(tiny, trajectories, tmp_path_factory):
    """Three replicas of one program that were never trained, all numbers of which are known."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "trained").mkdir()
    trainings = {f"key of {seed}": Training(tiny.replace(seed=seed), 0, False) for seed in SEEDS}
    program = Program(digest_of(list(trainings)), trainings)
    record_json(folder, program.name_of(".json"), describe_program(program))
    models, *_ = programs._start(program, trajectories)
    snapshot = first_snapshot(models)
    best = jax.tree.map(lambda array: array + 1, snapshot.best)
    nll = jnp.asarray([0.5, -1.5, 2.5])
    state = eqx.tree_at(lambda state: state.diverged_at, snapshot.state, jnp.asarray([-1, 17, -1]))
    finished = programs._finish(snapshot._replace(state=state, best=best, best_nll=nll))
    history = "".join(
        json.dumps(line) + "\n" for look in zip(*(lines(i, k) for i, k in enumerate(trainings)), strict=True)
        for line in look
    ).encode()  # fmt: skip
    with recorded(folder, program.name_of(".jsonl")) as file:
        file.write(history)
    programs._store(program, program.file(folder, ".npz"), finished, history)
    vouch(folder, program.name_of(".npz"))
    return folder, program, models


def test_what_a_driver_that_is_gone_has_left_is_taken_in(stored, tmp_path):
    """A worker's file gets its place and its history; one that is sealed as another program's does not."""
    folder, program, _ = stored
    (tmp_path / "trained").mkdir()
    (tmp_path / "jobs").mkdir()
    record_json(tmp_path, program.name_of(".json"), describe_program(program))
    left = (folder / program.name_of(".npz")).read_bytes()
    (tmp_path / "jobs" / "another.npz").write_bytes(left)
    assert take_in_left(tmp_path) == set()
    (tmp_path / "jobs" / f"{program.name}.npz").write_bytes(left)
    assert take_in_left(tmp_path) == {program.name}
    assert (tmp_path / program.name_of(".npz")).read_bytes() == left
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["another.npz"]
    archive = Archive(tmp_path)
    for replica, key in enumerate(program.trainings):
        assert archive.history(key) == lines(replica, key)


def check_equal(found: Surrogate, wanted: Surrogate, shift: float = 0.0) -> None:
    arrays = [jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)) for model in (found, wanted)]
    assert any(np.abs(leaf).max() > 0.01 for leaf in arrays[1])
    for one, other in zip(*arrays, strict=True):
        np.testing.assert_allclose(one, other + shift, rtol=1e-6, atol=1e-6)


def test_a_model_of_an_archive_is_that_of_its_seed_at_its_last_step(stored):
    folder, program, models = stored
    archive = Archive(folder)
    firsts = [np.asarray(unstack(models, i).heads.mean.weight) for i in range(3)]
    assert not np.allclose(firsts[0], firsts[1])
    assert not np.allclose(firsts[0], firsts[2])
    for replica, key in enumerate(program.trainings):
        assert key in archive
        check_equal(archive.model(key, 2, (20,)), unstack(models, replica))
        assert archive.history(key) == lines(replica, key)
    assert "key of 1" not in archive


def test_what_is_read_is_what_was_trained(stored, trajectories):
    folder, program, models = stored
    [again] = read_programs(folder)
    assert again == program
    trained = read_program(again, folder, trajectories)
    assert list(trained) == list(program.trainings)
    for replica, (key, one) in enumerate(trained.items()):
        check_equal(one.last, unstack(models, replica))
        check_equal(one.best, unstack(models, replica), shift=1)
        assert (one.best_nll, one.diverged_at) == ([0.5, -1.5, 2.5][replica], [-1, 17, -1][replica]), key
