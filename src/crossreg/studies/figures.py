"""`crossreg figures`: every figure that a sweep's folder can give."""

from pathlib import Path

from crossreg.data.apebench import load_trajectories
from crossreg.errors import InputError
from crossreg.metrics.evaluation import SurrogatePredictor, evaluation_key, score_points
from crossreg.report.figures import space_time_maps
from crossreg.report.sweep_figures import figures_of_rows, losses, sigma_over_steps
from crossreg.studies.grids import Point
from crossreg.studies.programs import Archive
from crossreg.studies.sweep import asked_rows, load_points, trainings_of


def sweep_figures(folder: Path, out: Path) -> list[Path]:
    """Draws what the rows, the histories and the trained models of a sweep allow; returns the files."""
    rows, _ = asked_rows(folder)
    if not rows:
        raise InputError(f"{folder}: holds no finished point of a sweep")
    out.mkdir(parents=True, exist_ok=True)
    written = figures_of_rows(rows, out)
    archive = Archive(folder)
    trajectories = load_trajectories(load_points(folder)[0].config.data)
    # The first member of each point, of points that are one plain training each.
    regimes: dict[str, dict[str, list[Point]]] = {}
    for point in load_points(folder):
        if len(point.configs) == 1 and not point.method.wrapped:
            regimes.setdefault(_name(point), {}).setdefault(point.method.name, []).append(point)
    for name, methods in regimes.items():
        keys = {m: [trainings_of(p)[0][0].key(trajectories.digest) for p in points] for m, points in methods.items()}
        histories = {m: [archive.history(key) for key in ks if key in archive] for m, ks in keys.items()}
        pair = {m: histories[m] for m in ("xreg", "unregularized") if histories.get(m)}
        if pair:
            written += losses(pair, out / f"losses_{name}")
        for method, seeds in histories.items():
            if seeds and seeds[0][0]["sigma"]:
                written += sigma_over_steps(seeds, out / f"sigma_{method}_{name}")
        first = keys.get("xreg", [""])[0]
        if first in archive and trajectories.test.ndim == 4:
            channels, *space = trajectories.train.shape[2:]
            [[training]] = trainings_of(methods["xreg"][0])
            model = archive.model(first, channels, tuple(space))
            predictor = SurrogatePredictor(model, training.config.train.evaluation_samples)
            test = training.data(trajectories).test.of([0])
            points = score_points(predictor, test, key=evaluation_key(0))
            written += space_time_maps(points, out / f"maps_xreg_{name}", title=f"xreg, {_title(methods['xreg'][0])}")
    return written


def _title(point: Point) -> str:
    """A regime in words."""
    data = point.config.data
    return f"{data.observed_fraction:g} observed, {data.train_size} trajectories, test trajectory 0"


def _name(point: Point) -> str:
    """A regime as part of a file name."""
    data = point.config.data
    others = [f"{k}-{v}" for k, v in point.changes.items() if k not in ("observed_fraction", "train_size", "one_pool")]
    return "_".join([f"observed-{data.observed_fraction:g}", f"train-{data.train_size}", *others])
