"""Tables of made-up rows: means, intervals, who wins, and what is compared with what."""

import csv

import numpy as np
import pytest

from crossreg.designs import paper
from crossreg.errors import InputError
from crossreg.report.page.lines import forecast_curves
from crossreg.report.tables import comparison, comparison_tables, curves, forecasts, verdicts
from crossreg.report.tables import write as table_files


def made_up(method, nll, *, fraction=0.4, diverged=()):
    """Rows of made-up numbers, one per seed."""
    names = "crps rmse std_mu std_predictive std_generalization std spearman ause"
    scores = dict.fromkeys(names.split(), 0.1)
    return [
        {
            "observed_fraction": fraction,
            "train_size": 50,
            "reg_size": 50,
            "method": method,
            "seed": seed,
            "steps": 10,
            "diverged": seed in diverged,
            "test": scores | {"nll": value, "ece_mix": 0.01 * (seed + 1)},
            "reg": None if method == "ensemble" else scores | {"nll": value, "ece_mix": 0.02},
        }
        for seed, value in enumerate(nll)
    ]


def test_means_intervals_and_winners(tmp_path):
    ours = [-1.0, -1.1, -0.9, -1.0]
    rows = made_up("xreg", ours) + made_up("dropout", [-0.5, -0.6, -0.4, 99.0], diverged=(3,))
    rows += made_up("ensemble", [-1.0, -1.2, -0.8, -1.0]) + made_up("xreg", ours, fraction=0.6)
    rows += made_up("dropout", [-2.0, -2.1, -1.9, -2.0], fraction=0.6)
    lines = comparison.collect(rows)
    xreg, dropout, ensemble, *_ = lines
    interval = xreg.interval("test_nll")
    assert interval is not None
    assert interval.mean == pytest.approx(-1)
    # t(3, 97.5%) = 3.182; standard error 0.0816 / 2.
    assert interval.half == pytest.approx(3.182446 * np.std(ours, ddof=1) / 2, rel=1e-5)
    assert (dropout.seeds, dropout.diverged) == (4, 1)
    assert dropout.interval("test_nll").mean == pytest.approx(-0.5)  # pyright: ignore[reportOptionalMemberAccess]
    assert ensemble.interval("reg_ece_mix") is None
    groups = comparison.regimes(lines)
    assert comparison.clearly_best(groups[0], "test_nll") is None  # the ensemble is as good
    best = comparison.clearly_best(groups[1], "test_nll")
    assert best is not None
    assert best.method == "dropout"
    said = "\n".join(verdicts.verdicts(lines))
    assert (
        "Test NLL: XReg is best in none of 2 regimes, level with the best in 1 and behind in 1"
        " (0.6 observed, 50 trajectories: dropout, by 1.000 ±"
    ) in said
    assert verdicts.duels(lines)["dropout"]["test_nll"] == (1, 0, 1)
    assert verdicts.duels(lines)["ensemble"]["test_nll"] == (0, 1, 0)
    text = table_files.write_tables(rows, tmp_path)
    assert "−2.000 ± 0.130*" in text
    assert "| dropout | 1 / 0 / 1 |" in (tmp_path / "table.md").read_text()
    assert "**−2.000 ± 0.130**" in (tmp_path / "table.md").read_text()
    assert r"\textbf{$-$2.000 $\pm$ 0.130}" in (tmp_path / "table.tex").read_text()
    # A line between the regimes, three methods in the first and two in the second, and below the head of the LaTeX.
    shown = comparison_tables.as_text(lines).splitlines()
    assert [bool(line) for line in shown[:7]] == [True, True, True, True, False, True, True]
    assert (tmp_path / "table.tex").read_text().count(r"\midrule") == 2


