"""The command line: flags to settings (`flags`, `commands`), and what each command does (`actions`).

May import every other package; nothing imports this one.
"""

from crossreg.cli.main import run as run
