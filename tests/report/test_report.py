"""What a person sees: the display on a terminal and elsewhere, tables, and figures that show the stored numbers."""

import io
import json
import math
import os
import time

import numpy as np
import pytest

from crossreg.metrics.calibration import LEVELS
from crossreg.metrics.evaluation import PointScores
from crossreg.progress import progress_file
from crossreg.progress import sweep_display as sweep_progress
from crossreg.progress.display import CountDisplay, TrainingDisplay, clock, typical_sigmas
from crossreg.progress.sweep_display import SweepDisplay
from crossreg.report.figures import drawing as figures
from crossreg.report.tables.scores import scores_table, sigma_lines
from crossreg.training.replicas import Progress, Record


def report(step: int, diverged_at: int = -1) -> Progress:
    values = {name: np.asarray([-1.25]) for name in ("train_loss", "reg_nll", "reg_std_mu")}
    record = Record(
        step=step,
        reg_loss=np.asarray([math.nan]),
        reg_ece=np.asarray([0.0421]),
        sigma={"block1": np.asarray([[[0.01], [1.0]]])},
        diverged_at=np.asarray([diverged_at]),
        **values,
    )
    return Progress(step, 75.0, record, None, None)  # pyright: ignore[reportArgumentType]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, **options) -> str:
    with TrainingDisplay({"xreg": 500, "dropout": 500}, stream=stream, **options) as display:
        display.update("xreg", report(250))
        display.update("dropout", report(500, diverged_at=7))
    return stream.getvalue()


def test_plain_lines_where_there_is_no_terminal():
    text = shown(io.StringIO())
    assert "\x1b" not in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "xreg step 250/500 train loss -1.250 reg loss – reg NLL -1.250 reg ECE 0.042 σ block1 0.1 left 1:15" in lines
    assert any("dropout step 500/500" in line and "diverged at step 7" in line for line in lines)


@pytest.mark.parametrize("columns", [80, 140])
def test_a_live_table_on_a_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = shown(Terminal())
    assert ("reg NLL" in text) == (columns == 140)
    for part in ("250/500", "-1.250", "0.042", "diverged at 7", "time left 2:30"):
        assert part in text


def test_nothing_where_nothing_is_wanted():
    assert shown(Terminal(), enabled=False) == ""


@pytest.mark.parametrize(("seconds", "text"), [(7.4, "0:07"), (75.0, "1:15"), (3725.0, "1:02:05"), (math.nan, "–")])
def test_clock(seconds, text):
    assert clock(seconds) == text


def test_typical_sigma_is_the_geometric_mean():
    sigma = {"a": [0.01, 1.0], "with a zero": [0.0, 0.2, None], "zeros": [0.0, 0.0]}
    expected = {"a": pytest.approx(0.1), "with a zero": pytest.approx(0.2), "zeros": 0.0}
    assert typical_sigmas({"sigma": sigma}) == expected


def scores(nll, ece) -> dict:
    coverage = [level * 0.9 for level in LEVELS]
    names = ("crps", "rmse", "std_mu", "std", "spearman")
    one = dict.fromkeys(names, 0.5) | {"nll": nll, "ece_mix": ece, "coverage": coverage}
    return {"test": one, "reg": one}


def test_tables_line_up_and_show_what_is_missing():
    table = scores_table({"xreg": scores(-1.5, 0.012), "a longer name": scores(None, 0.3)})
    lines = table.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "-1.500" in lines[2]
    assert "–" in lines[3]
    assert sigma_lines({"a": [0.1], "block": [1.0, 2.0]}) == "σ a      0.1\nσ block  1 2"


def test_the_calibration_curve_drawn_is_the_coverage_stored(kept, tmp_path):
    methods = {f"method {i}": scores(-1, 0.01) for i in range(8)}
    figures.calibration_curves(methods, tmp_path / "c")
    for axis in kept[0].axes:
        lines = axis.get_lines()[1:]
        assert len(lines) == 8
        np.testing.assert_allclose(lines[3].get_ydata(), methods["method 3"]["test"]["coverage"])
        np.testing.assert_allclose(lines[3].get_xdata(), LEVELS)


def test_maps_show_the_fields_on_one_range(kept, tmp_path):
    rng = np.random.default_rng(0)
    fields = {name: np.abs(rng.normal(size=(120, 2, 30))) for name in PointScores._fields}
    points = PointScores(**fields)
    figures.space_time_maps(points, tmp_path / "m", times=100)
    images = [axis.get_images()[0] for axis in kept[0].axes if axis.get_images()]
    expected = (fields["truth"], np.abs(fields["mean"] - fields["truth"]), fields["std_mu"], fields["std"])
    for image, values in zip(images, expected, strict=True):
        np.testing.assert_allclose(image.get_array(), values[:100, 0].T)
    assert len({image.get_clim() for image in images[1:]}) == 1
    # The range is of the one that needs more of it, here |error|, and the colour bar says what it holds.
    needed = [np.quantile(values[:100, 0], 0.995) for values in (expected[1], expected[3])]
    assert images[1].get_clim() == (0, pytest.approx(max(needed)))
    assert "99.5% of |error| and of std" in kept[0].axes[-1].get_ylabel()
    wide = PointScores(**{name: values[..., None] for name, values in fields.items()})
    with pytest.raises(ValueError, match="1-D"):
        figures.space_time_maps(wide, tmp_path / "m")


