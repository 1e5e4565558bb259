"""MC dropout: element-wise dropout at the five sites, kept on when predicting.

`dropout` has p = 0.1, `dropout-0.2` the p it names, and `dropout-reg` the p of `RATES` with the lowest NLL on held-out
data.
"""

from crossreg.config import Config
from crossreg.methods.unregularized import configure as without_noise

RATE = 0.1
RATES = (0.01, 0.02, 0.05, 0.1, 0.2)


def configure(config: Config, rate: float | None = None) -> Config:
    """Trains on one sample per step, as dropout is used; on the S-sample mixture it overfits badly."""
    config = without_noise(config).replace(feature_noise="dropout", train_samples=1)
    return config if rate is None else config.replace(dropout_rate=rate)
