"""The figures of a car run: what is drawn is what is stored."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from made_car_run import COVERAGE, ERRORS, SCORES, STEPS, write_summary
from matplotlib.collections import PathCollection, PolyCollection, TriMesh
from matplotlib.colors import Normalize

from crossreg.cars.family.bodies import resolution
from crossreg.cars.family.make import draw_shapes, make_car
from crossreg.metrics.calibration import LEVELS
from crossreg.report.cars import figures as car_figures
from crossreg.report.cars.run import read_car_run, roofline, top_of_scale


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


def test_error_and_deviation_have_one_colour_scale(car_folder, drawn):
    run = read_car_run(car_folder)
    number = run.typical_car()
    error = np.abs(run.predictions["xreg"][number].mean - run.cars[number].pressure)
    same = run.predictions["xreg"][number]._replace(std=error)
    run.predictions["xreg"] = (*run.predictions["xreg"][:number], same, *run.predictions["xreg"][number + 1 :])
    car_figures.surface_figure(run, "xreg", car_folder / "same")
    *panels, line, bar = sorted(drawn["same"].axes, key=lambda axis: axis.get_label() == "<colorbar>")
    meshes = [mesh for axis in panels for mesh in axis.collections if isinstance(mesh, TriMesh)]
    front, rear, *others = [np.asarray(mesh.get_facecolor()) for mesh in meshes]
    # Error and deviation are equal here, so every vertex must have one colour in both.
    np.testing.assert_array_equal(front, others[0])
    np.testing.assert_array_equal(rear, others[1])
    # One range for all methods, by the errors of all.
    errors = [np.abs(of[number].mean - run.cars[number].pressure) for of in run.predictions.values()]
    assert len(errors) > 1
    assert bar.get_ylim() == pytest.approx((0, np.quantile(errors, 0.995)))
    hue = mpl.colormaps["viridis"](Normalize(0, top_of_scale(*errors))(error))
    shade = front[:, :3] / hue[:, :3]
    assert shade.min() > 0.55
    assert shade.max() <= 1 + 1e-12
    assert "relative L2 error 0.200" in drawn["same"].get_suptitle()
    assert line.get_title(loc="left") == "roofline"


@pytest.mark.parametrize("number", [3, 4])
def test_the_roofline_is_drawn_as_stored(car_folder, drawn, number):
    run = read_car_run(car_folder)
    car_figures.surface_figure(run, "dropout", car_folder / "one", car=number)
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


def test_sigmas_and_parts_are_drawn_as_stored(car_folder, drawn):
    car_figures.draw_car_figures(car_folder)
    names = {f"surface_{method}" for method in ERRORS} | {"sigma_xreg", "calibration", "methods"}
    assert set(drawn) == names
    over_steps, at_end, parts = drawn["sigma_xreg"].axes
    lift, block = over_steps.lines
    np.testing.assert_allclose(lift.get_xydata(), [(t, 0.03 * t) for t in STEPS])
    np.testing.assert_allclose(block.get_xydata(), [(t, 0.2 * t) for t in STEPS])
    shade = np.asarray(over_steps.collections[0].get_paths()[0].vertices)
    assert shade[:, 1].max() == pytest.approx(0.05 * STEPS[-1])
    assert sorted(at_end.lines[0].get_ydata()) == pytest.approx([4, 12, 20])
    run = read_car_run(car_folder)
    joined = [np.concatenate([np.asarray(p[i]) for p in run.predictions["xreg"]]) for i in range(3)]
    error = joined[0] - np.concatenate([car.pressure for car in run.cars])
    expected = [np.sqrt(np.mean(values**2)) for values in (joined[1], joined[2], error)]
    assert [bar.get_height() for bar in parts.patches] == pytest.approx(expected)


def test_scores_are_drawn_as_stored(car_folder, drawn):
    run = read_car_run(car_folder)
    car_figures.calibration_figure(run, car_folder / "calibration")
    _, xreg, dropout = drawn["calibration"].axes[0].lines
    np.testing.assert_array_equal(xreg.get_xydata(), np.stack([LEVELS, COVERAGE], 1))
    assert dropout.get_label() == "dropout (ECE 0.100)"
    car_figures.methods_figure(run, car_folder / "methods")
    relative, ece, spearman = drawn["methods"].axes
    assert [bars[0].get_xydata().tolist() for bars in relative.containers] == [[[0.1, 0]], [[0.3, 1]], [[0.5, 2]]]
    ends = [np.asarray(bars[2][0].get_segments()[0])[:, 0] for bars in relative.containers]
    np.testing.assert_allclose(ends, [(0.09, 0.11), (0.2, 0.4), (0.5, 0.5)])
    assert (len(ece.containers), len(spearman.containers)) == (3, 1)
    pale = [line.get_xydata().tolist() for line in relative.lines if line.get_alpha()]
    assert pale == [[[0.07, 0], [0.14, 0]]]
    assert [label.get_text() for label in relative.get_yticklabels()] == list(ERRORS)


def test_figures_are_files(car_folder):
    write_summary(car_folder, {"xreg": SCORES["xreg"]})
    written = car_figures.draw_car_figures(car_folder)
    names = ("surface_xreg", "sigma_xreg", "calibration", "methods")
    assert written == [car_folder / "figures" / f"{name}.{ending}" for name in names for ending in ("pdf", "png")]
    for path in written:
        assert path.read_bytes()[:4] == (b"%PDF" if path.suffix == ".pdf" else b"\x89PNG")
