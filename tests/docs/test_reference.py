"""Pages of the reference against the code: every setting with its default, every command, every file that is named."""

import dataclasses
import re
from pathlib import Path

import pytest

from crossreg.config import DataConfig, ModelConfig, TrainConfig
from crossreg.designs.presets import PRESETS
from crossreg.methods import xreg
from crossreg.methods.names import UNTRAINED, WRAPPERS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "crossreg"


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def table_of(heading: str) -> dict[str, str]:
    """The settings of a part of the page on configuration, with what it says of their defaults."""
    part = text_of("configuration.md").split(f"## {heading} ")[1].split("\n## ")[0]
    found: dict[str, str] = {}
    for line in part.splitlines():
        if not line.startswith("| `"):
            continue
        names, default, *_ = line.strip("| ").split(" | ")
        settings = re.findall(r"`(\w+)`", names)
        defaults = default.split(", ") if len(settings) > 1 else [default]
        found |= dict(zip(settings, defaults, strict=True))
    return found


def written(value: object) -> str:
    """A default as the page writes it."""
    if value is None:
        return "none"
    if value == ():
        return "all"
    if isinstance(value, bool | str):
        return f"`{str(value).lower() if isinstance(value, bool) else value}`"
    return f"{value:,}".replace("-", "−")


@pytest.mark.parametrize(
    ("heading", "group"), [("Data", DataConfig), ("Model", ModelConfig), ("Training", TrainConfig)]
)
def test_every_setting_is_on_its_page_with_its_default(heading: str, group: type):
    said = {name: default.removesuffix(" †") for name, default in table_of(heading).items()}
    assert said == {field.name: written(field.default) for field in dataclasses.fields(group)}


def test_every_preset_is_on_the_page_of_settings():
    part = text_of("configuration.md").split("## Presets")[1].split("\n## ")[0]
    assert {*PRESETS} <= {*re.findall(r"`([\w-]+)`", part)}


def test_every_word_of_a_method_is_on_the_page_of_methods():
    text = text_of("methods.md")
    words = {*re.findall(r"`\+?([\w-]+)", text)}
    assert {*xreg.VARIANTS, *WRAPPERS, *UNTRAINED} <= words


def test_every_command_is_on_the_page_of_the_command_line(capsys):
    from crossreg.cli.main import main

    main(["--help"])
    listed = re.findall(r"^  ([a-z]+)  ", capsys.readouterr().out, re.MULTILINE)
    assert len(listed) > 10
    assert {*listed} == {*re.findall(r"^\| `([a-z]+)", text_of("cli.md"), re.MULTILINE)}


@pytest.mark.parametrize("page", ["method.md", "extending.md", "glossary.md"])
def test_every_file_that_a_page_names_is_there(page: str):
    named = {*re.findall(r"`((?:tests/)?[a-z_]+/[a-z_/]*(?:\.py)?)`", text_of(page))}
    named = {name for name in named if name.endswith((".py", "/")) and name not in ("snapshots/", "trained/")}
    assert named
    missing = {name for name in named if not any((folder / name).exists() for folder in (PACKAGE, ROOT / "src", ROOT))}
    assert not missing
