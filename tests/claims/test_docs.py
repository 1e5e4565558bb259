"""Sentences of the docs that sum results up: the decomposition, the method, the cost of reg updates, the index."""

import itertools
import re

import constants
import equinox as eqx
import explorations
import jax
import numpy as np
import pytest
from claimed import (
    ROOT,
    WORDS,
    Claim,
    ahead,
    flat,
    gap,
    groups,
    mean,
    of,
    page,
    part_of,
    rows,
    short,
    unclaimed_numbers,
    where,
)
from cost_of_reg import by_the_formula, cost_ratio, overhead, reg_updates, timed

import crossreg as xr
from crossreg.config import Config, DataConfig, ModelConfig, TrainConfig
from crossreg.data.files import check
from crossreg.data.formats import open as stores
from crossreg.data.pairs import make_pairs
from crossreg.designs.paper import LOG_SIGMA_PRED_STARTS, TRAINING
from crossreg.designs.presets import preset
from crossreg.methods.names import ENSEMBLE_SIZE, config_of
from crossreg.metrics.intervals import Interval, interval
from crossreg.nn.groups import groups as group_of
from crossreg.report.tables.comparison import difference, signed

NLL, ECE, CRPS, RMSE = "test_nll", "test_ece_mix", "test_crps", "test_rmse"
STD = {"predictive": "test_std_predictive", "generalization": "test_std_generalization"}


def shares_of_u_gen(size: int) -> list[float]:
    """U_gen's share of the mean variance on test, for every seed of `xreg` with some train trajectories."""
    scores = [
        row["test"]
        for row in rows("paper")
        if (row["method"], row["steps"], row["observed_fraction"], row["train_size"]) == ("xreg", 10_000, 0.7, size)
    ]
    return [s["rms_generalization"] ** 2 / (s["rms_generalization"] ** 2 + s["rms_predictive"] ** 2) for s in scores]


def percent(found: Interval | None) -> str:
    assert found is not None
    return f"{100 * found.mean:.0f} ± {100 * found.half:.0f}%"


def the_parts_with_more_trajectories() -> str:
    few, many = (groups("paper")[0.7, size]["xreg"] for size in (20, 70))
    pred, gen = ([mean(line, STD[part]) for line in (few, many)] for part in ("predictive", "generalization"))
    shares = [shares_of_u_gen(size) for size in (20, 70)]
    lines = [few._replace(by_seed={"share": {(0, i): s for i, s in enumerate(share)}}) for share in shares]
    fall = difference(lines[1], lines[0], "share")
    assert fall is not None
    assert fall.low < 0 < fall.high
    return f"""from 20 to 70 trajectories, the mean √U_pred on test falls from {pred[0]:.3f} to {pred[1]:.3f}, and
        √U_gen from {gen[0]:.3f} to {gen[1]:.3f} ({WORDS[few.seeds]} seeds, {few.regime["steps"]:,} steps). U_gen's
        share of the mean variance is {percent(interval(shares[0]))} with 20 trajectories and
        {percent(interval(shares[1]))} with 70: no clear change."""


def what_the_first_row_rests_on() -> str:
    few, many = (groups("paper")[0.7, size]["xreg"] for size in (20, 70))
    assert ahead({"few": few, "many": many}, "many", "few", STD["generalization"])
    falls = {part: mean(many, score) / mean(few, score) for part, score in STD.items()}
    assert falls["generalization"] < falls["predictive"]
    return """For the first row it was measured that √U_gen falls with more trajectories, and faster than √U_pred;
        the share of U_gen in the mean variance does not clearly fall."""


def the_spread_of_the_means() -> str:
    found = groups("paper")
    observed = [found[fraction, 50]["xreg"] for fraction in (0.4, 0.6, 0.8, 1.0)]
    sizes = [found[0.7, size]["xreg"] for size in (20, 30, 40, 70)]

    def falls(lines, score) -> list[bool]:
        return [ahead({"a": a, "b": b}, "b", "a", score) for a, b in itertools.pairwise(lines)]

    assert all(falls(observed, "test_std_mu"))
    means = [mean(line, "test_std_mu") for line in sizes]
    assert means == sorted(means, reverse=True)
    gen = falls(observed, STD["generalization"]) + falls(sizes, STD["generalization"])
    assert all(gen)
    return f"""The spread of the means alone, in the paper's regimes, {WORDS[sizes[0].seeds]} seeds. It falls with
        every gain in observed points; with more trajectories it falls too, though (at {sizes[0].regime["steps"]:,}
        steps) only {WORDS[sum(falls(sizes, "test_std_mu"))]} of {WORDS[len(sizes) - 1]} falls is beyond the interval.
        For √U_gen, which adds σ_gen, all {WORDS[len(gen)]} are"""


