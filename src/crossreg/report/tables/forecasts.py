"""Scores of forecasts by lead: of a run as text, and of a sweep as cells."""

from collections.abc import Mapping, Sequence
from typing import Any

from crossreg.report.tables.comparison import (
    LEAD_SCORES,
    TITLES,
    Line,
    at_lead,
    clearly_best,
    leads_of,
    mean_at,
    regimes,
    setting_of,
    signed,
    varying,
)
from crossreg.report.tables.layout import Cell, aligned, in_csv, with_ends

# Leads of the tables of a sweep; leads.csv has all.
_SHOWN = (1, 2, 5, 10, 20, 50, 100)
_TITLES = {
    "spread_skill": "Forecasts: spread over skill by lead, right at 1",
    "ece_mix": "Forecasts: ECE by lead",
    "crps": "Forecasts: CRPS by lead, and particles out of range at the last",
}

_COLUMNS = (
    ("RMSE", "rmse", "{:.4g}"),
    ("spread/skill", "spread_skill", "{:.2f}"),
    ("ECE", "ece_mix", "{:.3f}"),
    ("CRPS", "crps", "{:.4g}"),
    ("climatology", "crps_climatology", "{:.4g}"),
    ("persistence", "crps_persistence", "{:.4g}"),
    ("energy score", "energy_score", "{:.4g}"),
    ("valid", "valid_share", "{:.0%}"),
    ("held", "held_share", "{:.2%}"),
    ("out of range", "lost", "{}"),
)


def lead_table(scores: Mapping[str, Any]) -> str:
    """Return a table with one row per lead, and lines that say what its columns are.

    Args:
        scores: What `score_rollouts` returns.
    """
    rows = [["lead", *(title for title, *_ in _COLUMNS)]]
    for place, lead in enumerate(scores["leads"]):
        values = ((scores[name][place], form) for _, name, form in _COLUMNS)
        rows.append([str(lead), *("–" if value is None else form.format(value) for value, form in values)])
    head, *body = aligned(rows).split("\n")
    particles = f"{scores['particles']} particle{'' if scores['particles'] == 1 else 's'}"
    said = (
        f"{scores['forecasts']} forecasts of {scores['steps']} steps, {particles} each. Where error"
        " bars hold, spread/skill is 1 and ECE 0.\nThe CRPS stands beside that of climatology and persistence. valid:"
        " forecasts whose error is below half the climate's spread.\nheld: values of particles beyond the range of the"
        " training data and a tenth of its width, in whose place the next step\nreads this limit. out of range:"
        f" particles beyond the limits by more than their width, of {scores['particles_in_all']} in all forecasts."
    )
    return "\n".join([head, "-" * len(head), *body, said])


def lead_cells(lines: Sequence[Line]) -> dict[str, list[list[Cell]]]:
    """Return tables of forecasts by their titles, with a line per regime and method; empty without forecasts.

    Cells are means over seeds. A bold CRPS is below those of all other methods of its regime, beyond the 95% interval
    of the difference. Where a seed has no score, as particles grew too large, there is none.
    """
    rolled = [line for line in lines if leads_of([line])]
    every = leads_of(rolled)
    leads = [lead for lead in every if lead in _SHOWN or lead == every[-1]]
    fields = varying(rolled) if rolled else []
    tables = {}
    for score, title in _TITLES.items():
        header = [*(TITLES.get(f, f) for f in fields), "setting", "method", *map(str, leads)]
        header += ["out of range"] if score == "crps" else []
        body = []
        for group in regimes(rolled):
            scored = {lead: [line for line in group if mean_at(line, score, lead) is not None] for lead in leads}
            best = {lead: clearly_best(of, at_lead(score, lead)) for lead, of in scored.items() if score == "crps"}
            for line in group:
                row = [*(Cell(str(line.regime.get(f, ""))) for f in fields), Cell(setting_of(line.regime))]
                row.append(Cell(line.method))
                row += [Cell(_mean(line, score, lead), best.get(lead) is line) for lead in leads]
                if score == "crps":
                    lost = line.by_seed[at_lead("lost", leads_of([line])[-1])]  # earlier sweeps may end elsewhere
                    row.append(Cell(f"{sum(lost.values()):.0f}"))
                body.append(row)
        if all(not row[len(fields)].text or row[len(fields)].text == body[0][len(fields)].text for row in body):
            header, body = ([row[: len(fields)] + row[len(fields) + 1 :] for row in part] for part in ([header], body))
            [header] = header
        tables[title] = [[Cell(text) for text in header], *body]
    return tables if rolled else {}


def _mean(line: Line, score: str, lead: int) -> str:
    if (found := mean_at(line, score, lead)) is None:
        return "–"
    return f"{found.mean:.3g}" if score == "crps" else signed(found.mean, LEAD_SCORES[score])


def leads_csv(lines: Sequence[Line]) -> str:
    """Return one row per regime, method and lead, with every score of forecasts and the ends of its interval."""
    rolled = [line for line in lines if leads_of([line])]
    fields = list(dict.fromkeys(name for line in rolled for name in line.regime))
    ends = [f"{score}{end}" for score in LEAD_SCORES for end in ("", "_low", "_high", "_seeds")]
    rows: list[list[Any]] = [[*fields, "method", "seeds", "diverged", "lead", *ends]]
    for line in rolled:
        for lead in leads_of([line]):
            row = [*(line.regime.get(f) for f in fields), line.method, line.seeds, line.diverged, lead]
            for name in (at_lead(score, lead) for score in LEAD_SCORES):
                row += [*with_ends(line.interval(name)), len(line.values(name))]
            rows.append(row)
    return in_csv(rows)
