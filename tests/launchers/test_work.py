"""What a worker refuses, who has a program to itself, and the order in which jobs are taken; nothing is trained."""

import fcntl
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tiny_sweep import OFTEN

import crossreg
from crossreg.config import OWN_DATA, Config
from crossreg.data import cache
from crossreg.designs.grids import Trial
from crossreg.errors import InputError
from crossreg.methods.names import parse_method
from crossreg.runs.safeguards.versions import source_digest
from crossreg.runs.sweep_folder import trial_key
from crossreg.studies.launchers import work as module
from crossreg.studies.launchers.base import Job, last_lines
from crossreg.studies.launchers.local import LocalLauncher
from crossreg.studies.launchers.settings import Workers
from crossreg.studies.launchers.work import _alone, work
from crossreg.studies.sweep.scoring import shared_trajectories


@pytest.fixture
def job(trajectories, tmp_path) -> Job:
    """A job of nothing, in a folder that a worker sees."""
    (tmp_path / "jobs").mkdir()
    cache.write(tmp_path / "jobs" / "data.npz", trajectories)
    (tmp_path / "jobs" / "token").write_text("ours")
    about = (str(tmp_path), "ours", trajectories.digest, source_digest())
    return Job("name", "label", *about, OFTEN, {}, None, {}, {})


def test_a_worker_of_other_code_or_other_data_does_nothing(job):
    done = work(job)
    assert (done.error, done.rows) == ("", {})
    for changed, said in (
        ({"source": "0123"}, f"the worker has another crossreg ({source_digest()}) than the driver (0123)"),
        ({"digest": "0123"}, "data.npz: does not hold the data of the sweep"),
        ({"token": "another's"}, f"the worker does not see {job.folder}"),
    ):
        refused = work(job._replace(**changed))
        assert said in refused.error
        assert not refused.again  # no second try would help


def test_a_worker_knows_own_files_as_the_sweep_does(job, tmp_path):
    """By all that its runs hold of them, where the fields that are handed on are those of one run."""
    fields = np.random.default_rng(0).normal(size=(11, 4, 2, 20)).astype(np.float32)
    np.save(tmp_path / "u.npy", fields)
    base = Config().replace(**OWN_DATA | {"data": str(tmp_path / "u.npy"), "in_memory_gib": 9 * 640 / 2**30})
    base = base.replace(reg_size=1, test_size=2, evaluation_samples=2)
    trials = [Trial(base, parse_method("persistence"), {"train_size": size}) for size in (3, 6)]
    trajectories = shared_trajectories(trials)
    cache.write(tmp_path / "jobs" / "data.npz", trajectories)
    keyed = {trial_key(trial, trajectories.digest): trial for trial in trials}
    job = job._replace(digest=trajectories.digest, trials=keyed)
    done = work(job)
    assert done.error == ""
    assert {key: row["train_size"] for key, row in done.rows.items()} == dict(zip(keyed, (3, 6), strict=True))
    np.save(tmp_path / "u.npy", fields + 1)
    assert "u.npy: has changed since it was first read" in work(job).error


def test_what_goes_wrong_in_a_worker_is_an_error_that_is_worth_another_try(job, monkeypatch):
    def fails(*_):
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setattr(module, "_do", fails)
    outcome = work(job)
    assert (outcome.error, outcome.again, outcome.rows) == ("RuntimeError: out of memory", True, {})


def test_a_worker_that_does_not_see_the_folder_works_on_what_it_fetches(job, trajectories, monkeypatch):
    fetched, places = [], []
    content = (Path(job.folder) / "jobs" / "data.npz").read_bytes()
    usual = module._do

    def fetch(name: str) -> bytes:
        fetched.append(name)
        return content

    monkeypatch.setattr(module, "_do", lambda job, place: places.append(place) or usual(job, place))
    assert work(job._replace(token="another's"), fetch).error == ""
    assert fetched == ["jobs/data.npz"]
    assert places[0] != Path(job.folder)
    assert not places[0].exists()


def test_a_program_has_one_worker_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS_TO_LET_GO", 0.3)
    path = tmp_path / "p.lock"
    with _alone(path):
        with pytest.raises(RuntimeError, match="another worker has this program"), _alone(path):
            pass
        with path.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    monkeypatch.setattr(module, "_SECONDS_TO_LET_GO", 60.0)
    entered = []
    with _alone(path):
        waiting = threading.Thread(target=lambda: _enter(path, entered))
        waiting.start()
        waiting.join(0.3)
        assert entered == []
    waiting.join(30)
    assert entered == [path]


def _enter(path: Path, entered: list[Path]) -> None:
    with _alone(path):
        entered.append(path)


def test_jobs_are_taken_in_the_order_in_which_they_were_put_in(job, tmp_path, monkeypatch):
    a, b, c, d, e = (job._replace(name=name) for name in "abcde")
    monkeypatch.setattr(LocalLauncher, "_hand_out", lambda self: None)
    launcher = LocalLauncher(Workers(workers=2), tmp_path)
    launcher.submit([a])
    launcher.submit([b, c])
    launcher.submit([d, e], first=True)
    assert [job.name for job in launcher._queue] == ["d", "e", "a", "b", "c"]


def test_a_trial_arrives_as_it_was_sent():
    base = Config().replace(seed=5, train_size=9)
    for method, changes in (
        ("xreg", {"k_reg": 3}),
        ("dropout+temperature", {"observed_fraction": 0.4}),
        ("ensemble", {}),
    ):
        trial = Trial(base.replace(**changes), parse_method(method), changes)
        found = pickle.loads(pickle.dumps(trial))
        assert found.configs == trial.configs
        assert (found.base, found.config, found.changes) == (trial.base, trial.config, changes)
        assert found.method.name == method
        assert trial_key(found, "digest") == trial_key(trial, "digest")


def test_the_source_is_that_of_the_whole_package(monkeypatch):
    """A worker with another version of any module must not take part."""
    read, plain = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or plain(path))
    source_digest()
    assert sorted(read) == sorted(Path(crossreg.__file__).parent.rglob("*.py"))


def test_a_job_arrives_before_jax_does(job, tmp_path):
    """So that a worker can set its environment first, and handle signals before it imports for seconds."""
    sent = job._replace(trials={"key": Trial(Config(), parse_method("xreg+early"), {})})
    (tmp_path / "job.pkl").write_bytes(pickle.dumps(sent))
    code = (
        "import pickle, sys, crossreg.studies.launchers.process; from pathlib import Path;"
        "assert pickle.loads(Path(sys.argv[1]).read_bytes()).trials; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "job.pkl")], check=True)


def test_the_last_words_are_the_last():
    said = "\n".join(f"line {number}" for number in range(20)) + "\n\n" + "x" * 400
    kept = last_lines(said).splitlines()
    assert kept == [*(f"line {number}" for number in range(13, 20)), "x" * 300]
    assert last_lines(None) == ""


def test_memory_is_said_in_gib():
    assert Workers(launcher="slurm", worker_memory=1.5).memory == 3 * 2**29
    with pytest.raises(InputError, match="needs `worker_memory`"):
        Workers(launcher="slurm").checked()
