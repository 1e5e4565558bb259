"""Tables as HTML, with all text escaped."""

import html
from collections.abc import Sequence
from typing import Any

from crossreg.report.page.lines import Group, method_label, regime_label
from crossreg.report.shared.html import folded
from crossreg.report.tables.comparison import SCORES, TITLES, Line, regimes, shared_settings, with_interval
from crossreg.report.tables.comparison_tables import (
    cells,
    common_setting,
    duel_cells,
    in_sample_note,
    sections,
    settings_cells,
)
from crossreg.report.tables.layout import Cell
from crossreg.report.tables.scores import mean_times, times_cells, times_sentence
from crossreg.report.tables.verdicts import verdicts

_SPLIT_SCORES = ("rmse", "rms_predictive", "rms_generalization")
# A phone shows only the first columns: so the method and its scores come first, and the regime above its methods.
_LAST = ("seeds", "diverged")


def scores(group: Group) -> str:
    """Return the tables of a group: scores with intervals, wins and losses, and both parts of the uncertainty."""
    lines = group.lines
    parts = []
    for title, part in sections(lines):
        parts.append(f"<h4>{html.escape(title)}</h4>" if title else "")
        parts.append(_scores_table(part, lines, f"Scores{': ' * bool(title)}{title}"))
    said = [f"All with {shared_settings(group.rows)}."] if shared_settings(group.rows) else []
    said = [
        sentence
        for sentence in [*said, common_setting(lines), in_sample_note(cells(lines)[1]), *verdicts(lines)]
        if sentence
    ]
    parts.append("<ul>" + "".join(f"<li>{html.escape(sentence)}</li>" for sentence in said) + "</ul>" if said else "")
    if counted := duel_cells(lines):
        parts.append("<h4>In how many regimes, beyond the 95% interval</h4>" + table(counted, "Wins, draws and losses"))
    if changed := settings_cells(lines):
        parts.append("<h4>Difference from the default</h4>" + table(changed, "Difference from the default"))
    parts.append(_times(group))
    if residuals := _residuals(group):
        hint = "Root mean squares over points. For honest error bars, RMSE² is about U_pred + U_gen on reg and test."
        title = "Residuals and both parts of the uncertainty, by split"
        parts.append(folded(title, f'{residuals}<p class="hint">{hint}</p>'))
    return "".join(parts)


def _scores_table(part: Sequence[Line], lines: Sequence[Line], label: str) -> str:
    """Return one row for each method of a regime, below the regime; scores come first, numbers of seeds last."""
    header, body = cells(part)
    first = header.index("method")
    counts = [header.index(name) for name in _LAST]
    if not any(line.diverged for line in part):
        counts.pop()
    split = [header.index("train + reg")] if "train + reg" in header else []
    columns = [first, *(i for i in range(first + 1, len(header)) if header[i] not in _LAST), *counts, *split]
    rows: list[Sequence[str | Cell]] = [[header[i] for i in columns]]
    done = 0
    for group in regimes(part):
        rows.append([regime_label(group[0], lines)])
        rows += [[row[i] for i in columns] for row in body[done : done + len(group)]]
        done += len(group)
    return table(rows, label)


def _times(group: Group) -> str:
    """Return test scores within and beyond the times of train: of each run that has both, or means over seeds."""
    by_regime = (
        _times_of_sweep(group) if group.sweep else {"": {row["key"]: row.get("test_times") for row in group.rows}}
    )
    rows: list[list[str]] = []
    said: dict[str, None] = {}
    for regime, own in by_regime.items():
        shown = {name: times for name, times in own.items() if times}
        said |= dict.fromkeys(map(times_sentence, shown.values()))
        tables = {name: found for name, times in shown.items() if (found := times_cells(times))}
        for head, *_ in list(tables.values())[:1]:
            rows += [] if rows else [["method" if regime else "run", *head]]
            rows += [[regime]] if regime else []
        rows += [[name, *cells] for name, (_, *body) in tables.items() for cells in body]
    title = "Within and beyond the times of training"
    shown = f"<h4>{title}</h4>{table(rows, title)}" if rows else ""
    return shown + "".join(f"<p>{html.escape(sentence)}</p>" for sentence in said)


def _times_of_sweep(group: Group) -> dict[str, dict[str, dict[str, Any] | None]]:
    """Return, by regime and method, means over the seeds that have test scores by time; None where none has."""
    found: dict[str, dict[str, dict[str, Any] | None]] = {}
    for part in regimes(group.lines):
        own = found.setdefault(regime_label(part[0], group.lines), {})
        for line in part:
            seeds = [t for row in group.rows_of(line) if not row["diverged"] and (t := row.get("test_times"))]
            own[method_label(line, part)] = mean_times(seeds) if seeds else None
    return found


def _residuals(group: Group) -> str:
    header = ["", "split", *(TITLES[f"test_{score}"].removeprefix("test ") for score in _SPLIT_SCORES)]
    body = []
    for line in group.lines:
        for split in ("train", "reg", "test"):
            if line.values(f"{split}_rmse"):
                own = [f"{split}_{score}" for score in _SPLIT_SCORES]
                label = f"{method_label(line, group.lines)}, {regime_label(line, group.lines)}"
                body.append([label, split, *(with_interval(line.interval(s), SCORES[s][2]) for s in own)])
    return table([header, *body], "Residuals and both parts of the uncertainty") if body else ""


def table(rows: Sequence[Sequence[str | Cell]], label: str) -> str:
    """Return an HTML table that scrolls where it is too wide. The first row is its head; clear winners are bold.

    A row with a single cell is a heading for the rows below it.
    """
    head, *body = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    heads = "".join(f'<th scope="col">{html.escape(cell.text)}</th>' for cell in head)
    inner = []
    for row in body:
        texts = [f"<b>{html.escape(c.text)}</b>" if c.bold else html.escape(c.text) for c in row]
        if len(row) == 1 < len(head):
            inner.append(
                f'<tr class="part"><th scope="rowgroup" colspan="{len(head)}"><span>{texts[0]}</span></th></tr>'
            )
        else:
            first = f'<th scope="row">{texts[0]}</th>'
            inner.append(f"<tr>{first}{''.join(f'<td>{text}</td>' for text in texts[1:])}</tr>")
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{html.escape(label)}"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(inner)}</tbody></table></div>"
    )
