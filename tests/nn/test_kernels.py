"""The speed layer has one narrow interface: others import names from the package, and it imports nothing of theirs."""

import re
from pathlib import Path

import crossreg

SOURCE = Path(crossreg.__file__).parent
KERNELS = SOURCE / "nn" / "kernels"


def test_nothing_outside_imports_from_the_modules_of_the_speed_layer():
    deeper = re.compile(r"crossreg\.nn\.kernels\.")
    files = [path for path in SOURCE.rglob("*.py") if KERNELS not in path.parents]
    assert len(files) > 100
    assert not [str(path) for path in files if deeper.search(path.read_text())]


def test_the_speed_layer_imports_nothing_else_of_the_package():
    imported = re.compile(r"^\s*(?:from|import) (crossreg[\w.]*)", re.MULTILINE)
    names = {name for path in KERNELS.glob("*.py") for name in imported.findall(path.read_text())}
    assert names
    assert all(name.startswith("crossreg.nn.kernels.") for name in names)
