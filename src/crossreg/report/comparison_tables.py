"""A comparison as text, Markdown, LaTeX and CSV, the paper's numbers beside ours."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.report.comparison import (
    JUDGED,
    SCORES,
    TITLES,
    Line,
    against_default,
    base_setting,
    clearly_best,
    collect,
    decomposed,
    duels,
    fair_group,
    regimes,
    setting_of,
    shared_settings,
    signed,
    varying,
    verdicts,
    with_interval,
)
from crossreg.report.paper import PAPER

# What the printed tables show; the CSV has all.
SHOWN = ("test_nll", "test_ece_mix", "reg_ece_mix", "test_crps", "test_rmse", "test_std_mu")
# Residuals, and what the two parts of the uncertainty make of them, on each split.
# Columns that a narrow terminal does without, in this order; the files have all of them.
_FIRST_TO_GO = ("reg ECE", "test RMSE", "test CRPS", "Std_ω[μ]", "paper ECE", "paper NLL", "diverged")
DECOMPOSITION = tuple(
    f"{split}_{score}"
    for split in ("train", "reg", "test")
    for score in ("rmse", "rms_predictive", "rms_generalization")
)


def _paper_of(line: Line) -> tuple[float, float, float] | None:
    if "total" in line.regime or "scenario" in line.regime or setting_of(line.regime):
        return None
    return PAPER.get((line.regime["observed_fraction"], line.split[0]), {}).get(line.method)


class Cell(NamedTuple):
    """The text of a cell and whether it is the clear winner of its regime."""

    text: str
    bold: bool = False


def cells(lines: Sequence[Line]) -> tuple[list[str], list[list[Cell]]]:
    """Header and body of the printed table."""
    fields = varying(lines)
    has_paper = any(_paper_of(line) for line in lines)
    shown = [s for s in SHOWN if any(line.values(s) for line in lines)]
    divided = any("total" in line.regime for line in lines)
    changed = len({setting_of(line.regime) for line in lines}) > 1
    header = [TITLES.get(f, f) for f in fields] + (["train + reg"] if divided else [])
    header += ["setting"] if changed else []
    header += ["method", "seeds", "diverged"] + [TITLES[s] for s in shown]
    header += ["paper NLL", "paper ECE"] if has_paper else []
    body = []
    for group in regimes(lines):
        compared = fair_group(group)
        winners = {score: _identity(clearly_best(compared, score)) for score in JUDGED}
        for line in group:
            row = [Cell(str(line.regime.get(f, ""))) for f in fields]
            row += [Cell("{} + {}".format(*line.split))] if divided else []
            row += [Cell(setting_of(line.regime) or "default")] if changed else []
            row += [Cell(line.method), Cell(str(line.seeds)), Cell(str(line.diverged))]
            for score in shown:
                row.append(
                    Cell(with_interval(line.interval(score), SCORES[score][2]), winners.get(score) == _identity(line))
                )
            if has_paper:
                paper = _paper_of(line)
                row += [Cell(signed(paper[0], 2)), Cell(signed(paper[1], 3))] if paper else [Cell("–"), Cell("–")]
            body.append(row)
    return header, body


def common_setting(lines: Sequence[Line]) -> str:
    """The fields that all lines have changed alike, which no column then repeats; empty where they differ."""
    settings = {setting_of(line.regime) for line in lines}
    return f"All with {settings.pop()}." if len(settings) == 1 and "" not in settings else ""


def _identity(line: Line | None) -> tuple | None:
    return None if line is None else (line.method, line.split)


def sections(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """The paper's two tables where the lines are of its regimes, else one table without a title."""
    titles = {True: "Observed fraction, 50 trajectories", False: "Training trajectories, 0.7 observed"}
    regime = [(line.regime["observed_fraction"], line.split[0]) for line in lines]
    if not all(r in PAPER for r in regime) or any("total" in line.regime for line in lines):
        return [("", list(lines))]
    parts: dict[str, list[Line]] = {}
    for line, (_, size) in zip(lines, regime, strict=True):
        parts.setdefault(titles[size == 50], []).append(line)
    return list(parts.items())


def _in_order(lines: Sequence[Line]) -> list[Line]:
    return [line for group in regimes(lines) for line in group]


