"""Publish the rows of finished sweeps in `docs/results`, and write the pages that show them.

    python benchmarks/publish.py runs/paper paper           # docs/results/paper.jsonl and paper.json
    python benchmarks/publish.py runs/paper-long paper --add # more rows into the same files
    python benchmarks/publish.py                            # docs/results.md and docs/paper.md from all that is there

The JSON file beside the rows says how to get them: the command, and versions and device of every start.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import paper_page
from crossreg.config import Config, to_dict
from crossreg.report.figures.sweep import drawings_of_rows
from crossreg.report.figures.write import sweep_figures
from crossreg.report.tables.comparison import (
    Line,
    clearly_best,
    collect,
    difference,
    fair_group,
    heads_alone,
    regime_of,
    regimes,
    signed,
    with_interval,
)
from crossreg.report.tables.comparison_tables import (
    as_markdown,
    common_setting,
    decomposition_cells,
    duel_cells,
    in_sample_note,
    sections,
    settings_cells,
)
from crossreg.report.tables.layout import piped
from crossreg.report.tables.verdicts import against_default, base_setting, verdicts
from crossreg.runs.file_names import PLAN
from crossreg.runs.safeguards.versions import describe_machine
from crossreg.runs.sweep_folder import asked_rows

RESULTS = Path("docs/results")
PAGE = Path("docs/results.md")
# Pages with the table of the paper's three methods, between the marks; the README may be without.
SUMMARIES = (Path("README.md"), Path("docs/summary.md"))
_MARKS = ("<!-- written by benchmarks/publish.py -->", "<!-- end -->")
FIGURES, REGIME_FIGURES = Path("docs/figures"), Path("docs/figures/regimes")
DRAWN = ("xreg", "dropout", "ensemble", "unregularized")
DRAWN_EQUAL_DATA = ("xreg", "dropout", "ensemble", "ensemble+early+conformal", "unregularized+conformal")
INTRODUCTION = [
    "Scores are means ± 95% intervals over seeds (Student's t). Bold marks a method that is the best of its regime"
    " beyond the interval of the difference. Seeds vary the weights, the batches and the noise, but not the data. Where"
    " several masks are compared, the interval is over masks. `python benchmarks/publish.py` writes this page from the"
    " rows in `docs/results/`."
]
SHORT = [
    "[Results in short](summary.md) says in words what these experiments show. Here each experiment has a section with"
    " its question, the answer, figures, short tables, and the commands that made it. Long tables have pages of their"
    " own."
]
# What each set of rows answers, in a sentence.
QUESTIONS = {
    "equal_data": "Which method is best if all have the same total number of trajectories, including those held out?",
    "paper": "How good is the default in the paper's eight regimes, against every baseline?",
    "confirmation": "Is the default as good with masks and seeds on which nothing was chosen?",
    "regimes": "What do the paper's four regimes look like: noise inside, heads alone (twice), and unregularized?",
    "ablation": "What does each part of the default contribute?",
}
TITLES = {
    "equal_data": "Equal data",
    "paper": "The paper's regimes",
    "confirmation": "The paper's regimes, with masks and seeds on which nothing was chosen",
    "regimes": "The paper's four regimes",
    "ablation": "Ablation",
}
# What was done before these settings existed, where their defaults changed it.
_BEFORE = {"antithetic": False, "reg_batch_size": 16}
_SCORE_NAMES = {"test_nll": "NLL", "test_ece_mix": "ECE"}
PAPERS_ROWS = ("paper_exact", "gradient", "dropout_samples")  # docs/paper.md has their tables
_DIGITS = 4
_SHORT = 20  # lines of a table that the page itself shows
_FEW = 3  # baselines that are named beside a verdict
# Of train, what the decomposition is held against; the rest can be had by running the command.
_OF_TRAIN = ("nll", "ece_mix", "rmse", "rms_predictive", "rms_generalization")


def rounded(value: Any) -> Any:
    """Numbers to as many digits as anyone could use."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def compact(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for publication: few digits, σ as one number per site, nothing empty, no versions.

    Of train it keeps what tables show, and that once: wrappers start from the training of the method they wrap.
    """
    sigma = {site: float(np.exp(np.mean(np.log(values)))) for site, values in row["sigma"].items()}
    train = row.get("train") if "+" not in row["method"] else None
    kept = {k: v for k, v in row.items() if k not in ("on", "key", "settings", "trained_with", "test_times")} | {
        "sigma": sigma
    }
    kept["train"] = {name: train[name] for name in _OF_TRAIN} if train else None
    return rounded({k: v for k, v in kept.items() if k == "changes" or v not in (None, {})})


def _identity(row: dict[str, Any]) -> str:
    seeds = (row["seed"], row["changes"].get("mask_seed"))
    return str((sorted(regime_of(row).items(), key=str), row["train_size"], row["reg_size"], row["method"], seeds))


def command_of(asked: dict[str, Any]) -> str:
    """Return the command that a sweep was started with."""
    parts = ["crossreg sweep", asked["name"], f"--seeds {asked['seeds']}", f"--steps {asked['steps']}"]
    parts += [f"--first-seed {asked['first_seed']}"] if asked.get("first_seed") else []
    parts += [f"--methods {asked['methods']}"] if asked["methods"] else []
    parts += [f"--grid {item}" for item in asked["grid"]]
    return " ".join([*parts, "--out DIR"])


def made_by(folder: Path) -> dict[str, Any]:
    """Return the command, settings, data and machines behind the rows of a sweep."""
    asked = json.loads((folder / PLAN).read_text())
    return {"command": command_of(asked), "config": asked["config"], "data": asked["data"], "starts": asked["starts"]}


def publish(folder: Path, name: str, *, add: bool, kept: str = "") -> None:
    """Write the finished rows of a sweep, and beside them how they were made."""
    rows, total = asked_rows(folder)
    if len(rows) < total:
        sys.exit(f"{folder}: {total - len(rows)} of {total} runs are not finished")
    RESULTS.mkdir(parents=True, exist_ok=True)
    target, beside = RESULTS / f"{name}.jsonl", RESULTS / f"{name}.json"
    earlier = json.loads(beside.read_text()) if add and beside.exists() else []
    known = rows_of(name) if add and target.exists() else []
    # A run that was published before is replaced, whatever version has made it.
    merged = {_identity(row): row for row in [*known, *map(compact, rows)]}
    target.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in merged.values()))
    note = {"kept": kept} if kept else {}
    beside.write_text(json.dumps([*earlier, made_by(folder) | note], indent=1) + "\n")
    if name == "regimes":  # losses, σ and maps need the trained models, which are not published
        for path in sweep_figures(folder, REGIME_FIGURES):
            if path.suffix != ".png" or path.stem.startswith("calibration"):
                path.unlink()
    print(f"{target}: {len(rows)} rows")
    if made_by(folder)["starts"][-1].get("source") != describe_machine()["source"]:
        print("  made by another state of the code than this one")


def lead(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say whether the rows meet the goal, and show the trend that the paper reports."""
    said, trends, by_fraction, by_size = [], [], [], []
    for steps in sorted({row["steps"] for row in rows}):
        ours = [line for line in collect(r for r in rows if r["steps"] == steps) if line.method == "xreg"]
        worst = max(ours, key=lambda line: np.mean(line.values("test_ece_mix")))
        said.append(
            f"- After {steps:,} steps the mean test ECE of `xreg` is at most"
            f" {np.mean(worst.values('test_ece_mix')):.4f} ({worst.regime['observed_fraction']} observed,"
            f" {worst.split[0]} trajectories);"
            f" {sum(line.diverged for line in ours)} of its {sum(line.seeds for line in ours)} runs diverged."
        )
        by_fraction = [line for line in ours if line.split[0] == 50]
        by_size = [line for line in ours if line.split[0] != 50]
        for score, name in (("test_std_mu", "Std_ω[μ]"), ("test_std_generalization", "√U_gen")):
            cells = " | ".join(_trend(picked, score) for picked in (by_fraction, by_size))
            trends.append(f"| {name}, {steps:,} steps | {cells} |")
    fractions = " → ".join(str(line.regime["observed_fraction"]) for line in by_fraction)
    sizes = " → ".join(str(line.split[0]) for line in by_size)
    return [
        *said,
        "- The defaults were chosen on these regimes, this mask and these test trajectories"
        " ([choices](choices.md)), which favours `xreg`.",
        "",
        "Generalization noise on test with more data: means, and how many decreases are beyond the 95% interval:",
        "",
        f"| | observed {fractions} | trajectories {sizes} |",
        "|---|---|---|",
        *trends,
    ]


