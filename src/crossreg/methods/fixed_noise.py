"""Noise of one given size behind the lift, h ↦ h ⊙ (1 + σε): what a user would do without learning it.

`fixed-noise` has σ = 0.1, `fixed-noise-0.3` the σ it names.
"""

from crossreg.config import Config
from crossreg.methods.unregularized import configure as without_noise

SIGMA = 0.1


def configure(config: Config, sigma: float = SIGMA) -> Config:
    """Trains on one sample per step, as MC dropout does."""
    return without_noise(config).replace(lift_noise=sigma, train_samples=1)
