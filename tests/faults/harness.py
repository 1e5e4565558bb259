"""Commands in processes that are stopped at any moment, and the state that they end in as one hash."""

import contextlib
import hashlib
import json
import os
import select
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

from crossreg.config import Config, to_yaml
from crossreg.data.pairs import Pairs
from crossreg.studies.sweep import programs


def commands(config: Config, folder: Path) -> dict[str, list[str]]:
    """A training, and a sweep of two programs with two replicas each, of a network that is small and quick to compile.

    A step takes a millisecond, and every 20 of them there is a look: most of the time a snapshot is being written.
    """
    small = config.replace(num_blocks=1, width=3, num_samples=2, evaluate_every=20, steps=300)
    (folder / "c.yaml").write_text(to_yaml(small))
    common = ["--config", str(folder / "c.yaml"), "--save-every", "0", "--quiet"]
    asked = "sweep grid --grid mask_seed=3 --methods xreg,unregularized+early --seeds 2 --steps 300"
    return {"train": ["train", *common, "--seed", "3"], "sweep": [*asked.split(), *common]}


class Ended(NamedTuple):
    """How a process ended: its exit code, or minus the signal that killed it; its seconds, or those behind a signal."""

    code: int
    seconds: float


class Launcher:
    """Commands as processes that start at once."""

    def __init__(self, log: Path):
        self.log = log
        place = Path(__file__).with_name("launcher.py")
        # Every program is kept, however soon it was compiled: a process must come to its training at once.
        kept = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        self._process = subprocess.Popen(
            [sys.executable, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | kept,
        )

    def run(self, arguments: list[str], *, stop_after: float | None = None, by: int = signal.SIGKILL) -> Ended:
        """Runs a command to its end, or sends it a signal after some seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"arguments": arguments, "log": str(self.log)}) + "\n")
        self._process.stdin.flush()
        child, begun = int(self._process.stdout.readline()), time.perf_counter()
        if stop_after is not None and not select.select([self._process.stdout], [], [], stop_after)[0]:
            begun = time.perf_counter()
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


def spoil_seeds(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Makes the first loss of every so many seeds no number."""
    usual = programs.start_cohort

    def start(configs, *arguments):
        models, tasks, config = usual(configs, *arguments)
        bad = jnp.asarray([c.train.seed % every == 0 for c in configs])
        bias = models.heads.mean.bias
        spoiled = jnp.where(bad.reshape(-1, *(1,) * (bias.ndim - 1)), jnp.nan, bias)
        return eqx.tree_at(lambda m: m.heads.mean.bias, models, spoiled), tasks, config

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
