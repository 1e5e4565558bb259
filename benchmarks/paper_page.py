"""Tables and figures of docs/paper.md, "Paper and product", from the published rows; `publish.py` writes them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.designs import paper
from crossreg.metrics.intervals import Interval, interval
from crossreg.report.figures.drawing import calibration_panels
from crossreg.report.figures.sweep import std_mu_curves
from crossreg.report.tables.comparison import Line, collect, difference, paired_difference, signed, with_interval
from crossreg.report.tables.comparison_tables import as_markdown, common_setting, sections
from crossreg.report.tables.verdicts import against_default
from paper_deviations import ABLATIONS, DEVIATIONS

PAGE, FIGURES = Path("docs/paper.md"), Path("docs/figures/paper_exact")
ALL_TABLES = Path("docs/results/paper_exact.md")
# At the top of docs/results.md.
BEFORE_THE_FIX = (
    "The models of `xreg`, and of its variants with both noise inside and a σ_gen head, were trained before a fix to"
    " the gradient of ρ ([what the fix changed](paper.md#the-gradient-of-ρ))."
)
Rows = Sequence[Mapping[str, Any]]
Regime = tuple[float, int]
NAMES = {"xreg": "XReg", "dropout": "MC dropout", "ensemble": "3-member ensemble"}
OURS = {theirs: ours for ours, theirs in paper.METHODS.items()}
# The four settings of `paper-exact`: where log σ_pred starts, and steps. The first is the paper's list of defaults.
SETTINGS = [(start, steps) for start in paper.LOG_SIGMA_PRED_STARTS for steps in (30_000, 10_000)]
ABLATED: dict[str, Regime] = {"0.4, 50": (0.4, 50), "0.7, 30": (0.7, 30), "1.0, 50": (1.0, 50)}
_DEFAULT = "our default, 10,000 steps"


def setting_name(start: float, steps: int) -> str:
    """A setting of `paper-exact` in words."""
    return f"from {signed(start, 0)}, {steps:,} steps"


def line_of(rows: Rows, method: str, regime: Regime, steps: int, start: float | None = None) -> Line:
    """Return the line of one method in one regime; `start` is that of log σ_pred where the sweep has set it."""
    [line] = collect(
        row
        for row in rows
        if (row["method"], row["observed_fraction"], row["train_size"], row["steps"]) == (method, *regime, steps)
        and row["changes"].get("log_sigma_pred_start") == start
    )
    return line


def exact(rows: Mapping[str, Rows], method: str, regime: Regime, setting: tuple[float, int]) -> Line:
    """The line of one of the paper's methods as the paper trains it."""
    start, steps = setting
    return line_of(rows["paper_exact"], OURS[method], regime, steps, start)


def default(rows: Mapping[str, Rows], method: str, regime: Regime) -> Line:
    """The line of our default at 10,000 steps: of XReg the runs with the whole gradient."""
    return line_of(rows["gradient" if method == "xreg" else "paper"], method, regime, 10_000)


def _short(text: str) -> str:
    """A text without the zeros before decimal points of numbers that are below one."""
    return text.replace("± 0.", "± .").replace("/ 0.", "/ .")


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in body)]


def _mean(line: Line, score: str) -> float:
    return float(np.mean(line.values(score)))


def scores_cell(line: Line, middle: Callable[[Sequence[float]], float] | None = None) -> str:
    """Test NLL with its interval, or its median, then test ECE and reg ECE."""
    nll = with_interval(line.interval("test_nll"), 2) if middle is None else signed(middle(line.values("test_nll")), 2)
    return _short(f"{nll} / {_mean(line, 'test_ece_mix'):.3f} / {_mean(line, 'reg_ece_mix'):.3f}")


