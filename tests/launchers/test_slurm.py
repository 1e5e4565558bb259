"""Slurm jobs: the script that is sent, and whole sweeps through a stand-in for Slurm's commands."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_slurm
import pytest
from tiny_sweep import METHODS, MOST, OFTEN, STEPS, Killer, check_whole

from crossreg.cli.main import main
from crossreg.config import to_yaml
from crossreg.errors import InputError
from crossreg.studies.launchers.settings import Workers
from crossreg.studies.sweep.run import run_sweep
from long_tests import long

pytest.importorskip("submitit")


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """A machine with Slurm's commands; the folder in which they keep what they were asked for."""
    from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

    monkeypatch.setattr(SlurmJob, "watcher", SlurmInfoWatcher(delay_s=600))  # it knows the numbers of other tests
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("sbatch", "srun", "sacct", "scancel", "scontrol"):
        file = Path(__file__).with_name("fake_slurm.py")
        (place / name).write_text(f'#!/bin/sh\nexec {sys.executable} {file} {name} "$@"\n')
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def logs_of(folder: Path, seen: set[str]) -> Iterator[None]:
    """What workers have said until the driver cleared their logs away."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            for log in (folder / "jobs").rglob("*log.*"):
                with contextlib.suppress(OSError):
                    seen.add(log.read_text())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _script(executor: Any) -> str:
    """What submitit would send to sbatch."""
    return executor._executor._make_submission_file_text("python -m work", "uid")


def test_the_script_says_what_was_asked_for(slurm, tmp_path):
    from crossreg.studies.launchers.slurm import make_executor

    workers = Workers(
        launcher="slurm",
        workers=7,
        worker_memory=80.0,
        worker_cpus=6,
        worker_gpus=1,
        slurm_partition="long",
        slurm_time=90,
        slurm_options="account=mine,constraint=h100,mem_gb=64,reservation=night,setup=module load cuda",
    ).checked()
    executor = make_executor(workers, tmp_path / "jobs")
    script = _script(executor)
    lines = script.splitlines()
    for expected in (
        "--partition=long",
        "--time=90",
        "--cpus-per-task=6",
        "--gpus-per-node=1",
        "--mem=64GB",
        "--account=mine",
        "--constraint=h100",
        "--reservation=night",
        "--job-name=crossreg",
        "--signal=USR2@90",
    ):
        assert f"#SBATCH {expected}" in lines
    assert "module load cuda" in lines
    assert lines[-1].startswith("srun ")
    assert lines[-1].endswith("python -m work")
    # Without a GPU, a worker's memory is what Slurm is asked for.
    plain = make_executor(Workers(launcher="slurm", worker_memory=6.5), tmp_path / "jobs")
    text = _script(plain)
    assert "#SBATCH --mem=7GB" in text
    assert "gpus" not in text
    after = Workers(launcher="slurm", worker_memory=1.0, slurm_options="teardown=echo done")
    assert _script(make_executor(after, tmp_path / "jobs")).splitlines()[-1] == "echo done"


def test_more_jobs_than_an_array_may_have_are_several_arrays(slurm, tmp_path, monkeypatch):
    from crossreg.studies.launchers import slurm as module
    from crossreg.studies.launchers.base import Job

    monkeypatch.setenv("FAKE_SLURM_FULL", "1")
    monkeypatch.setattr(module, "_MOST_IN_AN_ARRAY", 3)
    (tmp_path / "s" / "jobs").mkdir(parents=True)
    workers = Workers(launcher="slurm", workers=5, worker_memory=1.0).checked()
    jobs = [Job(str(i), "", "", "", "", "", OFTEN, {}, None, {}, {}) for i in range(8)]
    with module.SlurmLauncher(workers, tmp_path / "s") as launcher:
        launcher.submit(jobs)
        assert launcher.ended(0.0) == []
    scripts = [(slurm / f"{number}.sh").read_text() for number in (1000, 1001, 1002)]
    for script, expected in zip(scripts, ("0-2%1", "0-2%2", "0-1%2"), strict=True):  # five at a time, together
        assert f"#SBATCH --array={expected}\n" in script
    assert not (slurm / "1003.sh").exists()
    assert (slurm / "cancelled").read_text().split() == ["1000", "1001", "1002"]


def test_what_slurm_cannot_do_is_refused(tmp_path, monkeypatch):
    from crossreg.studies.launchers.slurm import make_executor

    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="launcher is slurm: there is no Slurm here"):
        make_executor(Workers(launcher="slurm", worker_memory=8.0), tmp_path)
    with pytest.raises(InputError, match="slurm_options is cluster=moon"):
        make_executor(Workers(launcher="slurm", worker_memory=8.0, slurm_options="cluster=moon"), tmp_path)


@long
def test_a_job_whose_time_is_over_is_queued_again_and_goes_on(trials, wanted, tmp_path, capfd):
    """submitit's own signal and its own way back, by processes of this machine."""
    seen: set[str] = set()
    workers = Workers(
        launcher="slurm", workers=2, worker_memory=1.0, most_replicas=MOST, slurm_options="cluster=local"
    ).checked()
    with Killer(tmp_path / "s", by=signal.SIGUSR2) as killer, logs_of(tmp_path / "s", seen):
        run_sweep(trials, tmp_path / "s", progress=False, saving=OFTEN, workers=workers)
    [(job, _)] = killer.killed
    assert "tried again" not in capfd.readouterr().err
    assert any("Requeued job" in text for text in seen)
    assert any(f"{job} resumes from step" in text for text in seen)
    check_whole(tmp_path / "s", wanted)


