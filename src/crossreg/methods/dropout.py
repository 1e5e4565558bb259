"""MC dropout: element-wise dropout at the five sites, kept on when predicting."""

from crossreg.config import Config


def configure(config: Config) -> Config:
    """Trains on one sample per step, as dropout is used; on the S-sample mixture it overfits badly."""
    return config.replace(
        feature_noise="dropout",
        sites=(),
        mode_noise="none",
        generalization_head=False,
        train_samples=1,
    )
