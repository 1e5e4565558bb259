"""The prose of the page on further scenarios, computed from its rows."""

from functools import cache

import numpy as np
import pytest
from claimed import (
    WORDS,
    Claim,
    ahead,
    flat,
    level,
    mean,
    page,
    part_of,
    rows,
    short,
    spread,
    unclaimed_numbers,
)

from crossreg.config import DataConfig, ModelConfig
from crossreg.designs.presets import SCENARIOS
from crossreg.metrics.calibration import LEVELS
from crossreg.report.tables.comparison import Line, collect, signed

NLL, ECE, RMSE = "test_nll", "test_ece_mix", "test_rmse"
PAGE, TURBULENCE, GRAY_SCOTT = "docs/scenarios.md", "phy_decay_turb", "phy_gs"


@cache
def lines() -> dict[str, dict[str, Line]]:
    """The lines of every scenario, by method."""
    listed = rows("scenarios")
    return {
        name: {line.method: line for line in collect(row for row in listed if row["scenario"] == name)}
        for name in dict.fromkeys(row["scenario"] for row in listed)
    }


def on(test, ours: str, other: str, score: str) -> list[str]:
    """The scenarios on which one method is ahead of another, or level with it."""
    return [name for name, group in lines().items() if test(group, ours, other, score)]


def named(scenarios: list[str]) -> str:
    """Scenarios in a sentence, as in "`a`, `b` and `c`"."""
    *first, last = (f"`{name}`" for name in scenarios)
    return f"{', '.join(first)} and {last}" if first else last


def nll(method: str) -> float:
    return mean(lines()[TURBULENCE][method], NLL)


def the_setting() -> str:
    one, two = (sum((space.get("num_spatial_dims") or 1) == n for space in SCENARIOS.values()) for n in (1, 2))
    [steps], data, model = {row["steps"] for row in rows("scenarios")}, DataConfig(), ModelConfig()
    assert {(row["train_size"], row["reg_size"], row["observed_fraction"]) for row in rows("scenarios")} == {
        (50, 50, 0.7)
    }
    return f"""{WORDS[one - 1]} more in one dimension and {WORDS[two]} in two, each as a preset: crossreg train
        --preset phy_kolm_flow --out runs/kolmogorov crossreg sweep scenario --scenario phy_kolm_flow --out
        runs/kolmogorov-methods # all methods, 5 seeds; for a GPU **One setting, nothing tuned.** Model, training
        and noise are the defaults, which were chosen on `diff_ks` alone: the FNO of width {model.width} with
        {model.num_modes} modes per axis, {steps:,} steps, {data.train_size} train and {data.reg_size} reg
        trajectories of {data.train_horizon} steps, {data.observed_fraction} observed. Only the data differ:"""


def the_lead() -> str:
    eces = [mean(group["xreg"], ECE) for group in lines().values()]
    good = [ece for ece in eces if ece < 0.02]
    better = on(ahead, "ensemble", "xreg", RMSE)
    return f"""With the default setting, calibration carries over to {WORDS[len(good)]} of {WORDS[len(eces)]} further
        equations; the plain ensemble has the more accurate mean on {WORDS[len(better)]} of them."""


def calibration() -> str:
    eces = {name: mean(group["xreg"], ECE) for name, group in lines().items()}
    good = [ece for name, ece in eces.items() if name != GRAY_SCOTT]
    dropout, ensemble = ([mean(group[m], ECE) for group in lines().values()] for m in ("dropout", "ensemble"))
    assert all(len(on(ahead, "xreg", m, ECE)) == len(eces) for m in ("dropout", "ensemble"))
    assert {(line.seeds, line.diverged) for group in lines().values() for line in group.values()} == {(5, 0)}
    return f"""- **Calibration carries over.** The ECE of `xreg` is {spread(good, 3)} on {WORDS[len(good)]} of the
        {WORDS[len(eces)]}, with settings that were chosen without them. Dropout's ECE is {short(min(dropout), 2)} to
        {short(max(dropout), 2)}, the ensemble's {short(min(ensemble), 3)} to {short(max(ensemble), 2)}: both above
        XReg's on all {WORDS[len(eces)]}."""


def likelihood() -> str:
    assert on(ahead, "dropout", "xreg", NLL) == [GRAY_SCOTT]
    return f"""- **In likelihood** `xreg` is ahead of dropout on {WORDS[len(on(ahead, "xreg", "dropout", NLL))]} and
        behind it on Gray–Scott. Against the plain ensemble it is ahead on
        {named(on(ahead, "xreg", "ensemble", NLL))}, behind on {named(on(ahead, "ensemble", "xreg", NLL))}, level on
        {WORDS[len(on(level, "xreg", "ensemble", NLL))]}."""


