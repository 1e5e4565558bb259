"""What the page of choices says of runs on the way to the defaults: `experiments.jsonl`, and the ablation."""

import numpy as np
from claimed import WORDS, ahead, gap, groups, rows, short, where
from scipy.stats import t
from summed_up import CHANCE, ECE, FULL, NLL

from crossreg.config import TrainConfig
from crossreg.designs.grids import OBSERVED, TRAIN_SIZES
from crossreg.designs.paper import TRAINING
from crossreg.metrics.intervals import Interval
from crossreg.report.tables.comparison import collect
from crossreg.report.tables.verdicts import against_default

REGIMES = [(regime["observed_fraction"], regime["train_size"]) for regime in OBSERVED + TRAIN_SIZES]
NAMED_FILE = "`results/experiments.jsonl`"


def runs_of(experiment: str, regime: tuple[float, int] | None = None) -> list[dict]:
    """The runs of an experiment, in all regimes or in one."""
    found = [row for row in rows("experiments") if row["experiment"] == experiment]
    assert found
    assert not any(row["diverged"] for row in found)
    return [row for row in found if regime in (None, (row["observed_fraction"], row["train_size"]))]


def scores(experiment: str, score: str, regime: tuple[float, int]) -> list[float]:
    return [row["test"][score] for row in runs_of(experiment, regime)]


def draws_outside_the_range() -> str:
    few = TRAINING["evaluation_samples"]
    draws = np.random.default_rng(0).normal(size=(200_000, few + 1))
    further, seen = draws[:, 0], draws[:, 1:]
    outside = np.mean((further < seen.min(1)) | (further > seen.max(1))) * (few + 1)
    assert abs(outside - round(outside)) < 0.02
    return f"""Predictions are scored with {TrainConfig.evaluation_samples} samples (`evaluation_samples`); the paper
        has {few} throughout. A mixture of few samples lacks tails: where the spread of the means is most of the
        uncertainty, {round(outside)}/{few + 1} of all further draws lie outside the range of {few}."""


def runs_that_differ_in_rounding() -> str:
    experiments, few = ("engine: reference", "engine: fused", "settling: CRPS, none"), (0.7, 20)
    [seeds] = {tuple(sorted(row["seed"] for row in runs_of(e, few))) for e in experiments}
    eces = [short(float(np.mean(scores(e, "ece_mix", few))), 3) for e in experiments]
    return f"""A mean over {WORDS[len(seeds)]} seeds is uncertain: an earlier default, the CRPS without settling, was
        chosen because on {len(seeds)} seeds it alone had an ECE below .02 everywhere; with {few[1]} trajectories,
        {WORDS[len(eces)]} runs of these seeds that differ in rounding gave {", ".join(eces[:-1])} and {eces[-1]}
        ({NAMED_FILE})."""


def an_earlier_default_on_other_masks() -> str:
    experiment = "confirmation: CRPS, no settling"
    eces = [float(np.mean(scores(experiment, "ece_mix", regime))) for regime in REGIMES]
    masks, seeds = (sorted({row[name] for row in runs_of(experiment)}) for name in ("mask_seed", "seed"))
    assert [len(scores(experiment, "ece_mix", regime)) for regime in REGIMES] == [len(masks) * len(seeds)] * 8
    return f"""An earlier default, the CRPS without settling, had a mean of {short(float(np.mean(eces)), 4)} with masks
        {masks[0]} to {masks[-1]} and seeds {seeds[0]} to {seeds[-1]}, and at most {short(max(eces), 4)} in any regime
        ({NAMED_FILE})."""


def runs_that_learned_nothing() -> str:
    at_30_000 = "settling: scaled CRPS, {}, 30,000 steps"
    sets = [runs_of(e) for e in (*map(at_30_000.format, ("none", "every step in the last tenth")), "clip: never")]
    runs = [row for one in sets for row in one]
    assert {row["steps"] for row in runs} == {30_000}
    lost = [row for row in runs if row["test"]["rmse"] > 0.5]
    assert {row["observed_fraction"] for row in lost} == {0.7}
    few, many = sorted({row["train_size"] for row in lost})
    errors = sorted(row["test"]["rmse"] for row in lost)
    others = max(row["test"]["rmse"] for row in runs if row not in lost)
    sizes = [str(len(one)) for one in sets]
    return f"""A few runs of {30_000:,} steps used to end with nothing learned, at 0.7 observed with {few} or {many}
        trajectories: {WORDS[len(lost)]} of {len(runs)} runs ({", ".join(sizes[:-1])} and {sizes[-1]};
        {NAMED_FILE}) had an RMSE of {errors[0]:.1f} to {errors[-1]:.1f}, where all others have less than
        {np.ceil(10 * others) / 10:.1f}."""


