"""Write the tables of a sweep: table.md, table.csv, table.tex, and the text for a terminal."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossreg.errors import InputError
from crossreg.files.whole import replacing
from crossreg.report.tables.comparison import SCORES, Line, collect, in_sample, shared_settings
from crossreg.report.tables.comparison_tables import (
    as_latex,
    as_markdown,
    as_text,
    common_setting,
    decomposition_cells,
    duel_cells,
    in_sample_note,
    lines_in_order,
    paper_of,
    sections,
    settings_cells,
)
from crossreg.report.tables.forecasts import lead_cells, leads_csv
from crossreg.report.tables.layout import aligned, in_csv, piped, with_ends
from crossreg.report.tables.scores import times_sentences
from crossreg.report.tables.verdicts import base_setting, verdicts


def as_csv(lines: Sequence[Line]) -> str:
    """Return one row per regime, method and split, with every score and the ends of its interval.

    `reg_in_sample` is yes where the scores on reg are of trajectories that the method was trained, chosen or calibrated
    on.
    """
    sizes = ("train_size", "reg_size")
    fields = [f for f in dict.fromkeys(name for line in lines for name in line.regime) if f not in sizes]
    header = [*fields, *sizes, "method", "seeds", "diverged"]
    for score in SCORES:
        header += [score, f"{score}_low", f"{score}_high"]
    rows: list[list[Any]] = [[*header, "reg_in_sample", "paper_test_nll", "paper_test_ece_mix", "paper_reg_ece_mix"]]
    for line in lines_in_order(lines):
        regime = [line.regime.get(f) for f in fields]
        scores = [v for score in SCORES for v in with_ends(line.interval(score))]
        is_used = "yes" if in_sample(line, "reg_nll") else "no"
        counts = [*line.split, line.method, line.seeds, line.diverged]
        rows.append([*regime, *counts, *scores, is_used, *(paper_of(line) or [None] * 3)])
    return in_csv(rows)


def _sentences(rows: Sequence[Mapping[str, Any]], lines: Sequence[Line], missing: int) -> list[str]:
    """Return what stands below the tables: first how to read them, last what is missing."""
    steps = " and ".join(f"{n:,}" for n in sorted({line.regime["steps"] for line in lines}))
    over = "seeds, which vary the training and not the data or the mask"
    if any(len(line.mask_means("test_nll")) > 1 for line in lines):
        over = "masks (each counts once, by the mean of its seeds), or over seeds where everything is observed"
    few = 1 < min(line.seeds for line in lines) < 5
    shared = shared_settings(rows)
    said = [
        f"{steps} steps. ± is the 95% interval over {over}."
        " * or bold: best of its regime, beyond the 95% interval of the difference.",
        "Fewer than 5 seeds: the intervals are wide, and little is decided." if few else "",
        f"All with {shared}." if shared else "",
        common_setting(lines),
        # Beside the ECE of reg, which is of the times of train, that of later times would seem comparable.
        *times_sentences(rows),
        *verdicts(lines),
        f"{missing} of {len(rows) + missing} runs are not finished." if missing else "",
    ]
    return [sentence for sentence in said if sentence]


def write_tables(rows: Sequence[Mapping[str, Any]], folder: Path, *, missing: int = 0, width: int | None = None) -> str:
    """Write table.md, table.csv and table.tex into a folder and, where forecasts were scored, leads.csv.

    Args:
        rows: The finished rows of a sweep.
        folder: The folder for the files.
        missing: The number of runs that are not finished, which the tables mention.
        width: Columns of the terminal; None for lines of any length.

    Returns:
        The tables as text for the terminal.

    Raises:
        InputError: There are no rows.
    """
    if not rows:
        raise InputError(f"{folder}: holds no finished trial of a sweep; run the same `crossreg sweep` to resume it")
    lines = collect(rows)
    said = _sentences(rows, lines, missing)
    residuals = decomposition_cells(lines)
    forecasts = lead_cells(lines)
    further = forecasts | {
        "Number of regimes, judged by the 95% interval of the difference": duel_cells(lines),
        f"Difference from {base_setting(lines) or 'the default'}": settings_cells(lines),
        "Residuals and both parts of the uncertainty, root mean squares": residuals,
    }
    further = {title: table for title, table in further.items() if table}
    note = in_sample_note(residuals)

    parts = [(f"**{title}**", as_markdown(part)) for title, part in sections(lines)]
    parts += [(f"**{title}**", piped(table)) for title, table in further.items()]
    markdown = [text for pair in parts for text in pair if text != "****"]
    markdown += [note] if note else []
    markdown.append("\n".join(f"- {sentence}" for sentence in said))
    latex = f"% {said[-1]}\n" if missing else ""
    latex += "\n\n".join(f"% {title}\n{as_latex(part)}" for title, part in sections(lines))
    files = {"table.md": "\n\n".join(markdown), "table.csv": as_csv(lines)[:-1], "table.tex": latex}
    if forecasts:
        files["leads.csv"] = leads_csv(lines)[:-1]
    for name, text in files.items():
        with replacing(folder / name) as file:
            file.write(f"{text}\n".encode())

    tables = [f"{title}\n{as_text(part, width)}\n".lstrip("\n") for title, part in sections(lines)]
    for title, table in further.items():
        text = aligned(table)
        if width is not None and max(map(len, text.splitlines())) > width:
            text = f"(wider than this terminal: see {folder / 'table.md'})"
        elif table is residuals and note:
            text += f"\n{note}"
        tables.append(f"{title}\n{text}\n")
    wrap = textwrap.TextWrapper(
        width or max(map(len, said)) + 2, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )
    return "\n".join([*tables, *map(wrap.fill, said)])