def table_of_method(rows: Mapping[str, Rows], method: str) -> list[str]:
    """The paper's two tables for one method: its numbers, the runs with its settings, and our default."""
    body = []
    for (fraction, size), theirs in paper.PAPER.items():
        nll, test_ece, reg_ece = theirs[method]
        cells = [_short(f"{signed(nll, 2)} / {test_ece:.3f} / {reg_ece:.3f}")]
        cells += [scores_cell(exact(rows, method, (fraction, size), setting)) for setting in SETTINGS]
        body.append([f"{fraction}, {size}", *cells, scores_cell(default(rows, method, (fraction, size)))])
    return _table(["observed, trajectories", "paper", *(setting_name(*s) for s in SETTINGS), _DEFAULT], body)


def distances(rows: Mapping[str, Rows], method: str, setting: tuple[float, int] | None) -> tuple[float, float]:
    """Mean |ΔNLL| and mean |ΔECE| on test from the paper's eight rows of a method; our default without a setting."""
    gaps = []
    for regime, theirs in paper.PAPER.items():
        line = default(rows, method, regime) if setting is None else exact(rows, method, regime, setting)
        means = _mean(line, "test_nll"), _mean(line, "test_ece_mix")
        gaps.append([abs(mean - their) for mean, their in zip(means, theirs[method], strict=False)])
    nll, ece = np.mean(gaps, axis=0)
    return float(nll), float(ece)


def table_of_distances(rows: Mapping[str, Rows]) -> list[str]:
    """Return the mean distance of each setting from the paper's eight rows of each method."""
    body = []
    for setting in [*SETTINGS, None]:
        found = [distances(rows, method, setting) for method in NAMES]
        cells = [_short(f"{nll:.2f} / {ece:.3f}") for nll, ece in found]
        body.append([_DEFAULT if setting is None else setting_name(*setting), *cells])
    return _table(["mean distance in NLL / ECE", *NAMES.values()], body)


# The four regimes: what the paper calls them, and the methods of its own and of our presets.
FOUR = (
    ("reference: noise inside", 0.7, "xreg-internal-mm", "xreg"),
    ("low observation: heads alone", 0.3, "xreg-heads-mm", "xreg-heads"),
    ("heads alone", 0.7, "xreg-heads-mm", "xreg-heads"),
    ("no learned regularization", 0.7, "unregularized", "unregularized"),
)


def table_of_regimes(rows: Mapping[str, Rows]) -> list[str]:
    """The paper's four regimes with likelihoods as the reg objective, and our presets of them."""

    def median(values: Sequence[float]) -> float:
        return float(np.median(values))

    body = []
    for name, fraction, theirs, ours in FOUR:
        lines = [line_of(rows["paper_exact"], theirs, (fraction, 50), steps, start) for start, steps in SETTINGS]
        lines.append(line_of(rows["regimes"], ours, (fraction, 50), 30_000))
        body.append([f"{name}, {fraction}", *(scores_cell(line, median) for line in lines)])
    return _table(["regime, observed", *(setting_name(*s) for s in SETTINGS), "our preset, 30,000 steps"], body)


def paired(rows: Mapping[str, Rows], regime: Regime, score: str) -> Interval:
    """The default with the whole gradient less that with the cut one, seed by seed."""
    new, old = (line_of(rows[name], "xreg", regime, 10_000) for name in ("gradient", "paper"))
    assert new.by_seed[score].keys() == old.by_seed[score].keys()
    found = paired_difference(new, old, score)
    assert found is not None
    return found


def _change(gap: Interval | None, digits: int, *, half: bool = True) -> str:
    """A difference with its sign, bold beyond its 95% interval."""
    if gap is None:
        return "–"
    text = signed(gap.mean, digits) if round(gap.mean, digits) <= 0 else f"+{gap.mean:.{digits}f}"
    if round(gap.mean, digits) == 0:
        text = f"{0:.{digits}f}"
    text = f"{text} ± {gap.half:.{digits}f}" if half else text
    return text if gap.low <= 0 <= gap.high else f"**{text}**"


