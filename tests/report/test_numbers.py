"""Numbers that a person reads: each stands under its own name, in tables, displays, figures and on pages.

Every number here differs from every other one, so that none can stand for another.
"""

import io
import json
import math

import numpy as np
import pytest
from made_runs import scores as made_scores
from made_runs import write_run
from watch_folders import Client, history, jsonl
from watch_folders import write_run as write_watched

from crossreg.config import Config
from crossreg.metrics.calibration import LEVELS
from crossreg.progress.display import TrainingDisplay
from crossreg.progress.history import history_line
from crossreg.progress.sweep_display import SweepDisplay
from crossreg.report.data_check import check_text
from crossreg.report.figures import drawing as figures
from crossreg.report.page.folders import find
from crossreg.report.page.lines import described, mean_history
from crossreg.report.page.write import make_groups
from crossreg.report.plan_text import plan_text
from crossreg.report.tables.scores import channel_table, decomposition_table, scores_table
from crossreg.report.watch.folders import scores_of
from crossreg.report.watch.history import curves
from crossreg.training.replicas import Progress, Record

NAMES = ("nll", "ece_mix", "crps", "rmse", "std_mu", "std", "spearman", "rms_predictive", "rms_generalization")


def scores(first: float) -> dict:
    """The scores of a split, each 0.01 more than the one before it."""
    values = {name: round(first + 0.01 * number, 3) for number, name in enumerate(NAMES)}
    return values | {"coverage": [level ** (1 + first) for level in LEVELS]}


_HEADINGS = ("step", "train loss", "reg loss", "reg NLL", "reg ECE")
SPLITS = {"test": scores(0.1), "reg": scores(0.3), "train": scores(0.2)}


def test_scores_stand_under_their_titles():
    header, _, row = scores_table({"xreg": SPLITS}).splitlines()
    # Columns are aligned to the right: each number ends where its title does.
    titles = {
        "test NLL": "0.100", "test ECE": "0.110", "test CRPS": "0.1200", "test RMSE": "0.1300", "Std_ω[μ]": "0.1400",
        "mean std": "0.1500", "Spearman": "0.16", "reg NLL": "0.300", "reg ECE": "0.310",
    }  # fmt: skip
    for title, number in titles.items():
        end = header.index(title) + len(title)
        assert row[:end].split()[-1] == number, title
    assert len(row.split()) == 1 + len(titles)


def test_both_parts_of_the_uncertainty_and_where_they_settle():
    lines = [line.split() for line in decomposition_table(SPLITS | {"sigma": {}}).splitlines()]
    assert lines[0] == ["RMSE", "√U_pred", "√U_gen", "√U_tot"]
    for line, split in zip(lines[1:], ("train", "reg", "test"), strict=True):
        rmse, pred, gen = (SPLITS[split][name] for name in ("rmse", "rms_predictive", "rms_generalization"))
        assert line == [split, *(f"{value:.4f}" for value in (rmse, pred, gen, math.sqrt(pred**2 + gen**2)))]
    # Without noise inside, the parts settle at (r_reg² ± r_train²)/2.
    heads = {split: values | {"std_mu": 0.0} for split, values in SPLITS.items()}
    settled = decomposition_table(heads).splitlines()[-1].split()
    assert settled[:3] == [
        "settled",
        f"{math.sqrt((0.33**2 + 0.23**2) / 2):.4f}",
        f"{math.sqrt((0.33**2 - 0.23**2) / 2):.4f}",
    ]


def test_channels_have_their_own_scores_in_order():
    kinds = ("nll", "crps", "rmse", "std")
    test = {f"channel_{kind}": [0.1 + 0.01 * n, 0.5 + 0.01 * n] for n, kind in enumerate(kinds)}
    header, first, second = channel_table({"test": test}, ["pressure", "velocity"]).splitlines()
    assert header.split() == ["test", "NLL", "CRPS", "RMSE", "mean", "std"]
    assert first.split() == ["pressure", "0.100", "0.1100", "0.1200", "0.1300"]
    assert second.split() == ["velocity", "0.500", "0.5100", "0.5200", "0.5300"]


