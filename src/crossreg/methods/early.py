"""Early stopping: each member where it had its lowest NLL on the held-out data it was monitored on.

The training loop keeps that state of every replica as it goes (`training/loop.py`), every `evaluate_every` steps.
"""

import math
from typing import NamedTuple

from crossreg.nn.surrogate import Surrogate


class Trained(NamedTuple):
    """A trained replica: at its last step, and at its lowest NLL on the held-out data it was monitored on."""

    last: Surrogate
    best: Surrogate
    best_nll: float
    diverged_at: int

    def model(self, *, early: bool) -> Surrogate:
        """The model that a method uses."""
        return self.best if early else self.last

    def failed(self, *, early: bool) -> bool:
        """Whether the model is none: the training diverged, or, stopped early, it never had a finite NLL to stop at."""
        return not math.isfinite(self.best_nll) if early else self.diverged_at >= 0
