"""The quickstart on small made-up data: what it writes, that it starts afresh, what it never removes."""

import json
import os
from pathlib import Path

import pytest

from crossreg.cli import quickstart as module
from crossreg.cli.main import main
from crossreg.config import load_yaml, to_dict
from crossreg.data.load import load_config
from crossreg.designs.grids import plan
from crossreg.errors import InputError
from crossreg.metrics.evaluation import evaluate
from crossreg.predictors.persistence import fit_persistence
from crossreg.report.figures import drawing as figures
from crossreg.runs.safeguards.locks import locked
from crossreg.runs.safeguards.manifest import read_manifest
from crossreg.runs.sweep_folder import open_sweep
from crossreg.studies.train import train_run


@pytest.fixture
def small(monkeypatch, tiny, cached_waves):
    """The quickstart with a small base config."""
    monkeypatch.setattr(module, "Config", lambda: tiny)


def _draw_nothing(what, path: Path, **_) -> list[Path]:
    """Files with the names of a figure, which takes half of a quickstart to draw."""
    paths = [path.with_name(f"{path.name}{ending}") for ending in (".pdf", ".png")]
    for made in paths:
        made.write_bytes(f"{path.name} of {len(what)}".encode())
    return paths


@pytest.fixture
def undrawn(monkeypatch):
    """Figures of a few bytes, where what counts is whose files they are."""
    for name in ("calibration_curves", "space_time_maps"):
        monkeypatch.setattr(figures, name, _draw_nothing)


def test_summary_figures_and_runs(small, tiny, tmp_path, capsys, request):
    out = tmp_path / "quickstart"
    module.quickstart(out, steps=10)
    summary = json.loads((out / "summary.json").read_text())
    assert {"xreg", "dropout", "unregularized", "persistence"} <= set(summary["methods"])
    for scores in summary["methods"].values():
        for split in ("test", "reg", "train"):
            assert {"nll", "ece_mix", "crps", "rmse", "std_mu", "coverage"} <= set(scores[split])
    for name in ("calibration", "maps_xreg", "maps_dropout", "maps_unregularized"):
        for ending in ("png", "pdf"):
            assert (out / f"{name}.{ending}").stat().st_size > 1000
    assert summary["methods"]["xreg"] == json.loads((out / "xreg" / "metrics.json").read_text())
    shown = capsys.readouterr()
    assert "persistence" in shown.out
    assert "test ECE" in shown.out
    assert all(name in shown.err for name in ("xreg", "dropout", "unregularized"))

    assert set(summary["references"]) == {"persistence-masked"}
    data = load_config(tiny.data)
    persistence = ((summary["methods"]["persistence"], False), (summary["references"]["persistence-masked"], True))
    for scores, knows_mask in persistence:
        predictor = fit_persistence(data.train, knows_mask=knows_mask)
        for split in ("test", "reg", "train"):
            assert scores[split] == evaluate(predictor, getattr(data, split))

    request.getfixturevalue("undrawn")
    module.quickstart(out, steps=10, progress=False)
    assert json.loads((out / "summary.json").read_text()) == summary


def test_test_fields_are_computed_with_a_display(small, tmp_path, monkeypatch):
    told = []

    class StoppedError(Exception):
        pass

    def computed(*_, progress, **__):
        told.append(progress)
        raise StoppedError

    monkeypatch.setattr(module, "compute_test_fields", computed)
    for progress in (True, False):
        with pytest.raises(StoppedError):
            module.quickstart(tmp_path / "quickstart", steps=10, progress=progress)
    assert told == [True, False]


def test_a_folder_of_something_else_is_kept(small, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.csv").write_text("1,2")
    (tmp_path / "mine" / "summary.json").write_text("{}")
    with pytest.raises(InputError, match=r"holds summary\.json, which no quickstart wrote"):
        module.quickstart(tmp_path / "mine", steps=10)
    with pytest.raises(InputError, match="is not a folder"):
        module.quickstart(tmp_path / "mine" / "data.csv", steps=10)
    with pytest.raises(InputError, match="steps is 0"):
        module.quickstart(tmp_path / "mine", steps=0)
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"data.csv", "summary.json"}


NAMES = ("xreg/model.npz", "summary.json", "calibration.png", "maps_dropout.pdf", "dropout/lock", "unregularized")


@pytest.mark.parametrize("name", [*NAMES, "config.yaml", "sweep.json", "xreg/snapshots/train.000000010.npz"])
def test_files_of_the_same_names_are_not_removed(name, small, tmp_path):
    """In a folder that no quickstart has written: its own names, and those of a run or a sweep."""
    theirs = tmp_path / "theirs"
    (theirs / name).parent.mkdir(parents=True)
    (theirs / name).write_text("mine")
    said = name.removesuffix("/train.000000010.npz")
    with pytest.raises(InputError, match=rf"holds {said}, which no quickstart wrote"):
        module.quickstart(theirs, steps=10, progress=False)
    assert [p.relative_to(theirs).as_posix() for p in theirs.rglob("*") if p.is_file()] == [name]
    assert (theirs / name).read_text() == "mine"


