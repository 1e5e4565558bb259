"""Settings, versions and times as HTML: facts at a glance, then every detail. All text is escaped."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crossreg.config import all_settings, changed_fields, to_dict
from crossreg.report.page.folders import Car, Found, Run, Sweep
from crossreg.report.page.parts import table
from crossreg.report.page.unfinished import Unfinished
from crossreg.report.shared.html import folded, listed, word
from crossreg.runs.kinds import sections_of

_MOST_DETAILS = 40
_ASKED = ("name", "methods", "seeds", "first_seed", "steps", "grid")
_VERSIONS = ("crossreg", "jax", "python")


def what_was_run(found: Found) -> str:
    """Return settings, versions and times of everything that was found."""
    parts = [_runs(found.runs)] if found.runs else []
    parts += [_sweep(sweep) for sweep in found.sweeps]
    parts += [_car(car) for car in found.cars]
    if found.unfinished:
        parts.append(_unfinished(found.unfinished))
    if found.problems:
        lines = [html.escape(f"{name}: {why}") for name, why in found.problems]
        parts.append(f'<div class="notice"><p>Left out or not readable:</p><ul>{_first(lines)}</ul></div>')
    return "".join(parts)


def _first(lines: Sequence[str]) -> str:
    """Return the first items of a list, as HTML, and the number of the others."""
    more = [f"and {len(lines) - _MOST_DETAILS} more"] if len(lines) > _MOST_DETAILS else []
    return "".join(f"<li>{line}</li>" for line in [*lines[:_MOST_DETAILS], *more])


def _facts(values: Mapping[str, Any]) -> str:
    """Return a row of facts, without those that are unknown."""
    known = {name: text for name, value in values.items() if (text := word(value)) not in ("", "–")}
    pairs = (f"<div><dt>{html.escape(n)}</dt><dd>{html.escape(t)}</dd></div>" for n, t in known.items())
    return f'<dl class="facts">{"".join(pairs)}</dl>'


def _several(values: Iterable[Any]) -> str:
    """Return the different values of a setting in a few words."""
    found = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    if len(found) > (8 if isinstance(found[0], str) else 4):
        return f"{word(found[0])} … {word(found[-1])} ({len(found)})"
    return ", ".join(f"{value:,}" if isinstance(value, int) else word(value) for value in found)


def versions_line(versions: Mapping[str, Any]) -> str:
    """Return the versions that matter most, on one line."""
    return ", ".join(f"{name} {word(versions[name])}" for name in _VERSIONS if versions.get(name))


def _runs(runs: Sequence[Run]) -> str:
    """Return facts, then one run in full; for several, a table of what differs, and the details of each folded."""
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
    flat = [all_settings(run.config) for run in runs]
    differ = [name for name in flat[0] if len({str(settings[name]) for settings in flat}) > 1]
    header = ["run", *(name.replace("_", " ") for name in differ), "state"]
    body = [
        [run.name, *(word(settings[name]) for name in differ), run.state]
        for run, settings in zip(runs, flat, strict=True)
    ]
    each = "".join(folded(run.name, _run(run)) for run in runs[:_MOST_DETAILS])
    if len(runs) > _MOST_DETAILS:
        each += f'<p class="hint">and {len(runs) - _MOST_DETAILS} more.</p>'
    listing = f'<div class="tall">{table([header, *body], "Runs and what differs between them")}</div>'
    title = f"{len(runs)} runs: what differs between them, and when they ended"
    return _facts(facts) + folded(title, listing) + folded("All details of each run", each)


def _run(run: Run) -> str:
    changed = changed_fields(run.config)
    first = {"run": run.name, "state": run.state, "device": run.versions.get("device", "–")}
    changes = f"<h4>Settings that differ from the default</h4>{listed(changed)}"
    changes = changes if changed else "<p>Every setting has its default value.</p>"
    return listed(first) + changes + folded("All settings", _sections(to_dict(run.config))) + _versions(run.versions)


def _versions(versions: Mapping[str, Any]) -> str:
    return folded("Versions", listed(versions) if versions else "")


def _sections(settings: Any) -> str:
    """Return settings by section, without those that belong to none."""
    return "".join(f"<h4>{html.escape(name)}</h4>{listed(fields)}" for name, fields in sections_of(settings).items())


def _sweep(sweep: Sweep) -> str:
    asked = {
        name.replace("_", " "): sweep.asked[name] for name in _ASKED if sweep.asked.get(name) not in (None, [], "")
    }
    starts = sweep.asked.get("starts")
    starts = [start for start in starts if isinstance(start, dict)] if isinstance(starts, list) else []
    last = starts[-1] if starts else {}
    facts = {
        "sweep": asked.pop("name", "–"),
        "finished runs": f"{len(sweep.rows):,}" + (f", {sweep.missing:,} missing" if sweep.missing else ""),
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
    started = "".join(f"<h4>start {number}</h4>{listed(start)}" for number, start in enumerate(starts, start=1))
    return (
        title
        + _facts(facts)
        + folded("Requested sweep", listed(asked))
        + folded("Settings that all runs share, before the sweep changes them", _sections(sweep.asked.get("config")))
        + folded("Versions at every start", started)
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
    said = '<p class="hint">Its settings are listed under Cars.</p>'
    return title + _facts(facts) + said + _versions(car.versions)


def _unfinished(items: Sequence[Unfinished]) -> str:
    """Return why they are incomplete, one line each, and the settings of each; their curves stand below the scores."""
    lines = [
        f"<b>{html.escape(item.name)}</b> ({item.kind}, {_progress(item)}): {html.escape(item.why)}" for item in items
    ]
    each = "".join(
        folded(item.name, _sections(item.settings) + (listed(item.versions) if item.versions else ""))
        for item in items[:_MOST_DETAILS]
    )
    title = f"<h3>{len(items)} incomplete</h3>"
    return f'{title}<ul class="reasons">{_first(lines)}</ul>' + folded("Settings of incomplete runs", each)


def _progress(item: Unfinished) -> str:
    """Return how many steps have been trained."""
    steps = item.settings.get("train", {}).get("steps")
    last = max((history[-1]["step"] for history in item.histories.values()), default=0)
    return f"{last:,} of {steps:,} steps" if isinstance(steps, int) else f"{last:,} steps"
