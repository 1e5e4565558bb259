"""The page of `crossreg watch` in a real browser: it grows with the files, compares runs, and asks nobody else."""

import json
import os
import shutil
import time

import numpy as np
import pytest
from browsing import needs_browser
from watch_folders import SCORES, history, jsonl

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested where playwright is installed")
pytestmark = needs_browser


@pytest.fixture
def page(browser, client):
    """The page, with all that it says in its console and asks for."""
    opened = browser.new_page(viewport={"width": 1200, "height": 800})
    opened.said, opened.asked = [], []
    opened.on("console", lambda message: opened.said.append(message.text))
    opened.on("pageerror", lambda error: opened.said.append(str(error)))
    opened.on("request", lambda request: opened.asked.append(request.url))
    opened.goto(client.server.url)
    opened.wait_for_selector("#runs tbody tr")
    yield opened
    own = client.server.url
    assert all(url.startswith((own, "data:")) for url in opened.asked)
    # A run that was removed is asked for once more, and the browser notes the 404.
    assert [text for text in opened.said if "404" not in text] == []
    opened.close()


def drawn(page, ending: str) -> dict:
    """The curves of the one chart whose name ends so, by their labels."""
    script = (
        """ending => JSON.stringify(Object.entries(window.watch.drawn).filter(([name]) => name.endsWith(ending)))"""
    )
    [(_, series)] = json.loads(page.evaluate(script, ending))
    return {one["label"]: one for one in series}


def tick(page, name: str) -> None:
    page.locator("#runs tr", has_text=name).first.locator("input").check()


def test_a_curve_grows_with_its_file(page, watched):
    progress = {"label": "two", "step": 250, "steps": 750, "left": "0:09", "replicas": []}
    (watched / "two" / "progress.json").write_text(json.dumps(progress))
    with (watched / "two" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(history(500)) + "\n")
    dots = "#live div:first-child > figure circle"
    page.wait_for_selector(dots, state="attached", timeout=10_000)
    before = page.locator(dots).count()
    assert "step 250 of 750 · time left 0:09" in page.inner_text("#live")
    for number in (600, 700):
        with (watched / "two" / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(history(number)) + "\n")
        before += 2  # of the loss and of the NLL on reg
        playwright.expect(page.locator(dots)).to_have_count(before, timeout=10_000)
    curve = drawn(page, "-nll")["train loss"]
    assert (curve["x"][-1], curve["y"][-1]) == (700, history(700)["train_loss"])
    chart = page.locator("#live figure").first
    chart.locator("svg[role=img]").focus()
    page.keyboard.press("End")
    assert chart.locator(".tip").inner_text().split("\n")[:3] == ["step 700", "train loss", "−1.7"]
    # Whoever reads values there stays there while the file grows.
    with (watched / "two" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(history(720)) + "\n")
    playwright.expect(page.locator(dots)).to_have_count(before + 2, timeout=10_000)
    assert "step 700" in chart.locator(".tip").inner_text()
    assert chart.locator("svg[role=img]").evaluate("one => one === document.activeElement")
    assert page.locator("#live figcaption", has_text="σ per site").count() == 1
    (watched / "two" / "progress.json").unlink()
    playwright.expect(page.locator("#live")).to_contain_text("Nothing is training", timeout=10_000)


def test_what_is_silent_stands_apart(page, watched):
    path = watched / "two" / "progress.json"
    path.write_text(json.dumps({"label": "two", "step": 250, "steps": 750, "left": "0:09", "replicas": []}))
    playwright.expect(page.locator("#status")).to_contain_text("1 training", timeout=10_000)
    assert not page.is_visible("#silence")
    week = time.time() - 7 * 86400
    os.utime(path, (week, week))
    playwright.expect(page.locator("#silent")).to_have_text("two at step 250 of 750, silent for 7 days", timeout=10_000)
    playwright.expect(page.locator("#status")).to_have_text("up to date")
    assert "Nothing is training" in page.inner_text("#live")


def test_what_is_not_looked_into_is_said(page, watched):
    assert page.inner_text("#unseen") == ""
    (watched / "a/b/c/d/e/f/g").mkdir(parents=True)
    said = "Not looked into: folders more than 6 below this one, such as a/b/c/d/e/f/g."
    playwright.expect(page.locator("#unseen")).to_have_text(said, timeout=10_000)


