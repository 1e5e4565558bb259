"""What pages say of settings and constants, read from the code."""

import math
import re

from claimed import part_of

from crossreg.config import Config
from crossreg.data.files import check, split
from crossreg.data.formats import axes
from crossreg.designs.grids import ALL_METHODS, NAMES, OBSERVED, TRAIN_SIZES, default_steps, plan
from crossreg.methods import readout, train_noise
from crossreg.methods.names import config_of
from crossreg.nn.groups import Psi, Rho
from crossreg.nn.heads import GeneralizationHead, PredictiveHead
from crossreg.nn.noise import GeneralizationScale, PredictiveScale
from crossreg.predictive.mixture import Mixture

ROLLOUT = config_of("xreg-rollout", Config())


def the_three_groups() -> str:
    assert all(issubclass(part, Psi) for part in (PredictiveHead, PredictiveScale))
    assert all(issubclass(part, Rho) for part in (GeneralizationHead, GeneralizationScale))
    return """the backbone θ and the predictive noise ψ learn on the train split; the generalization noise ρ learns only
        from gradients of a held-out *regularization* split"""


def the_parts_of_the_variance() -> str:
    """The formulas beside the code, which `tests/test_predictive.py` checks by cases."""
    parts = [getattr(Mixture, f"var_{part}").fget.__doc__ for part in ("predictive", "generalization")]
    pred, gen = (re.findall(r"\$(U_\{.*?)[.]?\$", doc)[0] for doc in parts)
    return rf"U_{{tot}} = U_{{pred}} + U_{{gen}}, \qquad {pred}, \qquad {gen} $$"


def the_default_split() -> str:
    reg, test = split._REG_SHARE, split._TEST_SHARE
    return f"""By default {1 - reg - test:.0%} of the trajectories go to train, {reg:.0%} to reg and {test:.0%} to test,
        at least one to each"""


def a_small_reg_split() -> str:
    return f"a reg split of fewer than {check._FEW_IN_REG} trajectories: ρ learns from these alone"


def the_channels_that_are_refused() -> str:
    return f"more than {axes._MOST_CHANNELS} channels; more than {axes._FEW_CHANNELS}, if that is also more than half"


def the_bound_of_the_noise() -> str:
    bounds = {config.model.log_sigma_max for config in (ROLLOUT, config_of("train-noise-rollout", Config()))}
    [bound] = {round(math.exp(bound), 1) for bound in bounds}
    return f"bounds the σ of the noise sites by {bound}. ## Noise learned on train"


def the_rollouts_of_noise_learned_on_train() -> str:
    return f"""in the last tenth of its training it minimises the fair CRPS of rollouts of {train_noise.ROLLOUT_STEPS}
        steps on train, averaged over the leads. As in `xreg-rollout`, the σ of the sites is at most
        {math.exp(ROLLOUT.model.log_sigma_max):.1f}."""


def the_steps_of_growth_in_sweeps() -> str:
    return f"take {readout.ROLLOUT_HORIZON}, or as many as the reg trajectories have."


def the_wrapper_growth() -> str:
    return f"to rollouts on held-out trajectories: {readout.ROLLOUT_HORIZON} steps, or as many as these have |"


def the_methods_of_all() -> str:
    return f"In sweeps `all` is {len(ALL_METHODS.split(','))} of the methods above"


def the_named_sweeps() -> str:
    """The table, with all that can be planned put in; what it says in words stays."""
    fractions = ", ".join(str(regime["observed_fraction"]) for regime in OBSERVED)
    sizes = ", ".join(str(regime["train_size"]) for regime in TRAIN_SIZES)
    every = len(ALL_METHODS.split(","))
    said = {
        "paper-observed": [f"{fractions} observed, {OBSERVED[0]['train_size']} trajectories", None],
        "paper-train-size": [f"{TRAIN_SIZES[0]['observed_fraction']} observed, {sizes} trajectories", None],
        "paper": ["both", f"the same; `--methods all` has {every}"],
    }
    rows = []
    for line in part_of("docs/sweeps.md", "| `paper-observed`", "\n\n").splitlines():
        name, regimes, methods, _, _ = (cell.strip() for cell in line.strip("|").split("|"))
        name = name.strip("`")
        own = said.get(name, [None, None])
        count = "" if name == "grid" else str(len(plan(name, seeds=1)))
        count += f" ({len(plan(name, seeds=1, methods='all'))})" if name == "paper" else ""
        cells = (f"`{name}`", own[0] or regimes, own[1] or methods, count, f"{default_steps(name):,}")
        rows.append(f"| {' | '.join(cells)} |")
        assert name in NAMES
    assert len(rows) == len(NAMES)
    return "\n".join(rows).replace("|  |", "| |")
