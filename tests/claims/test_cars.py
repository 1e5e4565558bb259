"""The prose on the results of the cars, computed from their scores."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from claimed import RESULTS, WORDS, Claim, flat, page, part_of, short, unclaimed_numbers
from cost_of_reg import timed

from crossreg.metrics.intervals import Interval, interval
from crossreg.report.tables.comparison import signed

PAGE, GUIDE, PAPERS_DIVISION = "docs/cars_results.md", "docs/cars.md", (30, 50)
ALL_SCORES = ("relative_l2", "nll", "ece_mix", "crps", "spearman")


@cache
def scores() -> dict[str, Any]:
    return json.loads((RESULTS / "cars.json").read_text())


def mean(method: str, score: str) -> float:
    """The mean test score of a method over its seeds."""
    return scores()["methods"][method]["test"][score]


def ece(method: str) -> str:
    return short(mean(method, "ece_mix"), 3)


def gap(method: str, score: str) -> Interval:
    """`xreg` less another method, seed by seed."""
    ours, theirs = ([run["test"][score] for run in scores()["methods"][m]["runs"]] for m in ("xreg", method))
    found = interval((np.array(ours) - np.array(theirs)).tolist())
    assert found is not None
    return found


def level(method: str, score: str) -> bool:
    return gap(method, score).low <= 0 <= gap(method, score).high


def the_setting() -> str:
    made, model, train = scores(), scores()["settings"]["model"], scores()["settings"]["train"]
    cars = made["settings"]["cars"]
    return f"""{made["train"]} train, {made["reg"]} reg and {made["test"]} test cars of {cars["points"]:,} vertices
        on {cars["grid"]}² cells, width {model["width"]}, {model["num_modes"]}² modes, {model["num_blocks"]} blocks,
        S = {train["num_samples"]}, batches of {train["batch_size"]}, {train["steps"]:,} steps, {cars["seeds"]}
        seeds, on an H200;"""


def calibration() -> str:
    eces = sorted(run["test"]["ece_mix"] for run in scores()["methods"]["xreg"]["runs"])
    times = [mean(m, "ece_mix") / mean("xreg", "ece_mix") for m in ("dropout", "ensemble")]
    assert [round(t) for t in times] == [11, 20]
    assert all(level(m, "crps") for m in ("dropout", "ensemble"))
    assert gap("unregularized", "crps").high < 0
    crps = {m: short(mean(m, "crps"), 3) for m in ("xreg", "dropout", "ensemble", "unregularized")}
    error = mean("xreg", "relative_l2") / mean("vertex-mean", "relative_l2")
    return f"""- With the same {scores()["train"]} train cars, at {scores()["settings"]["train"]["steps"]:,} steps,
        `xreg` has {error:.2f} of the vertex mean's error and an ECE of {ece("xreg")}; {WORDS[len(eces) - 1]} of
        {WORDS[len(eces)]} seeds have an ECE of {short(eces[-2] + 5e-4, 3)} or less, the other {short(eces[-1], 3)}.
        Dropout's ECE is eleven times as large, the ensemble's twenty times; with the drop rate p chosen on the reg
        cars, dropout has {ece("dropout-reg")}. In CRPS, which measures accuracy too, dropout ({crps["dropout"]})
        and the ensemble ({crps["ensemble"]}) are level with `xreg` ({crps["xreg"]}), and one unregularized network is
        behind ({crps["unregularized"]})."""


def early_stopping() -> str:
    stopped = ("dropout+early", "ensemble+early")
    beyond = [(m, s) for m in stopped for s in ALL_SCORES if not level(m, s)]
    assert beyond == [("ensemble+early", "relative_l2")]
    less = gap(*beyond[0])
    nll, ranks, errors = ([mean(m, s) for m in stopped] for s in ("nll", "spearman", "relative_l2"))
    return f"""- **Early stopping does as well here.** Stopped where they fit the reg cars best, `dropout+early` and
        `ensemble+early` match `xreg` in ECE ({ece(stopped[0])}, {ece(stopped[1])}), NLL ({signed(nll[0], 2)},
        {signed(nll[1], 2)}) and rank correlation ({short(ranks[0], 2)}, {short(ranks[1], 2)}). Only
        one paired difference is beyond its interval: the mean of `ensemble+early` is less accurate by
        {short(-less.mean, 3)} ± {short(less.half, 3)}. Stopping early costs accuracy ({errors[0]:.3f} and
        {errors[1]:.3f}, against {mean("xreg", "relative_l2"):.3f}), and a single network, `unregularized+early`, is
        not calibrated ({ece("unregularized+early")}). With {scores()["reg"]} cars to stop by,"""


def fitted_afterwards() -> str:
    methods, one, three = scores()["methods"], "unregularized+sigma-temperature", "ensemble+sigma-temperature"
    on_few = [m for m in methods if not m.endswith("all-data")]
    assert min(on_few, key=lambda m: mean(m, "nll")) == three
    assert gap(three, "spearman").low > 0
    assert level(one, "nll")
    assert gap(one, "ece_mix").high < 0
    assert all(level("unregularized+temperature", s) for s in ("nll", "ece_mix"))
    factors = [run["temperature"] for run in methods["unregularized+temperature"]["runs"]]
    at_the_end = sum(factor == max(factors) for factor in factors)
    conformal = ("dropout+conformal", "ensemble+conformal")
    assert all(level(m, "ece_mix") and gap(m, "nll").high < 0 and gap(m, "spearman").low > 0 for m in conformal)
    ranks = [short(mean(m, "spearman"), 2) for m in (*conformal, "xreg")]
    return f"""- **Baselines calibrated on the reg cars after training.** A factor on σ makes the ensemble's
        NLL the best of all that train on {scores()["train"]} cars ({signed(mean(three, "nll"), 2)}; CRPS
        {short(mean(three, "crps"), 3)}), with an ECE of {ece(three)} and a lower rank correlation
        ({short(mean(three, "spearman"), 2)}); on one network it is level in NLL and behind in ECE ({ece(one)}). One
        network with `+temperature` is level in both ({ece("unregularized+temperature")}), though in
        {WORDS[at_the_end]} of {WORDS[len(factors)]} seeds its factor is at the upper end of its range,
        {max(factors):.0f}. Conformal quantiles are as well calibrated
        (dropout {ece(conformal[0])}, ensemble {ece(conformal[1])}), with a worse
        likelihood, and rank their errors worse ({ranks[0]} and {ranks[1]}, against {ranks[2]})."""


def the_whole_mixture_stretched() -> str:
    factors = [run["temperature"] for run in scores()["methods"]["ensemble+sigma-temperature"]["runs"]]
    assert 50 < min(factors) < 60
    return f"""the members' σ is more than fifty times too small, and the factor that makes up for it pulls their
        means apart as well, so that its CRPS ({short(mean("ensemble+temperature", "crps"), 3)}) is worse than
        without."""


def without_the_head() -> str:
    internal = "xreg-internal-mm"
    assert gap(internal, "ece_mix").low > 0
    assert gap(internal, "spearman").high < 0
    return f"""`{internal}` is calibrated still better ({ece(internal)}) and ranks errors better
        ({short(mean(internal, "spearman"), 2)}), but its mean is off by {mean(internal, "relative_l2"):.3f}; with
        the mixture's likelihood it is off by {mean("xreg-internal-mixture", "relative_l2"):.3f}."""


