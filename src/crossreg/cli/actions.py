"""The actions of the commands that read what was trained, called with their parsed flags.

Each imports what it needs, JAX included.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossreg.cli import commands
from crossreg.cli.flags import in_flags, quoted_in_flags
from crossreg.errors import InputError


def evaluate(command: commands.Evaluate) -> None:
    """Score a run again."""
    from crossreg.runs.file_names import SUMMARY
    from crossreg.runs.final_scores import final_metrics
    from crossreg.runs.kinds import kind_of
    from crossreg.runs.run_folder import load_run

    if kind_of(command.folder) == "cars":
        where = command.folder / SUMMARY
        raise InputError(f"{command.folder}: is a car experiment; its scores are in {where} and on its page, car.html")
    run = load_run(command.folder)
    metrics = final_metrics(run.model, run.load_data(command.data), run.config, progress=not command.quiet)
    print_scores(command.folder, metrics, as_json=command.json)


def print_scores(folder: Path, metrics: dict[str, Any], *, as_json: bool) -> None:
    from crossreg.report.tables.scores import channel_table, decomposition_table, scores_table, sigma_lines, times_text
    from crossreg.runs.run_folder import channel_names, scored_name

    if as_json:
        print(json.dumps(metrics, allow_nan=False))
        return
    print(scores_table({scored_name(folder): metrics}))
    print(decomposition_table(metrics))
    if metrics.get("test_times"):
        print(times_text(metrics["test_times"]))
    if channels := channel_table(metrics, channel_names(folder)):
        print(channels)
    if metrics["sigma"]:
        print(sigma_lines(metrics["sigma"]))


def data(command: commands.DataFiles) -> None:
    """Describe the trajectories in a user's files."""
    from crossreg.data.files.check import check_data
    from crossreg.report.data_check import check_picture, check_text, draw_check

    check_picture(command.picture)
    found = check_data(command.path, field=command.field, axes=command.axes)
    draw_check(found, command.picture)
    said = {part: [quoted_in_flags(text) for text in found.summary[part]] for part in ("warnings", "notes")}
    summary = found.summary | said
    print(
        json.dumps(summary, allow_nan=False) if command.json else quoted_in_flags(check_text(summary, command.picture))
    )


def predict(command: commands.Predict) -> None:
    """Apply a run to the fields of a file, or a car experiment to cars."""
    from crossreg.runs.kinds import kind_of
    from crossreg.runs.prediction import predict_file
    from crossreg.runs.run_folder import load_run

    if kind_of(command.folder) == "cars":
        _predict_cars(command)
        return
    if command.method is not None:
        raise InputError(
            f"--method {command.method}: is for car experiments, which have several methods; {command.folder} is not"
            " one"
        )
    arrays = predict_file(
        load_run(command.folder),
        command.input,
        command.output,
        levels=command.levels,
        mask_file=command.mask,
        no_mask=command.no_mask,
        progress=not command.quiet,
    )
    _print_arrays(command.output, arrays)


def rollout(command: commands.Rollout) -> None:
    """Forecast the test trajectories of a run, or the fields of a file."""
    from crossreg.report.tables.forecasts import lead_table
    from crossreg.runs.forecasting import STEPS, forecast_file, forecast_test, of_single_steps
    from crossreg.runs.kinds import kind_of
    from crossreg.runs.run_folder import load_run

    if kind_of(command.folder) == "cars":
        raise InputError(f"{command.folder}: is a car experiment, whose predictions are not steps in time")
    run = load_run(command.folder)
    steps = command.steps
    how: dict[str, Any] = {"leads": _leads(command.leads), "particles": command.particles}
    how |= {"progress": not command.quiet}
    if command.input is None:
        for name in ("output", "samples", "mask", "no_mask"):
            if getattr(command, name):
                raise InputError(f"`{name}`: needs `input`, the file of the fields to forecast")
        if command.levels != commands.Rollout.levels:
            raise InputError("`levels`: needs `input`; the scores of test trajectories have levels of their own")
        scores, beyond = forecast_test(command.folder, run, data=command.data, steps=steps, **how)
        steps = scores["steps"]
        print(json.dumps(scores, allow_nan=False) if command.json else lead_table(scores))
    else:
        for name in ("data", "json"):
            if getattr(command, name):
                raise InputError(f"`{name}`: is for the scores of test trajectories; a forecast of `input` has none")
        if command.output is None:
            raise InputError("`output`: name the NPZ file that the forecast is written to")
        steps = STEPS if steps is None else steps
        how |= {"mask_file": command.mask, "no_mask": command.no_mask, "levels": command.levels}
        arrays = forecast_file(run, command.input, command.output, steps=steps, samples=command.samples, **how)
        _print_arrays(command.output, arrays)
        beyond = ""
    for warning in filter(None, (of_single_steps(run, steps), beyond)):
        print(f"crossreg: {in_flags(warning)}", file=sys.stderr)


