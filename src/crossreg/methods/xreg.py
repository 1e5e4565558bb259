"""Cross-regularized uncertainty: generalization noise learned on the reg split, and its variants.

`xreg` is the default method. `xreg-A-B-…` changes it by the words of `VARIANTS`: `xreg-layer-element` has one σ per
site and one ε per element, `xreg-heads` has no noise inside the network. `xreg-ensemble` pools three models.
"""

from typing import Any

from crossreg.config import Config, TrainConfig

# Ten independent samples of whole batches in every update, and the paper's rate of the noise sites. Likelihoods on reg
# need them: few samples bias these, and opposite noise is not independent.
INDEPENDENT: dict[str, Any] = {
    "num_samples": 10,
    "train_samples": None,
    "antithetic": False,
    "reg_batch_size": 16,
    "settle": 0.1,
    "site_learning_rate": 1e-2,
}
_LIKELIHOODS = ("fair", "moment-matched", "mixture")
# The share of a run in which rollouts are learned from: these were measured in the last tenth.
ROLLOUT_SETTLE = 0.1
# Each entry answers one question, so that a name has at most one word of each.
CHOICES: tuple[dict[str, dict[str, Any]], ...] = (
    {  # where the noise acts: on features, at the output, on both, or on Fourier modes
        "internal": {"feature_noise": "generalization", "generalization_head": False},
        "heads": {"feature_noise": "none", "generalization_head": True},
        "both": {"feature_noise": "generalization", "generalization_head": True},
        "modes": {"feature_noise": "none", "generalization_head": False, "mode_noise": "generalization"},
    },
    {"channel": {"sigma_per": "channel"}, "layer": {"sigma_per": "layer"}},
    {"element": {"epsilon_per": "element"}},
    # What ρ learns from at the end; before its objective, which another word may then name.
    {"rollout": {"reg_horizon": 10, "lead_growth": True, "reg_objective": "crps", "log_sigma_max": -0.7}},
    {  # what ρ minimises
        "scaled": {"reg_objective": "scaled-crps"},
        "crps": {"reg_objective": "crps"},
        "fair": {"reg_objective": "fair"},
        "mm": {"reg_objective": "moment-matched"},
        "mixture": {"reg_objective": "mixture"},
    },
)
VARIANTS = {word: changes for choice in CHOICES for word, changes in choice.items()}


def unless_given(config: Config, settings: dict[str, Any]) -> Config:
    """Return a config with settings of training, but for those that it has other values of than the defaults."""
    default = TrainConfig()
    return config.replace(**{k: v for k, v in settings.items() if getattr(config.train, k) == getattr(default, k)})


def canonical_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that change the config, in the order in which they are applied."""
    kept: tuple[str, ...] = ()
    for word in sorted(words, key=list(VARIANTS).index):
        if configure(Config(), (*kept, word)) != configure(Config(), kept):
            kept = (*kept, word)
    return kept


def configure(config: Config, words: tuple[str, ...] = ()) -> Config:
    """Return the config of XReg.

    By default it has five feature sites whose noise belongs to ρ, one σ and one ε per channel, σ_pred and σ_gen heads,
    and ρ learned on the scaled CRPS. The paper's reference has no σ_gen head and the moment-matched objective:
    `words=("internal", "mm")`.

    Args:
        config: The settings to start from.
        words: Variants to apply, keys of `VARIANTS`.
    """
    config = config.replace(
        feature_noise="generalization",
        sites=(),
        sigma_per="channel",
        epsilon_per="channel",
        mode_noise="none",
        lift_noise=0.0,
        generalization_head=True,
        train_samples=TrainConfig.train_samples if config.train.antithetic else None,
        train_objective="likelihood",
        train_rollout_steps=1,
        reg_objective="scaled-crps",
    )
    for word in sorted(words, key=list(VARIANTS).index):
        config = config.replace(**VARIANTS[word])
    if config.train.reg_horizon > 1:
        config = unless_given(config, {"settle": ROLLOUT_SETTLE})
    return unless_given(config, INDEPENDENT) if config.train.reg_objective in _LIKELIHOODS else config
