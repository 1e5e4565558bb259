"""Checks of the fields of settings: types, choices, and numbers that can be computed with. Does not import JAX."""

import contextlib
import dataclasses
import math
import numbers
import reprlib
import typing
from typing import Any, Literal

from crossreg.errors import InputError

# Steps and seeds are counted in 32 bits.
_LARGEST = 2**31 - 1
# Values are shortened in errors: those in a file may have any length.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: object) -> str:
    """Return a value as text that fits into a line."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to write so many digits
        return "a number of thousands of digits"


def check(holds: bool, name: str, value: object, allowed: str) -> None:
    """Raise InputError about the value of a field, unless the condition holds."""
    if not holds:
        raise InputError(f"{name} is {value}: {allowed}")


def check_fields(config: Any) -> None:
    """Raise InputError if a field has a value of another type, not among its choices, or too large or not finite.

    Values of equivalent types, such as a NumPy integer, are converted in place.
    """
    for known in dataclasses.fields(config):
        kind = typing.get_args(known.type)[0] if hasattr(known.type, "__metadata__") else known.type
        if dataclasses.is_dataclass(kind):
            continue
        value = getattr(config, known.name)
        choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
        if choices and value not in choices:
            raise InputError(f"{known.name} is {value}: must be one of {', '.join(map(str, choices))}")
        if (fitting := typed(value, kind, known.name)) is not value:
            object.__setattr__(config, known.name, fitting)
        if type(fitting) is int and abs(fitting) > _LARGEST:
            raise InputError(f"{known.name} is {shown(fitting)}: must lie in 0 … {_LARGEST}")
        if type(fitting) is float and not math.isfinite(fitting):
            raise InputError(f"{known.name} is {fitting}: must be finite")


def check_seed(name: str, value: int) -> None:
    """Raise InputError unless a seed is between 0 and 2³¹ − 1."""
    check(0 <= value < 2**31, name, value, "must lie in 0 … 2147483647")


def typed(value: Any, kind: Any, where: str) -> Any:
    """Return `value` as the annotated type.

    Args:
        value: any value; YAML reads 1 where a float is meant.
        kind: the annotation of a field.
        where: what errors call the field.

    Raises:
        InputError: if the value is of another type.
    """
    import types

    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for option in options:
        if option is type(None) and value is None:
            return None
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if typing.get_origin(option) is tuple and isinstance(value, list | tuple):
            return tuple(str(v) for v in value)
        if option is float and not isinstance(value, bool):
            # YAML 1.1 reads 1 as an integer and 1e-3 as text.
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                return float(value)
        if option is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
            return int(value)
        if isinstance(option, type) and type(value) is option:
            return value
    raise InputError(f"{where} is {shown(value)}; expected {' or '.join(map(_kind, options))}")


def _kind(option: Any) -> str:
    """Return a type in words."""
    if typing.get_origin(option) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(option)))}"
    if typing.get_origin(option) is tuple:
        return "a list, [a, b]"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return names.get(option, str(option))
