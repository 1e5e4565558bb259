"""What was run, as HTML: facts at a glance, then every setting, version and time. All text is escaped here."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crossreg.config import changed_fields, to_dict
from crossreg.report.page.folders import Car, Found, Run, Sweep
from crossreg.report.page.parts import listed, table, word
from crossreg.report.page.unfinished import Unfinished

_MOST_DETAILS = 40
_ASKED = ("name", "methods", "seeds", "first_seed", "steps", "grid")
_VERSIONS = ("crossreg", "jax", "python")


def what_was_run(found: Found) -> str:
    """Settings, versions and times of everything that was found."""
    parts = [_runs(found.runs)] if found.runs else []
    parts += [_sweep(sweep) for sweep in found.sweeps]
    parts += [_car(car) for car in found.cars]
    if found.unfinished:
        parts.append(_unfinished(found.unfinished))
    if found.problems:
        shown = [f"{name}: {why}" for name, why in found.problems[:_MOST_DETAILS]]
        if len(found.problems) > _MOST_DETAILS:
            shown.append(f"and {len(found.problems) - _MOST_DETAILS} more")
        lines = "".join(f"<li>{html.escape(text)}</li>" for text in shown)
        parts.append(f'<div class="notice"><p>Left out, or could not be read:</p><ul>{lines}</ul></div>')
    return "".join(parts)


def _facts(values: Mapping[str, Any]) -> str:
    """A row of facts; those that are not known are left out."""
    known = {name: text for name, value in values.items() if (text := word(value)) not in ("", "–")}
    pairs = (f"<div><dt>{html.escape(n)}</dt><dd>{html.escape(t)}</dd></div>" for n, t in known.items())
    return f'<dl class="facts">{"".join(pairs)}</dl>'


def _several(values: Iterable[Any]) -> str:
    """The different values of a setting, in a few words."""
    found = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    if len(found) > (8 if isinstance(found[0], str) else 4):
        return f"{word(found[0])} … {word(found[-1])} ({len(found)})"
    return ", ".join(f"{value:,}" if isinstance(value, int) else word(value) for value in found)


def versions_line(versions: Mapping[str, Any]) -> str:
    """The versions that matter most, on one line."""
    return ", ".join(f"{name} {word(versions[name])}" for name in _VERSIONS if versions.get(name))


def _runs(runs: Sequence[Run]) -> str:
    """Facts, then one run in full; of several, a table of what differs and the details of each behind a button."""
    configs = [run.config for run in runs]
    facts = {
        "scenario": _several(config.data.scenario for config in configs),
        "observed": _several(config.data.observed_fraction for config in configs),
        "train trajectories": _several(config.data.train_size for config in configs),
        "reg trajectories": _several(config.data.reg_size for config in configs),
        "steps": _several(config.train.steps for config in configs),
        "seeds": _several(config.train.seed for config in configs),
        "device": ", ".join(sorted({word(run.versions.get("device")) for run in runs} - {"–"})),
        "versions": ", ".join(sorted({versions_line(run.versions) for run in runs} - {""})[:3]),
    }
    if len(runs) == 1:
        return _facts(facts | {"ended": runs[0].state.removeprefix("finished ")}) + _run(runs[0])
    flat = [_flat_settings(run) for run in runs]
    differ = [name for name in flat[0] if len({str(settings[name]) for settings in flat}) > 1]
    header = ["run", *(name.replace("_", " ") for name in differ), "state"]
    body = [
        [run.name, *(word(settings[name]) for name in differ), run.state]
        for run, settings in zip(runs, flat, strict=True)
    ]
    each = "".join(
        f"<details><summary>{html.escape(run.name)}</summary>{_run(run)}</details>" for run in runs[:_MOST_DETAILS]
    )
    if len(runs) > _MOST_DETAILS:
        each += f'<p class="hint">and {len(runs) - _MOST_DETAILS} more.</p>'
    listing = f'<div class="tall">{table([header, *body], "Runs and what differs between them")}</div>'
    return (
        f"{_facts(facts)}<details><summary>{len(runs)} runs: what differs between them, and when they ended</summary>"
        f"{listing}</details><details><summary>Everything that is known of each run</summary>{each}</details>"
    )


def _flat_settings(run: Run) -> dict[str, Any]:
    return {name: value for part in to_dict(run.config).values() for name, value in part.items()}


def _run(run: Run) -> str:
    changed = changed_fields(run.config)
    first = {"run": run.name, "state": run.state, "device": run.versions.get("device", "–")}
    parts = [listed(first)]
    parts.append(
        f"<h4>Settings that differ from the default</h4>{listed(changed)}"
        if changed
        else "<p>Every setting is at its default.</p>"
    )
    parts.append(_folded("All settings", _sections(to_dict(run.config))))
    parts.append(_folded("Versions", listed(run.versions) if run.versions else ""))
    return "".join(parts)


def _sections(settings: Mapping[str, Any]) -> str:
    """Settings by section; what is no section has none."""
    parts = {str(name): fields for name, fields in settings.items() if isinstance(fields, dict)}
    return "".join(f"<h4>{html.escape(name)}</h4>{listed(fields)}" for name, fields in parts.items())


def _folded(title: str, inside: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>" if inside else ""


def _sweep(sweep: Sweep) -> str:
    asked = {
        name.replace("_", " "): sweep.asked[name] for name in _ASKED if sweep.asked.get(name) not in (None, [], "")
    }
    starts = sweep.asked.get("starts")
    starts = [start for start in starts if isinstance(start, dict)] if isinstance(starts, list) else []
    last = starts[-1] if starts else {}
    facts = {
        "sweep": asked.pop("name", "–"),
        "finished runs": f"{len(sweep.rows):,}" + (f", {sweep.missing:,} are missing" if sweep.missing else ""),
        "methods": _several(row["method"] for row in sweep.rows),
        "observed": _several(row["observed_fraction"] for row in sweep.rows),
        "train trajectories": _several(row["train_size"] for row in sweep.rows),
        "steps": _several(row["steps"] for row in sweep.rows),
        "seeds": _several(row["seed"] for row in sweep.rows),
        "device": last.get("device"),
        "versions": versions_line(last),
        "last row written": sweep.when,
    }
    title = f"<h3>Sweep {html.escape(sweep.name)}</h3>"
    config = sweep.asked.get("config")
    shared = _sections(config) if isinstance(config, dict) else ""
    started = "".join(f"<h4>start {number}</h4>{listed(start)}" for number, start in enumerate(starts, start=1))
    return (
        title
        + _facts(facts)
        + _folded("What was asked for", listed(asked))
        + _folded("Settings that all runs share, before the sweep changes them", shared)
        + _folded("Versions, at every start", started)
    )


def _car(car: Car) -> str:
    summary = car.run.summary
    facts = {
        "cars to train, regularize and test on": " + ".join(word(summary.get(n)) for n in ("train", "reg", "test")),
        "methods": ", ".join(car.run.methods),
        "device": car.versions.get("device"),
        "versions": versions_line(car.versions),
        "ended": car.when,
    }
    title = f"<h3>Car experiment {html.escape(car.name)}</h3>"
    versions = listed(car.versions) if car.versions else ""
    said = '<p class="hint">Its settings are listed under Cars.</p>'
    return title + _facts(facts) + said + _folded("Versions", versions)


def _unfinished(items: Sequence[Unfinished]) -> str:
    """Why they are not complete, one line each, and the settings of each; their curves stand below the scores."""
    lines = "".join(
        f"<li><b>{html.escape(item.name)}</b> ({item.kind}, {_progress(item)}): {html.escape(item.why)}</li>"
        for item in items[:_MOST_DETAILS]
    )
    if len(items) > _MOST_DETAILS:
        lines += f"<li>and {len(items) - _MOST_DETAILS} more</li>"
    each = "".join(
        _folded(item.name, _sections(item.settings) + (listed(item.versions) if item.versions else ""))
        for item in items[:_MOST_DETAILS]
    )
    counted = f"{len(items)} {'is' if len(items) == 1 else 'are'} not complete"
    return f'<h3>{counted}</h3><ul class="reasons">{lines}</ul>' + _folded("Settings of what is not complete", each)


def _progress(item: Unfinished) -> str:
    """How far it has come."""
    steps = item.settings.get("train", {}).get("steps")
    last = max((history[-1]["step"] for history in item.histories.values()), default=0)
    return f"{last:,} of {steps:,} steps" if isinstance(steps, int) else f"{last:,} steps"
