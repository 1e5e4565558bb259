"""Processes that are killed at any moment, asked to stop in any phase, or that find the folder taken.

`make faults` runs the long ones, 200 and more SIGKILLs over train and sweep; CI a tenth of them.
"""

import functools
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from harness import commands, launched, state_hash

from long_tests import amount, long

KILLS = amount(0, 200)


@pytest.fixture(scope="module")
def launcher(waves, tmp_path_factory):
    with launched(tmp_path_factory.mktemp("log") / "log.txt") as launcher:
        yield launcher


@pytest.fixture(scope="module")
def asked(tiny, tmp_path_factory):
    return commands(tiny, tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="module")
def whole_of(launcher, asked, tmp_path_factory):
    """A command, uninterrupted: the hash of what it ends in, and how long it takes once all is compiled."""

    @functools.cache
    def whole(name: str) -> tuple[str, float]:
        root, command = tmp_path_factory.mktemp("whole"), asked[name]
        hashes = []
        for part in ("cold", "warm"):
            ended = launcher.run([*command, "--out", str(root / part)])
            assert ended.code == 0, launcher.log.read_text()
            hashes.append(state_hash(root / part))
        assert hashes[0] == hashes[1]
        return hashes[1], ended.seconds

    return whole


def test_a_killed_training_ends_in_the_same_bits(launcher, whole_of, asked, tmp_path):
    wanted, seconds = whole_of("train")
    launcher.run([*asked["train"], "--out", str(tmp_path / "run")], stop_after=0.7 * seconds)
    assert launcher.run([*asked["train"], "--out", str(tmp_path / "run")]).code == 0
    assert state_hash(tmp_path / "run") == wanted


@long
@pytest.mark.parametrize("name", ["train", "sweep"])
def test_hundreds_of_kills_end_in_the_same_bits(name, launcher, whole_of, asked, tmp_path):
    (wanted, seconds), rng = whole_of(name), np.random.default_rng(7)
    kills = ends = 0
    while kills < KILLS // 2 or not ends:
        folder = tmp_path / f"{name}-{ends}"
        # The longest wait follows the speed of the machine: about seven kills to an end.
        ended = launcher.run([*asked[name], "--out", str(folder)], stop_after=float(rng.uniform(0, seconds)))
        if ended.code == 0:
            assert state_hash(folder) == wanted, f"{folder} after {kills} kills"
            ends, seconds = ends + 1, 0.8 * seconds
        else:
            assert ended.code == -signal.SIGKILL, launcher.log.read_text()[-2000:]
            kills, seconds = kills + 1, 1.03 * seconds
        print(f"{name}: {kills} kills, {ends} runs ended, every one in the same state", file=sys.stderr, flush=True)


@pytest.mark.parametrize("by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=long)], ids=["SIGTERM", "SIGINT"])
def test_a_polite_stop_saves_and_ends_in_time(by, launcher, whole_of, asked, tmp_path):
    wanted, seconds = whole_of("train")
    # No snapshot by the clock: what is there afterwards was written by the stop.
    patient = [*asked["train"], "--save-every", "60", "--out", str(tmp_path / "run")]
    ended = launcher.run(patient, stop_after=0.6 * seconds, by=by)
    assert ended.code in (128 + by, 0)
    assert ended.seconds < 5 or ended.code == 0  # it may have come to its end before
    assert launcher.run(patient).code == 0
    assert state_hash(tmp_path / "run") == wanted


@long
@pytest.mark.parametrize("name", ["train", "sweep"])
@pytest.mark.parametrize("share", [0.02, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97])
def test_a_stop_in_any_phase(name, share, launcher, whole_of, asked, tmp_path):
    wanted, seconds = whole_of(name)
    command = [*asked[name], "--out", str(tmp_path / "run")]
    ended = launcher.run(command, stop_after=share * seconds, by=signal.SIGTERM)
    assert ended.code in (143, 0), launcher.log.read_text()[-2000:]
    assert ended.seconds < 5 or ended.code == 0  # it may have come to its end before
    assert launcher.run(command).code == 0
    assert state_hash(tmp_path / "run") == wanted


def test_a_stop_gets_through_while_a_program_runs(tmp_path):
    """The main thread is inside a call that does not return: the waiting thread saves and ends the process."""
    code = f"""
import hashlib, os, signal, threading
from crossreg.machine.stopping import saved_on_stop, stops_in_time
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


def test_a_stop_gets_through_where_nothing_can_be_saved():
    """The folder has vanished, and the main thread cannot say so: the process ends all the same."""
    code = """
import hashlib, os, signal, threading
from crossreg.machine.stopping import saved_on_stop, stops_in_time
def save():
    raise FileNotFoundError(2, "the folder has vanished", "run")
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
with stops_in_time("last words"), saved_on_stop(save):
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**28)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (143, "crossreg: not saved (the folder has vanished)\n")
