"""Sentences that sum results up, in the README and in the docs: every "ahead" and "level" computed from the rows."""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from claimed import (
    RESULTS,
    ROOT,
    WORDS,
    ahead,
    gap,
    groups,
    level,
    mean,
    of,
    rows,
    short,
    spread,
    where,
)

from crossreg.cars.meshes.surface import Surface
from crossreg.config import DataConfig, ModelConfig, TrainConfig
from crossreg.data.dataset import _CALIBRATION_SHARE
from crossreg.designs.car_study import CarStudy, car_study, methods_of
from crossreg.designs.grids import REGIMES
from crossreg.methods.names import ENSEMBLE_SIZE
from crossreg.report.cars import page as car_page
from crossreg.report.cars.run import CarRun, Prediction
from crossreg.report.offline import plotly_script
from crossreg.report.tables.comparison import with_interval

NLL, ECE, CRPS, RMSE = "test_nll", "test_ece_mix", "test_crps", "test_rmse"
FULL = (1.0, 50)
CHANCE = 0.05  # of comparisons between equals, the part that leaves a 95% interval
CONFORMAL = ("dropout+conformal", "ensemble+conformal", "ensemble+early+conformal", "unregularized+conformal")
ENSEMBLES = (
    "ensemble",
    *(f"ensemble+{w}" for w in ("temperature", "conformal", "early+temperature", "early+conformal")),
)


def counts(name: str, baseline: str, score: str, steps: int = 10_000) -> tuple[int, int]:
    """In how many regimes XReg is ahead of a baseline, and in how many the two are level."""
    better = where(name, lambda group: ahead(group, "xreg", baseline, score), steps)
    return len(better), len(where(name, lambda group: level(group, "xreg", baseline, score), steps))


def the_setting() -> str:
    regimes, [reg_size] = groups("paper"), {row["reg_size"] for row in rows("paper")}
    assert {line.seeds for group in regimes.values() for line in group.values() if line.by_seed[NLL]} == {10}
    assert all(len(line.mask_means(NLL)) == 1 for group in regimes.values() for line in group.values())
    return f"""Test NLL / ECE in the paper's {WORDS[len(regimes)]} regimes, all with the same settings: mean ± 95%
        interval over ten seeds, {10_000:,} steps, one mask and one set of trajectories. XReg's ρ learns on {reg_size}
        further trajectories, which plain dropout and ensembles do not see:"""


def the_table() -> str:
    (nll_dropout, _), (nll_ensemble, nll_level) = counts("paper", "dropout", NLL), counts("paper", "ensemble", NLL)
    (ece_dropout, ece_level), (ece_ensemble, _) = counts("paper", "dropout", ECE), counts("paper", "ensemble", ECE)
    [(_, trajectories)] = where("paper", lambda g: level(g, "xreg", "dropout", ECE))
    full, count = gap(groups("paper")[FULL], "xreg", "ensemble", ECE), len(groups("paper")) * 2 * 2
    assert round(full.mean, 4) == -round(full.half, 4)
    assert ece_level == 1
    return f"""In NLL XReg is ahead of dropout in {of(nll_dropout, 8)} regimes, and of the ensemble in
        {of(nll_ensemble, 8)} (level in {WORDS[nll_level]}); in ECE, of dropout in {of(ece_dropout, 8)} (level with
        {trajectories} trajectories) and of the ensemble in {of(ece_ensemble, 8)}, though only just at full observation
        ({short(full.mean, 4)} ± {short(full.half, 4)}). Of these {count} uncorrected comparisons, about
        {count * CHANCE:.1f} would fall outside the 95% interval by chance."""


