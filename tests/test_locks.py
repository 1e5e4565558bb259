"""What is installed is pinned with hashes, and by tools that are pinned too."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def entries(path: Path) -> dict[str, str]:
    """The requirements of a file by their names, each with its hashes."""
    text = re.sub(r"\\\n", " ", path.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {re.split(r"[ =;<>\[]", line, maxsplit=1)[0]: line for line in lines}


def test_every_requirement_has_one_version_and_hashes():
    for name in ("requirements.lock", "benchmarks/peers/requirements.txt"):
        for requirement, line in entries(ROOT / name).items():
            assert re.search(r"==\S+", line), requirement
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), requirement


def test_the_hashed_peers_are_those_that_are_asked_for():
    asked, hashed = (entries(ROOT / "benchmarks" / "peers" / f"requirements.{end}") for end in ("in", "txt"))
    torch = asked.pop("torch")
    assert re.fullmatch(r"torch==[\d.]+", torch)
    assert {name: line.split()[0] for name, line in hashed.items()} == asked


def test_nothing_is_installed_that_is_not_pinned():
    installs = re.findall(r"pip install (?:[^\n\\]|\\\n)*", (ROOT / "Makefile").read_text())
    assert len(installs) == 4
    for line in installs:
        assert "--require-hashes" in line or "--no-deps" in line, line
    # pip comes with the lock, and so does what writes the lock; nothing needs setuptools.
    locked = entries(ROOT / "requirements.lock")
    assert {"pip", "uv"} <= locked.keys()
    assert "setuptools" not in locked
