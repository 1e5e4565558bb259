"""The folder where data and compiled programs are kept between runs."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Return `CROSSREG_CACHE` if it is set, or else the user's cache folder."""
    if folder := os.environ.get("CROSSREG_CACHE"):
        return Path(folder)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "crossreg"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crossreg"
