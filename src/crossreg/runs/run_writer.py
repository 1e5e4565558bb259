"""Writing the folder of a run: whether it may be used, what is known before training, and what a kill has left.

The results of training are written where they are made (`studies/train.py`), each listed in the manifest.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.config import Config, all_settings, load_stored, to_yaml
from crossreg.data.dataset import Data
from crossreg.errors import InputError
from crossreg.files.sealed import is_sealed, seal_or_none
from crossreg.files.whole import check_not_file, is_temporary, json_bytes, make_folder, writing_to
from crossreg.progress.progress_file import PROGRESS
from crossreg.runs.file_names import (
    CONFIG,
    FIELDS,
    HISTORY,
    LOCK,
    MANIFEST,
    MASK,
    METRICS,
    MODEL,
    SNAPSHOTS,
    TEST_FIELDS,
    VERSIONS,
)
from crossreg.runs.input_range import described_range, input_range
from crossreg.runs.run_folder import read_fields
from crossreg.runs.safeguards.manifest import adopt, is_sound, read_manifest, recorded
from crossreg.runs.safeguards.versions import describe_machine

_STORED = (CONFIG, HISTORY, METRICS, MODEL, FIELDS, MASK, VERSIONS, TEST_FIELDS)
OWN = {*_STORED, MANIFEST, LOCK, SNAPSHOTS, PROGRESS}


def check_free(folder: Path, argument: str = "out") -> None:
    """Raise InputError if a folder holds a run, or anything else: nothing is ever overwritten."""
    check_not_file(folder)
    if (folder / CONFIG).exists():
        state = "a run" if (folder / MODEL).exists() else "an unfinished run"
        raise InputError(f"{argument} {folder}: already holds {state}; choose another folder or remove it")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{argument} {folder}: is not empty; choose a new or empty folder")


def check_same(folder: Path, config: Config) -> None:
    """Raise InputError if a folder holds anything but a run of these settings, begun or finished."""
    check_not_file(folder)
    if not folder.exists():
        return
    if not (folder / CONFIG).exists():
        # A run that was killed as it began, or that has lost its settings.
        if any(p.name not in OWN and not is_temporary(p) for p in folder.iterdir()):
            raise InputError(f"out {folder}: is not empty; choose a new or empty folder")
        return
    with contextlib.suppress(InputError):  # a corrupted manifest says nothing about the settings
        if read_manifest(folder) is not None and not is_sound(folder, CONFIG):
            return  # corrupted settings: reported and written again, once the other files show that it is this run
    there, asked = (all_settings(c) for c in (load_stored(folder / CONFIG), config))
    if changes := [f"{name} {there[name]}, not {asked[name]}" for name in there if there[name] != asked[name]]:
        raise InputError(
            f"out {folder}: already holds a run of other settings ({'; '.join(changes)}); choose another folder"
        )


def open_run(folder: Path, config: Config, data: Data, identity: str | None = None) -> None:
    """Make the folder of a new run, and write what is known before training.

    Args:
        folder: The folder. It may hold files of others, but none by the name of a file of a run.
        config: The settings of the run.
        data: The splits of the run.
        identity: The identity in the seals of the run's files.
    """
    if taken := [name for name in OWN if os.path.lexists(folder / name)]:
        raise InputError(f"out {folder}: holds {min(taken)} already; choose another folder or remove it")
    with writing_to(f"out {folder}"):
        make_folder(folder, parents=True)
        write_beginning(folder, config, data, identity)


def write_beginning(folder: Path, config: Config, data: Data, identity: str | None = None) -> None:
    """Write settings, versions, the description of the fields and the mask, where they are missing or corrupted."""
    channels, *space = data.train.field_shape
    fields: dict[str, Any] = {"channels": channels, "space": space, "digest": data.digest}
    if identity is not None:
        fields["identity"] = identity
    if (units := data.train.units) is not None:
        fields |= {"names": data.names, "axes": data.axes, "offset": units.offset, "scale": units.scale}
    files: dict[str, Callable[[], bytes]] = {
        CONFIG: lambda: to_yaml(config).encode(),
        VERSIONS: lambda: json_bytes(describe_machine()),
        FIELDS: lambda: json_bytes(fields | described_range(input_range(data.train))),
    }
    if data.run_mask is not None:
        files[MASK] = lambda: _npy_bytes(np.asarray(data.run_mask))
    # Begun by another version, and without a model yet.
    is_earlier = is_sound(folder, FIELDS) and not is_sound(folder, MODEL) and read_fields(folder).identity != identity
    for name, content in files.items():
        if (is_earlier and name == FIELDS) or not is_sound(folder, name):
            if (folder / name).exists() and not is_sound(folder, name):
                print(f"crossreg: {folder / name}: is corrupted; written again", file=sys.stderr)
            with recorded(folder, name) as file:
                file.write(content())


def _npy_bytes(array: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    return written.getvalue()


def reopen(folder: Path, digest: str, identity: str) -> None:
    """Check what an earlier process has left in the folder of a run.

    Corrupted files are reported; they are made again later.

    Args:
        folder: The folder of the run.
        digest: The digest of the data.
        identity: The identity in the seals of the run's files.

    Raises:
        InputError: If the folder holds a run of other settings or data.
    """
    there = [name for name in _STORED if (folder / name).exists()]
    adopt(folder, there, lambda: [MODEL] if is_sealed(folder / MODEL, identity) else [])
    listed = read_manifest(folder) or {}
    for name in (MODEL, HISTORY, METRICS, TEST_FIELDS):  # the others are reported where they are written again
        if name in listed and (folder / name).exists() and not is_sound(folder, name):
            print(f"crossreg: {folder / name}: is corrupted; made again", file=sys.stderr)
    if (folder / MODEL).exists() and (sealed := seal_or_none(folder / MODEL)) not in (None, "-", identity):
        raise InputError(f"out {folder}: holds a run of other settings or data ({sealed}); choose another folder")
    if is_sound(folder, FIELDS) and (stored := read_fields(folder).digest) != digest:
        raise InputError(f"out {folder}: its run was trained on other data ({stored[:12]}) than these ({digest[:12]})")
