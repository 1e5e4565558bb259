"""Batches over devices and processes: one model, a 2-D operator, trained by several as by one."""

import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from fields import waves
from processes import HERE, finish

from crossreg.cli.main import main
from crossreg.errors import InputError
from crossreg.machine import hosts
from crossreg.machine.stopping import Stopped

ONE_OF_TWO = ["--num-processes", "2", "--process-id", "1", "--coordinator"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batches")
    np.save(folder / "waves.npy", waves(12, 3, 0, (12, 10)))
    return folder


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(scope="module")
def found(folder, start) -> dict[str, dict[str, np.ndarray]]:
    """What one process trains on 1, 2 and 4 devices."""
    names = ["memory-1", "file-2", "memory-4"]
    finish(start(4, HERE / "batches.py", folder, *names))
    return {name: dict(np.load(folder / f"{name}.npz")) for name in names}


@pytest.mark.parametrize("divided", ["file-2", "memory-4"])
def test_the_numbers_are_those_of_one_device(found, divided):
    """Batches of 5, so that parts are filled up, on 4 devices one of them wholly; masks make weights differ."""
    alone = found["memory-1"]
    assert alone.keys() == found[divided].keys()
    for name, array in alone.items():
        np.testing.assert_allclose(found[divided][name], array, rtol=1e-4, atol=2e-5, err_msg=name)


SIZES = "--train-size 6 --reg-size 4 --test-size 2 --width 4 --num-blocks 1 --num-modes 3 --batch-size 5"
REST = "--num-samples 3 --evaluation-samples 4 --steps 400 --evaluate-every 10 --in-memory-gib 0 --quiet"


@pytest.fixture
def begin(start):
    """Starts two processes of one device each that run a command together; `second`: what the other one runs."""
    begun = []

    def begin(settings: list[str], second: list[str] | None = None):
        joined = ["--coordinator", free_port(), "--num-processes", "2", "--process-id"]
        pair = enumerate((settings, second or settings))
        begun.extend(start(1, "-m", "crossreg", *own, *joined, str(number)) for number, own in pair)
        return begun[-2:]

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()


def until_trained(out: Path, processes: list[subprocess.Popen]) -> None:
    """Waits until a training is in the middle."""
    while not ((out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size):
        assert all(process.poll() is None for process in processes), processes[0].communicate()[1]
        time.sleep(0.05)


def test_two_processes_are_two_devices_bit_for_bit_also_when_stopped(folder, start, begin, capsys):
    """One of two is asked to stop. The end is that of one process with two devices that was never stopped.

    The data are in a file, of which each process reads its part.
    """
    settings = ["train", "--data", str(folder / "waves.npy"), *SIZES.split(), *REST.split()]
    out = folder / "together"
    processes = begin([*settings, "--out", str(out)])
    until_trained(out, processes)
    processes[1].send_signal(signal.SIGTERM)
    for process in processes:
        assert finish(process, 143)[1] == "crossreg: stopped; the same command resumes from here\n"
    assert len(list((out / "snapshots").iterdir())) >= 1

    assert main([*settings, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "number of devices in use: was 2, is 1" in said
    assert "--force-resume" in said

    writer, follower = (finish(process) for process in begin([*settings, "--out", str(out)]))
    assert "resumes from step" in writer[1]
    assert follower[1] == ""
    assert "NLL" in writer[0]
    assert "NLL" not in follower[0]
    whole = folder / "whole"
    finish(start(2, "-m", "crossreg", *settings, "--out", whole, "--data-parallel"))
    for name in ("model.npz", "metrics.jsonl", "metrics.json"):
        assert (whole / name).read_bytes() == (out / name).read_bytes(), name


def test_two_processes_with_data_in_memory_are_two_devices_bit_for_bit(folder, start, begin):
    """Masks differ from pair to pair, so that the two parts of a batch have other weights."""
    more = "--in-memory-gib 1 --steps 30 --observed-fraction 0.6 --score-on observed"
    settings = ["train", "--data", str(folder / "waves.npy"), *SIZES.split(), *REST.split(), *more.split(), "--out"]
    for process in begin([*settings, str(folder / "held")]):
        finish(process)
    finish(start(2, "-m", "crossreg", *settings, folder / "held whole", "--data-parallel"))
    for name in ("model.npz", "metrics.jsonl", "metrics.json"):
        assert (folder / "held" / name).read_bytes() == (folder / "held whole" / name).read_bytes(), name


@pytest.mark.parametrize("refused", [0, 1])
def test_what_is_refused_in_one_process_ends_both(folder, begin, refused):
    good = ["train", "--data", str(folder / "waves.npy"), *SIZES.split(), *REST.split(), "--out", str(folder / "none")]
    bad = [word.replace("waves.npy", "missing.npy") for word in good]
    processes = begin(*((bad, good) if refused == 0 else (good, bad)))
    said = [finish(process, 2)[1] for process in processes]
    assert said[refused] == f"crossreg: --data {folder / 'missing.npy'}: no such file or folder\n"
    assert said[1 - refused] == "crossreg: another process of this training has failed; its own message says why\n"


def test_a_failure_in_the_middle_is_said_and_ends_both(folder, begin):
    """It is process 0's alone: nobody waits for the others at an end that they do not come to."""
    out = folder / "vanishes"
    more = ["--steps", "100000", "--out", str(out)]
    processes = begin(["train", "--data", str(folder / "waves.npy"), *SIZES.split(), *REST.split(), *more])
    until_trained(out, processes)
    out.rename(folder / "elsewhere")
    begun = time.monotonic()
    assert f"{out}: the folder has vanished" in finish(processes[0], 3)[1]
    assert processes[1].wait(60) != 0
    assert time.monotonic() - begun < 60


def test_processes_with_unequal_devices_are_refused():
    hosts.check_even([0, 0, 1, 1])
    with pytest.raises(InputError, match="a process has 2 devices, another 1"):
        hosts.check_even([0, 0, 1])


def test_all_begin_or_none(monkeypatch):
    with hosts.all_or_none():
        pass
    monkeypatch.setattr(hosts, "_most", lambda value: 1)  # as if another process had refused
    with pytest.raises(InputError, match="another process"), hosts.all_or_none():
        pass
    monkeypatch.setattr(hosts.jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts, "_most", lambda value: signal.SIGTERM)
    with pytest.raises(Stopped):
        hosts.stop_together()


def test_a_port_that_is_taken_is_refused_at_once(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"--coordinator 127.0.0.1:{taken.getsockname()[1]}"
        flags = f"{where} --num-processes 2 --process-id 0".split()
        assert main(["train", "--out", str(tmp_path / "run"), *flags]) == 2
    assert capsys.readouterr().err.startswith(f"crossreg: {where}: process 0 cannot listen at this port")


def test_a_process_without_others_says_that_it_waits_and_ends(start):
    program = "from crossreg.machine import hosts; hosts._SECONDS_OF_SILENCE, hosts._SECONDS_TO_JOIN = 0.1, 1;"
    alone = start(1, "-c", f"{program} hosts.join_hosts('{free_port()}', 2, 1)")
    waits, ends = finish(alone, 2)[1].splitlines()
    assert waits.endswith("waiting for the other processes …")
    assert ends.endswith("not all processes are there after 1 s; each needs the same command")


def test_processes_that_do_not_train_the_same_are_refused(folder, start):
    """Another learning rate would go unnoticed, and other steps would have all wait forever."""
    np.save(folder / "twice.npy", 2 * waves(12, 3, 0, (12, 10)))
    settings = ["--train-size", "6", "--reg-size", "4", "--test-size", "2", "--width", "4", "--num-modes", "3"]
    out, together = folder / "unlike", ["--coordinator", free_port(), "--num-processes", "2", "--process-id"]
    command = ["-m", "crossreg", "train", *settings, "--out", out, *together]
    own = {
        "0": ["--data", folder / "waves.npy", "--steps", "20"],
        "1": ["--data", folder / "twice.npy", "--steps", "30"],
    }
    for process in [start(1, *command, number, *flags) for number, flags in own.items()]:
        assert finish(process, 2)[1].startswith("crossreg: not all processes have the same data, --steps; each needs")
    assert not out.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--devices", "1"], "--devices 1: a run trains on one device, unless --data-parallel is given"),
        (["--data-parallel", "--devices", "0"], "--devices 0: must be 1 or more; there is 1 on this machine (cpu)"),
        (["--data-parallel", "--devices", "2"], "--devices 2: there is 1 on this machine (cpu)"),
        (
            ["--num-processes", "2"],
            "--coordinator and --process-id: missing; --coordinator, --num-processes, --process-id are given together",
        ),
        (["--coordinator", "a:1", "--num-processes", "2", "--process-id", "2"], "--process-id 2: must lie in 0 … 1"),
        (["--distributed"], "--distributed: the other processes cannot be reached"),
        (["--coordinator", "a:1", "--num-processes", "0", "--process-id", "0"], "--num-processes 0: must be 1 or more"),
        ([*ONE_OF_TWO, "localhost"], "--coordinator localhost: expected HOST:PORT"),
        ([*ONE_OF_TWO, "localhost:65536"], "--coordinator localhost:65536: expected HOST:PORT"),
        ([*ONE_OF_TWO, "no.invalid:1"], "--coordinator no.invalid:1: no such host"),
    ],
)
def test_what_cannot_be_is_refused(flags, said, tmp_path, capsys):
    assert main(["train", "--out", str(tmp_path / "run"), *flags]) == 2
    assert capsys.readouterr().err.startswith(f"crossreg: {said}")
    assert not (tmp_path / "run").exists()
