"""`crossreg figures`: every figure of the paper that a folder can give.

a sweep             curves over what varies with intervals, Std_ω[μ], a montage for each method, the triplet over the
                    regimes, losses, σ per site, maps
a run               calibration, losses, σ per site, maps
a folder of runs    the same for each, and side by side (a quickstart is one)
a car experiment    surfaces, roofline, σ per site, calibration, methods
"""

import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.errors import InputError
from crossreg.metrics.calibration import LEVELS
from crossreg.report.car_figures import draw_car_figures
from crossreg.report.figures import (
    Drawing,
    Fields,
    calibration_curves,
    calibration_panels,
    draw_all,
    in_order,
    space_time_maps,
)
from crossreg.report.sweep_figures import drawings_of_rows, losses, sigma_over_steps
from crossreg.studies.archive import Archive
from crossreg.studies.grids import Point
from crossreg.studies.manifest import check_files
from crossreg.studies.run_folder import CONFIG, HISTORY, METRICS, MODEL, TEST_FIELDS, check_scored, read_metrics
from crossreg.studies.sweep import trainings_of
from crossreg.studies.sweep_fields import load_sweep_fields
from crossreg.studies.sweep_folder import PLAN, asked_rows, load_points, point_key
from crossreg.studies.test_fields import StoredFields, load_run_fields

_SUMMARY, _TEST_CARS = "summary.json", "test_cars.npz"
# More curves than this in one plot are not told apart.
_MOST_SIDE_BY_SIDE = 6


