"""A sweep of 2,000 tiny replicas, in CI of 200; 5% are made to diverge: exact counts, and memory does not grow."""

import csv
import os
from pathlib import Path

from harness import spoil_seeds

from crossreg.cli.main import main
from crossreg.config import to_yaml
from crossreg.runs.sweep_folder import read_rows
from crossreg.studies.sweep import run as sweep
from long_tests import amount, long

RUNS = amount(0, 2000)


def resident() -> float:
    """Memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@long
def test_thousands_of_replicas(waves, tiny, tmp_path, monkeypatch, capsys):
    memory = []

    class Weighing(sweep.SweepDisplay):
        def begin(self, *arguments, **named):
            super().begin(*arguments, **named)
            memory.append(resident())

        def __exit__(self, *_):
            super().__exit__(*_)
            memory.append(resident())

    spoil_seeds(monkeypatch, every=20)
    monkeypatch.setattr(sweep, "SweepDisplay", Weighing)
    # Many programs of equal shape: what each of them leaves behind would add up.
    monkeypatch.setattr("crossreg.studies.sweep.programs._MOST_REPLICAS", RUNS // 20)
    small = tiny.replace(width=2, num_blocks=2, num_modes=3, num_samples=2, evaluate_every=10, test_size=1, reg_size=2)
    (tmp_path / "c.yaml").write_text(to_yaml(small))
    command = ["sweep", "grid", "--grid", "mask_seed=3", "--methods", "unregularized", "--seeds", str(RUNS)]
    command += ["--steps", "20", "--config", str(tmp_path / "c.yaml"), "--quiet", "--out", str(tmp_path / "s")]
    assert main([*command, "--max-diverged", "0.05"]) == 0
    rows = read_rows(tmp_path / "s")
    assert sorted(row["seed"] for row in rows) == list(range(RUNS))
    assert {row["seed"] for row in rows if row["diverged"]} == set(range(0, RUNS, 20))
    with (tmp_path / "s" / "table.csv").open() as file:
        [line] = csv.DictReader(file)
    assert (int(line["seeds"]), int(line["diverged"])) == (RUNS, RUNS // 20)
    # The same command has nothing left to do, and says when that is too many.
    assert main([*command, "--max-diverged", "0.049"]) == 4
    said = f"{RUNS // 20} of {RUNS} runs diverged, more than --max-diverged 0.049"
    assert said in capsys.readouterr().err
    # The first programs compile; behind them there are only more of the same.
    third = len(memory) // 3
    growth = memory[-2] - memory[third]
    print(f"memory in MiB at each program: {[round(m) for m in memory]}; growth behind the first third {growth:.0f}")
    assert growth < 0.1 * memory[third]
