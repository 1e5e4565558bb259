"""Time a training step against common alternatives, the start of a run, and a whole grid of runs.

    make bench                         # two CPU cores, with the peers
    python benchmarks/speed.py         # on a GPU; peers are left out where they are not installed
    python benchmarks/speed.py --page  # only the tables of docs/speed.md, from rows that are there

Contenders of a group take turns in one process: after a warm-up, each runs so many steps that a turn takes about half a
second, waits for the device, and hands over; medians and quartiles over the turns. Ratios are to the first contender of
the group, turn by turn. Starts and the grid are timed in processes of their own, with nothing compiled before. Rows go
to docs/results/speed.json, with versions and device; an earlier row of the same work on the same device is replaced.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import Config
from crossreg.data.apebench import load_trajectories
from crossreg.data.dataset import Data
from crossreg.data.load import make_data
from crossreg.methods import unregularized, xreg
from crossreg.methods.names import parse_method
from crossreg.methods.xreg import INDEPENDENT
from crossreg.routing import route
from crossreg.runs.safeguards.versions import describe_machine
from crossreg.training.checkpoint import save_arrays
from crossreg.training.cohort import start_cohort
from crossreg.training.compiled import advance, monitor_scores, take_steps
from crossreg.training.replicas import first_snapshot
from crossreg.training.step import with_engine

Steps = Callable[[int], Any]
GROUPS = ("xreg", "element", "plain", "reg", "around", "car", "start", "engines", "grid")  # the last two on a GPU only
RESULTS, PAGE = Path("docs/results/speed.json"), Path("docs/speed.md")
_MARKS = ("<!-- written by benchmarks/speed.py -->", "<!-- end -->")
_TURN_SECONDS = 0.5
_PAUSE_SECONDS = 0.3


def ours(config: Config, data: Data, *, replicas: int = 1, one_at_a_time: bool = False) -> Steps:
    """crossreg's compiled loop, many steps a launch or one."""
    configs = [config.replace(seed=seed) for seed in range(replicas)]
    models, tasks, train = start_cohort(configs, [data] * replicas)
    static, state = route(models).static, first_snapshot(models).state
    train = with_engine(train, replicas)
    done = 0

    def steps(count: int) -> None:
        nonlocal state, done
        for size in [1] * count if one_at_a_time else [count]:
            state = take_steps(state, static, tasks, done, done + size, train)
            done += size
        jax.block_until_ready(state)

    return steps


def trainax_steps(config: Config, data: Data) -> Steps:
    """The plain step of trainax: pdequinox's FNO, mean squared error, Adam, one jitted update per call."""
    import equinox as eqx
    import optax
    import pdequinox as pdeqx
    import trainax as tx

    batch = data.train.gather(jnp.arange(data.train.max_pairs))
    windows = jnp.stack([batch.x, batch.y], axis=1)
    network = pdeqx.arch.ClassicFNO(
        1, 1, 1, hidden_channels=config.model.width, num_modes=config.model.num_modes,
        num_blocks=config.model.num_blocks, boundary_mode="periodic", key=jax.random.key(0),
    )  # fmt: skip
    trainer = tx.trainer.SupervisedTrainer(
        windows,
        optimizer=optax.adam(config.train.learning_rate),
        num_training_steps=10**6,
        batch_size=config.train.batch_size,
    )
    mixer = tx.PermutationMixer(
        num_total_samples=windows.shape[0],
        num_minibatches=10**6,
        batch_size=config.train.batch_size,
        shuffle_key=jax.random.key(1),
    )
    update = eqx.filter_jit(trainer.step_fn)
    state = trainer.optimizer.init(eqx.filter(network, eqx.is_array))
    done = 0

    # What `trainer(network, key)` does, without its progress bar, and compiled once.
    def steps(count: int) -> None:
        nonlocal network, state, done
        loss = None
        for _ in range(count):
            minibatch = trainer.trajectory_sub_stacker(mixer(done))  # pyright: ignore[reportArgumentType]
            network, state, loss = update(network, state, minibatch)
            done += 1
        jax.block_until_ready(loss)

    return steps


