"""Readers of files in run folders, shared by `crossreg report` and `crossreg watch`.

A run folder may come from anybody: a file may be of another version, half written, or something else by that name. So
these functions take bytes or parsed values, check them, and return nothing in place of an error. Opening a file is left
to the caller, and follows no links: `files/regular.py` for the report, `watch/inside.py` for the server.
"""

import ast
import functools
from collections.abc import Mapping
from typing import Any

from crossreg.config import Config, from_dict
from crossreg.errors import InputError
from crossreg.methods.names import parse_method
from crossreg.methods.xreg import VARIANTS
from crossreg.progress.history import number, parsed, whole
from crossreg.runs.kinds import sections_of

OWN_SETTINGS = "own settings"
SECONDS_OF_SILENCE = 120.0  # after which a process that has not touched its `progress.json` counts as killed
DEPTH = 6  # folders below the one that was named
# The most particular ones first: with `xreg`, rollouts are a further setting.
_XREG = ("xreg-rollout", "xreg", *(f"xreg-{word}" for word in VARIANTS), "xreg-internal-mm")
_KNOWN = (*_XREG, "unregularized", "fixed-noise")


def method_of(config: Config) -> str:
    """Return the name by which a sweep would call the method with these settings, or `own settings`."""
    if config.model.feature_noise == "dropout":
        return f"dropout-{config.model.dropout_rate:g}" if config.model.dropout_rate != 0.1 else "dropout"
    return next((name for name in _KNOWN if parse_method(name).configs(config)[0] == config), OWN_SETTINGS)


def method_of_settings(settings: Mapping[str, dict[str, Any]]) -> str:
    """Return the method of a `config.yaml`, from the settings in which methods differ."""
    train = {
        k: v for k, v in settings.get("train", {}).items() if k in ("train_samples", "reg_horizon", "reg_objective")
    }
    try:
        return _method_of_text(repr(settings.get("model", {})), repr(train))
    except ValueError:
        return OWN_SETTINGS  # a whole number of thousands of digits


# Thousands of runs share a few methods, and checking settings takes time.
@functools.lru_cache(maxsize=512)
def _method_of_text(model: str, train: str) -> str:
    try:
        return method_of(from_dict({"model": ast.literal_eval(model), "train": ast.literal_eval(train)}))
    except (InputError, ValueError, SyntaxError, RecursionError, MemoryError):
        return OWN_SETTINGS  # of another version: the curve and the scores may still be read


def trainings_in(text: bytes) -> dict[str, dict[str, Any]]:
    """Return the trainings of a `trained/*.json` by their keys."""
    items = parsed(text)
    items = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return {item["key"]: item for item in items if isinstance(item.get("key"), str)}


def training_name(training: Mapping[str, Any]) -> str:
    """Return a training in words: its regime, its seed, and its number in an ensemble."""
    config = sections_of(training.get("config"))
    data, seed = config.get("data", {}), whole(config.get("train", {}).get("seed"))
    fraction, size = number(data.get("observed_fraction")), whole(data.get("train_size"))
    if fraction is None or size is None or seed is None:
        return training["key"][:8]
    member = whole(training.get("member"))
    return f"{fraction:g} observed, {size} trajectories, seed {seed}" + (f", member {member}" if member else "")
