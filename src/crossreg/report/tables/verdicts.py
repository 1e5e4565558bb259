"""Who wins where: the lines of a comparison judged by the 95% interval of their difference, in counts and in words."""

from collections.abc import Sequence
from typing import NamedTuple

from crossreg.config import DataConfig, default_settings
from crossreg.metrics.intervals import Interval
from crossreg.report.tables.comparison import (
    DATA_FIELDS,
    JUDGED,
    SCORES,
    TITLES,
    Line,
    difference,
    fair_group,
    regimes,
    setting_of,
    varying,
    with_interval,
)


def base_setting(lines: Sequence[Line]) -> str:
    """What other settings are compared with: the default, "" or by its values, or, where it is not there, the first."""
    defaults = default_settings()
    settings = [setting_of(line.regime) for line in lines]
    usual = [
        setting_of(line.regime)
        for line in lines
        if all(defaults.get(k) == v for k, v in line.regime.items() if k not in (*DATA_FIELDS, "steps"))
        and line.regime.get("reg_size", DataConfig.reg_size) == DataConfig.reg_size
    ]
    return "" if "" in settings or not settings else [*usual, settings[0]][0]


def against_default(lines: Sequence[Line]) -> dict[tuple[str, str], dict[str, dict[str, Interval | None]]]:
    """For every setting that a sweep changes, and every method: score − score of the base, by regime and score.

    The base is `base_setting`. Empty where nothing but the data changes.
    """

    def regime(line: Line) -> str:
        steps = f", {line.regime['steps']:,} steps" if "steps" in varying(lines) else ""
        return f"{line.regime['observed_fraction']}, {line.split[0]}{steps}"

    base = base_setting(lines)
    defaults = {(line.method, regime(line)): line for line in lines if setting_of(line.regime) == base}
    table: dict[tuple[str, str], dict[str, dict[str, Interval | None]]] = {}
    for line in lines:
        setting, default = setting_of(line.regime), defaults.get((line.method, regime(line)))
        if setting != base and default is not None:
            gaps = {score: difference(line, default, score) for score in JUDGED[:2]}
            table.setdefault((setting, line.method), {})[regime(line)] = gaps
    return table


class Duel(NamedTuple):
    """In how many regimes ours is better than a baseline beyond the 95% interval, neither, or worse."""

    better: int = 0
    level: int = 0
    worse: int = 0


def duels(lines: Sequence[Line], ours: str = "xreg") -> dict[str, dict[str, Duel]]:
    """For every other method, its own variants too: `ours` against it in every score that is judged."""
    counts: dict[str, dict[str, Duel]] = {}
    if all(line.seeds < 2 for line in lines):
        return counts
    for group in map(fair_group, regimes(lines)):
        mine = next((line for line in group if line.method == ours), None)
        for baseline in group:
            if mine is None or baseline is mine:
                continue
            for score in JUDGED:
                duel = counts.setdefault(baseline.method, {}).get(score, Duel())
                name = _outcome(mine, baseline, score)
                counted = {} if name is None else {name: getattr(duel, name) + 1}
                counts[baseline.method][score] = duel._replace(**counted)
    return counts


def _outcome(mine: Line, baseline: Line, score: str) -> str | None:
    """`better`, `level` or `worse`; who has no finite score at all loses to who has one. None with a single seed."""
    if not mine.values(score) or not baseline.values(score):
        return "better" if mine.values(score) else "worse" if baseline.values(score) else "level"
    gap = difference(mine, baseline, score)
    if gap is None:
        return None
    if gap.low <= 0 <= gap.high:
        return "level"
    return "better" if gap.high < 0 else "worse"


def verdicts(lines: Sequence[Line], ours: str = "xreg") -> list[str]:
    """For NLL and ECE in turn: where `ours` is clearly the best, where it is not, and where the seeds do not say.

    Its own variants are not its baselines. A regime in which it has no finite score is one that it does not win.
    """
    said = []
    if all(line.seeds < 2 for line in lines):
        return ["One seed each: there are no intervals, and nothing is judged."]
    for score in JUDGED:
        wins: list[str] = []
        losses: list[str] = []
        undecided: list[str] = []
        for group in map(fair_group, regimes(lines)):
            mine = next((line for line in group if line.method == ours), None)
            baselines = [line for line in group if not line.method.startswith("xreg")]
            if mine is None or not any(_outcome(mine, baseline, score) for baseline in baselines):
                continue
            where = _where(mine, lines)
            outcomes = {baseline.method: (_outcome(mine, baseline, score), baseline) for baseline in baselines}
            better = [baseline for outcome, baseline in outcomes.values() if outcome == "worse"]
            level = [name for name, (outcome, _) in outcomes.items() if outcome == "level"]
            if not mine.values(score):
                losses.append(f"{where}: every seed diverged")
            elif better:
                digits = SCORES[score][2]
                gaps = [f"{r.method} ({with_interval(difference(r, mine, score), digits)})" for r in better]
                losses.append(f"{where}: {', '.join(gaps)}")
            elif level:
                undecided.append(f"{where}: {', '.join(level)}")
            else:
                wins.append(where)
        total = len(wins) + len(losses) + len(undecided)
        if not total:
            continue
        title = f"{TITLES[score]}, variants of {ours} aside: {ours}"
        if len(undecided) == total > 1:  # all that there is to say in one line
            said.append(f"{title} and another are within the interval in all {total} regimes.")
            continue
        said.append(f"{title} is best beyond the 95% interval in {len(wins)} of {total} regimes{_listed(wins)}.")
        if losses:
            said.append(f"{title} is worse than another beyond the interval in {len(losses)}{_listed(losses)}.")
        if undecided:
            said.append(f"{title} and another are within the interval in {len(undecided)}{_listed(undecided)}.")
    if any(len(fair_group(group)) < len(group) for group in regimes(lines)):
        said.append("Where a method divides the data in several ways, the one that holds out a fifth is compared.")
    return said


def _listed(items: Sequence[str]) -> str:
    return ": " + "; ".join(items) if items else ""


def _where(line: Line, lines: Sequence[Line]) -> str:
    others = f", {line.regime['steps']} steps" if "steps" in varying(lines) else ""
    others += f", {setting}" if (setting := setting_of(line.regime)) else ""
    size = line.regime.get("total", line.split[0])
    return f"{line.regime['observed_fraction']} observed, {size} trajectories{others}"
