"""MC dropout: element-wise dropout at the five sites, left on at prediction time.

`dropout` has p = 0.1, `dropout-0.2` has p = 0.2, and `dropout-reg` has the p of `RATES` with the lowest NLL on held-out
data.
"""

from crossreg.config import Config
from crossreg.methods.unregularized import configure as without_noise

RATE = 0.1
RATES = (0.01, 0.02, 0.05, 0.1, 0.2)


def configure(config: Config, rate: float = RATE) -> Config:
    """Return the config of MC dropout with this dropout rate.

    Training draws one sample per step, as is usual for dropout; trained on the S-sample mixture, it overfits badly.
    """
    return without_noise(config).replace(dropout_rate=rate, feature_noise="dropout", train_samples=1)
