"""Forecasts in tables, figures and pages: what they show is what is stored, and no seed is left out without a word."""

import csv
import json
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from made_runs import CHANNELS, POINTS, fields, inside, write_run

from crossreg.config import Config
from crossreg.metrics.intervals import interval
from crossreg.report.figures import forecasts as figures
from crossreg.report.page.lines import forecast_curves
from crossreg.report.page.write import write_report
from crossreg.report.tables.comparison import collect
from crossreg.report.tables.forecasts import lead_cells, leads_csv
from crossreg.runs.fields.stored_fields import write_stored_fields
from crossreg.runs.file_names import FIELDS, ROLLOUT, ROLLOUT_FIELDS

LEADS = [1, 5, 30]
# CRPS by seed and lead; a seed of `dropout` has none at the last lead, as its forecast is not finite there.
CRPS = {
    "xreg-rollout": [[0.10, 0.30, 0.90], [0.12, 0.31, 0.92], [0.11, 0.29, 0.91]],
    "dropout": [[0.20, 0.50, 0.10], [0.22, 0.51, None], [0.21, 0.52, 0.11]],
    "ensemble": [[0.30, 0.31, 2.00], [0.32, 0.30, 2.10], [0.31, 0.29, 2.05]],
}
NAMES = ("rmse", "spread_skill", "ece_mix", "energy_score")


def scores_of(crps: list, lost: int, leads: list[int]) -> dict[str, Any]:
    scores = {name: [0.01 * (i + 1) * lead for lead in leads] for i, name in enumerate(NAMES)}
    return scores | {"leads": leads, "crps": crps, "lost": [0, *[lost] * (len(leads) - 1)]}


def row_of(method: str, seed: int, crps: list, leads: list[int] = LEADS, **more: Any) -> dict[str, Any]:
    row = {"observed_fraction": 1.0, "train_size": 50, "reg_size": 50, "method": method, "seed": seed, "steps": 10}
    row |= {"diverged": False, "test": {"nll": 0.5}, "rollouts": scores_of(crps, 10 * seed, leads)}
    return row | more


ROWS = [row_of(method, seed, crps) for method, by_seed in CRPS.items() for seed, crps in enumerate(by_seed)]


def texts(table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table]


def test_a_table_has_the_mean_of_all_seeds_or_none():
    tables = lead_cells(collect(ROWS))
    [table] = [cells for title, cells in tables.items() if "CRPS" in title]
    head, *body = texts(table)
    assert head[-5:] == ["method", "1", "5", "30", "out of range"]
    found = {row[-5]: row[-4:] for row in body}
    assert found["xreg-rollout"] == ["0.11", "0.3", "0.91", "30"]
    assert found["dropout"] == ["0.21", "0.51", "–", "30"]
    [spread] = [cells for title, cells in tables.items() if "spread" in title]
    assert {tuple(row[-3:]) for row in texts(spread)[1:]} == {("0.02", "0.10", "0.60")}


def test_the_clearly_best_has_a_score_at_its_lead():
    """At lead 1 it is bold; at lead 5 two are level; at lead 30 the lowest mean is that of a method without a seed."""
    [table] = [cells for title, cells in lead_cells(collect(ROWS)).items() if "CRPS" in title]
    bold = {(row[-5].text, place) for row in table[1:] for place in (-4, -3, -2, -1) if row[place].bold}
    assert bold == {("xreg-rollout", -4), ("xreg-rollout", -2)}


def test_methods_that_were_forecast_to_other_leads_stand_in_one_table():
    """As those of two sweeps of one folder."""
    rows = ROWS + [row_of("unregularized", seed, [0.4, 0.5], [1, 8]) for seed in range(3)]
    [table] = [cells for title, cells in lead_cells(collect(rows)).items() if "CRPS" in title]
    head, *body = texts(table)
    assert head[-4:] == ["1", "5", "30", "out of range"]
    assert next(row for row in body if "unregularized" in row)[-4:] == ["0.4", "–", "–", "30"]


def test_a_method_none_of_whose_forecasts_is_finite_has_its_row():
    """With its particles out of range by the last lead, although no score is there."""
    rows = ROWS + [row_of("unregularized", seed, [None] * 3) for seed in range(3)]
    tables = lead_cells(collect(rows))
    [table] = [cells for title, cells in tables.items() if "CRPS" in title]
    assert next(row for row in texts(table) if "unregularized" in row)[-4:] == ["–", "–", "–", "30"]
    last = [row_of("unregularized", seed, [0.3, None, None]) for seed in range(3)]
    [table] = [cells for title, cells in lead_cells(collect(last)).items() if "CRPS" in title]
    assert texts(table)[1][-4:] == ["0.3", "–", "–", "30"]


