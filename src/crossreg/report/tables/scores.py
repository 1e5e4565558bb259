"""Scores of single runs as text, and scores by test time as cells for text and pages."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crossreg.report.tables.layout import aligned

_OF_THE_FIELDS = "{:.4f}"
_COLUMNS = (
    ("test NLL", "test", "nll", "{:.3f}"),
    ("test ECE", "test", "ece_mix", "{:.3f}"),
    ("test CRPS", "test", "crps", _OF_THE_FIELDS),
    ("test RMSE", "test", "rmse", _OF_THE_FIELDS),
    ("Std_ω[μ]", "test", "std_mu", _OF_THE_FIELDS),
    ("mean std", "test", "std", _OF_THE_FIELDS),
    ("Spearman", "test", "spearman", "{:.2f}"),
    ("reg NLL", "reg", "nll", "{:.3f}"),
    ("reg ECE", "reg", "ece_mix", "{:.3f}"),
)


def _cell(value: float | None, form: str) -> str:
    if value is None:
        return "–"
    # In units of your data, a number may be of any size.
    if form == _OF_THE_FIELDS and value and not 1e-3 <= abs(value) < 1e3:
        form = "{:.3g}"
    return form.format(value)


def scores_table(methods: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table with one row per method.

    Args:
        methods: Method → split → scores; None for a split that was not held out.
    """
    header = ["", *(title for title, *_ in _COLUMNS)]
    rows = [
        [name, *(_cell((scores[split] or {}).get(key), form) for _, split, key, form in _COLUMNS)]
        for name, scores in methods.items()
    ]
    width = max((len(name) for name in methods), default=0)
    head, *body = aligned([[name.ljust(width), *row] for name, *row in [header, *rows]]).split("\n")
    return "\n".join([head, "-" * len(head), *body])


def decomposition_table(scores: Mapping[str, Any]) -> str:
    r"""Return a table of residuals and of the uncertainty and its parts on each split, root mean squares.

    Where all generalization noise is at the head, a last line has the fixed point of the objectives:
    $U_{pred} = (r_{reg}^2 + r_{train}^2)/2$, $U_{gen} = (r_{reg}^2 - r_{train}^2)/2$.
    """
    lines = [f"{'':7}{'RMSE':>8}{'√U_pred':>9}{'√U_gen':>9}{'√U_tot':>9}"]
    for split in ("train", "reg", "test"):
        if scores[split] is not None:
            rmse, pred, gen = (scores[split][name] for name in ("rmse", "rms_predictive", "rms_generalization"))
            total = None if pred is None or gen is None else math.hypot(pred, gen)
            lines.append(f"{split:7}" + "".join(f"{_cell(v, _OF_THE_FIELDS):>9}" for v in (rmse, pred, gen, total))[1:])
    train, reg = scores["train"], scores["reg"]
    if reg and reg["rms_generalization"] and not reg["std_mu"] and train["rmse"] < reg["rmse"]:
        pred, gen = (math.sqrt((reg["rmse"] ** 2 + sign * train["rmse"] ** 2) / 2) for sign in (1, -1))
        parts = "".join(f"{_cell(part, _OF_THE_FIELDS):>9}" for part in (pred, gen))
        lines.append(f"{'settled':15}{parts}   where these residuals take Gaussian errors of one size")
    return "\n".join(lines)


def channel_table(scores: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return a table of the test scores of each channel in its own units, "" for fields with a single channel."""
    test = scores["test"] or {}
    count = len(test.get("channel_nll", ()))
    if not count:
        return ""
    kinds = {"nll": "{:.3f}", "crps": _OF_THE_FIELDS, "rmse": _OF_THE_FIELDS, "std": _OF_THE_FIELDS}
    names = names if len(names) == count else [f"channel {i}" for i in range(count)]
    width = max(len("test"), *map(len, names))
    lines = ["test".ljust(width) + "".join(f"{title:>10}" for title in ("NLL", "CRPS", "RMSE", "mean std"))]
    for i, name in enumerate(names):
        lines.append(
            name.ljust(width) + "".join(f"{_cell(test[f'channel_{k}'][i], form):>10}" for k, form in kinds.items())
        )
    return "\n".join(lines)


def times_cells(times: Mapping[str, Any]) -> list[list[str]]:
    """Return a table of test scores within the times of train and beyond them, empty where all times are beyond.

    Args:
        times: Scores by time, as `metrics.test_times.scores_by_time` returns them.
    """
    trained, tested = times["trained"], times["tested"]
    spans = {"within": (1, trained), "beyond": (trained + 1, tested)}
    columns = [column for column in _COLUMNS if column[1] == "test" and column[2] not in ("std_mu", "spearman")]
    body = [
        [
            f"{first}–{last}" if first < last else f"{first}",
            f"{scores['pairs']:,.0f}",
            *(_cell(scores.get(key), form) for _, _, key, form in columns),
        ]
        for name, (first, last) in spans.items()
        if (scores := times[name]) is not None
    ]
    head = ["test steps", "pairs", *(title.removeprefix("test ") for title, *_ in columns)]
    return [head, *body] if body else []


def mean_times(many: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means of scores by time over runs of one kind; a part that no run has is None."""
    mean: dict[str, Any] = {name: many[0][name] for name in ("trained", "tested")} | {"within": None, "beyond": None}
    for part in ("within", "beyond"):
        scores = [times[part] for times in many if times[part] is not None]
        if scores:
            names = {"pairs", *(key for _, split, key, _ in _COLUMNS if split == "test")}
            values = {name: [own[name] for own in scores if own.get(name) is not None] for name in names}
            mean[part] = {name: sum(own) / len(own) for name, own in values.items() if own}
    return mean


def times_sentence(times: Mapping[str, Any]) -> str:
    """Say in a sentence what the times of test mean for its scores."""
    if not times["trained"]:
        return "Test lies after train in time (split by time): its scores are those of times not learned from."
    return (
        f"Train and reg have {times['trained']:,} steps of each trajectory, test has {times['tested']:,}: where the"
        " system changes with time, the later steps are unlike anything that was learned from."
    )


def times_sentences(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the sentences about the test times of rows, each once; none where test has the times of train."""
    found = (row.get("test_times") for row in rows)
    return list(dict.fromkeys(times_sentence(t) for t in found if isinstance(t, Mapping) and _has_steps(t)))


def _has_steps(times: Mapping[str, Any]) -> bool:
    """Return whether scores by time, read from a file, have their numbers of steps."""
    return all(type(times.get(name)) is int for name in ("trained", "tested"))


def times_text(times: Mapping[str, Any]) -> str:
    """Return the table of scores by time and its sentence as text."""
    rows = times_cells(times)
    return "\n".join([*([aligned(rows)] if rows else []), times_sentence(times)])


def sigma_lines(sigma: Mapping[str, list[float]]) -> str:
    """Return σ of each site, one line per site."""
    width = max((len(name) for name in sigma), default=0)
    return "\n".join(f"σ {name.ljust(width)}  {' '.join(f'{s:.3g}' for s in values)}" for name, values in sigma.items())