def _trend(lines: Sequence[Line], score: str) -> str:
    """Return the means of a score from regime to regime, and in how many steps it clearly falls."""
    means = [f"{interval.mean:.4f}" for line in lines if (interval := line.interval(score))]
    gaps = [difference(b, a, score) for a, b in itertools.pairwise(lines)]
    clear = sum(gap is not None and gap.high < 0 for gap in gaps)
    return f"{' → '.join(means)} ({clear} of {len(gaps)})"


def lead_regimes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Report medians of the paper's four regimes, since single points ruin means, and the decomposition."""
    said = []
    for line in collect(rows):
        nll = line.values("test_nll")
        said.append(
            f"- `{line.method}`, {line.regime['observed_fraction']} observed: median test NLL"
            f" {signed(float(np.median(nll)), 2)}, from {signed(min(nll), 2)} to {signed(max(nll), 2)} over"
            f" {line.seeds} seeds."
        )
        if heads_alone(line):
            train, reg, pred, gen = (
                float(np.median(line.values(score))) ** 2
                for score in ("train_rmse", "reg_rmse", "reg_rms_predictive", "reg_rms_generalization")
            )
            said.append(
                f"  With the residuals r_train = {train**0.5:.4f} and r_reg = {reg**0.5:.4f}, the fixed point has"
                f" √U_pred = {((reg + train) / 2) ** 0.5:.4f} and √U_gen = {(max(reg - train, 0) / 2) ** 0.5:.4f}"
                f" on reg; measured were {pred**0.5:.4f} and {gen**0.5:.4f} (all medians over seeds)."
            )
    said.append(
        "- The fixed point, U_pred = (r_reg² + r_train²)/2 and U_gen = (r_reg² − r_train²)/2, holds for"
        " Gaussian errors of one size and for likelihoods. Here σ varies from point to point, ρ learns on the scaled"
        " CRPS, and a mean square is dominated by a few points with a large σ: both parts are larger than at the fixed"
        " point, above all at 0.7 observed. Where the NLL of a seed is far above the others', both σ are far too small"
        " at a few test points."
    )
    return said


