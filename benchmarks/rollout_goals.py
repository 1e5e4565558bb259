"""The goals that were set for forecasts, what was measured, and whether it reaches them."""

import json
from collections.abc import Sequence
from pathlib import Path

from crossreg.report.tables.comparison import at_lead, paired_difference
from crossreg.report.tables.layout import piped
from rollout_lines import (
    ENSEMBLE,
    SINGLE,
    Setting,
    best_baseline,
    crps_gap,
    headline,
    in_all,
    mean_at,
    out_of_range,
    range_of,
)
from rollout_tables import OURS, SHOWN, TABLES, listed, measured, of_leads, percent, short, to

SPEED = Path("docs/results/rollout_speed.json")


def goals(found: Sequence[Setting]) -> list[str]:
    """Return the table of the goals that were set, what was measured, and whether it reaches them."""
    first = headline(found)
    rows = [["goal", "measured", "reached"]]
    rows.append(_goal_of_bars(first, ENSEMBLE, "3 members, leads 1 to 100", 100, (0.9, 1.1), 0.03))
    rows.append(_goal_of_bars(first, SINGLE, "one model, leads 1 to 50", 50, (0.85, 1.15), 0.05))
    rows += [_goal_of_crps(first, ours) for ours in OURS]
    rows += [_goal_of_one_step(first, score) for score in ("ece_mix", "crps")]
    rows.append(_goal_of_particles(found))
    rows.append(_goal_of_speed("1,000 × 200 × 30", "1,000 particles × 200 steps × 30 trajectories, H200", 2, gpu=True))
    rows.append(_goal_of_speed("60 × 100 × 30", "60 particles × 100 steps × 30 trajectories, two cores", 30, gpu=False))
    rows.append(_goal_of_cost(1.3))
    return piped([[short(cell) for cell in row] for row in rows]).splitlines()


def _unknown(goal: str) -> list[str]:
    return [goal, "–", "not measured"]


def _goal_of_bars(
    setting: Setting | None, method: str, words: str, last: int, bounds: tuple[float, float], most: float
) -> list[str]:
    goal = f"`diff_ks`, {words}: spread/skill {bounds[0]:g} to {bounds[1]:g} and ECE at most {most:g} at every lead"
    if setting is None or method not in setting.lines:
        return _unknown(goal)
    leads, line = of_leads(setting, 1, last), setting.lines[method]
    bars = {lead: mean_at(line, "spread_skill", lead) for lead in leads}
    eces = {lead: mean_at(line, "ece_mix", lead) for lead in leads}
    outside = [k for k, found in bars.items() if found is None or not bounds[0] <= found.mean <= bounds[1]]
    too_large = [k for k, found in eces.items() if found is None or found.mean > most]
    said = f"spread/skill {to(range_of(line, 'spread_skill', leads), 2)}, ECE {to(range_of(line, 'ece_mix', leads), 3)}"
    missed = [f"spread/skill at {listed(outside)}"] if outside else []
    missed += [f"ECE at {listed(too_large)}"] if too_large else []
    return [goal, said, f"no: {'; '.join(missed)}" if missed else "yes"]


def _goal_of_crps(setting: Setting | None, ours: str) -> list[str]:
    goal = f"`diff_ks`, `{ours}`: CRPS below every baseline beyond the 95% interval at leads of 10 and more"
    if setting is None or ours not in setting.lines:
        return _unknown(goal)
    leads = [lead for lead in setting.leads if lead >= 10]
    missed: dict[str, list[int]] = {}
    said = []
    for lead in leads:
        gaps = {b: crps_gap(setting, ours, b, lead) for b in setting.baselines}
        for baseline in (b for b, gap in gaps.items() if gap is None or gap.high >= 0):
            missed.setdefault(baseline, []).append(lead)
        best = best_baseline(setting, lead)
        said += [f"lead {lead}: {percent(gaps[best])} (`{best}`)"] if best and lead in SHOWN else []
    words = [f"`{baseline}` at {listed(where)}" for baseline, where in missed.items()]
    found = "difference from the best baseline: " + "; ".join(said)
    return [goal, found, f"no: {'; '.join(words)}" if words else "yes"]


def _goal_of_one_step(setting: Setting | None, score: str) -> list[str]:
    name = TABLES[score][0]
    goal = f"`diff_ks`, one step ahead: the {name} of `{SINGLE}` is no worse than that of `xreg`"
    if setting is None or not {SINGLE, "xreg"} <= {*setting.lines}:
        return _unknown(goal)
    ours, default = setting.lines[SINGLE], setting.lines["xreg"]
    means = [measured(mean_at(line, score, 1), TABLES[score][1]) for line in (ours, default)]
    gap = paired_difference(ours, default, at_lead(score, 1))
    if gap is None:
        return _unknown(goal)
    words = "yes" if gap.high < 0 else "no" if gap.low > 0 else "yes: level within the interval"
    return [goal, f"{means[0]} against {means[1]}", words]


def _goal_of_particles(found: Sequence[Setting]) -> list[str]:
    goal = "no particle out of range"
    lines = [(s, s.lines[m]) for s in found for m in OURS if m in s.lines]
    if not lines:
        return _unknown(goal)
    lost = {f"{s.title}, `{line.method}`: {out_of_range(line):,}": out_of_range(line) for s, line in lines}
    total = sum(in_all(s, line) for s, line in lines)
    where = [words for words, count in lost.items() if count]
    said = f"{sum(lost.values()):,} of {total:,} in all settings"
    return [goal, said, f"no: {'; '.join(where)}" if where else "yes"]


def _goal_of_speed(case: str, words: str, most: int, *, gpu: bool) -> list[str]:
    """Compare a time that `benchmarks/rollout_speed.py` has stored."""
    known = json.loads(SPEED.read_text()) if SPEED.exists() else {}
    there = [times[case]["forecast"] for device, times in known.items() if case in times and ("H200" in device) == gpu]
    goal = f"{words}: at most {most} s"
    if not there:
        return _unknown(goal)
    return [goal, f"{there[0][0]:.2g} s", "yes" if there[0][0] <= most else "no"]


def _goal_of_cost(most: float) -> list[str]:
    """Compare the time of a training with rollouts on an H200 with that of one without, as `--training` stores them."""
    known = json.loads(SPEED.read_text()) if SPEED.exists() else {}
    there = [times["training"] for device, times in known.items() if "training" in times and "H200" in device]
    goal = f"a training in which ρ learns from rollouts takes at most {most:g} times as long as one without, H200"
    if not there:
        return _unknown(goal)
    ours, single = (there[0][method][0] for method in (SINGLE, "xreg"))
    said = f"{ours / single:.2f} times: {ours:.0f} s against {single:.0f} s, {there[0]['steps']:,} steps"
    return [goal, said, "yes" if ours <= most * single else "no"]
