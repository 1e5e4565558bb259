"""The backbone with a σ_pred head, no noise inside, and nothing learned on reg."""

from crossreg.config import Config


def configure(config: Config) -> Config:
    """Return the config without any noise, so that one sample is the whole mixture."""
    return config.replace(
        feature_noise="none",
        sites=(),
        mode_noise="none",
        lift_noise=0.0,
        generalization_head=False,
        lead_growth=False,
        train_samples=None,
        train_objective="likelihood",
        train_rollout_steps=1,
    )
