"""Tables of forecasts: scores by lead, and CRPS against the baselines; and how their numbers are written."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from crossreg.config import Config
from crossreg.methods.names import config_of
from crossreg.metrics.intervals import Interval, decimals_of
from crossreg.report.tables.comparison import Line, signed, with_interval
from crossreg.report.tables.layout import Cell, piped
from rollout_lines import (
    CLIMATOLOGY,
    ENSEMBLE,
    SINGLE,
    Setting,
    best_baseline,
    counts,
    crps_gap,
    headline,
    mean_at,
    out_of_range,
    range_of,
)

# Leads of tables; the last one has a column too.
SHOWN = (1, 2, 5, 10, 20, 50, 100)
OURS = (ENSEMBLE, SINGLE)
ON_FRONT = ("xreg", SINGLE, ENSEMBLE, "ensemble+growth", CLIMATOLOGY)
# Score → title, and its digits, where they do not follow from its size.
TABLES: dict[str, tuple[str, int | None]] = {
    "spread_skill": ("Spread/skill, right at 1", 2),
    "ece_mix": ("ECE", 3),
    "crps": ("CRPS", None),
}


def short(text: str) -> str:
    """Return a text without the zeros before decimal points of numbers that are below one."""
    return re.sub(r"(?<![\d.])0\.(?=\d)", ".", text)


def number(value: float, digits: int | None = None) -> str:
    """Return a number with some digits, or with three that count."""
    return short(signed(value, decimals_of(value, "") if digits is None else digits))


def measured(found: Interval | None, digits: int | None = None) -> str:
    """Return "mean ± half width"; "–" where there is none."""
    return (
        "–" if found is None else short(with_interval(found, decimals_of(found.mean, "") if digits is None else digits))
    )


def to(ends: tuple[float, float] | None, digits: int) -> str:
    """Return "least to largest", one number where both are the same, "–" where one is unknown."""
    if ends is None:
        return "–"
    low, high = (number(end, digits) for end in ends)
    return low if low == high else f"{low} to {high}"


def span(leads: Sequence[int]) -> str:
    """Return leads in words."""
    return f"lead {leads[0]}" if len(leads) == 1 else f"leads {leads[0]} to {leads[-1]}"


def listed(leads: Sequence[int]) -> str:
    """Return leads one by one, in words."""
    word = "lead" if len(leads) == 1 else "leads"
    return f"{word} {', '.join(map(str, leads))}"


def percent(gap: Interval | None) -> str:
    """Return a relative difference with its interval, in percent."""
    return "–" if gap is None else f"{_whole(gap.mean)} ± {100 * gap.half:.0f}%"


def _whole(share: float) -> str:
    """Return a share in whole percents, without the sign."""
    return signed(round(100 * share) + 0.0, 0)


def of_leads(setting: Setting, low: int, high: int) -> list[int]:
    """Return the leads of a setting between two, both included."""
    return [lead for lead in setting.leads if low <= lead <= high]


def shown_leads(setting: Setting) -> list[int]:
    """Return the leads of tables: some, and the last."""
    return [lead for lead in setting.leads if lead in SHOWN or lead == setting.leads[-1]]


def overview(found: Sequence[Setting]) -> list[str]:
    """Return a table with two lines for each setting: error bars, and CRPS beside the best baseline of each lead."""
    head = ["setting", "method", "leads", "spread/skill", "ECE", "CRPS, difference from the best baseline, leads ≥ 10"]
    body = []
    for setting in found:
        for ours in (m for m in OURS if m in setting.lines):
            line, leads = setting.lines[ours], setting.leads
            far = [lead for lead in leads if lead >= 10]
            gaps = [crps_gap(setting, ours, b, k) for k in far if (b := best_baseline(setting, k))]
            means = [gap.mean for gap in gaps if gap is not None]
            ends = dict.fromkeys(_whole(end) for end in (min(means), max(means))) if means else {}
            change = f"{' to '.join(ends)}%" if ends else "–"
            cells = [
                to(range_of(line, score, leads), digits) for score, digits in (("spread_skill", 2), ("ece_mix", 3))
            ]
            seeds = f"1 to {leads[-1]}"
            body.append([setting.title, f"`{ours}`", seeds, *cells, change])
    return piped([head, *body]).splitlines()


def gap_table(setting: Setting, ours: str) -> list[str]:
    """Return the differences in CRPS from every baseline by lead."""
    leads = shown_leads(setting)
    head = [f"CRPS of `{ours}`, difference from", *(f"lead {lead}" for lead in leads)]
    body = []
    for baseline in setting.baselines:
        gaps = [crps_gap(setting, ours, baseline, lead) for lead in leads]
        body.append([Cell(f"`{baseline}`"), *map(_gap_cell, gaps)])
    return piped([[Cell(text) for text in head], *body]).splitlines()


def _gap_cell(gap: Interval | None) -> Cell:
    """Return a difference, bold where it is below 0 beyond its interval, in italics where it is above."""
    is_above = gap is not None and gap.low > 0
    return Cell(f"*{percent(gap)}*" if is_above else percent(gap), gap is not None and gap.high < 0)


def by_setting(found: Sequence[Setting]) -> list[str]:
    """Return a figure and the comparisons with the baselines, setting by setting."""
    parts = []
    every = dict.fromkeys(method for setting in found for method in setting.lines)
    for setting in found:
        alt = f"Spread/skill, ECE and CRPS against the lead, {setting.title.replace('`', '')}"
        seeds = sorted({line.seeds for line in setting.lines.values()})
        counted = ", ".join(f"{count:,}" for count in sorted(set(setting.particles.values())))
        counted = " or ".join(counted.rsplit(", ", 1))
        about = f"{' or '.join(map(str, seeds))} seeds; together, the forecasts of a run have {counted} particles"
        about += ", depending on the method." if len(set(setting.particles.values())) > 1 else "."
        absent = ", ".join(f"`{method}`" for method in every if method not in setting.lines)
        about += f" Not run here: {absent}." if absent else ""
        parts += [f"### {setting.title}", "", about, "", f"![{alt}](figures/rollouts/{setting.slug}.png)", ""]
        for ours in (m for m in OURS if m in setting.lines):
            parts += [*gap_table(setting, ours), ""]
    return [*parts, how_many(found)]


def how_many(found: Sequence[Setting]) -> str:
    """Say how many comparisons the tables make, and what chance alone would do."""
    gaps = [
        crps_gap(s, ours, b, k) for s in found for ours in OURS if ours in s.lines for b in s.baselines
        for k in shown_leads(s)
    ]  # fmt: skip
    number = counts(gaps)
    return (
        f"These tables make {number.compared:,} comparisons without correction: {number.below:,} are below beyond the"
        f" interval and {number.above:,} above. Between equal methods, about {0.05 * number.compared:.0f} would fall"
        " outside by chance, half of them on either side."
    )


def score_table(setting: Setting, score: str) -> list[str]:
    """Return the means of a score with their intervals, by method and lead."""
    title, digits = TABLES[score]
    leads = shown_leads(setting)
    last = ["diverged"] if any(line.diverged for line in setting.lines.values()) else []
    last += ["out of range"] if score == "crps" else []
    body = []
    for method, line in setting.lines.items():
        if method == CLIMATOLOGY and score != "crps":
            continue
        row = [f"`{method}`", *(measured(mean_at(line, score, lead), digits) for lead in leads)]
        row += [str(line.diverged)] if "diverged" in last else []
        row += [f"{out_of_range(line):,}" if method != CLIMATOLOGY else "–"] if score == "crps" else []
        body.append(row)
    return piped([[title, *(f"lead {lead}" for lead in leads), *last], *body]).splitlines()


def all_scores(found: Sequence[Setting]) -> list[str]:
    """Return the long tables: every method's scores, setting by setting."""
    parts = []
    for setting in found:
        parts += [f"### All scores: {setting.title}", ""]
        for score in TABLES:
            parts += [*score_table(setting, score), ""]
    return parts[:-1]