def the_fixed_point() -> str:
    above = {}
    for fraction in (0.3, 0.7):
        heads = [r for r in rows("regimes") if (r["method"], r["observed_fraction"]) == ("xreg-heads", fraction)]
        train, reg = (np.median([row[split]["rmse"] for row in heads]) ** 2 for split in ("train", "reg"))
        parts = [np.median([row["reg"][f"rms_{part}"] for row in heads]) for part in STD]
        above[fraction] = [
            part / np.sqrt(u) - 1 for part, u in zip(parts, ((reg + train) / 2, (reg - train) / 2), strict=True)
        ]
    [low], [steps] = {round(100 * a) for a in above[0.3]}, {row["steps"] for row in rows("regimes")}
    seeds = len({row["seed"] for row in rows("regimes")})
    return f"""After {steps:,} steps √U_pred and √U_gen on reg are {low}% above it at 0.3 observed and
        {100 * min(above[0.7]):.0f} to {max(above[0.7]):.0%} above it at 0.7 (medians over {WORDS[seeds]} seeds;"""


def the_sizes_of_the_groups() -> str:
    fields = jax.random.normal(jax.random.key(0), (2, 4, 1, 160))
    pairs = make_pairs(fields, range(2), 0, DataConfig())
    sizes = {"theta": 0, "psi": 0, "rho": 0}
    model = xr.build_model(ModelConfig(), pairs, key=jax.random.key(0))
    for leaf, group in zip(
        *map(jax.tree.leaves, (eqx.filter(model, eqx.is_inexact_array), group_of(model))), strict=True
    ):
        sizes[group] += leaf.size
    return f"""only to learn the sizes of noise: {sizes["rho"]} numbers in the default model, against some
        {round(sizes["theta"], -2):,} of θ."""


def the_cost_of_reg_updates() -> str:
    assert TrainConfig.k_reg == 5
    run, device = reg_updates(TrainConfig(settle=0.1)), "NVIDIA H200"
    return f"""With k_reg 5 a step costs {overhead(5):.2f} times one without reg updates, so that C_reg/C_train is
        {cost_ratio():.2f}; with that the paper's 1 + (C_reg/C_train)/k_reg gives {by_the_formula(1 / 10):.2f} for
        k_reg 10, where {overhead(10):.2f} was measured. A whole run costs more than that: where ρ is also updated
        after every step of the last tenth (`settle` 0.1), there are {run:.2f} reg updates for every train update and
        not {1 / TrainConfig.k_reg:.1f}, which is {by_the_formula(run):.2f} by the same formula. On an H200 with one
        replica k_reg 5 costs {overhead(5, device):.2f}, and such a run {by_the_formula(run, device):.2f}."""


OBJECTIVES = {"moment-matched": "-mm", "mixture": "-mixture", "fair": "-fair", "crps": "-crps", "scaled-crps": ""}
ORDER = [(0.4, 50), (0.6, 50), (0.8, 50), (1.0, 50), (0.7, 20), (0.7, 30), (0.7, 40), (0.7, 70)]


def the_table_of_objectives() -> str:
    lines = []
    for objective, ending in OBJECTIVES.items():
        found = [groups("paper")[at][f"xreg{ending}"] for at in ORDER]
        cells = [f"{signed(mean(line, NLL), 2)} / {short(mean(line, ECE), 3)}" for line in found]
        name = f"`{objective}`" + (" (default)" if objective == TrainConfig.reg_objective else "")
        average = short(float(np.mean([mean(line, ECE) for line in found])), 4)
        lines.append(f"| {name} | {' | '.join(cells)} | {average} |")
    return "\n".join(lines)


def the_two_forms_of_the_crps() -> str:
    found = groups("paper")
    good = [o for o, e in OBJECTIVES.items() if all(mean(g[f"xreg{e}"], ECE) < 0.02 for g in found.values())]
    assert good == ["crps", "scaled-crps"]
    cost = {at: gap(group, "xreg-crps", "xreg", NLL).mean for at, group in found.items()}
    dearer = [value for value in cost.values() if value > 0]
    [gains] = [at for at, value in cost.items() if value < 0]
    assert where("paper", lambda g: ahead(g, "xreg", "xreg-crps", NLL)) == {(1.0, 50)}
    better = sorted(size for _, size in where("paper", lambda g: ahead(g, "xreg-crps", "xreg", ECE)))
    assert ahead(found[1.0, 50], "ensemble", "xreg-crps", NLL)
    return f"""Only the last two keep an ECE below .02 everywhere. The CRPS weighs points by the size of their error,
        which costs NLL at well predicted points: {min(dearer):.2f} to {max(dearer):.2f} in {WORDS[len(dearer)]}
        regimes, beyond the interval in one (full observation); with {gains[1]} trajectories it gains
        {-cost[gains]:.2f}. Its ECE is lower, beyond the interval, in {WORDS[len(better)]} ({better[0]} and
        {better[1]} trajectories). The scaled CRPS is the default because at full observation the CRPS is behind a
        3-member ensemble in NLL."""


