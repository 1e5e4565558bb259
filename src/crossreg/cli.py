"""The command line. JAX is imported only once a command has been understood."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import tyro

from crossreg.commands import (
    Car,
    Evaluate,
    Export,
    Extract,
    Figures,
    Predict,
    Quickstart,
    Report,
    Sweep,
    Table,
    Train,
    Watch,
)
from crossreg.config import Config, load_yaml, to_dict
from crossreg.errors import InputError
from crossreg.flags import plain, read_first, with_settings
from crossreg.studies.car_settings import FAMILY, NO_FLAGS, car_study
from crossreg.studies.presets import preset

_STOPPED = 130  # what a shell says of a command that Ctrl-C has ended


def _prepare_jax() -> None:
    """Keeps compiled programs between commands: the second run of a shape starts at once."""
    import jax

    from crossreg.data.cache import cache_folder

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _train(command: Train) -> None:
    from crossreg.studies.train import train_run

    metrics = train_run(command.settings, command.out, progress=not command.quiet)
    _print_scores(command.out, metrics, as_json=command.json)


def _evaluate(command: Evaluate) -> None:
    from crossreg.studies.run_folder import final_metrics, load_run

    run = load_run(command.folder)
    metrics = final_metrics(run.model, run.load_data(), run.config, progress=not command.quiet)
    _print_scores(command.folder, metrics, as_json=command.json)


def _print_scores(folder: Path, metrics: dict[str, Any], *, as_json: bool) -> None:
    from crossreg.report.tables import decomposition_table, scores_table, sigma_lines

    if as_json:
        print(json.dumps(metrics, allow_nan=False))
        return
    print(scores_table({folder.resolve().name: metrics}))
    print(decomposition_table(metrics))
    if metrics["sigma"]:
        print(sigma_lines(metrics["sigma"]))


def _predict(command: Predict) -> None:
    from crossreg.studies.prediction import predict_file
    from crossreg.studies.run_folder import load_run

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


def _export(command: Export) -> None:
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


def _quickstart(command: Quickstart) -> None:
    from crossreg.studies.quickstart import quickstart

    quickstart(command.out, steps=command.steps, progress=not command.quiet, as_json=command.json)


def _sweep(command: Sweep) -> None:
    from crossreg.report.comparison_tables import write_tables
    from crossreg.studies.grids import default_steps, plan
    from crossreg.studies.sweep import describe_sweep, run_sweep

    base = None
    if command.config:
        base = load_yaml(command.config, base=Config().replace(steps=default_steps(command.name)))
    points = plan(
        command.name,
        methods=command.methods,
        seeds=command.seeds,
        first_seed=command.first_seed,
        steps=command.steps,
        grid=command.grid,
        base=base,
    )
    if command.plan:
        print(describe_sweep(points, command.out))
        return
    asked = {
        "name": command.name,
        "methods": command.methods,
        "seeds": command.seeds,
        "first_seed": command.first_seed,
        "steps": points[0].config.train.steps,
        "grid": list(command.grid),
        "config": to_dict(base or Config()),
    }
    rows = run_sweep(points, command.out, progress=not command.quiet, asked=asked)
    text = write_tables(rows, command.out, width=_terminal_width())
    print("\n".join(json.dumps(row, allow_nan=False) for row in rows) if command.json else text)


def _table(command: Table) -> None:
    from crossreg.report.comparison_tables import write_tables
    from crossreg.studies.sweep import all_rows, asked_rows

    every = all_rows(command.folder)
    rows, total = (every, len(every)) if command.all else asked_rows(command.folder)
    text = write_tables(rows, command.folder, missing=total - len(rows), width=_terminal_width())
    if command.json:
        print("\n".join(json.dumps(row, allow_nan=False) for row in rows))
        return
    print(text)
    if len(every) > len(rows):
        print(f"{len(every) - len(rows)} further runs of earlier sweeps are in the folder: --all shows them too")


def _terminal_width() -> int | None:
    """How wide the terminal is, or None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _figures(command: Figures) -> None:
    from crossreg.studies.figures import draw_figures

    for path in draw_figures(command.folder, command.out, progress=not command.quiet):
        print(path)


def _report(command: Report) -> None:
    from crossreg.report.page.write import write_report

    print(write_report(command.folder, command.output, progress=not command.quiet))


def _extract(command: Extract) -> None:
    from crossreg.studies.extract import extract

    metrics = extract(
        command.folder,
        command.out,
        method=command.method,
        seed=command.seed,
        where=command.where,
        progress=not command.quiet,
    )
    _print_scores(command.out, metrics, as_json=command.json)