def made_by(made: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the commands behind the rows, with their devices."""
    return [
        f"- `{one['command']}` on {one['starts'][-1]['device']}, JAX {one['starts'][-1]['jax']}." for one in made
    ] or ["–"]


def front(found: Sequence[Setting], prefix: str, level: str) -> list[str]:
    """Return the block of a front page: one figure and one table of the summary's setting; empty without it.

    Args:
        found: The settings.
        prefix: The way from the page to the folder of the docs.
        level: The signs of a heading.
    """
    setting = headline(found)
    if setting is None:
        return []
    leads = [lead for lead in (1, 10, 100) if lead in setting.leads]
    best = best_baseline(setting, leads[-1])
    shown = [*(m for m in ON_FRONT if m != CLIMATOLOGY), *([best] if best else [])]
    there = [m for m in dict.fromkeys(shown) if m in setting.lines]
    body = [[f"`{m}`", *(_front_cell(setting.lines[m], lead) for lead in leads)] for m in there]
    seeds = max(line.seeds for line in setting.lines.values())
    horizon = config_of(SINGLE, Config()).train.reg_horizon
    return [
        f"{level} Forecasts of many steps",
        "",
        f"![Spread/skill, ECE and CRPS against the lead]({prefix}figures/rollouts/front.png)",
        "",
        f"*{setting.title}: means over {seeds} seeds (bands: 95% intervals). `xreg` learned its error bars on single"
        f" steps, `xreg-rollout` on held-out rollouts of {horizon} steps. Ensembles have three members; the error bars"
        " of `ensemble+growth` were widened by lead on the same held-out trajectories.*",
        "",
        *piped([["spread/skill / ECE / CRPS", *(f"lead {lead}" for lead in leads)], *body]).splitlines(),
        "",
        f"[More equations, baselines and hidden points]({prefix}rollouts.md).",
    ]


def _front_cell(line: Line, lead: int) -> str:
    found = [mean_at(line, score, lead) for score in TABLES]
    cells = [
        "–" if one is None else number(one.mean, digits)
        for one, (_, digits) in zip(found, TABLES.values(), strict=True)
    ]
    return " / ".join(cells)
