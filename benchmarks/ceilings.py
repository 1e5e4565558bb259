"""How much of a device training uses: throughput against replicas up to its memory, beside what it can do at all.

    python benchmarks/ceilings.py                # measures this device, then the table and the figure of docs/scale.md
    python benchmarks/ceilings.py --measure      # only measures
    python benchmarks/ceilings.py --page         # only the table and the figure

The ceilings are measured, not read off a data sheet: operations a second of the best of several large matrix products,
and bytes a second of a vector sum too large for any cache. A step's operations are counted in its program before it is
compiled (products alone; by XLA's engine, the kernels do the same), its bytes in the compiled one: what each kernel
reads and writes, every array once. Over the time of a step, as shares of the ceilings, they say what bounds it. There
are four times as many replicas each time, and at last as many as the memory takes.
"""

import argparse
import dataclasses
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

# All that the device has, not the three quarters that JAX takes unless it is told.
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.97")

import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import TrainConfig
from crossreg.data.load import make_data
from crossreg.machine.devices import device_bytes
from crossreg.routing import route
from crossreg.runs.safeguards.versions import describe_machine
from crossreg.training.cohort import bytes_of, start_cohort
from crossreg.training.compiled import advance
from crossreg.training.replicas import first_snapshot, task_axes
from crossreg.training.step import Task, TrainState, reg_step, train_step, with_engine
from growth import config_of, trajectories_of

RESULTS, FIGURE, PAGE = Path("docs/results/ceilings.json"), Path("docs/figures/throughput"), Path("docs/scale.md")
_MARKS = ("<!-- ceilings: written by benchmarks/ceilings.py -->", "<!-- end of ceilings -->")
# The default model, its plain twin, and one on fields as large as a 2-D flow's.
CASES: dict[str, dict[str, Any]] = {
    "xreg, 160 points": {"method": "xreg", "space": (160,)},
    "unregularized, 160 points": {"method": "unregularized", "space": (160,)},
    "xreg, 96² points, width 32": {"method": "xreg", "space": (96, 96), "width": 32},
}
_BUILT = 256  # replicas beyond so many are copies: what they learn does not matter here
_SAME = 64  # from so many on, each replica moves the same bytes
_SECONDS = 0.5


class Ceilings(NamedTuple):
    """The highest measured rates of a device: operations per second by precision, bytes per second."""

    operations: dict[str, float]
    bytes: float


def best_seconds(run: Callable[[], Any], seconds: float = _SECONDS) -> float:
    """The shortest of as many calls as fit into some seconds, two at least."""
    jax.block_until_ready(run())
    took, until = [], time.perf_counter() + seconds
    while len(took) < 2 or time.perf_counter() < until:
        begun = time.perf_counter()
        jax.block_until_ready(run())
        took.append(time.perf_counter() - begun)
    return min(took)


def measure_ceilings(gpu: bool) -> Ceilings:
    """The best of several sizes; products by XLA, as a chain in which each needs the one before."""
    operations: dict[str, float] = {}
    chain = 8
    for precision in ("float32", "tensorfloat32", "bfloat16") if gpu else ("float32",):
        dtype = jnp.bfloat16 if precision == "bfloat16" else jnp.float32
        for size in (4096, 8192, 16384) if gpu else (1024, 2048):
            a, b = (jax.random.normal(jax.random.key(i), (size, size), dtype) / math.sqrt(size) for i in range(2))
            how = None if precision == "bfloat16" else precision
            product = jax.jit(lambda a, b, how=how: jax.lax.fori_loop(
                0, chain, lambda _, x: jnp.matmul(x, b, precision=how), a))  # fmt: skip
            rate = chain * 2 * size**3 / best_seconds(partial(product, a, b))
            operations[precision] = max(operations.get(precision, 0.0), rate)
            print(f"{precision:>14} {size:>6}²  {rate / 1e12:8.2f} Tflop/s", flush=True)
    size = 2**30 if gpu else 2**26
    x, y = (jnp.full(size, float(i)) for i in (1, 2))
    triad = jax.jit(lambda x, y: x + 0.5 * y)
    rate = 3 * 4 * size / best_seconds(partial(triad, x, y))
    print(f"{'x + s y':>14} {12 * size / 2**30:>5.1f}G  {rate / 1e12:8.3f} TB/s", flush=True)
    return Ceilings(operations, rate)