def test_the_file_of_leads_says_how_many_seeds_have_a_score():
    found = list(csv.DictReader(leads_csv(collect(ROWS)).splitlines()))
    assert [(row["method"], row["lead"]) for row in found][:3] == [("xreg-rollout", str(lead)) for lead in LEADS]
    by_lead = {(row["method"], int(row["lead"])): row for row in found}
    assert {key: row["crps_seeds"] for key, row in by_lead.items() if row["crps_seeds"] != "3"} == {
        ("dropout", 30): "2"
    }
    known = interval([0.10, 0.12, 0.11])
    assert known is not None
    row = by_lead["xreg-rollout", 1]
    for end, value in (("", known.mean), ("_low", known.low), ("_high", known.high)):
        assert float(row[f"crps{end}"]) == pytest.approx(value)


@pytest.fixture
def drawn(monkeypatch):
    kept = []
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure) or [path])
    yield kept
    plt.close("all")


@pytest.mark.parametrize("beside", [None, "ensemble"])
def test_curves_by_lead_have_no_point_where_a_seed_has_no_score(drawn, tmp_path, beside):
    figures.lead_curves(collect(ROWS), tmp_path / "leads", beside=beside)
    [figure] = drawn
    for number, (name, at) in enumerate((("crps", 2), ("beside", 3))[: 2 if beside else 1]):
        curves = {line.get_label(): line.get_data() for line in figure.axes[at].lines if len(line.get_xdata()) != 2}
        shorter = [line.get_data() for line in figure.axes[at].lines if list(line.get_xdata()) == LEADS[:2]]
        wanted = np.asarray(CRPS["xreg-rollout"]).mean(axis=0)
        ensemble = np.asarray(CRPS["ensemble"]).mean(axis=0)
        np.testing.assert_allclose(curves["xreg-rollout"][1], wanted / (ensemble if number else 1), err_msg=name)
        [(_, values)] = shorter  # of dropout
        np.testing.assert_allclose(values, np.asarray([0.21, 0.51]) / (ensemble[:2] if number else 1))


def test_bands_beside_a_method_are_the_intervals_of_the_difference_seed_by_seed(drawn, tmp_path):
    figures.lead_curves(collect(ROWS), tmp_path / "leads", beside="ensemble")
    band = drawn[0].axes[3].collections[0].get_paths()[0].vertices
    ours, theirs = (np.asarray(CRPS[method], float) for method in ("xreg-rollout", "ensemble"))
    for place, lead in enumerate(LEADS):
        gap, mean = interval((ours - theirs)[:, place].tolist()), theirs[:, place].mean()
        assert gap is not None
        ends = band[band[:, 0] == lead, 1]
        np.testing.assert_allclose([ends.min(), ends.max()], [1 + gap.low / mean, 1 + gap.high / mean])


def test_a_fan_has_the_quantiles_of_points(drawn, tmp_path):
    stored = fields()
    figures.fan(stored, tmp_path / "fan", "a run", 4, channel=1)
    [figure] = drawn
    for axis, point in zip(figure.axes, (4, 8, 13), strict=True):
        mean, truth = axis.lines
        np.testing.assert_allclose(mean.get_ydata(), stored.mean[2, :, 1, point])
        np.testing.assert_allclose(truth.get_ydata(), stored.truth[2, :, 1, point])
        for number, band in enumerate(axis.collections):
            low, high = (stored.quantiles[level, 2, :, 1, point] for level in (number, 6 - number))
            ends = band.get_datalim(axis.transData).intervaly
            np.testing.assert_allclose(ends, [low.min(), high.max()], rtol=1e-5)


def test_a_page_has_the_curves_and_the_fields_of_forecasts(tmp_path):
    folder = write_run(tmp_path / "runs" / "first", Config())
    (folder / ROLLOUT).write_text(json.dumps(scores_of([0.1, 0.3, None], 2, LEADS)))
    write_stored_fields(folder / ROLLOUT_FIELDS, fields(2.0))
    (folder / FIELDS).write_text(json.dumps({"channels": CHANNELS, "space": [POINTS], "digest": "made up"}))
    page = inside(write_report(tmp_path / "runs", tmp_path / "page.html", progress=False))
    single, forecast = page["entries"]
    assert (single["forecast"], forecast["forecast"]) == (False, True)
    assert forecast["label"].endswith(", forecast")
    assert len(forecast["trajectories"]) == len(fields().trajectories)
    curves = {curve["y"]: curve for group in page["groups"] for curve in group["curves"]}
    [crps] = curves["CRPS of forecasts"]["series"]
    assert (crps["x"], crps["y"]) == ([1, 5], [0.1, 0.3])
    [spread] = curves["spread over skill of forecasts"]["series"]
    np.testing.assert_allclose(spread["y"], [0.02, 0.1, 0.6])


def test_curves_of_pages_have_no_point_where_a_seed_has_no_score():
    [crps] = [curve for curve in forecast_curves(collect(ROWS)) if curve["y"] == "CRPS of forecasts"]
    assert {series["label"]: series["x"] for series in crps["series"]} == {
        "xreg-rollout": LEADS,
        "dropout": LEADS[:2],
        "ensemble": LEADS,
    }
