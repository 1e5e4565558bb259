"""The one exception a user meets for bad input."""

_LONGEST = 1000


class InputError(ValueError):
    """Bad input, told in one line: which value, and what is allowed.

    The command line prints the line and exits with code 2; in Python it is a `ValueError`.
    """

    def __init__(self, message: str):
        super().__init__(in_one_line(message))


def in_one_line(text: str) -> str:
    """The text without line breaks or what else a terminal would act on: a damaged file may put anything into it."""
    text = " ".join(text.splitlines())
    text = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
