"""Checks that the tests notice: changes the meaning of the code in one small way at a time, and runs tests on it.

A mutant is an entry in one of the TOML files of this folder: a file of the repository, a piece of its text that occurs
there exactly once (`old`), what is put in its place (`new`), and the tests that must fail then.

    [[mutant]]
    file = "src/crossreg/objectives.py"
    old = "jnp.log(mixture.num_samples) - logsumexp"
    new = "-logsumexp"
    tests = ["tests/test_objectives.py::test_one_name"]

Each mutant is tried in a copy of the working tree, never in the tree itself. It is killed if at least one of its tests
fails. A mutant that survives, or that breaks the import of a test file in place of failing a test, is an error. Before,
all of these tests are run in the copies as they are: one that fails there would kill every mutant, and say nothing.
Each run is a process of its own, forked from one that has imported the libraries alone (`runner.py`).

    python tests/mutants/run_mutants.py                  # all of them
    python tests/mutants/run_mutants.py --every 10       # a tenth, evenly spaced
    python tests/mutants/run_mutants.py --match conformal
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

ROOT = Path(__file__).parents[2]
_SECONDS = 900
Verdict = Literal["killed", "survived", "timed out", "broken"]
_PYTEST_VERDICTS: dict[int, Verdict] = {
    0: "survived",
    1: "killed",
}  # any other exit status says that no test ran to its end


@dataclass(frozen=True)
class Mutant:
    """One change of meaning, and the tests that must notice it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """The text of the mutant's file with the change made; `old` must occur in it exactly once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self}: the old text occurs {count} times, not once")
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}: {old[:60]} → {new[:60]}"


def read_mutants(folder: Path = ROOT / "tests" / "mutants") -> list[Mutant]:
    """All mutants of a folder's TOML files, in the order of the files' names."""
    entries = [entry for path in sorted(folder.glob("*.toml")) for entry in tomllib.loads(path.read_text())["mutant"]]
    return [Mutant(entry["file"], entry["old"], entry["new"], tuple(entry["tests"])) for entry in entries]


@contextmanager
def copies_of_the_tree(count: int) -> Iterator[list[Path]]:
    """Folders that each hold every file that git tracks or would add, as it is now, and the tree's environment."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Path(folder) / str(number) for number in range(count)]
        for copy in copies:
            for name in names:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
            if (ROOT / ".venv").exists():
                (copy / ".venv").symlink_to((ROOT / ".venv").resolve())
        yield copies


def _write(path: Path, text: str) -> None:
    """Write a text and date it a minute after the one before: Python tells stale bytecode by whole seconds."""
    later = path.stat().st_mtime + 60
    path.write_text(text)
    os.utime(path, (later, later))


class Runner:
    """Runs tests in a copy of the tree, in a process for each run that has the libraries already."""

    def __init__(self, copy: Path):
        self.copy, self._log = copy, copy.parent / f"{copy.name}.log"
        # Bytecode is kept between mutants: compiling all files anew takes a third of a short test's time.
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": ""}
        self._process = subprocess.Popen(
            [sys.executable, copy / "tests" / "mutants" / "runner.py"],
            cwd=copy,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def run(self, tests: Iterable[str], *, seconds: float | None = None) -> tuple[int | None, str]:
        """Return pytest's exit status, None if it took longer, and what it printed."""
        assert self._process.stdin is not None
        arguments = ["-x", "-q", "-p", "no:cacheprovider", *tests]
        print(json.dumps({"arguments": arguments, "log": str(self._log)}), file=self._process.stdin, flush=True)
        process, late = self._answer(), threading.Event()

        def end() -> None:
            late.set()
            os.killpg(process, signal.SIGKILL)

        timer = threading.Timer(threading.TIMEOUT_MAX if seconds is None else seconds, end)
        timer.daemon = True
        timer.start()
        status = self._answer()
        timer.cancel()
        return None if late.is_set() else status, self._log.read_text(errors="replace")

    def close(self) -> None:
        """End the process; no run is under way."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run_unchanged(tests: Iterable[str], runners: Sequence[Runner]) -> str:
    """Run tests in the copies as they are, each file in one of them; return what those printed that failed."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    shares = [[test for file in list(files)[n :: len(runners)] for test in files[file]] for n in range(len(runners))]
    with ThreadPoolExecutor(len(runners)) as pool:
        runs = list(pool.map(lambda runner, share: runner.run(share) if share else (0, ""), runners, shares))
    return "".join(said[-4000:] for status, said in runs if status)


def try_mutant(mutant: Mutant, runner: Runner) -> tuple[Verdict, str]:
    """Run a mutant's tests in a copy of the tree with the change made, and undo the change."""
    path = runner.copy / mutant.file
    text = path.read_text()
    _write(path, mutant.applied_to(text))
    try:
        status, said = runner.run(mutant.tests, seconds=_SECONDS)
    finally:
        _write(path, text)
    if status is None:
        return "timed out", f"after {_SECONDS} s"
    return _PYTEST_VERDICTS.get(status, "broken"), said[-2500:]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests against small changes of meaning.")
    parser.add_argument("--every", type=int, default=1, help="take every n-th mutant")
    parser.add_argument("--match", default="", help="take mutants whose file, texts or tests contain this")
    parser.add_argument("--workers", type=int, default=2, help="mutants that are tried at the same time")
    args = parser.parse_args()
    mutants = [m for m in read_mutants() if args.match in "\n".join((m.file, m.old, m.new, *m.tests))][:: args.every]
    with (
        copies_of_the_tree(args.workers) as copies,
        ThreadPoolExecutor(args.workers) as pool,
        ExitStack() as stack,
    ):
        runners = [stack.enter_context(closing(Runner(copy))) for copy in copies]
        tests = dict.fromkeys(test for mutant in mutants for test in mutant.tests)
        if failed := run_unchanged(tests, runners):
            print(f"tests fail without any change:\n{failed}")
            return 1
        free: SimpleQueue[Runner] = SimpleQueue()
        for runner in runners:
            free.put(runner)

        def attempt(mutant: Mutant) -> tuple[Verdict, str]:
            runner = free.get()
            try:
                return try_mutant(mutant, runner)
            finally:
                free.put(runner)

        failures = 0
        for number, (mutant, (verdict, said)) in enumerate(zip(mutants, pool.map(attempt, mutants), strict=True), 1):
            print(f"[{number}/{len(mutants)}] {verdict}: {mutant}", flush=True)
            if verdict != "killed":
                failures += 1
                print(said, flush=True)
    print(f"{len(mutants) - failures} of {len(mutants)} mutants killed")
    return 1 if failures or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
