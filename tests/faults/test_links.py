"""Links and pipes among the files of run folders: nothing is read through them, and nobody waits for them."""

import ast
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import crossreg
from crossreg.cars import study as car
from crossreg.cli.main import main
from crossreg.config import to_dict
from crossreg.designs.car_study import car_study
from crossreg.designs.grids import plan
from crossreg.errors import InputError
from crossreg.files.arrays import map_npy, open_npz, read_npy
from crossreg.files.regular import open_regular, read_regular
from crossreg.report.figures import write as figures
from crossreg.studies.launchers import local
from crossreg.studies.sweep.run import run_sweep
from crossreg.studies.train import train_run

SECRET = "the-content-of-another-file"


@pytest.fixture(autouse=True)
def _no_waiting():
    """A command that waits for a pipe fails in place of waiting for ever."""

    def over(*_):
        raise TimeoutError("waited for a pipe")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def made(waves, tiny, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("links")
    train_run(tiny.replace(steps=10), root / "run", progress=False)
    trials = plan("grid", methods="xreg", seeds=1, steps=10, grid=["mask_seed=3"], base=tiny)
    asked = {"name": "grid", "methods": "xreg", "seeds": 1, "steps": 10, "grid": ["mask_seed=3"]}
    run_sweep(trials, root / "sweep", progress=False, asked=asked | {"config": to_dict(tiny)})
    return root


# Every file that a command reads, by the folder that it is in.
NAMES = {
    "run": ("config.yaml", "versions.json", "metrics.json", "metrics.jsonl", "fields.json", "mask.npy", "model.npz",
            "test_fields.npz", "manifest.json", "progress.json"),
    "sweep": ("sweep.json", "rows.jsonl", "manifest.json", "trained/*.json", "trained/*.jsonl", "trained/*.npz"),
}  # fmt: skip
CASES = [(kind, name, False) for kind, names in NAMES.items() for name in names]
CASES += [("run", "versions.json", True), ("sweep", "rows.jsonl", True)]


@pytest.mark.parametrize(("kind", "name", "manifest"), CASES)
def test_no_command_reads_through_a_link_or_waits_for_a_pipe(kind, name, manifest, made, tmp_path, capsys, monkeypatch):
    """In a folder as an older version left it too, whose files no manifest refuses before they are read."""
    monkeypatch.setattr(figures, "_draw", lambda *_, **__: [])  # all is read before anything is drawn
    secret = tmp_path / "secret"
    secret.write_text(f'{{"crossreg": "{SECRET}", "now": "{SECRET}", "test": {{"nll": "{SECRET}"}}}}\n')
    for what in ("link", "pipe"):
        folder = tmp_path / what / kind
        shutil.copytree(made / kind, folder)
        if not manifest and name != "manifest.json":
            (folder / "manifest.json").unlink()
            for path in folder.rglob("*.npz"):
                with np.load(path) as file:
                    arrays = dict(file)
                np.savez(path, **arrays)
        path = min(folder.glob(name)) if "*" in name else folder / name
        path.unlink(missing_ok=True)
        if what == "link":
            path.symlink_to(secret)
        else:
            os.mkfifo(path)
        page = tmp_path / f"{what}.html"
        commands = [["report", str(folder), "--output", str(page), "--quiet"], ["figures", str(folder), "--quiet"]]
        commands += [["evaluate", str(folder)]] if kind == "run" else [["table", str(folder)]]
        for command in commands:
            assert main(command) in (0, 2), command
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        assert not page.exists() or SECRET not in page.read_text()


def test_only_regular_files_are_opened(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "link.npy").symlink_to(tmp_path / "a.npy")
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    assert read_regular(tmp_path / "a.npy", 6) == b"\x93NUMPY"
    with pytest.raises(OSError, match="is a symbolic link, which is not followed"):
        open_regular(tmp_path / "link.npy")
    for name in ("pipe.npy", "folder.npy"):
        for links in (True, False):
            with pytest.raises(OSError, match="is not a file"):
                open_regular(tmp_path / name, follow_links=links)
        for read in (read_npy, map_npy, lambda path: open_npz(path).__enter__()):
            with pytest.raises(InputError, match="is not a file"):
                read(tmp_path / name)
    # What a user names may be a link; what a run folder holds may not.
    assert read_npy(tmp_path / "link.npy").tolist() == [0, 1, 2]
    assert map_npy(tmp_path / "link.npy").tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="symbolic link"):
        read_npy(tmp_path / "link.npy", follow_links=False)


def _contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _moved(folder: Path, name: str, elsewhere: Path) -> dict[str, bytes]:
    """Put a folder inside another elsewhere, with a link in its place; what it then holds, and a file of somebody's."""
    (folder / name).mkdir(exist_ok=True)
    shutil.move(folder / name, elsewhere)
    (elsewhere / "theirs.txt").write_text("mine")
    (folder / name).symlink_to(elsewhere)
    return _contents(elsewhere)


