"""The page of `crossreg report` in a real browser: every panel draws what is stored, and nothing leaves the page."""

import json

import numpy as np
import pytest
from browsing import drawn, needs_browser, opened, picture
from made_car_run import write_folder
from made_runs import POINTS, STEPS, TIMES, fields, history, scores, write_run

from crossreg.config import Config
from crossreg.methods.names import config_of
from crossreg.metrics.calibration import LEVELS
from crossreg.report.page.write import LARGEST, write_report
from crossreg.runs.fields.regions import Region
from crossreg.runs.fields.stored_fields import Planes, write_stored_fields
from crossreg.runs.file_names import TEST_FIELDS

pytestmark = needs_browser
METHODS = {"xreg": 0.0, "dropout": 1.0}
FRACTIONS = (0.5, 0.9)


@pytest.fixture(scope="module")
def report(tmp_path_factory, cars):
    """Two methods in two regimes, two seeds of each, and a car experiment."""
    root = tmp_path_factory.mktemp("report") / "runs"
    for method, number in METHODS.items():
        for fraction in FRACTIONS:
            for seed in range(2):
                config = config_of(method, Config().replace(observed_fraction=fraction, seed=seed, steps=150))
                write_run(root / f"{method}-{fraction}-{seed}", config, number + fraction + 0.1 * seed)
    (root / "cars").mkdir()
    write_folder(root / "cars", cars)
    return write_report(root, root.parent / "report.html")


@pytest.fixture
def page(browser, report):
    shown = opened(browser, report)
    yield shown
    assert shown.said == []
    assert [url for url in shown.asked if not url.startswith("data:")] == [report.as_uri()]
    shown.context.close()


def test_every_panel_draws(page, report):
    assert report.stat().st_size <= LARGEST
    charts = page.locator("figure[data-chart]")
    names = charts.evaluate_all("all => all.map((figure) => figure.dataset.chart)")
    wanted = {"calibration-0-test", "calibration-0-reg", "losses-0", "ece-0", "sigma-0-xreg", "curve-0-0"}
    assert wanted | {"slice", "coverage", "pit", "sigma-sites"} <= set(names)
    shapes = charts.evaluate_all("all => all.map((f) => f.querySelectorAll('svg[role=img] > g > *').length)")
    assert min(shapes) > 0
    pixels = """name => {
      const canvas = document.querySelector(`canvas[data-map=${name}]`);
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return [canvas.width, canvas.height, new Set(new Uint32Array(data.buffer)).size];
    }"""
    for name, colors in (("truth", 5), ("size", 3), ("std_mu", 1), ("std", 1)):
        width, height, found = page.evaluate(pixels, name)
        assert (width, height) == (TIMES, POINTS)
        assert found >= colors
    page.wait_for_selector("#surface canvas, #surface.notice")  # the 3-D car, or that there is no WebGL
    assert page.locator("#roofline svg").count() > 0


def test_curves_are_the_numbers_stored(page):
    page.select_option("#regime-0", label="0.9 observed, 50 trajectories")
    test = drawn(page, "calibration-0-test")
    assert [series["label"].split(" (")[0] for series in test] == list(METHODS)
    for series, number in zip(test, METHODS.values(), strict=True):
        assert series["x"] == list(LEVELS)
        stored = [scores(number + 0.9 + 0.1 * seed)["coverage"] for seed in range(2)]
        np.testing.assert_allclose(series["y"], np.mean(stored, axis=0), rtol=1e-12)
    losses = drawn(page, "losses-0")
    assert losses[0]["label"] == "xreg, train"
    np.testing.assert_allclose(losses[0]["y"], [-1 - 0.01 * step - 0.95 for step in STEPS])
    sites = drawn(page, "sigma-0-xreg")
    np.testing.assert_allclose(sites[0]["y"], [0.01 * step * 6 ** (1 / 3) for step in STEPS])
    curve = drawn(page, "curve-0-0")[0]
    np.testing.assert_allclose(curve["y"], [np.mean([scores(f + d)["nll"] for d in (0, 0.1)]) for f in FRACTIONS])
    [pit] = drawn(page, "pit")
    np.testing.assert_allclose(pit["y"], 20 * np.arange(1, 21) / 210)
    coverage = {series["label"]: series["y"] for series in drawn(page, "coverage")}
    assert coverage["test"] == scores(0.5)["coverage"]


