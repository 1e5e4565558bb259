"""The action of each command, called with its parsed flags. Each imports what it needs, JAX included."""

import dataclasses
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from crossreg.cli.commands import (
    Car,
    DataFiles,
    Evaluate,
    Export,
    Extract,
    Figures,
    Plan,
    Predict,
    Quickstart,
    Report,
    Rollout,
    Sweep,
    Table,
    Train,
    Watch,
)
from crossreg.cli.flags import in_flags, plain, quoted_in_flags
from crossreg.config import OWN_DATA, Config, all_settings, load_yaml, to_dict
from crossreg.errors import InputError
from crossreg.runs.safeguards.saving import Saving

# Exit codes: more runs diverged than --max-diverged allows; jobs of workers failed, so that rows are missing.
DIVERGED, JOBS_FAILED = 4, 5


def _saving(command: Train | Sweep | Car) -> Saving:
    if not 0 <= command.max_diverged <= 1:
        raise InputError(f"--max-diverged {command.max_diverged}: must be a share of the runs, in [0, 1]")
    return Saving(command.save_every, command.force_resume).checked()


def _spread(command: Sweep | Car) -> None:
    """Train on as many devices as the command asks for."""
    from crossreg.machine.devices import use_devices

    use_devices(command.devices)


def _verdict(diverged: int, runs: int, command: Train | Sweep | Car) -> int:
    """Return the exit code for a number of diverged runs."""
    # Divide, not multiply: 29 / 100 == 0.29, but 0.29 * 100 < 29.
    if not diverged or diverged / runs <= command.max_diverged:
        return 0
    print(
        f"crossreg: {diverged} of {runs} runs diverged, more than --max-diverged {command.max_diverged:g}",
        file=sys.stderr,
    )
    return DIVERGED


def train(command: Train) -> int:
    """Train one run."""
    from crossreg.machine.devices import use_devices
    from crossreg.machine.hosts import all_or_none, in_company, is_writer, join_hosts

    named = (command.coordinator, command.num_processes, command.process_id)
    joins = command.distributed or named != (None, None, None)
    shares = command.data_parallel or joins
    if command.devices is not None and not shares:
        raise InputError(f"--devices {command.devices}: a run trains on one device, unless --data-parallel is given")
    saving = _saving(command)
    if joins:
        join_hosts(*named)
    with in_company():
        with all_or_none():
            use_devices(command.devices if shares else 1)
        from crossreg.runs.run_folder import diverged_at
        from crossreg.studies.train import follow_run, train_run
        from crossreg.training.parallel import ALONE, over_batches

        layout = over_batches() if shares else ALONE
        if not is_writer():
            follow_run(command.settings, layout)
            return 0
        metrics = train_run(command.settings, command.out, progress=not command.quiet, saving=saving, layout=layout)
    _print_scores(command.out, metrics, as_json=command.json)
    if not command.json:
        print(f"{command.out}: `crossreg report {shlex.quote(str(command.out))}` makes a page of it")
    return _verdict(int(diverged_at(command.out) >= 0), 1, command)


def evaluate(command: Evaluate) -> None:
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
    _print_scores(command.folder, metrics, as_json=command.json)


def _print_scores(folder: Path, metrics: dict[str, Any], *, as_json: bool) -> None:
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


def data(command: DataFiles) -> None:
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


def predict(command: Predict) -> None:
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
    print(f"{command.output}: {', '.join(f'{name} {array.shape}' for name, array in arrays.items())}")


