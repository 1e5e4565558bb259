"""Commands in processes that are stopped at any moment, and the state that they end in as one hash."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.data.pairs import Pairs
from crossreg.studies import programs

long = pytest.mark.skipif(os.environ.get("CROSSREG_FAULTS") != "long", reason="long: `make faults` runs it")

# Steps of a millisecond and a look every 20 of them: most of a run is near a snapshot that is being written.
SIZES = [
    "--train-size",
    "7",
    "--reg-size",
    "6",
    "--test-size",
    "4",
    "--train-horizon",
    "3",
    "--test-horizon",
    "5",
    "--width",
    "4",
    "--num-blocks",
    "3",
    "--num-modes",
    "5",
    "--batch-size",
    "6",
    "--num-samples",
    "4",
    "--evaluation-samples",
    "5",
    "--evaluate-every",
    "20",
    "--steps",
    "400",
]
TRAIN = ["train", *SIZES, "--seed", "3", "--save-every", "0", "--quiet"]


def sweep_command(config: Path) -> list[str]:
    """Two programs of two replicas each."""
    asked = (
        "sweep grid --grid mask_seed=3 --methods xreg,unregularized+early --seeds 2 --steps 400 --save-every 0 --quiet"
    )
    return [*asked.split(), "--config", str(config)]


class Ended(NamedTuple):
    """How a process ended: its exit code, minus the signal that killed it, and how long it took."""

    code: int
    seconds: float


class Launcher:
    """Commands as processes that start at once."""

    def __init__(self, log: Path):
        self.log = log
        place = Path(__file__).with_name("launcher.py")
        self._process = subprocess.Popen(
            [sys.executable, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, arguments: list[str], *, stop_after: float | None = None, by: int = signal.SIGKILL) -> Ended:
        """Runs a command to its end, or sends it a signal after some seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"arguments": arguments, "log": str(self.log)}) + "\n")
        self._process.stdin.flush()
        child, begun = int(self._process.stdout.readline()), time.perf_counter()
        if stop_after is not None:
            time.sleep(stop_after)
            begun = time.perf_counter()
            # Until its parent has waited for it, the process has its number, ended or not.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, by)
        code = int(self._process.stdout.readline())
        return Ended(code, time.perf_counter() - begun)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def launched(log: Path) -> Iterator[Launcher]:
    launcher = Launcher(log)
    try:
        yield launcher
    finally:
        launcher.close()


def state_hash(folder: Path) -> str:
    """One hash over all numbers that a run or a sweep has ended in: arrays, histories, scores and rows."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".npz" and not name.startswith("snapshots"):
            with np.load(path, allow_pickle=False) as file:
                for key in sorted(file.files):
                    digest.update(f"{name} {key} {file[key].dtype} {file[key].shape}".encode() + file[key].tobytes())
        elif path.name in ("config.yaml", "metrics.json", "metrics.jsonl", "fields.json", "mask.npy", "table.csv") or (
            name.startswith("trained/") and path.suffix in (".json", ".jsonl")
        ):
            digest.update(name.encode() + path.read_bytes())
        elif name == "rows.jsonl":
            digest.update("\n".join(sorted(path.read_text().splitlines())).encode())
    return digest.hexdigest()


def spoil(monkeypatch: pytest.MonkeyPatch, rows: slice) -> None:
    """Makes some train trajectories, in training alone, something that no loss is finite on."""
    usual = programs.start_cohort

    def start(*arguments):
        models, tasks, config = usual(*arguments)
        assert isinstance(tasks.train, Pairs)
        spoiled = tasks.train.trajectories.at[rows].set(jnp.inf)
        return models, eqx.tree_at(lambda t: t.train.trajectories, tasks, spoiled), config

    monkeypatch.setattr(programs, "start_cohort", start)


def flip(path: Path, rng: np.random.Generator) -> str:
    """Harms a file: one bit of it, or its end is cut off. Says how."""
    content = bytearray(path.read_bytes())
    if rng.random() < 0.25:
        length = int(rng.integers(0, len(content)))
        path.write_bytes(content[:length])
        return f"{path.name} cut to {length} of {len(content)} bytes"
    at, bit = int(rng.integers(0, len(content))), int(rng.integers(0, 8))
    content[at] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {at} of {len(content)} in {path.name}"
