"""The tables of a sweep as files: table.md, table.csv and table.tex."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossreg.errors import InputError
from crossreg.files.whole import replacing
from crossreg.report.tables.comparison import SCORES, Line, collect, shared_settings
from crossreg.report.tables.comparison_tables import (
    aligned,
    as_latex,
    as_markdown,
    as_text,
    common_setting,
    decomposition_as_markdown,
    decomposition_cells,
    duels_as_markdown,
    duels_as_text,
    lines_in_order,
    paper_of,
    sections,
    settings_as_markdown,
    settings_as_text,
)
from crossreg.report.tables.scores import times_sentences
from crossreg.report.tables.verdicts import base_setting, verdicts


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
    for line in lines_in_order(lines):
        row: list[Any] = [*(line.regime.get(f, "") for f in fields), *line.split]
        row += [line.method, line.seeds, line.diverged]
        for score in SCORES:
            interval = line.interval(score)
            ends = ["", "", ""] if interval is None else [interval.mean, interval.low, interval.high]
            row += ["" if isinstance(v, float) and math.isnan(v) else v for v in ends]
        writer.writerow([*row, *(paper_of(line) or ("", "", ""))])
    return out.getvalue()


def write_tables(rows: Sequence[Mapping[str, Any]], folder: Path, *, missing: int = 0, width: int | None = None) -> str:
    """Writes table.md, table.csv and table.tex into a folder; returns the table for a terminal of some width.

    `missing` runs are not finished, which the tables say.
    """
    if not rows:
        raise InputError(f"{folder}: holds no finished run of a sweep; the same `crossreg sweep` goes on")
    lines = collect(rows)
    said = [*verdicts(lines), *([f"{missing} of {len(rows) + missing} runs are not finished."] if missing else [])]
    steps = " and ".join(f"{n:,}" for n in sorted({line.regime["steps"] for line in lines}))
    over = "seeds, which vary the training and not the data or the mask"
    if any(len(line.mask_means("test_nll")) > 1 for line in lines):
        over = "masks, of which each counts by the mean of its seeds, and over seeds where nothing is hidden"
    note = (
        f"{steps} steps; ± is the 95% interval over {over};"
        " * or bold: best of its regime beyond the interval of the difference"
    )
    # Beside the ECE of reg, that of later times would pass for one of the same.
    said = [*times_sentences(rows), *said]
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
    if parts_of := aligned(decomposition_cells(lines)):
        tables.append(f"Residuals and both parts of the uncertainty, root mean squares\n{parts_of}\n")
    return "\n".join([*tables, note, *said])
