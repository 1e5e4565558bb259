"""Forecasts: what is published of their sweeps, how methods are compared, and the page, against the rows."""

import json
import re
import runpy
import sys

import numpy as np
import pytest
from claimed import ROOT, flat, part_of, rows, unclaimed_numbers
from scipy.stats import t

from crossreg.cli.main import main
from crossreg.config import Config, to_dict, to_yaml
from crossreg.designs.grids import ROLLOUT_METHODS, plan
from crossreg.errors import InputError
from crossreg.runs.sweep_folder import sealed_row, trial_key

sys.path.append(str(ROOT / "benchmarks"))  # its scripts import each other
PUBLISH, LINES, TABLES, GOALS, PAGE = (
    runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"))
    for name in ("publish_rollouts", "rollout_lines", "rollout_tables", "rollout_goals", "rollouts_page")
)
PUBLISHED = (ROOT / "docs" / "results" / "rollouts.jsonl").exists()
published = pytest.mark.skipif(not PUBLISHED, reason="no rows of forecasts are published yet")
START = {"device": "a device", "jax": "1.2", "crossreg": "0"}
# The lead 60 is none that is published.
LEADS = [1, 2, 10, 60]
METHODS, SEEDS = ("xreg-rollout", "ensemble", "dropout+growth"), 5
MARKS = ("forecasts", ["README.md", "docs/index.md"])


def scores(seed: int, method: str) -> dict:
    """Made-up scores of a run, with more digits than are published."""
    rng = np.random.default_rng([seed, len(method)])
    found = {name: rng.uniform(0.01, 0.9, len(LEADS)).tolist() for name in LINES["SCORES"]}
    lost = np.cumsum(rng.integers(0, 3, len(LEADS))).tolist()
    return found | {"leads": LEADS, "lost": lost, "particles_in_all": 120, "coverage": [[0.1] * 9] * len(LEADS)}


