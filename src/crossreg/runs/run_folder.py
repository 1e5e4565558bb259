"""One run, one folder. Prediction and reports read nothing else; evaluation also reads the data.

config.yaml     every setting, resolved
metrics.jsonl   one line per evaluation on reg
metrics.json    final scores on test, reg and train, σ per site; of test also by times within and beyond train's
model.npz       the trained arrays
test_fields.npz predictions of some test trajectories, and where they are worst (`runs/fields/stored_fields.py`)
versions.json   packages and device
fields.json     what the fields are, and the range of the inputs; mask.npy: where they are observed
manifest.json   the SHA-256 of each of them (`runs/manifest.py`)
snapshots/      what a killed training goes on from (`runs/snapshots.py`); lock keeps a second process out
"""

import contextlib
import dataclasses
import io
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from crossreg.config import Config, load_stored, to_dict, to_yaml
from crossreg.data.checks import check_mask
from crossreg.data.files.load import is_known_by_sample
from crossreg.data.load import load_config
from crossreg.data.pairs import AbstractPairs, Data
from crossreg.data.units import Units
from crossreg.errors import InputError, in_one_line
from crossreg.files.regular import read_regular
from crossreg.files.sealed import is_sealed, seal_or_none
from crossreg.files.whole import check_is_folder, is_temporary, make_folder, read_array, read_json, replacing
from crossreg.metrics.evaluation import evaluate_all, sigma_per_site
from crossreg.metrics.test_times import scores_by_time, trained_steps
from crossreg.nn.build import model_like
from crossreg.nn.surrogate import Surrogate
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.progress.display import CountDisplay
from crossreg.progress.progress_file import PROGRESS
from crossreg.runs.fields.stored_fields import TEST_FIELDS
from crossreg.runs.input_range import InputRange, input_range, stored_range
from crossreg.runs.locks import LOCK
from crossreg.runs.manifest import MANIFEST, begin_again, check_files, is_sound, read_manifest, recorded, vouch
from crossreg.runs.older_names import with_current_names
from crossreg.runs.snapshots import SNAPSHOTS
from crossreg.runs.versions import describe_machine
from crossreg.training.checkpoint import load_model

CONFIG, HISTORY, METRICS = "config.yaml", "metrics.jsonl", "metrics.json"
MODEL, FIELDS, MASK, VERSIONS = "model.npz", "fields.json", "mask.npy", "versions.json"
# Of data in files, the pairs of each split that are scored unless a config says more.
SCORED_PAIRS = 1000
_MOST_CHANNELS = 2**16
_STORED = (CONFIG, HISTORY, METRICS, MODEL, FIELDS, MASK, VERSIONS)
OWN = {*_STORED, TEST_FIELDS, MANIFEST, LOCK, SNAPSHOTS, PROGRESS}


def write_json(path: Path, value: Any) -> None:
    """Writes JSON in one move."""
    with replacing(path) as file:
        file.write(_json_bytes(value))


def check_free(folder: Path) -> None:
    """Refuses a folder that holds a run, or anything else: nothing is ever overwritten."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: exists and is not a folder")
    if (folder / CONFIG).exists():
        state = "a run" if (folder / MODEL).exists() else "an unfinished run"
        raise InputError(f"--out {folder}: already holds {state}; choose another folder or remove it")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"--out {folder}: is not empty; choose a new or empty folder")


def check_same(folder: Path, config: Config) -> None:
    """Refuses a folder that holds anything else than a run of these settings, begun or ended."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: exists and is not a folder")
    if not folder.exists():
        return
    if not (folder / CONFIG).exists():
        # A run that was killed as it began, or that has lost its settings.
        if any(p.name not in OWN and not is_temporary(p) for p in folder.iterdir()):
            raise InputError(f"--out {folder}: is not empty; choose a new or empty folder")
        return
    with contextlib.suppress(InputError):  # a manifest that is corrupted says nothing of the settings
        if read_manifest(folder) is not None and not is_sound(folder, CONFIG):
            return  # corrupted: said, and written again, once its other files say that it is this run
    there, asked = (_flat(c) for c in (load_stored(folder / CONFIG), config))
    if changes := [f"{name} {there[name]}, not {asked[name]}" for name in there if there[name] != asked[name]]:
        raise InputError(
            f"--out {folder}: already holds a run of other settings ({'; '.join(changes)}); choose another folder"
        )