def draw_figures(folder: Path, out: Path | None = None, *, progress: bool = True) -> list[Path]:
    """Draws what a folder allows into `out`, by default its folder `figures`; returns the files."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    out = folder / "figures" if out is None else out
    runs = [path.parent for path in sorted(folder.glob(f"*/{CONFIG}"))]
    if (folder / PLAN).exists():
        return sweep_figures(folder, out, progress=progress)
    if (folder / _TEST_CARS).exists():
        if not (folder / _SUMMARY).exists():
            raise InputError(f"{folder}: its car experiment has not finished ({_SUMMARY} is missing)")
        _make(out)
        return draw_car_figures(folder, out, progress=progress)
    if (folder / CONFIG).exists():
        return _draw(_of_run(folder, out, "", progress=progress), out, progress=progress)
    if runs:
        return _draw(_of_runs(runs, out, progress=progress), out, progress=progress)
    raise InputError(f"{folder}: holds neither a run, nor folders of runs, nor a sweep, nor a car experiment")


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: cannot write here ({error.strerror})") from error


def _draw(drawings: Sequence[Drawing], out: Path, *, progress: bool) -> list[Path]:
    _make(out)
    return draw_all(drawings, progress=progress)


def sweep_figures(folder: Path, out: Path, *, progress: bool = False) -> list[Path]:
    """Draws what the rows, the histories and the trained models of a sweep allow; returns the files."""
    rows, _ = asked_rows(folder)
    if not rows:
        raise InputError(f"{folder}: holds no finished point of a sweep")
    digest = json.loads((folder / PLAN).read_text())["data"]
    points = load_points(folder)
    drawings: list[Drawing] = drawings_of_rows(rows, out)
    drawings += _curves_of_sweep(points, Archive(folder), digest, out)
    by_key = {point_key(point, digest): point for point in points}
    ours = [row for row in rows if row["method"] == "xreg"]
    fields = load_sweep_fields(folder, ours, progress=progress)
    for key, stored in fields.by_key.items():
        title = f"xreg, {_title(by_key[key])}"
        drawings.append(functools.partial(_maps, stored, out / f"maps_xreg_{_name(by_key[key])}", title))
    for reason in dict.fromkeys(fields.missing.values()):
        print(f"crossreg: maps are left out: {reason}", file=sys.stderr)
    return _draw(drawings, out, progress=progress)


def _curves_of_sweep(points: Sequence[Point], archive: Archive, digest: str, out: Path) -> list[Drawing]:
    """Losses and σ of points that are one plain training each."""
    regimes: dict[str, dict[str, list[Point]]] = {}
    for point in points:
        if len(point.configs) == 1 and not point.method.wrapped:
            regimes.setdefault(_name(point), {}).setdefault(point.method.name, []).append(point)
    drawings: list[Drawing] = []
    for name, methods in regimes.items():
        keys = {m: [trainings_of(p)[0][0].key(digest) for p in ps] for m, ps in methods.items()}
        histories = {m: [h for k in ks if k in archive and (h := archive.history(k))] for m, ks in keys.items()}
        pair = {m: histories[m] for m in ("xreg", "unregularized") if histories.get(m)}
        if pair:
            drawings.append(functools.partial(losses, pair, out / f"losses_{name}"))
        for method, seeds in histories.items():
            if seeds and seeds[0][0]["sigma"]:
                drawings.append(functools.partial(sigma_over_steps, seeds, out / f"sigma_{method}_{name}"))
    return drawings


def _of_run(folder: Path, out: Path, ending: str, *, progress: bool, alone: bool = True) -> list[Drawing]:
    """The figures of one run; what it has not come to yet is left out."""
    check_scored(folder)
    history = read_history(folder / HISTORY)
    name = folder.resolve().name
    drawings: list[Drawing] = []
    if alone and history:
        drawings.append(functools.partial(losses, {name: [history]}, out / "losses"))
    if history and history[0]["sigma"]:
        drawings.append(functools.partial(sigma_over_steps, [history], out / f"sigma{ending}"))
    if alone and (scores := _scores(folder)):
        drawings.append(functools.partial(calibration_panels, {name: [scores]}, out / "calibration"))
    if (folder / TEST_FIELDS).exists() or (folder / MODEL).exists():
        try:
            stored = load_run_fields(folder, progress=progress)
            title = f"{name}, test trajectory {stored.trajectories[0]}"
            drawings.append(functools.partial(_maps, stored, out / f"maps{ending}", title))
        except InputError as error:
            print(f"crossreg: maps are left out: {error}", file=sys.stderr)
    if alone and not drawings:
        raise InputError(f"{folder}: has nothing to draw yet; {HISTORY}, {METRICS} and {MODEL} are missing")
    return drawings


def _of_runs(folders: Sequence[Path], out: Path, *, progress: bool) -> list[Drawing]:
    """The figures of several runs, side by side and each on its own."""
    by_name = {folder.name: folder for folder in folders}
    folders = [by_name[name] for name in in_order(by_name)]
    for folder in folders:
        check_scored(folder)
    scores = {f.name: found for f in folders if (found := _scores(f))}
    histories = {f.name: [found] for f in folders if (found := read_history(f / HISTORY))}
    drawings: list[Drawing] = []
    if scores:
        every = scores | {n: s for n, s in _references(folders[0].parent).items() if n not in scores}
        few = dict(list(every.items())[:_MOST_SIDE_BY_SIDE])
        drawings.append(functools.partial(calibration_curves, few, out / "calibration"))
        for start in range(0, len(scores), 3):
            panels = {name: [scores[name]] for name in list(scores)[start : start + 3]}
            number = f"_{start // 3 + 1}" if len(scores) > 3 else ""
            drawings.append(functools.partial(calibration_panels, panels, out / f"calibration_splits{number}"))
    # The paper's pair where both are there: more lines would hide what it shows.
    pair = {name: histories[name] for name in ("xreg", "unregularized") if name in histories}
    shown = pair if len(pair) == 2 else dict(list(histories.items())[:_MOST_SIDE_BY_SIDE])
    if shown:
        drawings.append(functools.partial(losses, shown, out / "losses"))
    for folder in folders:
        drawings += _of_run(folder, out, f"_{folder.name}", progress=progress, alone=False)
    if not drawings:
        raise InputError(f"{folders[0].parent}: its runs have nothing to draw yet")
    return drawings


def _maps(stored: StoredFields, path: Path, title: str) -> list[Path]:
    """Maps of the first stored trajectory, a line through it where a field has more than one dimension."""
    fields = Fields(stored.steps, *(getattr(stored, name)[0] for name in Fields._fields[1:]))
    return space_time_maps(fields, path, title=title)


def read_history(path: Path) -> list[dict[str, Any]]:
    """The history of a run; a line that is being written is left out."""
    try:
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        if all({"step", "train_loss", "reg_nll", "sigma"} <= line.keys() for line in lines):
            return lines
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: not readable ({error}); expected one JSON object per line") from error
    raise InputError(f"{path}: a line has no step, train_loss, reg_nll or sigma; expected the history of a run")


def _scores(folder: Path) -> dict[str, Any] | None:
    """What `metrics.json` holds, or None before a run has been scored."""
    path = folder / METRICS
    if not path.exists():
        return None
    metrics = read_metrics(folder)
    try:
        return _checked(metrics)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not readable ({error!r}); expected the scores of a run") from error


def _references(folder: Path) -> dict[str, Any]:
    """The scores of what is not trained and has no folder, where a quickstart has written them."""
    path = folder / _SUMMARY
    if not path.exists():
        return {}
    check_files(folder, [_SUMMARY])
    try:
        summary = json.loads(path.read_text())
        return {name: _checked(scores) for name, scores in (summary["methods"] | summary["references"]).items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not readable ({error!r}); expected the summary of a quickstart") from error


def _checked(scores: dict[str, Any]) -> dict[str, Any]:
    """Scores whose coverage can be drawn on every split that was scored."""
    for split in ("test", "reg", "train"):
        if scores[split] is not None:
            coverage = np.asarray(scores[split]["coverage"], float)
            if coverage.shape != (len(LEVELS),):
                raise ValueError(f"{split} has coverage at {coverage.size} levels, not {len(LEVELS)}")
            if scores[split]["ece_mix"] is not None:
                float(scores[split]["ece_mix"])
    return scores


def _title(point: Point) -> str:
    """A regime in words."""
    data = point.config.data
    return f"{data.observed_fraction:g} observed, {data.train_size} trajectories, test trajectory 0"


def _name(point: Point) -> str:
    """A regime as part of a file name."""
    data = point.config.data
    others = [f"{k}-{v}" for k, v in point.changes.items() if k not in ("observed_fraction", "train_size", "one_pool")]
    return "_".join([f"observed-{data.observed_fraction:g}", f"train-{data.train_size}", *others])
