"""A real Ray cluster of two nodes on one machine: a node that goes away, and workers that do not see the folder."""

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tiny_sweep import METHODS, MOST, OFTEN, STEPS, check_whole, workers

from crossreg.cli.main import main
from crossreg.config import to_yaml
from crossreg.errors import InputError
from crossreg.studies.launchers.settings import Workers
from crossreg.studies.sweep import run as sweep
from crossreg.studies.sweep.run import run_sweep
from long_tests import long

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")  # Ray's children only start other programs


def test_an_address_where_nobody_listens_is_refused_at_once(trials, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    begun = time.monotonic()
    with pytest.raises(InputError, match=f"ray_address is {address}: no Ray cluster there"):
        run_sweep(trials, tmp_path / "s", progress=False, workers=Workers(launcher="ray", ray_address=address))
    assert time.monotonic() - begun < 5
    assert not (tmp_path / "s").exists()


def test_workers_that_do_not_see_the_folder_send_what_they_trained(trials, wanted, tmp_path, ray_cluster, monkeypatch):
    from crossreg.studies.launchers.ray_core import RayLauncher

    class Elsewhere(RayLauncher):
        def submit(self, jobs, *, first=False):
            super().submit([job._replace(folder="/not/there") for job in jobs], first=first)

    monkeypatch.setattr(sweep, "open_launcher", Elsewhere)
    run_sweep(trials, tmp_path / "s", progress=False, workers=workers("ray"))
    check_whole(tmp_path / "s", wanted)


def test_a_node_that_goes_away_in_the_middle(trials, wanted, tmp_path, ray_cluster, capfd):
    node = ray_cluster.add_node(num_cpus=1, resources={"extra": 1})
    raylet = node.all_processes["raylet"][0].process.pid
    removed: list[str] = []
    said = ""

    def remove(folder: Path, ended: threading.Event) -> None:
        while not removed and not ended.is_set():
            for lock in (folder / "jobs").glob("*.lock"):
                owner = lock.read_text().split() if lock.exists() else []
                saved = list((folder / "snapshots").glob(f"{lock.stem}.*.npz"))
                if owner and saved and raylet in _ancestors(int(owner[1])):
                    ray_cluster.remove_node(node)
                    removed.append(lock.stem)
                    return
            time.sleep(0.002)

    for number in range(3):  # on a busy machine a sweep may end before anyone has looked
        folder, ended = tmp_path / f"s{number}", threading.Event()
        thread = threading.Thread(target=remove, args=(folder, ended), daemon=True)
        thread.start()
        run_sweep(trials, folder, progress=False, saving=OFTEN, workers=workers("ray", workers=3))
        ended.set()
        thread.join(60)
        said = capfd.readouterr().err
        check_whole(folder, wanted)
        if removed:
            break
    assert f"job {removed[0]}" in said
    assert "its worker was lost" in said
    assert "given up" not in said


def _ancestors(pid: int) -> list[int]:
    """The processes that a process comes from."""
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(pid)
    return found


@long
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_cancels_the_tasks_and_the_sweep_goes_on(by, small, trials, wanted, tmp_path):
    """With a cluster of its own, which ends with it."""
    (tmp_path / "c.yaml").write_text(to_yaml(small))
    asked = ["sweep", "grid", "--grid", "mask_seed=3", "--methods", METHODS, "--seeds", "2", "--steps", str(STEPS)]
    asked += [
        "--config",
        str(tmp_path / "c.yaml"),
        "--quiet",
        "--most-replicas",
        str(MOST),
        "--out",
        str(tmp_path / "s"),
    ]
    asked += ["--save-every", "0"]
    launched = [*asked, "--launcher", "ray", "--ray-address", "local"]
    driver = subprocess.Popen([sys.executable, "-m", "crossreg", *launched], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 240
    while not list((tmp_path / "s" / "snapshots").glob("*.npz")):
        assert driver.poll() is None
        assert time.monotonic() < until
        time.sleep(0.002)
    begun = time.monotonic()
    driver.send_signal(by)
    _, said = driver.communicate(timeout=60)
    assert time.monotonic() - begun < 5
    assert driver.returncode == 128 + by
    assert "the same command resumes from here" in said
    # Whoever goes on need not be the same engine.
    assert main([*asked, "--workers", "2"]) == 0
    check_whole(tmp_path / "s", wanted)