def _flat(config: Config) -> dict[str, Any]:
    return {name: value for part in to_dict(config).values() for name, value in part.items()}


def open_run(folder: Path, config: Config, data: Data, identity: str | None = None) -> None:
    """Makes the folder of a new run and writes what is known before training; `identity` is its model's.

    Files of others may lie there, but none that a run has.
    """
    if taken := [name for name in OWN if os.path.lexists(folder / name)]:
        raise InputError(f"--out {folder}: holds {min(taken)} already; choose another folder or remove it")
    try:
        make_folder(folder, parents=True)
        write_beginning(folder, config, data, identity)
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error


def write_beginning(folder: Path, config: Config, data: Data, identity: str | None = None) -> None:
    """Writes what is known before training, where it is not there as it was written; `identity` is the model's."""
    channels, *space = data.train.field_shape
    fields: dict[str, Any] = {"channels": channels, "space": space, "digest": data.digest}
    if identity is not None:
        fields["identity"] = identity
    if (units := data.train.units) is not None:
        fields |= {"names": data.names, "axes": data.axes, "offset": units.offset, "scale": units.scale}
    files: dict[str, Callable[[], bytes]] = {
        CONFIG: lambda: to_yaml(config).encode(),
        VERSIONS: lambda: _json_bytes(describe_machine()),
        FIELDS: lambda: _json_bytes(fields | _described(input_range(data.train))),
    }
    if data.run_mask is not None:
        files[MASK] = lambda: _npy_bytes(np.asarray(data.run_mask))
    # Begun by another version, and without a model yet.
    is_earlier = is_sound(folder, FIELDS) and not is_sound(folder, MODEL) and identity_of(folder) != identity
    for name, content in files.items():
        if (is_earlier and name == FIELDS) or not is_sound(folder, name):
            if (folder / name).exists() and not is_sound(folder, name):
                print(f"crossreg: {folder / name}: is corrupted; written again", file=sys.stderr)
            with recorded(folder, name) as file:
                file.write(content())