def make_sweep(folder, name="rollouts", *, methods=METHODS, change=None, finished=None, **settings):
    """Write the folder of a sweep with a made-up row for each trial; `change` alters a row before it is written."""
    base, seeds = Config().replace(**settings), {"methods": ",".join(methods), "seeds": SEEDS, "first_seed": 3}
    asked = {"name": name, **seeds, "steps": 10_000, "grid": [], "config": to_dict(base), "data": "waves"}
    folder.mkdir(parents=True)
    (folder / "sweep.json").write_text(json.dumps(asked | {"starts": [START]}))
    lines = []
    for trial in plan(name, **seeds, steps=10_000, base=base)[:finished]:
        data, seed = trial.config.data, trial.config.train.seed
        row = {"key": trial_key(trial, "waves"), "scenario": data.scenario, "method": trial.method.name, "seed": seed}
        row |= {k: getattr(data, k) for k in ("observed_fraction", "train_size", "reg_size")} | {"steps": 10_000}
        row |= {"settings": {**settings, "rollout_steps": 100}, "diverged": False}
        row["rollouts"] = scores(seed, trial.method.name)
        lines.append(sealed_row(change(row) if change else row))
    (folder / "rows.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty place for results; the scripts write below the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "docs" / "results"


def stored(results) -> list[dict]:
    return [json.loads(line) for line in (results / "rollouts.jsonl").read_text().splitlines()]


def test_there_is_a_row_for_every_run_and_lead(results, tmp_path):
    PUBLISH["store"]([make_sweep(tmp_path / "s")])
    found = stored(results)
    assert len(found) == 2 * len(METHODS) * SEEDS * 3
    assert {row["lead"] for row in found} == {1, 2, 10}
    assert {row["seed"] for row in found} == {*range(3, 3 + SEEDS)}
    about = {"study", "scenario", "observed_fraction", "train_size", "reg_size", "method", "seed", "lead"}
    for row in found:
        assert {*row} == {*about, *LINES["SCORES"], "out_of_range", "particles_in_all"}
        place, made = LEADS.index(row["lead"]), scores(row["seed"], row["method"])
        assert (row["out_of_range"], row["particles_in_all"]) == (made["lost"][place], 120)
        for name in LINES["SCORES"]:
            assert row[name] == pytest.approx(made[name][place], rel=5e-4)
            assert len(re.sub(r"^0\.0*", "", str(row[name]))) <= 4


def test_a_sweep_as_it_is_run_is_published(cached_waves, tiny, results, tmp_path):
    """With one method that needs no training; its scores have the names and lengths that are expected here."""
    settings = tmp_path / "tiny.yaml"
    settings.write_text(to_yaml(tiny))
    how = ["--methods", "persistence+growth", "--seeds", "2", "--config", str(settings), "--quiet"]
    assert main(["sweep", "rollouts", *how, "--out", str(tmp_path / "s")]) == 0
    PUBLISH["store"]([tmp_path / "s"])
    found = stored(results)
    lines = [json.loads(line) for line in (tmp_path / "s" / "rows.jsonl").read_text().splitlines()]
    by = {(row["observed_fraction"], row["seed"]): row["rollouts"] for row in lines}
    assert len(by) == 2 * 2
    assert len(found) == 2 * 2 * 3  # leads 1, 2 and 5 of test trajectories with 5 steps
    for row in found:
        scores = by[row["observed_fraction"], row["seed"]]
        place = scores["leads"].index(row["lead"])
        assert row["crps"] == pytest.approx(scores["crps"][place], rel=5e-4)
        assert row["out_of_range"] == scores["lost"][place]
        assert (row["test_size"], row["width"]) == (tiny.data.test_size, tiny.model.width)


def test_what_made_the_rows_stands_beside_them_once(results, tmp_path):
    first, second = make_sweep(tmp_path / "a"), make_sweep(tmp_path / "b", scenario="diff_kdv", test_horizon=10)
    PUBLISH["store"]([first, second])
    PUBLISH["store"]([first])
    made = json.loads((results / "rollouts.json").read_text())
    said = (
        "crossreg sweep rollouts --seeds 5 --steps 10000 --first-seed 3 --methods xreg-rollout,ensemble,dropout+growth"
    )
    assert {one["command"] for one in made} == {f"{said} --out DIR", f"{said} --scenario diff_kdv --out DIR"}
    assert [(one["starts"], one["data"]) for one in made] == [([START], "waves")] * 2


def test_a_run_that_is_published_again_is_replaced_and_others_are_kept(results, tmp_path):
    PUBLISH["store"]([make_sweep(tmp_path / "a"), make_sweep(tmp_path / "b", reg_steps=40)])
    before = stored(results)

    def other(row):
        return row | {"rollouts": row["rollouts"] | {"crps": [7.0] * len(LEADS)}}

    PUBLISH["store"]([make_sweep(tmp_path / "c", methods=("ensemble",), change=other)])
    after = stored(results)
    assert [PUBLISH["run_of"](row) for row in after] == [PUBLISH["run_of"](row) for row in before]
    changed = [(row, old) for row, old in zip(after, before, strict=True) if row != old]
    assert len(changed) == 2 * SEEDS * 3
    assert all(row["crps"] == 7 and row["method"] == "ensemble" and "reg_steps" not in row for row, _ in changed)
    # Fewer leads leave none of the older ones behind.
    PUBLISH["store"]([tmp_path / "c"], leads=[1, 10])
    assert len(stored(results)) == len(before) - 2 * SEEDS


def test_settings_off_those_of_the_study_and_the_scenario_tell_rows_apart(results, tmp_path):
    sweeps = [
        make_sweep(tmp_path / "a", reg_steps=40),
        make_sweep(tmp_path / "b", scenario="phy_gs", num_spatial_dims=2, num_points=64, test_horizon=10),
        make_sweep(tmp_path / "c", scenario="diff_kdv"),  # tested on more steps than its preset has
    ]
    PUBLISH["store"](sweeps)
    known = {"study", "scenario", "observed_fraction", "train_size", "reg_size", "method", "seed", "lead"}
    known |= {*LINES["SCORES"], "out_of_range", "particles_in_all"}
    others = {(row["scenario"], str({k: v for k, v in row.items() if k not in known})) for row in stored(results)}
    test_steps = Config().data.test_horizon
    assert others == {
        ("diff_ks", "{'reg_steps': 40}"),
        ("phy_gs", "{'num_points': 64}"),
        ("diff_kdv", f"{{'test_horizon': {test_steps}}}"),
    }
    titles = [setting.title for setting in LINES["settings"](stored(results))]
    assert titles[0] == "`diff_ks`, fully observed, reg trajectories of 40 steps"
    assert f"`diff_kdv`, fully observed, test trajectories of {test_steps} steps" in titles
    assert len({setting.slug for setting in LINES["settings"](stored(results))}) == len(titles) == 6


def test_methods_of_equal_data_are_one_setting(results, tmp_path):
    PUBLISH["store"]([make_sweep(tmp_path / "s", "rollouts-equal-data")])
    assert {(row["train_size"], row["reg_size"]) for row in stored(results)} == {(48, 12), (60, 0)}
    [setting] = LINES["settings"](stored(results))
    assert setting.title == "`diff_ks`, fully observed, 60 trajectories in all"
    assert {*setting.lines} == {*METHODS, "climatology"}


def refuse(folder, match):
    with pytest.raises(InputError, match=match):
        PUBLISH["store"]([folder])


def test_what_is_not_whole_is_refused_and_nothing_is_written(results, tmp_path):
    refuse(make_sweep(tmp_path / "a", finished=28), r"a: 2 of 30 runs are not finished")
    refuse(make_sweep(tmp_path / "b", "ablation", methods=("xreg",)), r"b: holds the sweep ablation; expected rollouts")

    def failed(row):
        return row | {"diverged": row["method"] == "ensemble" and row["seed"] == 4}

    refuse(make_sweep(tmp_path / "c", change=failed), r"c: 2 of 30 runs diverged, the first is ensemble with seed 4")
    refuse(
        make_sweep(tmp_path / "d", change=lambda row: {k: v for k, v in row.items() if k != "rollouts"}),
        r"d: xreg-rollout with seed 3 has no scores of forecasts; score it with the sweep rollouts",
    )
    refuse(
        make_sweep(tmp_path / "e", change=lambda row: row | {"rollouts": row["rollouts"] | {"energy_score": [1.0]}}),
        r"e: xreg-rollout with seed 3 has no energy_score by lead",
    )
    assert not results.exists()


def test_runs_that_diverged_are_counted_without_scores_where_asked_for(results, tmp_path):
    def failed(row):
        return row | {"diverged": row["method"] == "ensemble" and row["seed"] == 4}

    PUBLISH["store"]([make_sweep(tmp_path / "s", change=failed)], diverged=True)
    marked = [row for row in stored(results) if row.get("diverged")]
    assert len(marked) == 2 * 3
    assert all(row[name] is None for row in marked for name in LINES["SCORES"])
    line = LINES["settings"](stored(results))[0].lines["ensemble"]
    assert (line.seeds, line.diverged) == (SEEDS, 1)
    assert len(line.by_seed["crps at lead 10"]) == SEEDS - 1


# How methods are compared, by made-up rows: three leads, four methods, six seeds.

CRPS = {
    "xreg-rollout-ensemble": [[1.0, 2.0, 4.0]] * 6,
    "xreg-rollout": [[1.1, 2.5, 5.0 + 0.1 * seed] for seed in range(6)],
    "ensemble+growth": [[1.0 + 0.1 * (-1) ** seed, 2.2 + 0.01 * seed, 5.0 + seed**2 / 10] for seed in range(6)],
    "dropout": [[3.0, 1.5 + 0.01 * seed, None if seed == 2 else 9.0] for seed in range(6)],
}


def made_rows(**about) -> list[dict]:
    found = []
    for method, by_seed in CRPS.items():
        for seed, values in enumerate(by_seed):
            for lead, crps in zip((1, 10, 50), values, strict=True):
                row = {"study": "rollouts", "scenario": "diff_ks", "observed_fraction": 1.0, "train_size": 50}
                row |= {"reg_size": 50, **about, "method": method, "seed": seed, "lead": lead}
                row |= dict.fromkeys(LINES["SCORES"], 0.02) | {"crps": crps, "crps_climatology": 6.0}
                spread = 0.9 + 0.02 * seed + 0.001 * lead
                row |= {"spread_skill": spread, "out_of_range": int(method == "dropout" and lead > 1)}
                found.append(row | {"particles_in_all": 240})
    return found


@pytest.fixture
def setting():
    [found] = LINES["settings"](made_rows())
    return found


def test_means_and_intervals_are_those_of_the_rows(setting):
    values = [row[2] for row in CRPS["ensemble+growth"]]
    found = LINES["mean_at"](setting.lines["ensemble+growth"], "crps", 50)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.half == pytest.approx(t.ppf(0.975, 5) * np.std(values, ddof=1) / np.sqrt(6))
    assert LINES["mean_at"](setting.lines["dropout"], "crps", 50) is None  # one seed has none
    climatology = LINES["mean_at"](setting.lines["climatology"], "crps", 10)
    assert climatology == (6.0, 0.0)
    ends = LINES["range_of"](setting.lines["dropout"], "spread_skill", [1, 10, 50])
    assert ends == pytest.approx((0.951, 1.0))
    assert LINES["out_of_range"](setting.lines["dropout"]) == 6
    assert setting.baselines == ["dropout", "ensemble+growth", "climatology"]


def test_differences_are_paired_by_seed(setting):
    ours, theirs = (np.array([row[2] for row in CRPS[m]]) for m in ("xreg-rollout", "ensemble+growth"))
    gap = LINES["crps_gap"](setting, "xreg-rollout", "ensemble+growth", 50)
    assert gap.mean == pytest.approx(np.mean(ours - theirs) / np.mean(theirs))
    half = t.ppf(0.975, 5) * np.std(ours - theirs, ddof=1) / np.sqrt(6)
    assert gap.half == pytest.approx(half / np.mean(theirs))
    assert LINES["crps_gap"](setting, "xreg-rollout", "dropout", 50) is None
    assert LINES["crps_gap"](setting, "xreg-rollout", "ensemble", 50) is None
    assert [LINES["best_baseline"](setting, lead) for lead in (1, 10, 50)] == [
        "ensemble+growth",
        "dropout",
        "ensemble+growth",
    ]


def test_comparisons_are_counted_by_their_verdict(setting):
    gaps = [
        LINES["crps_gap"](setting, "xreg-rollout-ensemble", b, lead) for b in setting.baselines for lead in (1, 10, 50)
    ]
    # Of dropout: below, above, unknown; of the ensemble: level, below, below; below the climatology everywhere.
    assert LINES["counts"](gaps) == (8, 6, 1, 1)
    said = TABLES["how_many"]([setting])
    assert "make 16 comparisons" in said
    table = TABLES["gap_table"](setting, "xreg-rollout-ensemble")
    dropout, ensemble, climatology = ([cell.strip() for cell in line.strip("|").split("|")] for line in table[2:])
    above = 2.0 / np.mean([row[1] for row in CRPS["dropout"]]) - 1
    assert dropout[1].startswith("**−67 ±")
    assert dropout[2].startswith(f"*{100 * above:.0f} ±")
    assert dropout[3] == "–"
    assert ensemble[1].startswith("0 ±")
    assert climatology[3] == "**−33 ± 0%**"


def test_the_summary_and_the_goals_say_what_the_rows_say(setting, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    said = PAGE["summary"]([setting])
    assert said[0] == (
        "- **Three members, `xreg-rollout-ensemble`** (`diff_ks`, fully observed, 6 seeds): spread/skill is .95 to 1.00"
        " and ECE .020 at leads 1 to 50."
    )
    together = " ".join(said)
    assert "`xreg-rollout-ensemble` is below every baseline at every lead in none of 1 settings" in together
    assert (
        "of 5 single comparisons it is below in 4, above in 1, and level in the rest; 1 more have no finite" in together
    )
    assert "`diff_ks`, fully observed (`dropout` at lead 10)" in together
    assert "0 of 2,880 particles of `xreg-rollout-ensemble` and `xreg-rollout`; 6 of 5,760 particles of" in together
    goals = [[cell.strip() for cell in line.strip("|").split("|")] for line in GOALS["goals"]([setting])[2:]]
    reached = [row[2] for row in goals]
    assert reached[:2] == ["yes", "yes"]
    assert reached[2] == "no: `dropout` at leads 10, 50"
    assert reached[3] == "no: `dropout` at leads 10, 50; `ensemble+growth` at leads 10, 50"
    assert reached[4:6] == ["not measured"] * 2  # there is no `xreg`
    assert reached[6:] == ["yes", *["not measured"] * 3]
    (tmp_path / "docs" / "results").mkdir(parents=True)
    cases, training = (
        ("1,000 × 200 × 30", "60 × 100 × 30"),
        {"steps": 10_000, "xreg": [40, 41], "xreg-rollout": [50, 51]},
    )
    times = {"NVIDIA H200": {cases[0]: {"forecast": [2.3, 2.4]}, cases[1]: {"forecast": [1, 1]}, "training": training}}
    times["some processor"] = {cases[1]: {"forecast": [9, 9]}, "training": training | {"xreg": [1, 1]}}
    (tmp_path / "docs" / "results" / "rollout_speed.json").write_text(json.dumps(times))
    goals = [[cell.strip() for cell in line.strip("|").split("|")] for line in GOALS["goals"]([setting])[-3:]]
    measured = [row[1:] for row in goals]
    assert measured == [["2.3 s", "no"], ["9 s", "yes"], ["1.25 times: 50 s against 40 s, 10,000 steps", "yes"]]


def test_the_summary_says_where_ours_falls_short():
    """At short leads, beside error bars from single steps, and beside the climatology."""
    crps = {
        "xreg-rollout-ensemble": (1.2, 2.0, 7.0), "xreg-ensemble": (1.0, 2.5, 7.0), "ensemble": (1.0, 2.5, 9.0),
    }  # fmt: skip
    ece = {"xreg-rollout-ensemble": 0.02, "xreg-ensemble": 0.03, "ensemble": 0.1}
    made = [
        row | {"method": method, "crps": values[(1, 10, 50).index(row["lead"])] * (1 + 0.001 * row["seed"])}
        | {"particles_in_all": 3 if method == "ensemble" else 240, "out_of_range": 12 * (method != "ensemble")}
        | {"ece_mix": ece[method]}
        for method, values in crps.items() for row in made_rows() if row["method"] == "xreg-rollout-ensemble"
    ]  # fmt: skip
    [found] = LINES["settings"](made)
    said = " ".join(PAGE["summary"]([found]))
    assert (
        "beyond the interval, at any lead: `diff_ks`, fully observed (`ensemble` at lead 1, `climatology` at lead 50)."
        in said
    )
    assert (
        "is below that of `xreg-ensemble` in 1 of 2 comparisons, above in 0, and level in the rest (differences of"
        " −20% to 0%)" in said
    )
    assert "its mean ECE is lower in 2." in said
    assert "above the climatology's: `diff_ks`, fully observed (`xreg-rollout-ensemble` at lead 50)." in said
    assert (
        "72 of 1,440 particles of `xreg-rollout-ensemble` and `xreg-rollout`, and up to 5% of those of one method"
        in said
    )
    assert "144 of 2,898 particles of all methods together" in said
    [about] = [line for line in TABLES["by_setting"]([found]) if "6 seeds" in line]
    assert about == "6 seeds; together, the forecasts of a run have 3 or 240 particles, depending on the method."


def test_a_summary_of_another_setting_alone_has_no_headline():
    [other] = LINES["settings"](made_rows(scenario="diff_kdv"))
    assert not any("Three members, " in line for line in PAGE["summary"]([other]))
    assert TABLES["front"]([other], "", "###") == []


def test_the_page_is_written_with_figures_and_front_pages(results, tmp_path):
    for name in ("benchmarks/rollouts_page.md", "mkdocs.yml", "README.md", "docs/index.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    listed = [*made_rows(), *made_rows(observed_fraction=0.7)]
    for _ in range(2):  # the second time changes nothing
        PAGE["write"](listed, [{"command": "crossreg sweep …", "starts": [START]}])
        drawn = {path.name for path in (tmp_path / "docs" / "figures" / "rollouts").iterdir()}
        assert drawn == {"front.png", "diff_ks_observed-1.png", "diff_ks_observed-0.7.png"}
        text = (tmp_path / "docs" / "rollouts.md").read_text()
        assert set(re.findall(r"figures/rollouts/([^)]*)\)", text)) == drawn - {"front.png"}
        assert "- `crossreg sweep …` on a device, JAX 1.2." in text
        assert (tmp_path / "mkdocs.yml").read_text().count("rollouts.md") == 1
        for page, prefix in (("README.md", "docs/"), ("docs/index.md", "")):
            block = (tmp_path / page).read_text().split("<!-- forecasts, written by")[1].split("<!-- end of")[0]
            assert block.count(f"({prefix}figures/rollouts/front.png)") == 1
            assert "| `xreg-rollout-ensemble` | .95 / .020 / 1.00 |" in block


# What is published.


def test_no_number_of_the_prose_is_without_a_claim():
    """Its results stand between marks; the rest says what is compared and how."""
    named = (
        "a 95% interval over seeds",
        "the 95% interval of the paired difference",
        "excludes 0",
        "paired 95% interval",
    )
    named += ("Means ± 95% intervals", "with 95% intervals as bands", "below 1, error bars", "above 1 too large")
    named += ("one for each run and lead", "with its paired 95% interval", "three pooled", "three such models pooled")
    named += ("three networks",)
    text = (ROOT / "benchmarks" / "rollouts_page.md").read_text()
    assert unclaimed_numbers(text, [], named) == []
    table = part_of("benchmarks/rollouts_page.md", "| method |", "In the")
    methods = set(re.findall(r"`([a-z+-]+)`", table))
    assert methods == {*ROLLOUT_METHODS.split(","), "climatology"}


@pytest.mark.skipif(PUBLISHED, reason="rows of forecasts are published")
def test_nothing_is_said_before_there_are_rows():
    assert not (ROOT / "docs" / "rollouts.md").exists()
    assert "rollouts.md" not in (ROOT / "mkdocs.yml").read_text()
    for name in MARKS[1]:
        first, last = PAGE["marks"](MARKS[0])
        assert f"{first}\n{last}" in (ROOT / name).read_text()


@published
def test_the_page_and_the_front_pages_are_those_of_the_rows(monkeypatch):
    monkeypatch.chdir(ROOT)
    found = LINES["settings"](rows("rollouts"))
    made = json.loads((ROOT / "docs" / "results" / "rollouts.json").read_text())
    assert (ROOT / "docs" / "rollouts.md").read_text() == PAGE["page"](found, made)
    for path in PAGE["FRONT"]:
        assert path.read_text() == PAGE["front_page"](path, found)
    drawn = {path.stem for path in (ROOT / "docs" / "figures" / "rollouts").iterdir()}
    assert drawn == {*(setting.slug for setting in found), "front"}
    assert "rollouts.md" in (ROOT / "mkdocs.yml").read_text()


@published
def test_the_published_rows_are_whole_and_in_order():
    listed = rows("rollouts")
    assert (ROOT / "docs" / "results" / "rollouts.jsonl").stat().st_size < 5_000_000
    assert len({(PUBLISH["run_of"](row), row["lead"]) for row in listed}) == len(listed)
    assert PUBLISH["merged"](listed, []) == listed
    for setting in LINES["settings"](listed):
        assert len({line.seeds for line in setting.lines.values()}) == 1, setting.title
        assert {*setting.lines} >= {"xreg-rollout", "xreg-rollout-ensemble"}
        assert flat(setting.title) in flat((ROOT / "docs" / "rollouts.md").read_text())
