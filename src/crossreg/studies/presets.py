"""The paper's four regimes, and the methods, as named settings.

Each preset is a change of the default config, on 50 train trajectories of `diff_ks`:

    crossreg train --preset reference --steps 10000 --out runs/reference

What they reach is in `docs/results.md`. On two CPU cores 10,000 steps take one to two
minutes for a model with noise inside, a quarter of that for others.
"""

from collections.abc import Callable

from crossreg.config import Config
from crossreg.errors import InputError
from crossreg.methods import TRAINED, xreg


def reference(config: Config) -> Config:
    """XReg at 0.7 observed: five feature sites owned by ρ, σ_pred and σ_gen heads."""
    return TRAINED["xreg"](config).replace(observed_fraction=0.7)


def low_observation(config: Config) -> Config:
    """Head-level XReg at 0.3 observed: σ_pred and σ_gen heads, no internal noise."""
    return head_only(config).replace(observed_fraction=0.3)


def head_only(config: Config) -> Config:
    """Both branches at the output head, at 0.7 observed: what routing alone separates."""
    return xreg.configure(config, ("heads",)).replace(observed_fraction=0.7)


def unregularized(config: Config) -> Config:
    """No learned generalization noise, at 0.7 observed: a σ_pred head only, which keeps getting surer on train."""
    return TRAINED["unregularized"](config).replace(observed_fraction=0.7)


def dropout(config: Config) -> Config:
    """MC dropout with p = 0.1 at the five sites, at 0.7 observed."""
    return TRAINED["dropout"](config).replace(observed_fraction=0.7)


def protocol(config: Config) -> Config:
    """The reference regime as the paper trains it: Adam at 10⁻³ throughout, ρ on the moment-matched NLL every 5 steps,
    no σ_gen head, an unscaled start, 10 samples to score.

    log σ_pred starts at −2; `--log-sigma-pred-start -5` is the paper's, which ruins it under partial observation.
    """
    return reference(config).replace(
        learning_rate=1e-3,
        schedule="constant",
        scaled_start=False,
        log_sigma_pred_start=-2.0,
        evaluation_samples=10,
        reg_objective="moment-matched",
        generalization_head=False,
        settle=0.0,
        clip=0.0,
    )


# Steps of each model in the quickstart.
QUICKSTART_STEPS = 5_000
PRESETS: dict[str, Callable[[Config], Config]] = {
    "reference": reference,
    "low-observation": low_observation,
    "head-only": head_only,
    "unregularized": unregularized,
    "dropout": dropout,
    "protocol": protocol,
}


def preset(name: str) -> Config:
    """The config of a named preset."""
    if name not in PRESETS:
        raise InputError(f"--preset {name}: not one of {', '.join(PRESETS)}")
    return PRESETS[name](Config())