def the_two_engines() -> str:
    gaps = {}
    for score in ("nll", "ece_mix"):
        for regime in REGIMES:
            x, y = (np.array(scores(f"engine: {engine}", score, regime)) for engine in ("fused", "reference"))
            parts = [np.var(values, ddof=1) / len(values) for values in (x, y)]
            degrees = sum(parts) ** 2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, (x, y), strict=True))
            gaps[score, regime] = (np.mean(x) - np.mean(y), t.ppf(0.975, degrees) * np.sqrt(sum(parts)))
    assert all(abs(mean) < half for mean, half in gaps.values())
    nll = [f"{short(mean, 2)} ± {short(half, 2)}" for (score, _), (mean, half) in gaps.items() if score == "nll"]
    means, halves = zip(*(gap for (score, _), gap in gaps.items() if score == "ece_mix"), strict=True)
    [seeds] = {len(scores(f"engine: {engine}", "nll", r)) for engine in ("fused", "reference") for r in REGIMES}
    return f"""In the {WORDS[len(REGIMES)]} regimes, {seeds} seeds each, fused in TF32 and reference in float32 are
        level everywhere; fused minus reference is {", ".join(nll[:4])} (50 trajectories), {", ".join(nll[4:])} (0.7
        observed) in NLL, and {short(min(means), 3)} to {short(max(means), 3)} ± {short(min(halves), 3)} to
        {short(max(halves), 3)} in ECE (the CRPS without settling; runs in {NAMED_FILE})."""


SCARCE, FEW, ALL = "0.4, 50", "0.7, 30", "1.0, 50"


def ablated(setting: str) -> dict[str, dict[str, Interval]]:
    """What one change of the ablation costs: score → regime → its score less that of the default."""
    found = against_default(collect(rows("ablation")))[setting, "xreg"]
    assert list(found) == [SCARCE, FEW, ALL]
    costs: dict[str, dict[str, Interval]] = {NLL: {}, ECE: {}}
    for regime, by_score in found.items():
        for score, cost in by_score.items():
            assert cost is not None
            costs[score][regime] = cost
    return costs


def is_level(cost: Interval) -> bool:
    return cost.low <= 0 <= cost.high


def costs_of(settings: list[str], score: str, regimes: tuple[str, ...], digits: int = 2) -> str:
    """The least and the largest of what changes cost, as in "0.4 to 0.6" (NLL) or ".01" (ECE, where both are equal)."""
    found = sorted(ablated(setting)[score][regime].mean for setting in settings for regime in regimes)
    said = [f"{cost:.1f}" if score == NLL else short(cost, digits) for cost in (found[0], found[-1])]
    return " to ".join(dict.fromkeys(said))


def what_the_ablation_found() -> str:
    """The rest of its list, up to how long noise on Fourier modes takes, which no file has."""
    partly = (SCARCE, FEW)
    often, never = [ablated(f"k_reg {k}") for k in (1, 20)], ablated("k_reg 50")
    assert all(is_level(cost) for one in often for by_regime in one.values() for cost in by_regime.values())
    assert [is_level(never[NLL][regime]) for regime in (*partly, ALL)] == [False, False, True]
    no_head, element = ablated("generalization_head False"), ablated("epsilon_per element")
    assert all(is_level(no_head[NLL][regime]) for regime in partly)
    assert all(is_level(cost) for by_regime in element.values() for cost in by_regime.values())
    gains = {at: gap(group, "xreg-modes", "xreg", NLL).mean for at, group in groups("paper").items()}
    clear = where("paper", lambda g: ahead(g, "xreg-modes", "xreg", NLL))
    assert clear == {(0.7, 20), (0.7, 30), (0.4, 50)}
    assert where("paper", lambda g: ahead(g, "xreg", "xreg-modes", NLL)) == {FULL}
    return f"""- **How often ρ is updated** matters less since `settle` was introduced: an update at every step or at
        every 20 steps is level with the default, at every 50 steps it costs {costs_of(["k_reg 50"], NLL, partly)} in
        NLL where observations or data are scarce. - **The σ_gen head calibrates** under partial observation: without
        it NLL is level and ECE {costs_of(["generalization_head False"], ECE, partly, 3)} higher. - **Noise per
        channel, not per layer**: under partial observation one σ per site costs
        {costs_of(["sigma_per layer"], NLL, partly)} in NLL, and
        {costs_of(["sigma_per layer, epsilon_per element"], NLL, partly)} if ε is drawn per element too. One ε per
        element with a σ per channel is level with the default, and costs more time. *Additional* noise on Fourier
        modes gains no more than chance would; used *instead* (`xreg-modes`, in the table of all methods) it gains
        {-gains[0.7, 20]:.1f} in NLL with 20 trajectories, {-gains[0.7, 30]:.1f} with 30 and {-gains[0.4, 50]:.1f} at
        0.4 observed, loses {gains[FULL]:.1f} at full observation,"""


