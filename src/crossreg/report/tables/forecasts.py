"""Scores of forecasts by lead time, as text."""

from collections.abc import Mapping
from typing import Any

from crossreg.report.tables.layout import aligned

_COLUMNS = (
    ("RMSE", "rmse", "{:.4g}"),
    ("spread/skill", "spread_skill", "{:.2f}"),
    ("ECE", "ece_mix", "{:.3f}"),
    ("CRPS", "crps", "{:.4g}"),
    ("climatology", "crps_climatology", "{:.4g}"),
    ("persistence", "crps_persistence", "{:.4g}"),
    ("energy score", "energy_score", "{:.4g}"),
    ("valid", "valid_share", "{:.0%}"),
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
    said = (
        f"{scores['forecasts']} forecasts of {scores['steps']} steps, {scores['particles']} particles each. Where error"
        " bars hold, spread/skill is 1 and ECE 0.\nThe CRPS stands beside that of climatology and persistence. valid:"
        " forecasts whose error is below half the climate's spread.\nout of range: particles beyond the range of the"
        f" training data by more than its width, of {scores['particles_in_all']} in all forecasts."
    )
    return "\n".join([head, "-" * len(head), *body, said])
