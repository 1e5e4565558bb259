"""The documentation site: built strictly and without a network, complete, and asking for nothing outside of itself."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import crossreg

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# MkDocs in a process that cannot reach anything.
BUILD = """
import socket, sys
def refuse(*args, **kwargs): raise OSError("no network here")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli()
"""
# What a browser fetches by itself: everything but a link that someone follows.
FETCHED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}


class Page(HTMLParser):
    """The links, the ids and the fetched addresses of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if found.get("id"):
            self.ids.add(found["id"] or "")
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")
        if address := found.get(FETCHED.get(tag, "")):
            self.fetched.append(address)
        assert "srcset" not in found


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built site. A page out of the nav, a link or an anchor that leads nowhere end the build."""
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return out


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


PACKAGES = (crossreg.data, crossreg.export, crossreg.forecasts, crossreg.methods, crossreg.metrics, crossreg.nn)
# A name at the top stands in the reference once, not again in its namespace.
TOP = set(crossreg.__all__) - {package.__name__.partition(".")[2] for package in PACKAGES}
NAMES = [
    *(f"crossreg.{name}" for name in TOP),
    *(f"{package.__name__}.{name}" for package in PACKAGES for name in dir(package) if name not in TOP),
]


def test_every_public_name_is_in_the_reference(pages, site):
    assert not set(NAMES) - pages[site / "api.html"].ids


def test_no_name_of_the_reference_lacks_words(site):
    """A heading is followed by a docstring, before the members, not by a bare signature."""
    text = (site / "api.html").read_text()
    for name in NAMES:
        after = text.split(f'id="{name}"', 1)[1].split('<h3 id="crossreg.', 1)[0]
        assert "<p>" in after.split('<div class="doc doc-children">')[0], name


def test_nothing_is_fetched_from_outside(pages, site):
    for path, page in pages.items():
        for address in page.fetched:
            assert not re.match(r"(https?:)?//", address), (path.name, address)
    for path in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//", path.read_text()), path.name


def test_links_and_pictures_lead_somewhere(pages, site):
    checked = 0
    for path, page in pages.items():
        for address in page.links + page.fetched:
            if re.match(r"(https?|data|mailto):", address):
                continue
            file, fragment = urldefrag(unquote(address))
            target = (path.parent / file).resolve() if file else path
            assert target.is_file(), (path.name, address)
            if fragment and target in pages:
                assert fragment in pages[target].ids, (path.name, address)
            checked += 1
    assert checked > 1000


def test_every_page_is_in_the_menu(site, pages):
    sources = [path.relative_to(DOCS) for path in DOCS.rglob("*.md")]
    built = {str(path.with_name("index.html" if path.name == "README.md" else f"{path.stem}.html")) for path in sources}
    assert built <= set(pages[site / "index.html"].links)
    assert len(sources) == len(pages)


def test_formulas_are_mathml(site):
    formulas = 0
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert "arithmatex" not in text, path.name
        found = re.findall(r"<math.*?</math>", text, re.DOTALL)
        for formula in found:
            # A command that the converter does not know stays there as it was written.
            assert not re.search(r"\\[a-zA-Z]", formula), (path.name, formula)
        formulas += len(found)
    assert formulas > 30


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_files_at_the_root(name):
    for address in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text()):
        assert address.startswith("https://") or (ROOT / address).is_file(), address


def test_the_citation_has_the_version_and_licence_of_the_package():
    import tomllib

    import yaml

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]["text"]
    assert citation["authors"] == [{"name": "The crossreg developers"}]
