"""`crossreg quickstart`: XReg, MC dropout and an unregularized model side by side, in under 3 minutes.

Trains all three on `diff_ks` (0.7 observed, 50 trajectories), prints their scores beside persistence, and writes run
folders, `summary.json` and figures.
"""

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossreg.config import Config, to_yaml
from crossreg.data.dataset import Data
from crossreg.data.keys import evaluation_key
from crossreg.data.load import load_config
from crossreg.designs.presets import QUICKSTART_STEPS
from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.files.whole import check_not_file
from crossreg.methods.names import config_of
from crossreg.metrics.evaluation import evaluate_all, point_scores
from crossreg.predictors.persistence import fit_persistence
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.progress.progress_file import PROGRESS
from crossreg.report.tables.scores import scores_table, sigma_lines
from crossreg.runs.fields.stored_fields import write_run_fields
from crossreg.runs.fields.test_fields import compute_test_fields
from crossreg.runs.file_names import CONFIG, HISTORY, LOCK, MANIFEST, METRICS, PLAN, SUMMARY, TEST_FIELDS
from crossreg.runs.final_scores import final_metrics, finite_or_none
from crossreg.runs.run_folder import scored_name
from crossreg.runs.run_writer import OWN
from crossreg.runs.safeguards.locks import locked
from crossreg.runs.safeguards.manifest import claim, is_sound, read_manifest, record_json, recorded, vouch
from crossreg.studies.train import identity, train_side_by_side

_METHODS = ("xreg", "dropout", "unregularized")
_SCANNED = 3  # test trajectories that are searched for large errors: all 30 would take half a minute
_FIGURES = ("calibration", *(f"maps_{name}" for name in _METHODS))
_TOP = {SUMMARY, *(f"{name}{ending}" for name in _FIGURES for ending in (".png", ".pdf"))}
_NAMES = _TOP | {f"{method}/{name}" for method in _METHODS for name in OWN}


def start_afresh(folder: Path, configs: Mapping[str, Config]) -> None:
    """Remove what an earlier quickstart wrote, and claim the run folders of this one."""
    # Manifests and settings last: they say whose the other files are, so that an interrupted removal can be repeated.
    for name in sorted(check_own(folder), key=lambda name: (name.endswith((MANIFEST, CONFIG)), name.endswith(CONFIG))):
        (folder / name).unlink()
    # Settings are listed before they are written, so that an interrupted quickstart can be replaced.
    claim(folder, {f"{name}/{CONFIG}": to_yaml(config).encode() for name, config in configs.items()})


def check_own(folder: Path) -> list[str]:
    """Return the names of all files that an earlier quickstart left in a folder: those that its manifest lists.

    Other files stay untouched.

    Raises:
        InputError: If a file has a name that a quickstart would write, or makes the folder a run or a sweep, but is not
            listed; or if a listed file was changed.
    """
    listed = read_manifest(folder) or {}
    foreign = {name for name in (CONFIG, PLAN) if os.path.lexists(folder / name)}
    foreign |= {name for name in _METHODS if (folder / name).is_symlink() or (folder / name).is_file()}
    if not _NAMES.issuperset(listed):
        foreign.add(MANIFEST)
    held = {name for name in _NAMES if os.path.lexists(folder / name)}
    if foreign := foreign or held - _written(folder, listed):
        raise InputError(
            f"--out {folder}: holds {min(foreign)}, which no quickstart wrote; remove it or choose another folder"
        )
    return sorted(held)


