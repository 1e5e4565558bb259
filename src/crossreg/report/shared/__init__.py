"""What the pages of `crossreg report`, `watch` and `car` have in common.

palette.css   the colours by day and by night
base.css      type, tables, choices and figures
theme.js      which of the two, as the system has it or as the reader chooses
draw.js       elements, numbers as people write them, axes, and how methods look
chart.js      line charts, histograms and marks as SVG, with values to read and curves to switch
"""

from importlib import resources


def shared_file(name: str) -> str:
    """One of these files."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


STYLES = ("palette.css", "base.css")
SCRIPTS = ("draw.js", "chart.js")


def shared_style() -> str:
    """The style that every page begins with."""
    return "".join(map(shared_file, STYLES))


def shared_scripts() -> str:
    """The functions that draw; a page's own script follows."""
    return "".join(map(shared_file, SCRIPTS))
