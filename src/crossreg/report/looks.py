"""The look of a method in every figure and on every page, and the order of methods in tables and legends.

Methods of a family share a colour. A look is a place in the palette and the number of earlier methods that have this
colour; markers, dashes and shades follow from the number. Pages have the palette as variables (`shared/palette.css`),
figures as `COLORS`.
"""

from collections.abc import Iterable
from typing import NamedTuple

# Okabe and Ito's palette, which colour-blind readers can tell apart too.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
FAMILIES = ("xreg", "dropout", "ensemble", "unregularized", "fixed-noise", "persistence")


class Look(NamedTuple):
    """A place in the palette, and the number of methods before this one that have the same colour."""

    color: int
    number: int


def family_of(method: str) -> int | None:
    """Return the place of a method's family, which is also that of its colour; None for a name of no family."""
    return next((place for place, family in enumerate(FAMILIES) if method.startswith(family)), None)


def family_place(method: str) -> int:
    """Return the place of a method's family in tables and legends; names of no family come last."""
    family = family_of(method)
    return len(FAMILIES) if family is None else family


def looks_of(methods: Iterable[str]) -> dict[str, Look]:
    """Return the look of each method. A name of no family gets a colour that no other has, as long as there is one."""
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
    """Return names by family, XReg first; names of no family last, in the order given."""
    return sorted(dict.fromkeys(methods), key=family_place)
