"""One self-contained page of a car run: a surface to turn, the roofline beside it, and the scores.

Everything is in the file: the page's policy forbids the browser to load anything. Arrays are little-endian float32
(faces uint32) in base64. Cars of one topology share their faces. If the test cars exceed the largest size of the file,
some are left out, evenly over the ranking by relative L2 error; the best, the worst and the one in the middle remain.
"""

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Int
from matplotlib.colors import to_hex

from crossreg.cars.meshes.surface import Surface
from crossreg.cars.metrics import SCORE_NAMES
from crossreg.files.whole import replacing
from crossreg.metrics.intervals import Interval, decimals_of
from crossreg.report.cars.figures import BAND, ERROR_COLORS
from crossreg.report.cars.run import TOP_LEVEL, CarRun, Prediction, read_car_run, roofline
from crossreg.report.offline import base64_text, fill, json_text, plotly_script, policy
from crossreg.report.page.files import readable_json, said_time
from crossreg.report.shared import package_file, shared_file, shared_style
from crossreg.report.shared.html import folded, listed
from crossreg.runs.file_names import SUMMARY, VERSIONS
from crossreg.runs.kinds import sections_of

PAGE = "car.html"
LARGEST = 12_000_000  # bytes of a page
_REST = 100_000  # of a page, besides plotly and cars
_NAMES = 3_000  # of a car, besides its arrays
WORDS = {
    "train": "cars to train on",
    "reg": "cars to regularize on",
    "test": "cars to test on",
    "vertices": "vertices of a test car, least and most",
}


def write_car_page(folder: Path) -> Path:
    """Write `car.html` into the folder of a run; return its path."""
    run = read_car_run(folder)
    plotly, script, theme = plotly_script(), page_file("js"), shared_file("theme.js")
    cars = cars_to_embed(run, LARGEST - _REST - len(plotly.encode()))
    path, versions = folder / PAGE, readable_json(folder / VERSIONS)
    facts = {"device": versions.get("device"), "ended": said_time([folder / VERSIONS], folder / SUMMARY)}
    parts = {
        "policy": policy([theme, plotly, script]),
        "style": shared_style() + page_file("css"),
        "theme": theme,
        "script": script,
        "plotly": plotly,
        "run": json_text(embedded(run, cars)),
        "about": html.escape(_about(run, len(cars))),
        "band": str(BAND),
        "table": scores_table(run),
        "units": html.escape(run.units),
        "intervals": intervals_said(run),
        "settings": settings_said(run.summary, facts) + folded("Versions", listed(versions) if versions else ""),
    }
    with replacing(path) as file:
        file.write(fill(page_file("html"), parts).encode())
    return path


