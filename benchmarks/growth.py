"""How the cost of a training step grows, and the rates of the cost model that sweeps are planned with.

    python benchmarks/growth.py                # measures this device, then fits and draws
    python benchmarks/growth.py --measure      # only measures
    python benchmarks/growth.py --fit          # only fits and draws what docs/results/growth.json has

One thing is changed at a time: replicas, samples, width, points in one and two dimensions, k_reg, method; on a GPU with
1 replica and with 64. Cases take turns in one process. The rates go to src/crossreg/training/cost.json, which is what
`crossreg sweep` reads, the figure to docs/figures/growth.png.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.optimize import nnls

from crossreg.config import Config
from crossreg.data.load import make_data
from crossreg.data.trajectories import Trajectories, digest
from crossreg.methods.names import parse_method
from crossreg.methods.xreg import INDEPENDENT
from crossreg.routing import route
from crossreg.runs.safeguards.versions import describe_machine
from crossreg.training.cohort import bytes_of, memory_bytes, start_cohort
from crossreg.training.compiled import take_steps
from crossreg.training.cost import RATES, features, work_of
from crossreg.training.replicas import first_snapshot
from crossreg.training.step import with_engine
from speed import Steps, take_turns

RESULTS, FIGURE = Path("docs/results/growth.json"), Path("docs/figures/growth")
AXES: dict[str, list[dict[str, Any]]] = {
    "replicas": [{"replicas": 2**k} for k in range(11)],
    "samples": [{"num_samples": s} for s in (2, 4, 8, 16, 32, 64)],
    "width": [{"width": w} for w in (8, 16, 32, 64, 128)],
    "points": [{"space": (n,)} for n in (160, 320, 640, 1280, 2048, 4096)],
    "points, 2-D": [{"space": (n, n)} for n in (16, 32, 64)],
    "k_reg": [{"k_reg": k} for k in (1, 2, 5, 10, 50)],
    "method": [{"method": m} for m in ("xreg", "xreg-element", "xreg-modes", "dropout", "unregularized")],
}
# On a CPU replicas share nothing but the launch: a few say it.
_MOST_ON_CPU = 16
_SLOWEST = 1.0  # seconds a step, by the size of the fields: what is larger is left out
_HELD_STEPS = 10**8  # so long a run that its schedule and its last phase are out of reach


def config_of(case: dict[str, Any]) -> Config:
    """The settings of a case."""
    fields = {k: v for k, v in case.items() if k not in ("replicas", "space", "method", "axis")}
    modes = {"num_modes": min(12, min(case["space"]) // 2)}
    sizes = {"train_size": 4, "reg_size": 4, "test_size": 1, "one_pool": True}
    draws = INDEPENDENT | {"settle": 0.0}
    base = Config().replace(steps=_HELD_STEPS, **sizes, **draws | modes | fields)
    [config] = parse_method(case["method"]).configs(base)
    return config


def trajectories_of(space: tuple[int, ...]) -> Trajectories:
    """Noise of the right shape: what is learned from it does not matter here."""
    draw = np.random.default_rng(0)
    train, test = (draw.normal(size=(n, 3, 1, *space)).astype(np.float32) for n in (8, 1))
    return Trajectories(train, test, {}, digest(train, test))


def prepare(case: dict[str, Any]) -> Steps:
    """The compiled steps of a case."""
    config, count = config_of(case), case["replicas"]
    data = make_data(trajectories_of(case["space"]), config.data)
    models, tasks, train = start_cohort([config.replace(seed=s) for s in range(count)], [data] * count)
    static, state = route(models).static, first_snapshot(models).state
    train = with_engine(train, count)
    done = 0

    def steps(number: int) -> None:
        nonlocal state, done
        state = take_steps(state, static, tasks, done, done + number, train)
        done += number
        jax.block_until_ready(state)

    steps(0)
    return steps


def cases_of(backend: str, counts: Sequence[int]) -> list[dict[str, Any]]:
    """Return the cases that fit; on a GPU, whose programs compile slowly, every other one and the last."""
    cases: dict[str, dict[str, Any]] = {}
    for axis, changes in AXES.items():
        picked = changes
        if backend != "cpu" and axis != "method":
            picked = [change for i, change in enumerate(changes) if i % 2 == 0 or i == len(changes) - 1]
        for count in counts if axis != "replicas" else [1]:
            for change in picked:
                case = {"axis": axis, "method": "xreg", "space": (160,), "replicas": count} | change
                size = case["replicas"] * bytes_of(config_of(case), math.prod(case["space"]))
                fits = size < (0.6 * memory_bytes() if backend != "cpu" else _SLOWEST * 4e9)
                if fits and (backend != "cpu" or case["replicas"] <= _MOST_ON_CPU):
                    cases[json.dumps(case)] = case
    return list(cases.values())


def measure(rounds: int) -> Iterator[dict[str, Any]]:
    """Seconds per step of every case on this device, axis by axis."""
    device = jax.devices()[0]
    cases = cases_of(device.platform, (1,) if device.platform == "cpu" else (1, 64))
    print(f"{device.device_kind}: {len(cases)} cases")
    with ThreadPoolExecutor(1 if device.platform == "cpu" else 12) as pool:
        ready = list(pool.map(prepare, cases))
    for axis in AXES:
        picked = [(case, steps) for case, steps in zip(cases, ready, strict=True) if case["axis"] == axis]
        names = {f"crossreg {i}": steps for i, (_, steps) in enumerate(picked)}
        turns = take_turns(names, rounds, turn_seconds=0.25, unit=50 if axis == "k_reg" else 10)
        for (case, _), seconds in zip(picked, turns.values(), strict=True):
            quartiles = [float(q) for q in np.quantile(seconds, (0.5, 0.25, 0.75))]
            print(f"{axis:>12}  {_value(case)!s:>14} × {case['replicas']:<5} {1e3 * quartiles[0]:9.3f} ms", flush=True)
            yield case | {"device": device.device_kind, "platform": device.platform, "seconds": quartiles}


def _value(case: dict[str, Any]) -> Any:
    field = {"replicas": "replicas", "samples": "num_samples", "width": "width", "method": "method", "k_reg": "k_reg"}
    return math.prod(case["space"]) if case["axis"].startswith("points") else case[field[case["axis"]]]


def _features(row: dict[str, Any]) -> np.ndarray:
    case = {k: v for k, v in row.items() if k not in ("device", "platform", "seconds")}
    space = tuple(case.pop("space"))
    return features(work_of(config_of(case | {"space": space}), space, row["platform"]), row["replicas"])


def fit(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rates, none negative, with the least squared relative error; and how large that is."""
    seconds = np.asarray([row["seconds"][0] for row in rows])
    matrix = np.stack([_features(row) for row in rows])
    scale = matrix.max(axis=0) + (matrix.max(axis=0) == 0)
    rates = nnls(matrix / scale / seconds[:, None], np.ones(len(rows)))[0] / scale
    off = np.abs(np.log(matrix @ rates / seconds))
    print(
        f"{rows[0]['device']}: off by {np.expm1(np.median(off)):.0%} in the median, {np.expm1(off.max()):.0%} at most"
    )
    quantiles = {"median": float(np.expm1(np.median(off))), "largest": float(np.expm1(off.max()))}
    return {"rates": [float(f"{r:.4g}") for r in rates], "relative_error": quantiles, "cases": len(rows)}


