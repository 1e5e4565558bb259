"""The command line.

main            parses, runs a command, and turns an `InputError` into one line and an exit code
commands        the flags of each command, as dataclasses; a flag's help is the string below its field
flags           the flags' defaults; messages about settings, which Python code names by field, reworded with flags
train_actions   what the commands that train do: train, sweep and car; also plan
actions         what the other commands do, with what was trained
quickstart      `crossreg quickstart`

Flags that are settings have their help where the setting is defined: of training in `config/settings.py`, of cars in
`designs/car_study.py`, of workers and plans in `studies/launchers/settings.py` and `studies/planning/settings.py`. A
value that is not allowed is found there too (checked by `config/field_types.py`); a flag that does not exist or cannot
be read, in `main`.

May import every other package; nothing imports this one.
"""

from crossreg.cli.main import run as run
