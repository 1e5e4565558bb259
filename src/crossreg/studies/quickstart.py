"""`make quickstart`: XReg, MC dropout and the unregularized model side by side, in under 3 minutes.

Trains all three on `diff_ks` (0.7 observed, 50 trajectories), prints their scores beside persistence, and
writes run folders, `summary.json` and figures.
"""

import json
import shlex
import shutil
import sys
from pathlib import Path

from crossreg.config import Config
from crossreg.data.pairs import load_data
from crossreg.errors import InputError
from crossreg.methods import TRAINED
from crossreg.methods.persistence import fit_persistence
from crossreg.metrics.evaluation import SurrogatePredictor, evaluate_all, evaluation_key, score_points
from crossreg.report.tables import scores_table, sigma_lines
from crossreg.studies.manifest import MANIFEST, entered, record_json
from crossreg.studies.presets import QUICKSTART_STEPS
from crossreg.studies.run_folder import METRICS, TEST_FIELDS, final_metrics, finite_or_none, scored_name
from crossreg.studies.test_fields import compute_test_fields, write_test_fields
from crossreg.studies.train import train_side_by_side

_SUMMARY = "summary.json"
_METHODS = ("xreg", "dropout", "unregularized")
_SCANNED = 3  # test trajectories that are looked through for where a model is wrong: all 30 would take half a minute
_FIGURES = ("calibration", *(f"maps_{name}" for name in _METHODS))


def start_afresh(folder: Path) -> None:
    """Removes what an earlier quickstart wrote, and refuses a folder that holds anything else."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: exists and is not a folder")
    figures = {f"{name}{ending}" for name in _FIGURES for ending in (".png", ".pdf")}
    present = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if foreign := present - {*_METHODS, _SUMMARY, MANIFEST, "figures", "report.html", *figures}:
        raise InputError(f"--out {folder}: holds {min(foreign)}, which no quickstart wrote; choose another folder")
    for name in present:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def quickstart(folder: Path, *, steps: int = QUICKSTART_STEPS, progress: bool = True, as_json: bool = False) -> None:
    """Runs the comparison into `folder`; prints its scores as a table, or as JSON."""
    base = Config().replace(steps=steps, evaluate_every=max(1, min(1000, steps // 10)))
    configs = {name: TRAINED[name](base) for name in _METHODS}
    data = load_data(base.data)
    start_afresh(folder)
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
        with entered(folders[name], TEST_FIELDS) as entry:
            write_test_fields(folders[name] / TEST_FIELDS, fields, announce=entry)
    key = evaluation_key(0)

    def persistence(knows_mask: bool):
        predictor = fit_persistence(data.train, knows_mask=knows_mask)
        splits = {"test": data.test, "reg": data.reg, "train": data.train}
        scores = evaluate_all((predictor, pairs) for pairs in splits.values())
        return finite_or_none(dict(zip(splits, scores, strict=True)))

    methods["persistence"] = persistence(knows_mask=False)
    # What a method would score that predicts nothing but knows the mask, which the network is not told.
    references = {"persistence-masked": persistence(knows_mask=True)}

    from crossreg.report.figures import calibration_curves, space_time_maps

    written = calibration_curves(methods | references, folder / "calibration")
    first = data.test.of([0])
    for name, model in models.items():
        points = score_points(SurrogatePredictor(model, base.train.evaluation_samples), first, key=key)
        written += space_time_maps(points, folder / f"maps_{name}", title=f"{name}, test trajectory 0")
    summary = {"methods": methods, "references": references}
    record_json(folder, _SUMMARY, summary)
    if as_json:
        print(json.dumps(summary, allow_nan=False))
        return
    print(scores_table({scored_name(folders[n]) if n in folders else n: m for n, m in (methods | references).items()}))
    print(sigma_lines(methods["xreg"]["sigma"]))
    print("persistence repeats the (masked) input with one σ; persistence-masked also knows which points are hidden")
    print(f"scores: {folder / _SUMMARY}; `crossreg report {shlex.quote(str(folder))}` makes a page of it")
    print("figures:", ", ".join(str(path) for path in written if path.suffix == ".png"))
