"""What a validator or a reader may do: give something, or refuse in one line."""

from collections.abc import Callable
from typing import Any

from crossreg.errors import InputError


class Refused(str):
    """The line of an `InputError`."""


def outcome(check: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a call gives, or the line by which it refuses; nothing else may happen."""
    try:
        return check(*arguments, **options)
    except InputError as error:
        line = Refused(error)
    assert line.isprintable()
    assert len(line) <= 1000
    return line