def the_price_of_noise() -> str:
    assert all(gap(m, "relative_l2").low > 0 for m in ("unregularized", "ensemble"))
    ours, one, three = (mean(m, "relative_l2") for m in ("xreg", "unregularized", "ensemble"))
    return f"""the mean of `xreg` ({ours:.3f}) is a little worse than that of the networks without it ({one:.3f};
        three pooled {three:.3f})."""


def equal_data() -> str:
    names = [f"{m}-all-data" for m in ("unregularized", "ensemble", "dropout")]
    one, three, dropout = (mean(m, "relative_l2") / mean("xreg", "relative_l2") for m in names)
    assert (scores()["train"], scores()["reg"]) == PAPERS_DIVISION
    return f"""- **At equal data XReg is behind.** Trained on the {scores()["reg"]} reg cars as well, instead of
        learning error bars from them, the unregularized network has {one:.2f} of XReg's error, the ensemble
        {three:.2f} and dropout {dropout:.2f}, and with {sum(PAPERS_DIVISION)} cars plain dropout is nearly
        calibrated ({ece("dropout-all-data")}) with an NLL of {signed(mean("dropout-all-data", "nll"), 2)}. With
        {scores()["train"]} cars to train on and {scores()["reg"]} to calibrate, the paper's division,"""


