"""Noise of one fixed size after the lift, h ↦ h ⊙ (1 + σε): the simplest alternative to learning its size.

`fixed-noise` has σ = 0.1, `fixed-noise-0.3` has σ = 0.3.
"""

from crossreg.config import Config
from crossreg.methods.unregularized import configure as without_noise

SIGMA = 0.1


def configure(config: Config, sigma: float = SIGMA) -> Config:
    """Return the config of noise of size `sigma`; training draws one sample per step, as for MC dropout."""
    return without_noise(config).replace(lift_noise=sigma, train_samples=1)