def _written(folder: Path, listed: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names of the files that a quickstart wrote and that are unchanged."""
    own = {name for name in listed if is_sound(folder, name)}
    if SUMMARY in listed:
        return own
    # It was interrupted: the manifests of its runs list their files, some of which still grow.
    for run in _METHODS:
        begun = set(listed.get(f"{run}/{CONFIG}", ()))
        stored = (read_manifest(folder / run) if begun else None) or {}
        if begun & set(stored.get(CONFIG, ())):
            sound = [name for name in stored if is_sound(folder / run, name)]
            own |= {f"{run}/{name}" for name in (*sound, MANIFEST, HISTORY, PROGRESS)}
    return own


def quickstart(folder: Path, *, steps: int = QUICKSTART_STEPS, progress: bool = True, as_json: bool = False) -> None:
    """Run the comparison in `folder` and print its scores as a table, or as JSON."""
    base = Config().replace(steps=steps, evaluate_every=max(1, min(1000, steps // 10)))
    configs = {name: config_of(name, base) for name in _METHODS}
    check_not_file(folder)
    if not (folder / LOCK).exists():  # not even a lock is written into a folder of something else
        check_own(folder)
    data = load_config(base.data)
    with locked(folder, "quickstart", inside=_METHODS):
        start_afresh(folder, configs)
        _run(folder, base, configs, data, progress=progress, as_json=as_json)


def _run(folder: Path, base: Config, configs: dict[str, Config], data: Data, *, progress: bool, as_json: bool) -> None:
    """Train, score and draw in a locked folder without files of an earlier quickstart."""
    folders = {name: folder / name for name in configs}
    models = train_side_by_side(configs, dict.fromkeys(configs, data), folders, progress=progress)

    if progress:
        print("scoring and drawing …", file=sys.stderr, flush=True)
    methods = {}
    for name, model in models.items():
        methods[name] = final_metrics(model, data, configs[name], progress=progress, folder=folders[name])
        record_json(folders[name], METRICS, methods[name])
        predictor = SurrogatePredictor(model, base.train.evaluation_samples)
        fields = compute_test_fields(predictor, data.test, names=data.names, scanned=_SCANNED, progress=progress)
        write_run_fields(folders[name], TEST_FIELDS, fields, identity=identity(configs[name], data))
    key = evaluation_key(0)

    def persistence(knows_mask: bool):
        predictor = fit_persistence(data.train, knows_mask=knows_mask)
        splits = {"test": data.test, "reg": data.reg, "train": data.train}
        scores = evaluate_all((predictor, pairs) for pairs in splits.values())
        return finite_or_none(dict(zip(splits, scores, strict=True)))

    methods["persistence"] = persistence(knows_mask=False)
    # A reference that predicts nothing but knows the mask, which the networks are not given.
    references = {"persistence-masked": persistence(knows_mask=True)}

    from crossreg.report.figures.drawing import calibration_curves, space_time_maps

    written = _draw(calibration_curves, methods | references, folder / "calibration")
    first = data.test.of([0])
    for name, model in models.items():
        points = point_scores(SurrogatePredictor(model, base.train.evaluation_samples), first, key=key)
        written += _draw(space_time_maps, points, folder / f"maps_{name}", title=f"{name}, test trajectory 0")
    summary = {"methods": methods, "references": references}
    vouch(folder, *(f"{run}/{name}" for run in folders for name in (*(read_manifest(folder / run) or ()), MANIFEST)))
    record_json(folder, SUMMARY, summary)
    if as_json:
        print(json.dumps(summary, allow_nan=False))
        return
    print(scores_table({scored_name(folders[n]) if n in folders else n: m for n, m in (methods | references).items()}))
    print(sigma_lines(methods["xreg"]["sigma"]))
    print("persistence repeats the (masked) input with one σ; persistence-masked also knows which points are hidden")
    print(f"scores: {folder / SUMMARY}; `crossreg report {shlex.quote(str(folder))}` makes a page of it")
    print("figures:", ", ".join(str(path) for path in written if path.suffix == ".png"))


def _draw(drawing: Callable[..., list[Path]], what: Any, path: Path, **how: Any) -> list[Path]:
    """Draw in a temporary folder, then move each file into place after it was listed, so that a kill leaves no gap."""
    with tempfile.TemporaryDirectory(prefix="crossreg-") as place:
        drawn = drawing(what, Path(place) / path.name, **how)
        for made in drawn:
            with recorded(path.parent, made.name) as file:
                file.write(read_regular(made))
    return [path.parent / made.name for made in drawn]