def report(step: int) -> Progress:
    """Two replicas that go on, and one that has diverged."""

    def each(value: float) -> np.ndarray:
        return np.asarray([value, value + 0.02, 7.0])

    record = Record(
        step, each(1.1), each(1.2), each(1.3), each(0.4), each(0.5), {"a": np.ones((3, 1))}, np.asarray([-1, -1, 4])
    )
    return Progress(step, 75.0, record, None, None)  # pyright: ignore[reportArgumentType]


def test_displays_have_every_loss_under_its_name(monkeypatch):
    stream = io.StringIO()
    with TrainingDisplay({"xreg": 500}, stream=stream) as display:
        display.update("xreg", report(250))
    said = " ".join(stream.getvalue().split())
    assert "step 250/500 train loss 1.100 reg loss 1.200 reg NLL 1.300 reg ECE 0.400 σ a 1 left 1:15" in said
    # Of a sweep, the mean over the replicas that go on.
    with SweepDisplay(10.0, 1, 1, stream=stream) as sweep:
        sweep.begin("xreg × 3", 500, 10.0)
        sweep.update(report(250))
        assert "train loss 1.110  reg NLL 1.310  reg ECE 0.410  diverged 1" in sweep._text()
    monkeypatch.setenv("COLUMNS", "140")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with TrainingDisplay({"xreg": 500}, stream=(live := Terminal())) as display:
        display.update("xreg", report(250))
    shown = next(line for line in live.getvalue().splitlines() if "1.100" in line)
    header = next(line for line in live.getvalue().splitlines() if "reg ECE" in line)
    for parts, line in ((("250/500", "1.100", "1.200", "1.300", "0.400"), shown), (_HEADINGS, header)):
        places = [line.index(part) for part in parts]
        assert places == sorted(places)


def test_calibration_is_drawn_in_the_panel_of_its_split(kept, tmp_path):
    figures.calibration_curves({"xreg": SPLITS}, tmp_path / "c")
    for axis, split in zip(kept[0].axes, ("test", "reg"), strict=True):
        assert axis.get_title() == split
        curve = axis.get_lines()[1]
        np.testing.assert_allclose(curve.get_ydata(), SPLITS[split]["coverage"])
        assert curve.get_label() == f"xreg (ECE {SPLITS[split]['ece_mix']:.3f})"


def test_maps_are_called_what_they_show():
    truth, mean, error, std_mu, total = (np.full((2, 3), value) for value in (1.0, 1.5, 0.5, 0.25, 0.75))
    panels = {title: values for title, values, *_ in figures._panels(truth, mean, error, std_mu, total)}
    assert {title: float(values[0, 0]) for title, values in panels.items()} == {
        "truth": 1.0, "|error|": 0.5, "Std$_\\omega[\\mu]$": 0.25, "total standard deviation": 0.75
    }  # fmt: skip


def test_a_page_has_the_calibration_of_every_split_of_runs_that_went_well(tmp_path):
    for seed, diverged_at in ((0, -1), (1, 90), (2, -1)):
        folder = write_run(tmp_path / "runs" / str(seed), Config().replace(seed=seed, steps=150), with_fields=False)
        shifted = {split: scores(values["nll"] + 0.05 * seed) for split, values in SPLITS.items()}
        (folder / "metrics.json").write_text(json.dumps(shifted | {"sigma": {}}))
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        lines[-1]["diverged_at"] = diverged_at
        (folder / "metrics.jsonl").write_text(jsonl(*lines))
    [group] = make_groups(find(tmp_path / "runs"))
    [[line]] = [regime["lines"] for regime in described(group)["regimes"]]
    assert line["seeds"] == 2
    for split, values in SPLITS.items():
        # Of seeds 0 and 2: the one that diverged is no part of the mean.
        assert line["ece"][split] == pytest.approx(values["ece_mix"] + 0.05)
        both = [scores(values["nll"] + 0.05 * seed)["coverage"] for seed in (0, 2)]
        np.testing.assert_allclose(line["coverage"][split], np.mean(both, axis=0))