def as_text(lines: Sequence[Line], width: int | None = None) -> str:
    """Aligned columns for a terminal, the least needed left out where it is narrow; a clear winner has a star."""
    header, body = cells(lines)
    needed = {"diverged"} if any(line.diverged for line in lines) else set()
    for title in (title for title in _FIRST_TO_GO if title not in needed):
        texts = [header, *([cell.text for cell in row] for row in body)]
        if width is None or sum(3 + max(map(len, column)) for column in zip(*texts, strict=True)) <= width:
            break
        if title in header:
            at = header.index(title)
            header, body = header[:at] + header[at + 1 :], [row[:at] + row[at + 1 :] for row in body]
    rows = [[cell.text + ("*" if cell.bold else " ") for cell in row] for row in body]
    widths = [max(len(row[i]) for row in [[h + " " for h in header], *rows]) for i in range(len(header))]
    out = ["  ".join((h + " ").rjust(w) for h, w in zip(header, widths, strict=True))]
    previous = None
    for line, row in zip(_in_order(lines), rows, strict=True):
        if previous is not None and line.regime != previous:
            out.append("")
        previous = line.regime
        out.append("  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)))
    return "\n".join(out)


def as_markdown(lines: Sequence[Line]) -> str:
    """A pipe table; a clear winner is bold."""
    header, body = cells(lines)
    return _piped([header, *([f"**{c.text}**" if c.bold else c.text for c in row] for row in body)])


def as_latex(lines: Sequence[Line]) -> str:
    """A booktabs tabular; a clear winner is bold."""
    header, body = cells(lines)

    def tex(text: str) -> str:
        replaced = {"±": r"$\pm$", "−": "$-$", "Std_ω[μ]": r"Std$_\omega[\mu]$", "–": "--", "%": r"\%"}
        for old, new in replaced.items():
            text = text.replace(old, new)
        return text.replace("_", r"\_") if "$" not in text else text

    out = [r"\begin{tabular}{" + "l" * len(header) + "}", r"\toprule"]
    out += [" & ".join(tex(h) for h in header) + r" \\", r"\midrule"]
    previous = None
    for line, row in zip(_in_order(lines), body, strict=True):
        if previous is not None and line.regime != previous:
            out.append(r"\midrule")
        previous = line.regime
        out.append(" & ".join(rf"\textbf{{{tex(c.text)}}}" if c.bold else tex(c.text) for c in row) + r" \\")
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}"])


def duel_cells(lines: Sequence[Line]) -> list[list[str]]:
    """Header and body of the table that counts regimes: XReg better / level / worse. Empty where it has no rival."""
    counted = duels(lines)
    if not counted:
        return []
    header = ["xreg better / level / worse than", *(TITLES[score] for score in JUDGED)]
    return [header, *([rival, *(" / ".join(map(str, by[s])) for s in JUDGED)] for rival, by in counted.items())]


def duels_as_text(lines: Sequence[Line]) -> str:
    """Aligned columns for a terminal."""
    return _aligned(duel_cells(lines))


def duels_as_markdown(lines: Sequence[Line]) -> str:
    """A pipe table."""
    return _piped(duel_cells(lines))


def settings_cells(lines: Sequence[Line]) -> list[list[Cell]]:
    """Header and body of the table of differences from the default; bold beyond the 95% interval. May be empty."""
    table = against_default(lines)
    if not table:
        return []
    where = list(dict.fromkeys(regime for by in table.values() for regime in by))
    methods = len({method for _, method in table}) > 1
    header = [Cell("setting")] + ([Cell("method")] if methods else [])
    header += [Cell(f"{regime}: {TITLES[score]}") for regime in where for score in JUDGED[:2]]
    body = []
    for (setting, method), by in table.items():
        row = [Cell(setting or "default")] + ([Cell(method)] if methods else [])
        for regime in where:
            for score in JUDGED[:2]:
                gap = by.get(regime, {}).get(score)
                row.append(Cell(with_interval(gap, SCORES[score][2]), gap is not None and not gap.low <= 0 <= gap.high))
        body.append(row)
    return [header, *body]


def settings_as_text(lines: Sequence[Line]) -> str:
    """Aligned columns for a terminal; a star beyond the interval."""
    rows = [[cell.text + ("*" if cell.bold else " ") for cell in row] for row in settings_cells(lines)]
    return _aligned(rows)


def settings_as_markdown(lines: Sequence[Line]) -> str:
    """A pipe table."""
    return _piped([[f"**{c.text}**" if c.bold else c.text for c in row] for row in settings_cells(lines)])


