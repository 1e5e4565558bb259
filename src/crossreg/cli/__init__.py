"""The command line.

main         parses, runs a command, and turns an `InputError` into one line and an exit code
commands     the flags of each command, as dataclasses; those that are settings come from `config` and `designs`
flags        defaults of flags; messages that name settings, reworded to name flags
actions      what each command does
quickstart   `crossreg quickstart`

Values that are not allowed are found where the setting is defined (`config/settings.py`, `config/field_types.py`);
flags that do not exist or cannot be read, in `main`.

May import every other package; nothing imports this one.
"""

from crossreg.cli.main import run as run
