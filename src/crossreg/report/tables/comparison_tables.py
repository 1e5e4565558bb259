"""The tables of a comparison: scores (also as text, Markdown and LaTeX), counts, settings, residuals."""

from collections.abc import Iterable, Sequence

from crossreg.designs import paper
from crossreg.report.tables.comparison import (
    DECOMPOSITION,
    JUDGED,
    SCORES,
    TITLES,
    Line,
    clearly_best,
    decomposed,
    fair_group,
    in_sample,
    regimes,
    setting_of,
    signed,
    varying,
    with_interval,
)
from crossreg.report.tables.layout import IN_SAMPLE, Cell, Row, aligned, piped
from crossreg.report.tables.verdicts import against_default, duels

# Scores of the table of scores; the CSV file has all.
SHOWN = ("test_nll", "test_ece_mix", "reg_ece_mix", "test_crps", "test_rmse", "test_std_mu")
# Columns that are left out where a terminal is too narrow, in this order; the files have all of them.
_FIRST_TO_GO = ("reg ECE", "test RMSE", "test CRPS", "Std_ω[μ]", "paper ECE", "paper NLL", "diverged")


def paper_of(line: Line) -> tuple[float, float, float] | None:
    """Return the paper's test NLL, test ECE and reg ECE for a line with the paper's settings, else None."""
    columns = ("observed_fraction", "train_size", "reg_size", "steps", "log_sigma_pred_start")
    set_otherwise = {name: value for name, value in line.regime.items() if name not in columns} | line.shared
    start, steps = line.regime.get("log_sigma_pred_start"), line.regime["steps"]
    if set_otherwise != paper.TRAINING or start not in paper.LOG_SIGMA_PRED_STARTS or steps not in paper.STEPS:
        return None
    regime = paper.PAPER.get((line.regime["observed_fraction"], line.split[0]), {})
    return regime.get(paper.METHODS.get(line.method, ""))


def cells(lines: Sequence[Line]) -> tuple[list[str], list[list[Cell]]]:
    """Return the header and the body of the table of scores. Winners are bold; in-sample scores have a dagger."""
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
        winners = {score: clearly_best(compared, score) for score in JUDGED}
        for line in group:
            row = [Cell(str(line.regime.get(f, ""))) for f in fields]
            row += [Cell("{} + {}".format(*line.split))] if divided else []
            row += [Cell(setting_of(line.regime) or "default")] if changed else []
            row += [Cell(line.method), Cell(str(line.seeds)), Cell(str(line.diverged))]
            row += [_score_cell(line, score, bold=winners.get(score) is line) for score in shown]
            if has_paper:
                theirs = paper_of(line)
                row += [Cell(signed(theirs[0], 2)), Cell(signed(theirs[1], 3))] if theirs else [Cell("–"), Cell("–")]
            body.append(row)
    return header, body


def _score_cell(line: Line, score: str, *, bold: bool = False) -> Cell:
    interval = line.interval(score)
    mark = IN_SAMPLE if interval is not None and in_sample(line, score) else ""
    return Cell(with_interval(interval, SCORES[score][2]) + mark, bold)


def in_sample_note(rows: Iterable[Row]) -> str:
    """Return the line below a table that explains its daggers; empty where it has none."""
    if not any(cell.text.endswith(IN_SAMPLE) for row in rows for cell in row if isinstance(cell, Cell)):
        return ""
    return f"{IN_SAMPLE} In-sample: the method was trained, chosen or calibrated on these trajectories. Not compared."


def common_setting(lines: Sequence[Line]) -> str:
    """Return in words the settings that all lines share, for which a table needs no column; empty where they differ."""
    settings = {setting_of(line.regime) for line in lines}
    return f"All with {settings.pop()}." if len(settings) == 1 and "" not in settings else ""


