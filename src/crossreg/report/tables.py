"""Scores as text."""

from collections.abc import Mapping
from typing import Any

_COLUMNS = (
    ("test NLL", "test", "nll", "{:.3f}"),
    ("test ECE", "test", "ece_mix", "{:.3f}"),
    ("test CRPS", "test", "crps", "{:.4f}"),
    ("test RMSE", "test", "rmse", "{:.4f}"),
    ("Std_ω[μ]", "test", "std_mu", "{:.4f}"),
    ("mean std", "test", "sharpness", "{:.4f}"),
    ("Spearman", "test", "spearman", "{:.2f}"),
    ("reg NLL", "reg", "nll", "{:.3f}"),
    ("reg ECE", "reg", "ece_mix", "{:.3f}"),
)


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def scores_table(methods: Mapping[str, Mapping[str, Any]]) -> str:
    """One row per method, from objects with `test` and `reg` scores."""
    header = ["", *(title for title, *_ in _COLUMNS)]
    rows = [
        [name, *(_cell(scores[split][key], form) for _, split, key, form in _COLUMNS)]
        for name, scores in methods.items()
    ]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in [header, *rows]
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def decomposition_table(scores: Mapping[str, Any]) -> str:
    """Residuals of each split, and both parts of the uncertainty beside them, as root mean squares."""
    names = ("rmse", "rms_predictive", "rms_generalization")
    lines = [f"{'':7}{'RMSE':>8}{'√U_pred':>9}{'√U_gen':>9}"]
    for split in ("train", "reg", "test"):
        if scores[split] is not None:
            rmse, pred, gen = (_cell(scores[split][name], "{:.4f}") for name in names)
            lines.append(f"{split:7}{rmse:>8}{pred:>9}{gen:>9}")
    return "\n".join(lines)


def sigma_lines(sigma: Mapping[str, list[float]]) -> str:
    """σ of each site, one line per site."""
    width = max((len(name) for name in sigma), default=0)
    return "\n".join(f"σ {name.ljust(width)}  {' '.join(f'{s:.3g}' for s in values)}" for name, values in sigma.items())
