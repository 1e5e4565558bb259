"""The command line.

main         parses, runs a command, and turns an `InputError` into one line and an exit code
commands     the flags of each command, as dataclasses; those that are settings come from `config` and `designs`
flags        the flags' defaults; messages about settings, which Python code names by field, reworded with flags
actions      what each command does
quickstart   `crossreg quickstart`

A value that is not allowed is found where the setting is defined (`config/settings.py`, checked by
`config/field_types.py`); a flag that does not exist or cannot be read, in `main`.

May import every other package; nothing imports this one.
"""

from crossreg.cli.main import run as run