@pytest.fixture
def quick(monkeypatch) -> None:
    """A driver that looks often."""
    from crossreg.studies.launchers import slurm as module

    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.2)
    monkeypatch.setattr(module, "_SECONDS_TO_SHOW", 0.5)


@long
def test_a_sweep_by_slurm_jobs_one_of_which_is_killed(slurm, quick, trials, wanted, tmp_path, capfd):
    workers = Workers(launcher="slurm", workers=2, worker_memory=1.0, most_replicas=MOST).checked()
    with Killer(tmp_path / "s") as killer:
        run_sweep(trials, tmp_path / "s", progress=False, saving=OFTEN, workers=workers)
    said = capfd.readouterr().err
    assert f"job {killer.killed[0][0]}" in said
    assert "its worker was lost" in said
    assert "given up" not in said
    assert "#SBATCH --array=0-3%2" in (slurm / "1000.sh").read_text()
    check_whole(tmp_path / "s", wanted)


@long
def test_a_task_whose_time_is_over_is_queued_again(slurm, quick, trials, wanted, tmp_path, capfd):
    workers = Workers(launcher="slurm", workers=2, worker_memory=1.0, most_replicas=MOST).checked()
    with Killer(tmp_path / "s", by=signal.SIGUSR2):
        run_sweep(trials, tmp_path / "s", progress=False, saving=OFTEN, workers=workers)
    assert "tried again" not in capfd.readouterr().err
    assert len((slurm / "requeued").read_text().split()) == 1
    check_whole(tmp_path / "s", wanted)


@long
def test_preempted_tasks_are_sent_again_however_often(slurm, quick, trials, wanted, tmp_path, monkeypatch, capfd):
    """Those that Slurm does not queue again itself; none of it counts as a failure."""
    monkeypatch.setattr(fake_slurm, "FOLDER", slurm)
    workers = Workers(launcher="slurm", workers=1, worker_memory=1.0, most_replicas=MOST).checked()
    with Killer(tmp_path / "s", kills=3, by=fake_slurm.preempt) as killer:
        run_sweep(trials, tmp_path / "s", progress=False, saving=OFTEN, workers=workers)
    assert len(killer.killed) == 3
    assert "tried again" not in capfd.readouterr().err
    check_whole(tmp_path / "s", wanted)


@long
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_driver_that_ends_leaves_no_jobs_to_the_next(by, slurm, small, trials, wanted, tmp_path):
    """A stop cancels the jobs at once; those of a driver that was killed are cancelled by the next."""
    (tmp_path / "c.yaml").write_text(to_yaml(small))
    asked = ["sweep", "grid", "--grid", "mask_seed=3", "--methods", METHODS, "--seeds", "2", "--steps", str(STEPS)]
    asked += ["--config", str(tmp_path / "c.yaml"), "--quiet", "--most-replicas", str(MOST), "--save-every", "0"]
    asked += ["--launcher", "slurm", "--workers", "2", "--worker-memory", "1", "--out", str(tmp_path / "s")]
    driver = subprocess.Popen([sys.executable, "-m", "crossreg", *asked], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 240
    while not list((tmp_path / "s" / "snapshots").glob("*.npz")):
        assert driver.poll() is None
        assert time.monotonic() < until
        time.sleep(0.002)
    begun = time.monotonic()
    driver.send_signal(by)
    assert driver.wait(30) == (143 if by == signal.SIGTERM else -signal.SIGKILL)
    assert time.monotonic() - begun < 5
    assert (slurm / "cancelled").exists() == (by == signal.SIGTERM)
    assert main(asked) == 0
    assert (slurm / "cancelled").read_text().split()[0] == "1000"
    check_whole(tmp_path / "s", wanted)