@pytest.mark.parametrize(
    ("kind", "name"), [("run", "snapshots"), *(("sweep", n) for n in ("trained", "snapshots", "jobs"))]
)
def test_nothing_is_trained_through_a_linked_folder(kind, name, made, tiny, tmp_path):
    folder, elsewhere = tmp_path / kind, tmp_path / "elsewhere"
    shutil.copytree(made / kind, folder)
    before = _moved(folder, name, elsewhere)
    refused = pytest.raises(InputError, match=rf"{kind}: cannot write here \({name}: is a symbolic link, which is not")
    if kind == "run":
        (folder / "model.npz").unlink()
        with refused:
            train_run(tiny.replace(steps=10), folder, progress=False)
    else:
        trials = plan("grid", methods="xreg", seeds=2, steps=10, grid=["mask_seed=3"], base=tiny)
        with refused:
            run_sweep(trials, folder, progress=False)
    assert _contents(elsewhere) == before


@pytest.mark.parametrize("name", ["models", "history", "predictions", "snapshots", "figures"])
def test_no_car_experiment_writes_through_a_linked_folder(name, tmp_path, monkeypatch):
    folder = tmp_path / "car"
    folder.mkdir()
    moved = []
    monkeypatch.setattr(
        car, "prepare", lambda *_, **__: moved.append(_moved(folder, name, tmp_path / "else")) or SimpleNamespace()
    )
    with pytest.raises(InputError, match=rf"cannot write here \({name}: is a symbolic link, which is not written"):
        car.run_car(car_study("quick").replace(methods="xreg"), folder, progress=False)
    assert _contents(tmp_path / "else") == moved[0]


def test_figures_and_fields_are_not_written_through_a_linked_folder(made, tmp_path, capsys):
    folder, page = tmp_path / "sweep", tmp_path / "page.html"
    shutil.copytree(made / "sweep", folder)
    before = {name: _moved(folder, name, tmp_path / f"its {name}") for name in ("figures", "test_fields")}
    assert main(["figures", str(folder), "--quiet"]) == 2
    assert (
        "figures: is a symbolic link, which is not written through; choose another folder for the figures with --out"
        in capsys.readouterr().err
    )
    # The fields of a page are computed each time.
    assert main(["report", str(folder), "--output", str(page), "--quiet"]) == 0
    assert page.stat().st_size > 1000
    for name, held in before.items():
        assert _contents(tmp_path / f"its {name}") == held
    for name in before:
        (folder / name).unlink()
    assert main(["report", str(folder), "--output", str(page), "--quiet"]) == 0
    assert len(_contents(folder / "test_fields")) == 1


def test_a_folder_that_the_user_names_may_be_a_link_or_lie_below_one(made, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw_all", lambda *_, **__: [])
    trials = plan("grid", methods="xreg", seeds=1, steps=10, grid=["mask_seed=3"], base=tiny)
    (tmp_path / "disk" / "own").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    (tmp_path / "linked").symlink_to(tmp_path / "disk" / "own")
    for folder in (tmp_path / "link" / "below", tmp_path / "linked"):
        shutil.copytree(made / "sweep", folder, dirs_exist_ok=True)
        (folder / "rows.jsonl").unlink()
        run_sweep(trials, folder, progress=False, asked=None)
        assert _contents(folder)["rows.jsonl"] == _contents(made / "sweep")["rows.jsonl"]
        train_run(tiny.replace(steps=10), folder / "run", progress=False)
        assert (folder / "run" / "model.npz").exists()
        assert main(["figures", str(folder / "run"), "--quiet", "--out", str(tmp_path / "linked" / "drawn")]) == 0
        assert main(["figures", str(folder / "run"), "--quiet"]) == 0
        assert (folder / "run" / "figures").is_dir()
    assert (tmp_path / "disk" / "own" / "drawn").is_dir()


def test_the_log_of_a_worker_is_no_link(tmp_path):
    (tmp_path / "theirs").write_text("mine")
    (tmp_path / "worker-0.log").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic link"):
        local._Worker({}, tmp_path / "worker-0.log")
    assert (tmp_path / "theirs").read_text() == "mine"


# Modules that read what is not in a run folder: the system, the package's own code and pages, and the user's settings.
ELSEWHERE = {
    "config/__init__.py", "files/memory.py", "training/cost.py", "studies/planning/device_costs.py",
    "runs/safeguards/versions.py", "machine/memory_maps.py", "machine/processor.py", "report/page/write.py",
    "report/shared/__init__.py", "report/watch/server.py", "report/cars/page.py", "export/readme.py",
}  # fmt: skip


def test_nothing_else_reads_a_run_folder():
    """Whatever opens a file for reading in another way is found here."""
    root, found = Path(crossreg.__file__).parent, set()
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        if name.startswith(("data/", "cars/meshes/", "export/examples/")):  # files that a user names
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            mode = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            is_open = node.func.attr == "open" and (not mode or mode[0] in ("r", "rb"))
            zipped = isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "_file"
            of_system = isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
            if node.func.attr in ("read_text", "read_bytes") or (is_open and not zipped and not of_system):
                found.add(name)
    assert found <= ELSEWHERE
