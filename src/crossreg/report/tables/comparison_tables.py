"""A comparison as text, Markdown and LaTeX, the paper's numbers beside ours."""

from collections.abc import Sequence
from typing import NamedTuple

from crossreg.designs import paper
from crossreg.report.tables.comparison import (
    JUDGED,
    SCORES,
    TITLES,
    Line,
    clearly_best,
    decomposed,
    fair_group,
    regimes,
    setting_of,
    signed,
    varying,
    with_interval,
)
from crossreg.report.tables.verdicts import against_default, duels

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


def paper_of(line: Line) -> tuple[float, float, float] | None:
    """The paper's test NLL, test ECE and reg ECE of a line that was trained with the paper's settings, else None."""
    columns = ("observed_fraction", "train_size", "reg_size", "steps", "log_sigma_pred_start")
    set_otherwise = {name: value for name, value in line.regime.items() if name not in columns} | line.shared
    start, steps = line.regime.get("log_sigma_pred_start"), line.regime["steps"]
    if set_otherwise != paper.TRAINING or start not in paper.LOG_SIGMA_PRED_STARTS or steps not in paper.STEPS:
        return None
    regime = paper.PAPER.get((line.regime["observed_fraction"], line.split[0]), {})
    return regime.get(paper.METHODS.get(line.method, ""))


class Cell(NamedTuple):
    """The text of a cell and whether it is the clear winner of its regime."""

    text: str
    bold: bool = False


def cells(lines: Sequence[Line]) -> tuple[list[str], list[list[Cell]]]:
    """Header and body of the printed table."""
    fields = varying(lines)
    has_paper = any(paper_of(line) for line in lines)
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
                theirs = paper_of(line)
                row += [Cell(signed(theirs[0], 2)), Cell(signed(theirs[1], 3))] if theirs else [Cell("–"), Cell("–")]
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
    if not all(r in paper.PAPER for r in regime) or any("total" in line.regime for line in lines):
        return [("", list(lines))]
    parts: dict[str, list[Line]] = {}
    for line, (_, size) in zip(lines, regime, strict=True):
        parts.setdefault(titles[size == 50], []).append(line)
    return list(parts.items())


def lines_in_order(lines: Sequence[Line]) -> list[Line]:
    """Lines as the tables have them, regime by regime."""
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
    for line, row in zip(lines_in_order(lines), rows, strict=True):
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
    for line, row in zip(lines_in_order(lines), body, strict=True):
        if previous is not None and line.regime != previous:
            out.append(r"\midrule")
        previous = line.regime
        out.append(" & ".join(rf"\textbf{{{tex(c.text)}}}" if c.bold else tex(c.text) for c in row) + r" \\")
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}"])


def duel_cells(lines: Sequence[Line]) -> list[list[str]]:
    """Header and body of the table that counts regimes: XReg better / level / worse. Empty where it has no baseline."""
    counted = duels(lines)
    if not counted:
        return []
    header = ["xreg better / level / worse than", *(TITLES[score] for score in JUDGED)]
    return [header, *([baseline, *(" / ".join(map(str, by[s])) for s in JUDGED)] for baseline, by in counted.items())]


def duels_as_text(lines: Sequence[Line]) -> str:
    """Aligned columns for a terminal."""
    return aligned(duel_cells(lines))


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
    return aligned(rows)


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


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Cells in columns, for a terminal."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return "\n".join("  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in rows)
