"""The car experiment, small: what its folder holds, that it goes on, and what it refuses."""

import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest

from crossreg.cars import training as car_training
from crossreg.cars.family.bodies import resolution
from crossreg.cars.family.make import draw_shapes, make_car, make_family
from crossreg.cars.study import prepare, run_car
from crossreg.cars.training import is_trained, load_trained, trainings_of
from crossreg.cli import main as cli
from crossreg.designs.car_study import CarStudy, car_study
from crossreg.errors import InputError
from crossreg.methods import dropout
from crossreg.methods.names import parse_methods
from crossreg.metrics.evaluation import sigma_per_site
from crossreg.report.cars.table import car_table
from crossreg.runs.car_folder import stored_study


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path_factory.getbasetemp() / "cars"))


@pytest.fixture(scope="module")
def small() -> CarStudy:
    """Settings of small shapes that train in a second."""
    sizes = {"points": 400, "grid": 23, "train_size": 3, "reg_size": 4, "test_size": 2, "seeds": 2}
    shapes = {"width": 3, "num_modes": 2, "num_blocks": 2, "batch_size": 2, "num_samples": 2}
    return car_study("quick").replace(**sizes, **shapes, steps=6, evaluate_every=3, evaluation_samples=3)


@pytest.fixture(scope="module")
def done(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("car") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSREG_CACHE", str(tmp_path_factory.getbasetemp() / "cars"))
        return folder, run_car(small, folder, progress=False)


def test_the_summary_is_that_of_what_is_stored(done):
    folder, summary = done
    assert summary == json.loads((folder / "summary.json").read_text())
    assert list(summary["methods"]) == ["xreg", "unregularized", "dropout", "ensemble", "vertex-mean"]
    cars = np.load(folder / "test_cars.npz")
    truth, ends = cars["truth"], cars["vertex_offsets"]
    assert len(ends) == 3
    for name, method in summary["methods"].items():
        stored = np.load(folder / "predictions" / f"{name}.npz")
        errors = [
            np.linalg.norm((stored["mean"] - truth)[a:b]) / np.linalg.norm(truth[a:b])
            for a, b in itertools.pairwise(ends)
        ]
        # Predictions are those of the first seed.
        np.testing.assert_allclose(method["runs"][0]["test"]["relative_l2"], np.mean(errors), rtol=1e-4)
        total = stored["std_predictive"] ** 2 + stored["std_generalization"] ** 2
        np.testing.assert_allclose(stored["std"] ** 2, total, rtol=1e-3)
        runs = [run["test"]["nll"] for run in method["runs"]]
        np.testing.assert_allclose(method["test"]["nll"], np.mean(runs))
        # Vertices correspond, so that each car weighs the same; of two cars, a draw may hold one twice.
        for score in ("nll", "relative_l2"):
            np.testing.assert_allclose(np.mean(method["cars"][score]), method["test"][score])
            np.testing.assert_allclose(method["over_cars"][score], sorted(method["cars"][score]))
        assert name in car_table(summary)
    assert "over test cars" in car_table(summary)
    steps = [json.loads(line)["step"] for line in (folder / "history" / "xreg.jsonl").read_text().splitlines()]
    assert steps == [3, 6]


def test_every_seed_is_scored_with_its_own_models(small, done):
    folder, summary = done
    data = prepare(small, progress=False).data
    [training] = trainings_of(parse_methods("xreg", for_cars=True), small.config).values()
    trained = load_trained(training, data, 2, folder)
    own = [sigma_per_site(members[0].last) for members in trained]
    assert [run["sigma"] for run in summary["methods"]["xreg"]["runs"]] == own
    assert own[0] != own[1]
    for method in ("xreg", "unregularized", "dropout", "ensemble"):
        assert len({run["test"]["nll"] for run in summary["methods"][method]["runs"]}) == 2
    # A model is known by its cars too: of others, it is not taken.
    assert is_trained(training, data, 2, folder)
    assert not is_trained(training, dataclasses.replace(data, digest="of other cars"), 2, folder)


def test_an_ensemble_and_its_first_member_are_trained_once(small, done):
    folder, _ = done
    stored = sorted(path.name.rsplit("-", 1)[0] for path in (folder / "models").iterdir())
    members = [f"unregularized-seed{seed}-{member}" for seed in range(2) for member in range(3)]
    assert stored == ["dropout-seed0-0", "dropout-seed1-0", *members, "xreg-seed0-0", "xreg-seed1-0"]
    names = "unregularized,ensemble,xreg,xreg+conformal,ensemble-all-data,unregularized-all-data,ensemble+early"
    trainings = trainings_of(parse_methods(names, for_cars=True), small.config)
    assert [(t.name, t.members, t.keeps, t.all_data) for t in trainings.values()] == [
        ("unregularized", 3, False, False),
        ("xreg", 1, False, False),
        ("xreg+conformal", 1, True, False),
        ("ensemble-all-data", 3, False, True),
    ]


def test_the_same_command_goes_on_and_another_is_refused(small, done, monkeypatch, tmp_path):
    folder, summary = done

    def fails(*_, **__):
        raise AssertionError("trained again")

    # Stopped before its end, it trains what is missing, and says the same.
    half = tmp_path / "half"
    shutil.copytree(folder, half)
    (half / "summary.json").unlink()
    for path in (half / "models").glob("dropout-*"):
        path.unlink()
    assert run_car(small, half, progress=False) == summary
    monkeypatch.setattr(car_training, "_train", fails)
    assert run_car(small, folder, progress=False) == summary
    for other, differ in (
        (small.replace(seeds=1), "seeds is 2, now 1;"),
        (small.replace(data="mine", clip=0.0), "data is family, now mine, clip is 10.0, now 0.0;"),
    ):
        with pytest.raises(InputError, match=f"holds an experiment with other settings: {differ} choose a new folder"):
            run_car(other, folder, progress=False)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "config.yaml").write_text("train: 3")
    with pytest.raises(InputError, match="holds something other than this experiment"):
        run_car(small, stranger, progress=False)


