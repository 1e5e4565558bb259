"""Check from the rows of sweeps that the reference preset keeps its limits in the paper's eight regimes.

    crossreg sweep paper --seeds 10 --methods xreg,dropout,unregularized --out runs/core
    python benchmarks/core_results.py runs/core --out docs/results/core.json

About four minutes on an H200. The limits: mean test ECE at most .03, mean test NLL at most 0.2 above the prototype's,
no run diverged. `docs/results/core.json` has the rows, the commands, and the versions and device of the last start.
Several folders are read as one.
"""

import argparse
import json
from pathlib import Path

from crossreg.report.tables.comparison import collect
from crossreg.runs.sweep_folder import asked_rows
from publish import made_by, rounded

METHODS = ("xreg", "dropout", "unregularized")
# (observed fraction, train trajectories) → test NLL of the channel/channel prototype.
PROTOTYPE_NLL = {
    (0.4, 50): -0.79,
    (0.6, 50): -1.33,
    (0.8, 50): -2.18,
    (1.0, 50): -3.90,
    (0.7, 20): -0.61,
    (0.7, 30): -0.99,
    (0.7, 40): -1.11,
    (0.7, 70): -2.19,
}
LARGEST_ECE, NLL_MARGIN = 0.03, 0.2


def print_table(rows: list[dict]) -> bool:
    """Print all regimes and methods; return whether the reference preset was run in all and keeps its limits."""
    print(f"{'observed':>8} {'train':>5} {'method':>14} seeds  {'test NLL':>16}  {'test ECE':>15}  diverged")
    kept, seen = True, set()
    for line in collect(rows):
        regime = (line.regime["observed_fraction"], line.regime["train_size"])
        nll, ece = line.interval("test_nll"), line.interval("test_ece_mix")
        assert nll is not None
        assert ece is not None
        verdict = ""
        if line.method == "xreg":
            seen.add(regime)
            largest_nll = PROTOTYPE_NLL[regime] + NLL_MARGIN
            within = nll.mean <= largest_nll and ece.mean <= LARGEST_ECE and not line.diverged
            kept &= within
            verdict = f"  limits {largest_nll:.2f} / {LARGEST_ECE}: {'kept' if within else 'MISSED'}"
        print(
            f"{regime[0]:8.1f} {regime[1]:5d} {line.method:>14} {line.seeds:5d}  {nll.mean:7.3f} ± {nll.half:6.3f}"
            f"  {ece.mean:.4f} ± {ece.half:.4f}  {line.diverged:8d}{verdict}"
        )
    return kept and seen == PROTOTYPE_NLL.keys()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="where to write the rows and how to get them")
    arguments = parser.parse_args()
    rows = [row for folder in arguments.folders for row in asked_rows(folder)[0]]
    rows = [rounded(row) for row in rows if row["method"] in METHODS and row["steps"] == 10_000]
    kept = print_table(rows)
    print("all limits kept" if kept else "some limits MISSED")
    if arguments.out is not None:
        made = [made_by(folder) for folder in arguments.folders]
        result = {
            "command": "; ".join(one["command"] for one in made),
            "versions": made[-1]["starts"][-1],
            "data": made[-1]["data"],
        }
        # A row a line.
        lines = ",\n".join(json.dumps(row) for row in rows)
        arguments.out.write_text(json.dumps(result, indent=1).removesuffix("\n}") + f',\n "rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
