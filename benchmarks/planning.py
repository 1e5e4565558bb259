"""Measure the cost of a sweep beside its steps, for `crossreg plan`, and compare plans with actual times.

    python benchmarks/planning.py --measure            # this device, about three minutes
    python benchmarks/planning.py --check              # whole sweeps on it, as many minutes
    python benchmarks/planning.py --fit [--add FILE]   # constants into cost.json; the tables of docs/scale.md

Whole `crossreg sweep` commands are timed from outside, in processes of their own, with nothing compiled before or with
all of it: when their folder has a plan, a trained program, a row. Differences between two of them have one cause each.
Looks at reg and memory are measured inside. Rows go to docs/results/planning.json, or to --out where the device is on
another machine; `--add` takes them from there. Behind a new `benchmarks/growth.py`, fit again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from crossreg.config import Config
from crossreg.methods.names import parse_method
from crossreg.report.plan_text import plan_text
from crossreg.studies.planning.demand import Asked, field_shape_of
from crossreg.studies.planning.device_costs import Around, Device, known_devices, short_name
from crossreg.studies.planning.plan import make_plan
from crossreg.training.cost import RATES

RESULTS, PAGE = Path("docs/results/planning.json"), Path("docs/scale.md")
EXAMPLE = Asked("paper", seeds=100)
# Replicas of the narrow and the wide sweep.
SIZES = {"cpu": (2, 6), "gpu": (8, 64)}
STEPS = 20
# Whole commands that plans are held to: flags of a sweep, and whether it is run again with all of it compiled.
CHECKS: dict[str, list[dict[str, Any]]] = {
    "cpu": [
        {"what": "paper-observed", "methods": "xreg,unregularized", "seeds": 1, "steps": 500},
        {"what": "paper-train-size", "methods": "dropout,ensemble", "seeds": 1, "steps": 2000},
    ],
    "gpu": [
        {"what": "paper", "methods": "xreg,dropout,ensemble", "seeds": 5, "steps": 10_000},
        {"what": "paper-train-size", "methods": "xreg,dropout", "seeds": 20, "steps": 4000},
    ],
}
_POLL_SECONDS = 0.01


def timed_sweep(arguments: list[str], cache: Path, folder: Path) -> dict[str, Any]:
    """Seconds from the start of a command until its folder has a plan, each trained program, each row; and its end."""
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    seen: dict[str, Any] = {"planned": None, "trained": [], "rows": []}
    command = [sys.executable, "-m", "crossreg", "sweep", *arguments, "--quiet", "--out", str(folder)]
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=said)
        while process.poll() is None:
            _look(folder, time.perf_counter() - begun, seen)
            time.sleep(_POLL_SECONDS)
        wall = time.perf_counter() - begun
        if process.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)}: {said.read()[-2000:]}")
    _look(folder, wall, seen)
    seen["methods"] = [json.loads(line)["method"] for line in (folder / "rows.jsonl").read_text().splitlines()]
    return seen | {"wall": wall, "arguments": arguments}


def _look(folder: Path, now: float, seen: dict[str, Any]) -> None:
    if seen["planned"] is None and (folder / "sweep.json").exists():
        seen["planned"] = now
    done = len(list((folder / "trained").glob("*.npz"))) if seen["planned"] else 0
    seen["trained"] += [now] * (done - len(seen["trained"]))
    rows = (folder / "rows.jsonl").read_bytes().count(b"\n") if (folder / "rows.jsonl").exists() else 0
    seen["rows"] += [now] * (rows - len(seen["rows"]))


def platform() -> str:
    """cpu or gpu, asked in another process: this one must leave the device's memory to those that it times."""
    code = "import jax; print(jax.default_backend())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return "cpu" if said[-1] == "cpu" else "gpu"


def measure(backend: str, rounds: int) -> dict[str, Any]:
    """Sweeps of few steps: of a plain model and of XReg, new and known, narrow and wide; on a GPU, of three methods."""
    narrow, wide = SIZES[backend]
    sweeps: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:

        def sweep(name: str, methods: str, seeds: int) -> None:
            flags = ["grid", "--grid", "train_size=50", "--methods", methods, "--seeds", str(seeds)]
            sweeps[name] = timed_sweep([*flags, "--steps", str(STEPS)], Path(folder) / "cache", Path(folder) / name)
            print(f"{name:>14}  {sweeps[name]['wall']:6.1f} s", flush=True)

        for kind, method in (("plain", "unregularized"), ("reg", "xreg")):
            sweep(f"{kind} new", method, narrow)
            sweep(f"{kind} known", method, narrow)
            sweep(f"{kind} wide", method, wide)
        sweep("reg wide known", "xreg", wide)
        if backend != "cpu":
            for name in ("crowded", "crowded known"):
                sweep(name, "xreg,dropout,unregularized", narrow + 1)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(folder) / "cache")
        return {"sweeps": sweeps, "sizes": [narrow, wide], "steps": STEPS} | inside(narrow, wide, rounds)


