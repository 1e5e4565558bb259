"""The folder of a car experiment: its settings and its summary.

config.yaml          every setting
versions.json        packages and device
summary.json         scores of every method on the test cars, in the data's units (`cars/summary.py`)
test_cars.npz        the test cars, one after the other
predictions/*.npz    mean and standard deviations on them, of the first seed
history/*.jsonl      losses, scores on reg and σ per site while training, of the first seed
models/*.npz         the trained arrays, which the same command on the same folder uses again
manifest.json        the SHA-256 of each of them (`runs/safeguards/manifest.py`)
snapshots/           what a killed training resumes from (`runs/safeguards/snapshots.py`)
lock                 keeps a second process out (`runs/safeguards/locks.py`)
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from crossreg.designs.car_study import CarStudy, methods_of, settings_of, study_of
from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.files.whole import is_temporary, writing_to
from crossreg.files.yaml_files import parse_settings
from crossreg.progress.progress_file import PROGRESS
from crossreg.runs.file_names import CONFIG, LOCK, MANIFEST, PREDICTIONS, SNAPSHOTS, SUMMARY, TEST_CARS, VERSIONS
from crossreg.runs.older_names import with_current_names
from crossreg.runs.safeguards.manifest import adopt, is_sound, read_manifest, record_json, recorded
from crossreg.runs.safeguards.versions import describe_machine

_SUFFIXES = (".yaml", ".json", ".jsonl", ".npz")
_MOST_SHOWN = 4  # settings that differ


def _text(study: CarStudy) -> str:
    return yaml.safe_dump(settings_of(study), sort_keys=False)


def check_folder(folder: Path, study: CarStudy) -> CarStudy | None:
    """Check that a folder may be used for a study.

    Args:
        folder: The folder, which need not exist.
        study: The study that is asked for.

    Returns:
        The study that the folder holds; None if it holds none.

    Raises:
        InputError: If it holds anything else, or a study that differs in more than its methods.
    """
    try:
        names = {path.name for path in folder.iterdir() if not is_temporary(path)} if folder.exists() else set()
        if not names - {LOCK, MANIFEST}:
            return None
        # Where the settings are corrupted, the other files show that it is a car experiment.
        is_lost = TEST_CARS in names and _is_corrupted(folder, CONFIG)
        stored = None if is_lost else stored_study(folder)
    except (OSError, InputError):
        raise InputError(
            f"out {folder}: holds something other than this experiment; choose a new or empty folder"
        ) from None
    stored = stored or _recovered(folder, study)
    if differ := _differences(stored, study):
        more = len(differ) - _MOST_SHOWN
        shown = ", ".join(differ[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
        raise InputError(f"out {folder}: holds an experiment with other settings: {shown}; choose a new folder")
    return stored


def _recovered(folder: Path, study: CarStudy) -> CarStudy:
    """Return the study of a folder whose settings are corrupted, from its summary or from their digest."""
    if is_sound(folder, SUMMARY):
        return study_of(json.loads(read_regular(folder / SUMMARY))["settings"])
    if hashlib.sha256(_text(study).encode()).hexdigest() in (read_manifest(folder) or {}).get(CONFIG, []):
        return study
    raise InputError(
        f"out {folder}: its {CONFIG} is corrupted, and its settings were not these; give the same as before"
    )


def stored_study(folder: Path) -> CarStudy:
    """Read the settings of the car experiment in a folder."""
    path = folder / CONFIG
    try:
        return study_of(parse_settings(read_regular(path), str(path)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path}: not the settings of a car experiment; expected what `crossreg car` writes"
        ) from error


def _differences(stored: CarStudy, study: CarStudy) -> list[str]:
    """Return the settings in which two studies differ, methods aside, with both values."""
    old, new = ({k: v for part in settings_of(one).values() for k, v in part.items()} for one in (stored, study))
    return [f"{k} is {v}, now {new[k]}" for k, v in old.items() if k != "methods" and v != new[k]]


def with_both_methods(stored: CarStudy, study: CarStudy) -> CarStudy:
    """Return the study with the methods that a folder has, followed by those that are new."""
    has, asked = ([method.name for method in methods_of(one)] for one in (stored, study))
    both = list(dict.fromkeys([*has, *asked]))
    return study if both == asked else study.replace(methods=",".join(both))


def is_newer(path: Path, other: Path) -> bool:
    """Return whether a file is there and was made after another."""
    return path.exists() and path.stat().st_mtime_ns >= other.stat().st_mtime_ns


def _is_corrupted(folder: Path, name: str) -> bool:
    """Return whether a good manifest says that a file is not as it was written."""
    try:
        return name in (read_manifest(folder) or {}) and not is_sound(folder, name)
    except InputError:
        return False


def open_folder(folder: Path, study: CarStudy) -> None:
    """Check what an earlier process has left, and write what is known before training."""
    with writing_to(f"out {folder}"):
        there = [path for path in folder.rglob("*") if path.is_file() and path.suffix in _SUFFIXES]
        names = [name for p in there if (name := p.relative_to(folder).as_posix()) not in (MANIFEST, PROGRESS)]
        adopt(folder, [name for name in names if not name.startswith(SNAPSHOTS)])
        if not is_sound(folder, CONFIG):
            write_settings(folder, study)
        if not is_sound(folder, VERSIONS):  # of the machine that began to train, whichever resumes
            record_json(folder, VERSIONS, describe_machine())


def write_settings(folder: Path, study: CarStudy) -> None:
    """Write the settings; after an experiment with more methods than before, once these are scored."""
    with recorded(folder, CONFIG) as file:
        file.write(_text(study).encode())


def finished_summary(folder: Path, study: CarStudy, methods: Sequence[str]) -> dict[str, Any] | None:
    """Return the summary of a folder that holds these settings and methods, if none of its files is corrupted."""
    if not is_sound(folder, SUMMARY):
        return None
    summary = with_current_names(json.loads(read_regular(folder / SUMMARY)))
    if summary["settings"] != json.loads(json.dumps(settings_of(study))) or {*methods} - {*summary["methods"]}:
        return None
    names = [*(read_manifest(folder) or ()), *(f"{PREDICTIONS}/{name}.npz" for name in summary["methods"])]
    return summary if all(is_sound(folder, name) for name in names) else None