def _state(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_only_what_the_manifest_lists_is_replaced(small, tiny, undrawn, tmp_path, monkeypatch):
    out = tmp_path / "quickstart"
    module.quickstart(out, steps=10, progress=False)
    listed = read_manifest(out) or {}
    assert set(listed) | {"lock", "manifest.json"} == set(_state(out))
    # A file of the user's with a name of ours, one of their folders, one of ours that they have changed, another run.
    for name in ("xreg/lock", "xreg/snapshots/", "xreg/model.npz", "summary.json", "dropout/manifest.json"):
        before = _state(out)
        path = out / name
        kept = path.read_bytes() if path.exists() else None
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.write_bytes((kept or b"") + b" ")
        changed = _state(out)
        with pytest.raises(InputError, match=r"holds \S+, which no quickstart wrote"):
            module.quickstart(out, steps=10, progress=False)
        assert _state(out) == changed
        if name.endswith("/"):
            path.rmdir()
        elif kept is None:
            path.unlink()
        else:
            path.write_bytes(kept)
        assert _state(out) == before
    module.quickstart(out, steps=11, progress=False)
    assert load_yaml(out / "xreg" / "config.yaml").train.steps == 11


@pytest.mark.parametrize("made", ["run", "sweep"])
def test_the_manifest_of_something_else_is_not_its_own(made, small, tiny, tmp_path):
    out = tmp_path / "mine"
    if made == "run":
        train_run(tiny.replace(steps=10), out, progress=False)
    else:
        points = plan("grid", methods="persistence", grid=["mask_seed=3"], base=tiny)
        with open_sweep(out, {"name": "grid", "config": to_dict(tiny), "data": "0", "seeds": len(points)}):
            pass
    before = _state(out)
    with pytest.raises(InputError, match="which no quickstart wrote"):
        module.quickstart(out, steps=10, progress=False)
    assert _state(out) == before


def test_one_that_was_stopped_is_replaced_and_its_removal_too(small, undrawn, tmp_path, monkeypatch):
    """Wherever it is stopped: as it trains, as it scores, as it removes."""
    out = tmp_path / "quickstart"
    places = ("train_side_by_side", "record_json", "compute_test_fields", "calibration_curves", "space_time_maps")
    places += ("vouch",)

    class StoppedError(Exception):
        pass

    def stop(*_, **__):
        raise StoppedError

    for name in places:
        with monkeypatch.context() as patch:
            patch.setattr(module if hasattr(module, name) else figures, name, stop)
            with pytest.raises(StoppedError):
                module.quickstart(out, steps=10, progress=False)
    module.quickstart(out, steps=10, progress=False)
    whole, unlink = set(_state(out)), Path.unlink
    for count in (1, 9, 12):  # files that are left once it is stopped: all, all but 8, all but 19
        left = [count]

        def unlinked(path, left=left, **options):
            left[0] -= 1
            if not left[0]:
                raise StoppedError
            unlink(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", unlinked)
            with pytest.raises(StoppedError):
                module.start_afresh(out, {})
    module.quickstart(out, steps=10, progress=False)
    assert set(_state(out)) == whole


def test_what_others_have_put_there_stays(small, undrawn, tmp_path):
    """A page and figures that our own commands write among its files, and files of the user's."""
    out = tmp_path / "quickstart"
    out.mkdir()
    theirs = {
        name: f"in {name}".encode()
        for name in ("notes.txt", "figures/own.png", "xreg/report.html", "xreg/mine/notes.txt")
    }
    # What another process is writing in a folder of its own.
    theirs["another/model.npz.12-0123abcd.crossreg.tmp"] = b"half"
    for name, content in theirs.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(content)
    module.quickstart(out, steps=10, progress=False)
    assert {name: content for name, content in _state(out).items() if name in theirs} == theirs
    assert main(["report", str(out), "--quiet"]) == 0
    assert main(["figures", str(out / "dropout"), "--quiet"]) == 0
    theirs |= {name: content for name, content in _state(out).items() if "figures" in name or name == "report.html"}
    assert {"report.html", "dropout/figures/losses.png"} <= theirs.keys()
    module.quickstart(out, steps=11, progress=False)
    state = _state(out)
    assert {name: state.pop(name) for name in theirs} == theirs
    assert state.keys() == {*(read_manifest(out) or {}), "lock", "manifest.json"}
    assert load_yaml(out / "xreg" / "config.yaml").train.steps == 11


def test_a_kill_as_a_file_takes_its_place_is_survived(small, undrawn, tmp_path, monkeypatch):
    """Just before, and just after."""
    out, replace = tmp_path / "quickstart", os.replace

    class KilledError(Exception):
        pass

    for after, names in (
        (True, ("dropout/model.npz", "maps_xreg.png")),
        (False, ("xreg/config.yaml", "calibration.pdf")),
    ):
        for name in names:

            def killed(source, target, name=name, after=after):
                if Path(target) == out / name:
                    if after:
                        replace(source, target)
                    raise KilledError
                replace(source, target)

            with monkeypatch.context() as patch:
                patch.setattr(os, "replace", killed)
                with pytest.raises(KilledError):
                    module.quickstart(out, steps=10, progress=False)
            assert (out / name).exists() == after
    module.quickstart(out, steps=10, progress=False)
    assert set(_state(out)) == {*(read_manifest(out) or {}), "lock", "manifest.json"}


def test_two_quickstarts_do_not_mix(small, tmp_path):
    out = tmp_path / "quickstart"
    with (
        locked(out, "quickstart"),
        pytest.raises(InputError, match="in use by another quickstart"),
    ):
        module.quickstart(out, steps=10, progress=False)
    assert {path.name for path in out.iterdir()} == {"lock"}
