"""How often a training is saved, and what it may go on from. No JAX here."""

import math
from typing import NamedTuple

from crossreg.errors import InputError

SAVE_EVERY = 60.0


class Saving(NamedTuple):
    """Seconds between two snapshots; `force` goes on also from those of another kind of machine."""

    every: float = SAVE_EVERY
    force: bool = False

    def checked(self) -> "Saving":
        """Itself, if it can be."""
        if not 0 <= self.every < math.inf:
            raise InputError(f"--save-every {self.every}: must be a number of seconds, 0 or more")
        return self


USUAL = Saving()
