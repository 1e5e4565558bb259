"""Noise inside the network that θ and ψ learn on train alone, by the CRPS: the way of probabilistic weather models.

Nothing is held out, so nothing tells this noise how wrong the model is on new data. `train-noise-rollout` learns from
rollouts at the end of training, as these models are fine-tuned. The noise is bounded as that of `xreg-rollout`.
"""

from crossreg.config import Config
from crossreg.methods.unregularized import configure as without_noise
from crossreg.methods.xreg import ROLLOUT_SETTLE, unless_given

ROLLOUT_STEPS = 10


def configure(config: Config, rollout_steps: int = 1) -> Config:
    """Return the config of noise that ψ owns at the five sites, with a σ_pred head and the CRPS on train."""
    settle = {"settle": ROLLOUT_SETTLE} if rollout_steps > 1 else {}
    config = unless_given(config, {"site_learning_rate": 1e-2} | settle)
    return without_noise(config).replace(
        feature_noise="predictive",
        log_sigma_max=-0.7,
        train_objective="crps",
        train_rollout_steps=rollout_steps,
        train_samples=10,
        antithetic=False,
    )
