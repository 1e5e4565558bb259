"""What a network should see of its own predictions in a rollout, where it was trained with hidden points.

    python benchmarks/own_prediction.py --out docs/results/own_prediction.json

For one mask of the run and for a mask of each pair, with and without a mask channel, `xreg-rollout` is trained on
diff_ks at 0.7 observed, 5 seeds side by side. The same models then forecast the test trajectories twice: with the mask
on every input, as in training, and with the mask on the first field alone, so that each prediction is read whole.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from crossreg.config import Config
from crossreg.data.load import load_config
from crossreg.forecasts.scores import climatology_of
from crossreg.methods.names import parse_method
from crossreg.runs.final_scores import rollout_scores
from crossreg.runs.safeguards.versions import describe_machine
from crossreg.training.cohort import start_cohort
from crossreg.training.loop import train_replicas
from crossreg.training.replicas import unstack

SEEDS, LEADS = 5, [1, 2, 5, 10, 20, 30, 50, 100]
SCORES = ("rmse", "spread_skill", "ece_mix", "crps", "held_share", "lost")


def scores_of(mask_per: str, mask_channel: bool, steps: int) -> list[dict[str, Any]]:
    """Return a row for each seed, lead, and what the network sees of its own predictions."""
    how = {"observed_fraction": 0.7, "mask_per": mask_per, "mask_channel": mask_channel, "steps": steps}
    [config] = parse_method("xreg-rollout").configs(Config().replace(**how))
    data = load_config(config.data)
    configs = [config.replace(seed=seed) for seed in range(SEEDS)]
    models, tasks, train = start_cohort(configs, [data] * SEEDS)
    *_, report = train_replicas(models, tasks, train)
    rows, climate = [], climatology_of(data.train)
    for seed, hide_own in itertools.product(range(SEEDS), (True, False)):
        model = unstack(report.models, seed)
        found = rollout_scores(model, data, LEADS[-1], leads=LEADS, climate=climate, hide_own=hide_own)
        about: dict[str, Any] = {"mask_per": mask_per, "mask_channel": mask_channel, "hide_own": hide_own, "seed": seed}
        for place, lead in enumerate(LEADS):
            scores = {name: float(f"{found[name][place]:.4g}") for name in SCORES if found[name][place] is not None}
            rows.append(about | {"lead": lead} | scores)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10_000)
    arguments = parser.parse_args()
    rows = []
    for mask_per, mask_channel in itertools.product(("run", "pair"), (False, True)):
        rows += scores_of(mask_per, mask_channel, arguments.steps)
        print(mask_per, mask_channel, rows[-1], flush=True)
    about = {"steps": arguments.steps, "machine": describe_machine(), "rows": rows}
    arguments.out.write_text(json.dumps(about, indent=0, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