def the_design_of_the_confirmation() -> str:
    chosen_on = {(row["seed"], DataConfig.mask_seed) for row in rows("paper")}
    masks = {row["changes"]["mask_seed"] for row in rows("confirmation")}
    seeds = {row["seed"] for row in rows("confirmation")}
    assert not masks & {mask for _, mask in chosen_on}
    assert not seeds & {seed for seed, _ in chosen_on}
    lines = [line for at, group in groups("confirmation").items() if at != FULL for line in group.values()]
    assert all(line.independent(NLL) == list(line.mask_means(NLL).values()) for line in lines)
    assert {len(line.independent(NLL)) for line in lines} == {len(masks)}
    assert {len(line.independent(NLL)) for line in groups("confirmation")[FULL].values()} == {len(seeds)}
    return f"""The settings were chosen on these regimes and trajectories. XReg was therefore trained again with
        {WORDS[len(masks)]} other masks and {WORDS[len(seeds)]} other seeds for each, on which nothing was chosen (the
        test trajectories are the same). Runs with the same mask are not independent of each other, so the intervals
        are over the means of the {WORDS[len(masks)]} masks; at full observation, where there is no mask, they are
        over the {WORDS[len(seeds)]} seeds."""


def the_confirmation() -> str:
    found = groups("confirmation")
    assert counts("confirmation", "dropout", NLL) == counts("confirmation", "dropout", ECE)
    by_score = [where("confirmation", lambda g, s=score: level(g, "xreg", "ensemble", s)) for score in (NLL, ECE)]
    assert by_score == [{(0.8, 50), FULL}] * 2
    [behind] = where("confirmation", lambda g: ahead(g, "ensemble", "xreg", NLL))
    assert behind[0] == 0.7
    assert not where("confirmation", lambda g: ahead(g, "ensemble", "xreg", ECE))
    return f"""XReg's ECE is {spread((mean(group["xreg"], ECE) for group in found.values()), 3)}. It is ahead of
        dropout in {of(counts("confirmation", "dropout", NLL)[0], 8)} regimes, in NLL and ECE. It is ahead of the
        ensemble in {WORDS[counts("confirmation", "ensemble", NLL)[0]]} regimes in NLL and in
        {WORDS[counts("confirmation", "ensemble", ECE)[0]]} in ECE. The two are level in both scores at 0.8 observed
        and at full observation; with {behind[1]} trajectories XReg is behind by
        {short(gap(found[behind], "xreg", "ensemble", NLL).mean, 2)} in NLL. These are again {len(found) * 2 * 2}
        comparisons."""


def the_long_runs() -> str:
    steps = max(row["steps"] for row in rows("paper"))
    for baseline in ("dropout", "ensemble"):
        assert all(counts("paper", baseline, score, steps) == (8, 0) for score in (NLL, ECE))
    eces = [mean(group["xreg"], ECE) for group in groups("paper", steps).values()]
    assert {row["seed"] for row in rows("paper") if row["steps"] == steps} == {*range(10)}
    return f"""After {steps:,} steps, with the table's mask and seeds, XReg is ahead of both baselines in every
        regime, in NLL and in ECE (its own is {spread(eces, 3)})."""


def rivals_at_equal_data() -> list[str]:
    """The other networks of every case at equal data."""
    return [m for m in groups("equal_data")[0.4, 25] if not m.startswith(("xreg", "persistence"))]


def equal_data_in_likelihood() -> str:
    baselines, found = rivals_at_equal_data(), groups("equal_data")
    better = {at: {r for r in baselines if ahead(group, r, "xreg", NLL)} for at, group in found.items()}
    assert all({*group} >= {*baselines, "xreg"} for group in found.values())
    partly = {at: names for at, names in better.items() if at[0] < 1}
    exceptions = {at: names for at, names in partly.items() if names}
    assert exceptions == {
        (0.4, 25): {"ensemble+early+conformal", "ensemble+early+temperature"},
        (0.7, 80): {"ensemble"},
    }
    fully = {at[1]: names for at, names in better.items() if at[0] == 1}
    [everywhere] = set.intersection(*fully.values())
    assert everywhere == "ensemble+early+conformal"
    every = min(total for total, names in fully.items() if names >= {*ENSEMBLES})
    assert all((names >= {*ENSEMBLES}) == (total >= every) for total, names in fully.items())
    return f"""Each case has {len(baselines)} trained baselines. Under partial observation none of them has a better
        likelihood than XReg in {WORDS[len(partly) - len(exceptions)]} of {WORDS[len(partly)]} cases. The exceptions
        are the early-stopped ensembles, conformal or with a temperature, at 0.4 observed with 25 trajectories, and
        the plain ensemble at 0.7 with 80. Where everything is observed, the early-stopped conformal ensemble is
        better in all {WORDS[len(fully)]} cases, and with {every} trajectories and more every ensemble is."""