def test_the_slider_and_the_choices_change_the_picture(page):
    stored = fields(0.5)
    before = drawn(page, "slice")
    page.locator("#time").focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#time-said") == "4"
    after = {series["label"]: series for series in drawn(page, "slice")}
    assert list(after.values()) != before
    np.testing.assert_allclose(after["truth"]["y"], stored.truth[2, 3, 0], atol=2e-3)
    np.testing.assert_allclose(after["mean"]["y"], stored.mean[2, 3, 0], atol=2e-3)
    # At 90%, the stored quantiles at 5% and 95%; the predictive part is a Gaussian around the mean.
    total, predictive = after["90% band, total"], after["90% band, predictive"]
    np.testing.assert_allclose(total["high"], stored.quantiles[5, 2, 3, 0], atol=3e-3)
    np.testing.assert_allclose(predictive["low"], stored.mean[2, 3, 0] - 1.6449 * 0.03, atol=2e-3)
    page.locator("#level").focus()
    page.keyboard.press("Home")
    assert page.inner_text("#level-said") == "1%"
    narrow = {series["label"]: series for series in drawn(page, "slice")}["1% band, total"]
    assert np.ptp([narrow["low"], narrow["high"]], axis=0).max() < 0.01
    was = picture(page, "truth")
    page.select_option("#trajectory", label="number 0")
    assert picture(page, "truth") != was
    was = picture(page, "truth")
    page.select_option("#channel", label="1")
    assert picture(page, "truth") != was
    assert drawn(page, "map-size")["range"] == drawn(page, "map-std")["range"] == drawn(page, "map-std_mu")["range"]
    sizes = np.asarray(list(drawn(page, "map-size")["values"].values()))
    np.testing.assert_allclose(sizes, np.abs(stored.error[0]).ravel(), atol=2e-4)


def test_a_region_that_is_stored_is_shown(page):
    buttons = page.locator("#unaware button")
    assert buttons.count() == 1  # the second region is of a trajectory that is not here
    buttons.focus()
    page.keyboard.press("Enter")
    chosen = page.locator("#trajectory").evaluate("s => s.selectedOptions[0].text")
    assert chosen == "number 4 (with the worst region)"
    assert page.inner_text("#time-said") == "8"
    box = page.locator("#map-size .region")
    share = box.evaluate("b => [b.style.left, b.style.width, b.style.bottom, b.style.height].map(parseFloat)")
    np.testing.assert_allclose(share, [500 / TIMES, 500 / TIMES, 800 / POINTS, 800 / POINTS], rtol=1e-4)
    first = page.locator("#unaware tbody tr").first.inner_text().split()
    assert first[2:4] == ["5.0", "0.5"]


def test_values_are_read_with_pointer_and_keys(page):
    page.locator("canvas[data-map=truth]").hover(position={"x": 2, "y": 2})
    assert page.inner_text("#map-said").startswith(f"Step 1, point {POINTS - 1} (observed in the input): truth ")
    chart = page.locator("figure[data-chart=coverage]")
    chart.locator("svg[role=img]").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert f"nominal coverage 0.3: test {scores(0.5)['coverage'][2]:.4g}" in chart.locator(".readout").inner_text()
    legend = chart.locator(".legend button").first
    legend.click()
    assert [series["label"] for series in drawn(page, "coverage")] == ["reg", "train"]
    assert chart.locator(".legend button").first.get_attribute("aria-pressed") == "false"


