"""Runs as the curves of the page: all seeds of a method in a regime are one line of every figure.

Means are over seeds whose training has not diverged; intervals are those of the tables
(`report/tables/comparison.py`). Numbers are passed on unrounded.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from crossreg.metrics.intervals import Interval
from crossreg.progress.history import known_lines, mean_log, number
from crossreg.report.looks import looks_of
from crossreg.report.page.files import History
from crossreg.report.page.folders import Car, Sweep
from crossreg.report.page.rows import Row
from crossreg.report.page.unfinished import Unfinished
from crossreg.report.tables.comparison import Line, collect, leads_of, mean_at, regime_of, regimes, setting_of, varying
from crossreg.report.tables.curves import curve_groups, fixed_part

SPLITS = ("test", "reg", "train")
_LOSSES = ("train_loss", "reg_nll", "reg_ece", "reg_std_mu")
_FIELDS = {
    "observed_fraction": "observed fraction",
    "train_size": "training trajectories",
    "total": "trajectories in all",
}
_SCORES = {"test_nll": "test NLL", "test_ece_mix": "test ECE", "test_std_mu": "mean Std_ω[μ] on test"}
_FORECASTS = {
    "spread_skill": "spread over skill of forecasts",
    "ece_mix": "ECE of forecasts",
    "crps": "CRPS of forecasts",
}
_MOST_STEPS = 100  # of a history: a curve is a few hundred pixels wide


class Group(NamedTuple):
    """Rows that are compared, and their lines: all single runs, or the rows of one `sweep`."""

    name: str
    rows: list[Row]
    histories: dict[str, History]
    lines: list[Line]
    by_line: dict[str, list[Row]]
    sweep: Sweep | None = None

    def rows_of(self, line: Line) -> list[Row]:
        """Return the rows of a line, including diverged ones."""
        return self.by_line[_place(line.regime, line.method, line.split)]


def _place(regime: Mapping[str, Any], method: str, split: tuple[int, int]) -> str:
    # `collect` leaves out a size of reg that all share; the split has it in any case.
    return str((method, split, sorted(((k, v) for k, v in regime.items() if k != "reg_size"), key=str)))


def make_group(name: str, rows: Sequence[Row], histories: Mapping[str, History], sweep: Sweep | None = None) -> Group:
    """Group rows into lines, in the order of the tables."""
    by_line: dict[str, list[Row]] = {}
    for row in rows:
        by_line.setdefault(_place(regime_of(row), row["method"], (row["train_size"], row["reg_size"])), []).append(row)
    return Group(name, list(rows), dict(histories), collect(rows), by_line, sweep)


def regime_label(line: Line, lines: Sequence[Line]) -> str:
    """Return a regime in words, without the settings that all lines share: these stand once, below the table."""
    regime = line.regime
    size = f"{regime['total']} trajectories in all" if "total" in regime else f"{line.split[0]} trajectories"
    parts = [f"{regime['observed_fraction']:g} observed", size]
    parts += [f"{regime['steps']:,} steps"] if "steps" in varying(lines) else []
    setting = setting_of(regime)
    common = all(setting_of(other.regime) == setting for other in lines)
    return ", ".join([*parts, *([setting] if setting and not common else [])])


def method_label(line: Line, group: Sequence[Line]) -> str:
    """Return the name of a method, and how it splits the data if the group has it with several splits."""
    several = sum(other.method == line.method for other in group) > 1
    return f"{line.method}, {line.split[0]} + {line.split[1]}" if several else line.method


def described(group: Group) -> dict[str, Any]:
    """Return the regimes of a group, and curves over the settings that vary between them, for the page's script."""
    found = []
    for part in regimes(group.lines):
        lines = []
        for line in part:
            good = [row for row in group.rows_of(line) if not row["diverged"]]
            histories = [group.histories.get(row["key"], []) for row in good]
            coverage = {split: _mean_coverage(good, split) for split in SPLITS}
            ece = {split: _mean_score(good, split) for split in SPLITS}
            lines.append(_line(method_label(line, part), histories, coverage, ece) | {"seeds": len(good)})
        found.append({"label": regime_label(part[0], group.lines), "lines": lines})
    return _with_looks({"name": group.name, "regimes": found, "curves": curves(group.lines)})


def _line(
    label: str, histories: Sequence[History], coverage: Mapping[str, Any], ece: Mapping[str, Any]
) -> dict[str, Any]:
    known = [history for history in histories if history]
    history = mean_history(known) if known else None
    return {"label": label, "seeds": 1, "coverage": coverage, "ece": ece, "history": history}


