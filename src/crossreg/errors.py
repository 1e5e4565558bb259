"""The exception that tells users about bad input, and warnings on the standard error."""

import difflib
import functools
import sys
from collections.abc import Iterable

_LONGEST = 1000


class InputError(ValueError):
    """Bad input, described in one line: which value, and what is allowed.

    The line names arguments as Python does, `observed_fraction is 2.0: must lie in (0, 1]`. The command line prints it
    with the flags in their place (`cli/flags.py`) and exits with code 2.

    Args:
        message: The description. Line breaks and control characters in it are replaced.

    Example:
        >>> xr.DataConfig(observed_fraction=2.0)
        Traceback (most recent call last):
        crossreg.errors.InputError: observed_fraction is 2.0: must lie in (0, 1]
    """

    def __init__(self, message: str):
        super().__init__(in_one_line(message))


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, most: int = 1) -> str:
    """Return the end of a message about a word that is not known: the words that are spelt like it, or `otherwise`."""
    close = difflib.get_close_matches(word, list(known), most)
    return f"; did you mean {' or '.join(close)}?" if close else otherwise


def say(text: str) -> None:
    """Print a line on the standard error."""
    print(f"crossreg: {text}", file=sys.stderr, flush=True)


@functools.cache
def warn(message: str) -> None:
    """Print a warning on the standard error, the same one once in a process."""
    say(f"warning: {message}")


def in_one_line(text: str) -> str:
    """Return text without line breaks and control characters: a damaged file may put anything into it."""
    text = " ".join(text.splitlines())
    text = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
