"""Rows of a sweep as tables: means and 95% intervals over seeds, the paper's numbers beside them, and who wins where.

A seed whose training diverged counts as diverged and is left out of the means.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.report.paper import PAPER

# Column name → (split, score, digits).
SCORES = {
    "test_nll": ("test", "nll", 3),
    "test_ece_mix": ("test", "ece_mix", 4),
    "reg_ece_mix": ("reg", "ece_mix", 4),
    "test_crps": ("test", "crps", 4),
    "test_rmse": ("test", "rmse", 4),
    "test_std_mu": ("test", "std_mu", 4),
    "test_sharpness": ("test", "sharpness", 4),
    "test_std_predictive": ("test", "std_predictive", 4),
    "test_std_generalization": ("test", "std_generalization", 4),
    "test_spearman": ("test", "spearman", 3),
    "test_ause": ("test", "ause", 3),
    "reg_nll": ("reg", "nll", 3),
}
# What the printed tables show; the CSV has all.
SHOWN = ("test_nll", "test_ece_mix", "reg_ece_mix", "test_crps", "test_rmse", "test_std_mu")
TITLES = {
    "observed_fraction": "observed",
    "train_size": "train",
    "reg_size": "reg",
    "total": "trajectories",
    "test_nll": "test NLL",
    "test_ece_mix": "test ECE",
    "reg_ece_mix": "reg ECE",
    "test_crps": "test CRPS",
    "test_rmse": "test RMSE",
    "test_std_mu": "Std_ω[μ]",
}
_LEVEL = 0.95
_PAPERS_SCENARIO = "diff_ks"
_DATA = ("observed_fraction", "total", "train_size", "reg_size")
_FAMILIES = ("xreg", "dropout", "ensemble", "unregularized", "fixed-noise", "persistence")
# Scores that say how good a method is; of these the best is marked.
_JUDGED = ("test_nll", "test_ece_mix", "test_crps", "test_rmse")


class Interval(NamedTuple):
    """A mean over seeds and half the width of its 95% interval (NaN for a single seed)."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


class Line(NamedTuple):
    """All seeds of one method in one regime. At equal data, `split` says how the method divides the total."""

    regime: dict[str, Any]
    method: str
    split: tuple[int, int]
    seeds: int
    diverged: int
    by_seed: dict[str, dict[int, float]]

    def values(self, score: str) -> list[float]:
        """A score of every seed that has it."""
        return list(self.by_seed[score].values())

    def only(self, seeds: set[int]) -> "Line":
        """The same of some seeds alone."""
        kept = {s: {k: v for k, v in values.items() if k in seeds} for s, values in self.by_seed.items()}
        return self._replace(by_seed=kept)

    def interval(self, score: str) -> Interval | None:
        """Mean and 95% interval (Student's t) of a score; None where no seed has it."""
        values = self.values(score)
        if not values:
            return None
        half = stats.t.ppf(0.5 + _LEVEL / 2, len(values) - 1) * stats.sem(values) if len(values) > 1 else math.nan
        return Interval(float(np.mean(values)), float(half))