def _described(known: InputRange) -> dict[str, Any]:
    values = known._asdict().items()  # tuples become lists
    return {f"input_{name}": value for name, value in values if value is not None}


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def _npy_bytes(array: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    return written.getvalue()


def reopen(folder: Path, digest: str, identity: str) -> None:
    """Looks at what an earlier process has left in the folder of a run: what is corrupted is said, and made again."""
    there = [name for name in (*_STORED, TEST_FIELDS) if (folder / name).exists()]
    try:
        if read_manifest(folder) is None and there:  # of an older version: taken as it is
            vouch(folder, *there)
    except InputError as error:
        print(f"crossreg: {error}; what cannot be checked is made again", file=sys.stderr)
        # With a manifest that has nothing else in it, nothing else counts.
        begin_again(folder, *([MODEL] if is_sealed(folder / MODEL, identity) else []))
    entered = read_manifest(folder) or {}
    for name in (MODEL, HISTORY, METRICS, TEST_FIELDS):  # the others are said where they are written
        if name in entered and (folder / name).exists() and not is_sound(folder, name):
            print(f"crossreg: {folder / name}: is corrupted; made again", file=sys.stderr)
    if (folder / MODEL).exists() and (sealed := seal_or_none(folder / MODEL)) not in (None, "-", identity):
        raise InputError(f"--out {folder}: holds a run of other settings or data ({sealed}); choose another folder")
    if is_sound(folder, FIELDS) and (stored := _read_fields(folder).digest) != digest:
        raise InputError(f"--out {folder}: its run has other data ({stored[:12]}) than there are now ({digest[:12]})")


def final_metrics(
    model: Surrogate, data: Data, config: Config, *, progress: bool = False, folder: Path | None = None
) -> dict[str, Any]:
    """Scores on test, reg and train, and σ per site: what `crossreg evaluate` prints. Not finite becomes None.

    Where test has times that train has not, `test_times` has the scores within those of train and beyond them apart.

    In the `folder` of a run that was just trained, `progress.json` says meanwhile how far it is.
    """
    predictor = SurrogatePredictor(model, config.train.evaluation_samples)
    splits = {"test": data.test, "reg": data.reg, "train": data.train}
    there = {name: pairs for name, pairs in splits.items() if int(pairs.num_pairs)}
    asked = config.train.scored_pairs

    def most(pairs: AbstractPairs) -> int | None:
        return SCORED_PAIRS if asked is None and pairs.in_files else asked

    # Where test goes beyond the times of train, it is scored once more, in two parts.
    twice = [data.test] if trained_steps(data, config.data) else []
    total = sum(min(int(p.num_pairs), most(p) or int(p.num_pairs)) for p in [*there.values(), *twice])
    with CountDisplay("pairs scored", enabled=progress, folder=folder, steps=config.train.steps) as display:
        jobs = ((predictor, pairs) for pairs in there.values())
        how: dict[str, Any] = {"progress": display.adder(total), "most_pairs": most}
        scores = dict(zip(there, evaluate_all(jobs, **how), strict=True))
        by_time = scores_by_time(predictor, data, config.data, **how)
    found = {name: scores.get(name) for name in splits} | {"sigma": sigma_per_site(model)}
    return finite_or_none(found if by_time is None else found | {"test_times": by_time})


def check_scored(folder: Path) -> None:
    """Refuses a run of which a file is corrupted that tables, figures and pages read."""
    check_files(folder, [CONFIG, VERSIONS, METRICS], growing=[HISTORY])


def read_metrics(folder: Path) -> dict[str, Any]:
    """The scores that a run was given when it was trained."""
    check_files(folder, [METRICS])
    metrics = read_json(folder / METRICS, "the scores of a run")
    if not isinstance(metrics, dict):
        raise InputError(f"{folder / METRICS}: not readable (no object); expected the scores of a run")
    return with_current_names(metrics)


def diverged_at(folder: Path) -> int:
    """The step at which a run diverged, or −1."""
    try:
        last = read_regular(folder / HISTORY).splitlines()[-1]
        return int(json.loads(last)["diverged_at"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return -1


def scored_name(folder: Path) -> str:
    """What a table calls a run: one that diverged says so there."""
    step = diverged_at(folder)
    return folder.resolve().name + (f" (diverged at step {step})" if step >= 0 else "")


def finite_or_none(value: Any) -> Any:
    """Nested lists and dictionaries with None in place of NaN and infinities, which JSON has not."""
    if isinstance(value, dict):
        return {key: finite_or_none(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Run(NamedTuple):
    """A trained run: its settings, its model, and the fields it was trained on.

    `axes` are the letters of the axes in the file of its own data, as far as they are known.
    """

    config: Config
    model: Surrogate
    channels: int
    space: tuple[int, ...]
    mask: Bool[np.ndarray, "*space"] | None
    digest: str
    input_range: InputRange | None = None
    axes: str = ""

    def load_data(self, path: Path | None = None) -> Data:
        """The run's own splits; own data that have moved are at `path`. Others than it was trained on are refused."""
        config = self.config.data
        if path is not None:
            if config.data is None:
                raise InputError(f"--data {path}: the run was trained on the scenario {config.scenario}")
            config = dataclasses.replace(config, data=str(path))
        # What the run stored of its fields decides how they are read, not what a file without names may mean.
        stored = (self.channels, *self.space)
        data = load_config(config, stored)
        if data.digest != self.digest and config.data is not None:
            if is_known_by_sample(config, self.digest, stored):
                said = "the run is of a version that knew large data by a sample of fields; the others are not compared"
                print(f"crossreg: {config.data}: {said}", file=sys.stderr)
                return data
            raise InputError(f"{config.data}: holds other data than the run was trained on; give theirs as --data PATH")
        if data.digest != self.digest:
            raise InputError(
                f"the run was trained on other data ({self.digest[:12]}) than this machine's cache holds"
                f" ({data.digest[:12]}); copy the cached file of the training machine"
            )
        return data


class _Fields(NamedTuple):
    """What a run says of the fields that it was trained on."""

    channels: int
    space: tuple[int, ...]
    digest: str
    units: Units | None
    names: tuple[str, ...]
    input_range: InputRange | None
    axes: str
    identity: str | None


def identity_of(folder: Path) -> str | None:
    """What the seals of a run's files must say; None for a run of an older version."""
    return _read_fields(folder).identity


def channel_names(folder: Path) -> tuple[str, ...]:
    """The names of the channels of a run's own data; none of a scenario's."""
    return _read_fields(folder).names


def _read_fields(folder: Path) -> _Fields:
    path = folder / FIELDS
    fields = read_json(path, "what `crossreg train` writes")
    try:
        channels, space, digest = fields["channels"], tuple(fields["space"]), fields["digest"]
        sizes = all(type(size) is int and 0 < size < 2**31 for size in (channels, *space))
        if sizes and channels <= _MOST_CHANNELS and 1 <= len(space) <= 3 and isinstance(digest, str):
            names = tuple(in_one_line(str(name)) for name in fields.get("names", ()))
            units, axes = units_in(fields, channels), str(fields.get("axes", ""))
            return _Fields(
                channels,
                space,
                digest,
                units,
                names,
                stored_range(fields, channels, units),
                axes,
                fields.get("identity"),
            )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: not readable ({error}); expected channels, space and digest") from error
    raise InputError(f"{path}: expected channels, one to three sizes in space, and a digest that is text")


def units_in(fields: dict[str, Any], channels: int) -> Units | None:
    """The units that a description gives the fields of own data; those that cannot be are a `ValueError`."""
    if "scale" not in fields:
        return None
    offset, scale = (tuple(map(float, fields[name])) for name in ("offset", "scale"))
    finite = all(math.isfinite(value) for value in (*offset, *scale))
    if len(offset) != channels or len(scale) != channels or not finite or min(scale) <= 0:
        raise ValueError("offset and scale need a finite number for each channel, scales one above 0")
    return Units(offset, scale)


def load_run(folder: Path | str) -> Run:
    """Reads a trained run. Its data are not needed, and not read."""
    folder = Path(folder)
    check_is_folder(folder)
    if not (folder / CONFIG).exists():
        inside = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
        hint = f"; the folders {', '.join(inside)} in it do" if inside else ""
        if (folder / "sweep.json").exists():
            hint = "; it is a sweep: `crossreg table` shows its scores, `crossreg extract` makes a run of a model"
        raise InputError(f"{folder}: holds no run ({CONFIG} is missing){hint}")
    check_files(folder, [CONFIG])
    config = load_stored(folder / CONFIG)
    if not (folder / MODEL).exists():
        raise InputError(f"{folder}: its training has not finished ({MODEL} is missing)")
    check_files(folder, [FIELDS, MASK, MODEL])
    channels, space, digest, units, _, known_range, axes, identity = _read_fields(folder)
    mask = None
    if config.data.mask_per == "run":
        mask = check_mask(
            read_array(folder / MASK, "the run's mask", follow_links=False),
            space,
            str(folder / MASK),
            "the run's fields",
        )
    like = model_like(config.model, channels + config.data.mask_channel, (channels, *space), units)
    model = load_model(folder / MODEL, like, identity=identity)
    return Run(config, model, channels, space, mask, digest, known_range, axes)
