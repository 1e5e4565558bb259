"""Test fields of a sweep: for the first seed of some methods and regimes, from the stored models.

test_fields/KEY.npz   as in a run folder, by the key of the row

They are computed when a report or figures first need them. A sweep may have hundreds of rows, so only a few are chosen:
every method in the first regime, then `xreg`, or else the first method, in the other regimes. Of these rows, only a few
test trajectories are searched for the fields to show.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossreg.data.dataset import Data
from crossreg.data.trajectories import Trajectories
from crossreg.designs.grids import Trial
from crossreg.errors import InputError
from crossreg.files.sealed import seal_or_none
from crossreg.files.whole import make_folder
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.predictors.persistence import fit_persistence
from crossreg.predictors.predictor import Predictor
from crossreg.progress.display import CountDisplay
from crossreg.runs.archive import Archive
from crossreg.runs.fields.stored_fields import StoredFields, read_stored_fields, write_stored_fields
from crossreg.runs.fields.test_fields import compute_test_fields
from crossreg.runs.programs import data_of
from crossreg.runs.sweep_folder import data_digest, load_trials, trial_key
from crossreg.studies.sweep.scoring import shared_trajectories, trainings_of

FIELDS_FOLDER = "test_fields"
_SCANNED = 2  # test trajectories
_TRAJECTORIES = 2
MOST = 6


class SweepFields(NamedTuple):
    """The fields of chosen rows, by their keys, and for rows without fields the reason."""

    by_key: dict[str, StoredFields]
    missing: dict[str, str]


def load_sweep_fields(folder: Path, rows: Sequence[Mapping[str, Any]], *, progress: bool = False) -> SweepFields:
    """Read the fields of at most `MOST` of the rows; compute and store missing ones from the models and the data."""
    digest = data_digest(folder)
    trials = {trial_key(trial, digest): trial for trial in load_trials(folder)}
    keys = choose(trials, [row for row in rows if row["key"] in trials and not row["diverged"]], MOST)
    by_key: dict[str, StoredFields] = {}
    missing: dict[str, str] = {}
    trajectories, archive = None, None
    with CountDisplay("predicting test trajectories", enabled=progress) as display:
        for number, key in enumerate(keys):
            path = folder / FIELDS_FOLDER / f"{key}.npz"
            try:
                # A corrupted file of this row is reported; a file of another row is replaced.
                if path.exists() and seal_or_none(path) in (None, key):
                    by_key[key] = read_stored_fields(path, identity=key)
                else:
                    trajectories = trajectories or shared_trajectories(trials.values())
                    if trajectories.digest != digest:
                        raise InputError("the data have changed since the sweep was trained")
                    archive = archive or Archive(folder)
                    by_key[key] = _compute(trials[key], trajectories, archive, path)
            except InputError as error:
                missing[key] = str(error)
            display.update(number + 1, len(keys))
    return SweepFields(by_key, missing)


def choose(trials: Mapping[str, Trial], rows: Sequence[Mapping[str, Any]], most: int) -> list[str]:
    """Return the keys of at most `most` rows: of the first seed, every method in the first regime, then one method."""
    firsts: dict[tuple[str, str], str] = {}
    for row in rows:
        trial = trials[row["key"]]
        # The folder does not store what is fitted or chosen after training.
        if len(trial.configs) <= 1 and not trial.method.wrapped:
            firsts.setdefault((json.dumps(trial.changes, sort_keys=True, default=str), row["method"]), row["key"])
    regimes = list(dict.fromkeys(regime for regime, _ in firsts))
    methods = list(dict.fromkeys(method for _, method in firsts))
    ours = "xreg" if "xreg" in methods else next(iter(methods), "")
    wanted = [(regime, method) for regime in regimes[:1] for method in methods]
    wanted += [(regime, ours) for regime in regimes[1:]]
    return [firsts[place] for place in wanted if place in firsts][:most]


def _compute(trial: Trial, trajectories: Trajectories, archive: Archive, path: Path) -> StoredFields:
    data = data_of(trial.config, trajectories)
    predictor = _predictor(trial, data, trajectories.digest, archive)
    stored = compute_test_fields(predictor, data.test, names=data.names, trajectories=_TRAJECTORIES, scanned=_SCANNED)
    # In a read-only folder, or one that is a link, the fields are not stored but still used.
    with contextlib.suppress(OSError):
        make_folder(path.parent)
        write_stored_fields(path, stored, identity=path.stem)
    return stored


def _predictor(trial: Trial, data: Data, digest: str, archive: Archive) -> Predictor:
    """Return the predictor of a trial, as it was scored for its row; `digest` is that of the sweep's data."""
    if not trial.configs:
        return fit_persistence(data.train, knows_mask=trial.method.name.startswith("persistence-masked"))
    keys = [training.key(digest) for training in trainings_of(trial)[0]]
    if any(key not in archive for key in keys):
        raise InputError("its trained models are not in the folder")
    channels, *space = data.train.field_shape
    models = [archive.model(key, channels, tuple(space), data.train.units) for key in keys]
    return EnsemblePredictor(models, trial.config.train.evaluation_samples)