def test_a_csv_file_has_every_score_with_the_ends_of_its_interval():
    rows = made_up("xreg", [-1.0, -1.1, -0.9]) + made_up("dropout", [-0.5, -0.7, -0.4], diverged=(2,))
    rows += made_up("ensemble", [-2.0])
    lines = comparison.collect(rows)
    table = list(csv.DictReader(table_files.as_csv(lines).splitlines()))
    assert [row["method"] for row in table] == ["xreg", "dropout", "ensemble"]
    assert [(row["seeds"], row["diverged"]) for row in table] == [("3", "0"), ("3", "1"), ("1", "0")]
    assert [row["reg_in_sample"] for row in table] == ["yes", "no", "no"]
    for line, row in zip(lines, table, strict=True):
        for score in comparison.SCORES:
            values, interval = line.values(score), line.interval(score)
            expected = ["", "", ""]
            if interval is not None:
                ends = [interval.mean - interval.half, interval.mean + interval.half]
                expected = [str(np.mean(values)), *map(str, ends if len(values) > 1 else ("", ""))]
            assert [row[score], row[f"{score}_low"], row[f"{score}_high"]] == expected, score
    assert float(table[0]["test_nll_low"]) < float(table[0]["test_nll"]) < float(table[0]["test_nll_high"])


def test_at_equal_data_the_split_is_not_chosen_by_test_scores():
    def divided(method, nll, train, reg):
        changes = {"one_pool": True, "train_size": train, "reg_size": reg}
        rows = made_up(method, nll)
        return [row | {"train_size": train, "reg_size": reg, "changes": changes} for row in rows]

    rows = divided("xreg", [-2.0, -2.1, -2.2, -2.3], 20, 5) + divided("xreg", [-9.0, -9.1, -9.2, -9.3], 22, 3)
    rows += divided("ensemble", [-1.5, -1.6, -1.5, -1.6], 25, 0)
    lines = comparison.collect(rows)
    [group] = comparison.regimes(lines)
    assert group[0].regime["total"] == 25
    compared = comparison.fair_group(group)
    assert [line.split for line in compared] == [(20, 5), (25, 0)]
    said = verdicts.verdicts(lines)
    assert said[0] == "Test NLL: XReg is best."
    assert "holds out about a fifth is judged" in said[-1]
    assert "22 + 3" in comparison_tables.as_markdown(lines)
    assert "0.4,25,10,22,3,xreg,4,0" in table_files.as_csv(lines)


def test_settings_are_compared_with_the_default(tmp_path):
    def changed(nll, **changes):
        rows = made_up("xreg", nll)
        return [row | {"reg_size": changes.get("reg_size", 50), "changes": changes} for row in rows]

    rows = changed([-1.0, -1.1, -0.9]) + changed([-2.0, -2.1, -1.9], k_reg=1) + changed([-1.0, -1.2, -0.8], reg_size=5)
    table = verdicts.against_default(comparison.collect(rows))
    assert set(table) == {("k_reg 1", "xreg"), ("reg_size 5", "xreg")}
    gap = table["k_reg 1", "xreg"]["0.4, 50"]["test_nll"]
    assert gap is not None
    assert gap.mean == pytest.approx(-1)
    assert gap.high < 0
    text = table_files.write_tables(rows, tmp_path)
    assert "−1.000 ± 0.227*" in text
    assert "| k_reg 1 | **−1.000 ± 0.227** |" in (tmp_path / "table.md").read_text()
    # One row twice would make an interval too small.
    with pytest.raises(InputError, match="two rows"):
        comparison.collect(rows + rows[:1])


def test_heads_alone_show_their_two_parts_against_the_residuals(tmp_path):
    rows = made_up("xreg", [-1.0, -1.1]) + made_up("dropout", [-1.0, -1.1])
    assert not comparison_tables.decomposition_cells(comparison.collect(rows))
    heads = made_up("xreg-heads", [-1.0, -1.1])
    for row in [*rows, *heads]:
        row["train"] = row["test"] | {"rmse": 0.2, "rms_predictive": 0.3, "rms_generalization": 0.4}
    for row in heads:
        row["test"] |= {"std_mu": 0.0}
    header, *body = comparison_tables.decomposition_cells(comparison.collect(rows + heads))
    assert header[2:6] == ["method", "train RMSE", "train √U_pred", "train √U_gen"]
    [(_, _, method, *values)] = body
    assert method == comparison_tables.Cell("xreg-heads")
    expected = ["0.2000 ± 0.0000", "0.3000 ± 0.0000", "0.4000 ± 0.0000"]
    assert values[:3] == [comparison_tables.Cell(text) for text in expected]
    assert "train √U_gen" in table_files.write_tables(rows + heads, tmp_path)
    # With noise inside the network in any seed, the spread of the means is a part of √U_gen too.
    heads[0]["test"] |= {"std_mu": 0.1}
    assert not comparison_tables.decomposition_cells(comparison.collect(rows + heads))


