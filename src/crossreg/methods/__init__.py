"""The methods that are compared, one file each.

A trained method is a change of a config: which noise stands where, who learns it, and how
many samples training draws. All of them run through the same loop and end in the same
mixture.
"""

from collections.abc import Callable

from crossreg.config import Config
from crossreg.methods import dropout, unregularized, xreg

TRAINED: dict[str, Callable[[Config], Config]] = {
    "xreg": xreg.configure,
    "dropout": dropout.configure,
    "unregularized": unregularized.configure,
}
