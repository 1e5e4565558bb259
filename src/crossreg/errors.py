"""The one exception a user meets for bad input."""


class InputError(ValueError):
    """Bad input, told in one line: which value, and what is allowed.

    The command line prints the line and exits with code 2; in Python it is a `ValueError`.
    """
