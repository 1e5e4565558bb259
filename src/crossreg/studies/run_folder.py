"""One run, one folder. Prediction and reports read nothing else; evaluation also reads the data.

config.yaml     every setting, resolved
metrics.jsonl   one line per evaluation on reg
metrics.json    final scores on test, reg and train, σ per site
model.npz       the trained arrays
test_fields.npz predictions of some test trajectories, and where they are worst (`studies/stored_fields.py`)
versions.json   packages, device, and the hash of the data
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import platform
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool

import crossreg
from crossreg.config import Config, load_yaml, save_yaml
from crossreg.data.checks import check_mask
from crossreg.data.files.streamed import StreamedPairs
from crossreg.data.pairs import AbstractPairs, Data, load_data
from crossreg.errors import InputError
from crossreg.files import check_is_folder, read_array, read_json, replacing
from crossreg.metrics.evaluation import SurrogatePredictor, evaluate_all, sigma_per_site
from crossreg.nn.build import model_like
from crossreg.nn.surrogate import Surrogate
from crossreg.nn.units import Units
from crossreg.report.progress import CountDisplay
from crossreg.training.checkpoint import load_model
from crossreg.training.loop import Record

CONFIG, HISTORY, METRICS = "config.yaml", "metrics.jsonl", "metrics.json"
MODEL, FIELDS, MASK, VERSIONS = "model.npz", "fields.json", "mask.npy", "versions.json"
# Of data in files, the pairs of each split that are scored unless a config says more.
SCORED_PAIRS = 1000
_MOST_CHANNELS = 2**16
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
        state = "a run" if (folder / MODEL).exists() else "an unfinished run"
        raise InputError(f"--out {folder}: already holds {state}; choose another folder or remove it")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"--out {folder}: is not empty; choose a new or empty folder")


def open_run(folder: Path, config: Config, data: Data) -> None:
    """Makes the folder of a new run and writes what is known before training."""
    check_free(folder)
    channels, *space = data.train.field_shape
    mask = data.run_mask
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_yaml(config, folder / CONFIG)
        write_json(folder / VERSIONS, describe_machine())
        fields = {"channels": channels, "space": space, "digest": data.digest}
        if (units := data.train.units) is not None:
            fields |= {"names": data.names, "offset": units.offset, "scale": units.scale}
        write_json(folder / FIELDS, fields)
        if mask is not None:
            np.save(folder / MASK, np.asarray(mask))
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error


def describe_machine() -> dict[str, str]:
    """Versions and the kind of device: what a number may depend on."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions | {
        "source": _source_digest(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": jax.devices()[0].device_kind,
    }


