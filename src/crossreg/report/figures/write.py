"""`crossreg figures`: all figures that a folder allows.

a sweep             curves over what varies with intervals, Std_ω[μ], a montage for each method, the triplet over the
                    regimes, losses, σ per site, maps
a run               calibration, losses, σ per site, maps
a folder of runs    the same for each, and side by side (a quickstart is such a folder)
a car experiment    surfaces, roofline, σ per site, calibration, methods

Parts of a folder of runs that are not drawn, such as sweeps and runs that cannot be read, are reported with the reason.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossreg.designs.grids import Trial
from crossreg.errors import InputError, say
from crossreg.files.whole import check_is_folder, check_no_link
from crossreg.report.cars.figures import draw_car_figures
from crossreg.report.figures.drawing import Drawing, draw_all
from crossreg.report.figures.run import MOST_SIDE_BY_SIDE, checked_scores, of_fields, of_run, of_runs
from crossreg.report.figures.sweep import drawings_of_rows
from crossreg.report.figures.training import losses, sigma_over_steps
from crossreg.report.page.folders import walk
from crossreg.runs.archive import Archive
from crossreg.runs.file_names import CONFIG, FIGURES, ROWS, SUMMARY, TEST_CARS
from crossreg.runs.kinds import kind_by, kind_of, read_sections
from crossreg.runs.sweep_folder import asked_rows, data_digest, load_trials, trial_key
from crossreg.studies.sweep.fields import load_sweep_fields
from crossreg.studies.sweep.scoring import trainings_of

_MOST_NAMED = 20


def draw_figures(
    folder: Path, out: Path | None = None, *, trajectory: int | None = None, progress: bool = True
) -> list[Path]:
    """Draw all figures that a folder allows.

    Args:
        folder: A run, a folder of runs, a sweep, or a car experiment.
        out: The folder for the figures, by default `figures` inside `folder`.
        trajectory: The test trajectory of the maps, by default the first that is stored.
        progress: Whether to show progress.

    Returns:
        The files.

    Raises:
        InputError: The folder has nothing to draw, or cannot be read or written.
    """
    check_is_folder(folder)
    if out is None:
        out = folder / FIGURES
        try:
            check_no_link(out)
        except OSError as error:
            raise InputError(f"{out}: {error.strerror}; choose another folder for the figures with `out`") from error
    kind = kind_of(folder)
    if kind == "sweep":
        return sweep_figures(folder, out, trajectory=trajectory, progress=progress)
    if kind == "cars":
        if not (folder / SUMMARY).exists():
            raise InputError(f"{folder}: its car experiment has not finished ({SUMMARY} is missing)")
        if trajectory is not None:
            raise InputError(f"trajectory is {trajectory}: {folder} is a car experiment, which has no trajectories")
        _make(out)
        return draw_car_figures(folder, out, progress=progress)
    if kind == "run":
        return _draw(of_run(folder, out, "", progress=progress, trajectory=trajectory), out, progress=progress)
    runs, skipped = _below(folder)
    if not runs:
        others = "".join(f"; {name}: {why}" for name, why in list(skipped.items())[:_MOST_NAMED])
        raise InputError(
            f"{folder}: holds neither a run, nor folders of runs, nor a sweep, nor a car experiment{others}"
        )
    drawings = of_runs(runs, out, skipped, progress=progress, trajectory=trajectory)
    written = _draw(drawings, out, progress=progress)
    _say(folder, [run.name for run in runs if run.name not in skipped], skipped, progress=progress)
    return written


def _below(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """Return the runs directly below a folder, and its other contents with the reason why they are not drawn."""
    runs: list[Path] = []
    skipped: dict[str, str] = {}
    for path, names in walk(folder):
        name = path.relative_to(folder).as_posix()
        own = f"`crossreg figures {path}` draws it"
        kind = kind_by(names, read_sections(path / CONFIG))
        if kind == "sweep":
            skipped[name] = f"a sweep; {own}"
        elif kind == "cars":
            finished = {SUMMARY, TEST_CARS} <= names
            skipped[name] = f"a car experiment; {own}" if finished else "a car experiment that has not finished"
        elif kind == "run" and path.parent == folder:
            runs.append(path)
        elif kind == "run":
            above = path.parent.relative_to(folder).as_posix()
            skipped[above] = f"a folder of runs; `crossreg figures {path.parent}` draws them"
    return runs, skipped


def _say(folder: Path, drawn: Sequence[str], skipped: Mapping[str, str], *, progress: bool) -> None:
    """Report which runs were drawn if `progress`, and in any case which were not."""

    def named(names: Sequence[str]) -> str:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(names[:_MOST_NAMED]) + more

    if progress:
        say(f"{folder}: runs drawn ({len(drawn)}): {named(drawn)}")
    if len(drawn) > MOST_SIDE_BY_SIDE:
        said = f"the first {MOST_SIDE_BY_SIDE} of {len(drawn)} runs are side by side: more could not be told apart"
        say(f"{folder}: {said}")
    for name, why in list(skipped.items())[:_MOST_NAMED]:
        say(f"not drawn: {name}: {why}")
    if len(skipped) > _MOST_NAMED:
        say(f"not drawn: {len(skipped) - _MOST_NAMED} more")


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"out {out}: cannot write here ({error.strerror})") from error


def _draw(drawings: Sequence[Drawing], out: Path, *, progress: bool) -> list[Path]:
    _make(out)
    return draw_all(drawings, progress=progress)


def sweep_figures(folder: Path, out: Path, *, trajectory: int | None = None, progress: bool = False) -> list[Path]:
    """Draw the figures that the rows, histories and trained models of a sweep allow; return the files."""
    rows = _scored_rows(folder)
    digest = data_digest(folder)
    trials = load_trials(folder)
    drawings: list[Drawing] = drawings_of_rows(rows, out)
    drawings += _curves_of_sweep(trials, Archive(folder), digest, out)
    by_key = {trial_key(trial, digest): trial for trial in trials}
    ours = [row for row in rows if row["method"] == "xreg"]
    fields = load_sweep_fields(folder, ours, progress=progress)
    for key, stored in fields.by_key.items():
        name = f"xreg, {_title(by_key[key])}"
        drawings += of_fields(stored, out, f"_xreg_{_name(by_key[key])}", name, trajectory)
    for reason in dict.fromkeys(fields.missing.values()):
        say(f"maps are left out: {reason}")
    return _draw(drawings, out, progress=progress)


def _scored_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a sweep with scores that can be drawn, and report how many have none."""
    found, _ = asked_rows(folder)
    if not found:
        raise InputError(f"{folder}: holds no finished trial of a sweep")
    rows = []
    for row in found:
        try:
            if isinstance(row["test"], dict):
                rows.append(row | checked_scores({split: row.get(split) for split in ("test", "reg", "train")}))
        except (KeyError, ValueError, TypeError):
            continue
    if not rows:
        raise InputError(f"{folder / ROWS}: none of its {len(found)} rows has test scores that could be drawn")
    if len(rows) < len(found):
        left = f"{len(found) - len(rows)} of {len(found)} rows have no test scores that could be drawn"
        say(f"{folder / ROWS}: {left}, and are left out")
    return rows


