"""Figures of a sweep show the numbers that are in its rows and histories."""

import math
from pathlib import Path

import numpy as np
import pytest

from crossreg.designs.grids import plan
from crossreg.metrics.calibration import LEVELS
from crossreg.report.figures import sweep as sweep_figures
from crossreg.report.figures import training as training_figures
from crossreg.report.figures import write as figure_files
from crossreg.report.tables.comparison import collect
from crossreg.runs.archive import Archive
from crossreg.studies.sweep.scoring import trainings_of


def rows_of(method, fractions, *, size=50, seeds=3):
    rng = np.random.default_rng(len(method))
    names = "nll ece_mix crps rmse std_mu std_predictive std_generalization std spearman ause"
    names += " rms_predictive rms_generalization"

    def scores():
        return {name: float(rng.uniform()) for name in names.split()} | {"coverage": sorted(rng.uniform(size=9))}

    return [
        {
            "observed_fraction": fraction,
            "train_size": size,
            "reg_size": 50,
            "method": method,
            "seed": seed,
            "steps": 10,
            "diverged": False,
            "test": scores(),
            "reg": scores(),
            "train": scores(),
        }
        for fraction in fractions
        for seed in range(seeds)
    ]


def all_drawn(rows, folder) -> list[Path]:
    """Draw all figures that the rows allow; return the files."""
    return [path for drawing in sweep_figures.drawings_of_rows(rows, folder) for path in drawing()]


def test_curves_are_means_with_intervals(kept, tmp_path):
    rows = rows_of("xreg", (1.0, 0.4, 0.8)) + rows_of("dropout", (0.4, 0.8, 1.0))
    lines = collect(rows)
    sweep_figures.sweep_curves(lines, "observed_fraction", "x", ("test_nll", "test_ece_mix"), tmp_path / "f")
    [figure] = kept
    left, right = figure.axes
    for axis, score in ((left, "nll"), (right, "ece_mix")):
        drawn = {container.get_label(): container for container in axis.containers}
        for method in ("xreg", "dropout"):
            line, _, (bars,) = drawn[method].lines
            for x, y, (low, high) in zip(*line.get_data(), bars.get_segments(), strict=True):
                values = [
                    r["test"][score] for r in rows if r["method"] == method and math.isclose(r["observed_fraction"], x)
                ]
                assert y == pytest.approx(np.mean(values))
                # t(2, 97.5%) = 4.303
                half = 4.302653 * np.std(values, ddof=1) / math.sqrt(3)
                assert (low[1], high[1]) == pytest.approx((y - half, y + half))
            assert line.get_xdata().tolist() == [0.4, 0.8, 1.0]


