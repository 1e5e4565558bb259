"""The folder of a car run, cut into its cars; the roofline."""

import dataclasses

import numpy as np
import pytest
from made_car_run import COVERAGE, ERRORS, SCORES, predicted, write_summary

from crossreg.cars.meshes.readers import load_cars
from crossreg.cars.meshes.surface import Surface, make_surface
from crossreg.errors import InputError
from crossreg.report.cars.run import Prediction, read_car_run, roofline


def test_a_run_is_cut_into_its_cars(car_folder, cars):
    run = read_car_run(car_folder)
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
    # Of four cars the better one of the two in the middle; by xreg, wherever it stands among the methods.
    methods = {name: run.predictions[name][:4] for name in reversed(run.predictions)}
    four = dataclasses.replace(run, cars=run.cars[:4], predictions=methods)
    assert (four.ranked_by, four.ranking().tolist(), four.typical_car()) == ("xreg", [2, 1, 3, 0], 1)


def test_scores_in_every_form(car_folder):
    run = read_car_run(car_folder)
    assert run.score("xreg", "nll") == (-1.25, 0.5)
    assert run.score("dropout", "nll") == (2.0, 0.5)
    for method, name in (("xreg", "spearman"), ("dropout", "ece_mix")):
        score = run.score(method, name)
        assert score is not None
        assert np.isnan(score.half)
    assert run.score("vertex-mean", "nll") is None
    assert run.over_cars("xreg", "nll") == (-1.75, -0.5)
    assert run.over_cars("xreg", "ece_mix") is run.over_cars("dropout", "nll") is None
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


def test_a_roofline_of_released_cars(released_cars):
    read = load_cars(released_cars, train_size=2, reg_size=1, test_size=1)
    for car in (*read.train, *read.reg, *read.test):
        line = roofline(car)
        expected = np.flatnonzero((np.abs(car.vertices[:, 0]) < 0.01) & (car.normals[:, 1] > 0.2))
        assert sorted(line) == expected.tolist()
        assert 58 <= len(line) <= 66


def test_errors_name_the_file(car_folder, tmp_path):
    with pytest.raises(InputError, match=r"nowhere/summary.json: No such file"):
        read_car_run(tmp_path / "nowhere")
    for text in ("{", "{}", '{"methods": {"xreg": {}}}', '{"methods": {"xreg": {"test": 3}}}'):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(InputError, match=r"summary.json: .*crossreg car"):
            read_car_run(tmp_path)
    write_summary(car_folder, SCORES)
    np.savez(
        car_folder / "predictions" / "xreg.npz", allow_pickle=False, **dict.fromkeys(Prediction._fields, np.zeros(7))
    )
    with pytest.raises(InputError, match=r"xreg.npz: mean has shape \(7,\); the test cars have \d+ vertices"):
        read_car_run(car_folder)
    (car_folder / "predictions" / "xreg.npz").unlink()
    with pytest.raises(InputError, match=r"xreg.npz: No such file.*std_generalization"):
        read_car_run(car_folder)


def test_units_that_are_not_known_are_not_named(car_folder):
    write_summary(car_folder, SCORES, units="the data's own")
    run = read_car_run(car_folder)
    assert "Cp" not in run.units + run.pressure_label
    tetrahedron = np.concatenate([np.eye(3), np.zeros((1, 3))])
    assert len(roofline(make_surface("tiny", tetrahedron, np.arange(4.0)))) <= 4