def rollout(command: Rollout) -> None:
    """Forecast the test trajectories of a run, or the fields of a file."""
    from crossreg.report.tables.forecasts import lead_table
    from crossreg.runs.fields.forecast_fields import compute_forecast_fields, write_forecasts
    from crossreg.runs.forecasting import beyond_trained, forecast_file, of_single_steps, score_rollouts
    from crossreg.runs.kinds import kind_of
    from crossreg.runs.run_folder import load_run
    from crossreg.runs.safeguards.locks import locked

    if kind_of(command.folder) == "cars":
        raise InputError(f"{command.folder}: is a car experiment, whose predictions are not steps in time")
    run = load_run(command.folder)
    how = {"leads": _leads(command.leads), "particles": command.particles, "progress": not command.quiet}
    if command.input is None:
        for name in ("output", "samples", "mask", "no_mask"):
            if getattr(command, name):
                raise InputError(f"`{name}`: needs `input`, the file of the fields to forecast")
        if command.levels != Rollout.levels:
            raise InputError("`levels`: needs `input`; the scores of test trajectories have levels of their own")
        data = run.load_data(command.data)
        with locked(command.folder, "process"):  # two at a time would lose entries of the manifest
            scores = score_rollouts(run, data, steps=command.steps, **how)
            how = {"particles": command.particles, "progress": not command.quiet}
            stored = compute_forecast_fields(run, data, scores["steps"], **how)
            write_forecasts(command.folder, scores, stored)
        print(json.dumps(scores, allow_nan=False) if command.json else lead_table(scores))
        warnings = [of_single_steps(run, scores["steps"]), beyond_trained(run, data, scores["steps"])]
    else:
        for name in ("data", "json"):
            if getattr(command, name):
                raise InputError(f"`{name}`: is for the scores of test trajectories; a forecast of `input` has none")
        if command.output is None:
            raise InputError("`output`: name the NPZ file that the forecast is written to")
        steps = 50 if command.steps is None else command.steps
        own = {"mask_file": command.mask, "no_mask": command.no_mask, "levels": command.levels}
        own["samples"] = command.samples
        arrays = forecast_file(run, command.input, command.output, steps=steps, **own, **how)
        print(f"{command.output}: {', '.join(f'{name} {array.shape}' for name, array in arrays.items())}")
        lost = int(arrays["out_of_range"][-1])
        if lost:
            said = f"particles that left the range of the training data: {lost} (out_of_range has them by lead)"
            print(f"crossreg: {said}", file=sys.stderr)
        warnings = [of_single_steps(run, steps)]
    for warning in filter(None, warnings):
        print(f"crossreg: {in_flags(warning)}", file=sys.stderr)