def test_the_last_lines_of_a_run_are_drawn(page, watched):
    tick(page, "two")
    dots = page.locator("[data-chart=compared-reg_nll] svg[role=img] circle")
    (watched / "two" / "metrics.jsonl").write_text(jsonl(history(250)))
    playwright.expect(dots).to_have_count(1, timeout=10_000)
    # All of it between two looks of the page: the curve it has is not the whole one.
    (watched / "two" / "metrics.jsonl").write_text(jsonl(*map(history, (250, 500, 750))))
    (watched / "two" / "metrics.json").write_text(json.dumps({"test": SCORES}))
    playwright.expect(page.locator("#scores")).to_contain_text("finished", timeout=10_000)
    playwright.expect(dots).to_have_count(3, timeout=10_000)
    asked = len([url for url in page.asked if "curve" in url])
    page.wait_for_timeout(3000)  # a whole one is asked for no more
    assert len([url for url in page.asked if "curve" in url]) == asked


def test_runs_without_a_history_are_named(page):
    tick(page, "vertex-mean")
    playwright.expect(page.locator("#uncurved")).to_have_text("No history was found for cars · vertex-mean.")
    tick(page, "deep/one")
    page.locator("#runs tr", has_text="vertex-mean").first.locator("input").uncheck()
    playwright.expect(page.locator("#uncurved")).to_be_hidden()


def test_runs_are_compared(page, watched):
    tick(page, "deep/one")
    tick(page, "ensemble-2")
    page.wait_for_selector("#scores tbody tr:nth-child(2)")
    assert "−2.250" in page.inner_text("#scores")
    playwright.expect(page.locator("#compared > div:first-child polyline")).to_have_count(2)
    colors = page.eval_on_selector_all(
        "#compared > div:first-child polyline", "all => all.map(one => one.getAttribute('stroke'))"
    )
    assert colors == ["var(--c0)", "var(--c2)"]  # xreg and an ensemble, as in the figures
    sigma = drawn(page, "compared-sigma")
    np.testing.assert_allclose(sigma["deep/one · xreg"]["y"], [(0.1 * 0.5) ** 0.5] * 2)
    page.select_option("#site", "pre_head")
    np.testing.assert_allclose(drawn(page, "compared-sigma")["deep/one · xreg"]["y"], [0.5, 0.5])
    # These are of two regimes: neither is the better one.
    assert page.locator("#scores td.best").count() == 0
    # A run that is gone is no longer compared.
    shutil.rmtree(watched / "deep")
    playwright.expect(page.locator("#scores tbody tr")).to_have_count(1, timeout=10_000)
    assert "deep/one" not in page.inner_text("#runs")


def test_by_keyboard_alone(page):
    page.locator("#filter").focus()
    page.keyboard.type("cars xreg")
    assert page.inner_text("#counted") == "1 of 9 runs"
    box = page.locator("#runs input")
    for _ in range(6):
        page.keyboard.press("Tab")
        if box.evaluate("one => one === document.activeElement"):
            break
    page.keyboard.press("Space")
    page.wait_for_selector("#compare:not([hidden])")
    assert "cars · xreg" in page.inner_text("#scores")
    # The list is drawn anew with every change; who is there with the keyboard stays.
    assert box.evaluate("one => one === document.activeElement")


def test_readable_on_a_phone(page):
    page.set_viewport_size({"width": 360, "height": 700})
    tick(page, "deep/one")
    page.wait_for_selector("#compared svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    # Letters of the axes are as large as small print.
    scale = page.eval_on_selector(
        "#compared svg", "one => one.getBoundingClientRect().width / one.viewBox.baseVal.width"
    )
    assert 12 * scale > 9.5


def test_scoring_is_followed(page, watched):
    progress = {"label": "two", "step": 750, "steps": 750, "now": "scoring", "scored": 3, "points": 12, "left": "0:04"}
    (watched / "two" / "progress.json").write_text(json.dumps(progress))
    said = "scoring, 3 of 12 pairs · time left 0:04"
    playwright.expect(page.locator("#live")).to_contain_text(said, timeout=10_000)
    assert page.locator("#live progress").get_attribute("value") == "0.25"
    playwright.expect(page.locator("#runs tr", has_text="two").first).to_contain_text("scoring")