def decomposition_cells(lines: Sequence[Line]) -> list[list[str]]:
    """Header and body of the table of residuals and of √U_pred and √U_gen, root mean squares. Empty without heads."""
    shown = [line for line in decomposed(lines) if line.values("train_rmse")]
    if not shown:
        return []
    fields = varying(shown)
    header = [*(TITLES.get(f, f) for f in fields), "method", *(TITLES[score] for score in DECOMPOSITION)]
    return [
        header,
        *(
            [
                *(str(line.regime.get(f, "")) for f in fields),
                line.method,
                *(with_interval(line.interval(score), SCORES[score][2]) for score in DECOMPOSITION),
            ]
            for line in shown
        ),
    ]


def decomposition_as_markdown(lines: Sequence[Line]) -> str:
    """A pipe table."""
    return _piped(decomposition_cells(lines))


def _piped(rows: Sequence[Sequence[str]]) -> str:
    text = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*text[:1], *(["|" + "---|" * len(rows[0])] if rows else []), *text[1:]])


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return "\n".join("  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in rows)


def as_csv(lines: Sequence[Line]) -> str:
    """One row per regime and method, every score with the ends of its interval."""
    sizes = ("train_size", "reg_size")
    fields = [f for f in dict.fromkeys(name for line in lines for name in line.regime) if f not in sizes]
    header = [*fields, *sizes, "method", "seeds", "diverged"]
    for score in SCORES:
        header += [score, f"{score}_low", f"{score}_high"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*header, "paper_test_nll", "paper_test_ece_mix", "paper_reg_ece_mix"])
    for line in _in_order(lines):
        row: list[Any] = [*(line.regime.get(f, "") for f in fields), *line.split]
        row += [line.method, line.seeds, line.diverged]
        for score in SCORES:
            interval = line.interval(score)
            ends = ["", "", ""] if interval is None else [interval.mean, interval.low, interval.high]
            row += ["" if isinstance(v, float) and math.isnan(v) else v for v in ends]
        writer.writerow([*row, *(_paper_of(line) or ("", "", ""))])
    return out.getvalue()


def write_tables(rows: Sequence[Mapping[str, Any]], folder: Path, *, missing: int = 0, width: int | None = None) -> str:
    """Writes table.md, table.csv and table.tex into a folder; returns the table for a terminal of some width.

    `missing` runs are not finished, which the tables say.
    """
    if not rows:
        raise InputError(f"{folder}: holds no finished point of a sweep")
    lines = collect(rows)
    said = [*verdicts(lines), *([f"{missing} of {len(rows) + missing} runs are not finished."] if missing else [])]
    steps = " and ".join(f"{n:,}" for n in sorted({line.regime["steps"] for line in lines}))
    masks = any(len({mask for mask, _ in line.by_seed["test_nll"]}) > 1 for line in lines)
    vary = "the training and the mask, not the data" if masks else "the training and not the data or the mask"
    note = (
        f"{steps} steps; ± is the 95% interval over seeds, which vary {vary};"
        " * or bold: best of its regime beyond the interval of the difference"
    )
    said = [shared, *said] if (shared := common_setting(lines)) else said
    said = [f"All with {shared}.", *said] if (shared := shared_settings(rows)) else said
    if 1 < min(line.seeds for line in lines) < 5:
        said = ["With fewer than 5 seeds intervals are wide, and little is decided.", *said]
    parts = sections(lines)
    markdown = "\n\n".join(f"**{title}**\n\n{as_markdown(part)}".removeprefix("****\n\n") for title, part in parts)
    for more in (
        duels_as_markdown(lines),
        settings_as_markdown(lines),
        decomposition_as_markdown(lines),
        "\n".join(f"- {sentence}" for sentence in [note, *said]),
    ):
        markdown += f"\n\n{more}" if more else ""
    markdown += "\n"
    comment = f"% {said[-1]}\n" if missing else ""
    latex = comment + "\n\n".join(f"% {title}\n{as_latex(part)}" for title, part in parts) + "\n"
    for name, text in (("table.md", markdown), ("table.csv", as_csv(lines)), ("table.tex", latex)):
        with replacing(folder / name) as file:
            file.write(text.encode())
    tables = [f"{title}\n{as_text(part, width)}\n".lstrip("\n") for title, part in parts]
    if counted := duels_as_text(lines):
        tables.append(f"Number of regimes, beyond the 95% interval\n{counted}\n")
    if changed := settings_as_text(lines):
        tables.append(f"Difference from {base_setting(lines) or 'the default'}\n{changed}\n")
    if parts_of := _aligned(decomposition_cells(lines)):
        tables.append(f"Residuals and both parts of the uncertainty, root mean squares\n{parts_of}\n")
    return "\n".join([*tables, note, *said])
