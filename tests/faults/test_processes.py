"""Processes that are killed at any moment, asked to stop in any phase, or that find the folder taken.

`make faults` runs the long ones: 200 and more SIGKILLs over train and sweep.
"""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from harness import TRAIN, launched, long, state_hash, sweep_command

KILLS = int(os.environ.get("CROSSREG_KILLS", "200"))


@pytest.fixture(scope="module")
def launcher(waves, tmp_path_factory):
    with launched(tmp_path_factory.mktemp("log") / "log.txt") as launcher:
        yield launcher


def commands(config_file):
    return {"train": TRAIN, "sweep": sweep_command(config_file)}


@pytest.fixture(scope="module")
def wholes(launcher, config_file, tmp_path_factory):
    """Both commands, uninterrupted: the hash of what they end in, and how long they take."""
    root, found = tmp_path_factory.mktemp("whole"), {}
    for name, command in commands(config_file).items():
        # The first one compiles; the second is as long as those that will be killed.
        for part in ("cold", "warm"):
            ended = launcher.run([*command, "--out", str(root / name / part)])
            assert ended.code == 0, launcher.log.read_text()
        assert state_hash(root / name / "cold") == state_hash(root / name / "warm")
        found[name] = (state_hash(root / name / "warm"), ended.seconds)
    return found


def kill_until_done(launcher, command, folder, seconds, rng) -> int:
    """Runs a command, killed at random moments, until it has ended by itself; how often it was killed."""
    kills = 0
    while True:
        # Once in a while it must come to its end, however often it is killed.
        moment = float(rng.uniform(0, seconds))
        ended = launcher.run([*command, "--out", str(folder)], stop_after=moment)
        if ended.code == 0:
            return kills
        assert ended.code == -signal.SIGKILL, launcher.log.read_text()[-2000:]
        kills += 1


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_a_killed_command_ends_in_the_same_bits(name, launcher, wholes, config_file, tmp_path):
    wanted, seconds = wholes[name]
    command = commands(config_file)[name]
    for share in (0.6, 0.9):
        launcher.run([*command, "--out", str(tmp_path / "run")], stop_after=share * seconds)
    assert launcher.run([*command, "--out", str(tmp_path / "run")]).code == 0
    assert state_hash(tmp_path / "run") == wanted


@long
def test_hundreds_of_kills_end_in_the_same_bits(launcher, wholes, config_file, tmp_path):
    rng, kills, ends = np.random.default_rng(7), {"train": 0, "sweep": 0}, 0
    while sum(kills.values()) < KILLS:
        name = "train" if kills["train"] <= kills["sweep"] else "sweep"
        wanted, seconds = wholes[name]
        folder = tmp_path / f"{name}-{ends}"
        kills[name] += kill_until_done(launcher, commands(config_file)[name], folder, 1.05 * seconds, rng)
        assert state_hash(folder) == wanted, f"{folder} after {kills}"
        ends += 1
        (tmp_path / "kills.json").write_text(json.dumps(kills))
        print(f"{sum(kills.values())} kills, {ends} ends", file=sys.stderr, flush=True)
    print(f"{kills}: {ends} runs, every final state equal")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_polite_stop_saves_and_ends_in_time(by, launcher, wholes, config_file, tmp_path):
    wanted, seconds = wholes["train"]
    # No snapshot by the clock: what is there afterwards was written by the stop.
    patient = [*TRAIN[: TRAIN.index("--save-every")], "--quiet", "--out", str(tmp_path / "run")]
    ended = launcher.run(patient, stop_after=0.6 * seconds, by=by)
    assert ended.code in (128 + by, 0)
    assert ended.seconds < 5
    assert launcher.run(patient).code == 0
    assert state_hash(tmp_path / "run") == wanted


@long
@pytest.mark.parametrize("name", ["train", "sweep"])
@pytest.mark.parametrize("share", [0.02, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97])
def test_a_stop_in_any_phase(name, share, launcher, wholes, config_file, tmp_path):
    wanted, seconds = wholes[name]
    command = [*commands(config_file)[name], "--out", str(tmp_path / "run")]
    ended = launcher.run(command, stop_after=share * seconds, by=signal.SIGTERM)
    assert ended.code in (143, 0), launcher.log.read_text()[-2000:]
    assert ended.seconds < 5
    assert launcher.run(command).code == 0
    assert state_hash(tmp_path / "run") == wanted


def test_a_stop_gets_through_while_a_program_runs(tmp_path):
    """The main thread is inside a call that does not return: the waiting thread saves and ends the process."""
    code = f"""
import ctypes, os, signal, sys, threading, time
from crossreg.stopping import saved_on_stop, stops_in_time
def save():
    open({str(tmp_path / "saved")!r}, "w").write("saved")
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
with stops_in_time("last words"), saved_on_stop(save):
    end = time.monotonic() + 60
    libc = ctypes.CDLL(None)
    while time.monotonic() < end:
        libc.sleep(60)  # without the lock of the interpreter, as a compiler is; a signal alone does not end the loop
        libc.sleep(60)
"""
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (143, "last words\n")
    assert time.monotonic() - before < 10
    assert (tmp_path / "saved").read_text() == "saved"
