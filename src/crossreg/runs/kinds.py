"""The kinds of folders that crossreg writes, told apart by their files. No JAX here."""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Literal

from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.files.yaml_files import LONGEST, parse_settings
from crossreg.runs.file_names import CONFIG, PLAN, SUMMARY, TEST_CARS

Kind = Literal["run", "quickstart", "sweep", "cars"]


def kind_of(folder: Path) -> Kind | None:
    """Return what a folder holds, finished or not.

    Args:
        folder: Any folder; one that does not exist holds nothing.

    Returns:
        `"run"` for `crossreg train`, `"sweep"` for `crossreg sweep`, `"cars"` for `crossreg car`, `"quickstart"` for a
        finished quickstart, whose runs lie in folders below it; None for anything else.

    Example:
        `if kind_of(folder) == "sweep": ...`
    """
    names = {name for name in (CONFIG, PLAN, SUMMARY, TEST_CARS) if (folder / name).exists()}
    return kind_by(names, read_sections(folder / CONFIG))


def kind_by(names: Container[str], settings: Mapping[str, Any]) -> Kind | None:
    """Return what a folder holds, given the names of its files and the sections of its `config.yaml`."""
    if PLAN in names:
        return "sweep"
    if TEST_CARS in names or "cars" in settings:
        return "cars"
    if CONFIG in names:
        return "run"
    return "quickstart" if SUMMARY in names else None


def read_sections(path: Path) -> dict[str, dict[str, Any]]:
    """Read the sections of a `config.yaml` of any version; empty where the file cannot be read."""
    try:
        return sections_in(read_regular(path, LONGEST + 1))
    except OSError:
        return {}


def sections_in(text: bytes) -> dict[str, dict[str, Any]]:
    """Return the sections of the text of a `config.yaml` of any version; empty where it is none."""
    try:
        return sections_of(parse_settings(text, CONFIG))
    except InputError:
        return {}


def sections_of(settings: Any) -> dict[str, dict[str, Any]]:
    """Return the sections of settings by name, without whatever is not a section."""
    found = settings.items() if isinstance(settings, dict) else ()
    return {str(name): fields for name, fields in found if isinstance(fields, dict)}
