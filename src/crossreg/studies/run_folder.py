"""One run, one folder. Evaluation, prediction and reports read nothing else.

    config.yaml     every setting, resolved
    metrics.jsonl   one line per evaluation on reg
    metrics.json    final scores on test and reg, σ per site
    model.npz       the trained arrays
    versions.json   packages, device, and the hash of the data
"""

import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from crossreg.config import Config, load_yaml, save_yaml
from crossreg.data.pairs import Data, load_data
from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.metrics.evaluation import evaluate, sigma_per_site
from crossreg.nn.build import build_model
from crossreg.nn.surrogate import Surrogate
from crossreg.training.checkpoint import load_model, save_model
from crossreg.training.loop import Record

CONFIG, HISTORY, METRICS, MODEL, VERSIONS = (
    "config.yaml",
    "metrics.jsonl",
    "metrics.json",
    "model.npz",
    "versions.json",
)
_PACKAGES = ("crossreg", "jax", "jaxlib", "equinox", "optax", "numpy")


def write_json(path: Path, value: Any) -> None:
    """Writes JSON in one move."""
    with replacing(path) as file:
        file.write((json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def check_free(folder: Path) -> None:
    """Refuses a folder that holds a run, or anything else: nothing is ever overwritten."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: exists and is not a folder")
    if (folder / CONFIG).exists():
        raise InputError(f"--out {folder}: already holds a run; choose another folder or remove it")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"--out {folder}: is not empty; choose a new or empty folder")


def open_run(folder: Path, config: Config, data: Data) -> None:
    """Makes the folder of a new run and writes what is known before training."""
    check_free(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_yaml(config, folder / CONFIG)
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error
    write_json(folder / VERSIONS, describe_machine() | {"data": data.digest})


def describe_machine() -> dict[str, str]:
    """Versions and the kind of device: what a number may depend on."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions | {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": jax.devices()[0].device_kind,
    }


def append_history(folder: Path, record: Record, replica: int = 0) -> None:
    with (folder / HISTORY).open("a") as file:
        file.write(json.dumps(record.of(replica)) + "\n")


def final_metrics(model: Surrogate, data: Data, config: Config) -> dict[str, Any]:
    """Scores on test and reg, and σ per site: what `crossreg evaluate` prints."""
    num_samples = config.train.num_samples
    return {
        "test": evaluate(model, data.test, num_samples=num_samples),
        "reg": evaluate(model, data.reg, num_samples=num_samples),
        "sigma": sigma_per_site(model),
    }


def close_run(folder: Path, model: Surrogate, metrics: dict[str, Any]) -> None:
    """Writes the trained model and its scores."""
    save_model(folder / MODEL, model)
    write_json(folder / METRICS, metrics)


def read_config(folder: Path) -> Config:
    """The config of the run in `folder`."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if not (folder / CONFIG).exists():
        raise InputError(f"{folder}: holds no run ({CONFIG} is missing)")
    return load_yaml(folder / CONFIG)


def load_run(folder: Path) -> tuple[Config, Data, Surrogate]:
    """The config, the data and the trained model of a run."""
    config = read_config(folder)
    if not (folder / MODEL).exists():
        raise InputError(f"{folder}: its training has not finished ({MODEL} is missing)")
    data = load_data(config.data)
    try:
        trained_on = json.loads((folder / VERSIONS).read_text())["data"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder / VERSIONS}: not readable") from error
    if trained_on != data.digest:
        raise InputError(
            f"{folder}: was trained on other data than this machine's cache holds"
            f" ({trained_on[:12]}, not {data.digest[:12]}); copy the cached file of the training machine"
        )
    like = eqx.filter_eval_shape(build_model, config.model, data.train, key=jax.random.key(0))
    return config, data, load_model(folder / MODEL, like)