def test_a_curve_over_one_setting_keeps_the_others(tmp_path):
    """Two fractions and two sizes: four curves of two points each, none of which mixes sizes or fractions."""
    numbers = {(0.5, 20): 0.0, (0.9, 20): 1.0, (0.5, 50): 2.0, (0.9, 50): 3.0}
    for (fraction, size), number in numbers.items():
        config = Config().replace(observed_fraction=fraction, train_size=size, steps=150)
        write_run(tmp_path / "runs" / f"{fraction}-{size}", config, number, with_fields=False)
    [group] = make_groups(find(tmp_path / "runs"))
    found = {}
    for curve in described(group)["curves"]:
        if curve["y"] == "test NLL":
            [series] = curve["series"]
            found[curve["x"], curve["where"]] = dict(zip(series["x"], series["y"], strict=True))
    nll = {place: made_scores(number)["nll"] for place, number in numbers.items()}
    assert found == {
        ("observed fraction", "20 trajectories"): {0.5: nll[0.5, 20], 0.9: nll[0.9, 20]},
        ("observed fraction", "50 trajectories"): {0.5: nll[0.5, 50], 0.9: nll[0.9, 50]},
        ("training trajectories", "0.5 observed"): {20: nll[0.5, 20], 50: nll[0.5, 50]},
        ("training trajectories", "0.9 observed"): {20: nll[0.9, 20], 50: nll[0.9, 50]},
    }


def test_means_of_histories_are_means():
    """Three values whose mean is no median, and of which none is left out."""
    lines = [history_line({"training": str(n)} | history(10, shift)) for n, shift in enumerate((0.0, 1.0, 5.0))]
    known = [line for line in lines if line is not None]
    assert curves(known)["reg_nll"] == {"mean": [pytest.approx(2.5)], "low": [0.5], "high": [5.5]}
    assert mean_history([[line] for line in known])["reg_nll"] == [pytest.approx(2.5)]


def test_the_list_of_runs_has_the_scores_of_each_split(client: Client, watched):
    wanted = {f"{split}_{short}": SPLITS[split][name] for split in ("test", "reg") for short, name in (
        ("nll", "nll"), ("ece", "ece_mix"), ("crps", "crps"), ("rmse", "rmse"), ("std_mu", "std_mu")
    )}  # fmt: skip
    assert scores_of(SPLITS) == wanted
    folder = write_watched(watched / "three", Config().replace(seed=3, steps=500), history(250), history(500))
    (folder / "metrics.json").write_text(json.dumps(SPLITS | {"sigma": {}}))
    assert client.runs()["three", "xreg", 3]["scores"] == wanted


def test_a_row_that_stands_there_twice_counts_as_it_was_written_last(client: Client, watched):
    path = watched / "sweep" / "rows.jsonl"
    first = json.loads(path.read_text().splitlines()[0])
    path.write_text(path.read_text() + jsonl(first | {"test": SPLITS["test"]}))
    found = client.runs()["sweep", first["method"], first["seed"]]["scores"]
    assert found["test_nll"] == SPLITS["test"]["nll"]


