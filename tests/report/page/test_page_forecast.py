"""The forecast of a run on the page of `crossreg report`, in a real browser: what is drawn is what is stored."""

import json

import numpy as np
import pytest
from browsing import drawn, needs_browser, opened, picture
from made_runs import CHANNELS, POINTS, STORED, TIMES, fields, write_run

from crossreg.config import Config
from crossreg.report.page.write import write_report
from crossreg.runs.fields.stored_fields import write_stored_fields
from crossreg.runs.file_names import FIELDS, ROLLOUT, ROLLOUT_FIELDS

pytestmark = needs_browser
# It is that of another field than the predictions of single steps.
FORECAST = fields(2.0)._replace(truth=-fields().truth, unaware=(), aware=())
LEADS = [1, 5, TIMES]
SCORES = {name: [0.1, 0.2, 0.4] for name in ("rmse", "spread_skill", "ece_mix", "crps", "energy_score")}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A run with predictions of single steps, and a forecast that differs from them."""
    root = tmp_path_factory.mktemp("forecast")
    folder = write_run(root / "run", Config().replace(steps=150))
    (folder / ROLLOUT).write_text(json.dumps({"leads": LEADS, "lost": [0, 0, 0]} | SCORES))
    write_stored_fields(folder / ROLLOUT_FIELDS, FORECAST)
    (folder / FIELDS).write_text(json.dumps({"channels": CHANNELS, "space": [POINTS], "digest": "made up"}))
    return write_report(folder, root / "report.html")


@pytest.fixture
def page(browser, report):
    """The page, once the forecast was chosen among what it shows."""
    shown = opened(browser, report)
    [label] = [text for text in shown.locator("#entry option").all_text_contents() if text.endswith(", forecast")]
    shown.select_option("#entry", label=label)
    yield shown
    assert shown.said == []
    assert [url for url in shown.asked if not url.startswith("data:")] == [report.as_uri()]
    shown.context.close()


def curve(page, label: str) -> np.ndarray:
    return np.asarray(next(series["y"] for series in drawn(page, "slice") if series["label"] == label))


def test_the_forecast_is_drawn(page):
    assert "Forecasts from the first field of a trajectory" in page.inner_text("#kind")
    assert page.inner_text("label[for=time]").startswith("Lead time")
    assert page.locator("#maps .along").first.inner_text().split("\n") == ["1", "lead time", str(TIMES)]
    charts = page.locator("figure[data-chart]:visible svg[role=img]")
    marks = charts.evaluate_all("all => all.map((svg) => svg.querySelectorAll('polyline, circle, g rect').length)")
    assert len(marks) > 4
    assert min(marks) > 0
    assert not page.locator("#coverage").is_visible()  # by split: that of single steps
    titles = page.locator("#results figure figcaption").all_text_contents()
    for name in ("CRPS", "spread over skill", "ECE"):
        assert any(title.startswith(f"{name} of forecasts") for title in titles), name
    for name, values in (("truth", FORECAST.truth), ("size", np.abs(FORECAST.error)), ("std", FORECAST.std)):
        found = list(drawn(page, f"map-{name}")["values"].values())
        np.testing.assert_allclose(found, values[0].ravel(), atol=2e-3, err_msg=name)
    # Of single steps, maps and curves are others.
    before = picture(page, "truth"), curve(page, "mean")
    page.select_option("#entry", index=0)
    assert page.inner_text("label[for=time]").startswith("Time step")
    assert page.locator("#coverage polyline").count() > 0
    assert picture(page, "truth") != before[0]
    assert np.abs(curve(page, "mean") - before[1]).max() > 0.01


def test_the_slider_of_leads_changes_what_is_drawn(page):
    line = page.locator("#slice svg[role=img] polyline").first
    found = set()
    page.locator("#time").focus()
    page.keyboard.press("Home")
    for lead in range(1, TIMES + 1):
        assert page.inner_text("#time-said") == str(lead)
        assert f"Lead {lead} of test trajectory {STORED[0]}" in page.inner_text("#slice figcaption")
        for name in ("truth", "mean"):
            np.testing.assert_allclose(curve(page, name), getattr(FORECAST, name)[0, lead - 1, 0], atol=3e-3)
        mark = page.locator("#map-truth .now").evaluate("one => parseFloat(one.style.left)")
        assert mark == pytest.approx(100 * (lead - 0.5) / TIMES, rel=1e-4)
        found.add(line.get_attribute("points"))
        page.keyboard.press("ArrowRight")
    assert len(found) == TIMES
    page.locator("canvas[data-map=truth]").hover(position={"x": 2, "y": 2})
    assert page.inner_text("#map-said").startswith(f"Lead 1, point {POINTS - 1} ")


def test_the_forecast_is_read_on_a_phone(browser, report):
    page = opened(browser, report, viewport={"width": 380, "height": 800}, has_touch=True, is_mobile=True)
    page.select_option("#entry", index=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    before = page.locator("#slice svg[role=img] polyline").first.get_attribute("points")
    slider = page.locator("#time")
    slider.scroll_into_view_if_needed()
    slider.tap(position={"x": 4, "y": 4})
    assert page.inner_text("#time-said") == "1"
    assert page.locator("#slice svg[role=img] polyline").first.get_attribute("points") != before
    assert page.said == []
    page.context.close()
