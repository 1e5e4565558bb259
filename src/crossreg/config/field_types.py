"""What a field of settings may hold: its type, its choices, and numbers that can be computed with. No JAX here."""

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
# Values in errors, of which a file may hold any length.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: object) -> str:
    """A value as it can stand in a line."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python does not write it in digits
        return "a number of thousands of digits"


def check(holds: bool, name: str, value: object, allowed: str) -> None:
    """Refuses a field that does not hold what it may, in the words of its flag."""
    if not holds:
        flag = "--" + name.replace("_", "-")
        raise InputError(f"{flag} {value}: {allowed}")


def check_fields(config: Any) -> None:
    """Refuses a value that is not of its field's type, not among its choices, or no number that can be computed with.

    Values of equal meaning, as a NumPy integer, become those of the type.
    """
    for known in dataclasses.fields(config):
        kind = typing.get_args(known.type)[0] if hasattr(known.type, "__metadata__") else known.type
        if dataclasses.is_dataclass(kind):
            continue
        value = getattr(config, known.name)
        flag = "--" + known.name.replace("_", "-")
        choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
        if choices and value not in choices:
            raise InputError(f"{flag} {value}: must be one of {', '.join(map(str, choices))}")
        if (fitting := typed(value, kind, flag)) is not value:
            object.__setattr__(config, known.name, fitting)
        if type(fitting) is int and abs(fitting) > _LARGEST:
            raise InputError(f"{flag} {shown(fitting)}: must lie in 0 … {_LARGEST}")
        if type(fitting) is float and not math.isfinite(fitting):
            raise InputError(f"{flag} {fitting}: must be finite")


def check_seed(name: str, value: int) -> None:
    """Refuses a seed that has no 31 bits."""
    check(0 <= value < 2**31, name, value, "must lie in 0 … 2147483647")


def typed(value: Any, kind: Any, where: str) -> Any:
    """`value` if it is of the annotated type; YAML reads 1 where a float is meant."""
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
    """A type, as one would say it."""
    if typing.get_origin(option) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(option)))}"
    if typing.get_origin(option) is tuple:
        return "a list, [a, b]"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return names.get(option, str(option))