def test_a_finished_folder_is_not_scored_again(small, done, monkeypatch, capsys):
    folder, summary = done
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.npz") if path.name != "test_cars.npz"}
    monkeypatch.setattr("crossreg.cars.study.read_out", None)
    assert run_car(small, folder) == summary
    assert f"{folder} is finished" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_folder_grows_by_methods_and_keeps_what_is_trained(small, tmp_path):
    folder = tmp_path / "run"
    study = small.replace(methods="unregularized")
    first = run_car(study, folder, progress=False)
    models = {path: path.read_bytes() for path in (folder / "models").iterdir()}
    # Only new ones are named: the others stay. An ensemble has the old network as its first member.
    summary = run_car(study.replace(methods="ensemble-2,dropout"), folder, progress=False)
    assert list(summary["methods"]) == ["unregularized", "ensemble-2", "dropout", "vertex-mean"]
    assert summary["methods"]["unregularized"] == first["methods"]["unregularized"]
    assert models == {path: path.read_bytes() for path in models}
    assert summary["settings"]["cars"]["methods"] == "unregularized,ensemble-2,dropout"
    assert stored_study(folder) == study.replace(methods="unregularized,ensemble-2,dropout")
    # Fewer methods than it has: as it is.
    assert run_car(study, folder, progress=False) == summary