def equal_data_table(groups: Iterable[Sequence[Line]]) -> list[str]:
    """Return a table of NLL / ECE of common methods, one line for each regime and total."""
    shown = ("xreg", "dropout", "ensemble", "ensemble+conformal", "ensemble+early+conformal", "unregularized+conformal")
    head = ["observed", "trajectories", *(f"`{method}`" for method in shown)]
    table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for group in groups:
        lines = {line.method: line for line in group}
        best = clearly_best([lines[method] for method in shown], "test_nll")
        texts = []
        for method in shown:
            nll, ece = (lines[method].interval(score) for score in ("test_nll", "test_ece_mix"))
            text = f"{with_interval(nll, 2)} / {'–' if ece is None else f'{ece.mean:.3f}'}"
            texts.append(f"**{text}**" if best is lines[method] else text)
        regime = lines["xreg"].regime
        table.append(f"| {regime['observed_fraction']} | {regime['total']} | " + " | ".join(texts) + " |")
    return table


def tables_of_equal_data(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Compare methods given one total of trajectories, with a fifth of them held out and with five."""
    groups = regimes(collect(rows))
    five = [[line for line in group if line.split[1] in (0, 5)] for group in groups if group[0].regime["total"] > 25]
    return [
        "Test NLL (± 95% interval) / ECE with the same total of trajectories: `xreg` and the baselines with a wrapper"
        " hold out a fifth of them, `dropout` and `ensemble` train on all. Bold: the lowest NLL of these six beyond the"
        " interval.",
        "",
        *equal_data_table(fair_group(group) for group in groups),
        "",
        "The same with only five trajectories held out: more to train on, fewer to calibrate with.",
        "",
        *equal_data_table(five),
    ]


def lead_confirmation(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say how the intervals over several masks are to be read."""
    lines = collect(rows)
    ours = next(line for line in lines if line.regime["observed_fraction"] < 1)
    masks = len(ours.mask_means("test_nll"))
    return [
        f"Runs with the same mask are not independent of each other. The intervals are over the means of the {masks}"
        f" masks (each of {ours.seeds // masks} seeds), and methods are compared mask by mask. At full observation"
        " there is no mask, and the intervals are over seeds."
    ]


def lead_ablation(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Count the differences from the default, and name those that are better."""
    gaps = [
        (f"{setting}, {_SCORE_NAMES[score]} at {regime}, by {signed(-gap.mean, 4)} ± {gap.half:.4f}", gap)
        for (setting, _), by in against_default(collect(rows)).items()
        for regime, scores in by.items()
        for score, gap in scores.items()
        if gap is not None
    ]
    better = [said for said, gap in gaps if gap.high < 0]
    return [
        f"- Of {len(gaps)} differences from the default in NLL and ECE, beyond the 95% interval:"
        f" {sum(gap.low > 0 for _, gap in gaps)} where the setting is worse, {len(better)} where it is better"
        f" ({'; '.join(better)}). In all others the setting and the default are level.",
        "- These are comparisons without correction: between equal settings, 1 in 20 would still look different by"
        " chance. `docs/choices.md` says in words what each part contributes.",
    ]


# Words that come before the verdicts, and short tables that come after them.
LEADS = {"paper": lead, "confirmation": lead_confirmation, "regimes": lead_regimes, "ablation": lead_ablation}
SHORT_TABLES = {"equal_data": tables_of_equal_data}
# What a reader who does not see a figure is told, by its file.
SHOWN = {
    "equal_data": "NLL and ECE against the total of trajectories",
    "observed_fraction_curves": "Scores against the observed fraction",
    "train_size_curves": "Scores against the number of trajectories",
    "std_mu": "Std_ω[μ] against the masked fraction and against the number of trajectories",
    "decomposition": "Both parts of the uncertainty beside the squared error, on train, reg and test",
    "losses_observed-0.7_train-50": "Losses on train and reg over the steps, 0.7 observed",
    "maps_xreg_observed-0.7_train-50": "Maps of truth, error, Std_ω[μ] and total standard deviation, 0.7 observed",
    "sigma_xreg_observed-0.7_train-50": "σ of every site over the steps, 0.7 observed",
}


def summary_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The table of the summary: test NLL / ECE of the paper's three methods at 10,000 steps."""
    shown = {"xreg": "XReg", "dropout": "MC dropout", "ensemble": "3-member ensemble"}
    lines = collect(row for row in rows if row["method"] in shown and row["steps"] == 10_000)
    table = ["| observed, trajectories | " + " | ".join(shown.values()) + " |", "|" + "---|" * (len(shown) + 1)]
    for group in (group for _, part in sections(lines) for group in regimes(part)):
        by = {line.method: line for line in group}
        cells = []
        for method in shown:
            nll, ece = (by[method].interval(score) for score in ("test_nll", "test_ece_mix"))
            # Without spaces around ±, so that each score is one word of a short page.
            cell = f"{with_interval(nll, 2)} / {with_interval(ece, 3)}".replace(" ± ", "±")
            cells.append(cell.replace("/ 0.", "/ .").replace("±0.", "±."))
        line = by["xreg"]
        table.append(f"| {line.regime['observed_fraction']}, {line.split[0]} | " + " | ".join(cells) + " |")
    return table


def write_summaries(rows: Sequence[dict[str, Any]]) -> None:
    """Put the table between the marks of every page that has them."""
    begin, end = _MARKS
    for path in SUMMARIES:
        before, found, rest = path.read_text().partition(begin)
        if found:
            path.write_text("\n".join([before + begin, *summary_table(rows), end + rest.split(end, 1)[1]]))


def shown_figure(path: Path) -> str:
    """Return the Markdown of a figure, with what it shows for readers who do not see it."""
    what = SHOWN.get(path.stem) or f"Calibration of {path.stem.removeprefix('calibration_')} on test and reg"
    return f"![{what}]({path.relative_to(PAGE.parent)})"


def draw(rows: Sequence[dict[str, Any]], folder: Path) -> list[str]:
    """Draw some methods at 10,000 steps; return the Markdown lines that show the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = DRAWN_EQUAL_DATA if any(row["changes"].get("one_pool") for row in rows) else DRAWN
    shown = [row for row in rows if row["method"] in drawn and row["steps"] == 10_000]
    lines = []
    for path in (path for drawing in drawings_of_rows(shown, folder) for path in drawing()):
        if path.suffix == ".png":
            lines.append(shown_figure(path))
        else:
            path.unlink()  # a page shows pictures
    return lines


def _other_defaults(made: dict[str, Any]) -> str:
    """Return in words the defaults that were different when the rows were made.

    The default of a setting that did not exist then is what was done then, but for those of `_BEFORE`.
    """
    then, now = made["config"], to_dict(Config())
    others = []
    for part, settings in now.items():
        for name, default in settings.items():
            value = then[part].get(name, _BEFORE.get(name, default))
            if name not in ("steps", "seed") and value != default:
                others.append(f"`{name}` {value}")
    return f" The defaults were others then: {', '.join(others)}." if others else ""


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return the published rows of a set."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def section(name: str, title: str, figures: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the lines about one set of rows on the page of results, and those of the page with all of its tables.

    Both say in words what the rows say before they show tables. `figures` are the Markdown lines that show its figures.
    """
    rows, made = rows_of(name), json.loads((RESULTS / f"{name}.json").read_text())
    said, tables, all_tables = [], [], []
    several = len({row["steps"] for row in rows}) > 1
    for steps in sorted({row["steps"] for row in rows}):
        lines = collect(row for row in rows if row["steps"] == steps)
        if found := verdicts(lines):
            said += ["", f"**{steps:,} steps**", ""] if several else [""]
            said += [f"- {sentence}" for sentence in found]
            baselines = [method for method in sorted({line.method for line in lines}) if method[:4] != "xreg"]
            if len(baselines) <= _FEW:  # being the best of few says less
                said.append(f"- Baselines in these runs: {', '.join(f'`{b}`' for b in baselines)}, and no others.")
        if counted := duel_cells(lines):
            tables += ["", f"**In how many regimes, beyond the 95% interval, {steps:,} steps**", "", piped(counted)]
        if parted := decomposition_cells(lines):
            all_tables += ["", f"**Residuals and both parts of the uncertainty, {steps:,} steps**", "", piped(parted)]
            all_tables += ["", note] if (note := in_sample_note(parted)) else []
        if changed := settings_cells(lines):
            base = base_setting(lines) or "the default"
            tables += ["", f"**Difference from {base}, {steps:,} steps**", "", piped(changed)]
        if shared := common_setting(lines):
            tables += ["", shared]
            all_tables += ["", shared]
        for part_title, part in sections(lines):
            table = ["", f"**{part_title or title}, {steps:,} steps**", "", as_markdown(part)]
            all_tables += table
            tables += table if len(part) <= _SHORT else []
    words = ["", *LEADS[name](rows)] if name in LEADS else []
    judged = [sentence for sentence in said if not sentence.startswith(("- Test CRPS", "- Test RMSE"))]
    parts = [f"## {title}", "", QUESTIONS[name], *words, *judged]
    parts += ["", *SHORT_TABLES[name](rows)] if name in SHORT_TABLES else []
    parts += [*(["", *figures] if figures else []), *tables, "", "Made by:", ""]
    for one in made:
        device = one["starts"][-1]
        kept = f" ({one['kept']})" if "kept" in one else ""
        parts.append(f"- `{one['command']}` on {device['device']}, JAX {device['jax']}{kept}.{_other_defaults(one)}")
    parts += ["", f"[All tables]({(RESULTS / f'{name}.md').relative_to(PAGE.parent)})"]
    said = said or words
    return parts, [f"# {title}: all tables", "", QUESTIONS[name], *said, "", *INTRODUCTION, *all_tables]


def drawn(name: str) -> list[str]:
    """Draw the figures of a set of rows; return the lines that show them."""
    if name == "regimes":  # drawn by `publish`, from the trained models
        return [shown_figure(path) for path in sorted(REGIME_FIGURES.glob("*.png"))]
    folders = {"paper": FIGURES / "paper", "equal_data": FIGURES}
    return draw(rows_of(name), folders[name]) if name in folders else []


def page() -> None:
    """Write docs/results.md, the tables beside the rows, and the tables of the summaries and of docs/paper.md."""
    parts = ["# Results by experiment", "", *SHORT, "", *INTRODUCTION, "", paper_page.BEFORE_THE_FIX]
    for name, title in TITLES.items():
        if (RESULTS / f"{name}.jsonl").exists():
            lines, tables = section(name, title, drawn(name))
            parts += ["", *lines]
            (RESULTS / f"{name}.md").write_text("\n".join(tables) + "\n")
    write_summaries(rows_of("paper"))
    paper_page.write({name: rows_of(name) for name in paper_page.SETS}, INTRODUCTION)
    PAGE.write_text("\n".join(parts) + "\n")
    print(PAGE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("name", nargs="?", choices=(*TITLES, *PAPERS_ROWS))
    parser.add_argument("--add", action="store_true", help="keep the rows that are there")
    parser.add_argument("--kept", default="", help="a remark on how these rows came about")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        if arguments.name is None:
            parser.error("a folder needs a name")
        publish(arguments.folder, arguments.name, add=arguments.add, kept=arguments.kept)
    page()


if __name__ == "__main__":
    main()