def _print_arrays(output: Path, arrays: Mapping[str, Any]) -> None:
    print(f"{output}: {', '.join(f'{name} {array.shape}' for name, array in arrays.items())}")


def _leads(text: str | None) -> list[int] | None:
    """Return the leads that a flag lists."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"leads is {text}: expected whole numbers separated by commas, as in 1,10,50") from None


def _predict_cars(command: commands.Predict) -> None:
    from crossreg.cars.prediction import DEFAULT, predict_car_file

    if command.mask is not None or command.no_mask:
        raise InputError(
            f"--mask and --no-mask: {command.folder} is a car experiment, where every point of a car is observed"
        )
    arrays = predict_car_file(
        command.folder,
        command.input,
        command.output,
        method=command.method or DEFAULT,
        levels=command.levels,
        progress=not command.quiet,
    )
    _print_arrays(command.output, arrays)


def export(command: commands.Export) -> None:
    """Write a run as files that need no crossreg."""
    from crossreg.export.write import export_run

    if command.samples is not None and command.samples < 1:
        raise InputError(f"samples is {command.samples}: must be at least 1")
    about = export_run(
        command.folder,
        command.output,
        seed=command.seed,
        num_samples=command.samples,
        levels=command.levels,
        mask_input=command.mask_input,
        progress=not command.quiet,
    )
    if command.json:
        print(json.dumps(about, allow_nan=False))
        return
    for file, apart in about["largest_difference"].items():
        said = "not checked: onnxruntime is not installed"
        if apart is not None:
            said = f"within {max(apart.values()):.1e} of `crossreg predict`"
        print(f"{command.output / file}: {said}")
    print(f"{command.output / 'README.md'} says how to call them")


def table(command: commands.Table) -> None:
    """Print and write the table of a sweep."""
    from crossreg.report.tables.write import write_tables
    from crossreg.runs.sweep_folder import all_rows, asked_rows

    every = all_rows(command.folder)
    rows, total = (every, len(every)) if command.all else asked_rows(command.folder)
    text = write_tables(rows, command.folder, missing=total - len(rows), width=terminal_width())
    if command.json:
        print("\n".join(json.dumps(row, allow_nan=False) for row in rows))
        return
    print(text)
    if len(every) > len(rows):
        print(f"{len(every) - len(rows)} more rows of earlier sweeps are in the folder; --all shows them too")


def terminal_width() -> int | None:
    """Return the width of the terminal, or None if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def figures(command: commands.Figures) -> None:
    """Draw the figures of a folder."""
    from crossreg.report.figures.write import draw_figures

    for path in draw_figures(command.folder, command.out, trajectory=command.trajectory, progress=not command.quiet):
        print(path)


def report(command: commands.Report) -> None:
    """Write the report of a folder."""
    from crossreg.report.page.write import write_report

    print(write_report(command.folder, command.output, progress=not command.quiet))


def extract(command: commands.Extract) -> None:
    """Make a run folder of one model of a sweep."""
    from crossreg.studies.sweep.extract import extract

    metrics = extract(
        command.folder,
        command.out,
        method=command.method,
        seed=command.seed,
        where=command.where,
        progress=not command.quiet,
    )
    print_scores(command.out, metrics, as_json=command.json)


def watch(command: commands.Watch) -> None:
    """Serve the page that follows training runs."""
    from crossreg.report.watch.server import watch

    watch(command.folder, host=command.host, port=command.port, open_browser=command.open)