def other_masks_among_the_choices() -> str:
    eces = [mean(group["xreg"], ECE) for group in groups("confirmation").values()]
    masks = sorted({row["changes"]["mask_seed"] for row in rows("confirmation")})
    seeds = sorted({row["seed"] for row in rows("confirmation")})
    return f"""With masks {masks[0]} to {masks[-1]} and seeds {seeds[0]} to {seeds[-1]}, on which nothing was
        chosen, the default has a mean ECE of {short(float(np.mean(eces)), 4)}, and at most {short(max(eces), 4)} in any
        regime (`results/confirmation.jsonl`)."""


def looks_and_snapshots() -> str:
    ratios = {
        (device, replicas): [timed(device, f"around the steps, {replicas} replicas", one)["ratio"][0] for one in names]
        for names in [("one look at reg", "one snapshot")]
        for device, replicas in (("cpu", 1), ("NVIDIA H200", 1), ("NVIDIA H200", 80))
    }
    memory = [timed(d, f"around the steps, {n} replicas", "250 steps")["mebibytes_per_replica"] for d, n in ratios]
    snapshots = [timed("NVIDIA H200", f"around the steps, {n} replicas", "one snapshot")["seconds"][0] for n in (1, 80)]
    return f"""On an H200 an evaluation takes {ratios["NVIDIA H200", 1][0]:.0%} of one replica's steps and
        {ratios["NVIDIA H200", 80][0]:.0%} of 80 replicas'; a snapshot takes {1e3 * snapshots[0]:.0f} ms and
        {1e3 * snapshots[1]:.0f} ms, once a minute. A replica of the default takes {memory[0]} MiB while it trains
        on a CPU, {memory[1]} on a GPU, and {memory[2]} beside 79 others;"""


def the_time_of_a_step() -> str:
    ours, theirs = (1e3 * timed("cpu", "xreg", one)["seconds"][0] for one in ("crossreg", "PyTorch, eager"))
    return f"""A training step with the paper's ten samples takes {ours:.1f} ms on two CPU cores, where the same step
        written in PyTorch takes {theirs:.0f} ms."""


def what_the_index_expects() -> str:
    [regimes] = {len(groups("paper"))}
    assert all(mean(group["xreg"], ECE) < 0.02 for group in groups("paper").values())
    counts = [
        len(where("paper", lambda g, r=baseline: ahead(g, "xreg", r, NLL))) for baseline in ("dropout", "ensemble")
    ]
    return f"""In the paper's {WORDS[regimes]} regimes, with the same settings, the mean test ECE of XReg is below
        .02, and its likelihood is ahead of MC dropout in {of(counts[0], regimes)} and of a three-member ensemble in
        {of(counts[1], regimes)}"""


def what_the_index_expects_at_equal_data() -> str:
    for score in (CRPS, RMSE):
        assert len(where("equal_data", lambda g, s=score: ahead(g, "ensemble", "xreg", s))) >= 10
    fully = [group for at, group in groups("equal_data").items() if at[0] == 1]
    assert all(any(ahead(group, m, "xreg", NLL) for m in group if m.startswith("ensemble")) for group in fully)
    return """At [equal data](results.md#equal-data) ensembles have the lower CRPS and RMSE nearly everywhere, and the
        better likelihood where everything is observed;"""


def what_the_presets_are() -> str:
    assert preset("reference") == Config() == config_of("xreg", Config())
    ours = preset("protocol")
    start = ours.model.log_sigma_pred_start
    assert start is not None
    assert ours == config_of("xreg-internal-mm", Config()).replace(**TRAINING, log_sigma_pred_start=start)
    assert start != LOG_SIGMA_PRED_STARTS[0]
    scenario, observed = Config().data.scenario, Config().data.observed_fraction
    part = part_of("docs/configuration.md", "| `reference` |", "| `forecasts` |")
    assert flat(part) == f"| `reference` | all defaults: `xreg` on `{scenario}`, {observed} observed |"
    return f"""`xreg-internal-mm`, trained as in the paper, but with log σ_pred from {signed(start, 0)} |"""


def steps_that_are_too_small() -> str:
    return f"(below {check._TINY_STEP}, take larger steps with `--time-stride N`)"


