"""Published rows of forecasts as lines of a comparison: means by lead, and CRPS against the baselines, seed by seed."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from crossreg.config import DataConfig
from crossreg.designs.grids import default_steps
from crossreg.metrics.intervals import Interval
from crossreg.report.tables.comparison import (
    LEAD_SCORES,
    Line,
    at_lead,
    collect,
    fair_group,
    leads_of,
    mean_at,
    paired_difference,
)

STUDIES = ("rollouts", "rollouts-equal-data")
# Scores by lead, under the names that a sweep has for them.
SCORES = (
    "rmse", "spread_skill", "crps", "crps_fair", "ece_mix", "crps_climatology", "crps_persistence", "energy_score",
    "variogram_score", "valid_share", "held_share",
)  # fmt: skip
# Those that are published under another name.
_NAMED = {"leads": "lead", "lost": "out_of_range"}
CLIMATOLOGY = "climatology"
# Our methods whose error bars learn from rollouts: three members, and one model.
ENSEMBLE, SINGLE = "xreg-rollout-ensemble", "xreg-rollout"
_IN_WORDS = {
    "reg_steps": "reg trajectories of {} steps",
    "test_horizon": "test trajectories of {} steps",
    "steps": "{:,} training steps",
}
# What tells settings apart, and what tells the runs of a setting apart.
_OF_SETTING = ("study", "scenario", "observed_fraction", "train_size", "reg_size")
_OF_RUN = ("method", "seed")
_OF_LEAD = ("lead", "out_of_range", "particles_in_all", "diverged", *SCORES)

Row = Mapping[str, Any]


class Setting(NamedTuple):
    """All methods on the same data.

    Attributes:
        study: `rollouts` or `rollouts-equal-data`.
        scenario: The scenario.
        observed_fraction: The observed fraction.
        sizes: The numbers of trajectories in words, empty where they are the usual ones.
        changes: The settings that neither the study nor the scenario has.
        lines: A line for each method, the climatology among them.
        particles: Particles in all forecasts of a run, by method: a network without noise inside has one in each.
    """

    study: str
    scenario: str
    observed_fraction: float
    sizes: str
    changes: dict[str, Any]
    lines: dict[str, Line]
    particles: dict[str, int]

    @property
    def title(self) -> str:
        """The setting in words."""
        seen = "fully observed" if self.observed_fraction == 1 else f"{self.observed_fraction:g} observed"
        changes = [_IN_WORDS.get(name, f"{name} {{}}").format(value) for name, value in self.changes.items()]
        return ", ".join([f"`{self.scenario}`", seen, *([self.sizes] if self.sizes else []), *changes])

    @property
    def slug(self) -> str:
        """The name of the setting's figure."""
        parts = [
            self.scenario,
            f"observed-{self.observed_fraction:g}",
            self.sizes.replace(" ", "-").replace("+", "and"),
        ]
        parts += [f"{name}-{value}" for name, value in self.changes.items()]
        return re.sub(r"[^\w.-]+", "-", "_".join(part for part in parts if part))

    @property
    def leads(self) -> list[int]:
        """The leads that the setting has scores of."""
        return leads_of(self.lines.values())

    @property
    def baselines(self) -> list[str]:
        """The methods that are not ours."""
        return [name for name in self.lines if not name.startswith("xreg")]


def run_of(row: Row) -> str:
    """Return the identity of the run of a published row: all that is neither a lead nor a score."""
    return json.dumps({k: v for k, v in row.items() if k not in _OF_LEAD}, sort_keys=True)


