"""The reference preset and its baselines over the paper's eight regimes and several seeds.

    PYTHONPATH=src python benchmarks/core_results.py --seeds 5 --steps 10000 --out docs/results/core.json

All regimes and seeds of a method are replicas of one compiled program: about 40 s per method on an H200, a third of
it the scoring. Prints a table with 95% intervals (Student's t) and whether the reference preset keeps its limits: mean
test ECE at most .03, mean test NLL at most 0.2 above the prototype's, no run diverged.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from scipy import stats

from crossreg.config import Config
from crossreg.data.apebench import load_trajectories
from crossreg.data.pairs import make_data
from crossreg.methods import TRAINED
from crossreg.studies.cohort import start_cohort
from crossreg.studies.run_folder import describe_machine, final_metrics_of_all
from crossreg.training.loop import train_replicas, unstack

# (observed fraction, train trajectories) → test NLL of the channel/channel prototype.
PROTOTYPE_NLL = {
    (0.4, 50): -0.79,
    (0.6, 50): -1.33,
    (0.8, 50): -2.18,
    (1.0, 50): -3.90,
    (0.7, 20): -0.61,
    (0.7, 30): -0.99,
    (0.7, 40): -1.11,
    (0.7, 70): -2.19,
}
LARGEST_ECE, NLL_MARGIN = 0.03, 0.2


def run_method(method: str, seeds: int, base: Config, changes: dict) -> list[dict]:
    """One row per regime and seed."""
    trajectories = load_trajectories(base.data)
    configs = [
        TRAINED[method](base).replace(observed_fraction=fraction, train_size=size, seed=seed, **changes)
        for fraction, size in PROTOTYPE_NLL
        for seed in range(seeds)
    ]
    data = [make_data(trajectories, config.data) for config in configs]
    started, progress = time.perf_counter(), None
    for progress in train_replicas(*start_cohort(configs, data)):
        if progress.record is not None and progress.step % 2500 == 0:
            print(f"  {method} step {progress.step} {time.perf_counter() - started:.0f} s", flush=True)
    assert progress is not None
    assert progress.record is not None
    models = (unstack(progress.models, i) for i in range(len(configs)))
    metrics = final_metrics_of_all(zip(models, data, configs, strict=True))
    rows = [
        {
            "observed_fraction": config.data.observed_fraction,
            "train_size": config.data.train_size,
            "method": method,
            "seed": config.train.seed,
            "steps": config.train.steps,
            "diverged": bool(progress.record.diverged_at[i] >= 0),
        }
        | scores
        for i, (config, scores) in enumerate(zip(configs, metrics, strict=True))
    ]
    print(f"  {method} done {time.perf_counter() - started:.0f} s", flush=True)
    return rows


def mean_and_half_width(values: list[float]) -> tuple[float, float]:
    """Mean and half the width of its 95% interval over seeds."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(half)


def print_table(rows: list[dict]) -> bool:
    """Prints all regimes and methods; True if the reference preset keeps its limits everywhere."""
    print(f"{'observed':>8} {'train':>5} {'method':>14}  {'test NLL':>15}  {'test ECE':>15} reg ECE  Std μ  diverged")
    kept = True
    for regime, prototype in PROTOTYPE_NLL.items():
        for method in dict.fromkeys(row["method"] for row in rows):
            picked = [r for r in rows if (r["observed_fraction"], r["train_size"]) == regime and r["method"] == method]
            nll, nll_half = mean_and_half_width([r["test"]["nll"] for r in picked])
            ece, ece_half = mean_and_half_width([r["test"]["ece_mix"] for r in picked])
            diverged = sum(r["diverged"] for r in picked)
            verdict = ""
            if method == "xreg":
                within = nll <= prototype + NLL_MARGIN and ece <= LARGEST_ECE and not diverged
                kept &= within
                verdict = f"  limits {prototype + NLL_MARGIN:.2f} / {LARGEST_ECE:.3f}: {'kept' if within else 'MISSED'}"
            print(
                f"{regime[0]:8.1f} {regime[1]:5d} {method:>14}  {nll:7.3f} ± {nll_half:.3f}"
                f"  {ece:7.4f} ± {ece_half:.4f}"
                f"  {np.mean([r['reg']['ece_mix'] for r in picked]):.4f}"
                f"  {np.mean([r['test']['std_mu'] for r in picked]):.4f}  {diverged}{verdict}"
            )
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--methods", default="xreg,dropout,unregularized")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", nargs="*", default=[], help="config fields for all runs, as name=json")
    arguments = parser.parse_args()
    changes = {name: json.loads(value) for name, value in (item.split("=", 1) for item in arguments.set)}
    base = Config().replace(steps=arguments.steps)
    result = {
        # The folder it was written to says nothing.
        "command": " ".join(["python", *sys.argv]).replace(str(arguments.out), arguments.out.name),
        "versions": describe_machine(),
        "data": load_trajectories(base.data).digest,
        "rows": [],
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for method in arguments.methods.split(","):
        result["rows"] += run_method(method, arguments.seeds, base, changes)
        # After each method, so that a stop loses none that is done.
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print("all limits kept" if print_table(result["rows"]) else "some limits MISSED")


if __name__ == "__main__":
    main()