def inside(narrow: int, wide: int, rounds: int) -> dict[str, Any]:
    """Seconds of a look at reg, and bytes that a training holds, for few and many replicas."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from crossreg.data.apebench import load_trajectories
    from crossreg.data.load import make_data
    from crossreg.routing import route
    from crossreg.runs.safeguards.versions import describe_machine
    from crossreg.training.cohort import memory_bytes, start_cohort
    from crossreg.training.compiled import advance, monitor_scores
    from crossreg.training.replicas import first_snapshot
    from crossreg.training.step import with_engine

    [config] = parse_method("xreg").configs(Config().replace(steps=STEPS))
    data = make_data(load_trajectories(config.data), config.data)
    looks, held = [], []
    for count in (narrow, wide):
        models, tasks, train = start_cohort([config.replace(seed=seed) for seed in range(count)], [data] * count)
        train = with_engine(train, count)
        static, state = route(models).static, first_snapshot(models).state
        program: Any = advance
        compiled = program.lower(state, static, tasks, jnp.asarray(0), jnp.asarray(1), train).compile().compiled
        memory = compiled.memory_analysis()
        held.append(memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes)
        seconds = []
        for _ in range(rounds + 1):
            begun = time.perf_counter()
            jax.block_until_ready(monitor_scores(state, static, tasks, train))
            seconds.append(time.perf_counter() - begun)
        looks.append(float(np.median(seconds[1:])))
        print(f"{count:>4} replicas: a look {1e3 * looks[-1]:.2f} ms, {held[-1] / 2**20:.0f} MiB", flush=True)
    device = jax.devices()[0].device_kind
    return {"device": device, "looks": looks, "held": held, "memory": memory_bytes(), "versions": describe_machine()}


def _line(sizes: list[int], values: list[float]) -> tuple[float, float]:
    """Constant and slope of a line through two points, neither negative."""
    slope = max(0.0, (values[1] - values[0]) / (sizes[1] - sizes[0]))
    return max(0.0, values[0] - slope * sizes[0]), slope


def fit(measured: dict[str, Any], rates: dict[str, Any]) -> dict[str, Any]:
    """The constants of `Around`, out of differences between sweeps."""
    sweeps, sizes, steps = measured["sweeps"], measured["sizes"], measured["steps"]
    narrow, wide = sizes
    base = Config().replace(train_size=50, steps=steps)
    shape, _ = field_shape_of(base.data)
    configs = {name: parse_method(method).configs(base)[0] for name, method in
               (("plain", "unregularized"), ("reg", "xreg"))}  # fmt: skip
    bare = Around(0, 0.0, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 0.0, (0.0, 1.0), (0.0, 1.0), (0.0, 1.0), 0, 1.0)
    device = Device(measured["device"], tuple(rates["rates"]), (0.0, 0.0), bare)
    # A look of one replica, in units of the rates.
    unit = device.training_seconds(configs["reg"], shape, 1) - steps * device.step_seconds(configs["reg"], shape, 1)
    looks = -(-steps // configs["reg"].train.record_every)
    look0, per_look = _line(sizes, measured["looks"])
    look = (look0, per_look / (unit / looks))
    device = Device(device.kind, device.rates, device.off, bare._replace(look=look))

    def program(name: str, replicas: int) -> float:
        """Seconds until a program is ready: from the plan to the trained file, less the training."""
        one = sweeps[name]
        kind = "plain" if name.startswith("plain") else "reg"
        return one["trained"][0] - one["planned"] - device.training_seconds(configs[kind], shape, replicas)

    def first(name: str) -> float:
        """From the trained file to the first row, which waits for the program that scores."""
        return sweeps[name]["rows"][0] - sweeps[name]["trained"][0]

    def row_of(name: str) -> float:
        rows = sweeps[name]["rows"]
        return (rows[-1] - rows[0]) / (len(rows) - 1)

    rows = {"plain": row_of("plain wide"), "reg": row_of("reg wide known")}
    units = [device.row_seconds(configs[kind], shape, members=1) for kind in ("plain", "reg")]
    per_row = max(0.0, rows["reg"] - rows["plain"]) / (units[1] - units[0])
    row = (max(0.0, rows["plain"] - per_row * units[0]), per_row)
    # Of two sweeps that find all compiled: compilers do not take equally long each time.
    replica = max(0.0, (program("reg wide known", wide) - program("reg known", narrow)) / (wide - narrow))

    def ready(name: str) -> float:
        """Return the time of a program before it trains, and the additional time of its first row."""
        return max(0.0, program(name, narrow) - narrow * replica + first(name) - rows[name.split()[0]])

    def ahead(name: str) -> float:
        """Return these times for the second of three programs, compiled while the first trained: from row to row."""
        one, count = sweeps[name], narrow + 1
        assert set(one["methods"][count : 2 * count]) == {"dropout"}, one["methods"]
        [config] = parse_method("dropout").configs(base)
        took = device.training_seconds(config, shape, count) + count * replica
        scoring = row[0] + row[1] * device.row_seconds(config, shape, members=1)
        return max(0.0, one["rows"][count] - one["rows"][count - 1] - took - scoring)

    crowding = 1.0
    if "crowded" in sweeps:
        crowded = sweeps["crowded"]["trained"][0] - sweeps["crowded"]["planned"]
        crowding = max(1.0, crowded / (sweeps["reg new"]["trained"][0] - sweeps["reg new"]["planned"]))
    start = statistics.median(one["wall"] - (one["rows"][-1] - one["planned"]) for one in sweeps.values())
    estimate = device.held_bytes(configs["reg"], shape, 1)
    held0, per_held = _line(sizes, measured["held"])
    around = Around(
        memory=measured["memory"],
        start=start,
        new=(ready("plain new"), ready("reg new")),
        known=(ready("plain known"), ready("reg known")),
        ahead=(ahead("crowded"), ahead("crowded known")) if "crowded" in sweeps else (0.0, 0.0),
        replica=replica,
        look=look,
        row=row,
        held=(held0, per_held / estimate),
        compilers=4 if "crowded" in sweeps else 0,
        crowding=crowding,
    )
    return {
        name: [_short(v) for v in value] if isinstance(value, tuple) else _short(value)
        for name, value in around._asdict().items()
    }


def _short(value: float) -> float | int:
    return value if isinstance(value, int) else float(f"{value:.4g}")


def check(backend: str) -> list[dict[str, Any]]:
    """Whole sweeps from nothing, and again with everything compiled."""
    done = []
    for asked in CHECKS[backend]:
        flags = [str(part) for name in ("methods", "seeds", "steps") for part in (f"--{name}", asked[name])]
        with tempfile.TemporaryDirectory() as folder:
            for compiled in (False, True):
                out = Path(folder) / f"sweep-{compiled}"
                took = timed_sweep([asked["what"], *flags], Path(folder) / "cache", out)
                device = json.loads((out / "rows.jsonl").read_text().splitlines()[0])["on"]["device"]
                done.append({"device": device, "asked": asked, "compiled": compiled} | took)
                print(f"{asked['what']} {' '.join(flags)}: {took['wall']:.1f} s", flush=True)
    return done


def write_page(checks: list[dict[str, Any]]) -> None:
    """An example, and plans beside what was measured, into docs/scale.md; the latter also to the terminal."""
    lines = ["| device | sweep | measured | planned | planned / measured |", "|---|---|---|---|---|"]
    for one in sorted(checks, key=lambda one: (one["device"], one["asked"]["what"])):
        asked = one["asked"]
        plan = make_plan(Asked(**asked), f"{short_name(one['device'])}:1", compiled=one["compiled"])
        flags = f"`{asked['what']} --methods {asked['methods']} --seeds {asked['seeds']} --steps {asked['steps']}`"
        took, ratio = one["wall"], plan["seconds"] / one["wall"]
        named = f"{flags}{', all compiled before' * one['compiled']}"
        lines.append(f"| {one['device']} | {named} | {took:.1f} s | {plan['seconds']:.1f} s | {ratio:.2f} |")
    print("\n".join(lines))
    example = plan_text(make_plan(EXAMPLE, "h200:8")).splitlines()
    tables = example[: example.index("", 4)]  # the head, and the ways to run it
    text = PAGE.read_text()
    for name, block in (("example", ["```text", *tables, "", *example[-2:], "```"]), ("checks", ["", *lines, ""])):
        head, rest = text.split(f"<!-- {name}: written by benchmarks/planning.py -->\n")
        end = f"<!-- end of {name} -->"
        marked = "\n".join([f"<!-- {name}: written by benchmarks/planning.py -->", *block, end])
        text = head + marked + rest.split(end)[1]
    PAGE.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="the constants of this device")
    parser.add_argument("--check", action="store_true", help="whole sweeps on this device")
    parser.add_argument("--fit", action="store_true", help="write cost.json and show plans beside what was measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--add", type=Path, help="a file that another machine has written")
    arguments = parser.parse_args()
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"devices": {}, "checks": []}
    if arguments.add:
        _merge(known, json.loads(arguments.add.read_text()))
    if arguments.check:  # first: behind a measurement inside, this process has the device's memory
        _merge(known, {"devices": {}, "checks": check(platform())})
        _write(arguments.out, known)
    if arguments.measure:
        measured = measure(platform(), arguments.rounds)
        _merge(known, {"devices": {measured["device"]: measured}, "checks": []})
    _write(arguments.out, known)
    if arguments.fit:
        costs = json.loads(RATES.read_text())
        for device, measured in known["devices"].items():
            costs[device]["around"] = fit(measured, costs[device])
            if (versions := measured["versions"])["processor"] != "-":
                costs[device]["processor"] = f"{versions['processor']}, {versions['cores']} cores"
            print(device, json.dumps(costs[device]["around"]))
        RATES.write_text(json.dumps(costs, indent=1) + "\n")
        known_devices.cache_clear()
        write_page(known["checks"])


def _merge(known: dict[str, Any], more: dict[str, Any]) -> None:
    def identity(one: dict[str, Any]) -> str:
        return json.dumps([one["device"], one["asked"], one["compiled"]])

    known["devices"] |= more["devices"]
    known["checks"] = list({identity(one): one for one in [*known["checks"], *more["checks"]]}.values())


def _write(path: Path, known: dict[str, Any]) -> None:
    path.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
