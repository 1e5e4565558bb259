"""Early stopping: the state of each member at its lowest NLL on the held-out data that monitor training.

The training loop evaluates this NLL every `evaluate_every` steps and keeps the best state of every replica
(`training/loop.py`).
"""

import math
from typing import NamedTuple

from crossreg.nn.surrogate import Surrogate


class Trained(NamedTuple):
    """A trained replica, at its last step and at its lowest NLL on held-out data.

    Attributes:
        last: The model after the last step.
        best: The model at its lowest NLL on the held-out data that monitored training.
        best_nll: That NLL; infinite if it never was finite.
        diverged_at: The step at which training diverged, or -1.
    """

    last: Surrogate
    best: Surrogate
    best_nll: float
    diverged_at: int

    def model(self, *, early: bool) -> Surrogate:
        """Return the best model for early stopping, else the last one."""
        return self.best if early else self.last

    def failed(self, *, early: bool) -> bool:
        """Return whether that model is unusable.

        The last model is unusable if training diverged, the best one if its NLL never was finite.
        """
        return not math.isfinite(self.best_nll) if early else self.diverged_at >= 0
