"""The named sweeps, and grids over any field of the config. This module does not import JAX."""

import functools
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crossreg.config import Config, ModelConfig, typed_field
from crossreg.config.field_types import check
from crossreg.config.sites import site_names
from crossreg.designs import paper
from crossreg.errors import InputError
from crossreg.files.yaml_files import parse_settings
from crossreg.methods.names import Method, parse_method, parse_methods

PAPER_METHODS = "xreg,dropout,ensemble,unregularized"
# `--methods all`: every kind of method, and the wrappers that make sense after it.
ALL_METHODS = ",".join(
    [
        "xreg,xreg-crps,xreg-fair,xreg-mm,xreg-mixture,xreg-internal,xreg-internal-mm,xreg-heads,xreg-modes,xreg-layer",
        "xreg-element,xreg-layer-element,xreg-ensemble,xreg+early,xreg+temperature,xreg+conformal",
        "dropout,dropout+early,dropout+temperature,dropout+conformal,dropout+early+temperature",
        "dropout-reg,dropout-reg+temperature,dropout-reg+conformal",
        "ensemble,ensemble+early,ensemble+temperature,ensemble+conformal,ensemble+early+temperature",
        "ensemble+early+conformal,unregularized,unregularized+early,unregularized+temperature,unregularized+conformal",
        "unregularized+early+temperature,fixed-noise,fixed-noise+temperature,persistence,persistence-masked",
    ]
)
OBSERVED = [{"observed_fraction": fraction, "train_size": 50} for fraction in (0.4, 0.6, 0.8, 1.0)]
TRAIN_SIZES = [{"observed_fraction": 0.7, "train_size": size} for size in (20, 30, 40, 70)]
# The paper's four regimes: observed fraction and method.
REGIMES = [(0.7, "xreg"), (0.3, "xreg-heads"), (0.7, "xreg-heads"), (0.7, "unregularized")]
TOTALS, TOTAL_FRACTIONS = (25, 40, 60, 80), (0.4, 0.7, 1.0)
EQUAL_DATA_METHODS = (
    "xreg,dropout,dropout+temperature,dropout+conformal,ensemble,ensemble+temperature,ensemble+conformal,"
    "ensemble+early+temperature,ensemble+early+conformal,unregularized,unregularized+early+temperature,"
    "unregularized+conformal,persistence,persistence-masked"
)
# One regime: the baselines without the reg split, and with each use that they can make of it.
SCENARIO_METHODS = (
    "xreg,dropout,ensemble,unregularized,dropout+early,ensemble+early,dropout+conformal,ensemble+conformal,"
    "ensemble+sigma-temperature,persistence"
)
# How many of all trajectories a method that needs held-out data may hold out.
HELD_OUT = (lambda total: 5, lambda total: round(0.2 * total))
# Forecasts: what is trained on single steps and on rollouts, and the baselines with the growth that reg lets them fit.
ROLLOUT_METHODS = (
    "xreg,xreg-ensemble,xreg-rollout,xreg-rollout-ensemble,ensemble,ensemble+growth,dropout,dropout+growth,"
    "unregularized+growth,train-noise,train-noise+early,train-noise-rollout,train-noise-rollout+growth,"
    "persistence+growth"
)
# Forecasts at equal data: one total, of which methods that need held-out data hold out a fifth.
ROLLOUT_TOTALS = (60,)
SCORED = {"rollout_steps": 100}
ROLLOUTS = [{"observed_fraction": fraction} | SCORED for fraction in (1.0, 0.7)]
# One change at a time, in regimes with little, partial and full observation.
ABLATION_REGIMES = [(0.4, 50), (0.7, 30), (1.0, 50)]
ABLATION: list[dict[str, Any]] = [
    {},
    *({"sites": (site,)} for site in site_names(ModelConfig.num_blocks)),
    {"sigma_per": "layer"},
    {"epsilon_per": "element"},
    {"sigma_per": "layer", "epsilon_per": "element"},
    {"generalization_head": False},
    {"mode_noise": "generalization"},
    *({"reg_objective": objective} for objective in ("crps", "fair", "moment-matched", "mixture")),
    *({"k_reg": k} for k in (1, 20, 50)),
    {"settle": 0.0},
    *({"num_samples": count} for count in (2, 30)),
    *({"reg_size": size} for size in (3, 5, 10, 20)),
    *({"log_sigma_pred_start": start} for start in (-5.0, -2.0)),
    {"scaled_start": False},
    {"learning_rate": 1e-3, "schedule": "constant"},
]
NAMES = (
    "paper-observed", "paper-train-size", "paper", "paper-regimes", "paper-exact", "equal-data", "ablation", "rollouts",
    "rollouts-equal-data", "scenario", "grid",
)  # fmt: skip


