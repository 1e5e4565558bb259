"""Sentences, tables and figures of docs/rollouts.md, and of the forecasts' block on the front pages, from rows.

`publish_rollouts.py --page` fills the marks of `benchmarks/rollouts_page.md` and writes the page. Prose without numbers
is in that file; every number of a result is computed here.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossreg.errors import InputError
from crossreg.report.figures.forecasts import lead_curves
from crossreg.report.tables.comparison import signed
from rollout_goals import goals
from rollout_lines import (
    CLIMATOLOGY,
    ENSEMBLE,
    SINGLE,
    Setting,
    counts,
    crps_gap,
    headline,
    in_all,
    mean_at,
    out_of_range,
    range_of,
    settings,
)
from rollout_tables import (
    ON_FRONT,
    OURS,
    all_scores,
    by_setting,
    front,
    listed,
    made_by,
    measured,
    of_leads,
    overview,
    span,
    to,
)

TEMPLATE, PAGE, NAV = Path("benchmarks/rollouts_page.md"), Path("docs/rollouts.md"), Path("mkdocs.yml")
FIGURES = Path("docs/figures/rollouts")
# Pages with a figure and a table of the forecasts, between the marks.
FRONT = (Path("README.md"), Path("docs/index.md"))
# The method that figures have the CRPS of others beside.
BESIDE = "ensemble+growth"
_IN_NAV, _BEFORE = "      - Forecasts, results: rollouts.md\n", "      - Results on cars: cars_results.md\n"
DRAWN = (
    "xreg", SINGLE, ENSEMBLE, "dropout+growth", "ensemble", "ensemble+growth", "train-noise-rollout+growth",
    CLIMATOLOGY,
)  # fmt: skip


def summary(found: Sequence[Setting]) -> list[str]:
    """Return what the rows say, in sentences."""
    first = headline(found)
    parts = (
        [] if first is None else [_held(first, ENSEMBLE, "Three members", 100), _held(first, SINGLE, "One model", 50)]
    )
    if first is not None and 10 in first.leads and "xreg" in first.lines:
        bars, ece = (mean_at(first.lines["xreg"], score, 10) for score in ("spread_skill", "ece_mix"))
        parts.append(
            f"- **With error bars learned on single steps**, as `xreg` has them, spread/skill at lead 10 is"
            f" {measured(bars, 2)} and ECE {measured(ece, 3)}."
        )
    ours = any(method in setting.lines for setting in found for method in OURS)
    parts += [_against_baselines(found), *_exceptions(found), *_of_rollouts(found)] if ours else []
    parts += [*_of_no_use(found), _particles(found)] if ours else []
    return [part for part in parts if part]


def _held(setting: Setting, method: str, words: str, last: int) -> str:
    """Say how well the error bars of a method hold at the leads up to a last one."""
    if method not in setting.lines:
        return ""
    leads, line = of_leads(setting, 1, last), setting.lines[method]
    bars, ece = range_of(line, "spread_skill", leads), range_of(line, "ece_mix", leads)
    return (
        f"- **{words}, `{method}`** ({setting.title}, {line.seeds} seeds): spread/skill is {to(bars, 2)} and ECE"
        f" {to(ece, 3)} at {span(leads)}."
    )


def clearly_ahead(setting: Setting, ours: str) -> bool:
    """Return whether the CRPS is below every baseline's, beyond the interval, at all leads of 10 and more."""
    gaps = [crps_gap(setting, ours, b, lead) for b in setting.baselines for lead in setting.leads if lead >= 10]
    return bool(gaps) and all(gap is not None and gap.high < 0 for gap in gaps)


def _against_baselines(found: Sequence[Setting]) -> str:
    """Count in how many settings ours is ahead of every baseline, and all comparisons at leads of 10 and more."""
    said = []
    for ours in OURS:
        there = [s for s in found if ours in s.lines and s.leads[-1] >= 10]
        if not there:
            continue
        ahead = [s for s in there if clearly_ahead(s, ours)]
        gaps = [crps_gap(s, ours, b, lead) for s in there for b in s.baselines for lead in s.leads if lead >= 10]
        number = counts(gaps)
        titles = (f"{s.title}, with {len(s.baselines)} baselines" for s in ahead)
        where = f" ({'; '.join(titles)})" if ahead and len(ahead) < len(there) else ""
        unknown = f"; {number.unknown} more have no finite score to compare" if number.unknown else ""
        said.append(
            f"`{ours}` is below every baseline at every lead in {len(ahead) or 'none'} of {len(there)} settings{where};"
            f" of {number.compared} single comparisons it is below in {number.below}, above in"
            f" {number.above}, and level in the rest{unknown}"
        )
    words = (
        '- **CRPS at leads of 10 and more** ("below" and "above" mean beyond the 95% interval of the paired difference)'
    )
    return f"{words}: {'. '.join(said)}." if said else ""


def _exceptions(found: Sequence[Setting]) -> list[str]:
    """Name the settings and baselines that are ahead of three members, beyond the interval, at any lead."""
    named = []
    for setting in (s for s in found if ENSEMBLE in s.lines):
        better = []
        for baseline in setting.baselines:
            gaps = {lead: crps_gap(setting, ENSEMBLE, baseline, lead) for lead in setting.leads}
            worse = [lead for lead, gap in gaps.items() if gap is not None and gap.low > 0]
            better += [f"`{baseline}` at {listed(worse)}"] if worse else []
        named += [f"{setting.title} ({', '.join(better)})"] if better else []
    words = "- **Where a baseline has the lower CRPS** than three members, beyond the interval, at any lead"
    return [f"{words}: {'; '.join(named)}."] if named else []


