"""The order of packages: an edge against it fails `make lint`, also in a function; each package names its modules."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "crossreg"
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
AGAINST = {
    "data/load.py": ("crossreg.report", "looks"),
    "nn/build.py": ("crossreg.studies", "train"),
    "runs/safeguards/locks.py": ("crossreg.runs", "run_folder"),
}


def test_an_import_against_the_order_is_named(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "crossreg", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    places = []
    for name, (package, module) in AGAINST.items():
        path = tmp_path / "crossreg" / name
        path.write_text(f"{path.read_text()}\n\ndef hidden():\n    from {package} import {module}\n\n    {module}\n")
        importer = f"crossreg.{name.removesuffix('.py').replace('/', '.')}"
        places.append(f"- {importer} -> {package}.{module} (l.{len(path.read_text().splitlines()) - 2})")
    command = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-logo', '--no-cache'])"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "crossreg.data is not allowed to import crossreg.report:" in done.stdout
    assert "crossreg.nn is not allowed to import crossreg.studies:" in done.stdout
    assert "crossreg.runs.safeguards is not allowed to import crossreg.runs.run_folder:" in done.stdout
    for place in places:
        assert place in done.stdout


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_package_says_what_lives_in_it(package):
    """Every module and sub-package is named in the docstring of the package; of the whole, in its map."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    inside = [path for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = {path.stem for path in inside} - {"__init__", "__main__"}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()
