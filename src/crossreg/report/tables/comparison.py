"""Rows of a sweep as the lines of a table: means and 95% intervals over seeds, and who is best where.

A seed whose training diverged is counted as diverged and left out of the means. Runs that share a mask are not
independent of each other: where a sweep varies the mask, the intervals are over the means of the masks.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from crossreg.config import Config, DataConfig, default_settings
from crossreg.errors import InputError
from crossreg.methods.names import Method, parse_method
from crossreg.metrics.intervals import CONFIDENCE, Interval, interval
from crossreg.report.looks import family_place

# Residuals and both parts of the uncertainty on each split.
DECOMPOSITION = tuple(
    f"{split}_{score}"
    for split in ("train", "reg", "test")
    for score in ("rmse", "rms_predictive", "rms_generalization")
)
_COLUMNS = [
    "test_nll",
    "test_ece_mix",
    "reg_ece_mix",
    "test_crps",
    "test_rmse",
    "test_std_mu",
    "test_std_mu_final",
    "test_std",
    "test_std_predictive",
    "test_std_generalization",
    "test_spearman",
    "test_ause",
    "reg_nll",
    "train_nll",
]
# Column name → (split, score, digits).
SCORES: dict[str, tuple[str, str, int]] = {
    name: (split, score, 3 if score in ("nll", "spearman", "ause") else 4)
    for name in (*_COLUMNS, *DECOMPOSITION)
    for split, score in [name.split("_", 1)]
}
TITLES = {
    "observed_fraction": "observed",
    "train_size": "train",
    "reg_size": "reg",
    "total": "trajectories",
    "test_nll": "test NLL",
    "test_ece_mix": "test ECE",
    "reg_ece_mix": "reg ECE",
    "test_crps": "test CRPS",
    "test_std_mu": "Std_ω[μ]",
    **{f"{split}_rmse": f"{split} RMSE" for split in ("train", "reg", "test")},
    **{f"{split}_rms_predictive": f"{split} √U_pred" for split in ("train", "reg", "test")},
    **{f"{split}_rms_generalization": f"{split} √U_gen" for split in ("train", "reg", "test")},
}
# Scores of forecasts by lead, with the digits of a table; `at_lead` names them at one lead.
LEAD_SCORES = {"spread_skill": 2, "ece_mix": 3, "crps": 4, "rmse": 4, "energy_score": 4, "lost": 0}
# Scores that methods are judged by: of test alone, which no method has learned from.
JUDGED = ("test_nll", "test_ece_mix", "test_crps", "test_rmse")
_PAPERS_SCENARIO = "diff_ks"
DATA_FIELDS = ("observed_fraction", "total", "train_size", "reg_size")


class Line(NamedTuple):
    """All seeds of one method in one regime: a line of a table.

    Attributes:
        regime: The data and the settings that the sweep varies, by name.
        method: The name of the method.
        split: The numbers of trajectories in train and in reg.
        seeds: The number of runs.
        diverged: The number of those that diverged.
        by_seed: Score → (seed of the mask, seed of the training) → value, of the runs that did not diverge. A score of
            forecasts has an entry for each lead.
        shared: The settings off their defaults that the sweep did not vary: those of a config file.
    """

    regime: dict[str, Any]
    method: str
    split: tuple[int, int]
    seeds: int
    diverged: int
    by_seed: dict[str, dict[tuple[int, int], float]]
    shared: dict[str, Any]

    def values(self, score: str) -> list[float]:
        """Return a score of every seed that has it."""
        return list(self.by_seed.get(score, {}).values())

    def mask_means(self, score: str) -> dict[int, float]:
        """Return the mean of a score over the seeds of each mask, by the seed of the mask."""
        by_mask: dict[int, list[float]] = {}
        for (mask, _), value in self.by_seed.get(score, {}).items():
            by_mask.setdefault(mask, []).append(value)
        return {mask: float(np.mean(values)) for mask, values in by_mask.items()}

    def independent(self, score: str) -> list[float]:
        """Return independent values for an interval: one for each mask where there are several, else one per seed."""
        means = list(self.mask_means(score).values())
        return means if len(means) > 1 else self.values(score)

    def interval(self, score: str) -> Interval | None:
        """Return the mean and the 95% interval of a score, or None where no seed has it."""
        return interval(self.independent(score))


@functools.cache
def _method(name: str) -> Method | None:
    """Return the method of a line, or None where its name is none that a sweep knows, such as "own settings"."""
    try:
        return parse_method(name.split(" (")[0])  # pages append " (run)" to tell two lines apart
    except InputError:
        return None


@functools.cache
def _uses_reg(name: str) -> bool:
    """Return whether a method is trained, chosen or calibrated on reg; True where the name does not tell."""
    method = _method(name)
    return method is None or method.all_data or method.wrapped or method.learns_on_reg(method.configs(Config()))


def in_sample(line: Line, score: str) -> bool:
    """Return whether a score is computed on reg, and the method was trained, chosen or calibrated on reg.

    Scores on train are in-sample for every method, as their names say.
    """
    split, *_ = SCORES[score]
    return split == "reg" and _uses_reg(line.method)


def same_data(mine: Line, other: Line) -> bool:
    """Return whether the other line is one trained network that used as many trajectories, those of reg included."""
    method = _method(other.method)
    used = [sum(line.split) if _uses_reg(line.method) else line.split[0] for line in (mine, other)]
    return method is not None and bool(method.candidates) and method.members == 1 and used[0] == used[1]


def regime_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the regime of a row: its data, steps and settings, without its method and its seeds.

    Where train and reg are taken from one pool, the regime has their total: how to divide it is the method's choice.
    """
    sizes = {"train_size": row["train_size"], "reg_size": row["reg_size"]}
    changes = row.get("changes", {})
    told = (*sizes, "observed_fraction", "one_pool", "mask_seed", "rollout_steps")  # the last changes no training
    others = {k: v for k, v in changes.items() if k not in told}
    regime = {"total": sum(sizes.values())} if changes.get("one_pool") else sizes
    scenario = {} if row.get("scenario", _PAPERS_SCENARIO) == _PAPERS_SCENARIO else {"scenario": row["scenario"]}
    return scenario | {"observed_fraction": row["observed_fraction"]} | regime | others | {"steps": row["steps"]}