def _of_rollouts(found: Sequence[Setting]) -> list[str]:
    """Compare what learned from rollouts with what learned from single steps, on the same held-out trajectories."""
    said = []
    for ours, single in ((ENSEMBLE, "xreg-ensemble"), (SINGLE, "xreg")):
        places = [(s, lead) for s in found if {ours, single} <= {*s.lines} for lead in s.leads if lead >= 10]
        gaps = [crps_gap(s, ours, single, lead) for s, lead in places]
        if known := [gap.mean for gap in gaps if gap is not None]:
            number = counts(gaps)
            eces = ([mean_at(s.lines[method], "ece_mix", lead) for method in (ours, single)] for s, lead in places)
            lower = sum(mine is not None and other is not None and mine.mean < other.mean for mine, other in eces)
            ends = " to ".join(f"{signed(round(100 * end) + 0.0, 0)}%" for end in (min(known), max(known)))
            said.append(
                f"`{ours}` is below that of `{single}` in {number.below} of {number.compared} comparisons, above in"
                f" {number.above}, and level in the rest (differences of {ends}), and its mean ECE is lower in {lower}"
            )
    words = "- **What learning from rollouts adds** to learning from single steps, at leads of 10 and more: the CRPS of"
    return [f"{words} {'; that of '.join(said)}."] if said else []


def _of_no_use(found: Sequence[Setting]) -> list[str]:
    """Name the settings and leads at which the mean CRPS of ours is above that of the climatology."""
    named = []
    for setting in found:
        worse = []
        for ours in (method for method in OURS if method in setting.lines):
            gaps = {lead: crps_gap(setting, ours, CLIMATOLOGY, lead) for lead in setting.leads}
            leads = [lead for lead, gap in gaps.items() if gap is not None and gap.mean > 0]
            worse += [f"`{ours}` at {listed(leads)}"] if leads else []
        named += [f"{setting.title} ({', '.join(worse)})"] if worse else []
    words = "- **Forecasts of no use**, whose mean CRPS is above the climatology's"
    return [f"{words}: {'; '.join(named)}."] if named else []


def _particles(found: Sequence[Setting]) -> str:
    """Report how many particles were out of range, of ours and of all methods."""
    parts = []
    for methods, words in ((OURS, "`" + "` and `".join(OURS) + "`"), (None, "all methods together")):
        lines = [
            (s, line) for s in found for m, line in s.lines.items() if m in (methods or s.lines) and m != CLIMATOLOGY
        ]
        lost = sum(out_of_range(line) for _, line in lines)
        total = sum(in_all(s, line) for s, line in lines)
        diverged = sum(line.diverged for _, line in lines)
        also = f" ({diverged} runs diverged)" if diverged else ""
        parts.append(f"{lost:,} of {total:,} particles of {words}{also}")
        if methods and lost:
            share, method, title = max(
                (out_of_range(line) / in_all(s, line), line.method, s.title) for s, line in lines
            )
            parts[-1] += f", and up to {share:.0%} of those of one method in one setting (`{method}` on {title})"
    return f"- **Particles out of range** by the last lead: {'; '.join(parts)}."


def marks(name: str) -> tuple[str, str]:
    """Return the lines between which a part stands."""
    return f"<!-- {name}, written by benchmarks/publish_rollouts.py -->", f"<!-- end of {name} -->"


def filled(text: str, name: str, lines: Sequence[str]) -> str:
    """Return a text with lines between the marks of a name."""
    first, last = marks(name)
    before, rest = text.split(first)
    body = ["", *lines, ""] if lines else []
    return "\n".join([before + first, *body, last + rest.split(last)[1]])


PARTS: dict[str, Callable[[Sequence[Setting]], list[str]]] = {
    "summary": summary,
    "goals": goals,
    "overview": overview,
    "settings": by_setting,
    "scores": all_scores,
}


def page(found: Sequence[Setting], made: Sequence[Mapping[str, Any]]) -> str:
    """Return the page."""
    text = TEMPLATE.read_text()
    for name, part in PARTS.items():
        text = filled(text, name, part(found))
    return filled(text, "commands", made_by(made))


def front_page(path: Path, found: Sequence[Setting]) -> str:
    """Return a front page with the block of the forecasts."""
    prefix, level = ("docs/", "###") if path.name == "README.md" else ("", "###")
    return filled(path.read_text(), "forecasts", front(found, prefix, level))


def write(rows: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]]) -> None:
    """Write the page, its figures, and the blocks of the front pages, and put the page into the menu."""
    if not rows:
        raise InputError("no rows of forecasts are published yet; give the folders of sweeps first")
    found = settings(rows)
    draw(found)
    PAGE.write_text(page(found, made))
    for path in FRONT:
        path.write_text(front_page(path, found))
    if _IN_NAV not in (nav := NAV.read_text()):
        NAV.write_text(nav.replace(_BEFORE, _IN_NAV + _BEFORE))
    print(PAGE)


def draw(found: Sequence[Setting]) -> None:
    """Draw a figure for each setting, and one for the front pages; those of settings that are gone are removed."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    for path in FIGURES.glob("*.png"):
        path.unlink()
    first = headline(found)
    named = [(setting, DRAWN, setting.slug, BESIDE) for setting in found]
    named += [(first, ON_FRONT, "front", None)] if first is not None else []
    for setting, methods, name, beside in named:
        lines = [setting.lines[method] for method in methods if method in setting.lines]
        where = setting.title.replace("`", "")
        for path in lead_curves(lines, FIGURES / name, where=where, beside=beside):
            if path.suffix != ".png":
                path.unlink()  # a page shows pictures
