"""The parts of the page that need no script: what was run, and the tables. All text is escaped here."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from crossreg.config import changed_fields, to_dict
from crossreg.report.comparison import SCORES, TITLES, shared_settings, verdicts, with_interval
from crossreg.report.comparison_tables import Cell, cells, common_setting, duel_cells, sections, settings_cells
from crossreg.report.page.folders import Found, Run, Sweep
from crossreg.report.page.lines import Group, method_label, regime_label

_MOST_DETAILS = 40
_SPLIT_SCORES = ("rmse", "rms_predictive", "rms_generalization")
_ASKED = ("name", "methods", "seeds", "first_seed", "steps", "grid")


def what_was_run(found: Found) -> str:
    """Settings, versions and times of everything that was found."""
    parts = [_runs(found.runs)] if found.runs else []
    if found.runs and not any(run.row for run in found.runs):
        parts.append('<p class="notice">None of these runs is finished, so that there are no scores yet.</p>')
    parts += [_sweep(sweep) for sweep in found.sweeps]
    parts += [
        f"<h3>{html.escape(car.name)}</h3><p>A car experiment. Its settings are listed under Cars.</p>"
        for car in found.cars
    ]
    if found.problems:
        shown = [f"{name}: {why}" for name, why in found.problems[:_MOST_DETAILS]]
        if len(found.problems) > _MOST_DETAILS:
            shown.append(f"and {len(found.problems) - _MOST_DETAILS} more")
        lines = "".join(f"<li>{html.escape(text)}</li>" for text in shown)
        parts.append(f'<div class="notice"><p>Left out, or could not be read:</p><ul>{lines}</ul></div>')
    return "".join(parts)


def _runs(runs: Sequence[Run]) -> str:
    """One run in full; of several, a table of what differs and the details of each behind a button."""
    if len(runs) == 1:
        return _run(runs[0])
    flat = [_flat_settings(run) for run in runs]
    differ = [name for name in flat[0] if len({str(settings[name]) for settings in flat}) > 1]
    header = ["run", *differ, "state"]
    body = [
        [run.name, *(_word(settings[name]) for name in differ), run.state]
        for run, settings in zip(runs, flat, strict=True)
    ]
    each = "".join(
        f"<details><summary>{html.escape(run.name)}</summary>{_run(run)}</details>" for run in runs[:_MOST_DETAILS]
    )
    if len(runs) > _MOST_DETAILS:
        each += f'<p class="hint">and {len(runs) - _MOST_DETAILS} more.</p>'
    said = f"<p>{len(runs)} runs. The table has the settings in which they differ.</p>"
    listing = f'<div class="tall">{table([header, *body], "Runs and what differs between them")}</div>'
    return f"{said}{listing}<details><summary>Everything that is known of each run</summary>{each}</details>"


def _flat_settings(run: Run) -> dict[str, Any]:
    return {name: value for part in to_dict(run.config).values() for name, value in part.items()}


def _run(run: Run) -> str:
    changed = changed_fields(run.config)
    versions = {name: value for name, value in run.versions.items() if name != "device"}
    first = {"run": run.name, "state": run.state, "device": run.versions.get("device", "–")}
    parts = [listed(first)]
    parts.append(
        f"<h4>Settings that differ from the default</h4>{listed(changed)}"
        if changed
        else "<p>Every setting is at its default.</p>"
    )
    every = "".join(f"<h4>{html.escape(part)}</h4>{listed(fields)}" for part, fields in to_dict(run.config).items())
    parts.append(f"<details><summary>All settings</summary>{every}</details>")
    parts.append(f"<details><summary>Versions</summary>{listed(versions)}</details>" if versions else "")
    return "".join(parts)


def _sweep(sweep: Sweep) -> str:
    asked = {
        name.replace("_", " "): sweep.asked[name] for name in _ASKED if sweep.asked.get(name) not in (None, [], "")
    }
    starts = sweep.asked.get("starts")
    starts = [start for start in starts if isinstance(start, dict)] if isinstance(starts, list) else []
    asked["finished runs"] = f"{len(sweep.rows)}" + (f", {sweep.missing} are missing" if sweep.missing else "")
    if starts:
        asked["device"] = starts[-1].get("device", "–")
    parts = [f"<h3>Sweep {html.escape(sweep.name)}</h3>", listed(asked)]
    if isinstance(sweep.asked.get("config"), dict):
        config = "".join(
            f"<h4>{html.escape(str(part))}</h4>{listed(fields)}"
            for part, fields in sweep.asked["config"].items()
            if isinstance(fields, dict)
        )
        parts.append(f"<details><summary>Settings that all runs share, before the sweep changes them</summary>{config}")
        parts.append("</details>")
    if starts:
        parts.append(f"<details><summary>Versions</summary>{listed(starts[-1])}</details>")
    return "".join(parts)


def scores(group: Group) -> str:
    """The tables of a group: scores with intervals, who wins where, and both parts of the uncertainty."""
    lines = group.lines
    parts = []
    for title, part in sections(lines):
        header, body = cells(part)
        parts.append(f"<h4>{html.escape(title)}</h4>" if title else "")
        parts.append(table([list(map(Cell, header)), *body], f"Scores{': ' * bool(title)}{title}"))
    said = [f"All with {shared_settings(group.rows)}."] if shared_settings(group.rows) else []
    said = [sentence for sentence in [*said, common_setting(lines), *verdicts(lines)] if sentence]
    parts.append("<ul>" + "".join(f"<li>{html.escape(sentence)}</li>" for sentence in said) + "</ul>" if said else "")
    if counted := duel_cells(lines):
        parts.append("<h4>In how many regimes, beyond the 95% interval</h4>" + table(counted, "Wins, draws and losses"))
    if changed := settings_cells(lines):
        parts.append("<h4>Difference from the default</h4>" + table(changed, "Difference from the default"))
    if residuals := _residuals(group):
        parts.append(
            f"<details><summary>Residuals and both parts of the uncertainty, by split</summary>{residuals}"
            '<p class="hint">Root mean squares over points. Where error bars are honest, RMSE² is about'
            " U_pred + U_gen on reg and test.</p></details>"
        )
    return "".join(parts)


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
    """An HTML table that scrolls by itself where it is too wide; the first row is its head. Clear winners are bold."""
    head, *body = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    lines = ["<tr>" + "".join(f'<th scope="col">{html.escape(cell.text)}</th>' for cell in head) + "</tr>"]
    inner = []
    for row in body:
        texts = [f"<b>{html.escape(c.text)}</b>" if c.bold else html.escape(c.text) for c in row]
        inner.append("<tr>" + "".join(f"<td>{text}</td>" for text in texts) + "</tr>")
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{html.escape(label)}"><table><thead>'
        + "".join(lines)
        + f"</thead><tbody>{''.join(inner)}</tbody></table></div>"
    )


def listed(values: Mapping[str, Any]) -> str:
    """Names and values, one below the other."""
    pairs = ((html.escape(str(name).replace("_", " ")), html.escape(_word(value))) for name, value in values.items())
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in pairs) + "</dl>"


def _word(value: Any) -> str:
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_word, value)) or "–"
    return str(value)
