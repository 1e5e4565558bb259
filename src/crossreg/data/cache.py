"""Trajectories on disk: generated once, read everywhere.

A chaotic system in float32 gives other trajectories at another batch size, so a set is made
once, at its largest, and sliced. A cached file is named after what was asked for, not after
the versions that made it: copied to a machine without the generator it is found there and is
enough. Its content hash is checked whenever it is read.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from crossreg.data.trajectories import Trajectories, digest
from crossreg.errors import InputError
from crossreg.files import replacing


def cache_folder() -> Path:
    """`CROSSREG_CACHE` if set, else the user's cache folder."""
    if folder := os.environ.get("CROSSREG_CACHE"):
        return Path(folder)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "crossreg"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "crossreg" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crossreg"


def load_or_generate(name: str, generate: Callable[[], Trajectories]) -> Trajectories:
    """The cached trajectories called `name`, generated and stored first if they are not there."""
    path = cache_folder() / f"{name}.npz"
    if path.exists():
        try:
            return read(path)
        except InputError as error:
            print(f"crossreg: {error}; generating it again", file=sys.stderr)
    trajectories = generate()
    write(path, trajectories)
    return trajectories


def write(path: Path, trajectories: Trajectories) -> None:
    """Writes a cache file in one move: a reader sees all of it or nothing."""
    header = json.dumps({"digest": trajectories.digest, "origin": trajectories.origin}, sort_keys=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, train=trajectories.train, test=trajectories.test, header=np.array(header))
    except OSError as error:
        raise InputError(f"{path.parent}: cannot store the data here ({error.strerror}); set CROSSREG_CACHE") from error


def read(path: Path) -> Trajectories:
    """Reads a cache file and checks its content hash."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            train, test = file["train"], file["test"]
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"{path}: not a readable trajectory cache ({error})") from error
    if digest(train, test) != header["digest"]:
        raise InputError(f"{path}: its content does not match its hash")
    return Trajectories(train, test, header["origin"], header["digest"])
