"""The exception that tells users about bad input."""

_LONGEST = 1000


class InputError(ValueError):
    """Bad input, described in one line: which value, and what is allowed.

    The line names arguments as Python does, `observed_fraction is 2.0: must lie in (0, 1]`. The command line prints it
    with the flags in their place (`cli/flags.py`) and exits with code 2.

    Args:
        message: the description. Line breaks and control characters in it are replaced.
    """

    def __init__(self, message: str):
        super().__init__(in_one_line(message))


def in_one_line(text: str) -> str:
    """Return text without line breaks and control characters: a damaged file may put anything into it."""
    text = " ".join(text.splitlines())
    text = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