def test_failures_are_not_hidden():
    rows = made_up("xreg", [1.0, 1.0], diverged=(0, 1)) + made_up("dropout", [2.0, 2.1])
    said = "".join(verdicts.verdicts(comparison.collect(rows)))
    assert "Test NLL: XReg is behind (0.4 observed, 50 trajectories: every seed of xreg diverged)." in said
    assert verdicts.duels(comparison.collect(rows))["dropout"]["test_nll"] == (0, 0, 1)
    rows = (
        made_up("xreg", [1.0, 1.1]) + made_up("dropout", [2.0, 2.1], diverged=(0,)) + made_up("xreg-layer", [0.1, 0.2])
    )
    said = verdicts.verdicts(comparison.collect(rows))
    assert said == []  # one seed says nothing, and a variant is no baseline
    single = made_up("xreg", [1.0]) + made_up("dropout", [2.0])
    assert verdicts.verdicts(comparison.collect(single)) == [
        "One seed each: there are no intervals, and nothing is judged."
    ]
    assert verdicts.duels(comparison.collect(single)) == {}
    other = [row | {"scenario": "diff_adv"} for row in made_up("xreg", [1.0, 1.1])]
    assert "paper NLL" not in comparison_tables.as_markdown(comparison.collect(other))


def test_an_interval_is_that_of_welch():
    from scipy.stats import ttest_ind

    a, b = [1.0, 2.0, 4.0], [0.5, 0.7, 0.4, 0.8]
    x, y = comparison.collect(made_up("xreg", a) + made_up("dropout", b))
    gap = comparison.difference(x, y, "test_nll")
    low, high = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert gap is not None
    assert (gap.low, gap.high) == pytest.approx((low, high))
    # However small the scores are, as an ECE of a few thousandths is.
    small = comparison.collect(made_up("xreg", [1e-6 * v for v in a]) + made_up("dropout", [1e-6 * v for v in b]))
    gap = comparison.difference(small[0], small[1], "test_nll")
    assert gap is not None
    assert (gap.low, gap.high) == pytest.approx((1e-6 * low, 1e-6 * high))
    same = comparison.collect(made_up("xreg", [1.0, 1.0]) + made_up("dropout", [2.0, 2.0]))
    assert comparison.difference(same[0], same[1], "test_nll") == (-1, 0)
    one, other = comparison.collect(made_up("xreg", [1.0]) + made_up("dropout", [2.0]))
    assert comparison.difference(one, other, "test_nll") is None


def test_without_the_default_the_first_setting_is_the_base(tmp_path):
    rows = [
        row | {"changes": {"k_reg": k}} for k in (1, 20) for row in made_up("xreg", [-1.0 + 0.01 * k, -1.1 + 0.01 * k])
    ]
    text = table_files.write_tables(rows, tmp_path, missing=3)
    assert "Difference from k_reg 1" in text
    assert "0.190 ±" in text
    for name in ("table.md", "table.tex"):
        assert "3 of 7 runs are not finished" in (tmp_path / name).read_text()


def test_what_all_have_in_common_is_said_once(tmp_path):
    rows = [row | {"changes": {"k_reg": 20}} for m in ("xreg", "dropout") for row in made_up(m, [-1.0, -1.1])]
    text = table_files.write_tables(rows, tmp_path)
    assert "All with k_reg 20." in text
    assert "setting" not in text


def test_a_narrow_terminal_gets_the_columns_that_matter_most():
    lines = comparison.collect(made_up("xreg", [-1.0, -1.1]) + made_up("dropout", [-0.5, -0.6]))
    whole, narrow = comparison_tables.as_text(lines), comparison_tables.as_text(lines, width=80)
    assert comparison_tables.as_text(lines, width=500) == whole
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, whole.splitlines()))
    for title in ("method", "seeds", "test NLL", "test ECE"):
        assert title in narrow
    assert "reg ECE" in whole
    assert "reg ECE" not in narrow


