"""The sweeps that have a name, and grids over any config field. No JAX here."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from crossreg.config import Config, typed_field
from crossreg.errors import InputError
from crossreg.methods.names import Method, parse_method, parse_methods

PAPER_METHODS = "xreg,dropout,ensemble,unregularized"
OBSERVED = [{"observed_fraction": fraction, "train_size": 50} for fraction in (0.4, 0.6, 0.8, 1.0)]
TRAIN_SIZES = [{"observed_fraction": 0.7, "train_size": size} for size in (20, 30, 40, 70)]
# The paper's four regimes: what is observed, and which method.
REGIMES = [(0.7, "xreg"), (0.3, "xreg-heads"), (0.7, "xreg-heads"), (0.7, "unregularized")]
TOTALS, TOTAL_FRACTIONS = (25, 40, 60, 80), (0.4, 0.7, 1.0)
EQUAL_DATA_METHODS = (
    "xreg,xreg-layer,dropout,ensemble,unregularized,dropout+temperature,ensemble+temperature,ensemble+early+temperature"
)
# Of a total of trajectories, what a method that needs held-out data may hold out.
HELD_OUT = (lambda total: 5, lambda total: round(0.2 * total))
NAMES = ("paper-observed", "paper-train-size", "paper", "paper-regimes", "equal-data", "grid")


class Point(NamedTuple):
    """One row of a sweep: a config without its method, the method, and the fields that the sweep changes."""

    config: Config
    method: Method
    changes: dict[str, Any]


def plan(
    name: str,
    *,
    methods: str | None = None,
    seeds: int = 5,
    steps: int | None = None,
    grid: Sequence[str] = (),
    base: Config | None = None,
) -> list[Point]:
    """All points of a sweep, in the order of the table: regime, method, seed.

    `grid` lists fields and their values as `field=value,value`; the sweep is over all combinations, inside the
    regimes that `name` has.
    """
    if name not in NAMES:
        raise InputError(f"sweep {name}: not one of {', '.join(NAMES)}")
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: must be at least 1")
    if name == "grid" and not grid:
        raise InputError("sweep grid: give at least one --grid field=value,value")
    config = (base or Config()).replace(steps=steps or (30_000 if name == "paper-regimes" else 10_000))
    points = []
    for combination in _combinations(grid):
        for changes, method in _regimes(name, methods):
            both = changes | combination
            for seed in range(seeds):
                points.append(Point(config.replace(**both, seed=seed), method, both))
    return points


def _regimes(name: str, methods: str | None) -> list[tuple[dict[str, Any], Method]]:
    """What a named sweep crosses: changes of the config, and methods."""
    if name == "paper-regimes":
        if methods is not None:
            raise InputError("--methods: the four regimes have methods of their own")
        return [({"observed_fraction": f, "train_size": 50}, parse_method(m)) for f, m in REGIMES]
    if name == "equal-data":
        listed = parse_methods(methods or EQUAL_DATA_METHODS)
        return [
            ({"observed_fraction": f, "train_size": t - held, "reg_size": held, "one_pool": True}, method)
            for f, t in itertools.product(TOTAL_FRACTIONS, TOTALS)
            for method in listed
            for held in (dict.fromkeys(h(t) for h in HELD_OUT) if method.needs_reg(Config()) else [0])
        ]
    regimes: dict[str, list[dict[str, Any]]] = {
        "paper-observed": OBSERVED,
        "paper-train-size": TRAIN_SIZES,
        "paper": OBSERVED + TRAIN_SIZES,
        "grid": [{}],
    }
    return list(itertools.product(regimes[name], parse_methods(methods or PAPER_METHODS)))


def _combinations(grid: Sequence[str]) -> list[dict[str, Any]]:
    """All combinations of `field=value,value` items."""
    axes: dict[str, list[Any]] = {}
    for item in grid:
        field, equals, values = item.partition("=")
        field = field.strip().lstrip("-").replace("-", "_")
        if not equals or not values:
            raise InputError(f"--grid {item}: expected field=value,value")
        if field in axes:
            raise InputError(f"--grid {item}: {field} stands there twice")
        if field in ("seed", "steps"):
            raise InputError(f"--grid {item}: {field} has a flag of its own, --{'seeds' if field == 'seed' else field}")
        axes[field] = [typed_field(field, value.strip(), f"--grid {field}") for value in values.split(",")]
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def cohort_of(config: Config) -> tuple:
    """What the replicas of one program share: configs of equal value here may train side by side."""
    data = dataclasses.replace(
        config.data, observed_fraction=1.0, mask_seed=0, train_size=1, reg_size=0, test_size=1, one_pool=False
    )
    return (data, config.model, dataclasses.replace(config.train, seed=0))
