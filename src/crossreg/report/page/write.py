"""One HTML file with everything in it.

The page's policy lets only its own scripts run and nothing be loaded (`report/offline.py`). The numbers stand in the
page as JSON; its script writes them only as text, never as markup. The 3-D library, plotly, is included only if there
are cars.
"""

import html
from pathlib import Path

from crossreg.errors import InputError
from crossreg.files.whole import check_is_folder, check_replaceable, replacing
from crossreg.metrics.calibration import LEVELS
from crossreg.report.cars import page as car_page
from crossreg.report.offline import fill, json_text, plotly_script, policy
from crossreg.report.page import parts
from crossreg.report.page.data_names import data_names, in_words, with_names
from crossreg.report.page.fields import constants, embed, load_entries
from crossreg.report.page.folders import Car, Found, find
from crossreg.report.page.lines import Group, described, described_car, described_unfinished, make_group
from crossreg.report.page.rows import distinct
from crossreg.report.page.settings import versions_line, what_was_run
from crossreg.report.shared import package_file, shared_file, shared_scripts, shared_style

LARGEST = 12_000_000  # bytes
_SPARE = 150_000
DEFAULT = "report.html"
_UNFINISHED = (
    '<h3>Incomplete</h3><p class="hint">Curves so far of runs that have not ended or cannot be read whole. The reasons'
    ' are listed under What was run.</p><div class="figures" data-group="{}"></div>'
)
_CHOSEN = {
    "runs": "Among runs that differ only in their seed, the first is shown.",
    "sweep": "Of a sweep, these are the first seed of every method in the first regime, and of XReg (or the first"
    " method) in the others.",
}
_SCRIPTS = ("maps.js", "slice.js", "entries.js", "page.js")


def write_report(folder: Path, output: Path | None = None, *, progress: bool = False) -> Path:
    """Write the page of everything below a folder.

    Args:
        folder: A run folder, a sweep, a car experiment, or a folder of these.
        output: The file to write, by default `report.html` in the folder.
        progress: Whether to count what is read on the terminal.

    Returns:
        The file that was written.

    Raises:
        InputError: If nothing below the folder can be read, the file cannot be written, or the page would be too large.

    Example:
        >>> write_report(Path("runs"), Path("report.html"))  # doctest: +SKIP
    """
    check_is_folder(folder)
    check_output(output or folder / DEFAULT)
    if output is not None:
        check_replaceable(output, b'name="generator" content="crossreg"', "output")
    output = output or folder / DEFAULT
    page = _page(find(folder, progress=progress), progress=progress)
    if len(page) > LARGEST:
        raise InputError(
            f"{folder}: its page would have {len(page) / 1e6:.1f} MB, more than the limit of {LARGEST / 1e6:.0f};"
            " report its folders one by one, or a sweep of fewer regimes or methods"
        )
    try:
        with replacing(output) as file:
            file.write(page)
    except OSError as error:
        raise InputError(f"output {output}: cannot write here ({error.strerror})") from error
    return output


def _page(found: Found, *, progress: bool) -> bytes:
    """Return the page of what was found, with as many test trajectories and cars as there is room for."""
    names = data_names(found)
    found = with_names(found, names)
    groups = make_groups(found)
    entries = load_entries(found, groups, progress=progress)
    entries = [entry._replace(why=in_words(entry.why, names)) for entry in entries]
    drawn = [described(group) for group in groups]
    open_part = described_unfinished(found.unfinished)
    places = {"cars": len(drawn), "unfinished": len(drawn) + bool(found.cars)}
    drawn += [described_car(car) for car in found.cars[:1]] + ([open_part] if open_part else [])
    inside = {
        "runs": sum(len(group.rows) for group in groups) - len(found.references),
        "chosen": _CHOSEN["sweep" if found.sweeps else "runs"],
        "levels": list(LEVELS),
        "constants": constants(),
        "groups": drawn,
    }
    results = [_results(number, group, len(groups)) for number, group in enumerate(groups)]
    if open_part:
        results.append(_UNFINISHED.format(places["unfinished"]))
    texts = {
        "style": shared_style() + _file("page.css"),
        "theme": shared_file("theme.js"),
        "title": html.escape(found.name),
        "about": html.escape(_about(found)),
        "settings": what_was_run(found),
        "results": "".join(results),
        "results_hidden": "" if results else "hidden",
        "explore_hidden": "" if groups else "hidden",
        "cars": "",
        "plotly": "",
        "script": '(() => {\n"use strict";\n' + shared_scripts() + "".join(map(_file, _SCRIPTS)) + "})();",
    }
    scripts = [texts["theme"], texts["script"]]
    room = LARGEST - _SPARE - sum(len(text.encode(errors="replace")) for text in texts.values())
    room -= len(json_text(inside))
    if found.cars:
        scripts += [plotly_script(), car_page.page_file("js")]
        texts |= _cars(found.cars, room // 2 if entries else room, places["cars"])
        room -= len(texts["cars"].encode(errors="replace")) + len(texts["plotly"].encode(errors="replace"))
    texts["policy"] = policy(scripts)
    texts["data"] = json_text(inside | {"entries": embed(entries, room)})
    return fill(_file("page.html"), texts).encode(errors="replace")


def check_output(output: Path) -> None:
    """Raise InputError, before anything is read, if the page could not be written to this file."""
    if output.is_dir():
        raise InputError(f"output {output}: is a folder; name a file, such as report.html")
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"output {output}: expected a name that ends in .html")
    if not output.parent.is_dir():
        raise InputError(f"output {output}: there is no folder {output.parent}")