def equal_data_in_short() -> str:
    """A part of `equal_data_in_likelihood` and of `where_ensembles_are_better`, which check what they leave out."""
    found, baselines = groups("equal_data"), rivals_at_equal_data()
    held_out = {group["xreg"].split[1] / sum(group["xreg"].split) for group in found.values()}
    assert all(share == pytest.approx(1 / 5) for share in held_out)
    partly = [at for at in found if at[0] < 1]
    unbeaten = [at for at in partly if not any(ahead(found[at], r, "xreg", NLL) for r in baselines)]
    fully = [group for at, group in found.items() if at[0] == 1]
    best = sum(ahead(group, "ensemble+early+conformal", "xreg", NLL) for group in fully)
    assert best == len(fully)
    lower = len(where("equal_data", lambda g: ahead(g, "ensemble", "xreg", CRPS)))
    fractions = " and ".join(str(fraction) for fraction in sorted({at[0] for at in partly}))
    return f"""When all methods share one total of trajectories, of which XReg holds out a fifth, no other network has a
        better likelihood in {WORDS[len(unbeaten)]} of {WORDS[len(partly)]} cases at {fractions} observed; at full
        observation the early-stopped conformal ensemble has a better one in all {WORDS[best]} cases. The plain
        ensemble has the lower CRPS in {lower} of all {WORDS[len(found)]}."""


def equal_data_in_calibration() -> str:
    found = groups("equal_data")
    eces = {at: mean(group["xreg"], ECE) for at, group in found.items()}
    for group in found.values():  # no method is best: none is ahead of all others
        assert not any(all(ahead(group, a, b, ECE) for b in group if b != a) for a in group)
    behind = [at for at, group in found.items() if any(ahead(group, r, "xreg", ECE) for r in group if r != "xreg")]
    worst = max(eces, key=eces.__getitem__)
    assert worst[0] == 1
    held_out = {found[worst][m].split[1] for m in ("xreg", *CONFORMAL)}
    dropout, ensemble, _, single = (short(mean(found[worst][m], ECE), 3) for m in CONFORMAL)
    return f"""In no case is one method ahead of all others in ECE. XReg has {spread(eces.values(), 3)}: no other
        method is ahead of it in {WORDS[len(found) - len(behind)]} of {WORDS[len(found)]} cases, and at least one is
        in the other {WORDS[len(behind)]}. Its {short(eces[worst], 3)} is at full observation with {worst[1]}
        trajectories, {WORDS[held_out.pop()]} of them held out. Conformal intervals from the same eight trajectories
        give dropout {dropout}, the ensemble {ensemble} and an unregularized network {single}."""


def how_equal_data_are_divided() -> str:
    for group in groups("equal_data").values():
        plain = {m: group[m].split[1] for m in ("dropout", "ensemble")}
        assert set(plain.values()) == {0}
        for line in (group["xreg"], *(group[m] for m in group if "+" in m)):
            assert line.split[1] / sum(line.split) == pytest.approx(0.2)
    return """Plain dropout and ensembles then train on all of them; XReg, and baselines with early stopping, a
        temperature or conformal intervals, hold out a fifth:"""


def where_conformal_is_better() -> str:
    regimes = groups("paper").values()
    pairs = [(group, m) for group in regimes for m in CONFORMAL]
    eces = [mean(group[m], ECE) for group, m in pairs]
    below = sum(mean(group[m], ECE) < mean(group["xreg"], ECE) for group, m in pairs)
    assert below == len(pairs)
    beyond = sum(ahead(group, m, "xreg", ECE) for group, m in pairs)
    assert all(ahead(groups("paper")[FULL], m, "xreg", NLL) for m in CONFORMAL if m.startswith("ensemble"))
    return f"""Fitted to the same held-out trajectories, they give dropout, ensembles and unregularized models an ECE
        of {spread(eces, 3)} in the table's regimes: below XReg's in all {below} comparisons, and beyond the 95%
        interval in {beyond}. A conformal ensemble also has a better likelihood at full observation."""