def trainax_peer(config: Config, data: Data) -> dict[str, Steps]:
    """trainax, where it is installed."""
    try:
        return {"trainax": trainax_steps(config, data)}
    except ImportError as error:
        print(f"no trainax: {error}")
        return {}


def torch_peers(config: Config, data: Data) -> dict[str, Steps]:
    """The PyTorch contenders that can run here."""
    try:
        from peers.contenders import peers_of
    except ImportError as error:
        print(f"no PyTorch peers: {error}")
        return {}
    return peers_of(config, data)


def car_steps(rounds: int, work: dict[str, Any]) -> list[dict[str, Any]]:
    """An optimal transport neural operator on 64² cells, 16² modes, width 32: the XReg step, and the plain one."""
    from crossreg.cars.family.make import make_family
    from crossreg.cars.meshes.readers import Cars
    from crossreg.cars.pairs import make_car_data
    from crossreg.designs.car_study import car_study

    study = car_study("full")
    cars = make_family(8, points=study.points)
    data, _ = make_car_data(Cars(tuple(cars[:4]), tuple(cars[4:6]), tuple(cars[6:]), None), study.grid)
    try:
        from peers.contenders import car_peers
    except ImportError as error:
        print(f"no PyTorch peers: {error}")
        car_peers = None
    rows = []
    for name, method in (("cars, xreg", "xreg"), ("cars, plain", "unregularized")):
        [config] = parse_method(method).configs(study.config.replace(steps=10**8))
        contenders = {"crossreg": ours(config, data)}
        if car_peers is not None:
            contenders |= car_peers(config if method == "xreg" else config.replace(num_samples=1, k_reg=10**9), data)
        sizes = {"batch": config.train.batch_size, "samples": config.train.num_samples}
        rows += rows_of(name, take_turns(contenders, rounds), work | sizes)
    return rows