# Methods of sweeps that by default have others than those of the paper.
_OTHER_METHODS = {
    "equal-data": EQUAL_DATA_METHODS,
    "ablation": "xreg",
    "rollouts": ROLLOUT_METHODS,
    "rollouts-equal-data": ROLLOUT_METHODS,
    "scenario": SCENARIO_METHODS,
}
# Planning a larger sweep would take days.
_MOST_RUNS = 100_000


@dataclass(frozen=True)
class Trial:
    """One row of a sweep: a method, its settings, and one seed.

    Attributes:
        base: The settings before the method is applied, with the seed.
        method: The method.
        changes: The fields that the sweep varies; they are applied after the method.
    """

    base: Config
    method: Method
    changes: dict[str, Any]

    @functools.cached_property
    def config(self) -> Config:
        """The settings with the changes of the sweep, but without the method."""
        return self.base.replace(**self.changes)

    @functools.cached_property
    def configs(self) -> list[Config]:
        """The settings of each candidate of the method."""
        return self.method.configs(self.base, self.changes)

    @functools.cached_property
    def splits_off_calibration(self) -> bool:
        """Whether the calibration part of reg is split off, since the method learns on reg and has wrappers."""
        return self.method.wrapped and self.method.learns_on_reg(self.configs)

    @property
    def needs_reg(self) -> bool:
        """Whether the trial needs a reg split."""
        return self.method.wrapped or self.method.learns_on_reg(self.configs)


def default_steps(name: str) -> int:
    """Return the default number of steps of a named sweep."""
    return 30_000 if name in ("paper-regimes", "paper-exact") else 10_000


def plan(
    name: str,
    *,
    methods: str | None = None,
    seeds: int = 5,
    first_seed: int = 0,
    steps: int | None = None,
    grid: Sequence[str] = (),
    base: Config | None = None,
) -> list[Trial]:
    """Return all trials of a sweep, in the order of the table: regime, method, seed.

    Args:
        name: One of `NAMES`.
        methods: Names of methods, separated by commas, or `all`; by default those of the sweep.
        seeds: Trials of each method in each regime.
        first_seed: The first seed; the others follow it.
        steps: Training steps; by default those of `base`, or of the sweep.
        grid: Fields and their values as `field=value,value`; the regimes of the sweep are crossed with all
            combinations.
        base: The settings to start from; by default all are at their defaults.

    Raises:
        InputError: An argument is refused, or settings contradict each other.

    Example:
        >>> len(plan("paper", methods="xreg,dropout", seeds=3))
        48
    """
    if name not in NAMES:
        raise InputError(f"sweep {name}: not one of {', '.join(NAMES)}")
    check(1 <= seeds <= _MOST_RUNS, "seeds", seeds, f"must lie in 1 … {_MOST_RUNS}")
    if name == "grid" and not grid:
        raise InputError("sweep grid: give at least one `grid` field=value,value")
    if steps is None:
        steps = base.train.steps if base else default_steps(name)
    config = (base or Config()).replace(steps=steps)
    methods = ALL_METHODS if methods == "all" else methods
    trials = []
    for combination in _combinations(grid):
        for changes, method in _regimes(name, methods, config):
            if twice := changes.keys() & combination.keys():
                raise InputError(f"grid {min(twice)}: the sweep {name} sets it itself; leave it out")
            both = changes | combination
            _check_changes(method, config, both)
            for seed in range(first_seed, first_seed + seeds):
                trials.append(Trial(config.replace(seed=seed), method, both))
    return trials


def check_given(given: Mapping[str, Any], trials: Sequence[Trial], grid: Sequence[str] = ()) -> None:
    """Raise InputError for settings of a config file that no trial has, since the sweep sets them itself.

    A field of `grid` may differ from the file: the argument overrides the file.
    """
    varied = _axes(grid, "grid")
    for name, value in given.items():
        own = [trial.changes[name] for trial in trials if name in trial.changes]
        if name not in varied and len(own) == len(trials) and any(used != value for used in own):
            said = ", ".join(dict.fromkeys(json.dumps(used) for used in own))
            raise InputError(
                f"`config`: {name} is {json.dumps(value)}, and this sweep sets it to {said}; leave it out of the file"
            )


def _check_changes(method: Method, config: Config, changes: dict[str, Any]) -> None:
    """Raise InputError for changes under which a method would no longer be what its name says."""
    if noise := changes.keys() & {"feature_noise", "lift_noise"}:
        raise InputError(f"grid {min(noise)}: is what methods differ in; choose them with `methods`")
    before, after = method.configs(config), method.configs(config, changes)
    if any(a.model.learns_on_reg != b.model.learns_on_reg for a, b in zip(after, before, strict=True)):
        raise InputError(f"`grid`: with {changes}, {method.name} would be another method; leave these out")
    if len({repr(candidate) for candidate in after}) < len(after):
        raise InputError(f"`grid`: with {changes}, all candidates of {method.name} are the same; leave these out")


