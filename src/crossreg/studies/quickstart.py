"""`make quickstart`: XReg, MC dropout and the unregularized model side by side, in under 3 minutes.

Trains all three on `diff_ks` (0.7 observed, 50 trajectories), prints their scores beside persistence, and
writes run folders, `summary.json` and figures.
"""

import shutil
from pathlib import Path

from crossreg.config import Config
from crossreg.data.pairs import load_data
from crossreg.errors import InputError
from crossreg.methods import TRAINED
from crossreg.methods.persistence import fit_persistence
from crossreg.metrics.evaluation import SurrogatePredictor, evaluation_key, score_points, summarize
from crossreg.report.tables import scores_table, sigma_lines
from crossreg.studies.run_folder import close_run, final_metrics, write_json
from crossreg.studies.train import train_side_by_side

STEPS = 8_000
_MARK = "summary.json"


def start_afresh(folder: Path) -> None:
    """Removes an earlier quickstart; refuses to remove anything else."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists() and not (folder / "xreg" / "config.yaml").exists():
            raise InputError(f"--out {folder}: is not empty and holds no quickstart; choose another folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def quickstart(folder: Path, *, steps: int = STEPS, progress: bool = True) -> None:
    """Runs the comparison into `folder`."""
    start_afresh(folder)
    base = Config().replace(steps=steps)
    configs = {name: TRAINED[name](base) for name in ("xreg", "dropout", "unregularized")}
    data = load_data(base.data)
    folders = {name: folder / name for name in configs}
    models = train_side_by_side(configs, dict.fromkeys(configs, data), folders, progress=progress)

    methods = {}
    for name, model in models.items():
        methods[name] = final_metrics(model, data, configs[name])
        close_run(folders[name], model, methods[name])
    key = evaluation_key(0)
    for name, knows_mask in (("persistence", False), ("persistence-masked", True)):
        predictor = fit_persistence(data.train, knows_mask=knows_mask)
        methods[name] = {
            split: summarize(score_points(predictor, pairs, key=key))
            for split, pairs in (("test", data.test), ("reg", data.reg))
        }

    from crossreg.report.figures import calibration_curves, space_time_maps

    written = calibration_curves(methods, folder / "calibration")
    first = data.test.only(0)
    for name, model in models.items():
        points = score_points(SurrogatePredictor(model, base.train.num_samples), first, key=key)
        written += space_time_maps(points, folder / f"maps_{name}", title=f"{name}, test trajectory 0")
    write_json(folder / _MARK, {"methods": methods})

    print(scores_table(methods))
    print(sigma_lines(methods["xreg"]["sigma"]))
    print("persistence repeats the (masked) input with one σ; persistence-masked also knows which points are hidden")
    print(f"scores: {folder / _MARK}")
    print("figures:", ", ".join(str(path) for path in written if path.suffix == ".png"))
