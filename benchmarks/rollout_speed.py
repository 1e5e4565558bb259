"""Seconds of a rollout of the default model, ready to run: particles × steps × trajectories on this device.

    python benchmarks/rollout_speed.py --out docs/results/rollout_speed.json     # adds this device to the file
    python benchmarks/rollout_speed.py --cases --training 10000 --out docs/results/rollout_speed.json

Weights and fields are drawn, since neither changes the time. Each case runs once to compile and then three times; the
shortest of these is stored, with the longest beside it. The scores by lead of as many forecasts are timed as well. With
`--training STEPS`, whole trainings of `xreg` and of `xreg-rollout` are timed, twice each.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import Config, DataConfig
from crossreg.data.dataset import Data
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories
from crossreg.fitting import fit
from crossreg.forecasts.forecast import Limits
from crossreg.forecasts.rollout import rollout
from crossreg.forecasts.scores import climatology_of, score_by_lead
from crossreg.machine.processor import describe_processor
from crossreg.methods.names import config_of
from crossreg.nn.build import build_model

LEADS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200)
CASES = {"60 × 100 × 30": (60, 100), "1,000 × 200 × 30": (1000, 200)}


def seconds(call) -> tuple[float, float]:
    """Return the shortest and the longest time of three calls, after one that compiles."""
    jax.block_until_ready(call())
    times = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return min(times), max(times)


def training_seconds(data: Data, steps: int) -> dict[str, Any]:
    """Return the shortest and the longest time of two trainings of each method, with what they compile."""
    found: dict[str, Any] = {"steps": steps}
    for method in ("xreg", "xreg-rollout"):
        config = config_of(method, Config().replace(steps=steps))
        times = []
        for seed in range(2):
            start = time.perf_counter()
            jax.block_until_ready(fit(data, config.model, config.train, seed=seed, progress=False).model)
            times.append(time.perf_counter() - start)
        found[method] = (min(times), max(times))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cases", nargs="*", choices=[*CASES], default=[*CASES])
    parser.add_argument("--training", type=int, metavar="STEPS")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    pool, test = (rng.normal(size=(n, 201, 1, 160)).astype(np.float32) for n in (POOL_SIZE, len(TEST_POOL)))
    data = make_data(Trajectories(pool, test, {}, ""), DataConfig(observed_fraction=1.0), check=False)
    config = Config().replace(log_sigma_max=-0.7)
    model = build_model(config.model, data.train, key=jax.random.key(0))
    start, climate = jnp.asarray(data.test.trajectories[:, 0]), climatology_of(data.train)
    wide = Limits(np.full(1, -1e30), np.full(1, 1e30))
    found: dict[str, Any] = {}
    for name in arguments.cases:
        particles, steps = CASES[name]
        leads = [lead for lead in LEADS if lead <= steps]

        def forecast(particles=particles, steps=steps, leads=leads):
            return rollout(model, start, steps, particles, leads=leads, limits=wide).mean

        def score(particles=particles, steps=steps, leads=leads):
            return score_by_lead(model, data.test, leads, climate=climate, particles=particles, limits=wide)["crps"]

        found[name] = {"leads": len(leads), "forecast": seconds(forecast), "with scores": seconds(score)}
        print(name, found[name], flush=True)
    if arguments.training:
        found["training"] = training_seconds(data, arguments.training)
        print("training", found["training"], flush=True)
    if arguments.out:
        device = jax.devices()[0].device_kind
        name = device if device != "cpu" else describe_processor()
        known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        arguments.out.write_text(
            json.dumps(known | {name: known.get(name, {}) | found}, indent=1, ensure_ascii=False) + "\n"
        )


if __name__ == "__main__":
    main()