def cars_to_embed(run: CarRun, room: int) -> Int[np.ndarray, " kept"]:
    """Return the cars that fit into `room` bytes, in the order of the ranking; at least the one in the middle."""
    arrays = 4 + len(run.predictions) * len(Prediction._fields)
    face_bytes = [0 if car.faces is None else car.faces.size * 4 for car in run.cars]
    if len(_topologies(run.cars)) <= 1:
        room -= _in_base64(max(face_bytes))
        face_bytes = [0] * len(run.cars)
    bodies = zip(run.cars, face_bytes, strict=True)
    largest = _NAMES + max(_in_base64(4 * arrays * len(car.vertices) + faces) for car, faces in bodies)
    count = int(np.clip(room // largest, 1, len(run.cars)))
    places = np.linspace(0, len(run.cars) - 1, count).round().astype(int)
    places[(count - 1) // 2] = (len(run.cars) - 1) // 2
    return run.ranking()[np.unique(places)]


def embedded(run: CarRun, cars: Int[np.ndarray, " kept"]) -> dict[str, Any]:
    """Return the data of the page's script. Arrays are text, and a car's `faces` an index into the list of all."""
    topologies = _topologies([run.cars[number] for number in cars])
    rank = {int(number): place + 1 for place, number in enumerate(run.ranking())}

    def one(number: int) -> dict[str, Any]:
        car = run.cars[number]
        return {
            "label": f"{car.name}, {rank[number]} of {len(run.cars)}",
            "vertices": base64_text(car.vertices, "<f4"),
            "truth": base64_text(car.pressure, "<f4"),
            "faces": None if car.faces is None else list(topologies).index(car.faces.tobytes()),
            "roofline": roofline(car).tolist(),
            "predictions": {
                method: {name: base64_text(values, "<f4") for name, values in parts[number]._asdict().items()}
                for method, parts in run.predictions.items()
            },
        }

    return {
        "units": run.units,
        "pressure_label": run.pressure_label,
        "band": BAND,
        "top_level": TOP_LEVEL,
        "scales": {"error": _color_scale(ERROR_COLORS), "pressure": _color_scale("RdBu_r")},
        "methods": list(run.predictions),
        "first_car": cars.tolist().index(run.typical_car()),
        "faces": [base64_text(faces, "<u4") for faces in topologies.values()],
        "cars": [one(int(number)) for number in cars],
    }


def scores_table(run: CarRun) -> str:
    """Return the test scores of all methods as an HTML table, with intervals over seeds and over cars, if any."""
    rows = []
    for method in run.methods:
        entry = run.summary["methods"][method]
        cells = [_cell(run.score(method, name), run.over_cars(method, name), name) for name in SCORE_NAMES]
        seeds, diverged = _count(entry.get("seeds")), _count(entry.get("diverged"))
        rows.append([*cells, (seeds + (f" ({diverged} diverged)" if diverged not in ("", "0") else ""), "")])
    heads = ["method", *SCORE_NAMES.values(), "seeds"]
    lines = ["<table><thead><tr>", *(f'<th scope="col">{name}</th>' for name in heads), "</tr></thead><tbody>"]
    for method, row in zip(run.methods, rows, strict=True):
        data = "".join(f"<td>{html.escape(text)}{_below(small)}</td>" for text, small in row)
        lines.append(f'<tr><th scope="row">{html.escape(method)}</th>{data}</tr>')
    return "".join([*lines, "</tbody></table>"])


def intervals_said(run: CarRun) -> str:
    """Return an explanation of ± and of a cell's second line, if the table has them."""
    scores = [(method, name) for method in run.methods for name in SCORE_NAMES]
    found = [run.score(*score) for score in scores]
    text = ""
    if any(interval is not None and not math.isnan(interval.half) for interval in found):
        text += "± is half of a 95% interval over seeds, on the same cars. "
    if any(run.over_cars(*score) is not None for score in scores):
        text += "The second line is a 95% interval over test cars (bootstrap), with the same seeds. "
    return text


def _count(value: Any) -> str:
    """Return a whole number as text, and anything else that a summary has in its place as nothing."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _below(text: str) -> str:
    return f"<br><small>{html.escape(text)}</small>" if text else ""


def _cell(interval: Interval | None, over_cars: tuple[float, float] | None, name: str) -> tuple[str, str]:
    """Return a score with its interval over seeds, and its interval over cars, for the line below."""
    if interval is None or not math.isfinite(interval.mean):
        return "–", ""
    decimals = decimals_of(interval.mean, name)
    half = "" if math.isnan(interval.half) else f" ± {interval.half:.{decimals}f}"
    cars = "" if over_cars is None else "{:.{d}f} to {:.{d}f}".format(*over_cars, d=decimals)
    return f"{interval.mean:.{decimals}f}{half}".replace("-", "−"), cars.replace("-", "−")


def _about(run: CarRun, num_embedded: int) -> str:
    """Return the lines under the page's title."""
    if len(run.cars) == 1:
        return "The one test car as the first seed predicts it."
    shown = "All" if num_embedded == len(run.cars) else f"{num_embedded} of"
    text = f"{shown} {len(run.cars)} test cars as the first seed predicts them"
    text += "." if run.ranked_by is None else f", ordered by the relative L2 error of {run.ranked_by}."
    if num_embedded < len(run.cars):
        text += " The others were left out to keep this file small, evenly over that order."
    return text


def settings_said(summary: Mapping[str, Any], more: Mapping[str, Any]) -> str:
    """Return the facts of a run, and `more` of them, as HTML; all settings are folded."""
    facts = {WORDS.get(name, name): value for name, value in summary.items() if name not in ("methods", "settings")}
    flat = {f"{part}: {k}": v for part, own in sections_of(summary.get("settings")).items() for k, v in own.items()}
    return listed(facts | dict(more)) + folded("All settings", listed(flat) if flat else "")


def _topologies(cars: Sequence[Surface]) -> dict[bytes, Int[np.ndarray, "face 3"]]:
    """Return the different faces of cars, by their bytes."""
    return {car.faces.tobytes(): car.faces for car in cars if car.faces is not None}


def _in_base64(num_bytes: int) -> int:
    return -(-num_bytes // 3) * 4


def _color_scale(name: str) -> list[tuple[float, str]]:
    """Return a colour scale of matplotlib in the form of plotly."""
    return [(place, to_hex(mpl.colormaps[name](place))) for place in np.linspace(0, 1, 17).tolist()]


def page_file(ending: str) -> str:
    """Return the page of car experiments, its style or its script."""
    return package_file("crossreg.report.cars", f"page.{ending}")