def _regimes(name: str, methods: str | None, config: Config) -> list[tuple[dict[str, Any], Method]]:
    """Return the regimes of a named sweep: changes of the config, each with a method."""
    if name in ("paper-regimes", "paper-exact"):
        if methods is not None:
            raise InputError(f"`methods`: the sweep {name} has fixed methods; leave it out")
        if name == "paper-regimes":
            return [({"observed_fraction": f, "train_size": 50}, parse_method(m)) for f, m in REGIMES]
        return _as_the_paper_trains()
    listed = parse_methods(_OTHER_METHODS.get(name, PAPER_METHODS) if methods is None else methods)
    if name == "equal-data":
        return [
            (_divided(total, held, fraction), method)
            for fraction, total in itertools.product(TOTAL_FRACTIONS, TOTALS)
            for method in listed
            for held in (dict.fromkeys(h(total) for h in HELD_OUT) if Trial(config, method, {}).needs_reg else [0])
        ]
    if name == "rollouts-equal-data":
        return [
            (_divided(total, round(0.2 * total) if Trial(config, method, {}).needs_reg else 0, 1.0) | SCORED, method)
            for total, method in itertools.product(ROLLOUT_TOTALS, listed)
        ]
    scarce_to_full = [{"observed_fraction": f, "train_size": n} for f, n in ABLATION_REGIMES]
    regimes: dict[str, list[dict[str, Any]]] = {
        "paper-observed": OBSERVED,
        "paper-train-size": TRAIN_SIZES,
        "paper": OBSERVED + TRAIN_SIZES,
        "ablation": [regime | change for regime in scarce_to_full for change in ABLATION],
        "rollouts": ROLLOUTS,
        "scenario": [{}],
        "grid": [{}],
    }
    return list(itertools.product(regimes[name], listed))


def _divided(total: int, held_out: int, fraction: float) -> dict[str, Any]:
    """Return the sizes of the splits where all methods have the same number of trajectories."""
    return {"observed_fraction": fraction, "train_size": total - held_out, "reg_size": held_out, "one_pool": True}


def _as_the_paper_trains() -> list[tuple[dict[str, Any], Method]]:
    """Return the paper's two tables and four regimes with the paper's settings, for both starts of log σ_pred."""
    tables = [(regime, method) for regime in OBSERVED + TRAIN_SIZES for method in paper.METHODS]
    figures = [({"observed_fraction": fraction, "train_size": 50}, method) for fraction, method in paper.REGIMES]
    return [
        (regime | paper.TRAINING | {"log_sigma_pred_start": start}, parse_method(method))
        for start in paper.LOG_SIGMA_PRED_STARTS
        for regime, method in [*tables, *figures]
    ]


def _combinations(grid: Sequence[str]) -> list[dict[str, Any]]:
    """Return all combinations of `field=value,value` items."""
    axes = _axes(grid, "grid")
    if (count := math.prod(map(len, axes.values()))) > _MOST_RUNS:
        raise InputError(f"`grid`: {count} combinations of values; expected at most {_MOST_RUNS}")
    for field in axes.keys() & {"seed", "steps"}:
        raise InputError(f"grid {field}: has its own argument, `{'seeds' if field == 'seed' else field}`")
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def settings_of(items: Sequence[str], argument: str) -> dict[str, Any]:
    """Return the fields and values of `field=value` items, given by an `argument` of this name."""
    axes = _axes(items, argument)
    for field, values in axes.items():
        if len(values) > 1:
            raise InputError(f"{argument} {field}: expected one value, not {len(values)}")
    return {field: value for field, [value] in axes.items()}


def _axes(items: Sequence[str], argument: str) -> dict[str, list[Any]]:
    """Return the values of each field in `field=value,value` items."""
    axes: dict[str, list[Any]] = {}
    for item in items:
        field, equals, values = item.partition("=")
        field = field.strip().lstrip("-").replace("-", "_")
        several = "field=value,value" if argument == "grid" else "field=value"
        expected = InputError(f"{argument} {item}: expected {several} (a value may be a list, [a, b])")
        try:
            listed = parse_settings(f"[{values}]".encode(), argument)
        except InputError as error:
            raise expected from error
        if not equals or not isinstance(listed, list) or not listed:
            raise expected
        if field in axes:
            raise InputError(f"{argument} {item}: {field} is given twice")
        axes[field] = [typed_field(field, value, f"{argument} {field}") for value in listed]
    return axes