def _leads(text: str | None) -> list[int] | None:
    """Return the leads that a flag lists."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"leads is {text}: expected whole numbers separated by commas, as in 1,10,50") from None


def _predict_cars(command: Predict) -> None:
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
    print(f"{command.output}: {', '.join(f'{name} {array.shape}' for name, array in arrays.items())}")


def export(command: Export) -> None:
    """Write a run as files that need no crossreg."""
    from crossreg.export.write import export_run

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


def quickstart(command: Quickstart) -> None:
    """Train three methods side by side."""
    from crossreg.cli.quickstart import quickstart

    quickstart(command.out, steps=command.steps, progress=not command.quiet, as_json=command.json)


def sweep(command: Sweep) -> int:
    """Train and score many runs."""
    from crossreg.designs.grids import check_given, plan
    from crossreg.report.tables.write import write_tables
    from crossreg.studies.sweep.run import describe_sweep, run_sweep

    workers = command.cluster.checked()
    if not workers.in_process:
        if command.devices is not None:
            raise InputError(
                f"--devices {command.devices}: is for a sweep in one process; --worker-gpus sets the GPUs of each"
                " worker"
            )
        import jax

        jax.config.update("jax_platforms", "cpu")  # the devices are for the workers
    base, given = _sweep_base(command)
    trials = plan(
        command.name,
        methods=command.methods,
        seeds=command.seeds,
        first_seed=command.first_seed,
        steps=command.steps,
        grid=command.grid,
        base=base,
    )
    if given.get("seed", command.first_seed) != command.first_seed:
        raise InputError(f"--config: seed is {given['seed']}; the first seed of a sweep is --first-seed")
    check_given(given, trials, command.grid)
    _spread(command)
    if command.plan:
        print(describe_sweep(trials, command.out, workers))
        return 0
    asked = {
        "name": command.name,
        "methods": command.methods,
        "seeds": command.seeds,
        "first_seed": command.first_seed,
        "steps": trials[0].config.train.steps,
        "grid": list(command.grid),
        "config": to_dict(base or Config()),
    }
    saving, progress = _saving(command), not command.quiet
    rows = run_sweep(trials, command.out, progress=progress, asked=asked, saving=saving, workers=workers)
    missing = len(trials) - len(rows)
    text = write_tables(rows, command.out, missing=missing, width=_terminal_width())
    print("\n".join(json.dumps(row, allow_nan=False) for row in rows) if command.json else text)
    if missing and not workers.in_process:
        return JOBS_FAILED
    return _verdict(sum(row["diverged"] for row in rows), len(rows), command)


def _sweep_base(command: Sweep) -> tuple[Config | None, dict[str, Any]]:
    """Return the settings that all runs of a sweep share, and those of them that come from the config file.

    The first include the sizes of a user's files. Without any flag for settings, they are None and empty.
    """
    own = {name: getattr(command, name) for name in ("data", "field", "axes") if getattr(command, name) is not None}
    if command.config is None and command.scenario is None and not own:
        return None, {}
    from crossreg.data.files.load import resolved
    from crossreg.designs.grids import default_steps
    from crossreg.designs.presets import scenario_settings

    if command.scenario is not None and own:
        raise InputError(f"--scenario {command.scenario} and --{min(own)} exclude each other")
    base = Config().replace(steps=default_steps(command.name))
    if command.scenario is not None:
        base = base.replace(**scenario_settings(command.scenario))
    if command.data is not None:
        own = OWN_DATA | own | {"data": str(command.data)}
    base = base.replace(**own)
    before, given = all_settings(base), {}
    if command.config is not None:
        base = load_yaml(command.config, base=base)
        given = {name: value for name, value in all_settings(base).items() if value != before[name]}
    return dataclasses.replace(base, data=resolved(base.data)), given


def plan(command: Plan) -> None:
    """Estimate what a sweep would take on other devices."""
    from crossreg.report.plan_text import plan_text
    from crossreg.studies.planning.plan import make_plan

    made = make_plan(command, command.on, risks=command, compiled=command.compiled, curve=command.figure is not None)
    if command.figure is not None:
        from crossreg.report.figures.plan import draw_plan

        draw_plan(made, command.figure)
    print(json.dumps(made, allow_nan=False) if command.json else quoted_in_flags(plan_text(made)))


def table(command: Table) -> None:
    """Print and write the table of a sweep."""
    from crossreg.report.tables.write import write_tables
    from crossreg.runs.sweep_folder import all_rows, asked_rows

    every = all_rows(command.folder)
    rows, total = (every, len(every)) if command.all else asked_rows(command.folder)
    text = write_tables(rows, command.folder, missing=total - len(rows), width=_terminal_width())
    if command.json:
        print("\n".join(json.dumps(row, allow_nan=False) for row in rows))
        return
    print(text)
    if len(every) > len(rows):
        print(f"{len(every) - len(rows)} more rows of earlier sweeps are in the folder; --all shows them too")


def _terminal_width() -> int | None:
    """Return the width of the terminal, or None if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def figures(command: Figures) -> None:
    """Draw the figures of a folder."""
    from crossreg.report.figures.write import draw_figures

    for path in draw_figures(command.folder, command.out, trajectory=command.trajectory, progress=not command.quiet):
        print(path)


def report(command: Report) -> None:
    """Write the report of a folder."""
    from crossreg.report.page.write import write_report

    print(write_report(command.folder, command.output, progress=not command.quiet))


def extract(command: Extract) -> None:
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
    _print_scores(command.out, metrics, as_json=command.json)


def car(command: Car) -> int:
    """Run the experiment on car surfaces."""
    from crossreg.cars.study import run_car
    from crossreg.cars.summary import car_table
    from crossreg.report.cars.figures import draw_car_figures
    from crossreg.report.cars.page import PAGE, write_car_page
    from crossreg.runs.car_folder import is_newer
    from crossreg.runs.file_names import SUMMARY

    _spread(command)
    summary = run_car(plain(command.settings), command.out, progress=not command.quiet, saving=_saving(command))
    page = command.out / PAGE
    if not is_newer(page, command.out / SUMMARY):
        if not command.quiet:
            print("drawing …", file=sys.stderr, flush=True)
        draw_car_figures(command.out, progress=not command.quiet)
        write_car_page(command.out)
    print(json.dumps(summary, allow_nan=False) if command.json else f"{car_table(summary)}\n{page}")
    methods = summary["methods"].values()
    return _verdict(sum(m["diverged"] for m in methods), sum(m["seeds"] for m in methods), command)


def watch(command: Watch) -> None:
    """Serve the page that follows training runs."""
    from crossreg.report.watch.server import watch

    watch(command.folder, host=command.host, port=command.port, open_browser=command.open)
