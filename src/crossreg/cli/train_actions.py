"""The actions of the commands that train, and of `crossreg plan`, called with their parsed flags.

Each imports what it needs, JAX included.
"""

import dataclasses
import json
import shlex
import sys
from typing import Any

from crossreg.cli import commands
from crossreg.cli.actions import print_scores, terminal_width
from crossreg.cli.flags import plain, quoted_in_flags
from crossreg.config import OWN_DATA, Config, all_settings, load_yaml, to_dict
from crossreg.errors import InputError
from crossreg.runs.safeguards.saving import Saving

# Exit codes: more runs diverged than --max-diverged allows; jobs of workers failed, so that rows are missing.
DIVERGED, JOBS_FAILED = 4, 5


def _saving(command: commands.Train | commands.Sweep | commands.Car) -> Saving:
    if not 0 <= command.max_diverged <= 1:
        raise InputError(f"--max-diverged {command.max_diverged}: must be a share of the runs, in [0, 1]")
    return Saving(command.save_every, command.force_resume).checked()


def _verdict(diverged: int, runs: int, command: commands.Train | commands.Sweep | commands.Car) -> int:
    """Return the exit code for a number of diverged runs."""
    # Divide, not multiply: 29 / 100 == 0.29, but 0.29 * 100 < 29.
    if not diverged or diverged / runs <= command.max_diverged:
        return 0
    print(
        f"crossreg: {diverged} of {runs} runs diverged, more than --max-diverged {command.max_diverged:g}",
        file=sys.stderr,
    )
    return DIVERGED


def train(command: commands.Train) -> int:
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
    print_scores(command.out, metrics, as_json=command.json)
    if not command.json:
        print(f"{command.out}: `crossreg report {shlex.quote(str(command.out))}` makes a page of it")
    return _verdict(int(diverged_at(command.out) >= 0), 1, command)


def quickstart(command: commands.Quickstart) -> None:
    """Train three methods side by side."""
    from crossreg.cli.quickstart import quickstart

    quickstart(command.out, steps=command.steps, progress=not command.quiet, as_json=command.json)


def sweep(command: commands.Sweep) -> int:
    """Train and score many runs."""
    from crossreg.designs.grids import check_given, plan
    from crossreg.machine.devices import use_devices
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
    use_devices(command.devices)
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
    text = write_tables(rows, command.out, missing=missing, width=terminal_width())
    print("\n".join(json.dumps(row, allow_nan=False) for row in rows) if command.json else text)
    if missing and not workers.in_process:
        return JOBS_FAILED
    return _verdict(sum(row["diverged"] for row in rows), len(rows), command)


def _sweep_base(command: commands.Sweep) -> tuple[Config | None, dict[str, Any]]:
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


def plan(command: commands.Plan) -> None:
    """Estimate what a sweep would take on other devices."""
    from crossreg.report.plan_text import plan_text
    from crossreg.studies.planning.plan import make_plan

    made = make_plan(command, command.on, risks=command, compiled=command.compiled, curve=command.figure is not None)
    if command.figure is not None:
        from crossreg.report.figures.plan import draw_plan

        draw_plan(made, command.figure)
    print(json.dumps(made, allow_nan=False) if command.json else quoted_in_flags(plan_text(made)))


def car(command: commands.Car) -> int:
    """Run the experiment on car surfaces."""
    from crossreg.cars.study import run_car
    from crossreg.machine.devices import use_devices
    from crossreg.report.cars.figures import draw_car_figures
    from crossreg.report.cars.page import PAGE, write_car_page
    from crossreg.report.cars.table import car_table
    from crossreg.runs.car_folder import is_newer
    from crossreg.runs.file_names import SUMMARY

    use_devices(command.devices)
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