def where_ensembles_are_better() -> str:
    lower = {s: len(where("equal_data", lambda g, s=s: ahead(g, "ensemble", "xreg", s))) for s in (CRPS, RMSE)}
    assert not any(where("equal_data", lambda g, s=s: ahead(g, "xreg", "ensemble", s)) for s in (CRPS, RMSE))
    pooled = where("paper", lambda g: ahead(g, "xreg-ensemble", "xreg", NLL))
    eces = [mean(group["xreg-ensemble"], ECE) for group in groups("paper").values()]
    return f"""{WORDS[ENSEMBLE_SIZE].capitalize()} models average their errors: at equal data the plain ensemble has
        the lower CRPS in {lower[CRPS]} and the lower RMSE in {lower[RMSE]} of the
        {WORDS[len(groups("equal_data"))]} cases, and XReg in none. Three pooled XReg models have a lower NLL than
        one in {WORDS[len(pooled)]} of the table's {WORDS[len(groups("paper"))]} regimes, and an ECE of
        {spread(eces, 2)}."""


def where_persistence_is_better() -> str:
    def beats_all(group, baselines) -> bool:
        return all(ahead(group, "persistence-masked", m, NLL) for m in ("xreg", *baselines))

    networks = [m for m in groups("paper")[FULL] if not m.startswith(("xreg-", "xreg+", "persistence"))]
    [(_, few)] = where("paper", lambda g: beats_all(g, networks))
    in_all = where("equal_data", lambda g: beats_all(g, rivals_at_equal_data()))
    assert in_all == {(0.4, 25), (0.7, 25), (0.4, 40)}
    group = groups("paper")[0.7, few]
    assert ahead(group, "xreg-modes", "persistence-masked", NLL)
    modes, other = with_interval(group["xreg-modes"].interval(NLL), 2), mean(group["persistence-masked"], NLL)
    return f"""When points are hidden and trajectories are few ({few} in the table above; at equal data 25 in all, or
        40 at 0.4 observed), a persistence forecast that is told which points are hidden has a better likelihood than
        the default XReg and every baseline network. XReg with its noise on Fourier modes instead of features
        (`xreg-modes`, which takes longer to train) is ahead of persistence at {few}: {modes.replace("± 0.", "± .")}
        against {short(other, 2)}."""


def the_two_parts() -> str:
    few, many = (groups("paper")[0.7, size]["xreg"] for size in (20, 70))
    parts = [[mean(line, f"test_std_{part}") for line in (few, many)] for part in ("predictive", "generalization")]
    assert all(
        ahead({"few": few, "many": many}, "many", "few", f"test_std_{p}") for p in ("predictive", "generalization")
    )
    (pred_few, pred_many), (gen_few, gen_many) = parts
    return f"""from 20 to 70 of them the mean √U_pred falls from {pred_few:.3f} to {pred_many:.3f}, and √U_gen from
        {gen_few:.3f} to {gen_many:.3f}."""


def what_there_is_besides() -> str:
    steps = " and ".join(f"{n:,}" for n in sorted({row["steps"] for row in rows("paper")}))
    return f"""[All comparisons: equal data, {steps} steps, other masks, variants, the {WORDS[len(REGIMES)]}
        regimes, the ablation]"""


def the_time_of_a_run() -> str:
    [step] = [
        row["seconds"][0]
        for row in json.loads((RESULTS / "price.json").read_text())
        if (row["device"], row["group"], row["contender"]) == ("cpu", "training", "xreg")
    ]
    return f"""`train` runs {TrainConfig.steps:,} steps unless told otherwise, on two cores at about
        {1e3 * step:.1f} ms a step"""


