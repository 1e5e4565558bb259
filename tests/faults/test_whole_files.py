"""Figures, compiled programs and extracted runs: written whole, or not at all."""

import errno
import os
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import pytest
from jax._src import compilation_cache
from matplotlib.figure import Figure

from crossreg.cli.main import main
from crossreg.config import to_dict
from crossreg.designs.grids import plan
from crossreg.errors import InputError
from crossreg.files.whole import made_whole, replacing
from crossreg.machine.compilation import store_whole
from crossreg.report.figures.drawing import save
from crossreg.runs.run_folder import load_run
from crossreg.runs.safeguards.manifest import check_files, read_manifest, record_json
from crossreg.studies.sweep import extract as extract_module
from crossreg.studies.sweep.run import run_sweep


def test_a_figure_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    figure, axis = plt.subplots(figsize=(1.3, 0.7))
    axis.plot([0, 1])
    written = save(figure, tmp_path / "a.b")
    assert [path.name for path in written] == ["a.b.pdf", "a.b.png"]
    before = {path: path.read_bytes() for path in written}
    assert before[written[0]].startswith(b"%PDF-")
    assert before[written[1]].startswith(b"\x89PNG")

    def cut(self, file, **options):
        file.write(b"half of a figure")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", cut)
    with pytest.raises(OSError, match="No space left"):
        save(plt.figure(), tmp_path / "a.b")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert not plt.get_fignums()


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder for compiled programs, all of which are kept there."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    from jax._src.lru_cache import LRUCache

    monkeypatch.setattr(LRUCache, "put", LRUCache.put)  # put back behind the test
    for name, value in zip(names, (str(tmp_path / "jax"), 0.0), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield tmp_path / "jax"
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_half_a_compiled_program_is_replaced(programs):
    store_whole()
    store_whole()

    def compiled() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert jax.jit(lambda x: jnp.sin(x) * 7.0 + 3.0)(jnp.ones((3, 2))).shape == (3, 2)
        return [str(one.message) for one in caught if "persistent compilation cache" in str(one.message)]

    assert compiled() == []
    whole = {path: path.stat().st_size for path in programs.glob("*-cache")}
    assert whole
    for path in whole:
        path.write_bytes(path.read_bytes()[:20])
    jax.clear_caches()
    assert "Error reading" in compiled()[0]
    assert all(path.stat().st_size > 0.9 * size for path, size in whole.items())
    jax.clear_caches()
    assert compiled() == []
    assert not list(programs.glob("*.tmp"))


@pytest.fixture(scope="module")
def sweep(waves, tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sweep") / "s"
    points = plan("grid", methods="xreg", seeds=1, steps=10, grid=["mask_seed=3"], base=tiny)
    asked = {
        "name": "grid",
        "methods": "xreg",
        "seeds": 1,
        "grid": ["mask_seed=3"],
        "config": to_dict(tiny),
        "steps": 10,
    }
    run_sweep(points, folder, progress=False, asked=asked)
    return folder


@pytest.mark.parametrize("step", ["write_beginning", "save_model", "write_run_fields", "record_json"])
def test_extract_on_a_full_disk_leaves_nothing(step, sweep, tmp_path, monkeypatch, capsys):
    out = tmp_path / "new" / "run"
    command = ["extract", str(sweep), "--out", str(out), "--method", "xreg", "--seed", "0", "--quiet"]
    usual = getattr(extract_module, step)

    def full(*arguments, **options):
        usual(*arguments, **options)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(extract_module, step, full)
        assert main(command) == 2
    assert capsys.readouterr().err == f"crossreg: --out {out}: cannot write here (No space left on device)\n"
    assert not list(out.parent.iterdir())
    assert main(command) == 0
    assert load_run(out).config.train.steps == 10
    assert {path.name for path in out.parent.iterdir()} == {"run"}


def test_a_folder_takes_its_place_in_one_move(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new"):
        with made_whole(tmp_path / name) as made:
            (made / "a").write_text("x")
            assert not (tmp_path / name / "a").exists()
        assert (tmp_path / name / "a").read_text() == "x"
    with pytest.raises(KeyError), made_whole(tmp_path / "failed") as made:
        raise KeyError
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "new"}


def test_a_temporary_file_is_never_somebody_elses(tmp_path, monkeypatch):
    """Should its name be taken, nothing is written through it."""
    monkeypatch.setattr("crossreg.files.whole.secrets.token_hex", lambda _: "00000000")
    monkeypatch.setattr("crossreg.files.whole.os.getpid", lambda: 1)
    (tmp_path / "theirs").write_text("x")
    (tmp_path / "a.1-00000000.crossreg.tmp").symlink_to(tmp_path / "theirs")
    with pytest.raises(FileExistsError), replacing(tmp_path / "a") as file:
        file.write(b"y")
    assert (tmp_path / "theirs").read_text() == "x"
    assert {path.name for path in tmp_path.iterdir()} == {"theirs", "a.1-00000000.crossreg.tmp"}


def test_a_kill_before_a_file_takes_its_place_leaves_one_that_fits(tmp_path, monkeypatch):
    """The manifest then has the digests of both, and afterwards that of the new one alone."""
    record_json(tmp_path, "a.json", 1)
    before = read_manifest(tmp_path)

    def killed(*_):
        raise KeyboardInterrupt

    usual, calls = os.replace, []

    def replace(source, target):
        calls.append(Path(target).name)
        killed() if Path(target).name == "a.json" else usual(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("crossreg.files.whole.os.replace", replace)
        with pytest.raises(KeyboardInterrupt):
            record_json(tmp_path, "a.json", 2)
    assert calls == ["manifest.json", "a.json"]
    assert (tmp_path / "a.json").read_text() == "1\n"
    check_files(tmp_path, ["a.json"])
    record_json(tmp_path, "a.json", 2)
    check_files(tmp_path, ["a.json"])
    (tmp_path / "a.json").write_text("1\n")
    with pytest.raises(InputError, match="is corrupted"):
        check_files(tmp_path, ["a.json"])
    record_json(tmp_path, "a.json", 1)
    assert read_manifest(tmp_path) == before