def sections(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    """Return titles and lines: the paper's two tables where all regimes are the paper's, else one without a title."""
    titles = {True: "Observed fraction, 50 trajectories", False: "Training trajectories, 0.7 observed"}
    regime = [(line.regime["observed_fraction"], line.split[0]) for line in lines]
    if not all(r in paper.PAPER for r in regime) or any("total" in line.regime for line in lines):
        return [("", list(lines))]
    parts: dict[str, list[Line]] = {}
    for line, (_, size) in zip(lines, regime, strict=True):
        parts.setdefault(titles[size == 50], []).append(line)
    return list(parts.items())


def lines_in_order(lines: Sequence[Line]) -> list[Line]:
    """Return the lines regime by regime, as in the tables."""
    return [line for group in regimes(lines) for line in group]


def as_text(lines: Sequence[Line], width: int | None = None) -> str:
    """Return the table of scores for a terminal.

    Args:
        lines: The lines of the table.
        width: Columns of the terminal. Where they do not suffice, the least important scores are left out.
    """
    header, body = cells(lines)
    needed = {"diverged"} if any(line.diverged for line in lines) else set()
    for title in (title for title in _FIRST_TO_GO if title not in needed):
        texts = [header, *([cell.text for cell in row] for row in body)]
        if width is None or sum(3 + max(map(len, column)) for column in zip(*texts, strict=True)) <= width:
            break
        if title in header:
            at = header.index(title)
            header, body = header[:at] + header[at + 1 :], [row[:at] + row[at + 1 :] for row in body]
    head, *rest = aligned([header, *body]).split("\n")
    out = [head, *_between_regimes(lines, rest, "")]
    return "\n".join([*out, *([note] if (note := in_sample_note(body)) else [])])


def _between_regimes(lines: Sequence[Line], rows: Sequence[str], separator: str) -> list[str]:
    """Return one row for each line of `lines_in_order`, with a separator wherever the regime changes."""
    out: list[str] = []
    previous = None
    for line, row in zip(lines_in_order(lines), rows, strict=True):
        out += [separator] if previous not in (None, line.regime) else []
        out.append(row)
        previous = line.regime
    return out


def as_markdown(lines: Sequence[Line]) -> str:
    """Return the table of scores in Markdown; a clear winner is bold."""
    header, body = cells(lines)
    note = in_sample_note(body)
    return piped([header, *body]) + (f"\n\n{note}" if note else "")


def as_latex(lines: Sequence[Line]) -> str:
    """Return the table of scores as a booktabs tabular; a clear winner is bold."""
    header, body = cells(lines)

    def tex(text: str) -> str:
        replaced = {
            "±": r"$\pm$",
            "−": "$-$",
            "Std_ω[μ]": r"Std$_\omega[\mu]$",
            "–": "--",
            "%": r"\%",
            IN_SAMPLE: r"$^\dagger$",
        }
        for old, new in replaced.items():
            text = text.replace(old, new)
        return text.replace("_", r"\_") if "$" not in text else text

    out = [r"\begin{tabular}{" + "l" * len(header) + "}", r"\toprule"]
    out += [" & ".join(tex(h) for h in header) + r" \\", r"\midrule"]
    rows = [" & ".join(rf"\textbf{{{tex(c.text)}}}" if c.bold else tex(c.text) for c in row) + r" \\" for row in body]
    out += [*_between_regimes(lines, rows, r"\midrule"), r"\bottomrule"]
    if note := in_sample_note(body):
        out.append(rf"\multicolumn{{{len(header)}}}{{l}}{{\footnotesize {tex(note)}}}")
    return "\n".join([*out, r"\end{tabular}"])


def duel_cells(lines: Sequence[Line]) -> list[list[str]]:
    """Return the table that counts regimes: XReg better / level / worse. Empty where there is nothing to count."""
    counted = duels(lines)
    if not counted:
        return []
    header = ["xreg better / level / worse than", *(TITLES[score] for score in JUDGED)]
    return [header, *([baseline, *(" / ".join(map(str, by[s])) for s in JUDGED)] for baseline, by in counted.items())]


def settings_cells(lines: Sequence[Line]) -> list[list[Cell]]:
    """Return the table of differences from `base_setting`, bold beyond the 95% interval. Empty without settings."""
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


def decomposition_cells(lines: Sequence[Line]) -> list[Row]:
    """Return the table of residuals, √U_pred and √U_gen, root mean squares on each split. Empty without heads alone."""
    shown = [line for line in decomposed(lines) if line.values("train_rmse")]
    if not shown:
        return []
    fields = varying(shown)
    header = [*(TITLES.get(f, f) for f in fields), "method", *(TITLES[score] for score in DECOMPOSITION)]
    body = [
        [
            *(Cell(str(line.regime.get(f, ""))) for f in fields),
            Cell(line.method),
            *(_score_cell(line, score) for score in DECOMPOSITION),
        ]
        for line in shown
    ]
    return [header, *body]