def test_of_plots_over_a_field_those_with_the_most_values_come_first_and_only_four():
    values = {20: 2, 30: 3, 40: 2, 60: 5, 70: 4, 80: 1}
    rows = [
        row | {"train_size": size}
        for size, count in values.items()
        for number in range(count)
        for row in made_up("xreg", [-1.0, -1.1], fraction=0.1 * (number + 1))
    ]
    groups = curves.curve_groups(comparison.collect(rows), "observed_fraction")
    assert [(group[0].split[0], len(group)) for group in groups] == [(60, 5), (70, 4), (30, 3), (20, 2)]


def test_one_seed_is_neither_level_nor_worse():
    rows = made_up("xreg", [-1.0, -1.1]) + made_up("dropout", [-0.5])
    assert verdicts.duels(comparison.collect(rows))["dropout"]["test_nll"] == (0, 0, 0)
    assert not [said for said in verdicts.verdicts(comparison.collect(rows)) if "dropout" in said]


def with_masks(method, nll_of_mask, fraction=0.4):
    """Rows of made-up numbers, a list of seeds for each seed of the mask."""
    return [
        row | {"changes": {"mask_seed": mask}}
        for mask, nll in nll_of_mask.items()
        for row in made_up(method, nll, fraction=fraction)
    ]


def test_a_mask_counts_once_however_many_seeds_it_has(tmp_path):
    from scipy.stats import ttest_1samp

    ours, theirs = (
        {4: [-1.0, -1.2, -1.1], 5: [0.4, 0.6, 0.2], 6: [2.0, 2.2, 1.5]},
        {4: [-0.8, -0.9], 5: [0.5], 6: [2.3]},
    )
    rows = with_masks("xreg", ours) + with_masks("dropout", theirs)
    x, y = comparison.collect(rows)
    means = [-1.1, 0.4, 1.9]
    assert x.mask_means("test_nll") == pytest.approx(dict(zip((4, 5, 6), means, strict=True)))
    assert len(x.values("test_nll")) == 9
    low, high = ttest_1samp(means, 0).confidence_interval(0.95)  # of three values, not of nine
    of_xreg = x.interval("test_nll")
    assert of_xreg is not None
    assert (of_xreg.low, of_xreg.high) == pytest.approx((low, high))
    # Both met the same masks: the difference is taken mask by mask, and what a mask does to both is not in it.
    low, high = ttest_1samp([-1.1 + 0.85, 0.4 - 0.5, 1.9 - 2.3], 0).confidence_interval(0.95)
    gap = comparison.difference(x, y, "test_nll")
    assert gap is not None
    assert (gap.low, gap.high) == pytest.approx((low, high))
    assert gap.half < of_xreg.half / 4
    written = table_files.write_tables(rows, tmp_path)
    assert "interval over masks (each counts once, by the mean of its seeds)" in written
    one_mask = [row for row in rows if row["changes"]["mask_seed"] == 4]
    assert "interval over seeds, which vary the training and not the data or the mask" in table_files.write_tables(
        one_mask, tmp_path
    )


def test_methods_with_different_masks_are_not_paired():
    from scipy.stats import ttest_ind

    rows = with_masks("xreg", {4: [-1.0], 5: [0.4], 6: [2.0]}) + with_masks("dropout", {4: [-0.8], 7: [0.5], 8: [2.3]})
    x, y = comparison.collect(rows)
    gap = comparison.difference(x, y, "test_nll")
    assert gap is not None
    interval = ttest_ind([-1.0, 0.4, 2.0], [-0.8, 0.5, 2.3], equal_var=False).confidence_interval(0.95)
    assert (gap.low, gap.high) == pytest.approx(tuple(interval))


def test_where_nothing_is_hidden_the_masks_are_one():
    rows = with_masks("xreg", {3: [-1.0, -1.2], 1: [-1.0, -1.2]}, fraction=1.0)
    [fully] = comparison.collect(rows)
    # Counted twice, the runs would make the interval too small.
    assert (fully.seeds, fully.values("test_nll"), fully.independent("test_nll")) == (2, [-1.0, -1.2], [-1.0, -1.2])
    with pytest.raises(InputError, match="two rows"):
        comparison.collect([*rows, rows[0]])
    # Of an unfinished sweep, the first seed may be known by one mask, and the second by another.
    [fully] = comparison.collect([rows[0], rows[3]])
    assert fully.independent("test_nll") == [-1.0, -1.2]
    assert fully.mask_means("test_nll") == pytest.approx({0: -1.1})


