"""Processes that are killed at any moment, asked to stop in any phase, or that find the folder taken.

`make faults` runs the long ones: 200 and more SIGKILLs over train and sweep.
"""

import functools
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
def whole_of(launcher, config_file, tmp_path_factory):
    """A command, uninterrupted: the hash of what it ends in, and how long it takes once all is compiled."""

    @functools.cache
    def whole(name: str) -> tuple[str, float]:
        root, command = tmp_path_factory.mktemp("whole"), commands(config_file)[name]
        hashes = []
        for part in ("cold", "warm"):
            ended = launcher.run([*command, "--out", str(root / part)])
            assert ended.code == 0, launcher.log.read_text()
            hashes.append(state_hash(root / part))
        assert hashes[0] == hashes[1]
        return hashes[1], ended.seconds

    return whole


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


def test_a_killed_training_ends_in_the_same_bits(launcher, whole_of, tmp_path):
    wanted, seconds = whole_of("train")
    launcher.run([*TRAIN, "--out", str(tmp_path / "run")], stop_after=0.7 * seconds)
    assert launcher.run([*TRAIN, "--out", str(tmp_path / "run")]).code == 0
    assert state_hash(tmp_path / "run") == wanted


@long
def test_hundreds_of_kills_end_in_the_same_bits(launcher, whole_of, config_file, tmp_path):
    rng, kills, ends = np.random.default_rng(7), {"train": 0, "sweep": 0}, 0
    while sum(kills.values()) < KILLS:
        name = "train" if kills["train"] <= kills["sweep"] else "sweep"
        wanted, seconds = whole_of(name)
        folder = tmp_path / f"{name}-{ends}"
        kills[name] += kill_until_done(launcher, commands(config_file)[name], folder, 1.05 * seconds, rng)
        assert state_hash(folder) == wanted, f"{folder} after {kills}"
        ends += 1
        (tmp_path / "kills.json").write_text(json.dumps(kills))
        print(f"{sum(kills.values())} kills, {ends} ends", file=sys.stderr, flush=True)
    print(f"{kills}: {ends} runs, every final state equal")


@pytest.mark.parametrize("by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=long)], ids=["SIGTERM", "SIGINT"])
def test_a_polite_stop_saves_and_ends_in_time(by, launcher, whole_of, config_file, tmp_path):
    wanted, seconds = whole_of("train")
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
def test_a_stop_in_any_phase(name, share, launcher, whole_of, config_file, tmp_path):
    wanted, seconds = whole_of(name)
    command = [*commands(config_file)[name], "--out", str(tmp_path / "run")]
    ended = launcher.run(command, stop_after=share * seconds, by=signal.SIGTERM)
    assert ended.code in (143, 0), launcher.log.read_text()[-2000:]
    assert ended.seconds < 5
    assert launcher.run(command).code == 0
    assert state_hash(tmp_path / "run") == wanted


def test_a_stop_gets_through_while_a_program_runs(tmp_path):
    """The main thread is inside a call that does not return: the waiting thread saves and ends the process."""
    code = f"""
import hashlib, os, signal, threading
from crossreg.stopping import saved_on_stop, stops_in_time
def save():
    open({str(tmp_path / "saved")!r}, "w").write("saved")
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
with stops_in_time("last words"), saved_on_stop(save):
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**28)  # minutes in one call, as a compiler takes them
"""
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (143, "last words\n")
    assert time.monotonic() - before < 10
    assert (tmp_path / "saved").read_text() == "saved"
