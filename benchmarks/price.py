"""The price of error bars: a training and a prediction, in units of the plain network's.

    python benchmarks/price.py --runs       # the default in the paper's regimes, ten seeds; half an hour on one core
    python benchmarks/price.py             # measures on this device, then writes the tables of docs/price.md
    python benchmarks/price.py --page      # only the tables, from docs/results

Contenders take turns in one process, as in `speed.py`; every ratio is to the plain network of the same turn, and rows
have the median and the quartiles over turns. A training of XReg has two kinds of steps, before and while ρ settles;
that of the default is their mean, weighted by `settle`. Scores come from `docs/results/draws.jsonl`, the default's runs
in the paper's regimes, and `gradient.jsonl`, the same runs with the draws of the paper (`methods.xreg.INDEPENDENT`);
those of other settings from `draws_tried.jsonl`.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from crossreg.config import Config, TrainConfig
from crossreg.data.apebench import load_trajectories
from crossreg.data.dataset import Data
from crossreg.data.load import make_data
from crossreg.designs.grids import OBSERVED, TRAIN_SIZES
from crossreg.fitting import fit
from crossreg.methods.names import config_of
from crossreg.methods.xreg import INDEPENDENT
from crossreg.metrics.intervals import interval
from crossreg.nn.build import build_model
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.runs.safeguards.versions import describe_machine
from publish import RESULTS, rounded
from speed import ours, rows_of, save, take_turns

PAGE, TIMES, DRAWN = Path("docs/price.md"), RESULTS / "price.json", RESULTS / "draws.jsonl"
# As many fields as 30 samples of them stay in a CPU's cache, as when a split is scored.
FIELDS = (1, 25)
SETTLING = ", while ρ settles"
# Of a prediction: the number of samples, and whether they are pairs with opposite noise.
DRAWS = {"30 samples": (30, False), "8 in pairs": (8, True), "4 in pairs": (4, True)}


def train_the_default(regimes: Sequence[dict[str, Any]], seeds: int = 10, steps: int = 10_000) -> None:
    """Train the default in some regimes and store its scores on test; runs that are stored already are left out."""
    known = rows_by_regime("draws") if DRAWN.exists() else {}
    for changes in regimes:
        config = Config().replace(**changes, steps=steps)
        data = make_data(load_trajectories(config.data), config.data)
        for seed in range(seeds):
            if seed in known.get((changes["observed_fraction"], changes["train_size"]), {}):
                continue
            scores = fit(data, config.model, config.train, seed=seed, progress=False).evaluate(data.test)
            row = changes | {"method": "xreg", "seed": seed, "steps": steps}
            row |= {"test": rounded({name: scores[name] for name in ("nll", "ece_mix", "crps", "rmse")})}
            with DRAWN.open("a") as file:
                file.write(json.dumps(row | {"versions": describe_machine()}, separators=(",", ":")) + "\n")
            print(changes, seed, row["test"], flush=True)


def trainings(base: Config, data: Data) -> dict[str, Callable[[int], Any]]:
    """Return the contenders of a training; so long a run that its schedule and its last phase are out of reach."""
    plain, xreg = (config_of(name, base) for name in ("unregularized", "xreg"))
    independent = xreg.replace(**INDEPENDENT)
    always = {"k_reg": 1}
    return {
        "plain": ours(plain, data),
        "xreg": ours(xreg, data),
        f"xreg{SETTLING}": ours(xreg.replace(**always), data),
        "xreg, ten independent samples": ours(independent, data),
        f"xreg, ten independent samples{SETTLING}": ours(independent.replace(**always), data),
        "xreg-heads": ours(config_of("xreg-heads", base), data),
        f"xreg-heads{SETTLING}": ours(config_of("xreg-heads", base).replace(**always), data),
        "dropout": ours(config_of("dropout", base), data),
        "ensemble": ours(plain, data, replicas=3),
    }


def predictions(base: Config, data: Data, fields: int) -> dict[str, Callable[[int], Any]]:
    """Return the contenders of a prediction: the mean, the std and its two parts."""
    plain, xreg = (
        build_model(config_of(name, base).model, data.train, key=jax.random.key(0))
        for name in ("unregularized", "xreg")
    )
    x = data.test[np.arange(fields)].x

    def repeated(models: Sequence[Surrogate], samples: int, antithetic: bool) -> Callable[[int], Any]:
        def calls(count: int) -> None:
            for _ in range(count):
                done = [_parts(model, x, samples, antithetic) for model in models]
                jax.block_until_ready(done)

        return calls

    return {
        "plain": repeated([plain], 1, False),
        **{f"xreg, {name}": repeated([xreg], *draws) for name, draws in DRAWS.items()},
        "ensemble": repeated([plain] * 3, 1, False),
    }


@eqx.filter_jit
def _parts(model: Surrogate, x, samples: int, antithetic: bool):
    mixture = predict(model, x, num_samples=samples, antithetic=antithetic)
    return mixture.mean, mixture.std, mixture.std_predictive, mixture.std_generalization


def measure(rounds: int) -> None:
    """Time all contenders on this device, and store their rows."""
    base = Config().replace(observed_fraction=0.7, train_size=50, steps=10**8)
    data = make_data(load_trajectories(base.data), base.data)
    work = {"device": jax.devices()[0].device_kind, "replicas": 1}
    groups = {"training": lambda: trainings(base, data), "tried": lambda: trainings_tried(base, data)}
    groups |= {f"prediction of {n}": lambda n=n: predictions(base, data, n) for n in FIELDS}
    for name, contenders in groups.items():
        save(rows_of(name, take_turns(contenders(), rounds), work), TIMES)


def tried(*, rates: bool = False) -> list[dict[str, Any]]:
    """Return the runs with other draws, on a mask and seeds that are not reported; or those with other `rates`."""
    rows = [json.loads(line) for line in (RESULTS / "draws_tried.jsonl").read_text().splitlines()]
    return [row for row in rows if ("site_learning_rate" in row["changes"]) == rates]


def name_of(changes: dict[str, Any]) -> str:
    """Return the name of a contender with these settings."""
    return ", ".join(f"{name} {value}" for name, value in changes.items() if name != "settle")


def trainings_tried(base: Config, data: Data) -> dict[str, Callable[[int], Any]]:
    """Return the contenders of the settings that were tried, before ρ settles."""
    settings = {name_of(row["changes"]): row["changes"] for row in tried()}
    xreg = config_of("xreg", base)
    found = {"plain": ours(config_of("unregularized", base), data)}
    return found | {name: ours(xreg.replace(**changes), data) for name, changes in settings.items()}


def ratio(rows: Sequence[dict[str, Any]], group: str, contender: str) -> float | None:
    """Return how many times the plain network's time a contender takes, or None if it was not measured."""
    found = [row["ratio"][0] for row in rows if (row["group"], row["contender"]) == (group, contender)]
    return found[0] if found else None


