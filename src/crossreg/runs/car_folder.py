"""The folder of a car run: what its files are called, and how they are written.

config.yaml          every setting; versions.json says what it ran on
summary.json         scores of every method on the test cars, in the data's units (`car_summary`)
test_cars.npz        the test cars, one behind the other
predictions/*.npz    mean and standard deviations on them, of the first seed
history/*.jsonl      losses, scores on reg and σ per site while training, of the first seed
models/*.npz         the trained arrays; the same command on the same folder takes them as they are
manifest.json        the SHA-256 of each of them (`runs/manifest.py`)
snapshots/           what a killed training goes on from (`runs/snapshots.py`); lock keeps a second process out
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from crossreg.designs.car_study import CarStudy, methods_of, settings_of, study_of
from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.files.whole import is_temporary
from crossreg.files.yaml_files import parse_settings
from crossreg.progress.progress_file import PROGRESS
from crossreg.runs.locks import LOCK
from crossreg.runs.manifest import (
    MANIFEST,
    begin_again,
    is_sound,
    read_manifest,
    record_json,
    recorded,
    vouch,
)
from crossreg.runs.older_names import with_current_names
from crossreg.runs.snapshots import SNAPSHOTS
from crossreg.runs.versions import describe_machine

SETTINGS, SUMMARY, VERSIONS, TEST_CARS = "config.yaml", "summary.json", "versions.json", "test_cars.npz"
PREDICTIONS, HISTORY, MODELS = "predictions", "history", "models"
_SUFFIXES = (".json", ".jsonl", ".npz")
_MOST_SHOWN = 4  # settings that differ


def _text(study: CarStudy) -> str:
    return yaml.safe_dump(settings_of(study), sort_keys=False)


def check_folder(folder: Path, study: CarStudy) -> CarStudy | None:
    """The study that a folder holds, if it may go on as this one; None if it holds none.

    It may where nothing but the methods differs: those of both are then run.
    """
    try:
        names = {path.name for path in folder.iterdir() if not is_temporary(path)} if folder.exists() else set()
        if not names - {LOCK, MANIFEST}:
            return None
        # Where settings are corrupted, its other files say that it is a car experiment.
        lost = TEST_CARS in names and _is_harmed(folder, SETTINGS)
        stored = None if lost else stored_study(folder)
    except (OSError, InputError):
        raise InputError(
            f"--out {folder}: holds something else than this experiment; choose a new or empty folder"
        ) from None
    stored = _recovered(folder, study) if stored is None else stored
    if differ := _differences(stored, study):
        more = len(differ) - _MOST_SHOWN
        shown = ", ".join(differ[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
        raise InputError(f"--out {folder}: holds an experiment with other settings: {shown}; choose a new folder")
    return stored


def _recovered(folder: Path, study: CarStudy) -> CarStudy:
    """The study of a folder whose settings were corrupted: its summary has them too, and the manifest their digest."""
    if is_sound(folder, SUMMARY):
        return study_of(json.loads(read_regular(folder / SUMMARY))["settings"])
    if hashlib.sha256(_text(study).encode()).hexdigest() in (read_manifest(folder) or {}).get(SETTINGS, []):
        return study
    raise InputError(f"--out {folder}: its {SETTINGS} is corrupted, and had other settings than these; give its own")


def stored_study(folder: Path) -> CarStudy:
    """The settings of the car experiment in a folder."""
    path = folder / SETTINGS
    try:
        return study_of(parse_settings(read_regular(path), str(path)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path}: not the settings of a car experiment; expected what `crossreg car` writes"
        ) from error


def _differences(stored: CarStudy, study: CarStudy) -> list[str]:
    """The settings in which two studies differ, methods aside, with both values."""
    pairs = [
        (name, old, settings_of(study)[group][name])
        for group, values in settings_of(stored).items()
        for name, old in values.items()
    ]
    return [f"{name} is {old}, now {new}" for name, old, new in pairs if name != "methods" and old != new]


def with_both_methods(stored: CarStudy, study: CarStudy) -> CarStudy:
    """The study with the methods that a folder has, and behind them those that it has not."""
    has, asked = ([method.name for method in methods_of(one)] for one in (stored, study))
    both = [*has, *(name for name in asked if name not in has)]
    return study if both == asked else study.replace(methods=",".join(both))


def is_newer(path: Path, other: Path) -> bool:
    """Whether a file is there and was made after another."""
    return path.exists() and path.stat().st_mtime_ns >= other.stat().st_mtime_ns


def is_car_folder(folder: Path) -> bool:
    """Whether a folder is one of `crossreg car`."""
    return (folder / TEST_CARS).exists()


def _is_harmed(folder: Path, name: str) -> bool:
    """Whether a good manifest says that a file is not as it was written."""
    try:
        return name in (read_manifest(folder) or {}) and not is_sound(folder, name)
    except InputError:
        return False


def open_folder(folder: Path, study: CarStudy) -> None:
    """Writes what is known before training, and looks at what an earlier process has left."""
    try:
        there = [path for path in folder.rglob("*") if path.is_file() and path.suffix in (".yaml", *_SUFFIXES)]
        names = [name for p in there if (name := p.relative_to(folder).as_posix()) not in (MANIFEST, PROGRESS)]
        names = [name for name in names if not name.startswith(SNAPSHOTS)]
        try:
            if read_manifest(folder) is None and names:  # of an older version: taken as it is
                vouch(folder, *names)
        except InputError as error:
            print(f"crossreg: {error}; what cannot be checked is made again", file=sys.stderr)
            begin_again(folder)
        if not is_sound(folder, SETTINGS):
            write_settings(folder, study)
        if not is_sound(folder, VERSIONS):  # of what has trained here, whoever goes on
            record_json(folder, VERSIONS, describe_machine())
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write here ({error.strerror})") from error


def write_settings(folder: Path, study: CarStudy) -> None:
    """Says what the folder is of; once it has more methods than before, when these are scored."""
    with recorded(folder, SETTINGS) as file:
        file.write(_text(study).encode())


def finished_summary(folder: Path, study: CarStudy, methods: Sequence[str]) -> dict[str, Any] | None:
    """The summary of a folder, if all that it holds is whole, of these settings, and has these methods."""
    if not is_sound(folder, SUMMARY):
        return None
    summary = with_current_names(json.loads(read_regular(folder / SUMMARY)))
    if summary["settings"] != json.loads(json.dumps(settings_of(study))) or {*methods} - {*summary["methods"]}:
        return None
    names = [*(read_manifest(folder) or ()), *(f"{PREDICTIONS}/{name}.npz" for name in summary["methods"])]
    return summary if all(is_sound(folder, name) for name in names) else None


# Where the figures of a folder are, in it, unless another place is named.
FIGURES = "figures"