def what_is_watched_of_a_store() -> str:
    most = stores._STAMPED_CHUNKS
    return f"for the metadata and for at most {most} evenly spaced chunks of each array and {most} folders."


def the_variance_between_particles() -> str:
    factor = (ENSEMBLE_SIZE + 1) / (ENSEMBLE_SIZE - 1)
    return f"""The variance between P particles is multiplied by (P + 1)/(P − 1), since their mean has an error too. For
        {WORDS[ENSEMBLE_SIZE]} networks without noise inside this is {factor:.0f}: spread/skill may be 1"""


def the_error_bars_of_the_example() -> str:
    """From the table that stands above it, of a run that is not kept."""
    table = part_of("docs/forecasts.md", "lead      RMSE", "```").splitlines()[2:]
    ratio = {int(lead): float(spread) for lead, _, spread, *_ in map(str.split, table)}
    horizon = preset("forecasts").train.reg_horizon
    learned = [value for lead, value in ratio.items() if lead <= horizon]
    [*far, last] = [lead for lead in ratio if lead > horizon]
    too_large = [round(100 * ratio[lead]) - 100 for lead in far]
    return f"""Here it is {min(learned)} to {max(learned)} up to lead {horizon}, the longest that ρ learned from;
        at leads {far[0]} to {far[-1]} error bars are {min(too_large)} to {max(too_large)}% too large, and at lead
        {last} {round(100 * ratio[last]) - 100}% too large."""


def the_commands_of_the_tutorial() -> str:
    text = (ROOT / "docs" / "tutorial.md").read_text()
    blocks = re.findall(r"^```sh[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    count = sum(line.startswith("crossreg ") for block in blocks for line in block.splitlines())
    return f"{WORDS[count].capitalize()} commands lead from a file of trajectories to a page"


CLAIMS: dict[str, list[Claim]] = {
    "README.md": [constants.the_three_groups],
    "docs/decomposition.md": [
        constants.the_parts_of_the_variance,
        the_parts_with_more_trajectories,
        what_the_first_row_rests_on,
        the_spread_of_the_means,
    ],
    "docs/method.md": [the_fixed_point, the_sizes_of_the_groups],
    "docs/speed.md": [the_time_of_a_step, the_cost_of_reg_updates, looks_and_snapshots],
    "docs/choices.md": [
        the_table_of_objectives,
        the_two_forms_of_the_crps,
        other_masks_among_the_choices,
        explorations.draws_outside_the_range,
        explorations.runs_that_differ_in_rounding,
        explorations.an_earlier_default_on_other_masks,
        explorations.runs_that_learned_nothing,
        explorations.no_setting_is_better,
        explorations.what_the_ablation_found,
        explorations.what_the_ablation_found_of_sites_and_samples,
        explorations.the_two_engines,
    ],
    "docs/index.md": [what_the_index_expects, what_the_index_expects_at_equal_data],
    "docs/configuration.md": [what_the_presets_are],
    "docs/data.md": [
        steps_that_are_too_small,
        what_is_watched_of_a_store,
        constants.a_small_reg_split,
        constants.the_channels_that_are_refused,
        constants.the_default_split,
    ],
    "docs/methods.md": [
        constants.the_bound_of_the_noise,
        constants.the_rollouts_of_noise_learned_on_train,
        constants.the_wrapper_growth,
        constants.the_methods_of_all,
    ],
    "docs/sweeps.md": [constants.the_named_sweeps],
    "docs/forecasts.md": [
        the_variance_between_particles,
        the_error_bars_of_the_example,
        constants.the_steps_of_growth_in_sweeps,
    ],
    "docs/tutorial.md": [the_commands_of_the_tutorial],
}
PAIRS = [(name, claim) for name, claims in CLAIMS.items() for claim in claims]


@pytest.mark.parametrize(("name", "claim"), PAIRS, ids=[claim.__name__ for _, claim in PAIRS])
def test_the_page_says_what_the_rows_say(name: str, claim: Claim):
    assert flat(claim()) in page(name)


def test_no_number_on_the_parts_is_without_a_claim():
    said = [claim() for claim in CLAIMS["docs/decomposition.md"]]
    named = ("It has two sources", "In a map the two sources look different")
    text = part_of("docs/decomposition.md", "## What each part says", "## Several channels")
    assert unclaimed_numbers(text, said, named) == []


def test_a_run_has_as_many_reg_updates_as_its_cost_is_computed_from():
    """0.28 for every train update: one in five, and one after every step of the last tenth."""
    assert reg_updates(TrainConfig(settle=0.1)) == pytest.approx(0.28)
