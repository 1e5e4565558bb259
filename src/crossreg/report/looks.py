"""How a method looks in every figure and on every page: methods of a family share its colour.

A look is a place in the palette and how many methods before it have that colour already; marks, dashes and shades
follow from the second. Pages have the palette as variables (`shared/palette.css`), figures as `COLORS`.
"""

from collections.abc import Iterable
from typing import NamedTuple

# Okabe and Ito's palette: told apart by colour-blind readers too.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
FAMILIES = ("xreg", "dropout", "ensemble", "unregularized", "fixed-noise", "persistence")


class Look(NamedTuple):
    """A place in the palette, and the number of methods before this one that stand there too."""

    color: int
    number: int


def family_of(method: str) -> int | None:
    """The place of a method's family, which is that of its colour; None for a name of no family."""
    return next((place for place, family in enumerate(FAMILIES) if method.startswith(family)), None)


def looks_of(methods: Iterable[str]) -> dict[str, Look]:
    """The look of each method. A name of no family gets a colour that none of the others has, while there is one."""
    families = {name: family_of(name) for name in methods}
    taken = set(families.values())
    free = [place for place in range(len(COLORS)) if place not in taken] or list(range(len(COLORS)))
    strangers = [name for name, family in families.items() if family is None]
    seen = [0] * len(COLORS)
    looks = {}
    for name, family in families.items():
        place = free[strangers.index(name) % len(free)] if family is None else family
        looks[name] = Look(place, seen[place])
        seen[place] += 1
    return looks


def in_order(methods: Iterable[str]) -> list[str]:
    """Names by family, ours first; those of no family last, in their own order."""
    places = {name: len(FAMILIES) if (family := family_of(name)) is None else family for name in methods}
    return sorted(places, key=lambda name: places[name])