def table_of_gradients(rows: Mapping[str, Rows]) -> list[str]:
    """The default with the whole gradient, and how it differs from the rows that were published before."""
    body = []
    for fraction, size in paper.PAPER:
        line = default(rows, "xreg", (fraction, size))
        gaps = [paired(rows, (fraction, size), score) for score in ("test_nll", "test_ece_mix")]
        nll, ece = line.interval("test_nll"), line.interval("test_ece_mix")
        changes = [_change(gaps[0], 3), _change(gaps[1], 4)]
        body.append([f"{fraction}, {size}", with_interval(nll, 3), with_interval(ece, 4), *changes])
    return _table(["observed, trajectories", "test NLL", "test ECE", "change in NLL", "change in ECE"], body)


def effect(rows: Mapping[str, Rows], setting: str) -> str:
    """Return the change in NLL / ECE that a setting of the ablation makes to the default, regime by regime."""
    by_regime = against_default(collect(rows["ablation"]))[setting, "xreg"]
    gaps = [(by_regime[regime]["test_nll"], by_regime[regime]["test_ece_mix"]) for regime in ABLATED]
    return "; ".join(f"{_change(nll, 2, half=False)} / {_change(ece, 3, half=False)}" for nll, ece in gaps)


def effect_of_steps(rows: Mapping[str, Rows]) -> str:
    """Return the change in NLL / ECE from 10,000 to 30,000 steps of the default, in the regimes of the ablation."""
    parts = []
    for regime in ABLATED.values():
        long, usual = (line_of(rows["paper"], "xreg", regime, steps) for steps in (30_000, 10_000))
        nll, ece = (difference(long, usual, score) for score in ("test_nll", "test_ece_mix"))
        parts.append(f"{_change(nll, 2, half=False)} / {_change(ece, 3, half=False)}")
    return "; ".join(parts)


def effect_of_samples(rows: Mapping[str, Rows]) -> str:
    """Return the change in NLL / ECE from training MC dropout on 10 samples, not 1, in the paper's settings (−2)."""
    parts = []
    for regime in ABLATED.values():
        ten, one = (
            line_of(
                [row for row in rows["dropout_samples"] if row["changes"]["train_samples"] == count],
                "dropout",
                regime,
                10_000,
            )
            for count in (10, 1)
        )
        nll, ece = (difference(ten, one, score) for score in ("test_nll", "test_ece_mix"))
        parts.append(f"{_change(nll, 2, half=False)} / {_change(ece, 3, half=False)}")
    return "; ".join(parts)


def effect_of_clip(rows: Mapping[str, Rows]) -> str:
    """Return the change in NLL / ECE without `clip`, and the largest RMSE with and without it, at 30,000 steps."""
    parts = []
    for size in (20, 30):
        without, limited = (
            [
                row["test"]
                for row in sorted(rows["experiments"], key=lambda row: row["seed"])
                if (row["experiment"], row["train_size"]) == (f"clip: {name}", size)
            ]
            for name in ("never", "10")
        )
        nll, ece = (
            interval([a[score] - b[score] for a, b in zip(without, limited, strict=True)])
            for score in ("nll", "ece_mix")
        )
        worst = [max(scores["rmse"] for scores in one) for one in (without, limited)]
        parts.append(
            f"0.7, {size}: {_change(nll, 2, half=False)} / {_change(ece, 3, half=False)}, worst RMSE of"
            f" {len(without)} seeds {worst[0]:.2f}, ours {worst[1]:.2f}"
        )
    return "; ".join(parts) + " (30,000 steps)"


def table_of_deviations(rows: Mapping[str, Rows]) -> list[str]:
    """Return every deviation of the default from the paper, with its reason and its measured effect."""
    effects = {name: effect(rows, setting) for name, setting in ABLATIONS.items()}
    effects |= {"steps": effect_of_steps(rows), "clip": effect_of_clip(rows), "samples": effect_of_samples(rows)}
    head = ["", "paper", "our default", "in `paper-exact`", "why", "effect of the paper's value, or of another"]
    return _table(head, [[*said, measured.format(**effects)] for *said, measured in DEVIATIONS])


