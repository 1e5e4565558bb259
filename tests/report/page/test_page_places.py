"""Where a reader is on the page of `crossreg report`: regions, sliders beside what they move, keys, and an address."""

import json

import numpy as np
import pytest
from browsing import drawn, needs_browser, opened
from made_runs import CHANNELS, POINTS, STORED, TIMES, fields, write_run

from crossreg.config import Config
from crossreg.methods.names import config_of
from crossreg.report.page.write import write_report
from crossreg.runs.fields.stored_fields import Windows, write_stored_fields
from crossreg.runs.file_names import TEST_FIELDS

pytestmark = needs_browser
FIRST, LENGTH = 4, 6  # of the window, around steps 6 to 10


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A run whose worst region lies in a trajectory that is not stored, and has a window; and one of another family."""
    root = tmp_path_factory.mktemp("places") / "runs"
    stored = fields()
    part = {
        name: getattr(stored, name)[:1, FIRST : FIRST + LENGTH]
        for name in ("truth", "error", "std_mu", "std_predictive", "std_generalization", "observed")
    }
    windows = Windows(
        trajectories=np.asarray([9]), steps=stored.steps[None, FIRST : FIRST + LENGTH], lines=np.zeros((1, 0), int),
        offsets=stored.offsets[:, :1, FIRST : FIRST + LENGTH], **part,
    )  # fmt: skip
    worst = stored.unaware[0]._replace(trajectory=9, steps=(6, 10), error=0.6)
    stored = stored._replace(unaware=(worst, *stored.unaware), windows=windows)
    for method in ("xreg", "unregularized"):
        folder = write_run(root / method, config_of(method, Config().replace(steps=150)))
        write_stored_fields(folder / TEST_FIELDS, stored)
    return write_report(root, root.parent / "r.html")


@pytest.fixture
def page(browser, report):
    shown = opened(browser, report)
    yield shown
    assert shown.said == []
    shown.context.close()


def place(page) -> dict:
    ids = ("entry", "trajectory", "channel", "time", "level")
    return {name: page.locator(f"#{name}").input_value() for name in ids}


def test_a_region_of_a_trajectory_that_is_not_stored_is_shown_in_its_window(page):
    names = page.locator("#trajectory option").all_text_contents()
    assert names == ["number 0", "number 1", "number 4", f"number 9, steps {FIRST + 1}–{FIRST + LENGTH}"]
    rows = page.locator("#unaware tbody tr")
    assert [row.locator("button").count() for row in rows.all()] == [1, 1, 0]  # of 9, 4 and 7
    rows.first.locator("button").click()
    assert place(page)["trajectory"] == "3"
    assert page.inner_text("#time-said") == "8"
    size = drawn(page, "map-size")
    assert size["trajectory"] == 9
    expected = np.abs(fields().error[0, FIRST : FIRST + LENGTH])
    np.testing.assert_allclose(list(size["values"].values()), expected.ravel(), atol=2e-4)
    box = page.locator("#map-size .region").evaluate("b => [b.style.left, b.style.width].map(parseFloat)")
    np.testing.assert_allclose(box, [100 / LENGTH, 500 / LENGTH], rtol=1e-4)
    # What it leads to is in sight, and so are the sliders.
    assert page.locator("#map-size").evaluate("one => one.getBoundingClientRect().top") < 300


def test_the_sentence_about_what_is_kept_is_true(page):
    said = page.inner_text("#chosen")
    assert "This page holds 3 whole test trajectories of each of 2 of 2 runs" in said
    assert "and windows around the other listed regions" in said


def test_sliders_stay_in_sight_of_the_picture(page):
    for size in ({"width": 1280, "height": 900}, {"width": 390, "height": 844}):
        page.set_viewport_size(size)
        page.wait_for_timeout(300)
        page.locator("#slice").evaluate("one => one.scrollIntoView({ block: 'end' })")
        slider, slice_ = (page.locator(name).bounding_box() for name in ("#time", "#slice figure svg[role=img]"))
        assert 0 <= slider["y"] <= size["height"]
        assert slice_["y"] >= slider["y"]
        assert slice_["y"] + slice_["height"] <= size["height"] + 100


def test_the_range_of_the_field_does_not_move_with_time(page):
    def axis() -> list[str]:
        return page.locator("#slice svg[role=img] text[text-anchor=end]").all_text_contents()

    page.locator("#time").focus()
    page.keyboard.press("Home")
    before = axis()
    for _ in range(TIMES - 1):
        page.keyboard.press("ArrowRight")
        assert axis() == before
    shown = [float(text.replace("−", "-")) for text in before]
    assert shown[0] <= -1 + 0.3
    assert shown[-1] >= 1 - 0.3


def test_errors_and_error_bars_share_a_range_that_holds_both(page):
    top = drawn(page, "map-size")["range"][1]
    stored = fields()
    error, std = (np.sort(np.ravel(v[0, :, 0])) for v in (np.abs(stored.error), stored.std))
    assert error.max() > std.max()
    assert top == pytest.approx(error[int(0.995 * (len(error) - 1))], rel=1e-2)
    assert f"share one range, 0 to {top:.3g}" in page.inner_text("#range-said")


def test_maps_are_read_by_keyboard(page):
    page.locator("canvas[data-map=std]").focus()
    start = int(page.inner_text("#time-said"))
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#time-said") == str(start + 1)
    truth = fields().truth[STORED.index(0), start, 0, 2]
    said = page.inner_text("#map-said")
    assert said.startswith(f"Step {start + 1}, point 2 (observed in the input): truth ")
    assert float(said.split("truth ")[1].split(";")[0].replace("−", "-")) == pytest.approx(truth, abs=2e-3)
    # The field at that time marks the same point.
    assert page.locator("#slice .tip b").inner_text() == "grid point 2"
    for _ in range(POINTS):
        page.keyboard.press("ArrowUp")
    assert f"point {POINTS - 1} " in page.inner_text("#map-said")


def test_a_place_is_kept_in_the_address_and_the_theme_in_the_browser(browser, report, page):
    page.select_option("#entry", "1")
    page.select_option("#trajectory", "2")
    page.select_option("#channel", str(CHANNELS - 1))
    page.locator("#time").fill("7")
    page.locator("#level").fill("55")
    page.select_option("#theme", "dark")
    page.wait_for_timeout(400)
    before = place(page)
    assert before == {"entry": "1", "trajectory": "2", "channel": "1", "time": "7", "level": "55"}
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert place(page) == before
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.locator("#theme").input_value() == "dark"
    # An address that leads nowhere leads to what there is.
    page.evaluate("location.hash = '#explore&entry=99&trajectory=99&channel=x&time=1e9&level=500'")
    page.wait_for_timeout(100)
    assert place(page) == {"entry": "1", "trajectory": "3", "channel": "0", "time": str(LENGTH - 1), "level": "55"}


def test_a_page_that_may_keep_nothing_works(browser, report):
    context = browser.new_context()
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } });"
        "history.replaceState = () => { throw new Error('no'); };"
    )
    page = context.new_page()
    said = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.select_option("#theme", "dark")
    page.locator("#time").fill("3")
    page.wait_for_timeout(400)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert said == []
    context.close()


def test_time_plays_until_it_is_stopped(page):
    first = page.inner_text("#time-said")
    page.click("#play")
    page.wait_for_function("was => document.getElementById('time-said').textContent !== was", arg=first)
    page.click("#play")
    stopped = page.inner_text("#time-said")
    page.wait_for_timeout(400)
    assert page.inner_text("#time-said") == stopped


def test_a_method_has_the_colour_of_its_family(page):
    strokes = (
        "name => [...document.querySelectorAll(`[data-chart=${name}] g polyline`)].map((l) => l.getAttribute('stroke'))"
    )
    assert page.evaluate(strokes, "calibration-0-test") == ["var(--c0)", "var(--c3)"]
    assert page.evaluate(strokes, "losses-0") == ["var(--c0)", "var(--c0)", "var(--c3)", "var(--c3)"]
    splits = json.loads(page.evaluate("JSON.stringify(window.report.drawn.coverage.map((s) => s.label))"))
    assert dict(zip(splits, page.evaluate(strokes, "coverage"), strict=True)) == {
        "test": "var(--c0)", "reg": "var(--c1)", "train": "var(--soft)",
    }  # fmt: skip


def test_tables_on_a_phone_begin_with_the_scores(browser, report):
    page = opened(browser, report, viewport={"width": 390, "height": 844})
    table = page.locator(".scores .wide").first
    heads = table.locator("thead th").all_text_contents()
    assert heads[:3] == ["method", "test NLL", "test ECE"]
    assert heads[-1] == "seeds"
    left = table.locator("tbody th[scope=row]").first
    before = left.bounding_box()["x"]
    table.evaluate("one => { one.scrollLeft = 1000; }")
    assert table.evaluate("one => one.scrollLeft") > 50
    assert left.bounding_box()["x"] == pytest.approx(before, abs=1)
    page.context.close()