def collect(rows: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Return one line per regime, method and split, ordered by regime, then XReg before the baselines.

    Args:
        rows: Rows of a sweep, as `runs.sweep_folder.asked_rows` reads them.

    Raises:
        InputError: Two rows have the same regime, method, split and seeds.
    """
    lines: dict[tuple, Line] = {}
    seen: set[tuple] = set()
    mask_of: dict[tuple, int] = {}
    for row in rows:
        regime = regime_of(row)
        sizes = (row["train_size"], row["reg_size"])
        key = (str(sorted(regime.items())), row["method"], sizes)
        mask = row.get("changes", {}).get("mask_seed", DataConfig.mask_seed)
        # Where everything is observed, runs that differ in the mask alone are the same run.
        if row["observed_fraction"] == 1 and mask != mask_of.setdefault((key, row["seed"]), mask):
            continue
        seeds = (DataConfig.mask_seed if row["observed_fraction"] == 1 else mask, row["seed"])
        shared = {k: v for k, v in row.get("settings", {}).items() if k not in row.get("changes", {})}
        line = lines.setdefault(key, Line(regime, row["method"], sizes, 0, 0, {name: {} for name in SCORES}, shared))
        if (key, seeds) in seen:
            raise InputError(
                f"{row['method']} with seed {row['seed']} has two rows in the regime {regime}; expected one"
            )
        seen.add((key, seeds))
        if not row["diverged"]:
            for name, (split, score, _) in SCORES.items():
                value = (row.get(split) or {}).get(score)
                if value is not None:
                    line.by_seed[name][seeds] = value
            forecasts = row.get("rollouts") or {}
            for name in (name for name in LEAD_SCORES if name in forecasts):
                for lead, value in zip(forecasts["leads"], forecasts[name], strict=True):
                    if value is not None:
                        line.by_seed.setdefault(at_lead(name, lead), {})[seeds] = float(value)
        lines[key] = line._replace(seeds=line.seeds + 1, diverged=line.diverged + bool(row["diverged"]))
    if len({line.split[1] for line in lines.values()}) == 1:  # a size that all lines share tells none apart
        lines = {
            key: line._replace(regime={k: v for k, v in line.regime.items() if k != "reg_size"})
            for key, line in lines.items()
        }
    return sorted(lines.values(), key=_order)


def at_lead(score: str, lead: int) -> str:
    """Return the name of a score of forecasts at a lead."""
    return f"{score} at lead {lead}"


def mean_at(line: Line, score: str, lead: int) -> Interval | None:
    """Return the mean of a score at a lead with its 95% interval, or None unless every run that ended well has it.

    A run lacks a score where its particles grew too large: a mean over the other runs would be too good.
    """
    values = line.by_seed.get(at_lead(score, lead), {})
    return line.interval(at_lead(score, lead)) if values and len(values) == line.seeds - line.diverged else None


def leads_of(lines: Iterable[Line]) -> list[int]:
    """Return the leads that lines have scores of; lost particles are counted where no other score is finite."""
    parts = (name.partition(at_lead("", 0)[:-1]) for line in lines for name in line.by_seed)
    return sorted({int(lead) for _, there, lead in parts if there})


def shared_settings(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return in words the settings off their defaults that all rows share and no sweep has varied."""
    defaults = default_settings()
    changed = {name for row in rows for name in row.get("changes", {})}
    shared = {}
    for name in dict.fromkeys(name for row in rows for name in row.get("settings", {})):
        values = [row.get("settings", {}).get(name, defaults.get(name)) for row in rows]
        if name not in changed and all(value == values[0] for value in values) and values[0] != defaults.get(name):
            shared[name] = values[0]
    shared.pop("data", None)  # its place on a disk says nothing to others; `scenario` has the name of the file
    sizes = {row["reg_size"] for row in rows}
    if len(sizes) == 1 and sizes != {DataConfig.reg_size} and not changed & {"one_pool", "reg_size"}:
        shared["reg_size"] = sizes.pop()
    return ", ".join(f"{name} {value}" for name, value in shared.items())


def _order(line: Line) -> tuple:
    regime = line.regime
    sizes = (regime["observed_fraction"], regime.get("total", line.split[0]), regime["steps"])
    method = (family_place(line.method), len(line.method), line.method)
    return (*sizes, str(sorted(regime.items(), key=str)), *method, line.split)


def difference(a: Line, b: Line, score: str) -> Interval | None:
    """Return mean(a) − mean(b) with its 95% interval, or None where one of them has a single seed.

    The interval is Welch's, which allows for unequal variances. Where both were trained with the same several masks, it
    is Student's over the differences of their means for each mask: an effect of the mask on both cancels.
    """
    means_a, means_b = a.mask_means(score), b.mask_means(score)
    if len(means_a) > 1 and means_a.keys() == means_b.keys():
        return interval([mean - means_b[mask] for mask, mean in means_a.items()])
    x, y = a.independent(score), b.independent(score)
    if len(x) < 2 or len(y) < 2:
        return None
    parts = [np.var(values, ddof=1) / len(values) for values in (x, y)]
    gap, variance = float(np.mean(x) - np.mean(y)), sum(parts)
    if variance == 0:  # methods without any randomness
        return Interval(gap, 0.0)
    degrees = variance**2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (x, y), strict=True))
    return Interval(gap, float(stats.t.ppf(0.5 + CONFIDENCE / 2, degrees) * np.sqrt(variance)))


