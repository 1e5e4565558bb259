"""Run folders that were made up: as `crossreg train` writes them, with numbers that are known, and no training."""

import json
import re
from pathlib import Path

import numpy as np

from crossreg.config import Config, to_yaml
from crossreg.metrics.calibration import LEVELS
from crossreg.runs.fields.regions import Region
from crossreg.runs.fields.stored_fields import LEVELS as QUANTILES
from crossreg.runs.fields.stored_fields import StoredFields, write_stored_fields
from crossreg.runs.file_names import TEST_FIELDS

STEPS = (50, 100, 150)
SITES = {"block1": 3, "pre_head": 5}
# Trajectories, times, channels and points all differ.
STORED, TIMES, CHANNELS, POINTS = (0, 1, 4), 12, 2, 18


def scores(number: float) -> dict:
    """The scores of a split, all different."""
    names = ("nll", "ece_mix", "crps", "rmse", "std_mu", "std", "spearman", "ause", "std_predictive")
    names += ("std_generalization", "rms_predictive", "rms_generalization")
    values = {name: round(0.01 * (i + 1) + 0.1 * number, 6) for i, name in enumerate(names)}
    return values | {"coverage": [level ** (1 + 0.2 * number) for level in LEVELS]}


def history(step: int, number: float) -> dict:
    losses = {"train_loss": -1 - 0.01 * step - number, "reg_loss": None, "reg_nll": -1 - 0.005 * step}
    sigma = {site: [0.01 * (i + 1) * step for i in range(count)] for site, count in SITES.items()}
    return losses | {"step": step, "reg_ece": 0.1 / step, "reg_std_mu": 0.02, "sigma": sigma, "diverged_at": -1}


def fields(number: float = 0.0) -> StoredFields:
    """Waves, an error and standard deviations that are known in closed form."""
    trajectory, time, channel, x = np.meshgrid(
        np.asarray(STORED), np.arange(1, TIMES + 1), np.arange(CHANNELS), np.arange(POINTS), indexing="ij"
    )
    truth = np.sin(2 * np.pi * (x + time + 3 * trajectory) / POINTS + channel).astype(np.float32)
    ones = np.ones_like(truth)
    error = (0.01 * (1 + number) * (x - time)).astype(np.float32)
    offsets = np.asarray([-2.25, -1.625, -0.625, 0.0, 0.625, 1.625, 2.25], np.float32)
    assert len(offsets) == len(QUANTILES)
    unaware = (Region(4, 1, (6, 10), ((8, 15),), 0.5, 0.1), Region(7, 0, (1, 5), ((0, 7),), 0.4, 0.1))
    return StoredFields(
        trajectories=np.asarray(STORED),
        steps=np.arange(1, TIMES + 1),
        observed=(x[:, :, 0] % 3 > 0),
        truth=truth,
        error=error,
        std_mu=0.01 * ones * (1 + channel),
        std_predictive=0.03 * ones,
        std_generalization=0.04 * ones,
        offsets=offsets.reshape(-1, 1, 1, 1, 1) * np.ones((1, *truth.shape), np.float32),
        pit=np.arange(1.0, 21.0),
        unaware=unaware,
        aware=(Region(0, 0, (1, 5), ((0, 7),), 0.3, 0.2),),
        scanned=8,
        space=(POINTS,),
    )


def write_run(folder: Path, config: Config, number: float = 0.0, *, with_fields: bool = True) -> Path:
    """A finished run."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    metrics = {split: scores(number + 0.3 * i) for i, split in enumerate(("test", "reg", "train"))}
    sigma = {site: [0.1 * (i + 1) for i in range(count)] for site, count in SITES.items()}
    (folder / "metrics.json").write_text(json.dumps(metrics | {"sigma": sigma}))
    lines = [json.dumps(history(step, number)) for step in STEPS]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "versions.json").write_text(json.dumps({"jax": "9.8.7", "device": "a fast one"}))
    if with_fields:
        write_stored_fields(folder / TEST_FIELDS, fields(number))
    return folder


def inside(path) -> dict:
    """What the page's script reads."""
    text = path.read_text()
    return json.loads(re.search(r'id="report">(.*?)</script>', text, re.DOTALL)[1])  # pyright: ignore[reportOptionalSubscript]