def the_vertex_mean() -> str:
    ranks = {m: mean(m, "spearman") for m in scores()["methods"]}
    assert max(ranks, key=ranks.__getitem__) == "vertex-mean"
    return f"""The vertex mean's standard deviation, one for each vertex, ranks errors better
        ({short(ranks["vertex-mean"], 2)}) than any network's:"""


def the_parts() -> str:
    parts = [short(mean("xreg", f"std_{part}"), 3) for part in ("predictive", "generalization", "mu")]
    assert mean("xreg", "std_mu") > mean("xreg", "std_generalization") / 2
    return f"""At the output both parts are in use: in the mean over vertices √U_pred is {parts[0]} and √U_gen
        {parts[1]}, and most of √U_gen is the spread of the means, {parts[2]}, from the noise inside the network."""


def the_sites() -> str:
    seeds = len(scores()["methods"]["xreg"]["runs"])
    return f"""over the channels of all {WORDS[seeds]} seeds, which start at e⁻⁵ = {short(float(np.exp(-5)), 4)}:"""


def channels_that_are_off() -> str:
    runs = [run["sigma"] for run in scores()["methods"]["xreg"]["runs"]]
    off = [np.mean(np.concatenate([run[site] for run in runs]) > 3) for site in ("block1", "block2", "block3")]
    return f"""in the first three blocks {100 * min(off):.0f} to {max(off):.0%} of the channels are as good as
        switched off."""


def the_step_time() -> str:
    xreg, plain = (timed("cpu", f"cars, {m}", "neuraloperator's FNO, eager")["ratio"][0] for m in ("xreg", "plain"))
    return f"""**Step time** on two cores: {xreg:.2f} × faster than with neuraloperator's FNO in the step of `xreg`,
        {plain:.2f} × in a plain one;"""


CLAIMS: list[Claim] = [
    calibration,
    early_stopping,
    fitted_afterwards,
    the_whole_mixture_stretched,
    without_the_head,
    the_price_of_noise,
    equal_data,
    the_vertex_mean,
    the_parts,
    the_sites,
    channels_that_are_off,
    the_setting,
]
NAMED = (
    "With 30 train cars and 50 reg cars, XReg is calibrated",
    "Mean ± 95% interval over seeds",
    "[two intervals]",
    "mean ± 95% interval over the five",
    "Noise with a σ above 3 leaves",
)


@pytest.mark.parametrize("claim", [*CLAIMS, the_step_time], ids=lambda claim: claim.__name__)
def test_the_page_says_what_the_scores_say(claim: Claim):
    assert flat(claim()) in page(GUIDE if claim is the_step_time else PAGE)


def test_no_number_of_the_results_is_without_a_claim():
    said = [claim() for claim in CLAIMS]
    text = part_of(PAGE, "# Results on cars", "## The four real cars")
    assert unclaimed_numbers(text, said, NAMED) == []