def test_cars_that_were_not_seen_are_predicted(small, done, tmp_path, capsys):
    """The test cars as files without pressure: what was stored of them when they were scored."""
    folder, _ = done
    cars = tmp_path / "cars"
    cars.mkdir()
    test = make_family(9, points=400)[:2]
    for number, car in enumerate(test):
        np.savez(cars / f"car{number}.npz", vertices=car.vertices, faces=np.asarray(car.faces))
    for method in ("xreg", "ensemble", "vertex-mean"):
        target = tmp_path / f"{method}.npz"
        flags = ["--input", str(cars), "--output", str(target), "--levels", "0.1", "0.5", "0.9", "--quiet"]
        assert cli.main(["predict", str(folder), *flags, "--method", method]) == 0
        with np.load(target) as found, np.load(folder / "predictions" / f"{method}.npz") as stored:
            np.testing.assert_allclose(found["mean"], stored["mean"], atol=1e-5)
            for name in ("std_predictive", "std_generalization"):
                np.testing.assert_allclose(found[name], stored[name], rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(found["std"], stored["std"], rtol=1e-4)
            low, middle, high = found["quantiles"]
            assert found["quantiles"].shape == (3, *stored["mean"].shape)
            assert ((low < middle) & (middle < high)).all()
            assert found["vertex_offsets"].tolist() == [0, len(test[0].vertices), 2 * len(test[0].vertices)]
    # One car alone, as a file: the first of the two.
    one = tmp_path / "one.npz"
    arguments = ["predict", str(folder), "--input", str(cars / "car0.npz"), "--output", str(one), "--quiet"]
    assert cli.main(arguments) == 0
    with np.load(one) as found, np.load(tmp_path / "xreg.npz") as both:
        np.testing.assert_allclose(found["mean"], both["mean"][: len(found["mean"])], atol=1e-5)
    # A car of another mesh has a map of its own, and a line says so.
    finer = make_car(draw_shapes(9)[0], resolution(480))
    np.savez(tmp_path / "finer.npz", vertices=finer.vertices)
    arguments[3], arguments[5] = str(tmp_path / "finer.npz"), str(tmp_path / "other.npz")
    capsys.readouterr()
    assert cli.main(arguments) == 0
    assert "car finer: its vertices do not correspond" in capsys.readouterr().err
    with np.load(tmp_path / "other.npz") as found:
        assert found["mean"].shape == (len(finer.vertices),)
    # Cars in another unit or with other axes are refused, and one with its nose behind is said to be.
    rows = {
        "mm": 1000 * test[0].vertices,
        "side": test[0].vertices[:, [1, 0, 2]],
        "back": test[0].vertices * [1, 1, -1],
    }
    for name, vertices in rows.items():
        np.savez(tmp_path / f"{name}.npz", vertices=vertices, faces=np.asarray(test[0].faces))
        target = tmp_path / f"{name}-predicted.npz"
        flags = ["--input", str(tmp_path / f"{name}.npz"), "--output", str(target), "--quiet"]
        code, said = cli.main(["predict", str(folder), *flags]), capsys.readouterr().err
        expected = {
            "mm": "has another unit",
            "side": "is turned",
            "back": "seems to be turned: along z, it points the opposite",
        }
        assert f"car {name}: {expected[name]}" in said
        assert (code, target.exists()) == ((0, True) if name == "back" else (2, False))
    for more, expected in (
        (["--method", "vertex-mean"], "which vertex-mean needs"),
        (["--method", "fixed-noise"], "--method fixed-noise: is not in"),
        (["--method", "lucky"], "--method lucky: no such method"),
        (["--no-mask"], "is a car experiment, where every point of a car is observed"),
    ):
        assert cli.main([*arguments[:5], str(tmp_path / "none.npz"), "--quiet", *more]) == 2
        assert expected in capsys.readouterr().err
    assert cli.main(["evaluate", str(folder)]) == 2
    assert f"is a car experiment; its scores are in {folder / 'summary.json'}" in capsys.readouterr().err


def test_the_model_of_another_seed_is_not_predicted_with(done, tmp_path, capsys):
    shutil.copytree(done[0], tmp_path / "run")
    car = make_family(9, points=400)[0]
    np.savez(tmp_path / "car.npz", vertices=car.vertices, faces=np.asarray(car.faces))
    [mine], [other] = ((tmp_path / "run" / "models").glob(f"xreg-seed{seed}-0-*") for seed in (0, 1))
    shutil.copy(other, mine)
    arguments = ["predict", str(tmp_path / "run"), "--input", str(tmp_path / "car.npz"), "--quiet", "--output"]
    assert cli.main([*arguments, str(tmp_path / "out.npz")]) == 2
    assert f"{mine}: belongs to other settings or data" in capsys.readouterr().err


def test_a_corrupted_car_experiment_is_not_predicted_with_and_not_changed(done, tmp_path, capsys):
    """One line, which names the file; the folder stays as it is, whoever may write to it."""
    shutil.copytree(done[0], tmp_path / "run")
    car = make_family(9, points=400)[0]
    np.savez(tmp_path / "car.npz", vertices=car.vertices, faces=np.asarray(car.faces))
    arguments = ["predict", str(tmp_path / "run"), "--input", str(tmp_path / "car.npz"), "--quiet", "--output"]
    [model] = (tmp_path / "run" / "models").glob("xreg-seed0-0-*")
    deep = b"a: " + b"[" * 5000 + b"]" * 5000
    for path, corrupted in ((model, model.read_bytes()[:-9]), (tmp_path / "run" / "config.yaml", deep)):
        good = path.read_bytes()
        path.write_bytes(corrupted)
        before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
        assert cli.main([*arguments, str(tmp_path / "out.npz")]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"crossreg: {path}: ")
        assert said.count("\n") == 1
        assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before
        path.write_bytes(good)
    (tmp_path / "run" / "manifest.json").unlink()
    assert cli.main([*arguments, str(tmp_path / "out.npz")]) == 2
    assert "manifest.json: is missing, so the files of the folder cannot be verified" in capsys.readouterr().err
    # An older version has neither a manifest nor seals. Settings that no manifest vouches for:
    for path in (tmp_path / "run" / "models").iterdir():
        with np.load(path) as file:
            arrays = dict(file)
        np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    (tmp_path / "run" / "config.yaml").write_bytes(deep)
    assert cli.main([*arguments, str(tmp_path / "out.npz")]) == 2
    assert "not the settings of a car experiment" in capsys.readouterr().err
    # A history that is not there is nothing that a prediction would make.
    shutil.copy(done[0] / "config.yaml", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "history")
    assert cli.main([*arguments, str(tmp_path / "out.npz")]) == 0
    assert not (tmp_path / "run" / "history").exists()


def test_rivals_may_have_the_reg_cars_in_every_way(small, tmp_path, monkeypatch):
    monkeypatch.setattr(dropout, "RATES", (0.05, 0.1))
    names = "dropout,dropout-reg,unregularized+temperature,dropout+conformal,unregularized-all-data"
    folder = tmp_path / "run"
    summary = run_car(small.replace(methods=names, seeds=1), folder, progress=False)
    methods = summary["methods"]
    assert list(methods) == [*names.split(","), "vertex-mean", "vertex-mean-all-data"]
    for name, method in methods.items():
        assert np.isfinite([method["test"][score] for score in ("nll", "ece_mix", "relative_l2", "crps")]).all(), name
        assert (folder / "predictions" / f"{name}.npz").exists()
    # A wrapper changes the distribution. A temperature leaves the mean as it is.
    assert methods["dropout+conformal"]["test"]["coverage"] != methods["dropout"]["test"]["coverage"]
    assert methods["unregularized+temperature"]["runs"][0]["temperature"] > 0
    # One of the rates is that of plain dropout, and is trained once for both.
    trained = {path.name.split("-seed")[0] for path in (folder / "models").iterdir()}
    assert trained == {"dropout", "dropout-reg-0", "unregularized+temperature", "unregularized-all-data"}
    assert (folder / "history" / "dropout-reg.jsonl").exists()
    assert methods["dropout-reg"]["runs"][0]["dropout_rate"] in (0.05, 0.1)
    # With the reg cars it is another vertex mean: that of all seven.
    cars = make_family(9, points=400)
    mean = np.mean([car.pressure for car in cars[2:]], axis=0)
    with np.load(folder / "predictions" / "vertex-mean-all-data.npz") as stored:
        np.testing.assert_allclose(stored["mean"], np.tile(mean, 2), atol=1e-5)


def test_cars_of_mixed_sizes_are_trained_on_and_scored_together(tmp_path, capsys):
    """Files of three vertex counts, and fewer than asked for: through the command, from files to scores."""
    cars = tmp_path / "mine"
    cars.mkdir()
    sizes = (400, 440, 520)
    counts = []
    for number, shape in enumerate(draw_shapes(7, seed=4)):
        made = make_car(shape, resolution(sizes[number % 3]))
        counts.append(len(made.vertices))
        arrays = {"vertices": made.vertices, "pressure": 7 * made.pressure - 3, "faces": np.asarray(made.faces)}
        np.savez(cars / f"car{number}.npz", allow_pickle=False, **arrays)
    assert len(set(counts)) == 3
    flags = "--grid 23 --width 2 --num-modes 2 --steps 4 --batch-size 3 --num-samples 2 --methods xreg+conformal --json"
    more = "--learning-rate 0.002 --settle 0.5 --evaluate-every 2"
    arguments = ["car", "--out", str(tmp_path / "run"), "--data", str(cars), "--quiet", *flags.split(), *more.split()]
    assert cli.main(arguments) == 0
    said = capsys.readouterr()
    summary = json.loads(said.out)
    assert (summary["train"], summary["reg"], summary["test"]) == (3, 2, 2)
    assert "7 cars: too few for 20 train, 20 reg and 20 test" in said.err
    # Vertices do not correspond: there is no vertex mean, and every car has a map of its own.
    assert (list(summary["methods"]), summary["maps"]) == (["xreg+conformal"], "own")
    assert summary["settings"]["train"]["settle"] == 0.5
    assert summary["settings"]["train"]["learning_rate"] == 0.002
    with (
        np.load(tmp_path / "run" / "test_cars.npz") as test,
        np.load(tmp_path / "run" / "predictions" / "xreg+conformal.npz") as stored,
    ):
        ends = test["vertex_offsets"]
        assert {*np.diff(ends).tolist()} <= {*counts}
        errors = (stored["mean"] - test["truth"]) ** 2
        assert stored["mean"].shape == test["truth"].shape
    scores = summary["methods"]["xreg+conformal"]
    # A vertex of any car counts once.
    np.testing.assert_allclose(scores["test"]["rmse"], np.sqrt(errors.mean()), rtol=1e-4)
    np.testing.assert_allclose(np.average(scores["cars"]["nll"], weights=np.diff(ends)), scores["test"]["nll"])
    assert (tmp_path / "run" / "car.html").exists()


def test_bad_settings_are_refused_with_a_line(tmp_path, capsys):
    for flags, expected in (
        (
            ["--methods", "persistence"],
            "--methods persistence: the input of a car is not a pressure that",
        ),
        (["--methods", "lucky"], "train-noise[-rollout][-all-data]\n"),
        (["--methods", "xreg-all-data"], "--methods xreg-all-data: xreg needs held-out data"),
        (["--seeds", "0"], "--seeds 0: must be at least 1"),
        (["--profile", "slow"], "--profile slow: must be one of quick, full"),
        (["--data", str(tmp_path / "none")], "missing; expected a folder of cars"),
        (["--grid", "0"], "--grid 0: must be at least 2"),
        (["--grid", "20", "--num-modes", "4"], "--grid 20: 400 cells for a car of"),
        (["--grid", "24", "--num-modes", "40"], "--num-modes 40"),
        (["--num-samples", "1"], "--num-samples 1"),
        (["--settle", "2"], "--settle 2.0: must lie in [0, 1]"),
        (["--observed-fraction", "0.5"], "Unrecognized options: --observed-fraction"),
        (["--sites", "block1"], "Unrecognized options: --sites"),
        (["--methods", "xreg,xreg+conformal"], "--methods xreg+conformal: needs at least 2 reg cars"),
    ):
        arguments = ["car", "--out", str(tmp_path / "out"), "--points", "450", "--train-size", "1", "--reg-size", "1"]
        assert cli.main([*arguments, "--test-size", "1", "--quiet", *flags]) == 2
        said = capsys.readouterr().err
        assert expected in said
        assert len(said.splitlines()) == 1
        assert not (tmp_path / "out").exists()


def test_released_cars_train_are_scored_and_drawn(released_cars, tmp_path, capsys):
    flags = "--methods xreg --width 2 --num-modes 2 --steps 2 --batch-size 2 --num-samples 2 --quiet --json"
    run = tmp_path / "run"
    assert cli.main(["car", "--data", str(released_cars), "--out", str(run), *flags.split()]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["train"], summary["reg"], summary["test"]) == (2, 1, 1)
    assert {"nll", "ece_mix", "relative_l2", "spearman"} <= summary["methods"]["xreg"]["test"].keys()
    figures = {path.stem for path in (run / "figures").glob("*.png")}
    assert {"surface_xreg", "surface_vertex-mean", "calibration", "methods"} <= figures
    assert "plotly" in (run / "car.html").read_text()
    # The vertex mean over the other cars has an error of 0.15 to 0.32 on these four; two of them tell less.
    assert 0.1 < summary["methods"]["vertex-mean"]["test"]["relative_l2"] < 0.5
    # One test car says nothing of others.
    assert summary["methods"]["xreg"]["over_cars"] == {}
