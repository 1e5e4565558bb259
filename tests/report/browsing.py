"""Pages in a real browser, headless: shared by the tests of `crossreg report` and `crossreg watch`."""

import importlib.util
import json
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HAS_DRIVER = importlib.util.find_spec("playwright") is not None
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or not HAS_DRIVER, reason="pages are tested where playwright and chromium are installed"
)


def opened(browser, path, **options):
    """The page, once it has drawn, with all that it says in its console and asks for."""
    context = browser.new_context(**({"viewport": {"width": 1200, "height": 900}} | options))
    page = context.new_page()
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.route("**", lambda route: page.asked.append(route.request.url) or route.continue_())
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    return page


def drawn(page, name: str):
    """What a figure shows, as the page's script has it."""
    return json.loads(page.evaluate("name => JSON.stringify(window.report.drawn[name])", name))


def picture(page, name: str) -> bytes:
    """All pixels of a map."""
    script = "name => document.querySelector(`canvas[data-map=${name}]`).toDataURL()"
    return page.evaluate(script, name).encode()