def gray_scott() -> str:
    group = lines()[GRAY_SCOTT]
    xreg, dropout, ensemble, single = (
        short(mean(group[m], ECE), 3) for m in ("xreg", "dropout", "ensemble", "unregularized")
    )
    wide = {
        m: [
            np.mean(row["test"]["coverage"]) > np.mean(LEVELS)
            for row in rows("scenarios")
            if (row["scenario"], row["method"]) == (GRAY_SCOTT, m)
        ]
        for m in ("xreg", "dropout", "ensemble", "unregularized")
    }
    assert all(all(wide[m]) for m in ("xreg", "dropout", "ensemble"))
    assert level(group, "xreg", "unregularized", ECE)
    assert mean(group["unregularized"], ECE) < mean(group["xreg"], ECE)
    return f"""- **Not on Gray–Scott**: there its ECE is {xreg}, with error bars that are too wide, like those of the
        others (dropout {dropout}, ensemble {ensemble}). A single unregularized network has {single}, with
        {WORDS[sum(wide["unregularized"])]} of its {WORDS[group["xreg"].seeds]} seeds too wide and one too narrow:
        that is level with `xreg`, and nominally better."""


def what_conformal_mends() -> str:
    return f"""Conformal quantiles can ({short(mean(lines()[GRAY_SCOTT]["dropout+conformal"], ECE), 3)}), though they
        do not improve the mean."""


def accuracy() -> str:
    group = lines()[TURBULENCE]
    assert TURBULENCE in on(level, "xreg", "ensemble", RMSE)
    early, scaled = "ensemble+early", "ensemble+sigma-temperature"
    assert all(level(group, "xreg", m, NLL) for m in (early, scaled))
    better = on(ahead, "ensemble", "xreg", RMSE)
    assert not on(ahead, "xreg", "ensemble", RMSE)
    return f"""- **The ensemble's mean is more accurate** on {WORDS[len(better)]} and level on the others: its RMSE
        is lower beyond the interval on {named(better)}, for three times the training. On decaying turbulence its
        mean is level and its error bars collapse: its NLL is +{nll("ensemble"):.1f}, where `xreg` has
        {signed(nll("xreg"), 1)}. Early stopping, or a temperature of σ, corrects that ({signed(nll(early), 2)} and
        {signed(nll(scaled), 2)}, level with `xreg`), at an ECE of {short(mean(group[early], ECE), 2)} and
        {short(mean(group[scaled], ECE), 2)}."""


def the_strongest_rival() -> str:
    conformal, scaled = "ensemble+conformal", "ensemble+sigma-temperature"
    assert not on(ahead, "xreg", conformal, ECE)
    assert on(ahead, "xreg", conformal, NLL) == [TURBULENCE]
    assert not on(ahead, "xreg", scaled, NLL)
    return f"""- **With conformal quantiles on top, the ensemble is the strongest baseline**: as well calibrated as
        `xreg` or better, and in NLL ahead on {named(on(ahead, conformal, "xreg", NLL))}, level on
        {named(on(level, conformal, "xreg", NLL))}, behind on decaying turbulence. It costs three trainings and a
        further step, and its quantiles do not split into two parts. With a temperature of σ instead
        (`+sigma-temperature`) the ensemble's NLL is nowhere behind `xreg`'s, and ahead on
        {named(on(ahead, scaled, "xreg", NLL))}, with an ECE of
        {spread((mean(group[scaled], ECE) for group in lines().values()), 2)}."""


def dropout() -> str:
    times = {name: mean(group["dropout"], RMSE) / mean(group["xreg"], RMSE) for name, group in lines().items()}
    worst = max(times, key=times.__getitem__)
    assert round(times[worst]) == 13
    return f"""- **MC dropout** with its usual p of {ModelConfig.dropout_rate} is far too wide, and the RMSE of its
        mean is up to thirteen times that of `xreg` (`{worst}`)."""


def the_seeds() -> str:
    [seeds] = {line.seeds for group in lines().values() for line in group.values()}
    return f"Test NLL / ECE, mean ± 95% interval over {seeds} seeds, on an H200."


def the_reg_split() -> str:
    return f"Plain dropout and ensembles do not use its {DataConfig.reg_size} trajectories;"


CLAIMS: list[Claim] = [
    the_lead,
    the_setting,
    the_seeds,
    the_reg_split,
    calibration,
    likelihood,
    gray_scott,
    what_conformal_mends,
    accuracy,
    the_strongest_rival,
    dropout,
]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_the_page_says_what_the_rows_say(claim: Claim):
    assert flat(claim()) in page(PAGE)


def test_no_number_of_the_results_is_without_a_claim():
    said = [claim() for claim in CLAIMS]
    assert unclaimed_numbers(part_of(PAGE, "## Results", "### Maps"), said, ["by the 95% interval"]) == []