def of_training(rows: Sequence[dict[str, Any]], contender: str) -> float:
    """Return the price of a whole training: steps before and while ρ settles, by their share of the run."""
    share = INDEPENDENT["settle"] if "independent" in contender else TrainConfig.settle
    before, after = (ratio(rows, "training", contender + part) for part in ("", SETTLING))
    assert before is not None
    return before if after is None else (1 - share) * before + share * after


def price_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of the prices on every device."""
    lines = []
    for device in dict.fromkeys(row["device"] for row in rows):
        own = [row for row in rows if row["device"] == device]
        lines += ["", f"**{'Two CPU cores' if device == 'cpu' else device}**, in units of the plain network", ""]
        lines += ["| | training | prediction of one field | of 25 fields |", "|---|---|---|---|"]
        names = [row["contender"] for row in own if row["group"] == "training" and SETTLING not in row["contender"]]
        asked = [row["contender"] for row in own if row["group"].startswith("prediction")]
        lines += [f"| {name} | {of_training(own, name):.2f} | | |" for name in names]
        for name in dict.fromkeys(asked):
            cells = [ratio(own, f"prediction of {n}", name) for n in FIELDS]
            lines.append(f"| {name} | | " + " | ".join("–" if c is None else f"{c:.2f}" for c in cells) + " |")
    return lines


def tried_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of the settings that were tried: prices on two cores, and mean scores."""
    lines = ["", "| samples on train | on reg | drawn | pairs for ρ | `k_reg` | price | NLL | ECE | CRPS | RMSE |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    of: dict[str, list[dict[str, Any]]] = {}
    for row in tried():
        of.setdefault(name_of(row["changes"]), []).append(row)
    for name, runs in of.items():
        changes, price = runs[0]["changes"], ratio([r for r in rows if r["device"] == "cpu"], "tried", name)
        cells = [changes["train_samples"] or changes["num_samples"], changes["num_samples"]]
        cells += ["in pairs" if changes["antithetic"] else "independent", changes["reg_batch_size"] or 8]
        cells += [changes["k_reg"], "–" if price is None else f"{price:.1f}"]
        means = [np.mean([run["test"][s] for run in runs]) for s in ("nll", "ece_mix", "crps", "rmse")]
        cells += [f"{mean:.{digits}f}" for mean, digits in zip(means, (2, 3, 4, 3), strict=True)]
        lines.append("| " + " | ".join(map(str, cells)).replace("-", "−") + " |")
    return lines


def rows_by_regime(name: str) -> dict[tuple[float, int], dict[int, dict[str, float]]]:
    """Return the scores on test of published runs of `xreg`, by observed fraction and size, and by seed."""
    found: dict[tuple[float, int], dict[int, dict[str, float]]] = {}
    for line in (RESULTS / f"{name}.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["method"] == "xreg":
            found.setdefault((row["observed_fraction"], row["train_size"]), {})[row["seed"]] = row["test"]
    return found


def score_table() -> list[str]:
    """Return the default's scores beside those with ten independent samples, and the paired differences."""
    few, ten = rows_by_regime("draws"), rows_by_regime("gradient")
    scores = ("nll", "ece_mix", "crps")
    lines = ["", "| observed, trajectories | NLL / ECE / CRPS, default | ten independent samples | difference |"]
    lines.append("|---|---|---|---|")
    for changes in [*OBSERVED, *TRAIN_SIZES]:
        regime = (changes["observed_fraction"], changes["train_size"])
        seeds = sorted(few[regime].keys() & ten[regime].keys())
        pairs = {s: [(few[regime][seed][s], ten[regime][seed][s]) for seed in seeds] for s in scores}
        means = [[f"{np.mean([pair[i] for pair in pairs[s]]):.3g}" for s in scores] for i in (0, 1)]
        differences = []
        for s in scores:
            found = interval([a - b for a, b in pairs[s]])
            assert found is not None
            text = f"{found.mean:+.2g} ± {found.half:.2g}"
            differences.append(f"**{text}**" if abs(found.mean) > found.half else text)
        cells = [" / ".join(cells) for cells in (*means, differences)]
        lines.append(f"| {regime[0]}, {regime[1]} | " + " | ".join(cells).replace("-", "−") + " |")
    return lines


def write_page() -> None:
    """Put the tables between their marks in docs/price.md."""
    text = PAGE.read_text()
    rows = json.loads(TIMES.read_text())
    for mark, lines in (("price", price_table(rows)), ("scores", score_table()), ("tried", tried_table(rows))):
        begin, end = f"<!-- {mark}, written by benchmarks/price.py -->", f"<!-- end of {mark} -->"
        head, rest = text.split(begin)
        text = "\n".join([head + begin, *lines, "", end + rest.split(end)[1]])
    PAGE.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--runs", nargs="*", type=int, metavar="REGIME", help="train in these regimes (0 to 7), or all")
    arguments = parser.parse_args()
    if arguments.runs is not None:
        regimes = [*OBSERVED, *TRAIN_SIZES]
        train_the_default([regimes[number] for number in arguments.runs or range(len(regimes))])
        return
    started = time.perf_counter()
    if not arguments.page:
        measure(arguments.rounds)
        print(f"{time.perf_counter() - started:.0f} s")
    write_page()


if __name__ == "__main__":
    main()
