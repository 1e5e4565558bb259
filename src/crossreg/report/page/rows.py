"""Runs as rows of a sweep, so that both are compared by the same code. Scores may be anything in a file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crossreg.config import Config, changed_fields
from crossreg.methods.names import UNTRAINED, parse_method
from crossreg.metrics.calibration import LEVELS
from crossreg.progress.history import number, whole
from crossreg.report.page.files import History
from crossreg.report.shared.stored import OWN_SETTINGS, method_of
from crossreg.report.tables.comparison import LEAD_SCORES, regime_of
from crossreg.runs.kinds import sections_of
from crossreg.studies.sweep.scoring import COLUMNS

_IDLE = ("evaluate_every", "engine", "evaluation_samples", "rollout_steps")  # they change no training

Row = dict[str, Any]


def row_of_run(name: str, config: Config, metrics: Mapping[str, Any], history: History) -> Row:
    """Return the row that a sweep would have written for a run."""
    method = method_of(config)
    usual = Config() if method == OWN_SETTINGS else parse_method(method).configs(Config())[0]
    own = changed_fields(usual)
    changes = {k: v for k, v in changed_fields(config).items() if own.get(k) != v and k not in (*COLUMNS, *_IDLE)}
    data = config.data
    return scored_row(
        {
            "key": name,
            "method": method,
            "seed": config.train.seed,
            "steps": config.train.steps,
            "changes": {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()},
            "diverged": any(line["diverged_at"] >= 0 for line in history[-1:]),
            **{k: getattr(data, k) for k in ("scenario", "observed_fraction", "train_size", "reg_size")},
            **{k: metrics.get(k) for k in ("test", "reg", "train", "sigma", "test_times", "rollouts")},
        }
    )


def scored_row(row: Row) -> Row:
    """Return a row whose scores are finite numbers or None."""

    def scores(values: Any) -> dict[str, Any] | None:
        if not isinstance(values, dict):
            return None
        kept: dict[str, Any] = {k: number(v) for k, v in values.items() if k != "coverage"}
        covered = values.get("coverage")
        covered = [number(v) for v in covered] if isinstance(covered, list) else []
        fits = len(covered) == len(LEVELS) and None not in covered
        return kept | {"coverage": covered if fits else None}

    if any(number(row[name]) is None for name in COLUMNS[1:]):
        raise ValueError("a row without its regime")
    sigma = sections_of(row).get("sigma", {})
    return row | {
        "method": str(row["method"]),
        "diverged": bool(row["diverged"]),
        "sigma": {str(site): [number(v) for v in values] for site, values in sigma.items() if isinstance(values, list)},
        **{split: scores(row.get(split)) for split in ("test", "reg", "train")},
        "test_times": _times(row.get("test_times"), scores),
        "rollouts": _forecasts(row.get("rollouts")),
    }


def _forecasts(found: Any) -> dict[str, list[Any]] | None:
    """Return the scores of forecasts by lead, as numbers; None where there are none."""
    leads = [whole(lead) for lead in found["leads"]] if isinstance(found, dict) and "leads" in found else []
    if not leads or None in leads:
        return None
    kept: dict[str, list[Any]] = {"leads": leads}
    for name in LEAD_SCORES:
        values = found.get(name)
        if isinstance(values, list) and len(values) == len(leads):
            kept[name] = [number(value) for value in values]
    return kept


def _times(times: Any, scores: Callable[[Any], dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the test scores by time, as numbers; None where there are none."""
    counts = {name: whole(times.get(name)) for name in ("trained", "tested")} if isinstance(times, dict) else {}
    if not counts or None in counts.values():
        return None
    parts = {name: scores(times.get(name)) for name in ("within", "beyond")}
    return counts | {name: part if part and part.get("pairs") is not None else None for name, part in parts.items()}


def reference_rows(name: str, summary: Mapping[str, Any], row: Row) -> list[Row]:
    """Return rows of methods without training, from the summary of a quickstart, in the regime of one of its runs."""
    if not {"methods", "references"} <= summary.keys():
        return []
    scored = sections_of(summary["methods"]) | sections_of(summary["references"])
    place = Path(name).as_posix()
    return [
        scored_row(
            row
            | {"key": f"{place}: {method}", "method": method, "diverged": False, "sigma": {}, "test_times": None}
            | metrics
        )
        for method, metrics in scored.items()
        if method in UNTRAINED and isinstance(metrics.get("test"), dict)
    ]


def distinct(rows: list[Row]) -> list[Row]:
    """Return rows of which no two have the same method, regime and seed: of equal ones, later ones add their key."""
    seen: set[str] = set()
    kept = []
    for row in rows:
        mask = row.get("changes", {}).get("mask_seed")
        place = str((sorted(regime_of(row).items(), key=str), row["method"], row["seed"], mask, row["reg_size"]))
        kept.append(row | {"method": f"{row['method']} ({row['key']})"} if place in seen else row)
        seen.add(place)
    return kept