def test_a_lead_that_some_forecasts_did_not_reach_has_no_mean():
    """Particles of two seeds grew too large: the others alone would make the method the best at this lead."""

    def rolled(method, later):
        shared = {name: [0.1, 0.1] for name in comparison.LEAD_SCORES} | {"leads": [1, 10], "lost": [0, 9]}
        rows = zip(made_up(method, [-1.0] * 4), later, strict=True)
        return [row | {"rollouts": shared | {"crps": [0.1, crps]}} for row, crps in rows]

    rows = rolled("xreg", [0.30, 0.31, 0.32, 0.33]) + rolled("ensemble", [0.40, 0.41, 0.42, 0.43])
    rows += rolled("dropout", [0.10, 0.11, None, None])
    lines = comparison.collect(rows)
    [*_, by_crps] = forecasts.lead_cells(lines).values()
    body = [(row[-2].text, row[-2].bold) for row in by_crps[1:]]
    assert body == [("0.315", True), ("–", False), ("0.415", False)]
    [*_, curve] = forecast_curves(lines)
    drawn = {series["label"]: series["x"] for series in curve["series"]}
    assert drawn == {"xreg": [1, 10], "dropout": [1], "ensemble": [1, 10]}


def test_who_is_judged_better_follows_from_both_ends_of_the_interval():
    """Three regimes: XReg lower beyond the interval, level, higher beyond it; the words and the signs go with that."""
    rows = made_up("xreg", [-1.0, -1.1, -0.9], fraction=0.4) + made_up("dropout", [-0.1, -0.2, 0.0], fraction=0.4)
    rows += made_up("xreg", [-1.0, -1.1, -0.9], fraction=0.6) + made_up("dropout", [-0.9, -1.4, -0.4], fraction=0.6)
    rows += made_up("xreg", [-1.0, -1.1, -0.9], fraction=0.8) + made_up("dropout", [-1.9, -2.0, -1.8], fraction=0.8)
    lines = comparison.collect(rows)
    assert verdicts.duels(lines)["dropout"]["test_nll"] == verdicts.Duel(better=1, level=1, worse=1)
    assert verdicts.verdicts(lines)[0] == (
        "Test NLL: XReg is best in 1 of 3 regimes, level with the best in 1 and behind in 1"
        " (0.8 observed, 50 trajectories: dropout, by 0.900 ± 0.227)."
    )
    # Only the first and the last have a winner in the table, and a lower mean alone makes none.
    bold = [[cell.bold for cell in row].count(True) for row in comparison_tables.cells(lines)[1]]
    assert bold == [1, 0, 0, 0, 0, 1]


def test_settings_that_all_rows_share_name_no_place_on_a_disk():
    settings = {"data": "/home/me/flow.npz", "scenario": "flow.npz", "width": 9}
    rows = [row | {"settings": settings} for row in made_up("xreg", [-1.0, -1.1])]
    assert comparison.shared_settings(rows) == "scenario flow.npz, width 9"


def test_beside_a_baseline_of_a_single_seed_ours_is_not_best():
    rows = made_up("xreg", [-1.0, -1.1, -0.9]) + made_up("dropout", [-0.1, -0.2, 0.0]) + made_up("ensemble", [-3.0])
    said = verdicts.verdicts(comparison.collect(rows))
    assert said[0] == "Test NLL: XReg is level with the best."
    assert "level means within it, or that a baseline has a single seed left." in said[-1]


def test_a_variant_of_ours_is_no_baseline_in_words_but_has_its_line_in_the_count():
    rows = made_up("xreg", [-1.0, -1.1, -0.9]) + made_up("xreg-layer", [-2.0, -2.1, -1.9])
    rows += made_up("dropout", [-0.1, -0.2, 0.0])
    lines = comparison.collect(rows)
    assert verdicts.duels(lines)["xreg-layer"]["test_nll"] == (0, 0, 1)
    said = verdicts.verdicts(lines)
    assert said[0] == "Test NLL: XReg is best."
    # One baseline in four scores: a variant is not counted.
    assert "variants of XReg do not count as baselines. These are 4 comparisons" in said[-1]