def _curves_of_sweep(trials: Sequence[Trial], archive: Archive, digest: str, out: Path) -> list[Drawing]:
    """Return drawings of losses and σ of trials without choices and wrappers, over the seeds that have not diverged.

    Of an ensemble it is the first member.
    """

    def history(trial: Trial) -> list[dict[str, Any]]:
        key = trainings_of(trial)[0][0].key(digest)
        lines = archive.history(key) if key in archive else []
        return [] if lines and lines[-1].get("diverged_at", -1) >= 0 else lines

    regimes: dict[str, dict[str, list[Trial]]] = {}
    for trial in trials:
        if len(trial.configs) == 1 and not trial.method.wrapped:
            regimes.setdefault(_name(trial), {}).setdefault(trial.method.name, []).append(trial)
    drawings: list[Drawing] = []
    for name, methods in regimes.items():
        histories = {m: [h for trial in own if (h := history(trial))] for m, own in methods.items()}
        pair = {m: histories[m] for m in ("xreg", "unregularized") if histories.get(m)}
        if pair:
            drawings.append(functools.partial(losses, pair, out / f"losses_{name}"))
        for method, seeds in histories.items():
            if seeds and seeds[0][0]["sigma"]:
                drawings.append(functools.partial(sigma_over_steps, seeds, out / f"sigma_{method}_{name}"))
    return drawings


def _title(trial: Trial) -> str:
    """Return a regime in words."""
    data = trial.config.data
    return f"{data.observed_fraction:g} observed, {data.train_size} trajectories"


def _name(trial: Trial) -> str:
    """Return a regime as part of a file name."""
    data = trial.config.data
    others = [
        f"{k}-{v}"
        for k, v in trial.changes.items()
        if k not in ("observed_fraction", "train_size", "one_pool", "rollout_steps")
    ]
    return "_".join([f"observed-{data.observed_fraction:g}", f"train-{data.train_size}", *others])