def the_page_of_cars() -> str:
    made = json.loads((RESULTS / "cars.json").read_text())
    count, [vertices, _] = made["test"], made["vertices"]
    body, values = np.zeros((vertices, 3)), np.ones(vertices)
    faces = np.zeros((2 * vertices - 4, 3), int)  # of a closed surface without a hole
    car, prediction = Surface("", body, body, values, faces), Prediction(values, values, values, values)
    predictions: tuple[Prediction, ...] = (prediction,) * count
    room = car_page.LARGEST - car_page._REST - len(plotly_script().encode())

    def shown(study: CarStudy) -> int:
        methods = [method.name for method in methods_of(study)] + ["vertex-mean"]
        run = CarRun({}, (car,) * count, dict.fromkeys(methods, predictions), {})
        return len(car_page.cars_to_embed(run, room))

    full = car_study("full")
    return f"""with `--profile full` {shown(full)} of the {count}, so that the file stays below
        {car_page.LARGEST // 10**6} MB. With `--methods all` it shows {shown(replace(full, methods="all"))}."""


def the_methods() -> str:
    return f"""nothing learned on reg; M of these pooled (by default {ENSEMBLE_SIZE}) | | `xreg-ensemble` |
        {WORDS[ENSEMBLE_SIZE]} XReg models pooled | | `dropout[-P]`, `dropout-reg` | MC dropout with
        p = {ModelConfig.dropout_rate} or P, or with the p that reg chooses |"""


def the_part_that_wrappers_keep() -> str:
    share = f"{_CALIBRATION_SHARE:.0%}"
    return f"where a method has learned on reg itself, {share} of reg, drawn by the seed, are kept from it"


def the_hidden_points_of_the_figure() -> str:
    return f"inputs of which {1 - DataConfig.observed_fraction:.0%} of the points are hidden"


def the_python() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return f"Python {project['requires-python'].removeprefix('>=')} or newer"


def the_summary_in_one_paragraph() -> str:
    regimes = groups("paper")
    assert all(mean(group["xreg"], ECE) < 0.02 for group in regimes.values())
    assert counts("paper", "dropout", NLL) == (len(regimes), 0)
    assert counts("paper", "ensemble", NLL)[0] > len(regimes) / 2
    full = [group for at, group in groups("equal_data").items() if at[0] == 1 and at[1] >= 60]
    assert all(ahead(group, m, "xreg", NLL) for group in full for m in ENSEMBLES)
    return """With one setting for all of the paper's regimes, XReg is well calibrated (mean test ECE below .02) and
        has a better likelihood than MC dropout everywhere and than a three-member ensemble in most regimes. It is not
        the best at everything: ensembles are more accurate, conformal intervals are often better calibrated, and
        where everything is observed and data are plentiful, ensembles also have the better likelihood."""


def the_other_experiments() -> str:
    made = json.loads((RESULTS / "cars.json").read_text())
    seeds = made["settings"]["cars"]["seeds"]
    others = len({row["scenario"] for row in rows("scenarios")})
    steps = " and ".join(f"{n:,}" for n in sorted({row["steps"] for row in rows("paper")}))
    forecasts = rows("rollouts")
    settings = {tuple(row.get(n) for n in ("study", "scenario", "observed_fraction", "reg_steps")) for row in forecasts}
    most = max(row["lead"] for row in forecasts)
    return f"""| [Results by experiment](results.md) | equal data, {steps} steps, other masks and seeds, the
        {WORDS[len(REGIMES)]} regimes, the ablation | | [Forecasts: results](rollouts.md) | forecasts
        of up to {most} steps: spread/skill, ECE and CRPS by lead, of up to {len({row["method"] for row in forecasts})}
        methods in {WORDS[len(settings)]} settings | | [Further scenarios](scenarios.md) | {WORDS[others]} more
        equations, in one and two dimensions, with the default setting | | [Cars](cars_results.md) | surface pressure
        on cars: {len(made["methods"])} methods, {WORDS[seeds]} seeds, {made["test"]} test cars |"""