def trained_as_in_the_paper(method, nll):
    changes = paper.TRAINING | {"log_sigma_pred_start": -2.0}
    return [row | {"steps": 10_000, "changes": changes, "settings": changes} for row in made_up(method, nll)]


def test_the_papers_numbers_stand_beside_its_own_settings_alone():
    rows = trained_as_in_the_paper("xreg-internal-mm", [-1.0, -1.1]) + trained_as_in_the_paper("dropout", [-0.5, -0.6])
    header, body = comparison_tables.cells(comparison.collect(rows))
    assert header[-2:] == ["paper NLL", "paper ECE"]
    assert [[cell.text for cell in row[-2:]] for row in body] == [["−0.51", "0.030"], ["−0.30", "0.112"]]
    last = table_files.as_csv(comparison.collect(rows)).splitlines()[1].split(",")[-3:]
    assert last == ["-0.5083", "0.0296", "0.0248"]
    exact = rows[0]["changes"]
    one_off = [{"changes": exact | {name: 7}} for name in (*exact, "width")]
    pooled = {"changes": exact | {"one_pool": True}}
    of_a_file = {"settings": exact | {"width": 16}}
    more = ({"scenario": "diff_adv"}, {"train_size": 51}, {"method": "xreg"}, {"changes": {}}, {"steps": 10})
    for change in (*one_off, pooled, of_a_file, *more):
        changed = comparison.collect(row | change for row in rows[:2])
        assert not any(comparison_tables.paper_of(line) for line in changed), change


def test_the_papers_two_tables_are_told_apart_by_their_trajectories():
    rows = made_up("xreg", [-1.0, -1.1])
    [(title, _)] = comparison_tables.sections(comparison.collect(rows))
    assert title == "Observed fraction, 50 trajectories"
    [(title, _)] = comparison_tables.sections(
        comparison.collect(row | {"observed_fraction": 0.7, "train_size": 20} for row in rows)
    )
    assert title == "Training trajectories, 0.7 observed"


def test_a_difference_from_the_default_is_bold_on_either_side():
    def changed(nll, **changes):
        return [row | {"changes": changes} for row in made_up("xreg", nll)]

    rows = changed([-1.0, -1.1, -0.9]) + changed([-2.0, -2.1, -1.9], k_reg=1) + changed([0.0, -0.1, 0.1], k_reg=20)
    _, *body = comparison_tables.settings_cells(comparison.collect(rows + changed([-1.0, -1.2, -0.7], k_reg=50)))
    assert {row[0].text: (row[1].text[:6], row[1].bold) for row in body} == {
        "k_reg 1": ("−1.000", True),
        "k_reg 20": ("1.000 ", True),
        "k_reg 50": ("0.033 ", False),
    }


def test_the_winner_of_a_table_is_sought_among_the_lines_that_are_compared():
    def divided(method, nll, train, reg):
        changes = {"one_pool": True, "train_size": train, "reg_size": reg}
        return [row | {"train_size": train, "reg_size": reg, "changes": changes} for row in made_up(method, nll)]

    rows = divided("xreg", [-2.0, -2.1, -2.2], 20, 5) + divided("xreg", [-9.0, -9.1, -9.2], 22, 3)
    rows += divided("ensemble", [-1.5, -1.6, -1.5], 25, 0)
    _, body = comparison_tables.cells(comparison.collect(rows))
    won = {(row[2].text, row[3].text): any(cell.bold for cell in row) for row in body}
    assert won == {("20 + 5", "xreg"): True, ("22 + 3", "xreg"): False, ("25 + 0", "ensemble"): False}


def test_the_largest_gaps_are_named_first_and_only_three():
    rows = []
    for fraction, better in ((0.2, 0.1), (0.4, 0.5), (0.5, 0.3), (0.6, 0.2), (0.8, 0.4)):
        rows += made_up("xreg", [0.0, 0.01, -0.01], fraction=fraction)
        for method, gap in (("dropout", better), ("ensemble", 0.04)):
            rows += made_up(method, [-gap, -gap + 0.01, -gap - 0.01], fraction=fraction)
    said = verdicts.verdicts(comparison.collect(rows))[0]
    assert said.startswith("Test NLL: XReg is behind in all 5 regimes (the 3 largest gaps: 0.4 observed, 50 ")
    named = [part.split(" observed")[0] for part in said.split("gaps: ")[1].split("; ")]
    assert named == ["0.4", "0.8", "0.5"]
    assert said.count("dropout, by 0.") == 3
    assert "ensemble" not in said  # of several that are ahead, the one furthest ahead


