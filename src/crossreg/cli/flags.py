"""A command's flags, made from dataclasses of settings: with other defaults, and without fields that it hides.

A command holds its settings in a field `settings`. Names and help texts of the flags are those of the fields, so there
is no second list of them. Imports no JAX.
"""

import argparse
import dataclasses
import functools
import re
from collections.abc import Collection
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any, TypeVar

import tyro

from crossreg.cli import commands
from crossreg.config import default_settings
from crossreg.designs.car_study import CarStudy
from crossreg.errors import InputError
from crossreg.studies.launchers.settings import Workers

Settings = TypeVar("Settings")
# Arguments that begin a message together with a file or an item: `data u.npy: …`, `method nobody: …`.
_FIRST = re.compile(r"(data|figure|grid|input|mask|methods?|out|output|picture|where) ")
# An argument in backticks, alone or with a value: `axes` or `axes='btx'`.
_QUOTED = re.compile(r"`(\w+)(?:=['\"]?([^`'\"]*)['\"]?)?`")


def in_flags(message: str) -> str:
    """Return the message of an `InputError` with flags in place of the names of arguments.

    Messages name arguments as Python does, in the forms that are replaced here: `train_size is 9 and reg_size is 3: …`,
    `data u.npy: …`, and, anywhere, an argument in backticks.
    """
    head, colon, rest = message.partition(": ")
    if head.partition(" is ")[0] in _arguments():
        head = re.sub(
            r"(^|, | and )(\w+) is ", lambda f: f"{f[1]}{_flag(f[2])} " if f[2] in _arguments() else f[0], head
        )
    elif _FIRST.match(head) and not Path(head).exists():  # not the name of a folder
        head = f"--{head}"
    return quoted_in_flags(f"{head}{colon}{rest}")


def quoted_in_flags(text: str) -> str:
    """Return text with flags in place of arguments in backticks, with a value or without."""

    def flagged(found: re.Match[str]) -> str:
        return " ".join(filter(None, (_flag(found[1]), found[2]))) if found[1] in _arguments() else found[0]

    return _QUOTED.sub(flagged, text)


@functools.cache
def _arguments() -> frozenset[str]:
    kinds = [CarStudy, Workers, *(kind for kind in vars(commands).values() if dataclasses.is_dataclass(kind))]
    return frozenset([*default_settings(), *(known.name for kind in kinds for known in dataclasses.fields(kind))])


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def read_first(arguments: list[str], **flags: Any) -> argparse.Namespace:
    """Read the flags that set the defaults of all others, before these are read.

    Args:
        arguments: The command's arguments.
        **flags: Names and defaults of the flags to read. Their values are checked later: the command has them too.

    Returns:
        The value of each flag.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name, default in flags.items():
        first.add_argument(f"--{name}", default=default)
    try:
        return first.parse_known_args(arguments)[0]
    except argparse.ArgumentError as error:
        raise InputError(f"{error.argument_name}: {error.message}") from error


def with_settings(command: type, settings: Any, *, hidden: Collection[str] = ()) -> type:
    """Return the command with the defaults of `settings`, in which the fields named in `hidden` are no flags."""
    start = _hiding(settings, hidden) if hidden else settings
    changed = [("settings", type(start), field(default_factory=lambda: start))]
    return make_dataclass(
        command.__name__, changed, bases=(command,), frozen=True, namespace={"__doc__": command.__doc__}
    )


def _hiding(settings: Any, hidden: Collection[str]) -> Any:
    """Return the settings as instances of classes in which the hidden fields are no flags, also in nested settings."""
    kind, values = type(settings), dict(vars(settings))
    changed: list[Any] = []
    for known in dataclasses.fields(settings):
        value = values[known.name]
        if known.name in hidden:
            changed.append((known.name, tyro.conf.Suppress[known.type], field(default=value)))  # pyright: ignore[reportInvalidTypeArguments]
        elif dataclasses.is_dataclass(value):
            values[known.name] = inner = _hiding(value, hidden)
            changed.append((known.name, type(inner), field(default_factory=lambda inner=inner: inner)))
    made = make_dataclass(kind.__name__, changed, bases=(kind,), frozen=True, namespace={"__doc__": kind.__doc__})
    return made(**values)


def plain(settings: Settings) -> Settings:
    """Return settings that were read from flags as instances of their original classes."""
    values = {k: plain(v) if dataclasses.is_dataclass(v) else v for k, v in vars(settings).items()}
    return type(settings).__bases__[0](**values)
