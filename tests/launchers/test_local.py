"""Local processes: who gets which device, how they are stopped, and what happens to them without their driver."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_sweep import METHODS, MOST, STEPS, check_whole

from crossreg.cli.main import main
from crossreg.config import to_yaml
from crossreg.errors import InputError
from crossreg.studies.launchers import local
from crossreg.studies.launchers.local import worker_environments
from crossreg.studies.launchers.settings import Workers
from long_tests import long


@pytest.fixture
def command(small, trials, tmp_path) -> list[str]:
    (tmp_path / "c.yaml").write_text(to_yaml(small))
    asked = ["sweep", "grid", "--grid", "mask_seed=3", "--methods", METHODS, "--seeds", "2", "--steps", str(STEPS)]
    asked += ["--config", str(tmp_path / "c.yaml"), "--quiet", "--most-replicas", str(MOST), "--workers", "2"]
    return [*asked, "--out", str(tmp_path / "s")]


def _begun(command: list[str], folder: Path) -> tuple[subprocess.Popen[str], set[int]]:
    """A driver whose workers are in the middle of a training, and their process ids."""
    driver = subprocess.Popen(
        [sys.executable, "-m", "crossreg", *command, "--save-every", "0"], stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 120
    while not list((folder / "snapshots").glob("*.npz")):
        assert driver.poll() is None
        assert time.monotonic() < until
        time.sleep(0.002)
    locks = [lock.read_text().split() for lock in (folder / "jobs").glob("*.lock")]
    return driver, {int(said[1]) for said in locks if said}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_stopped_sweep_takes_its_workers_with_it_and_goes_on(command, wanted, tmp_path):
    driver, workers = _begun(command, tmp_path / "s")
    assert workers
    begun = time.monotonic()
    driver.send_signal(signal.SIGTERM)
    _, said = driver.communicate(timeout=30)
    assert time.monotonic() - begun < 5
    assert driver.returncode == 143
    assert "the same command resumes from here" in said
    assert not any(map(_is_alive, workers))
    assert main(command) == 0
    check_whole(tmp_path / "s", wanted)
    assert not (tmp_path / "s" / "jobs").exists()


@long
def test_workers_end_without_their_driver(command, wanted, tmp_path):
    driver, workers = _begun(command, tmp_path / "s")
    driver.kill()
    driver.wait()
    until = time.monotonic() + 20
    while any(map(_is_alive, workers)):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert main(command) == 0
    check_whole(tmp_path / "s", wanted)


@pytest.mark.parametrize(
    ("visible", "count", "each", "expected", "fractions"),
    [
        ("0,1,2,3", 4, None, ["0", "1", "2", "3"], [None] * 4),
        ("4,5", 3, None, ["4", "5", "4"], ["0.375"] * 3),
        ("0,1,2,3", 2, 2, ["0,1", "2,3"], [None] * 2),
        ("", 2, None, [""] * 2, [None] * 2),
    ],
)
def test_every_worker_has_its_devices(visible, count, each, expected, fractions, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.setattr(local, "num_cores", lambda: 7)
    made = worker_environments(Workers(workers=count, worker_gpus=each))
    assert [own["CUDA_VISIBLE_DEVICES"] for own in made] == expected
    assert [own.get("XLA_PYTHON_CLIENT_MEM_FRACTION") for own in made] == fractions
    assert {own["NPROC"] for own in made} == {str(7 // count)}
    monkeypatch.setenv("NPROC", "5")
    assert {own["NPROC"] for own in worker_environments(Workers(workers=count))} == {"5"}


def test_a_worker_is_asked_for_its_memory(monkeypatch, tmp_path):
    """Of workers that see a GPU and compute on the CPU each has its part; one that cannot begin says so."""
    monkeypatch.setattr(local, "_gpus", lambda: ["0"])
    launcher = local.LocalLauncher(Workers(workers=4), tmp_path)
    assert launcher.memory() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    monkeypatch.setattr(local, "_ASK_MEMORY", "raise RuntimeError('no device is free')")
    with pytest.raises(InputError, match=r"workers is 4: a worker cannot start .*no device is free"):
        launcher.memory()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": 0}, "workers is 0: must be 1 or more"),
        ({"most_replicas": 0}, "most_replicas is 0: must be 1 or more"),
        ({"worker_memory": float("nan")}, "worker_memory is nan: must be a number of GiB"),
        ({"worker_gpus": 1}, "`worker_cpus` and `worker_gpus`: need `workers=2` or more"),
        ({"ray_address": "auto"}, "ray_address is auto: needs `launcher=ray`"),
        ({"slurm_partition": "gpu"}, "`slurm_partition` and `slurm_options`: need `launcher=slurm`"),
        ({"launcher": "slurm"}, "launcher is slurm: needs `worker_memory`"),
        ({"launcher": "slurm", "worker_memory": 8.0, "slurm_options": "account"}, "expected key=value"),
        ({"launcher": "slurm", "worker_memory": 8.0, "slurm_time": 0}, "slurm_time is 0: must be 1 minute or more"),
    ],
)
def test_what_cannot_be_is_refused(settings, said):
    with pytest.raises(InputError, match=said):
        Workers(**settings).checked()


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_extra_is_one_line(engine, package, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=rf"^launcher is {engine}: needs {package}; .*`pip install 'crossreg\[{engine}\]'`$"
    ):
        Workers(launcher=engine, worker_memory=8.0).checked()