def test_maps_of_thinned_times_have_their_steps(kept, tmp_path):
    values = [np.ones((12, 2, 7)) for _ in range(4)]
    values[3][0, 0, 0] = np.nan
    figures.space_time_maps(figures.Fields(np.arange(1, 35, 3), *values), tmp_path / "m", times=30)
    axis = kept[0].axes[3]
    [image] = axis.get_images()
    # Steps 1, 4, … 28, each in the middle of its column.
    assert image.get_array().shape == (7, 10)
    assert tuple(image.get_extent()) == (-0.5, 29.5, 0, 7)
    assert axis.get_xlim() == (-0.5, 29.5)


def test_a_sweep_shows_its_share_and_the_time_left():
    stream = io.StringIO()
    with SweepDisplay(2000.0, 2, 3, stream=stream) as display:
        display.scored()
        for label in ("xreg × 2", "plain × 2"):
            display.begin(label, 500, 1000.0)
            display.skip(100)
            display.update(report(250))
            display.update(report(500, diverged_at=7))
        display.scored(2)
    first, *_, last = stream.getvalue().splitlines()
    assert first.startswith("trained   0%  scored 1/3  left –")
    assert last.startswith("trained 100%  scored 3/3  left 0:00  program 2/2 plain × 2")
    lines = shown_lines(SweepDisplay(1000.0, 1, 3, stream=Terminal()))
    assert "left 0:00 + scoring" in lines
    assert "diverged 1" in lines


def shown_lines(display: SweepDisplay) -> str:
    with display:
        display.begin("xreg × 2", 500, 1000.0)
        display.update(report(500, diverged_at=7))
        return display._text()


def test_long_names_are_broken_where_words_are_joined():
    long = "xreg-internal-heads-modes-layer-element-crps+early+temperature, of a user"
    lines = figures.wrapped(long).split("\n")
    assert "".join(lines).replace(" ", "") == long.replace(" ", "")
    assert len(lines) > 2
    assert all(0 < len(line) <= 28 for line in lines)
    assert max(map(len, figures.wrapped("x" * 70).split("\n"))) == 28
    assert figures.wrapped("xreg") == "xreg"
    assert figures.columns_for(["xreg", "dropout", "ensemble"], 6.6) == 3
    assert figures.columns_for([figures.wrapped(long)] * 4, 6.6) < 4
    assert figures.columns_for([long], 0.1) == 1


def test_the_time_left_of_a_sweep_has_scoring_in_it(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(sweep_progress.time, "perf_counter", lambda: now[0])
    stream = io.StringIO()
    # Ten rows of which scoring takes 20 units each; 100 units of training, 1 s each.
    with SweepDisplay(100.0, 1, 10, scoring_work=20.0, stream=stream) as display:
        display.begin("xreg × 10", 100, 100.0)
        now[0] += 30  # it compiles
        display.update(report(10))
        now[0] += 40
        display.update(report(50))
        assert stream.getvalue().splitlines()[-1].startswith("trained  50%  scored 0/10  left about 4:10")
        now[0] += 50
        display.update(report(100))
        now[0] += 30
        display.scored()
        # What was measured takes the place of the guess.
        assert "scored 1/10  left 4:30" in stream.getvalue().splitlines()[-1]


def test_a_file_of_progress_is_touched_while_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(progress_file, "SECONDS_BETWEEN_BEATS", 0.02)
    file = progress_file.ProgressFile(tmp_path)
    file.write({"step": 1})
    path = tmp_path / "progress.json"
    text = path.read_text()
    os.utime(path, (1e9, 1e9))
    for _ in range(200):
        time.sleep(0.02)
        if path.stat().st_mtime > 1e9:
            break
    assert time.time() - path.stat().st_mtime < 60
    assert path.read_text() == text
    file.remove()
    time.sleep(0.1)
    assert not path.exists()


def test_scoring_is_written_down(tmp_path):
    with CountDisplay("pairs scored", enabled=False, folder=tmp_path / "run", steps=70) as display:
        assert not (tmp_path / "run").exists()  # what cannot be written is not
    (tmp_path / "run").mkdir()
    with CountDisplay("pairs scored", enabled=False, folder=tmp_path / "run", steps=70) as display:
        state = json.loads((tmp_path / "run" / "progress.json").read_text())
        assert {k: state[k] for k in ("label", "step", "steps", "now", "left")} == {
            "label": "run", "step": 70, "steps": 70, "now": "scoring", "left": "–",
        }  # fmt: skip
        display.update(3, 9)
    assert list((tmp_path / "run").iterdir()) == []
