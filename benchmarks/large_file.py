"""Training on a file that is larger than memory allows: the peak memory of `crossreg train`.

    python benchmarks/large_file.py                      # 20 GB, default settings, about 1 GB on disk
    python benchmarks/large_file.py --trajectories 100   # a small one

The file has PDEBench's scalar layout, `tensor` (b, t, x). Only every twentieth trajectory is written; the others are
chunks that were never stored, which read as NaN: values that were not measured. They are drawn, read and moved like all
others, and no target. What is reported is the largest resident set of the whole command, data check, training, scores
and test fields included.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

POINTS, TIMES, EVERY = 1024, 512, 20
CHUNK_TIMES = 16


def write(path: Path, trajectories: int) -> None:
    """A sparse file of travelling waves."""
    x = 2 * np.pi * np.arange(POINTS) / POINTS
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        tensor = file.create_dataset(
            "tensor", (trajectories, TIMES, POINTS), "f4", chunks=(1, CHUNK_TIMES, POINTS), fillvalue=np.nan
        )
        file["t-coordinate"] = np.arange(TIMES + 1, dtype=np.float32)
        file["x-coordinate"] = x.astype(np.float32)
        for row in range(0, trajectories, EVERY):
            phase, speed = rng.uniform(0, 2 * np.pi, (2, 3, 1, 1))
            waves = np.arange(1, 4)[:, None, None]
            tensor[row] = np.sin(waves * x + phase + 0.1 * speed * np.arange(TIMES)[:, None]).sum(0)


def measure(folder: Path, trajectories: int, steps: int) -> dict[str, float | int]:
    """Trains on a file of so many trajectories, in a process of its own, and gives what it took."""
    path = folder / "large.hdf5"
    write(path, trajectories)
    command = [
        "-m",
        "crossreg",
        "train",
        "--data",
        str(path),
        "--steps",
        str(steps),
        "--out",
        str(folder / "run"),
    ]
    begin = time.perf_counter()
    subprocess.run([sys.executable, *command, "--quiet", "--json"], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    metrics = json.loads((folder / "run" / "metrics.json").read_text())
    return {
        "gigabytes": trajectories * TIMES * POINTS * 4 / 1e9,
        "gigabytes_on_disk": path.stat().st_blocks * 512 / 1e9,
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9,
        "seconds": seconds,
        "steps": steps,
        "test_nll": metrics["test"]["nll"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), arguments.trajectories, arguments.steps)))


if __name__ == "__main__":
    main()