def settings(rows: Iterable[Row]) -> list[Setting]:
    """Return the settings of published rows, in the order of the rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        total = row["train_size"] + row["reg_size"]
        told = {k: v for k, v in row.items() if k not in (*_OF_LEAD, *_OF_RUN)}
        if row["study"] == "rollouts-equal-data":  # methods divide the total as they need
            told = {k: v for k, v in told.items() if k not in ("train_size", "reg_size")} | {"total": total}
        groups.setdefault(json.dumps(told, sort_keys=True), []).append(row)
    return [_setting(group) for group in groups.values()]


def _setting(rows: Sequence[Row]) -> Setting:
    first = rows[0]
    runs = as_runs(rows)
    lines = {line.method: line for line in fair_group(collect([*runs, *_climatology(runs)]))}
    changes = {k: v for k, v in first.items() if k not in (*_OF_SETTING, *_OF_RUN, *_OF_LEAD)}
    return Setting(
        first["study"],
        first["scenario"],
        first["observed_fraction"],
        _sizes(first),
        changes,
        lines,
        {row["method"]: row["particles_in_all"] for row in rows},
    )


def _sizes(row: Row) -> str:
    train, reg = row["train_size"], row["reg_size"]
    if row["study"] == "rollouts-equal-data":
        return f"{train + reg} trajectories in all"
    usual = (train, reg) == (DataConfig.train_size, DataConfig.reg_size)
    return "" if usual else f"{train} + {reg} trajectories"


def as_runs(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return published rows as rows of a sweep, one for each run, as `collect` reads them."""
    runs: dict[str, dict[str, Any]] = {}
    for row in rows:
        about = {k: v for k, v in row.items() if k not in _OF_LEAD}
        told = {
            "changes": {"one_pool": True} if row["study"] == "rollouts-equal-data" else {},
            "steps": row.get("steps", default_steps(row["study"])),
            "diverged": row.get("diverged", False),
            "rollouts": {name: [] for name in ("leads", "lost", *SCORES)},
        }
        run = runs.setdefault(run_of(row), about | told)
        for name in ("leads", "lost", *SCORES):
            run["rollouts"][name].append(row[_NAMED.get(name, name)])
    return list(runs.values())


def _climatology(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a run of the climatology for every seed: only its CRPS is known."""
    found: dict[int, dict[str, Any]] = {}
    for run in runs:
        scores = run["rollouts"]
        if not run["diverged"] and run["seed"] not in found:
            unknown = {name: [None] * len(scores["leads"]) for name in LEAD_SCORES}
            own = unknown | {"leads": scores["leads"], "crps": scores["crps_climatology"]}
            found[run["seed"]] = run | {"method": CLIMATOLOGY, "rollouts": own}
    return list(found.values())


def crps_gap(setting: Setting, ours: str, baseline: str, lead: int) -> Interval | None:
    """Return by how much the CRPS of a method differs from that of a baseline, seed by seed, as a share of the latter.

    None where it cannot be said: one of them is missing, or has a seed without a finite score.
    """
    lines = [setting.lines[name] for name in (ours, baseline) if name in setting.lines]
    means = [mean_at(line, "crps", lead) for line in lines]
    if len(lines) < 2 or None in means:
        return None
    gap, theirs = paired_difference(lines[0], lines[1], at_lead("crps", lead)), means[1]
    return None if gap is None or theirs is None else Interval(gap.mean / theirs.mean, gap.half / theirs.mean)


class Counts(NamedTuple):
    """How many comparisons there are, in how many ours is below or above beyond the interval, and how many fail."""

    compared: int
    below: int
    above: int
    unknown: int


def counts(gaps: Iterable[Interval | None]) -> Counts:
    """Count comparisons by their verdict."""
    listed = list(gaps)
    known = [gap for gap in listed if gap is not None]
    below, above = sum(gap.high < 0 for gap in known), sum(gap.low > 0 for gap in known)
    return Counts(len(known), below, above, len(listed) - len(known))


def best_baseline(setting: Setting, lead: int) -> str | None:
    """Return the baseline with the lowest mean CRPS at a lead."""
    means = {name: mean_at(setting.lines[name], "crps", lead) for name in setting.baselines}
    known = {name: found.mean for name, found in means.items() if found is not None}
    return min(known, key=known.__getitem__) if known else None


def range_of(line: Line, score: str, leads: Sequence[int]) -> tuple[float, float] | None:
    """Return the least and the largest mean of a score over some leads; None where one is unknown."""
    means = [mean_at(line, score, lead) for lead in leads]
    known = [found.mean for found in means if found is not None]
    return (min(known), max(known)) if known and len(known) == len(means) else None


def headline(found: Sequence[Setting]) -> Setting | None:
    """Return the setting that the summary begins with: `diff_ks`, fully observed, with the usual trajectories."""
    plain = [s for s in found if (s.study, s.scenario, s.observed_fraction) == ("rollouts", "diff_ks", 1)]
    return next((s for s in plain if not s.sizes and not s.changes), None)


def in_all(setting: Setting, line: Line) -> int:
    """Return how many particles there are in all forecasts of a method, over all seeds that ended well."""
    return setting.particles[line.method] * (line.seeds - line.diverged)


def out_of_range(line: Line) -> int:
    """Return how many particles were out of range by the last lead, over all seeds that ended well."""
    last = max(leads_of([line]))
    return round(sum(line.by_seed.get(at_lead("lost", last), {}).values()))
