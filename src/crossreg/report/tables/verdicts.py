"""Who is best where: the lines of a comparison judged by the 95% interval of their difference, counted and in words."""

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
    same_data,
    setting_of,
    varying,
    with_interval,
)

_OURS = "xreg"
_MOST_NAMED = 3  # regimes that a sentence names


def base_setting(lines: Sequence[Line]) -> str:
    """Return the setting that others are compared with, in words.

    It is the default, "" or by its values, or the first setting where a sweep does not have the default.
    """
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
    """Return the differences of every other setting from `base_setting`.

    Returns:
        (setting, method) → regime → score → score of the setting − score of the base, with its 95% interval. Empty
        where a sweep changes nothing but the data.
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
    """The number of regimes in which XReg is better than another method, level with it, or worse."""

    better: int = 0
    level: int = 0
    worse: int = 0


def _fair_regimes(lines: Sequence[Line]) -> list[tuple[Line, list[Line]]]:
    """Return for each regime that has XReg its line and those of the other methods. None where no interval exists."""
    if all(line.seeds < 2 for line in lines):
        return []
    groups = ({line.method: line for line in fair_group(group)} for group in regimes(lines))
    return [(group.pop(_OURS), list(group.values())) for group in groups if _OURS in group]


def duels(lines: Sequence[Line]) -> dict[str, dict[str, Duel]]:
    """Count XReg against every other method, its own variants too: method → score → `Duel`."""
    counts: dict[str, dict[str, Duel]] = {}
    for mine, others in _fair_regimes(lines):
        for other in others:
            by_score = counts.setdefault(other.method, dict.fromkeys(JUDGED, Duel()))
            for score in JUDGED:
                if name := _outcome(mine, other, score):
                    duel = by_score[score]
                    by_score[score] = duel._replace(**{name: getattr(duel, name) + 1})
    return counts


def _outcome(mine: Line, baseline: Line, score: str) -> str | None:
    """Return `better`, `level` or `worse`, or None where one of the two has a single seed.

    A method without any finite score loses to one that has some.
    """
    if not mine.values(score) or not baseline.values(score):
        return "better" if mine.values(score) else "worse" if baseline.values(score) else "level"
    gap = difference(mine, baseline, score)
    if gap is None:
        return None
    if gap.low <= 0 <= gap.high:
        return "level"
    return "better" if gap.high < 0 else "worse"


def verdicts(lines: Sequence[Line]) -> list[str]:
    """Say of each score where XReg is best, level with the best, or behind, and how to read this.

    The first sentence of a score is about all baselines. A second one is about the single networks that were trained
    on the same data, where there are others besides. Only test scores are judged: they are in-sample for no method.
    """
    if lines and all(line.seeds < 2 for line in lines):
        return ["One seed each: there are no intervals, and nothing is judged."]
    judged = [
        (mine, [line for line in others if not line.method.startswith(_OURS)]) for mine, others in _fair_regimes(lines)
    ]
    alike = [(mine, [line for line in baselines if same_data(mine, line)]) for mine, baselines in judged]
    said: list[str] = []
    for score in JUDGED:
        said += _verdict(TITLES[score], judged, score, lines)
        if alike != judged:
            title = f"{TITLES[score]} among single networks trained on the same data"
            said += _verdict(title, alike, score, lines)
    outcomes = [_outcome(mine, b, score) for mine, group in judged for b in group for score in JUDGED]
    count = sum(outcome is not None for outcome in outcomes)
    if said:
        ours = {line.method for line in lines if line.method.startswith(_OURS)}
        said.append(
            "Best and behind mean beyond the 95% interval of the difference, level means within it"
            + (", or that a baseline has a single seed left" if None in outcomes else "")
            + ("; variants of XReg do not count as baselines." if len(ours) > 1 else ".")
            + f" These are {count:,} comparisons without correction: between equal methods, 1 in 20 would still look"
            " different by chance."
        )
    if any(len(fair_group(group)) < len(group) for group in regimes(lines)):
        said.append(
            "Where a method divides the trajectories between train and reg in several ways, the division that holds out"
            " about a fifth is judged."
        )
    return said


def _verdict(title: str, judged: Sequence[tuple[Line, list[Line]]], score: str, lines: Sequence[Line]) -> list[str]:
    """Return one sentence about a score, none where no regime can be judged."""
    best, level = 0, 0
    behind: list[tuple[float, str]] = []
    for mine, baselines in judged:
        outcomes = [(_outcome(mine, line, score), line) for line in baselines]
        if not any(outcome for outcome, _ in outcomes):
            continue
        better = [line for outcome, line in outcomes if outcome == "worse"]
        if better and not mine.values(score):
            behind.append((float("inf"), f"{_where(mine, lines)}: every seed of {_OURS} diverged"))
        elif better:
            gaps = [(gap, line.method) for line in better if (gap := difference(mine, line, score))]
            gap, method = max(gaps)
            by = with_interval(gap, SCORES[score][2])
            behind.append((gap.mean, f"{_where(mine, lines)}: {method}, by {by}"))
        elif any(outcome in ("level", None) for outcome, _ in outcomes):
            level += 1
        else:
            best += 1
    total = best + level + len(behind)
    if not total:
        return []
    worst = [text for _, text in sorted(behind, key=lambda pair: -pair[0])]
    largest = f"the {_MOST_NAMED} largest gaps: " if len(worst) > _MOST_NAMED else ""
    listed = f" ({largest}{'; '.join(worst[:_MOST_NAMED])})" if worst else ""
    counts = {"best": best, "level with the best": level, "behind": len(worst)}
    if total in counts.values():
        everywhere = f" in all {total} regimes" if total > 1 else ""
        said = next(name for name, count in counts.items() if count == total) + everywhere
    else:
        first = f"best in {best or 'none'} of {total} regimes"
        *others, last = (f"{name} in {count}" for name, count in list(counts.items())[1:] if count)
        said = f"{', '.join([first, *others])} and {last}"
    return [f"{title[:1].upper()}{title[1:]}: XReg is {said}{listed}."]


def _where(line: Line, lines: Sequence[Line]) -> str:
    others = f", {line.regime['steps']:,} steps" if "steps" in varying(lines) else ""
    others += f", {setting}" if (setting := setting_of(line.regime)) else ""
    size = line.regime.get("total", line.split[0])
    return f"{line.regime['observed_fraction']} observed, {size} trajectories{others}"