def regime_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row was trained on and for how long, its method and seed aside.

    Where train and reg come out of one pool, the regime is their total: how to divide it is the method's choice.
    """
    sizes = {"train_size": row["train_size"], "reg_size": row["reg_size"]}
    changes = row.get("changes", {})
    others = {k: v for k, v in changes.items() if k not in (*sizes, "observed_fraction", "one_pool")}
    regime = {"total": sum(sizes.values())} if changes.get("one_pool") else sizes
    scenario = {} if row.get("scenario", _PAPERS_SCENARIO) == _PAPERS_SCENARIO else {"scenario": row["scenario"]}
    return scenario | {"observed_fraction": row["observed_fraction"]} | regime | others | {"steps": row["steps"]}


def collect(rows: Iterable[Mapping[str, Any]]) -> list[Line]:
    """One line per regime and method, ordered by regime, then ours before the rivals."""
    lines: dict[tuple, Line] = {}
    for row in rows:
        regime = regime_of(row)
        sizes = (row["train_size"], row["reg_size"])
        key = (str(sorted(regime.items())), row["method"], sizes)
        line = lines.setdefault(key, Line(regime, row["method"], sizes, 0, 0, {name: {} for name in SCORES}))
        if not row["diverged"]:
            for name, (split, score, _) in SCORES.items():
                value = row[split][score] if row[split] is not None else None
                if value is not None:
                    line.by_seed[name][row["seed"]] = value
        lines[key] = line._replace(seeds=line.seeds + 1, diverged=line.diverged + bool(row["diverged"]))
    return sorted(lines.values(), key=_order)


def _order(line: Line) -> tuple:
    regime = line.regime
    sizes = (regime["observed_fraction"], regime.get("total", line.split[0]), regime["steps"])
    family = next((i for i, name in enumerate(_FAMILIES) if line.method.startswith(name)), len(_FAMILIES))
    return (*sizes, str(sorted(regime.items(), key=str)), family, len(line.method), line.method, line.split)


def difference(a: Line, b: Line, score: str) -> Interval | None:
    """Mean of a less mean of b with its 95% interval (Welch), where both have several seeds."""
    x, y = a.values(score), b.values(score)
    if len(x) < 2 or len(y) < 2:
        return None
    parts = [np.var(values, ddof=1) / len(values) for values in (x, y)]
    gap, variance = float(np.mean(x) - np.mean(y)), sum(parts)
    if variance == 0:  # methods without any randomness
        return Interval(gap, 0.0)
    degrees = variance**2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (x, y), strict=True))
    return Interval(gap, float(stats.t.ppf(0.5 + _LEVEL / 2, degrees) * np.sqrt(variance)))


def regimes(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines of one regime together."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(str(sorted(line.regime.items(), key=str)), []).append(line)
    return list(groups.values())


def fair_group(group: Sequence[Line]) -> list[Line]:
    """The lines of a regime that are compared, one for each method.

    Where a method has divided a total of trajectories in several ways, the first half of the seeds chooses the way with
    the lowest test NLL, and the other half judges: of that method, and of all it is compared with.
    """
    if len({line.method for line in group}) == len(group):
        return list(group)
    seeds = sorted({seed for line in group for seed in line.by_seed["test_nll"]})
    first, second = set(seeds[: len(seeds) // 2]), set(seeds[len(seeds) // 2 :])
    best: dict[str, tuple[float, Line]] = {}
    for line in group:
        values = line.only(first).values("test_nll")
        score = float(np.mean(values)) if values else math.inf
        if line.method not in best or score < best[line.method][0]:
            best[line.method] = (score, line)
    return [line.only(second) for _, line in best.values()]


def clearly_best(group: Sequence[Line], score: str) -> Line | None:
    """The line of the lowest mean, if it is below every other beyond the 95% interval of their difference."""
    scored = [line for line in group if line.values(score)]
    if len(scored) < 2:
        return None
    best = min(scored, key=lambda line: float(np.mean(line.values(score))))
    gaps = [difference(best, other, score) for other in scored if other is not best]
    return best if all(gap is not None and gap.high < 0 for gap in gaps) else None


def varying(lines: Sequence[Line]) -> list[str]:
    """The regime's fields that the table needs as columns: those that differ, and always what was observed and trained
    on."""
    names = list(dict.fromkeys(name for line in lines for name in line.regime))
    differ = [n for n in names if len({str(line.regime.get(n)) for line in lines}) > 1]
    always = [n for n in _DATA if n in names and n != "reg_size"]
    return always + [n for n in differ if n in ("reg_size", "steps")]


def setting_of(line: Line) -> str:
    """The other fields that a sweep changed, in words."""
    return ", ".join(f"{k} {v}" for k, v in line.regime.items() if k not in (*_DATA, "steps"))


def _paper_of(line: Line) -> tuple[float, float, float] | None:
    if "total" in line.regime or "scenario" in line.regime or setting_of(line):
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
    changed = any(setting_of(line) for line in lines)
    header = [TITLES.get(f, f) for f in fields] + (["train + reg"] if divided else [])
    header += ["setting"] if changed else []
    header += ["method", "seeds", "diverged"] + [TITLES[s] for s in shown]
    header += ["paper NLL", "paper ECE"] if has_paper else []
    body = []
    for group in regimes(lines):
        compared = fair_group(group)
        winners = {score: _identity(clearly_best(compared, score)) for score in _JUDGED}
        for line in group:
            row = [Cell(str(line.regime.get(f, ""))) for f in fields]
            row += [Cell("{} + {}".format(*line.split))] if divided else []
            row += [Cell(setting_of(line) or "default")] if changed else []
            row += [Cell(line.method), Cell(str(line.seeds)), Cell(str(line.diverged))]
            for score in shown:
                row.append(
                    Cell(_with_interval(line.interval(score), SCORES[score][2]), winners.get(score) == _identity(line))
                )
            if has_paper:
                paper = _paper_of(line)
                row += [Cell(_signed(paper[0], 2)), Cell(_signed(paper[1], 3))] if paper else [Cell("–"), Cell("–")]
            body.append(row)
    return header, body


def _identity(line: Line | None) -> tuple | None:
    return None if line is None else (line.method, line.split)


def _signed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _with_interval(interval: Interval | None, digits: int) -> str:
    if interval is None:
        return "–"
    mean = _signed(interval.mean, digits)
    return mean if math.isnan(interval.half) else f"{mean} ± {interval.half:.{digits}f}"


def verdicts(lines: Sequence[Line], ours: str = "xreg") -> list[str]:
    """For NLL and ECE in turn: where `ours` is clearly the best, where it is not, and where the seeds do not say.

    Its own variants are not its rivals. A regime in which it has no finite score is one that it does not win.
    """
    said = []
    for score in ("test_nll", "test_ece_mix"):
        wins: list[str] = []
        losses: list[str] = []
        undecided: list[str] = []
        for group in map(fair_group, regimes(lines)):
            mine = next((line for line in group if line.method == ours), None)
            rivals = [line for line in group if not line.method.startswith("xreg")]
            if mine is None or not rivals:
                continue
            where = _where(mine, lines)
            if not mine.values(score):
                losses.append(f"{where}: every seed diverged")
                continue
            # A rival none of whose seeds has a score is beaten.
            gaps = {rival.method: difference(rival, mine, score) for rival in rivals if rival.values(score)}
            better = [f"{n} ({_with_interval(g, SCORES[score][2])})" for n, g in gaps.items() if g and g.high < 0]
            level = [name for name, gap in gaps.items() if gap is None or gap.low <= 0 <= gap.high]
            if better:
                losses.append(f"{where}: {', '.join(better)}")
            elif level:
                undecided.append(f"{where}: {', '.join(level)}")
            else:
                wins.append(where)
        total = len(wins) + len(losses) + len(undecided)
        if not total:
            continue
        title = f"{TITLES[score]}, {ours}"
        said.append(f"{title} is best beyond the 95% interval in {len(wins)} of {total} regimes: {_listed(wins)}.")
        said.append(f"{title} does not win in {len(losses)}, being worse beyond the interval: {_listed(losses)}.")
        said.append(f"{title} and another are within the interval in {len(undecided)}: {_listed(undecided)}.")
    if any(len(fair_group(group)) < len(group) for group in regimes(lines)):
        said.append("Where a method divides the data in several ways, half of the seeds chose and the others judge.")
    return said


def _listed(items: Sequence[str]) -> str:
    return "; ".join(items) or "none"


def _where(line: Line, lines: Sequence[Line]) -> str:
    names = [f for f in varying(lines) if f in ("reg_size", "steps")]
    others = "".join(f", {TITLES.get(f, f)} {line.regime.get(f)}" for f in names)
    others += f", {setting_of(line)}" if setting_of(line) else ""
    size = line.regime.get("total", line.split[0])
    return f"{line.regime['observed_fraction']} observed, {size} trajectories{others}"


def as_text(lines: Sequence[Line]) -> str:
    """Aligned columns for a terminal; a clear winner has a star."""
    header, body = cells(lines)
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


def as_markdown(lines: Sequence[Line]) -> str:
    """A pipe table; a clear winner is bold."""
    header, body = cells(lines)
    out = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in body:
        out.append("| " + " | ".join(f"**{c.text}**" if c.bold else c.text for c in row) + " |")
    return "\n".join(out)


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


def write_tables(rows: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """Writes table.md, table.csv and table.tex into a folder; returns the table for a terminal."""
    if not rows:
        raise InputError(f"{folder}: holds no finished point of a sweep")
    lines = collect(rows)
    said = verdicts(lines)
    parts = sections(lines)
    markdown = "\n\n".join(f"**{title}**\n\n{as_markdown(part)}".removeprefix("****\n\n") for title, part in parts)
    markdown += "\n\n" + "\n".join(f"- {sentence}" for sentence in said) + "\n"
    latex = "\n\n".join(f"% {title}\n{as_latex(part)}" for title, part in parts) + "\n"
    for name, text in (("table.md", markdown), ("table.csv", as_csv(lines)), ("table.tex", latex)):
        with replacing(folder / name) as file:
            file.write(text.encode())
    note = (
        "± is the 95% interval over seeds, which vary the training and not the data or the mask;"
        " * best of its regime beyond the interval of the difference"
    )
    tables = [f"{title}\n{as_text(part)}\n".lstrip("\n") for title, part in parts]
    return "\n".join([*tables, note, *said])