def all_tables(rows: Rows, introduction: Sequence[str]) -> list[str]:
    """The page with every score of `paper_exact`, a table for each setting."""
    said = "What these tables say, in words, is in [paper and product](../paper.md#what-came-out)."
    out = ["# As the paper trains: all tables", "", said, "", *introduction]
    for start, steps in SETTINGS:
        lines = collect(r for r in rows if (r["steps"], r["changes"]["log_sigma_pred_start"]) == (steps, start))
        known = [(line.regime["observed_fraction"], line.split[0]) in paper.PAPER for line in lines]
        parts = sections([line for line, there in zip(lines, known, strict=True) if there])
        parts += [("The four regimes", [line for line, there in zip(lines, known, strict=True) if not there])]
        out += ["", f"## log σ_pred {setting_name(start, steps)}", "", common_setting(lines)]
        for title, part in parts:
            out += ["", f"**{title}**", "", as_markdown(part)]
    return out


TABLES: dict[str, Callable[[Mapping[str, Rows]], list[str]]] = {
    "deviations": table_of_deviations,
    **{method: lambda rows, method=method: table_of_method(rows, method) for method in NAMES},
    "distances": table_of_distances,
    "regimes": table_of_regimes,
    "gradient": table_of_gradients,
}
SETS = ("paper_exact", "gradient", "dropout_samples", "paper", "regimes", "ablation", "experiments")


def marks(name: str) -> tuple[str, str]:
    """The lines between which a table stands."""
    return f"<!-- {name}, written by benchmarks/publish.py -->", f"<!-- end of {name} -->"


def write(rows: Mapping[str, Rows], introduction: Sequence[str]) -> None:
    """Put the tables between their marks on the page, draw its figures, and write the page with all tables."""
    text = PAGE.read_text()
    for name, table in TABLES.items():
        first, last = marks(name)
        before, rest = text.split(first)
        text = "\n".join([before + first, *table(rows), last + rest.split(last)[1]])
    PAGE.write_text(text)
    ALL_TABLES.write_text("\n".join(all_tables(rows["paper_exact"], introduction)) + "\n")
    draw(rows)


def draw(rows: Mapping[str, Rows]) -> None:
    """Draw Std_ω[μ] on the last test step over both sweeps, and the calibration triplet for both starts."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[Line]] = {"observed_fraction": [], "train_size": []}
    for regime in paper.PAPER:
        field = "observed_fraction" if regime[1] == 50 else "train_size"
        for setting in SETTINGS:
            parts[field].append(exact(rows, "xreg", regime, setting)._replace(method=setting_name(*setting)))
        parts[field].append(default(rows, "xreg", regime)._replace(method=_DEFAULT))
    where = {"observed_fraction": "50 trajectories", "train_size": "0.7 observed"}
    made = std_mu_curves(parts, FIGURES / "std_mu_final", where, score="test_std_mu_final")
    for start in paper.LOG_SIGMA_PRED_STARTS:
        panels = {
            f"{name.split(':')[0]}\n{fraction} observed": [
                {split: row[split] for split in ("test", "reg")}  # the coverage on train is not published
                for row in rows["paper_exact"]
                if (row["method"], row["observed_fraction"], row["train_size"]) == (method, fraction, 50)
                and (row["steps"], row["changes"]["log_sigma_pred_start"]) == (30_000, start)
            ]
            for name, fraction, method, _ in (FOUR[0], FOUR[1], FOUR[3])
        }
        made += calibration_panels(panels, FIGURES / f"calibration_from_minus_{-start:.0f}")
    for path in made:
        if path.suffix != ".png":
            path.unlink()  # a page shows pictures