def make_groups(found: Found) -> list[Group]:
    """Group the rows that are compared: all single runs with each other, and the rows of each sweep."""
    rows = distinct([*(run.row for run in found.runs), *found.references])
    histories = {run.name: run.history for run in found.runs}
    groups = [make_group("runs", rows, histories)] if rows else []
    return groups + [make_group(s.name, distinct(s.rows), s.histories, s) for s in found.sweeps]


def _about(found: Found) -> str:
    """Return the content of the page in a few words."""
    kinds = (("run", found.runs), ("sweep", found.sweeps), ("car experiment", found.cars))
    parts = [f"{len(items)} {name}{'s' * (len(items) > 1)}" for name, items in kinds if items]
    rows = sum(len(sweep.rows) for sweep in found.sweeps)
    parts += [f"{rows:,} rows of sweeps"] if rows else []
    parts += [f"{len(found.unfinished)} incomplete"] if found.unfinished else []
    return ", ".join(parts)


def _results(number: int, group: Group, count: int) -> str:
    """Return the tables of a group, and the places of its figures."""
    title = f"<h3>{html.escape(group.name)}</h3>" if count > 1 else ""
    return f'{title}<div class="scores">{parts.scores(group)}</div><div class="figures" data-group="{number}"></div>'


def _cars(cars: list[Car], room: int, number: int) -> dict[str, str]:
    """Return the panel of `car.html` and the figures of the first car experiment, and the scores of all."""
    plotly = plotly_script()
    run = cars[0].run
    shown = car_page.cars_to_embed(run, room - len(plotly.encode()))
    template = car_page.page_file("html")
    main = template[template.index("<main>") + len("<main>") : template.index("</main>")]
    facts = {"versions": versions_line(cars[0].versions), "ended": cars[0].when}
    texts = {
        "band": str(car_page.BAND),
        "table": car_page.scores_table(run),
        "units": html.escape(run.units),
        "intervals": car_page.intervals_said(run),
        "settings": car_page.settings_said(run.summary, facts),
    }
    # The page has a section "What was run" of its own.
    panel = fill(main.replace("h2", "h3").replace("What was run", "What was run on cars"), texts)
    others = "".join(
        f'<h3>{html.escape(car.name)}</h3><div class="wide" tabindex="0">{car_page.scores_table(car.run)}</div>'
        for car in cars[1:]
    )
    count = f"{len(shown)} of {len(run.cars)} test cars" if len(shown) < len(run.cars) else "all test cars"
    said = f"<p>{html.escape(cars[0].name)}: {count}, as predicted by the first seed.</p>"
    return {
        "cars": f'<section id="cars" aria-labelledby="cars-title"><h2 id="cars-title">Cars</h2>{said}{panel}'
        f'<div class="figures" data-group="{number}"></div>{others}</section>',
        "plotly": f'<script type="application/json" id="run">{json_text(car_page.embedded(run, shown))}</script>'
        f"<script>{plotly}</script><script>{car_page.page_file('js')}</script>",
    }


def _file(name: str) -> str:
    return package_file("crossreg.report.page", f"static/{name}")
