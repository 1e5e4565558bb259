"""How often snapshots are written, and which of them a training may resume from. No JAX here."""

import math
from typing import NamedTuple

from crossreg.errors import InputError

SAVE_EVERY = 60.0


class Saving(NamedTuple):
    """When a training is saved and resumed.

    Attributes:
        every: Seconds between two snapshots.
        force: Whether to resume also from snapshots of another kind of machine.
    """

    every: float = SAVE_EVERY
    force: bool = False

    def checked(self) -> "Saving":
        """Return self after validation."""
        if not 0 <= self.every < math.inf:
            raise InputError(f"save_every is {self.every}: must be a number of seconds, 0 or more")
        return self


USUAL = Saving()