def draw(rows: Sequence[dict[str, Any]], rates: dict[str, Any]) -> None:
    """Measured points, and the model as lines: ms per replica and step."""
    # Here alone: a machine that only measures needs no matplotlib.
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    from crossreg.report.figures.drawing import COLORS, STYLE, save

    numeric = [axis for axis in AXES if axis != "method"]
    devices = list(dict.fromkeys(row["device"] for row in rows))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 3, figsize=(7.2, 4.4), layout="constrained")
        for axis, name in zip(axes.flat, numeric, strict=True):
            color = iter(COLORS)
            for device in devices:
                for count in (1, 64):
                    line = [r for r in rows if (r["axis"], r["device"]) == (name, device)]
                    line = line if name == "replicas" else [r for r in line if r["replicas"] == count]
                    if not line or (name == "replicas" and count > 1):
                        next(color)
                        continue
                    x = [_value(r) for r in line]
                    measured = [1e3 * r["seconds"][0] / r["replicas"] for r in line]
                    modelled = [
                        1e3 * float(_features(r) @ np.asarray(rates[device]["rates"])) / r["replicas"] for r in line
                    ]
                    shade = next(color)
                    label = device if name == "replicas" else f"{device}, {count} replica{'s' * (count > 1)}"
                    axis.loglog(x, measured, "o", ms=3.5, color=shade, label=label if name != "replicas" else None)
                    axis.loglog(x, modelled, "-", lw=1, color=shade)
            ticks = sorted({_value(r) for r in rows if r["axis"] == name})
            axis.set_xticks(ticks, [str(t) if i % 2 == 0 or len(ticks) < 6 else "" for i, t in enumerate(ticks)])
            axis.set_xlabel(name)
            low, high = axis.get_ylim()
            axis.set_ylim(low / 2, high * 2)
            for ruler in (axis.xaxis, axis.yaxis):
                ruler.set_minor_formatter(NullFormatter())
            axis.minorticks_off()
        for axis in axes[:, 0]:
            axis.set_ylabel("ms per replica and step")
        handles, labels = axes[0][1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7)
        for path in save(figure, FIGURE):
            if path.suffix != ".png":
                path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="measure nothing")
    parser.add_argument("--measure", action="store_true", help="neither fit nor draw")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    if not arguments.fit:
        measured = {"versions": describe_machine(), "rows": []}
        for row in measure(arguments.rounds):
            measured["rows"].append(row)
            known[row["device"]] = measured
            arguments.out.write_text(json.dumps(known, indent=1) + "\n")
    if arguments.measure:
        return
    # What is around the steps (`benchmarks/planning.py`) stays; it is in units of the rates, and to be fitted again.
    before = json.loads(RATES.read_text()) if RATES.exists() else {}
    rates = {device: before.get(device, {}) | fit(one["rows"]) for device, one in known.items()}
    RATES.write_text(json.dumps(rates, indent=1) + "\n")
    draw([row for one in known.values() for row in one["rows"]], rates)


if __name__ == "__main__":
    main()
