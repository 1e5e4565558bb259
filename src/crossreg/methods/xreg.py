"""Cross-regularized uncertainty: generalization noise learned on the reg split."""

from crossreg.config import Config


def configure(config: Config) -> Config:
    """The reference variant: five feature sites owned by ρ, σ and ε per channel, a σ_pred head,
    no σ_gen head, moment-matched reg objective."""
    return config.replace(
        feature_noise="generalization",
        sites=(),
        sigma_per="channel",
        epsilon_per="channel",
        mode_noise="none",
        generalization_head=False,
        train_samples=None,
        reg_objective="moment-matched",
    )