def test_equal_data_is_drawn_against_the_total(kept, tmp_path):
    def divided(method, total, held_out):
        rows = rows_of(method, (0.4, 1.0), size=total - held_out)
        return [row | {"reg_size": held_out, "changes": {"one_pool": True}} for row in rows]

    rows = [row for total in (25, 60) for row in divided("ensemble", total, 0)]
    rows += [row for total in (25, 60) for held in {5, total // 5} for row in divided("xreg", total, held)]
    assert "equal_data" in [path.stem for path in all_drawn(rows, tmp_path)]
    figure = kept[0]
    assert len(figure.axes) == 4  # NLL and ECE for each observed fraction
    axis = figure.axes[1]
    drawn = {container.get_label(): container.lines[0] for container in axis.containers}
    assert drawn["xreg"].get_xdata().tolist() == [25, 60]
    # Of 60, the way that holds out a fifth.
    picked = [r for r in rows if (r["method"], r["train_size"], r["observed_fraction"]) == ("xreg", 48, 1.0)]
    assert drawn["xreg"].get_ydata()[1] == pytest.approx(np.mean([r["test"]["nll"] for r in picked]))


def test_std_mu_is_drawn_against_the_mask_and_the_train_size(kept, tmp_path):
    by_fraction = rows_of("xreg", (0.4, 1.0))
    by_size = rows_of("xreg", (0.7,), size=20) + rows_of("xreg", (0.7,), size=70)
    names = [path.stem for path in all_drawn(by_fraction + by_size, tmp_path)]
    left, right = kept[names.index("std_mu")].axes
    for axis, x, rows in ((left, [0.6, 0.0], by_fraction), (right, [20, 70], by_size)):
        [container] = axis.containers
        assert container.lines[0].get_xdata().tolist() == pytest.approx(x)
        means = [np.mean([row["test"]["std_mu"] for row in rows[start : start + 3]]) for start in (0, 3)]
        assert container.lines[0].get_ydata().tolist() == pytest.approx(means)
        [bars] = container.lines[2]
        assert np.max([segment[:, 1] for segment in bars.get_segments()]) < axis.get_ylim()[1]  # nothing is cut off


def test_std_mu_of_the_last_step_is_drawn_for_several_methods(kept, tmp_path):
    rows = rows_of("xreg", (0.4, 1.0)) + rows_of("as written", (0.4, 1.0))
    for place, row in enumerate(rows):
        row["test"]["std_mu_final"] = 0.01 * place
    parts = {"observed_fraction": collect(rows)}
    sweep_figures.std_mu_curves(parts, tmp_path / "s", {}, score="test_std_mu_final")
    [figure] = kept
    [axis] = figure.axes
    drawn = {container.get_label(): container.lines[0].get_ydata().tolist() for container in axis.containers}
    assert drawn == {"xreg": pytest.approx([0.01, 0.04]), "as written": pytest.approx([0.07, 0.10])}
    assert axis.get_ylabel().endswith("last test step")
    [legend] = figure.legends
    assert sorted(text.get_text() for text in legend.get_texts()) == ["as written", "xreg"]


def test_the_triplet_has_the_papers_regimes(kept, tmp_path):
    rows = rows_of("xreg", (0.7,)) + rows_of("xreg-heads", (0.3, 0.7)) + rows_of("unregularized", (0.7,), seeds=2)
    rows[0]["diverged"] = True
    sweep_figures.calibration_of_regimes(rows, tmp_path / "c")
    panels = kept[0].axes
    for axis, seeds in zip(panels, (rows[1:3], rows[3:6], rows[9:]), strict=True):
        [test] = [line for line in axis.lines if str(line.get_label()).startswith("test")]
        np.testing.assert_allclose(test.get_ydata(), np.mean([row["test"]["coverage"] for row in seeds], axis=0))
    assert [axis.get_title() for axis in panels][1] == "XReg at the heads\n0.3 observed, 50 traj."
    assert sweep_figures.calibration_of_regimes(rows[3:], tmp_path / "c") == []


def test_the_triplet_has_one_size_and_one_number_of_steps(kept, tmp_path):
    methods = (("xreg", 0.7), ("xreg-heads", 0.3), ("unregularized", 0.7))
    few = [row for method, at in methods for row in rows_of(method, (at,), size=20, seeds=2)]
    many = [row for method, at in methods for row in rows_of(method, (at,), size=70, seeds=4)]
    longer = [row | {"steps": 99} for row in rows_of("xreg", (0.7,), size=70, seeds=5)]
    sweep_figures.calibration_of_regimes(few + longer + many, tmp_path / "c")
    for number, axis in enumerate(kept[0].axes):
        [test] = [line for line in axis.lines if str(line.get_label()).startswith("test")]
        seeds = many[4 * number : 4 * number + 4]
        np.testing.assert_allclose(test.get_ydata(), np.mean([row["test"]["coverage"] for row in seeds], axis=0))
        assert axis.get_title().endswith("observed, 70 traj.")
    # Nothing is compared across sizes.
    assert sweep_figures.calibration_of_regimes(few[:4] + many[8:], tmp_path / "c") == []


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (((0.5, 0.7, 0.9), (50,)), {"observed_fraction_curves": [0.5, 0.7, 0.9]}),
        (((0.4, 0.8), (30,)), {"observed_fraction_curves": [0.4, 0.8]}),
        (((0.9,), (20, 30)), {"train_size_curves": [20, 30]}),
        (
            ((0.4, 0.7, 0.8), (30, 60)),
            {
                "observed_fraction_curves": [0.4, 0.7, 0.8],
                "observed_fraction_curves_2": [0.4, 0.7, 0.8],
                "train_size_curves": [30, 60],
                "train_size_curves_2": [30, 60],
                "train_size_curves_3": [30, 60],
            },
        ),
    ],
)
def test_every_grid_has_its_curves(kept, tmp_path, grid, expected):
    fractions, sizes = grid
    rows = [row for size in sizes for row in rows_of("xreg", fractions, size=size)]
    names = [path.stem for path in all_drawn(rows, tmp_path)]
    drawn = {name: figure for name, figure in zip(names, kept, strict=True) if "_curves" in name}
    assert {n: f.axes[0].containers[0].lines[0].get_xdata().tolist() for n, f in drawn.items()} == expected
    # Where there are several, each says what it keeps, and its values are of that.
    if "train_size_curves_2" in drawn:
        titles = [drawn[name].get_suptitle() for name in expected]
        assert titles == ["30 trajectories", "60 trajectories", "0.4 observed", "0.7 observed", "0.8 observed"]
        values = [row["test"]["nll"] for row in rows if (row["observed_fraction"], row["train_size"]) == (0.7, 60)]
        curve = drawn["train_size_curves_2"].axes[0].containers[0].lines[0]
        assert curve.get_ydata()[1] == pytest.approx(np.mean(values))


def test_the_montage_has_a_panel_for_every_regime(kept, tmp_path):
    rows = rows_of("xreg", (0.4, 1.0)) + rows_of("xreg", (0.7,), size=20)
    rows[0]["diverged"] = True
    rows[1]["test"]["ece_mix"] = None
    sweep_figures.calibration_montage(rows, "xreg", tmp_path / "f")
    [figure] = kept
    panels = [axis for axis in figure.axes if axis.get_visible()]
    assert len(panels) == 3
    thick = [line for line in panels[0].lines if line.get_label() == "test"]
    expected = np.mean([row["test"]["coverage"] for row in rows[1:3]], axis=0)
    np.testing.assert_allclose(thick[0].get_ydata(), expected)
    np.testing.assert_allclose(thick[0].get_xdata(), LEVELS)
    assert panels[0].get_title().endswith(f"test ECE {rows[2]['test']['ece_mix']:.3f}")