def paired_difference(a: Line, b: Line, score: str) -> Interval | None:
    """Return the mean of a − b over seeds that both have, with Student's 95% interval; None for fewer than two seeds.

    It suits lines whose runs share more than the seed, such as forecasts of the same trajectories from the same data.
    """
    mine, others = a.by_seed.get(score, {}), b.by_seed.get(score, {})
    gaps = [value - others[seed] for seed, value in mine.items() if seed in others]
    return interval(gaps) if len(gaps) > 1 else None


def regimes(lines: Sequence[Line]) -> list[list[Line]]:
    """Return the lines of each regime together."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(str(sorted(line.regime.items(), key=str)), []).append(line)
    return list(groups.values())


def fair_group(group: Sequence[Line]) -> list[Line]:
    """Return the lines of a regime that are compared, one for each method.

    Where a method divides a total of trajectories in several ways, this is the one that holds out about a fifth: the
    rule is fixed, so that no test score has a say.
    """
    compared: dict[str, Line] = {}
    for line in group:
        best = compared.get(line.method)
        if best is None or _distance_from_a_fifth(line) < _distance_from_a_fifth(best):
            compared[line.method] = line
    return list(compared.values())


def _distance_from_a_fifth(line: Line) -> float:
    train, reg = line.split
    return abs(reg / (train + reg) - 0.2)


def clearly_best(group: Sequence[Line], score: str) -> Line | None:
    """Return the line with the lowest mean if it is below every other beyond the 95% interval of the difference."""
    scored = [line for line in group if line.values(score)]
    if len(scored) < 2:
        return None
    best = min(scored, key=lambda line: float(np.mean(line.independent(score))))
    gaps = [difference(best, other, score) for other in scored if other is not best]
    return best if all(gap is not None and gap.high < 0 for gap in gaps) else None


def varying(lines: Sequence[Line]) -> list[str]:
    """Return the fields of the regime that a table has columns for: those of the data, and steps that differ."""
    names = list(dict.fromkeys(name for line in lines for name in line.regime))
    differ = len({line.regime["steps"] for line in lines}) > 1
    return [n for n in DATA_FIELDS if n in names and n != "reg_size"] + (["steps"] if differ else [])


def setting_of(regime: Mapping[str, Any]) -> str:
    """Return in words the other fields that a sweep varied; a reg split of another size than usual is one of them."""
    others = {k: v for k, v in regime.items() if k not in (*DATA_FIELDS, "steps")}
    if regime.get("reg_size", DataConfig.reg_size) != DataConfig.reg_size:
        others["reg_size"] = regime["reg_size"]
    return ", ".join(f"{k} {v}" for k, v in others.items())


def signed(value: float, digits: int) -> str:
    """Return a number with a typographic minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")


def with_interval(interval: Interval | None, digits: int) -> str:
    """Return "mean ± half width", the mean alone where the interval has no width, "–" where there is no value."""
    if interval is None:
        return "–"
    mean = signed(interval.mean, digits)
    return mean if math.isnan(interval.half) else f"{mean} ± {interval.half:.{digits}f}"


def heads_alone(line: Line) -> bool:
    """Return whether all generalization uncertainty is in the σ_gen head, none in the spread of the means."""
    gen, spread = line.values("test_std_generalization"), line.values("test_std_mu")
    return bool(gen) and max(gen) > 0 and max(spread) == 0


def decomposed(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with noise at the heads alone, and the unregularized model beside them.

    For these the objectives determine both parts of the uncertainty from the residuals:
    $U_{pred} = r_{train}^2 + U_{gen}$ on train and $U_{pred} + U_{gen} = r_{reg}^2$ on reg. Empty without such a line.
    """
    shown = [line for line in lines if heads_alone(line) and "+" not in line.method]
    return [line for line in lines if line in shown or (shown and line.method == "unregularized")]