def what_the_ablation_found_of_sites_and_samples() -> str:
    partly = (SCARCE, FEW)
    middle, last = (["sites ['block2']", "sites ['block3']"], ["sites ['block4_pre']", "sites ['pre_head']"])
    likelihoods = ["reg_objective mixture", "reg_objective moment-matched"]
    samples = {n: ablated(f"num_samples {n}") for n in (2, 30)}
    assert all(is_level(cost) for by_regime in samples[30].values() for cost in by_regime.values())
    assert [regime for regime, cost in samples[2][NLL].items() if not is_level(cost)] == [FEW]
    twenty = ablated("reg_size 20")
    assert all(is_level(cost) for by_regime in twenty.values() for cost in by_regime.values())
    starts, unscaled = ablated("log_sigma_pred_start -2.0"), ablated("scaled_start False")
    assert all(is_level(cost) for by_regime in starts.values() for cost in by_regime.values())
    assert is_level(unscaled[NLL][ALL])
    fewest = ["reg_size 3", "reg_size 5"]
    most = max(ablated(setting)[NLL][regime].mean for setting in fewest for regime in partly)
    unscaled_costs = " and ".join(f"{unscaled[NLL][regime].mean:.1f}" for regime in partly)
    return f"""- **All sites**: block 2 or 3 alone loses {costs_of(middle, NLL, partly)} in NLL under partial
        observation, block 1 alone {costs_of(["sites ['block1']"], NLL, partly)}, block 4 or the features before
        the head alone {costs_of(last, NLL, partly)}. - **The reg objective**: the likelihoods (`mixture`,
        `moment-matched`) have an ECE about {costs_of(likelihoods, ECE, (SCARCE, ALL))} higher at 0.4 and at 1.0.
        - **S = 10 is enough** for independent samples: 30 samples are level, 2 lose
        {costs_of(["num_samples 2"], NLL, (FEW,))} with 30 trajectories. - **Reg trajectories**: 20 are level; 10 cost
        {costs_of(["reg_size 10"], ECE, (SCARCE, FEW, ALL))} in ECE; under partial observation 3 to 5 cost
        {costs_of(fewest, ECE, partly)} in ECE and up to {most:.1f} in NLL. - **Where log σ_pred starts**: −2 and
        the default are level; the paper's −5 costs
        {costs_of(["log_sigma_pred_start -5.0"], NLL, (SCARCE, FEW, ALL))} in NLL. The network's own start matters
        more: unscaled it loses {unscaled_costs} under partial observation, and nothing at full."""


def no_setting_is_better() -> str:
    table = against_default(collect(rows("ablation")))
    gaps = {
        (setting, regime, score): gap
        for (setting, _), by_regime in table.items()
        for regime, by_score in by_regime.items()
        for score, gap in by_score.items()
    }
    assert all(gap is not None for gap in gaps.values())
    favoured = [at for at, gap in gaps.items() if gap is not None and gap.high < 0]
    assert favoured == [("mode_noise generalization", "0.7, 30", "test_ece_mix")]
    assert len(favoured) < len(gaps) * CHANCE / 2
    return f"""- **No other setting is clearly better**: of {len(gaps)} differences {WORDS[len(favoured)]} favours
        another setting beyond the 95% interval (additional noise on Fourier modes, in ECE with 30 trajectories).
        Chance alone would give about {WORDS[round(len(gaps) * CHANCE / 2)]}."""