def _with_looks(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group with the look of every label, the same in all figures and in those of `crossreg figures`."""
    labels = [line["label"] for regime in group["regimes"] for line in regime["lines"]]
    labels += [series["label"] for curve in group["curves"] for series in curve["series"]]
    return group | {"looks": looks_of(dict.fromkeys(labels))}


def described_unfinished(items: Sequence[Unfinished]) -> dict[str, Any] | None:
    """Return the curves so far of incomplete ones: all runs together, each sweep and car experiment on its own."""
    found: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        place = "incomplete runs" if item.kind == "run" else f"{item.kind} {item.name}, so far"
        for label, history in item.histories.items():
            found.setdefault(place, []).append(_line(label, [history], {}, {}))
    regimes = [{"label": place, "lines": lines} for place, lines in found.items()]
    return _with_looks({"name": "incomplete", "regimes": regimes, "curves": []}) if regimes else None


def described_car(car: Car) -> dict[str, Any]:
    """Return a car experiment for the page's script: coverage on the test cars, and the curves of the first seed."""
    lines = []
    for method in car.run.methods:
        covered, ece = car.run.coverage(method), car.run.score(method, "ece_mix")
        coverage = {"test": None if covered is None or not np.isfinite(covered).all() else covered.tolist()}
        history = known_lines(car.run.histories.get(method, []))
        lines.append(_line(method, [history], coverage, {"test": None if ece is None else number(ece.mean)}))
    regime = {"label": "test cars", "trained": "first seed", "lines": lines}
    return _with_looks({"name": car.name, "regimes": [regime], "curves": []})


def _mean_coverage(rows: Sequence[Row], split: str) -> list[float] | None:
    known = [row[split]["coverage"] for row in rows if row[split] and row[split]["coverage"]]
    return np.mean(known, axis=0).tolist() if known else None


def _mean_score(rows: Sequence[Row], split: str) -> float | None:
    known = [v for row in rows if row[split] and (v := row[split].get("ece_mix")) is not None]
    return float(np.mean(known)) if known else None


def mean_history(histories: Sequence[History]) -> dict[str, Any]:
    """Return losses and the geometric mean of each site's σ over the steps, as means over the seeds that have a step.

    Long histories are thinned evenly; the first and the last step are kept.
    """
    by_step: dict[int, list[dict[str, Any]]] = {}
    for history in histories:
        for line in history:
            by_step.setdefault(line["step"], []).append(line)
    steps = sorted(by_step)
    places = np.linspace(0, len(steps) - 1, min(len(steps), _MOST_STEPS)).round().astype(int)
    steps = [steps[place] for place in places]
    sites = dict.fromkeys(site for step in steps for line in by_step[step] for site in line["sigma"])

    def over_steps(value) -> list[float | None]:
        known = ([v for line in by_step[step] if (v := value(line)) is not None] for step in steps)
        return [math.fsum(values) / len(values) if values else None for values in known]

    logs = {site: over_steps(lambda line, site=site: mean_log([line["sigma"].get(site)])) for site in sites}
    return {
        "step": steps,
        **{name: over_steps(lambda line, name=name: line[name]) for name in _LOSSES},
        "sigma": {site: [None if v is None else math.exp(v) for v in values] for site, values in logs.items()},
    }


def curves(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return scores against the observed fraction and the numbers of trajectories, where these vary."""
    found = []
    for field, title in _FIELDS.items():
        for part in curve_groups(lines, field):
            for score, name in _SCORES.items():
                # The paper draws the spread against what is hidden.
                hidden = score == "test_std_mu" and field == "observed_fraction"
                if series := _series(part, field, score, hidden):
                    x_title = "hidden fraction" if hidden else title
                    found.append(
                        {"x": x_title, "y": name, "where": fixed_part(part[0], field, lines), "series": series}
                    )
    return found + forecast_curves(lines)


def forecast_curves(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the scores of forecasts against the lead, for each regime that has them."""
    found = []
    for part in regimes([line for line in lines if leads_of([line])]):
        for score, title in _FORECASTS.items():
            series = []
            for line in part:
                known = {lead: mean_at(line, score, lead) for lead in leads_of([line])}
                there = [(lead, interval) for lead, interval in known.items() if interval is not None]
                series += [_drawn(method_label(line, part), there)] if there else []
            where = regime_label(part[0], lines)
            found += [{"x": "lead time in steps", "y": title, "where": where, "series": series}] if series else []
    return found


def _drawn(label: str, known: Sequence[tuple[float | int, Interval]]) -> dict[str, Any]:
    """Return a curve of intervals."""
    half = [None if math.isnan(interval.half) else interval.half for _, interval in known]
    return {"label": label, "x": [x for x, _ in known], "y": [interval.mean for _, interval in known], "half": half}


def _series(part: Sequence[Line], field: str, score: str, hidden: bool) -> list[dict[str, Any]]:
    """Return one curve for each method that has the score; a spread that is 0 everywhere is left out."""
    found = []
    for method in dict.fromkeys(line.method for line in part):
        own = sorted((line for line in part if line.method == method), key=lambda line: line.regime[field])
        known = [(line.regime[field], interval) for line in own if (interval := line.interval(score))]
        if not known or (score == "test_std_mu" and not any(interval.mean for _, interval in known)):
            continue
        found.append(_drawn(method, [(round(1 - at, 12) if hidden else at, interval) for at, interval in known]))
    return found