def test_single_networks_on_the_same_data_are_judged_apart():
    def divided(method, nll, train, reg):
        changes = {"one_pool": True, "train_size": train, "reg_size": reg}
        return [row | {"train_size": train, "reg_size": reg, "changes": changes} for row in made_up(method, nll)]

    better, worse, ours = [-2.0, -2.1, -1.9], [-0.5, -0.6, -0.4], [-1.0, -1.1, -0.9]
    rows = divided("xreg", ours, 20, 5) + divided("dropout", worse, 25, 0)
    rows += divided("ensemble", better, 25, 0) + divided("persistence-masked", better, 25, 0)
    first, second, *_ = verdicts.verdicts(comparison.collect(rows))
    assert first.startswith("Test NLL: XReg is behind (0.4 observed, 25 trajectories: ")
    assert second == "Test NLL among single networks trained on the same data: XReg is best."
    # Where reg is a split of its own, XReg has used more trajectories than a method that leaves it alone.
    rows = made_up("xreg", ours) + made_up("dropout", better) + made_up("dropout+conformal", worse)
    first, second, *_ = verdicts.verdicts(comparison.collect(rows))
    assert first.startswith("Test NLL: XReg is behind (")
    assert second == "Test NLL among single networks trained on the same data: XReg is best."
    # A second sentence that says the same of the same methods is left out.
    rows = made_up("xreg", ours) + made_up("dropout+conformal", worse)
    assert not [said for said in verdicts.verdicts(comparison.collect(rows)) if "single" in said]


@pytest.mark.parametrize(
    ("method", "marked"),
    [
        *((name, True) for name in ("xreg", "xreg-heads", "dropout-reg", "dropout+temperature", "ensemble+conformal")),
        *((name, True) for name in ("persistence+conformal", "unregularized+early", "own settings")),
        *((name, False) for name in ("dropout", "ensemble-5", "unregularized", "persistence", "fixed-noise")),
        ("dropout (runs/a)", False),
    ],
)
def test_scores_on_reg_are_marked_where_reg_was_used(method, marked, tmp_path):
    rows = made_up(method, [-1.0, -1.1])
    [line] = comparison.collect(rows)
    assert comparison.in_sample(line, "reg_ece_mix") is marked
    # What is judged is in-sample for no method.
    assert not any(comparison.in_sample(line, score) for score in comparison.JUDGED)
    text = table_files.write_tables(rows, tmp_path)
    markdown, latex = ((tmp_path / f"table.{ending}").read_text() for ending in ("md", "tex"))
    for written, cell in ((text, "0.0200 ± 0.0000†"), (markdown, "| 0.0200 ± 0.0000† |")):
        assert (cell in written) is marked
        assert written.count("† In-sample: the method was trained, chosen or calibrated") == marked
    assert latex.count(r"0.0200 $\pm$ 0.0000$^\dagger$") == marked
    assert latex.count(r"{\footnotesize $^\dagger$ In-sample") == marked
    head, row = (line.split(",") for line in (tmp_path / "table.csv").read_text().splitlines())
    assert dict(zip(head, row, strict=True))["reg_in_sample"] == ("yes" if marked else "no")


def test_sentences_and_wide_tables_fit_a_terminal(tmp_path):
    rows = made_up("xreg", [-1.0, -1.1]) + made_up("xreg-heads", [-1.0, -1.1]) + made_up("dropout", [-2.0, -2.1])
    for row in rows:
        row["train"] = row["test"] | {"rms_predictive": 0.3, "rms_generalization": 0.4}
        row["test"] |= {"std_mu": 0.0}
    text = table_files.write_tables(rows, tmp_path, width=80)
    sentences = text[text.index("\n- ") :].splitlines()
    assert max(map(len, sentences)) <= 80
    assert f"wider than this terminal: see {tmp_path / 'table.md'}" in text
    assert "train √U_gen" in (tmp_path / "table.md").read_text()
    assert "train √U_gen" in table_files.write_tables(rows, tmp_path, width=400)
