"""What the pages of `crossreg report`, `watch` and `car` have in common.

stored.py     readers of files in run folders, which may hold anything
html.py       lists of names and values
palette.css   the colours by day and by night
base.css      type, tables, choices and figures
theme.js      the colours of the system, or those that the reader chooses
draw.js       elements, numbers as people write them, tables, axes, and how methods look
chart.js      line charts, histograms and dots as SVG, with values to read and curves to switch

May import what `report` may, and nothing else of `report`.
"""

from importlib import resources

STYLES = ("palette.css", "base.css")
SCRIPTS = ("draw.js", "chart.js")


def package_file(package: str, name: str) -> str:
    """Return the text of a page, a style or a script, by its path inside a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def shared_file(name: str) -> str:
    """Return one of the files above."""
    return package_file(__name__, name)


def shared_style() -> str:
    """Return the style that every page begins with."""
    return "".join(map(shared_file, STYLES))


def shared_scripts() -> str:
    """Return the functions that draw; a page's own script follows them."""
    return "".join(map(shared_file, SCRIPTS))
