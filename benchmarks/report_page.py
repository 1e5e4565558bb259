"""Time `crossreg report` on many runs, and the opening of its page.

    python benchmarks/report_page.py RUN [--runs 100]

RUN is the folder of a finished run. It is copied with other seeds, observed fractions and scores. Prints the CPU time
of the command, the size of the page, and the time until all of it is drawn in a headless browser.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from crossreg.config import load_yaml, to_yaml
from crossreg.runs.safeguards.manifest import vouch

_FRACTIONS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def copy_runs(run: Path, root: Path, count: int) -> None:
    """Copy a run, each copy with a seed, a regime and an NLL of its own."""
    config, metrics = load_yaml(run / "config.yaml"), json.loads((run / "metrics.json").read_text())
    for number in range(count):
        folder = root / f"run{number:03d}"
        shutil.copytree(run, folder)
        fraction = _FRACTIONS[number % len(_FRACTIONS)]
        one = config.replace(seed=number // len(_FRACTIONS), observed_fraction=fraction)
        (folder / "config.yaml").write_text(to_yaml(one))
        scores = metrics | {"test": metrics["test"] | {"nll": metrics["test"]["nll"] - fraction + 0.01 * number}}
        (folder / "metrics.json").write_text(json.dumps(scores))
        vouch(folder, "config.yaml", "metrics.json")  # else they count as corrupted, and the page has nothing of them


def seconds_to_open(page: Path) -> float:
    """Return the time until everything is drawn, in a new tab of the browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page()
        begun = time.perf_counter()
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready=yes]")
        tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        taken = time.perf_counter() - begun
        browser.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root, page = Path(scratch) / "runs", Path(scratch) / "report.html"
        copy_runs(arguments.run, root, arguments.runs)
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "crossreg", "report", root, "--output", page], check=True)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        size = page.stat().st_size / 1e6
        print(f"{arguments.runs} runs: {cpu:.1f} s of CPU, {wall:.1f} s of wall time, {size:.1f} MB")
        print(f"opened and drawn in {seconds_to_open(page):.2f} s")


if __name__ == "__main__":
    main()