class Cohort(NamedTuple):
    """The cost of a program, from a few replicas that are built."""

    state: TrainState
    static: Any
    tasks: Task
    config: TrainConfig

    def of(self, replicas: int) -> tuple[TrainState, Task]:
        """So many, some of them copies."""

        def many(x):
            return jnp.tile(x, (-(-replicas // len(x)), *(1,) * (x.ndim - 1)))[:replicas]

        own = jax.tree.map(
            lambda axis, part: jax.tree.map(lambda _: axis is not None, part),
            task_axes(self.tasks), self.tasks, is_leaf=lambda x: x is None,
        )  # fmt: skip
        tasks = jax.tree.map(lambda is_own, x: many(x) if is_own else x, own, self.tasks)
        return jax.tree.map(many, self.state), tasks

    def shapes(self, replicas: int) -> tuple[TrainState, Task]:
        """Return the measurement without its numbers."""
        return jax.eval_shape(lambda: self.of(replicas))

    def updates(self, config: TrainConfig) -> Iterator[tuple[Callable, float]]:
        """Both updates of all replicas as functions of state and tasks, and how often a step has each."""
        axes = (0, task_axes(self.tasks))
        for update, share in ((train_step, 1.0), (reg_step, 1 / config.k_reg)):
            if update is train_step or self.state.rho.vector.size:
                one = partial(_call, update, self.static, config)
                yield jax.vmap(one, in_axes=axes), share


def _call(update, static, config, state, task):
    return update(state, static, task, 1, config)


def build(case: dict[str, Any]) -> Cohort:
    """A few replicas of a case."""
    config = config_of(case | {"replicas": 1, "axis": ""})
    data = make_data(trajectories_of(case["space"]), config.data)
    count = _BUILT if math.prod(case["space"]) < 1000 else 2
    models, tasks, train = start_cohort([config.replace(seed=s) for s in range(count)], [data] * count)
    return Cohort(first_snapshot(models).state, route(models).static, tasks, train)


def product_operations(jaxpr: Any) -> float:
    """Operations of all products in a program, loops of known length unrolled."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[i] for i in contracted)
        turns = equation.params["length"] if equation.primitive.name == "scan" else 1
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(inner):
                total += turns * product_operations(getattr(inner, "jaxpr", inner))
    return total


def _is_program(x: Any) -> bool:
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")


def step_operations(cohort: Cohort) -> float:
    """Of products, in one replica's step with its share of a reg update."""
    config = dataclasses.replace(cohort.config, engine="reference")
    traced = [(jax.make_jaxpr(update)(*cohort.shapes(1)), share) for update, share in cohort.updates(config)]
    return sum(share * product_operations(program.jaxpr) for program, share in traced)


_SHAPE = re.compile(r"(pred|bf16|[sufc]\d+)\w*\[([\d,]*)\]")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
# Operations that are no kernel, or that are counted where they are called.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "call"}


def kernel_bytes(text: str) -> float:
    """Return the bytes that the kernels of a compiled program read and write, each array once.

    Graphs of kernels are computations of their own, which the program calls; a fusion is one kernel where it stands.
    """
    total, sizes, counts = 0.0, {}, False
    for line in text.splitlines():
        if line and not line[0].isspace():
            counts, sizes = line.startswith(("ENTRY", "%command_buffer", "%parallel_")), {}
        found = _LINE.match(line)
        if not counts or not found:
            continue
        name, shape, kind, rest = found.groups()
        sizes[name] = _bytes_of(shape)
        if kind not in _FREE and not kind.endswith("-done"):
            operands = set(re.findall(r"%([\w.\-]+)", rest.split("), ")[0]))
            total += sizes[name] + sum(sizes.get(operand, 0.0) for operand in operands)
    return total


def _bytes_of(shape: str) -> float:
    """The size of an array, or of all in a tuple, as a compiled program writes it."""
    total = 0.0
    for kind, sizes in _SHAPE.findall(shape):
        bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind))
        total += bits / 8 * math.prod(int(n) for n in sizes.split(",") if n)
    return total


def step_bytes(cohort: Cohort, replicas: int) -> float:
    """Of one of so many replicas, in a step with its share of a reg update."""
    config = with_engine(cohort.config, replicas)
    compiled = [
        (jax.jit(update).lower(*cohort.shapes(replicas)).compile(), share) for update, share in cohort.updates(config)
    ]
    return sum(share * kernel_bytes(str(program.as_text())) for program, share in compiled) / replicas


class Compiled(NamedTuple):
    """A program of so many replicas, and the bytes that it holds."""

    replicas: int
    steps: Any
    held: int
    engine: str


def compile_for(cohort: Cohort, replicas: int) -> Compiled:
    """From shapes alone: nothing of its size is on the device yet."""
    config = with_engine(cohort.config, replicas)

    def steps(state, tasks, stop):
        return advance(state, cohort.static, tasks, jnp.asarray(0), stop, config)

    program: Any = jax.jit(steps).lower(*cohort.shapes(replicas), jax.ShapeDtypeStruct((), jnp.int32)).compile()
    memory = program.memory_analysis()
    held = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    return Compiled(replicas, program, held, config.engine)


def time_steps(cohort: Cohort, compiled: Compiled, rounds: int) -> list[float]:
    """Median and quartiles of seconds a step, over turns of whole periods of k_reg."""
    inputs = jax.block_until_ready(cohort.of(compiled.replicas))

    def run(steps: int) -> float:
        begun = time.perf_counter()
        jax.block_until_ready(compiled.steps(*inputs, np.int32(steps)))
        return time.perf_counter() - begun

    period = cohort.config.k_reg
    run(period)
    steps = period * max(1, int(_SECONDS / run(period)))
    return [float(q) for q in np.quantile([run(steps) / steps for _ in range(rounds)], (0.5, 0.25, 0.75))]


def measure(rounds: int) -> Iterator[dict[str, Any]]:
    """Rows of all cases: replicas, seconds a step, bytes held; the last has as many as fit."""
    gpu = jax.default_backend() != "cpu"
    there = int(0.97 * device_bytes()) if gpu else device_bytes() // 4
    cohorts = {name: build(case) for name, case in CASES.items()}
    operations = {name: step_operations(cohort) for name, cohort in cohorts.items()}
    with ThreadPoolExecutor(12 if gpu else 1) as pool:
        coming = {name: [pool.submit(compile_for, cohorts[name], n) for n in counts_of(case, there)]
                  for name, case in CASES.items()}  # fmt: skip
        moving = {name: {n: pool.submit(step_bytes, cohorts[name], n) for n in counts_of(case, there) if n <= _SAME}
                  for name, case in CASES.items()}  # fmt: skip
        ready = {name: [one.result() for one in some] for name, some in coming.items()}
        moved = {name: {n: one.result() for n, one in some.items()} for name, some in moving.items()}
    for name, cohort in cohorts.items():
        fitting = [one for one in ready[name] if one.held < there]
        if gpu:
            most = int(fitting[-1].replicas * there / fitting[-1].held)
            if most > 1.25 * fitting[-1].replicas:
                fitting.append(compile_for(cohort, most - most % (64 if most > 1000 else 1)))
        for one in fitting:
            try:
                seconds = time_steps(cohort, one, rounds)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                print(f"{name} × {one.replicas}: not enough memory for {one.held / 2**30:.1f} GiB", flush=True)
                continue
            traffic = moved[name].get(one.replicas, moved[name][max(moved[name])])
            row = {
                "case": name, "replicas": one.replicas, "engine": one.engine, "seconds": seconds, "held": one.held,
                "operations": operations[name], "moved": traffic,
            }  # fmt: skip
            each = seconds[0] / one.replicas
            print(
                f"{name} × {one.replicas:<6} {1e6 * each:9.2f} µs each  {one.held / 2**30:7.2f} GiB"
                f"  {operations[name] / each / 1e12:7.3f} Tflop/s  {traffic / each / 1e12:6.3f} TB/s",
                flush=True,
            )
            yield row


def counts_of(case: dict[str, Any], there: int) -> list[int]:
    """Replicas by powers of 4, up to more than the memory will take; on a CPU, where more is not faster, a few."""
    if jax.default_backend() == "cpu":
        return [1, 2, 4] if math.prod(case["space"]) < 1000 else [1]
    config = config_of(case | {"replicas": 1, "axis": ""})
    # Sweeps plan with a bound; a twentieth of it is less than any program was seen to hold.
    least = bytes_of(config, math.prod(case["space"])) / 20
    return [4**k for k in range(8) if 4**k * least < there]


def write_page(known: dict[str, Any]) -> None:
    """The table of docs/scale.md."""
    lines = []
    for device, one in known.items():
        ceilings = Ceilings(*one["ceilings"].values())
        precision = "tensorfloat32" if "tensorfloat32" in ceilings.operations else "float32"
        products = ", ".join(f"{rate / 1e12:.3g} in {name}" for name, rate in ceilings.operations.items())
        lines += ["", f"{device}: at most {products} Tflop/s of matrix products; {ceilings.bytes / 1e12:.3g} TB/s.", ""]
        lines += ["| training | replicas | memory | µs each | replica-steps/s | of TF32 products | of bandwidth |"]
        lines += ["|---|---|---|---|---|---|---|"]
        last = None
        for row in one["rows"]:
            each = row["seconds"][0] / row["replicas"]
            share = row["operations"] / each / ceilings.operations[precision]
            moved = row["moved"] / each / ceilings.bytes
            held = row["held"] / 2**30
            held = f"{held:.1f} GiB" if held > 1 else f"{1024 * held:.0f} MiB"
            label = row["case"] if row["case"] != last else ""
            last = row["case"]
            lines.append(
                f"| {label} | {row['replicas']:,} | {held} | {1e6 * each:,.{0 if each > 1e-4 else 1}f}"
                f" | {1 / each:,.0f} | {share:.1%} | {moved:.0%} |"
            )
    text = PAGE.read_text()
    head, rest = text.split(_MARKS[0])
    PAGE.write_text(head + "\n".join([_MARKS[0], *lines, "", _MARKS[1]]) + rest.split(_MARKS[1])[1])


def draw(known: dict[str, Any]) -> None:
    """Replica-steps a second, and the shares of both ceilings, against replicas."""
    # Here alone: a machine that only measures needs no matplotlib.
    import matplotlib.pyplot as plt

    from crossreg.report.figures.drawing import COLORS, STYLE, save

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.7), layout="constrained")
        one = next(one for device, one in known.items() if device != "cpu")
        ceilings = Ceilings(*one["ceilings"].values())
        for case, color in zip(CASES, COLORS, strict=False):
            rows = [row for row in one["rows"] if row["case"] == case]
            replicas = [row["replicas"] for row in rows]
            each = np.asarray([row["seconds"][0] / row["replicas"] for row in rows])
            rate = ceilings.operations["tensorfloat32"]
            axes[0].loglog(replicas, 1 / each, "o-", ms=3, lw=1, color=color, label=case)
            axes[1].semilogx(replicas, [100 * r["moved"] / e / ceilings.bytes for r, e in zip(rows, each, strict=True)],
                             "o-", ms=3, lw=1, color=color)  # fmt: skip
            axes[2].semilogx(replicas, [100 * r["operations"] / e / rate for r, e in zip(rows, each, strict=True)],
                             "o-", ms=3, lw=1, color=color)  # fmt: skip
        titles = ("replica-steps a second", "% of the bandwidth", "% of TF32 products")
        for axis, title in zip(axes, titles, strict=True):
            axis.set_title(title)
            axis.set_xlabel("replicas")
        for axis in axes[1:]:
            axis.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncols=3, fontsize=7)
        for path in save(figure, FIGURE):
            if path.suffix != ".png":
                path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="no table and no figure")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--add", type=Path, help="a file that another machine has written")
    arguments = parser.parse_args()
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    if arguments.add:
        known |= json.loads(arguments.add.read_text())
    elif not arguments.page:
        device = jax.devices()[0]
        ceilings = measure_ceilings(device.platform != "cpu")
        one = {"versions": describe_machine(), "ceilings": ceilings._asdict(), "rows": []}
        for row in measure(arguments.rounds):
            one["rows"].append(row)
            known[device.device_kind] = one
            arguments.out.write_text(json.dumps(known, indent=1) + "\n")
    arguments.out.write_text(json.dumps(known, indent=1) + "\n")
    if not arguments.measure:
        write_page(known)
        draw(known)


if __name__ == "__main__":
    main()