def test_a_plan_says_each_number_under_its_title():
    def way(name: str, number: int) -> dict:
        return {
            "name": name, "flags": f"--flags {number}", "num_jobs": 10 + number, "widest": 20 + number,
            "bytes_per_job": (30 + number) * 2**30, "seconds": 60.0 * (40 + number), "band": [0.0, 0.0], "runs": 0,
            "device_hours": 50.0 + number, "efficiency": 0.6 + 0.01 * number, "given_up": 0.0, "failures": 0.0,
            "shares": {"useful": 0.61, "narrow": 0.22, "setup": 0.13, "idle": 0.04},
        }  # fmt: skip

    job = {
        "label": "xreg", "number": 3, "replicas": 5, "steps": 700, "seconds": 120.0, "seconds_to_compile": 30.0,
        "bytes": 2.0**30,
    }  # fmt: skip
    by_devices = [
        {"devices": n, "efficiency": e, "seconds": s, "band": [s, s], "runs": 0, "way": "one"}
        for n, e, s in ((1, 0.9, 9000.0), (2, 0.8, 5400.0), (4, 0.7, 2460.0), (8, 0.35, 2160.0), (16, 0.2, 2100.0))
    ]
    plan = way("one", 1) | {
        "what": "paper", "device": "gpu", "devices": 4, "rows": {"asked": 9, "left": 8}, "replicas": 15,
        "scenario": "diff_ks", "field_shape": [1, 160, 90], "field_shape_known": True, "rates_off_by": [0.05, 0.31],
        "measured_on": None, "processor_here": None, "memory_of_device": 80 * 2**30, "way": "one", "jobs": [job],
        "ways": [way("one", 1), way("two", 2)], "by_devices": by_devices, "enough_devices": 4, "risks": {},
    }  # fmt: skip
    lines = plan_text(plan).splitlines()
    assert lines[0] == "paper on 4 × gpu: 8 of 9 rows, 15 replicas to train, fields of 160 × 90 points"
    assert (
        lines[1].strip() == "11 jobs of at most 31 GiB on devices of 80 GiB: 41:00, 51.0 device-hours, efficiency 61%"
    )
    assert lines[2].strip() == (
        "of the devices' time 61% is useful, 22% lost to narrow jobs, 13% to start and compile, 4% to waiting"
    )
    rows = [" ".join(line.replace("→", " ").split()) for line in lines]
    at = rows.index("way to run it jobs widest memory time device-hours efficiency")
    assert rows[at + 1 : at + 3] == ["--flags 1 11 21 31 GiB 41:00 51.0 61%", "--flags 2 12 22 32 GiB 42:00 52.0 62%"]
    at = rows.index("jobs number replicas steps each to compile")
    assert rows[at + 1] == "xreg 3 5 700 2:00 0:30"
    at = rows.index("devices time device-hours efficiency")
    # Device-hours are hours times devices.
    assert rows[at + 1 : at + 6] == [
        "1 2:30:00 2.5 90%", "2 1:30:00 3 80%", "4 41:00 2.7 70%", "8 36:00 4.8 35%", "16 35:00 9.3 20%"
    ]  # fmt: skip
    assert "off by 5% in the median and 31% at most" in lines[-2]
    assert lines[-1] == "twice as many devices would end only 1.14 times as fast"  # 36 minutes in place of 41


def test_a_check_of_data_says_each_number_under_its_title(tmp_path):
    channel = {
        "name": "p", "min": 1.5, "max": 9.5, "mean": 4.5, "std": 2.5, "missing": 12, "missing_share": 0.03,
        "one_step_change": 0.125, "jump_at_the_ends": [1.0],
    }  # fmt: skip
    summary = {
        "path": "u.npy", "kind": "NPY", "trajectories": 7, "times": 6, "channels": [channel], "space": [20, 30],
        "gib": 0.5, "in_memory": False, "looked_at_steps": 10, "all_steps": 35, "mask": True,
        "observed_share": 0.625, "notes": [], "warnings": [],
        "split": {"by": "trajectory", "train": 4, "reg": 1, "test": 2}, "command": "crossreg train",
    }  # fmt: skip
    lines = check_text(summary, tmp_path / "p.png").splitlines()
    assert lines[0] == (
        "u.npy: NPY, 7 trajectories of 6 times, 1 channel on 20 × 30 points; 0.5 GiB as float32, read as needed"
    )
    assert lines[2].split() == ["channel", "min", "max", "mean", "std", "missing", "step/std"]
    assert lines[3].split() == ["p", "1.5", "9.5", "4.5", "2.5", "12", "(3.0%)", "0.125"]
    assert "from 10 evenly spaced steps of 35" in lines
    assert "observation mask: in the file; 62.5% of the points are observed" in lines
    assert "split: train 4, reg 1, test 2 trajectories" in lines
