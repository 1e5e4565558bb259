"""The figures of run folders, and a style that colour-blind readers can read."""

import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_car_run import write_folder
from made_runs import fields, write_run
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from watch_folders import write_sweep

from crossreg.cli.main import main
from crossreg.config import Config
from crossreg.errors import InputError
from crossreg.methods.names import config_of
from crossreg.metrics.calibration import LEVELS
from crossreg.progress.history import read_history
from crossreg.report import looks
from crossreg.report.figures import drawing as figures
from crossreg.report.figures import write as module
from crossreg.report.figures.run import of_runs
from crossreg.report.figures.write import draw_figures
from crossreg.report.shared import shared_file
from crossreg.runs.fields.stored_fields import Planes, write_stored_fields
from crossreg.runs.fields.test_fields import load_run_fields
from crossreg.runs.file_names import TEST_FIELDS

# Machado, Oliveira and Fernandes (2009): what a reader without green cones sees, in linear RGB.
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
# Without red cones.
PROTANOPIA = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ.sum(1)


def lab(color: str, seen: np.ndarray) -> np.ndarray:
    """A colour in CIELAB, as it is seen."""
    rgb = np.asarray(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(TO_XYZ @ np.clip(seen @ linear, 0, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def palettes() -> dict[str, tuple[str, ...]]:
    """The colours of the figures, and those of all pages by day and by night."""
    colors = re.findall(r"--c\d: (#[0-9a-f]{6});", shared_file("palette.css"))
    return {"figures": looks.COLORS, "light": tuple(colors[:6]), "dark": tuple(colors[6:])}


def test_pages_have_the_colours_of_the_figures():
    assert palettes()["light"] == tuple(color.lower() for color in looks.COLORS)
    # One palette for all of them: no other file has colours of curves.
    for path in Path(looks.__file__).parent.rglob("*.css"):
        assert path.name == "palette.css" or not re.search(r"--c\d:|#[0-9a-f]{6}", path.read_text())


@pytest.mark.parametrize("name", ["figures", "light", "dark"])
@pytest.mark.parametrize("seen", [np.eye(3), DEUTERANOPIA, PROTANOPIA])
def test_colours_are_told_apart(name, seen):
    colors = palettes()[name]
    assert len(set(colors)) == 6
    # 10 is about four times what is just noticed, side by side.
    assert min(np.linalg.norm(lab(a, seen) - lab(b, seen)) for a, b in itertools.combinations(colors, 2)) > 10


def test_a_method_looks_the_same_everywhere():
    few, many = (figures.method_looks(m) for m in (("unregularized", "xreg"), ("xreg", "dropout", "unregularized")))
    assert few["xreg"] == many["xreg"]
    assert few["unregularized"] == many["unregularized"]
    family = figures.method_looks(["dropout", "dropout+temperature", "dropout-reg", "my own", "xreg"])
    assert len({look["color"] for name, look in family.items() if name.startswith("dropout")}) == 1
    assert len({(look["marker"], str(look["linestyle"])) for look in family.values()}) == 5
    assert family["my own"]["color"] not in (family["xreg"]["color"], family["dropout"]["color"])
    in_order = looks.in_order(["b", "unregularized", "xreg-heads", "a", "xreg"])
    assert in_order == ["xreg-heads", "xreg", "unregularized", "b", "a"]


def test_panels_have_every_split_as_a_mean_over_seeds(kept, tmp_path):
    rng = np.random.default_rng(0)
    seeds = [{s: {"coverage": rng.uniform(size=9).tolist(), "ece_mix": 0.1 * n} for s in ("train", "reg", "test")}
             for n in range(3)]  # fmt: skip
    figures.calibration_panels({"A": seeds, "B": [seeds[0] | {"reg": None}]}, tmp_path / "p")
    first, second = kept[0].axes
    thick = {line.get_label(): line for line in first.lines if not str(line.get_label()).startswith("_")}
    assert list(thick) == ["train (ECE 0.100)", "reg (ECE 0.100)", "test (ECE 0.100)"]
    for split, line in zip(("train", "reg", "test"), thick.values(), strict=True):
        np.testing.assert_allclose(line.get_xdata(), LEVELS)
        np.testing.assert_allclose(line.get_ydata(), np.mean([s[split]["coverage"] for s in seeds], axis=0))
    assert len(second.get_legend().get_texts()) == 2


def test_a_run_is_drawn_as_its_files_say(run, kept, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_make", lambda out: None)
    names = [path.name for path in draw_figures(run, progress=False)]
    assert names == ["losses", "sigma", "calibration", "maps_channel0", "maps_channel1"]
    losses, sigma, calibration, maps, _ = kept
    history = read_history(run / "metrics.jsonl")
    assert losses.axes[0].lines[0].get_ydata().tolist() == [line["train_loss"] for line in history]
    assert losses.axes[0].lines[1].get_ydata().tolist() == [line["reg_nll"] for line in history]
    for line, (site, values) in zip(sigma.axes[0].lines, history[-1]["sigma"].items(), strict=True):
        assert line.get_label() == site
        assert line.get_ydata()[-1] == pytest.approx(np.exp(np.mean(np.log(values))))
    test = json.loads((run / "metrics.json").read_text())["test"]["coverage"]
    np.testing.assert_allclose(calibration.axes[0].lines[-1].get_ydata(), test)
    stored = load_run_fields(run, compute=False)
    truth, error, std_mu, total = (axis.get_images()[0] for axis in maps.axes[:4])
    np.testing.assert_allclose(truth.get_array(), stored.truth[0, :, 0].T)
    np.testing.assert_allclose(error.get_array(), np.abs(stored.error[0, :, 0].T), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std_mu.get_array(), stored.std_mu[0, :, 0].T)
    np.testing.assert_allclose(total.get_array(), stored.std[0, :, 0].T)
    assert error.get_clim() == std_mu.get_clim() == total.get_clim()


def test_a_folder_of_runs_side_by_side(run, tmp_path, capsys):
    assert main(["figures", str(run.parent), "--out", str(tmp_path / "drawn"), "--quiet"]) == 0
    written = capsys.readouterr().out.split()
    names = {"calibration", "calibration_splits", "losses", "sigma_xreg", "maps_xreg_channel0", "maps_xreg_channel1"}
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {f"{n}.{e}" for n in names for e in ("pdf", "png")}
    assert len(written) == 12
    # A run that has only begun is drawn as far as it is; a line that is being written is left out.
    begun = run.parent / "begun"
    begun.mkdir()
    (begun / "config.yaml").write_text((run / "config.yaml").read_text())
    assert main(["figures", str(begun)]) == 2
    assert "nothing to draw yet" in capsys.readouterr().err
    (begun / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text()[:-30])
    assert main(["figures", str(begun), "--quiet"]) == 0
    assert {path.stem for path in (begun / "figures").iterdir()} == {"losses", "sigma"}


def test_losses_of_xreg_and_unregularized_stand_alone_where_both_are_there(tmp_path):
    runs = tmp_path / "runs"
    folders = [
        write_run(runs / name, config_of(name, Config()).replace(steps=150), with_fields=False)
        for name in ("dropout", "unregularized", "xreg")
    ]

    def shown(folders: list) -> list[str]:
        drawings: list = of_runs(folders, tmp_path / "out", {}, progress=False)
        [curves] = [drawing.args[0] for drawing in drawings if drawing.args[1].name == "losses"]
        return list(curves)

    assert shown(folders) == ["xreg", "unregularized"]
    assert shown([folders[0], folders[2]]) == ["xreg", "dropout"]


def test_a_folder_named_like_a_broken_formula_is_drawn(tmp_path):
    folder = write_run(tmp_path / "r$x^$", Config())
    assert main(["figures", str(folder), "--quiet"]) == 0
    assert {path.stem for path in (folder / "figures").iterdir()} >= {"losses", "sigma", "calibration"}


def test_names_of_folders_are_no_formulas(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_make", lambda out: None)
    for number, name in enumerate(("$x$", "a$x^2$")):
        write_run(tmp_path / "runs" / name, Config(), number)
    draw_figures(tmp_path / "runs", progress=False)
    named = [text.get_text() for figure in kept for text in figure.findobj(Text) if "x" in text.get_text().split("$")]
    assert not named
    assert {r"\$x\$, test trajectory 0, channel 1", r"a\$x^2\$"} <= {
        text.get_text() for figure in kept for text in figure.findobj(Text)
    }


def test_what_is_no_folder_of_figures(tmp_path):
    with pytest.raises(InputError, match="holds neither"):
        draw_figures(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        draw_figures(tmp_path / "nothing")
    (tmp_path / "config.yaml").write_text("data: {}")
    history, scores = "metrics.jsonl", "metrics.json"
    odd = json.dumps({"test": {"coverage": [0.1, 0.2], "ece_mix": 0.1}, "reg": None, "train": None})
    for name, text in ((history, "[1]\n"), (history, "{}\n"), (scores, "{}"), (scores, "3"), (scores, odd)):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=f"{name}: .*expected"):
            draw_figures(tmp_path)
        (tmp_path / name).unlink()


def test_a_mixed_folder_says_what_is_drawn_and_what_is_not(run, cars, tmp_path, capsys):
    root = run.parent
    (root / "cars").mkdir()
    write_folder(root / "cars", cars)
    write_sweep(root / "sweep")
    write_run(root / "deep" / "one", Config().replace(steps=150), with_fields=False)
    bad = write_run(root / "bad", Config().replace(steps=150), with_fields=False)
    (bad / "metrics.json").write_text("{")
    assert main(["figures", str(root), "--out", str(tmp_path / "drawn")]) == 0
    said = capsys.readouterr().err
    assert f"{root}: runs drawn (1): xreg" in said
    for name, why in {
        "sweep": f"a sweep; `crossreg figures {root / 'sweep'}` draws it",
        "cars": f"a car experiment; `crossreg figures {root / 'cars'}` draws it",
        "deep": f"a folder of runs; `crossreg figures {root / 'deep'}` draws them",
        "bad": f"{bad / 'metrics.json'}: not readable",
    }.items():
        assert f"not drawn: {name}: {why}" in said
    assert {path.stem for path in (tmp_path / "drawn").iterdir()} >= {"calibration", "losses", "maps_xreg_channel0"}
    shutil.rmtree(run)
    assert main(["figures", str(root / "deep" / ".."), "--quiet"]) == 2
    assert "none of its runs can be drawn; " in capsys.readouterr().err


def test_rows_without_scores_are_left_out_and_counted(tmp_path, capsys):
    _, folder = write_sweep(tmp_path / "sweep")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    rows[0]["test"], rows[1]["test"] = None, rows[1]["test"] | {"coverage": None}
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["figures", str(folder), "--out", str(tmp_path / "drawn"), "--quiet"]) == 0
    assert "2 of 4 rows have no test scores that could be drawn, and are left out" in capsys.readouterr().err
    assert (tmp_path / "drawn" / "calibration_ensemble-2.png").exists()
    assert not (tmp_path / "drawn" / "calibration_xreg.png").exists()
    (folder / "rows.jsonl").write_text("".join(json.dumps(row | {"test": None}) + "\n" for row in rows))
    assert main(["figures", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "none of its 4 rows has test scores" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [([-1.0, 3.0], (-3.0, 3.0)), ([99_980.0, 100_020.0], (99_980.0, 100_020.0)), ([0.0, 2.0], (-2.0, 2.0))],
)
def test_the_truth_of_a_map_fills_its_range(values, expected):
    """A pressure of 10⁵ ± 20 Pa on a range of ±10⁵ would be one colour."""
    truth = np.asarray(values)[:, None]
    panels = figures._panels(truth, truth, np.abs(truth), truth, truth)
    assert panels[0][3] == expected


def _own(folder: Path, names: tuple[str, ...] = ("pressure $p$", "flow[1]")) -> Path:
    """A run on own data in a plane: two named channels, and a gap in the first."""
    stored = fields()
    truth = stored.truth.copy()
    truth[:, 2:4, 0, 5:9] = np.nan
    own = stored._replace(
        truth=truth,
        error=stored.error + 0 * truth,
        gap_mean=np.where(np.isnan(truth), stored.mean, np.nan),
        space=(stored.truth.shape[-1], 3),
        unaware=(),
        aware=(),
        names=names,
    )
    parts = ("truth", "error", "std_mu", "std_predictive", "std_generalization", "gap_mean")
    some = {part: np.stack([getattr(own, part)[[0, 2], 2:4]] * 3, -1) for part in parts}
    observed = np.ones((2, 2, truth.shape[-1], 3), bool)
    planes = Planes(own.trajectories[[0, 2]], 1, own.steps[2:4], observed, **some)
    write_run(folder, Config().replace(steps=150))
    write_stored_fields(folder / TEST_FIELDS, own._replace(planes=planes))
    return folder


def test_maps_have_the_names_of_channels_and_only_the_truth_has_gaps(kept, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_make", lambda out: None)
    folder = _own(tmp_path / "own")
    names = [path.name for path in draw_figures(folder, progress=False)]
    assert names[-4:] == ["maps_channel0", "maps_channel1", "planes_channel0", "planes_channel1"]
    maps, other, first, second = kept[-4:]
    titles = [figure.get_suptitle() for figure in (maps, first, second)]
    assert titles[0].startswith(r"own, test trajectory 0, pressure \$p\$, along x")
    assert titles[0].endswith("; grey: the truth is not known")
    assert titles[1] == r"own, test trajectory 0, pressure \$p\$; grey: the truth is not known"
    assert titles[2] == "own, test trajectory 0, flow[1]"
    stored = load_run_fields(folder)
    assert other.get_suptitle() == "own, test trajectory 0, flow[1], along x through the middle"
    np.testing.assert_allclose(other.axes[0].get_images()[0].get_array(), stored.truth[0, :, 1].T, rtol=1e-5)
    images = [axis.get_images()[0] for axis in maps.axes[:5]]
    assert [axis.get_title() for axis in maps.axes[:3]] == ["truth", "mean", "|error|"]
    wanted = (stored.truth, stored.mean, np.abs(stored.error), stored.std_mu, stored.std)
    for image, values in zip(images, wanted, strict=True):
        shown = np.ma.filled(image.get_array().astype(float), np.nan)
        np.testing.assert_allclose(shown, values[0, :, 0].T, rtol=1e-5, atol=1e-6)
    assert [bool(np.ma.getmaskarray(image.get_array()).any()) for image in images] == [True, False, True, False, False]
    assert images[0].get_cmap().get_bad().tolist() == [0.5, 0.5, 0.5, 1.0]
    assert images[0].get_clim() == images[1].get_clim()
    assert stored.planes is not None
    truth = second.axes[0].get_images()[0].get_array()
    np.testing.assert_allclose(truth, stored.planes.truth[0, 0, 1].T, rtol=1e-5)
    assert len(first.axes) == 2 * 5 + 2  # and two colour bars
    assert len(second.axes) == 2 * 4 + 2


def test_maps_are_of_the_trajectory_asked_for(kept, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(module, "_make", lambda out: None)
    folder = _own(tmp_path / "own")
    stored = load_run_fields(folder)
    draw_figures(folder, trajectory=4, progress=False)
    maps, _, planes, _ = kept[-4:]
    np.testing.assert_allclose(maps.axes[1].get_images()[0].get_array(), stored.mean[2, :, 0].T, rtol=1e-5)
    assert planes.get_suptitle().startswith("own, test trajectory 4, ")
    assert stored.planes is not None
    np.testing.assert_allclose(planes.axes[1].get_images()[0].get_array(), stored.planes.mean[1, 0, 0].T, rtol=1e-5)
    draw_figures(folder, trajectory=1, progress=False)  # its planes are not stored
    assert kept[-4].get_suptitle().startswith("own, test trajectory 1, ")
    assert kept[-2].get_suptitle().startswith("own, test trajectory 0, ")
    assert main(["figures", str(folder), "--trajectory", "7", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert said == "crossreg: --trajectory 7: own stores the test trajectories 0, 1, 4\n"


def test_names_of_an_older_run_are_those_of_its_folder(tmp_path):
    folder = _own(tmp_path / "own", names=())
    assert load_run_fields(folder).names == ()
    about = {"channels": 2, "space": [18, 3], "digest": "ab", "names": ["p", "v"], "offset": [0, 0], "scale": [1, 1]}
    (folder / "fields.json").write_text(json.dumps(about))
    assert load_run_fields(folder).names == ("p", "v")