def _car(command: Car) -> None:
    from crossreg.report.car_figures import draw_car_figures
    from crossreg.report.car_page import write_car_page
    from crossreg.studies.car import run_car
    from crossreg.studies.car_summary import car_table

    summary = run_car(plain(command.settings), command.out, progress=not command.quiet)
    if not command.quiet:
        print("drawing …", file=sys.stderr, flush=True)
    draw_car_figures(command.out, progress=not command.quiet)
    page = write_car_page(command.out)
    print(json.dumps(summary, allow_nan=False) if command.json else f"{car_table(summary)}\n{page}")


def _watch(command: Watch) -> None:
    from crossreg.report.watch.server import watch

    watch(command.folder, host=command.host, port=command.port, open_browser=command.open)


_COMMANDS = {
    "train": (Train, _train),
    "evaluate": (Evaluate, _evaluate),
    "predict": (Predict, _predict),
    "export": (Export, _export),
    "quickstart": (Quickstart, _quickstart),
    "sweep": (Sweep, _sweep),
    "table": (Table, _table),
    "figures": (Figures, _figures),
    "report": (Report, _report),
    "extract": (Extract, _extract),
    "car": (Car, _car),
    "watch": (Watch, _watch),
}


def _usage() -> str:
    lines = [f"  {name:<12}{(kind.__doc__ or '').splitlines()[0]}" for name, (kind, _) in _COMMANDS.items()]
    return "\n".join(
        [
            "usage: crossreg COMMAND [options]",
            "",
            "Calibrated uncertainty for neural PDE surrogates, learned during training.",
            "",
            *lines,
            "",
            "crossreg COMMAND --help lists a command's options.",
        ]
    )


def _train_with_defaults(arguments: list[str]) -> type[Train]:
    """`Train` with the defaults that --preset and --config set."""
    known = read_first(arguments, preset="reference", config=None)
    settings = preset(known.preset)
    if known.config is not None:
        settings = load_yaml(Path(known.config), base=settings)
    return with_settings(Train, settings)


def _car_with_defaults(arguments: list[str]) -> type[Car]:
    """`Car` with the defaults that --profile and --data set."""
    known = read_first(arguments, profile="quick", data=FAMILY)
    return with_settings(Car, car_study(known.profile, data=known.data), hidden=NO_FLAGS)


_WITH_DEFAULTS = {"train": _train_with_defaults, "car": _car_with_defaults}


def _parse(name: str, arguments: list[str]):
    """The command's dataclass, filled from its flags."""
    kind = _WITH_DEFAULTS[name](arguments) if name in _WITH_DEFAULTS else _COMMANDS[name][0]
    markers = (tyro.conf.OmitArgPrefixes,)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, prog=f"crossreg {name}", args=arguments, config=markers)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise InputError(f"{_first_message(said.getvalue())} (see crossreg {name} --help)") from None


def _first_message(box: str) -> str:
    """The message inside tyro's framed error, on one line."""
    lines = [line.strip(" │|") for line in box.splitlines() if not line.startswith(("╭", "+"))]
    # Rules part the title, the message and a hint; the message is the first part that says something of something.
    parts = [part.strip() for part in re.split(r"[─-]{5,}|For full helptext", " ".join(lines))]
    message = next((part for part in parts if ":" in part), " ".join(filter(None, parts)))
    message = re.sub(r"^Error parsing (settings(\.\w+)?: )?", "", message)
    return re.sub(r"invalid literal for int\(\) with base 10: '(.*)'", r"\1 is not a whole number", message)


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns 0, or 2 with one line on the standard error for bad input."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else 2
    name, *rest = arguments
    try:
        if name not in _COMMANDS:
            raise InputError(f"{name}: no such command; there are {', '.join(_COMMANDS)}")
        command = _parse(name, rest)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill stops as Ctrl-C does
        _prepare_jax()
        _COMMANDS[name][1](command)
    except InputError as error:
        print(f"crossreg: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        where = {
            "train": "; its folder holds an unfinished run",
            "sweep": "; the same command goes on from here",
            "car": "; the same command keeps what has finished training",
        }.get(name, "")
        print(f"crossreg: stopped{where}", file=sys.stderr)
        return _STOPPED
    return 0


def run() -> NoReturn:
    """The console command."""
    code = main()
    if code == _STOPPED:
        # A compilation that goes on in a thread crashes an interpreter that takes itself apart.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
