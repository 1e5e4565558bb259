"""The reference preset and its baselines over the paper's eight regimes and several seeds.

    PYTHONPATH=src python benchmarks/core_results.py --seeds 5 --steps 10000 --out docs/results/core.json

All regimes and seeds of a method are replicas of one compiled program: about 40 s per method on an H200.
"""

import argparse
import importlib.metadata
import json
import platform
import sys
import time
from pathlib import Path

import jax
import numpy as np

from crossreg.config import Config
from crossreg.data.apebench import load_trajectories
from crossreg.data.pairs import make_data
from crossreg.methods import TRAINED
from crossreg.metrics.evaluation import evaluate, sigma_per_site
from crossreg.studies.cohort import start_cohort
from crossreg.training.loop import train_replicas, unstack

REGIMES = [(0.4, 50), (0.6, 50), (0.8, 50), (1.0, 50), (0.7, 20), (0.7, 30), (0.7, 40), (0.7, 70)]
# Channel/channel prototype: the NLL to reach, to within 0.2.
FLOOR = dict(zip(REGIMES, [-0.79, -1.33, -2.18, -3.90, -0.61, -0.99, -1.11, -2.19], strict=True))


def run_method(method: str, seeds: int, base: Config) -> list[dict]:
    """One row per regime and seed."""
    trajectories = load_trajectories(base.data)
    configs = [
        TRAINED[method](base).replace(observed_fraction=fraction, train_size=size, seed=seed, **OVERRIDES)
        for fraction, size in REGIMES
        for seed in range(seeds)
    ]
    data = [make_data(trajectories, config.data) for config in configs]
    models, tasks, train_config = start_cohort(configs, data)
    started, progress = time.perf_counter(), None
    for progress in train_replicas(models, tasks, train_config):
        if progress.record is not None and progress.step % 2500 == 0:
            print(f"  {method} step {progress.step} {time.perf_counter() - started:.0f} s", flush=True)
    assert progress is not None
    assert progress.record is not None
    rows = []
    for i, (config, split) in enumerate(zip(configs, data, strict=True)):
        model = unstack(progress.models, i)
        rows.append(
            {
                "observed_fraction": config.data.observed_fraction,
                "train_size": config.data.train_size,
                "method": method,
                "seed": config.train.seed,
                "steps": config.train.steps,
                "diverged": bool(progress.record.diverged_at[i] >= 0),
                "test": evaluate(model, split.test),
                "reg": evaluate(model, split.reg),
                "sigma": sigma_per_site(model),
            }
        )
    print(f"  {method} done {time.perf_counter() - started:.0f} s", flush=True)
    return rows


def print_table(rows: list[dict]) -> None:
    print(
        f"{'observed':>8} {'train':>5} {'method':>14}   test NLL (± 95%)   floor"
        "   ECE (± 95%)   reg ECE  Std μ  diverged"
    )
    for fraction, size in REGIMES:
        for method in dict.fromkeys(row["method"] for row in rows):
            picked = [
                r for r in rows if (r["observed_fraction"], r["train_size"], r["method"]) == (fraction, size, method)
            ]
            nll = np.array([r["test"]["nll"] for r in picked])
            ece = np.array([r["test"]["ece_mix"] for r in picked])
            half = 1.96 / np.sqrt(len(picked))
            print(
                f"{fraction:8.1f} {size:5d} {method:>14}   {nll.mean():7.3f} ± {half * nll.std(ddof=1):.3f}"
                f"   {FLOOR[fraction, size]:6.2f}   {ece.mean():.4f} ± {half * ece.std(ddof=1):.4f}"
                f"   {np.mean([r['reg']['ece_mix'] for r in picked]):.4f}"
                f"  {np.mean([r['test']['std_mu'] for r in picked]):.4f}  {sum(r['diverged'] for r in picked)}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--methods", default="xreg,dropout,unregularized")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", nargs="*", default=[], help="config fields for all runs: name=json")
    arguments = parser.parse_args()
    OVERRIDES = {k: json.loads(v) for k, v in (item.split("=", 1) for item in arguments.set)}
    base = Config().replace(steps=arguments.steps)
    result = {
        "command": " ".join(["python", *sys.argv]),
        "versions": {p: importlib.metadata.version(p) for p in ("jax", "jaxlib", "equinox", "optax", "numpy")}
        | {"python": platform.python_version()},
        "device": jax.devices()[0].device_kind,
        "data": load_trajectories(base.data).digest,
        "rows": [],
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for method in arguments.methods.split(","):
        result["rows"] += run_method(method, arguments.seeds, base)
        # After each method, so that a stop loses none that is done.
        arguments.out.write_text(json.dumps(result, indent=1))
    print_table(result["rows"])