def test_a_tap_reads_values(browser, report):
    page = opened(browser, report, viewport={"width": 380, "height": 800}, has_touch=True, is_mobile=True)
    page.locator("canvas[data-map=truth]").tap(position={"x": 2, "y": 2})
    assert page.inner_text("#map-said").startswith(f"Step 1, point {POINTS - 1} ")
    chart = page.locator("figure[data-chart=coverage]")
    chart.locator("svg[role=img]").tap()
    assert chart.locator(".readout").inner_text().startswith("nominal coverage ")
    page.context.close()


@pytest.fixture(scope="module")
def steep(tmp_path_factory):
    """Runs in a plane whose losses fall from far off, with a region on the stored line and one beside it."""
    root = tmp_path_factory.mktemp("steep") / "runs"
    for seed, method in enumerate(("xreg", "unregularized")):
        folder = write_run(root / method, config_of(method, Config().replace(steps=2000)), 0.3 * seed)
        steps = range(50, 2050, 50)
        losses = [-2.5 + 31.5 * (50 / step) ** 3 + 0.4 * seed for step in steps]
        lines = [history(s, 0.0) | {"train_loss": y, "reg_nll": y + 0.3} for s, y in zip(steps, losses, strict=True)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        on, beside = (Region(0, 0, (1, 5), ((8, 15), ends), 0.5, std) for ends, std in (((8, 15), 0.0), ((0, 7), 0.1)))
        stored = fields()._replace(space=(POINTS, 20), unaware=(on, beside), aware=())
        write_stored_fields(folder / TEST_FIELDS, stored)
    return write_report(root, root.parent / "r.html")


def test_what_is_far_off_is_cut_and_told_once(browser, steep):
    page = opened(browser, steep)
    chart = page.locator("figure[data-chart=losses-0] svg[role=img]")
    arrows = chart.locator("text.above")
    assert arrows.all_text_contents() == ["↑ 29", "↑ 29", "↑ 29", "↑ 30"]
    boxes = [arrow.bounding_box() for arrow in arrows.all()]
    tops = sorted(box["y"] for box in boxes if box)
    assert min(np.diff(tops)) > 8  # none hides another
    # The curve comes in from above the axes; it does not run along their upper edge.
    shown = chart.locator("polyline").first.evaluate("line => line.getAttribute('points').split(' ')")
    heights = [float(point.split(",")[1]) for point in shown]
    assert heights[0] < 0
    assert len(set(heights)) == len(heights)
    assert chart.locator("g[clip-path] polyline").count() == 4
    assert page.said == []
    page.context.close()


def test_a_region_beside_the_stored_line_is_not_shown_on_it(browser, steep):
    page = opened(browser, steep)
    rows = page.locator("#unaware tbody tr")
    assert [row.locator("button").count() for row in rows.all()] == [1, 0]
    assert "∞" in rows.first.inner_text()
    page.context.close()


def test_whole_fields_of_a_plane_are_drawn_and_read(browser, tmp_path):
    x, y = np.meshgrid(np.arange(6.0), np.arange(4.0), indexing="ij")
    truth = np.stack([np.stack([step + 0 * x, x + 10 * y + step]) for step in (1.0, 5.0)]).astype(np.float32)
    same = {name: 0.5 * np.ones_like(truth) for name in ("error", "std_mu", "std_predictive", "std_generalization")}
    one = {name: values[None] for name, values in ({"truth": truth} | same).items()}
    planes = Planes(np.asarray([0]), 2, np.asarray([1, 5]), np.broadcast_to(x > y, (1, 2, 6, 4)), **one)
    folder = write_run(tmp_path / "plane", Config().replace(steps=150))
    write_stored_fields(folder / TEST_FIELDS, fields()._replace(space=(POINTS, 4), unaware=(), aware=(), planes=planes))
    page = opened(browser, write_report(folder, tmp_path / "r.html"))
    page.locator("#channel").select_option("1")
    page.locator("#plane-step").select_option(index=1)
    shown = drawn(page, "plane-truth")
    assert shown["step"] == 5
    np.testing.assert_allclose(list(shown["values"].values()), truth.ravel(), rtol=1e-3)
    assert shown["range"] == pytest.approx([1, 40], rel=1e-3)  # all of it above 0
    canvas = page.locator("canvas[data-plane=truth]")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    # The fifth column from the left, the second row from below.
    page.mouse.move(box["x"] + box["width"] * 4.5 / 6, box["y"] + box["height"] * 2.5 / 4)
    said = page.locator("#plane-said").inner_text()
    assert said.startswith("Step 5, point 8, 2 (observed in the input): truth 19")
    assert page.said == []
    page.context.close()


def test_whole_fields_are_those_of_the_chosen_trajectory(browser, tmp_path):
    x, y = np.meshgrid(np.arange(6.0), np.arange(4.0), indexing="ij")
    rows = np.asarray([0, 4])
    truth = np.stack([np.stack([np.stack([x + 10 * row, y + row])] * 2) for row in (1.0, 5.0)]).astype(np.float32)
    same = {name: 0.5 * np.ones_like(truth) for name in ("error", "std_mu", "std_predictive", "std_generalization")}
    planes = Planes(rows, 1, np.asarray([1, 5]), np.ones((2, 2, 6, 4), bool), truth, **same)
    folder = write_run(tmp_path / "plane", Config().replace(steps=150))
    stored = fields()._replace(space=(POINTS, 4), unaware=(), aware=(), planes=planes, names=("flow[0]", "V<x>"))
    write_stored_fields(folder / TEST_FIELDS, stored)
    page = opened(browser, write_report(folder, tmp_path / "r.html"))
    assert page.locator("#channel option").all_text_contents() == ["flow[0]", "V<x>"]
    page.select_option("#channel", label="V<x>")
    for place, number in enumerate((0, 4)):
        page.select_option("#trajectory", label=f"number {number}")
        assert page.inner_text("#planes-of") == f"test trajectory {number}, V<x>"
        shown = np.asarray(list(drawn(page, "plane-truth")["values"].values()))
        np.testing.assert_allclose(shown, truth[place].ravel(), rtol=1e-3)
        assert page.locator("#planes").is_visible()
    page.select_option("#trajectory", label="number 1")  # stored, but not its planes
    assert not page.locator("#planes").is_visible()
    assert page.inner_text("#planes-none") == "This page holds whole fields of test trajectory 0, 4, not of 1."
    assert page.locator("#maps").is_visible()
    assert page.said == []
    page.context.close()


def test_a_gap_hides_the_truth_and_not_the_prediction(browser, tmp_path):
    stored = fields()
    truth, mean = stored.truth.copy(), stored.mean
    truth[:, 3:6, 0, 4:9] = np.nan
    gap_mean = np.where(np.isnan(truth), mean, np.nan)
    gaps = stored._replace(truth=truth, error=stored.error + 0 * truth, gap_mean=gap_mean, names=("p", "v"))
    folder = write_run(tmp_path / "gaps", Config().replace(steps=150))
    write_stored_fields(folder / TEST_FIELDS, gaps._replace(unaware=(), aware=()))
    page = opened(browser, write_report(folder, tmp_path / "r.html"))

    def values(name):
        shown = drawn(page, f"map-{name}")["values"].values()
        return np.asarray([np.nan if v is None else v for v in shown], float).reshape(truth.shape[1:])

    assert page.locator("#map-mean").is_visible()
    for name, wanted in (("truth", truth), ("mean", mean), ("size", np.abs(gaps.error)), ("std", gaps.std)):
        np.testing.assert_allclose(values(name)[:, 0], wanted[0, :, 0], atol=2e-3, err_msg=name)
    grey = """name => {
      const canvas = document.querySelector(`canvas[data-map=${name}]`);
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      const isGrey = (i) => i % 4 === 0 && [0, 1, 2].every((c) => data[i + c] === 128);
      return [...data].filter((_, i) => isGrey(i)).length;
    }"""
    assert [page.evaluate(grey, name) for name in ("truth", "mean", "size", "std_mu", "std")] == [15, 0, 15, 0, 0]
    page.locator("#time").fill("4")
    lines = {series["label"]: series for series in drawn(page, "slice")}
    np.testing.assert_allclose(lines["mean"]["y"], mean[0, 4, 0], atol=2e-3)
    assert lines["truth"]["y"][4:9] == [None] * 5
    np.testing.assert_allclose(lines["90% band, total"]["high"], gaps.quantiles[5, 0, 4, 0], atol=3e-3)
    # The line of the truth is in two parts; those of the mean and of another channel are whole.
    assert page.locator("#slice svg[role=img] polyline").count() == 3
    page.locator("canvas[data-map=mean]").hover(position={"x": 1, "y": 1})
    page.select_option("#channel", label="v")
    assert not page.locator("#map-mean").is_visible()
    assert page.locator("#slice svg[role=img] polyline").count() == 2
    assert page.said == []
    page.context.close()


def test_what_was_switched_off_stays_off(page):
    def labels(name):
        return [series["label"] for series in drawn(page, name)]

    page.locator("figure[data-chart=slice] .legend button", has_text="predictive").click()
    page.locator("figure[data-chart=calibration-0-test] .legend button").first.click()
    page.locator("#level").focus()
    page.keyboard.press("ArrowLeft")
    assert labels("slice") == ["89% band, total", "mean", "truth"]
    page.set_viewport_size({"width": 900, "height": 900})
    page.wait_for_timeout(400)
    assert labels("slice") == ["89% band, total", "mean", "truth"]
    assert [label.split(" (")[0] for label in labels("calibration-0-test")] == ["dropout"]
    page.select_option("#regime-0", label="0.9 observed, 50 trajectories")
    assert [label.split(" (")[0] for label in labels("calibration-0-test")] == ["dropout"]


def test_foreign_scripts_do_not_run(browser, report, tmp_path):
    text = report.read_text().replace("<main", "<script>window.foreign = 1</script><main", 1)
    (tmp_path / "r.html").write_text(text)
    page = opened(browser, tmp_path / "r.html")
    assert page.evaluate("window.foreign === undefined")
    assert any("Content Security Policy" in said for said in page.said)
    page.context.close()


def test_phone_keyboard_and_dark(browser, report):
    page = opened(browser, report, viewport={"width": 380, "height": 800}, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    for details in page.locator("details").all():
        details.evaluate("d => { d.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.select_option("#theme", "light")
    assert page.evaluate(ground) == "rgb(255, 255, 255)" != dark
    page.keyboard.press("Home")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    unnamed = """() => [...document.querySelectorAll("select, input, button, svg[role=img], canvas[role=img]")]
      .filter((e) => !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim()))
      .map((e) => e.outerHTML)"""
    own = [text for text in page.evaluate(unnamed) if "plotly" not in text and "gl-" not in text]
    assert own == []
    assert page.said == []
    page.context.close()


def test_names_do_not_become_markup(browser, tmp_path):
    nasty = "<img src=x onerror=alert(1)>"
    folder = write_run(tmp_path / nasty, Config().replace(steps=150))
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(metrics | {"sigma": {nasty: [0.1, 0.2]}}))
    page = opened(browser, write_report(folder, tmp_path / "r.html"))
    assert page.locator("img").count() == 0
    assert page.inner_text("h1") == nasty
    assert nasty in page.locator("#sigma svg").inner_html().replace("&lt;", "<").replace("&gt;", ">")
    assert page.said == []
    page.context.close()