def test_the_decomposition_stacks_both_parts(kept, tmp_path):
    rows = rows_of("xreg-heads", (0.3, 0.7), seeds=4)  # of an even number, a median of squares is no squared median
    for row in rows:
        row["test"]["std_mu"] = 0.0
    paths = all_drawn(rows, tmp_path)
    assert "decomposition" in {path.stem for path in paths}
    figure = next(f for f in kept if f.axes[0].get_ylabel().startswith("mean over points"))
    assert len(figure.axes) == 2
    first = [row["reg"] for row in rows if row["observed_fraction"] == 0.3]
    pred, gen, error = (
        np.median([s[name] ** 2 for s in first]) for name in ("rms_predictive", "rms_generalization", "rmse")
    )
    lower, upper = (container[1] for container in figure.axes[0].containers)
    assert lower.get_height() == pytest.approx(pred)
    assert (upper.get_y(), upper.get_height()) == pytest.approx((pred, gen))
    assert figure.axes[0].lines[0].get_ydata()[1] == pytest.approx(error)
    # Where both objectives settle: at half of both squared residuals, and in all at that of reg.
    train = np.median([row["train"]["rmse"] ** 2 for row in rows if row["observed_fraction"] == 0.3])
    heights = [line.get_ydata()[0] for line in figure.axes[0].lines[1:]]
    assert heights == pytest.approx([(train + error) / 2, error])


def test_losses_and_sigma_are_means_over_seeds(kept, tmp_path):
    def history(seed):
        return [
            {
                "step": step,
                "train_loss": -seed - step,
                "reg_nll": None if step == 10 else seed,
                "sigma": {"a": [1.0, 4.0**seed]},
            }
            for step in (10, 20)
        ]

    training_figures.losses({"xreg": [history(1), history(2)]}, tmp_path / "l")
    training_figures.sigma_over_steps([history(1), history(2)], tmp_path / "s")
    losses, sigma = kept
    train, reg = losses.axes[0].lines
    assert train.get_ydata().tolist() == [-11.5, -21.5]
    assert reg.get_ydata()[1] == 1.5
    np.testing.assert_allclose(sigma.axes[0].lines[0].get_ydata(), math.sqrt(2 * 4))  # geometric, over seeds too


def test_a_seed_that_diverged_is_in_no_curve_of_a_sweep(kept, tmp_path):
    trials = plan("scenario", methods="xreg,dropout", seeds=3)
    keys = [training.key("data") for trial in trials for [training] in trainings_of(trial)]

    class Histories(Archive):
        """Of xreg the last seed has diverged, of dropout all have."""

        def __init__(self):
            pass

        def __contains__(self, key):
            return key in keys

        def history(self, key):
            line = {"step": 10, "train_loss": float(keys.index(key)), "reg_nll": 0.0, "sigma": {"a": [1.0]}}
            return [line | {"diverged_at": -1 if keys.index(key) < 2 else 7}]

    drawings = figure_files._curves_of_sweep(trials, Histories(), "data", tmp_path)
    for drawing in drawings:
        drawing()
    losses, _ = kept
    assert losses.axes[0].lines[0].get_ydata().tolist() == [0.5]


def test_what_cannot_be_drawn_is_left_out(tmp_path, kept):
    diverged = [row | {"diverged": True} for row in rows_of("dropout", (0.4, 0.6))]
    changed = [row | {"changes": {"k_reg": 1}} for row in rows_of("xreg", (0.4, 0.6))]
    paths = all_drawn(rows_of("xreg", (0.4, 0.6)) + diverged + changed, tmp_path)
    assert "calibration_xreg" in {path.stem for path in paths}
    assert "calibration_dropout" not in {path.stem for path in paths}
    # The montage has the default's seeds alone.
    seeds = len({row["seed"] for row in rows_of("xreg", (0.4,))})
    assert kept[-1].get_suptitle() == f"xreg, {seeds} seeds"


@pytest.mark.parametrize("own", [{"scenario": "diff_adv"}, {"changes": {"k_reg": 1}}])
def test_a_sweep_off_the_default_is_drawn(tmp_path, own):
    paths = all_drawn([row | own for row in rows_of("xreg", (0.4, 0.6))], tmp_path)
    assert {path.stem for path in paths} == {"observed_fraction_curves", "std_mu", "calibration_xreg"}


def test_all_figures_of_rows(tmp_path):
    rows = rows_of("xreg", (0.4, 0.6)) + rows_of("xreg", (0.7,), size=20) + rows_of("xreg", (0.7,), size=30)
    names = {path.name for path in all_drawn(rows, tmp_path)}
    assert names == {
        f"{name}.{ending}"
        for name in (
            "observed_fraction_curves",
            "train_size_curves",
            "std_mu",
            "calibration_xreg",
        )
        for ending in ("pdf", "png")
    }
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)