def take_turns(
    contenders: dict[str, Steps], rounds: int, turn_seconds: float = _TURN_SECONDS, unit: int = 10
) -> dict[str, list[float]]:
    """Seconds per step of each turn, of so many times `unit` steps that all are whole periods of k_reg.

    A contender that fails in its warm-up is left out, and said to be.
    """
    sizes: dict[str, int] = {}
    for name, steps in contenders.items():
        try:
            steps(unit)
            started = time.perf_counter()
            steps(unit)
            sizes[name] = unit * max(1, int(turn_seconds / (time.perf_counter() - started)))
            steps(sizes[name])
        except Exception as error:  # a peer's compiler may be missing: what remains is still a comparison
            if name.startswith("crossreg"):
                raise
            print(f"{name}: left out ({type(error).__name__}: {str(error).splitlines()[0][:100]})")
    turns: dict[str, list[float]] = {name: [] for name in sizes}
    for _ in range(rounds):
        for name, size in sizes.items():
            time.sleep(_PAUSE_SECONDS)  # threads of the one before may still be spinning
            contenders[name](size // (10 * unit) * unit or unit)
            started = time.perf_counter()
            contenders[name](size)
            turns[name].append((time.perf_counter() - started) / size)
    return turns


def rows_of(group: str, turns: dict[str, list[float]], work: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per contender: seconds per step and how many times the first contender's they are, with quartiles."""
    first = np.asarray(next(iter(turns.values())))
    rows = []
    for name, seconds in turns.items():
        ratio = np.asarray(seconds) / first
        rows.append(
            {"group": group, "contender": name}
            | work
            | {"seconds": [float(q) for q in np.quantile(seconds, (0.5, 0.25, 0.75))]}
            | {"ratio": [float(q) for q in np.quantile(ratio, (0.5, 0.25, 0.75))], "turns": len(seconds)}
        )
        low, mid, high = np.quantile(ratio, (0.25, 0.5, 0.75))
        print(f"{group:>18}  {name:>32}  {1e3 * np.median(seconds):9.4f} ms  {mid:7.2f} × ({low:.2f} … {high:.2f})")
    return rows


def around_steps(base: Config, data: Data, rounds: int, work: dict[str, Any]) -> list[dict[str, Any]]:
    """Time the scores on reg (every 250 steps) and a snapshot (every minute), and measure peak memory."""
    rows = []
    for count in (1,) if jax.default_backend() == "cpu" else (1, 80):
        configs = [xreg.configure(base).replace(seed=seed) for seed in range(count)]
        models, tasks, train = start_cohort(configs, [data] * count)
        train = with_engine(train, count)
        static, snapshot = route(models).static, first_snapshot(models)
        program: Any = advance
        memory = program.lower(snapshot.state, static, tasks, jnp.asarray(0), jnp.asarray(1), train).compile()
        every = train.evaluate_every
        turns: dict[str, list[float]] = {f"{every} steps": [], "one look at reg": [], "one snapshot": []}
        with tempfile.TemporaryDirectory() as folder:
            for number in range(rounds + 1):
                begun = time.perf_counter()
                jax.block_until_ready(take_steps(snapshot.state, static, tasks, 0, every, train))
                stepped = time.perf_counter()
                jax.block_until_ready(monitor_scores(snapshot.state, static, tasks, train))
                looked = time.perf_counter()
                save_arrays(Path(folder) / "part.npz", snapshot)
                if number:  # the first also compiles
                    spent = (stepped - begun, looked - stepped, time.perf_counter() - looked)
                    for seconds, taken in zip(turns.values(), spent, strict=True):
                        seconds.append(taken)
        mebibytes = memory.compiled.memory_analysis().temp_size_in_bytes / 2**20 / count
        print(f"{count} replicas: {mebibytes:.1f} MiB each while they train")
        sizes = {"replicas": count, "mebibytes_per_replica": round(mebibytes, 1)}
        rows += rows_of(f"around the steps, {count} replicas", turns, work | sizes)
    return rows


# Seconds from the start of training to the end of its first step and first look at reg.
_FIRST_STEP = """
import time, jax, jax.numpy as jnp
from crossreg.config import Config
from crossreg.data.apebench import load_trajectories
from crossreg.data.load import make_data
from crossreg.methods import xreg
from crossreg.training.cohort import start_cohort
from crossreg.training.loop import train_replicas
config = xreg.configure(Config().replace(steps=1))
data = make_data(load_trajectories(config.data), config.data)
jnp.zeros(3).block_until_ready()
begun = time.perf_counter()
for report in train_replicas(*start_cohort([config], [data])): jax.block_until_ready(report.snapshot)
print(time.perf_counter() - begun)
"""


def in_a_process(arguments: Sequence[str], cache: str) -> tuple[float, str]:
    """Wall time and output of a Python process that keeps its compiled programs in a folder."""
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{arguments[:2]}: {done.stderr[-2000:]}")
    return time.perf_counter() - started, done.stdout


def starts(rounds: int, work: dict[str, Any]) -> list[dict[str, Any]]:
    """Time a shape until its first step, when it is new and when it was run before."""
    turns: dict[str, list[float]] = {"a new shape": [], "the same again": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for seconds in turns.values():
                seconds.append(float(in_a_process(["-c", _FIRST_STEP], cache)[1]))
    return rows_of("start of a run", turns, work)


def grid(work: dict[str, Any]) -> list[dict[str, Any]]:
    """The paper's grid, from an empty folder and nothing compiled to its tables: 8 regimes, 5 seeds, 10,000 steps."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "crossreg", "sweep", "paper", "--methods", "xreg,dropout,ensemble", "--seeds", "5"]
        seconds, _ = in_a_process([*command, "--quiet", "--out", f"{folder}/sweep"], f"{folder}/cache")
    return rows_of("the paper's grid", {"crossreg sweep": [seconds]}, work)


def engines(base: Config, data: Data, rounds: int, work: dict[str, Any]) -> list[dict[str, Any]]:
    """XLA alone against the fused kernels, for few and many replicas."""
    rows = []
    for method, count in (("xreg", 1), ("xreg", 80), ("xreg", 512), ("dropout", 80), ("unregularized", 240)):
        [config] = parse_method(method).configs(base)
        contenders = {
            f"crossreg, engine {engine}": ours(config.replace(engine=engine), data, replicas=count)
            for engine in ("reference", "fused")
        }
        rows += rows_of(f"{method}, {count} replicas", take_turns(contenders, rounds), work | {"replicas": count})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=GROUPS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    if arguments.page:
        write_page(arguments.out)
        return
    # So long a run that its schedule and its last phase are out of reach, with the samples that the peers have.
    base = Config().replace(observed_fraction=0.7, train_size=50, steps=10**8, **INDEPENDENT)
    data = make_data(load_trajectories(base.data), base.data)
    device = jax.devices()[0].device_kind
    work = {"device": device, "batch": base.train.batch_size, "samples": base.train.num_samples, "replicas": 1}
    rounds = arguments.rounds

    def of(group: str, contenders: dict[str, Steps]) -> list[dict[str, Any]]:
        return rows_of(group, take_turns(contenders, rounds), work)

    def xreg_steps() -> list[dict[str, Any]]:
        config = xreg.configure(base)
        own = {"crossreg": ours(config, data), "crossreg, one step a call": ours(config, data, one_at_a_time=True)}
        return of("xreg", own | torch_peers(config, data))

    def element_steps() -> list[dict[str, Any]]:
        config = xreg.configure(base, ("element",))
        return of("xreg, ε per element", {"crossreg": ours(config, data)} | torch_peers(config, data))

    def plain_steps() -> list[dict[str, Any]]:
        config = unregularized.configure(base)
        return of("plain FNO", {"crossreg": ours(config, data)} | trainax_peer(config, data))

    def reg_steps() -> list[dict[str, Any]]:
        config = xreg.configure(base)
        every = {"crossreg, no reg updates": 10**9, "crossreg, k_reg 10": 10, "crossreg, k_reg 5": 5}
        return of("cost of reg", {name: ours(config.replace(k_reg=k), data) for name, k in every.items()})

    measure: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "xreg": xreg_steps,
        "element": element_steps,
        "plain": plain_steps,
        "reg": reg_steps,
        "around": lambda: around_steps(base, data, min(rounds, 5), work),
        "car": lambda: car_steps(min(rounds, 5), work),
        "start": lambda: starts(min(rounds, 3), work),
        "engines": lambda: engines(base, data, rounds, work),
        "grid": lambda: grid(work),
    }
    print(f"{device}, JAX {jax.__version__}, ten independent samples: one step\n")
    for name in arguments.groups or (GROUPS[:-2] if jax.default_backend() == "cpu" else GROUPS):
        # Each as soon as it is there: what follows may take long, and may fail.
        save(measure[name](), arguments.out)
    write_page(arguments.out)


def save(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Adds rows to the file, in place of earlier ones of the same work."""

    def identity(row):
        return tuple(row[k] for k in ("device", "group", "contender", "replicas"))

    versions = describe_machine()
    known = json.loads(path.read_text()) if path.exists() else []
    merged = {identity(row): row for row in [*known, *({"versions": versions} | row for row in rows)]}
    path.write_text(json.dumps(list(merged.values()), indent=1) + "\n")


def write_page(path: Path) -> None:
    """Put a table for each device between its marks in docs/speed.md."""
    rows = json.loads(path.read_text())
    lines: list[str] = []
    for device in dict.fromkeys(row["device"] for row in rows):
        title = "Two CPU cores" if device == "cpu" else device
        lines += [
            "",
            f"## {title}",
            "",
            "| work | contender | time | times the first row's (quartiles) |",
            "|---|---|---|---|",
        ]
        before = ""
        for row in (row for row in rows if row["device"] == device):
            seconds, (ratio, low, high) = row["seconds"][0] / row["replicas"], row["ratio"]
            unit, digits = (1, 1) if seconds >= 1 else (1e3, 2) if seconds >= 1e-3 else (1e6, 1)
            text = f"{seconds * unit:.{digits}f} {'s' if unit == 1 else 'ms' if unit == 1e3 else 'µs'}"
            against = "" if ratio == low == high == 1 else f"{ratio:.2f} ({low:.2f} … {high:.2f})"
            work = row["group"].replace(" 1 replicas", " 1 replica") if row["group"] != before else ""
            lines.append(f"| {work} | {row['contender']} | {text} | {against} |")
            before = row["group"]
    text = PAGE.read_text()
    head, rest = text.split(_MARKS[0])
    PAGE.write_text("\n".join([head + _MARKS[0], *lines, "", _MARKS[1] + rest.split(_MARKS[1])[1]]))


if __name__ == "__main__":
    main()
