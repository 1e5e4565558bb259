"""The command line. JAX is imported only once a command has been understood."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import signal
import sys
import threading
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any, NoReturn

import tyro

from crossreg.commands import Car, Evaluate, Extract, Figures, Predict, Quickstart, Sweep, Table, Train
from crossreg.config import Config, load_yaml, to_dict
from crossreg.errors import InputError
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

    _print_scores(command.out, train_run(command.settings, command.out, progress=not command.quiet))


def _evaluate(command: Evaluate) -> None:
    from crossreg.studies.run_folder import final_metrics, load_run

    run = load_run(command.folder)
    metrics = final_metrics(run.model, run.load_data(), run.config)
    if command.json:
        print(json.dumps(metrics, allow_nan=False))
    else:
        _print_scores(command.folder, metrics)


def _print_scores(folder: Path, metrics: dict[str, Any]) -> None:
    from crossreg.report.tables import decomposition_table, scores_table, sigma_lines

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
    )
    print(f"{command.output}: {', '.join(f'{name} {array.shape}' for name, array in arrays.items())}")


def _quickstart(command: Quickstart) -> None:
    from crossreg.studies.quickstart import quickstart

    quickstart(command.out, steps=command.steps, progress=not command.quiet)


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
    print(write_tables(rows, command.folder, missing=total - len(rows), width=_terminal_width()))
    if len(every) > len(rows):
        print(f"{len(every) - len(rows)} further runs of earlier sweeps are in the folder: --all shows them too")


def _terminal_width() -> int | None:
    """How wide the terminal is, or None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _figures(command: Figures) -> None:
    from crossreg.studies.figures import sweep_figures

    for path in sweep_figures(command.folder, command.out or command.folder / "figures"):
        print(path)


def _extract(command: Extract) -> None:
    from crossreg.studies.extract import extract

    metrics = extract(command.folder, command.out, method=command.method, seed=command.seed, where=command.where)
    _print_scores(command.out, metrics)


def _car(command: Car) -> None:
    from crossreg.report.car_figures import draw_car_figures
    from crossreg.report.car_page import write_car_page
    from crossreg.studies.car import car_study, car_table, run_car

    given = {name: value for name, value in vars(command).items() if value is not None}
    study = car_study(command.profile, data=command.data)
    sizes = {k: given[k] for k in ("steps", "width", "num_modes", "batch_size", "num_samples") if k in given}
    names = ("methods", "seeds", "train_size", "reg_size", "test_size", "split_seed", "points", "grid", "own_maps")
    changes = {k: given[k] for k in names if k in given}
    study = dataclasses.replace(study, **changes, config=study.config.replace(**sizes))
    summary = run_car(study, command.out, progress=not command.quiet)
    if not command.quiet:
        print("drawing …", file=sys.stderr, flush=True)
    draw_car_figures(command.out)
    page = write_car_page(command.out)
    print(json.dumps(summary, allow_nan=False) if command.json else f"{car_table(summary)}\n{page}")


_COMMANDS = {
    "train": (Train, _train),
    "evaluate": (Evaluate, _evaluate),
    "predict": (Predict, _predict),
    "quickstart": (Quickstart, _quickstart),
    "sweep": (Sweep, _sweep),
    "table": (Table, _table),
    "figures": (Figures, _figures),
    "extract": (Extract, _extract),
    "car": (Car, _car),
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
    """`Train` with the defaults that --preset and --config set, read before the flags that change them."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--preset", default="reference")
    first.add_argument("--config", type=Path)
    try:
        known, _ = first.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise InputError(f"{error.argument_name}: {error.message}") from error
    settings = preset(known.preset)
    if known.config is not None:
        settings = load_yaml(known.config, base=settings)
    changed = [("settings", Config, field(default_factory=lambda: settings))]
    return make_dataclass("Train", changed, bases=(Train,), frozen=True, namespace={"__doc__": Train.__doc__})


def _parse(name: str, arguments: list[str]):
    """The command's dataclass, filled from its flags."""
    kind = _train_with_defaults(arguments) if name == "train" else _COMMANDS[name][0]
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
    message = re.sub(r"^Error parsing (settings\.\w+: )?", "", message)
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