def _source_digest() -> str:
    """A short hash of the package's own code: which state of it made a number, installed or not."""
    digest = hashlib.sha256()
    for path in sorted(Path(crossreg.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def append_history(folder: Path, record: Record, replica: int = 0) -> None:
    """Adds a line to the run's history."""
    with (folder / HISTORY).open("a") as file:
        file.write(json.dumps(record.of(replica)) + "\n")


def final_metrics(
    model: Surrogate, data: Data, config: Config, *, progress: bool = False, folder: Path | None = None
) -> dict[str, Any]:
    """Scores on test, reg and train, and σ per site: what `crossreg evaluate` prints. Not finite becomes None.

    In the `folder` of a run that was just trained, `progress.json` says meanwhile how far it is.
    """
    predictor = SurrogatePredictor(model, config.train.evaluation_samples)
    splits = {"test": data.test, "reg": data.reg, "train": data.train}
    there = {name: pairs for name, pairs in splits.items() if int(pairs.num_pairs)}
    asked = config.train.scored_pairs

    def most(pairs: AbstractPairs) -> int | None:
        return SCORED_PAIRS if asked is None and isinstance(pairs, StreamedPairs) else asked

    total = sum(min(int(pairs.num_pairs), most(pairs) or int(pairs.num_pairs)) for pairs in there.values())
    with CountDisplay("pairs scored", enabled=progress, folder=folder, steps=config.train.steps) as display:
        jobs = ((predictor, pairs) for pairs in there.values())
        scores = dict(zip(there, evaluate_all(jobs, progress=display.adder(total), most_pairs=most), strict=True))
    return finite_or_none({name: scores.get(name) for name in splits} | {"sigma": sigma_per_site(model)})


def finite_or_none(value: Any) -> Any:
    """Nested lists and dictionaries with None in place of NaN and infinities, which JSON has not."""
    if isinstance(value, dict):
        return {key: finite_or_none(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Run(NamedTuple):
    """A trained run: its settings, its model, and the fields it was trained on."""

    config: Config
    model: Surrogate
    channels: int
    space: tuple[int, ...]
    mask: Bool[np.ndarray, "*space"] | None
    digest: str

    def load_data(self, path: Path | None = None) -> Data:
        """The run's own splits; own data that have moved are at `path`. Others than it was trained on are refused."""
        config = self.config.data
        if path is not None:
            if config.data is None:
                raise InputError(f"--data {path}: the run was trained on the scenario {config.scenario}")
            config = dataclasses.replace(config, data=str(path))
        data = load_data(config)
        if data.digest != self.digest and config.data is not None:
            raise InputError(f"{config.data}: holds other data than the run was trained on; give theirs as --data PATH")
        if data.digest != self.digest:
            raise InputError(
                f"the run was trained on other data ({self.digest[:12]}) than this machine's cache holds"
                f" ({data.digest[:12]}); copy the cached file of the training machine"
            )
        return data


def channel_names(folder: Path) -> tuple[str, ...]:
    """The names of the channels of a run's own data; none of a scenario's."""
    return tuple(map(str, read_json(folder / FIELDS, "what `crossreg train` writes").get("names", ())))


def load_run(folder: Path | str) -> Run:
    """Reads a trained run. Its data are not needed, and not read."""
    folder = Path(folder)
    check_is_folder(folder)
    if not (folder / CONFIG).exists():
        inside = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
        hint = f"; the folders {', '.join(inside)} in it do" if inside else ""
        raise InputError(f"{folder}: holds no run ({CONFIG} is missing){hint}")
    config = load_yaml(folder / CONFIG)
    if not (folder / MODEL).exists():
        raise InputError(f"{folder}: its training has not finished ({MODEL} is missing)")
    channels, space, digest, units = _read_fields(folder / FIELDS)
    mask = None
    if config.data.mask_per == "run":
        mask = check_mask(read_array(folder / MASK, "the run's mask"), space, str(folder / MASK), "the run's fields")
    like = model_like(config.model, channels + config.data.mask_channel, (channels, *space), units)
    return Run(config, load_model(folder / MODEL, like), channels, space, mask, digest)


def _read_fields(path: Path) -> tuple[int, tuple[int, ...], str, Units | None]:
    """Channels, grid, the data's hash, and the units of own data, of a run."""
    fields = read_json(path, "what `crossreg train` writes")
    try:
        channels, space, digest = fields["channels"], tuple(fields["space"]), fields["digest"]
        sizes = all(type(size) is int and 0 < size < 2**31 for size in (channels, *space))
        if sizes and channels <= _MOST_CHANNELS and 1 <= len(space) <= 3 and isinstance(digest, str):
            return channels, space, digest, _read_units(fields, channels)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not readable ({error}); expected channels, space and digest") from error
    raise InputError(f"{path}: expected channels, one to three sizes in space, and a digest that is text")


def _read_units(fields: dict[str, Any], channels: int) -> Units | None:
    """The units that the fields of own data have."""
    if "scale" not in fields:
        return None
    offset, scale = (tuple(map(float, fields[name])) for name in ("offset", "scale"))
    finite = all(math.isfinite(value) for value in (*offset, *scale))
    if len(offset) != channels or len(scale) != channels or not finite or min(scale) <= 0:
        raise ValueError("offset and scale need a finite number for each channel, scales one above 0")
    return Units(offset, scale)
